"""Goal: ``data compact`` frees space and reports its work, refuses while a process has the store, and on a
consolidated log every other data command still works without a change.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.copies import write_out
from tests.support.store import NODE_ID, StoreHarness
from tests.unit.cli.test_data_compare_command import everything, same
from tests.unit.tools.test_compaction import store_of

from understudy.cli.data.commands import data
from understudy.ids import uuid_bytes
from understudy.runtime.base.disk import RealDisk
from understudy.runtime.locks.file_lock import RealFileLock
from understudy.store.log.reading.follower import recover


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(data, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout if not result.exit_code else result.output


@pytest.fixture
def rig() -> StoreHarness:
    return store_of()


@pytest.fixture
def journal(rig: StoreHarness, tmp_path: Path) -> Path:
    """A store as a stopped broker leaves it."""
    directory = write_out(rig, tmp_path / "journal")
    (directory / "server.lock").write_bytes(b"P00" + uuid_bytes(NODE_ID))
    return directory


def compacted(journal: Path, *options: str) -> dict[str, Any]:
    code, output = run("compact", str(journal), "--json", *options)
    assert code == 0, output
    found: dict[str, Any] = json.loads(output)
    return found


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_segments_are_not_retained_in_the_journal_itself(journal: Path, tmp_path: Path, options: list[str]) -> None:
    before = everything(str(journal))
    (tmp_path / "kept").symlink_to(journal)
    for directory in (journal, tmp_path / "kept"):
        code, output = run("compact", str(journal), "--retain", str(directory), *options)
        assert code == 2
        assert "--retain is the journal itself" in output
    assert everything(str(journal)) == before


def test_a_dry_run_says_and_changes_nothing(journal: Path) -> None:
    before = everything(str(journal))
    planned = compacted(journal, "--dry-run")
    assert planned["sparse_segments"] > 3
    code, output = run("compact", str(journal), "--dry-run")
    assert code == 0
    assert "nothing was changed" in output
    assert same(before, everything(str(journal)))


def test_compaction_frees_space_and_keeps_every_message(journal: Path) -> None:
    before = recover(RealDisk(), str(journal)).state
    report = compacted(journal)
    assert report["size_bytes_after"] < report["size_bytes_before"] // 2
    assert report["trouble"] is None
    after = recover(RealDisk(), str(journal)).state
    assert {queue: list(waiting) for queue, waiting in after.references.items() if waiting} == {
        queue: list(waiting) for queue, waiting in before.references.items() if waiting
    }
    assert (journal / "server.lock").read_bytes() == b"P00" + uuid_bytes(NODE_ID)
    code, output = run("compact", str(journal))
    assert code == 0
    assert "are now" in output


def test_compaction_is_refused_while_a_process_writes_the_store_without_its_lock(journal: Path) -> None:
    """A node of a replicated pair with a lock manager takes no lock of the store."""
    segment = min(journal.glob("segment-*.log"))
    hold = f"file = open({str(segment)!r}, 'r+b'); print('open', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as node:
        assert node.stdout is not None
        assert node.stdout.readline() == b"open\n"
        code, output = run("compact", str(journal))
        node.communicate(b"\n")
    assert code == 1
    assert f"process {node.pid} writes {segment.name}" in output


def test_compaction_is_refused_while_the_store_is_locked(journal: Path) -> None:
    lock = RealFileLock(str(journal / "serverlock.1"))
    assert lock.try_acquire()
    before = everything(str(journal))
    code, output = run("compact", str(journal))
    assert code == 1
    assert "a broker has the lock" in output
    assert same(before, everything(str(journal)))
    lock.release()
    assert run("compact", str(journal))[0] == 0


def test_locks_elsewhere(journal: Path, tmp_path: Path) -> None:
    locks = tmp_path / "locks"
    locks.mkdir()
    (journal / "server.lock").rename(locks / "server.lock")
    code, output = run("compact", str(journal))
    assert code == 2
    assert "no server.lock" in output
    assert not (journal / "serverlock.1").exists()
    assert run("compact", str(journal), "--lock-directory", str(locks))[0] == 0


def test_dropped_segments_are_moved_to_the_retention_directory(journal: Path, tmp_path: Path) -> None:
    # not those that were prepared and never used
    before = {path.name for path in journal.glob("segment-*") if any(path.read_bytes()[4096:4120])}
    kept = tmp_path / "kept"
    report = compacted(journal, "--retain", str(kept))
    retained = {path.name for path in kept.iterdir()}
    assert len(retained) == report["dropped_segments"]
    assert before - {path.name for path in journal.iterdir()} <= retained


def test_another_user_would_not_be_able_to_open_it(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    before = everything(str(journal))
    code, output = run("compact", str(journal))
    assert code == 2
    assert "belongs to user" in output
    assert same(before, everything(str(journal)))


def test_another_node_and_damage_have_their_codes(journal: Path) -> None:
    (journal / "server.lock").write_bytes(b"P00" + bytes(range(16)))
    assert run("compact", str(journal))[0] == 2
    (journal / "server.lock").write_bytes(b"P00" + uuid_bytes(NODE_ID))
    path = sorted(journal.glob("segment-*"))[1]
    content = bytearray(path.read_bytes())
    content[5_000] ^= 1
    path.write_bytes(content)
    before = {name: found for name, found in everything(str(journal)).items() if "segment-" in name}
    for option in ((), ("--dry-run",)):
        code, output = run("compact", str(journal), *option)
        assert code == 3
        assert path.name in output
    assert same(before, {name: found for name, found in everything(str(journal)).items() if "segment-" in name})


def test_the_other_commands_read_a_compacted_log_and_change_nothing(
    journal: Path, rig: StoreHarness, tmp_path: Path
) -> None:
    kept = write_out(rig, tmp_path / "before")
    exported = tmp_path / "before.jsonl"
    # large messages are left out, which is said
    assert run("export", str(kept), "-o", str(exported), "--json")[0] in (0, 1)
    compacted(journal)
    before = everything(str(journal))
    code, output = run("print", str(journal), "--json")
    assert code == 0
    kinds = [json.loads(line)["kind"] for line in output.splitlines()]
    assert {"SNAPSHOT", "SEGMENTS_DROP", "MESSAGE_MOVE", "SEAL"} <= set(kinds)
    code, output = run("verify", str(journal), "--json")
    assert code == 0
    report = json.loads(output)
    assert [snapshot["used"] for snapshot in report["snapshots"]] == [True, False]
    code, output = run("verify", str(journal))
    assert code == 0
    assert "in use" in output
    twin = shutil.copytree(journal, tmp_path / "twin")
    code, output = run("compare", str(journal), str(twin), "--json")
    assert code == 0
    assert json.loads(output)["pairs"][0]["relation"] == "identical"
    # what the snapshots stand for is nothing that could be compared record by record: nothing is claimed
    code, output = run("compare", str(journal), str(kept), "--json")
    assert code == 1
    assert json.loads(output)["newest"] == [str(journal)]
    assert json.loads(output)["pairs"][0]["relation"] == "unknown"
    again = tmp_path / "after.jsonl"
    assert run("export", str(journal), "-o", str(again), "--json")[0] in (0, 1)
    assert messages_of(again) == messages_of(exported)
    assert same(before, everything(str(journal)))


def messages_of(path: Path) -> list[tuple[str, int, str]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = [line["message"] for line in lines if "message" in line]
    return [(message["queue"], message["id"], message["body"]) for message in found]


def test_damage_in_a_snapshot_is_reported_with_its_position(journal: Path) -> None:
    compacted(journal)
    newest = max(journal.glob("snapshot-*"))
    content = bytearray(newest.read_bytes())
    content[4_200] ^= 4
    newest.write_bytes(content)
    code, output = run("verify", str(journal), "--json")
    assert code == 1
    report = json.loads(output)
    assert [(problem["file"], problem["offset"] <= 4_200) for problem in report["problems"]] == [(str(newest), True)]
    assert [snapshot["used"] for snapshot in report["snapshots"]] == [False, True]
