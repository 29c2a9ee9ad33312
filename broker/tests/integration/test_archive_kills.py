"""A driver of ``understudy pipeline archive`` that is killed at any moment: each message is in the archive once.

The process is killed with SIGKILL while it starts, reads, writes and publishes. After each kill the published
generation is complete, the former one or the new one, and the next run begins at once, while Spark of the killed run
may still end.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.archives import Key, archived_rows, check_rows, encoded_of, expected_messages
from tests.support.copies import act, restart, write_out
from tests.support.store import StoreHarness

from support import forked

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

_TURNS = 4
_KILLS_EACH = 3
#: A run has so long to make its stage, or to end. Seconds.
_PATIENCE_S = 180


def start(stores: list[str], archive: Path, work: Path) -> subprocess.Popen[str]:
    command = [str(Path(sys.executable).with_name("understudy")), "pipeline", "archive", *stores, "-o", str(archive)]
    options = ["--json", "--compact-files", "2", "--keep-hours", "0", "--master", "local[2]", "--work-dir", str(work)]
    return forked.Popen(command + options, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def generations(archive: Path) -> set[str]:
    directory = archive / "generations"
    return {path.name for path in directory.iterdir()} if directory.is_dir() else set()


def kill(process: subprocess.Popen[str], archive: Path, stream: random.Random, known: set[str]) -> bool:
    """Kill the driver at a random moment; whether it was still running.

    Most of a run is the start of Spark, so two of three kills wait for its stage.
    """
    deadline = time.monotonic() + _PATIENCE_S
    if stream.random() < 0.67:
        while process.poll() is None and not generations(archive) - known:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        delay_s = stream.random() * 2
    else:
        delay_s = stream.random() * 15
    try:
        process.wait(delay_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL


def keys_of(archive: Path) -> set[Key]:
    """Keys of the messages in the published generation of an archive; fails if a key is there twice."""
    if not (archive / "data").exists():
        return set()
    rows = archived_rows(archive)
    keys = {(row["node_id"], row["message_id"], encoded_of(row)) for row in rows}
    assert len(keys) == len(rows)
    manifest = json.loads((archive / "data" / "_manifest.json").read_text())
    assert manifest["rows"] == len(rows)
    return keys


def test_a_killed_driver_leaves_each_message_once(tmp_path: Path) -> None:
    stream = random.Random(20261123)
    rig = StoreHarness(stream, compact_segments_min=2, compact_percent=75)
    rig.activate("a")
    archive, work = tmp_path / "archive", tmp_path / "work"
    work.mkdir()
    stores: list[str] = []
    killed = 0
    for turn in range(_TURNS):
        if turn % 2:
            restart(rig)
        act(rig, 250)
        stores.append(str(write_out(rig, tmp_path / f"store{turn}")))
        for _ in range(_KILLS_EACH):
            before = keys_of(archive)
            killed += kill(start(stores[-1:], archive, work), archive, stream, generations(archive))
            assert keys_of(archive) in (before, set(expected_messages(stores).confirmed))
        output, errors = (process := start(stores[-1:], archive, work)).communicate(timeout=_PATIENCE_S)
        assert process.returncode == 0, errors
        rows = archived_rows(archive)
        check_rows(rows, expected_messages(stores))
        assert json.loads(output)["rows"] == len(rows)
        # nothing is left of the killed runs
        assert len(generations(archive)) <= 2
    assert killed > _TURNS * _KILLS_EACH // 2
