"""A driver of ``understudy pipeline consolidate`` that is killed at any moment: the new store is there whole, or not.

The process is killed with SIGKILL while it starts, reads, writes and publishes; then the next run begins at once, while
Spark of the killed run may still end. Beside the output nothing is left in the end.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.copies import act, restart, write_out
from tests.support.store import StoreHarness
from tests.support.store_model import contents_of, order_of

from support import forked
from understudy.runtime.base.disk import RealDisk
from understudy.store.log.reading.follower import Follower

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

_KILLS = 5
#: A run has so long to end. Seconds.
_PATIENCE_S = 240


def start(store: str, output: Path, work: Path) -> subprocess.Popen[str]:
    command = [str(Path(sys.executable).with_name("understudy")), "pipeline", "consolidate", store, "-o", str(output)]
    options = ["--id-cache-size", "5", "--master", "local[2]", "--work-dir", str(work)]
    return forked.Popen(command + options, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def check(output: Path, expected: dict[str, object]) -> None:
    follower = Follower(RealDisk(), str(output / "journal"), id_cache_size=5)
    follower.finish()
    contents = contents_of(follower.state)
    follower.close()
    assert contents | {"order": order_of(contents)} == expected


def kill(process: subprocess.Popen[str], stage: Path, stream: random.Random) -> None:
    """Kill the driver: at any moment, or soon after it began to write, because most of a run is the start of Spark."""
    if stream.random() < 0.7:
        deadline = time.monotonic() + _PATIENCE_S
        while process.poll() is None and not (stage.is_dir() and any(stage.iterdir())):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        delay_s = stream.random() * 10
    else:
        delay_s = stream.random() * 25
    try:
        process.wait(delay_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    process.communicate()


def test_a_killed_driver_leaves_the_whole_store_or_nothing(tmp_path: Path) -> None:
    stream = random.Random(20261124)
    rig = StoreHarness(stream, compact_segments_min=2, compact_percent=75)
    rig.activate("a")
    act(rig, 300)
    rig.prepared = {}
    restart(rig)
    act(rig, 100)
    contents = rig.model.contents()
    expected = contents | {"order": order_of(contents)}
    store = str(write_out(rig, tmp_path / "store"))
    work, place = tmp_path / "work", tmp_path / "place"
    work.mkdir()
    place.mkdir()
    killed = 0
    output, stage = place / "new", place / ".new.new"
    for _ in range(_KILLS):
        process = start(store, output, work)
        kill(process, stage, stream)
        killed += process.returncode == -signal.SIGKILL
        if output.exists():
            check(output, expected)
            shutil.rmtree(output)
    assert killed > 1
    process = start(store, output, work)
    _, errors = process.communicate(timeout=_PATIENCE_S)
    assert process.returncode == 0, errors
    check(output, expected)
    assert os.listdir(place) == ["new"]
