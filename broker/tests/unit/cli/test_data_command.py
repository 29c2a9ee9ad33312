"""Goal: ``understudy data`` shows a store on a real disk and says with its exit code whether it is whole."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.store import DIRECTORY, StoreHarness

from understudy.cli.data.commands import data
from understudy.ids import NodeId
from understudy.store.log.segment import decode_header, encode_header


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    rig = StoreHarness(random.Random(8))
    rig.activate("a")
    for _ in range(200):
        rig.operate()
    rig.settle()
    for path in rig.volume.paths():
        (tmp_path / path.removeprefix(DIRECTORY + "/")).write_bytes(rig.volume.content(path))
    return tmp_path


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(data, list(arguments))
    return result.exit_code, result.output


def test_verify_whole(directory: Path) -> None:
    before = {path: path.read_bytes() for path in directory.iterdir()}
    code, output = run("verify", str(directory))
    assert code == 0
    assert "no damage found" in output
    code, output = run("verify", str(directory), "--json")
    assert code == 0
    report = json.loads(output)
    assert report["problems"] == []
    assert report["segments"][-1]["state"] == "empty"
    assert {path: path.read_bytes() for path in directory.iterdir()} == before


@pytest.mark.parametrize("kind", ["queue", "address"])
def test_an_export_of_a_name_that_is_not_there_is_refused(directory: Path, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "export.jsonl"
    code, output = run("export", str(directory), f"--{kind}", "no-such", "-o", str(file))
    assert (code, file.exists()) == (2, False)
    assert f"--{kind}: the journal has no {kind} 'no-such'" in output


def test_a_replay_of_a_period_that_ends_before_it_begins_is_refused(directory: Path) -> None:
    code, output = run("replay", str(directory), "--from", "2026-12-01", "--to", "2026-11-01")
    assert code == 2
    assert "--to 2026-11-01 is not after --from 2026-12-01" in output


def test_verify_damaged_names_file_and_offset(directory: Path) -> None:
    path = min(directory.glob("segment-*"))
    content = bytearray(path.read_bytes())
    content[5000] ^= 1
    path.write_bytes(content)
    code, output = run("verify", str(directory))
    assert code == 1
    assert f"DAMAGED: {path} at offset" in output
    code, output = run("verify", str(directory), "--json")
    assert code == 1
    assert json.loads(output)["problems"][0]["file"] == str(path)


def test_print_and_its_filters(directory: Path) -> None:
    code, output = run("print", str(directory), "--json")
    assert code == 0
    records = [json.loads(line) for line in output.splitlines()]
    sequences = [record["sequence"] for record in records]
    assert sequences == sorted(sequences)
    code, output = run("print", str(directory), "--json", "--type", "message_add", "--limit", "3")
    messages = [json.loads(line) for line in output.splitlines()]
    assert messages == [record for record in records if record["kind"] == "MESSAGE_ADD"][:3]
    queue_id = messages[0]["queue_ids"][0]
    code, output = run("print", str(directory), "--json", "--queue", str(queue_id))
    assert [json.loads(line) for line in output.splitlines()] == [
        record for record in records if queue_id in (record.get("queue_id"), *record.get("queue_ids", ()))
    ]
    code, output = run(
        "print", str(directory), "--from-sequence", str(sequences[2]), "--to-sequence", str(sequences[3])
    )
    assert len(output.splitlines()) == 2
    message_id = str(messages[0]["message_id"])
    code, output = run("print", str(directory), "--message", message_id)
    assert all(message_id in line for line in output.splitlines())
    assert output


def test_an_empty_directory_is_a_usage_error(tmp_path: Path) -> None:
    for command in ("print", "verify"):
        code, output = run(command, str(tmp_path))
        assert code == 2
        assert "holds no journal" in output


def test_salvage_shows_and_then_writes(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    target = tmp_path_factory.mktemp("new") / "journal"
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(directory.rglob("*"))}
    shown = CliRunner().invoke(data, ["salvage", str(directory), "--json"])
    assert shown.exit_code == 0, shown.output
    report = json.loads(shown.output)
    done = CliRunner().invoke(data, ["salvage", str(directory), "--to", str(target), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output) == report
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(directory.rglob("*"))} == before
    live = []
    for verified in (directory, target):
        found = CliRunner().invoke(data, ["verify", str(verified), "--json"])
        assert found.exit_code == 0, found.output
        live.append(json.loads(found.output)["live_messages"])
    assert live[0] == live[1] > 0
    assert report["messages"] >= live[0], "those of prepared transactions too"
    again = CliRunner().invoke(data, ["salvage", str(directory), "--to", str(target)])
    assert again.exit_code == 2, "it is not empty"


def test_salvage_names_the_lost_messages(directory: Path) -> None:
    segment = sorted(directory.glob("segment-*.log"))[0]
    content = bytearray(segment.read_bytes())
    content[4096 + 200] ^= 0xFF
    segment.write_bytes(content)
    shown = CliRunner().invoke(data, ["salvage", str(directory)])
    assert shown.exit_code == 1
    assert f"LOST: {segment} at offset" in shown.output
    assert "nothing was changed" in shown.output


def test_salvage_takes_damaged_records_from_another_copy(
    directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other, target = tmp_path_factory.mktemp("other") / "journal", tmp_path_factory.mktemp("new") / "journal"
    shutil.copytree(directory, other)
    segment = sorted(directory.glob("segment-*.log"))[0]
    content = bytearray(segment.read_bytes())
    content[4096 + 200] ^= 0xFF
    segment.write_bytes(content)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(other.rglob("*"))}
    code, output = run("salvage", str(directory), "--from", str(other))
    assert code == 0, output
    assert "LOST" not in output
    assert f"restored from {other}: 1 " in output
    code, output = run("salvage", str(directory), "--from", str(other), "--to", str(target), "--json")
    assert code == 0, output
    report = json.loads(output)
    assert (report["other"], report["lost_count"], sum(report["restored"].values())) == (str(other), 0, 1)
    live = [json.loads(run("verify", str(each), "--json")[1])["live_messages"] for each in (other, target)]
    assert live[0] == live[1] > 0
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(other.rglob("*"))} == before

    (other / segment.name).write_bytes(content)
    code, output = run("salvage", str(directory), "--from", str(other))
    assert code == 1
    assert f"LOST (in neither copy): {segment} at offset" in output
    assert f"restored from {other}: nothing" in output


def test_usage_of_another_copy(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other") / "journal"
    shutil.copytree(directory, other)
    for segment in other.glob("segment-*.log"):
        header = decode_header(segment.read_bytes()[:4096], str(segment))
        node_id = NodeId("00000000-0000-0000-0000-000000000001")
        segment.write_bytes(encode_header(replace(header, node_id=node_id)) + segment.read_bytes()[4096:])
    bodies = str(other.parent / "large-messages")
    for expected, arguments in {
        "another node": ("--from", str(other)),
        "DIRECTORY itself": ("--from", str(directory)),
        "--from names": ("--large-messages-from", bodies),
        "holds no journal": ("--from", str(other.parent)),
        "bodies of the other copy": (
            "--from",
            str(other),
            "--to",
            str(other.parent / "n"),
            "--large-messages-to",
            bodies,
        ),
    }.items():
        code, output = run("salvage", str(directory), *arguments)
        assert code == 2, output
        assert expected in output
