"""Goal: ``data compare`` says which copy to start and how to bring the rest over, with its exit code for
scripts; and no data command that reads a journal changes a byte, a time or an inode of it.
"""

from __future__ import annotations

import json
import os
import random
import zlib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.copies import act, fork, go_on, write_out
from tests.support.store import StoreHarness

from understudy.cli.data.commands import data
from understudy.cli.data.export_file import ExportFile
from understudy.errors import JournalCorrupt
from understudy.ids import NodeId
from understudy.store.log.records import AddressRecord, QueueRecord
from understudy.store.log.segment import SegmentHeader, encode_header, segment_name


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(data, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def compared(*arguments: str) -> tuple[int, dict[str, Any]]:
    code, output = run("compare", *arguments, "--json")
    return code, json.loads(output)


@pytest.fixture
def copies(tmp_path: Path) -> dict[str, str]:
    """``old`` is the beginning of both ``left`` and ``right``, which went different ways."""
    rig = StoreHarness(random.Random(13))
    rig.activate("a")
    act(rig, 80)
    found = {"old": str(write_out(rig, tmp_path / "old"))}
    both = fork(rig, random.Random(12))
    found["same"] = str(write_out(both.right, tmp_path / "same"))
    go_on(both.left, 30)
    go_on(both.right, 20)
    go_on_again = both.left
    go_on_again.die(power_loss=False)
    go_on(go_on_again, 10)
    found["left"] = str(write_out(both.left, tmp_path / "left"))
    found["right"] = str(write_out(both.right, tmp_path / "right"))
    return found


def test_identical_and_prefix(copies: dict[str, str]) -> None:
    code, verdict = compared(copies["old"], copies["same"])
    assert code == 0
    assert verdict["pairs"][0]["relation"] == "identical"
    assert verdict["newest"] == [copies["old"], copies["same"]]
    code, verdict = compared(copies["left"], copies["old"])
    assert code == 0
    assert verdict["pairs"][0]["relation"] == "extension"
    assert verdict["newest"] == [copies["left"]]
    assert "not needed" in verdict["plan"][-1]


def test_newest_is_not_the_newest_file(copies: dict[str, str]) -> None:
    for path in Path(copies["old"]).iterdir():
        os.utime(path, (2**31, 2**31))
    code, verdict = compared(copies["old"], copies["left"])
    assert (code, verdict["newest"]) == (0, [copies["left"]])


def test_diverged_of_three(copies: dict[str, str]) -> None:
    code, verdict = compared(copies["old"], copies["right"], copies["left"])
    assert code == 1
    assert verdict["newest"] == [copies["left"]]  # epoch 3 against 2
    (pair,) = [pair for pair in verdict["pairs"] if pair["relation"] == "diverged"]
    assert (pair["left"], pair["right"]) == (copies["right"], copies["left"])
    assert pair["left_place"]["epoch"] == pair["right_place"]["epoch"] == 2
    assert pair["left_place"]["file"].startswith("segment-")
    assert pair["left_place"]["offset"] == 4096
    plan = "\n".join(verdict["plan"])
    assert f"Start from {copies['left']}" in plan
    assert f"understudy data export {copies['right']} --only-in-not {copies['left']}" in plan
    code, output = run("compare", copies["old"], copies["right"], copies["left"])
    assert code == 1
    assert "diverged at sequence" in output
    assert "1. Start from" in output


def test_exit_codes_of_copies_that_cannot_be_compared(copies: dict[str, str], tmp_path: Path) -> None:
    assert run("compare", copies["old"])[0] == 2
    assert run("compare", copies["old"], copies["old"])[0] == 2
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run("compare", copies["old"], str(empty))[0] == 2
    other = NodeId("11111111-4b5a-4697-8897-a6b5c4d3e2f1")
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    header = encode_header(SegmentHeader(other, 1, 1, 0, 4096, False))
    (stranger / segment_name(1, 1)).write_bytes(header)
    code, output = run("compare", copies["old"], str(stranger))
    assert code == 2
    assert "of node" in output
    newer = bytearray(header)
    newer[8] = 9
    newer[12:16] = bytes(4)
    newer[12:16] = zlib.crc32(newer).to_bytes(4, "little")
    (stranger / segment_name(1, 1)).write_bytes(newer)
    code, output = run("compare", copies["old"], str(stranger))
    assert code == 3
    assert "format version 9" in output


def test_damage(copies: dict[str, str]) -> None:
    path = sorted(Path(copies["old"]).glob("segment-*"))[0]
    content = bytearray(path.read_bytes())
    content[5000] ^= 1
    path.write_bytes(content)
    code, verdict = compared(copies["old"], copies["left"], "--full")
    assert code == 1
    assert verdict["copies"][0]["state"] == "damaged"
    assert verdict["pairs"][0]["relation"] == "prefix"
    assert "is damaged" in verdict["plan"][0]
    result = CliRunner().invoke(data, ["export", copies["old"], "-o", "-"])
    assert isinstance(result.exception, JournalCorrupt)
    assert result.stdout == ""
    code, output = run("export", copies["old"], "--allow-damage", "-o", "-")
    assert code == 1
    assert '"end"' in output


def everything(directory: str) -> dict[str, tuple[bytes, os.stat_result]]:
    places = [Path(directory), *sorted(Path(directory).rglob("*"))]
    return {str(path): (path.read_bytes() if path.is_file() else b"", os.stat(path)) for path in places}


def same(before: dict[str, tuple[bytes, os.stat_result]], after: dict[str, tuple[bytes, os.stat_result]]) -> bool:
    fields = ("st_ino", "st_mtime_ns", "st_ctime_ns", "st_size", "st_mode", "st_nlink")
    return before.keys() == after.keys() and all(
        before[path][0] == after[path][0]
        and all(getattr(before[path][1], field) == getattr(after[path][1], field) for field in fields)
        for path in before
    )


def test_commands_that_read_do_not_change_the_store(copies: dict[str, str], tmp_path: Path) -> None:
    before = {name: everything(directory) for name, directory in copies.items()}
    left, right = copies["left"], copies["right"]
    for arguments in (
        ("print", left),
        ("verify", left),
        ("compare", left, right, copies["old"]),
        ("compare", left, right, "--full", "--json"),
        ("export", left, "-o", str(tmp_path / "all.jsonl")),
        ("export", left, "--only-in-not", right, "-o", str(tmp_path / "some.jsonl")),
    ):
        code, output = run(*arguments)
        assert code in (0, 1), output
        for name, directory in copies.items():
            assert same(before[name], everything(directory)), (arguments, name)
    assert (tmp_path / "all.jsonl").stat().st_mode & 0o777 == 0o600


def test_export_takes_queues_and_addresses(copies: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    assert run("export", copies["left"], "-o", str(file))[0] == 0
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    queues = [line["queue"] for line in lines if "queue" in line]
    chosen = queues[0]
    assert run("export", copies["left"], "--queue", chosen["name"], "-o", str(file))[0] == 0
    some = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line for line in some if "message" in line] == [
        line for line in lines if "message" in line and line["message"]["queue"] == chosen["name"]
    ]
    assert run("export", copies["left"], "--address", "no such", "-o", str(file), "--json")[0] == 2


def test_export_has_the_queues_without_messages(tmp_path: Path) -> None:
    """A durable subscription is in the file also while it is empty. Queues made on demand and the broker's are not,
    and a merge of two copies brings none over.
    """
    rig = StoreHarness(random.Random(13))
    rig.activate("a")
    assert rig.store is not None
    for number, name, settings in ((11, "news", {}), (12, "own", {"internal": True})):
        rig.store.store_address(AddressRecord(number, name, (0,), settings=settings))
    for record in (
        QueueRecord(13, 11, "subscription", 0, "page = 1", settings={"ring_size": 7}),
        QueueRecord(14, 11, "on demand", 0, settings={"auto_created": True}),
        QueueRecord(15, 11, "volatile", 0, durable=False),
        QueueRecord(16, 12, "own", 1),
        QueueRecord(17, 11, "internal", 0, settings={"internal": True}),
    ):
        rig.store.store_queue(record)
    rig.store.flush()
    rig.settle()
    store, file = str(write_out(rig, tmp_path / "store")), tmp_path / "all.jsonl"
    code, output = run("export", store, "-o", str(file), "--json")
    assert code == 0
    assert json.loads(output)["queues"] == 1
    queue = json.loads(file.read_text().splitlines()[1])["queue"]
    assert (queue["name"], queue["address"], queue["filter"]) == ("subscription", "news", "page = 1")
    assert queue["settings"] == {"ring_size": 7}
    exported = ExportFile(file)
    assert (list(exported.queues), exported.messages(prepared=True)) == (["subscription"], 0)
    assert run("export", store, "--queue", "another", "-o", str(file), "--json")[0] == 2
    other = str(write_out(fork(rig, random.Random(12)).right, tmp_path / "other"))
    assert run("export", store, "--only-in-not", other, "-o", str(file))[0] == 0
    assert [next(iter(json.loads(line))) for line in file.read_text().splitlines()] == ["export", "end"]
