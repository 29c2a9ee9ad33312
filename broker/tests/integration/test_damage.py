"""Flipped bytes in the journal of real processes: the pair serves on, and a refusal names the remedy."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest

from support import forked
from support.processes import COMMAND, READY_S, Node, Pair, invoke
from understudy.client.sync import connect
from understudy.runtime.base.disk import RealDisk
from understudy.store.log.reading.replay import Frame, read_frames
from understudy.store.log.records import RecordType
from understudy.store.log.segment import parse_name, seed_of

COUNT = 20


def send(node: Node, first: int, count: int) -> None:
    with connect(f"tcp://127.0.0.1:{node.port}") as connection, connection.session() as session:
        producer = session.producer("q")
        for number in range(first, first + count):
            producer.send(f"{number:04d}".encode() * 50)


def received(node: Node) -> list[int]:
    """The messages of the queue, received without waiting: the answer to the last receive must come."""
    found: list[int] = []
    with connect(f"tcp://127.0.0.1:{node.port}") as connection, connection.session() as session:
        session.start()
        consumer = session.consumer("q")
        while (message := consumer.receive_nowait()) is not None:
            found.append(int(bytes(message.body)[:4]))
            consumer.acknowledge(message)
    return found


def messages(journal: Path) -> list[tuple[Path, Frame]]:
    found = []
    for path in sorted(journal.glob("segment-*.log")):
        number, epoch, _ = parse_name(path.name) or (0, 0, False)
        try:
            file = RealDisk().open(str(path), read_only=True)
        except FileNotFoundError:
            # the node that takes over removes segments that the other one prepared and did not use
            continue
        found += [
            (path, frame)
            for frame, _ in read_frames(file, seed_of(number, epoch))
            if frame.kind == RecordType.MESSAGE_ADD
        ]
        file.close()
    return found


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes((byte ^ 0x40,)))


def test_a_pair_serves_on_over_a_damaged_message(pair: Pair) -> None:
    pair.start()
    send(pair.primary, 0, COUNT)
    pair.primary.kill()
    pair.backup.wait_ready("active")
    # the backup has references only: bodies come from the disk
    path, frame = messages(pair.store / "journal")[7]
    flip(path, frame.offset + frame.length - 5)
    assert received(pair.backup) == [number for number in range(COUNT) if number != 7]
    assert pair.backup.facts()["store"]["quarantined"] == 1  # type: ignore[index]
    _, listed = pair.backup.get("/api/v1/quarantine")
    (entry,) = listed["entries"]  # type: ignore[misc]
    assert (entry["queue"], entry["offset"], entry["held"]) == ("q", frame.offset, False)
    # it counts until its entry is on the disk and the log has its end
    began = time.monotonic()
    while (queue := pair.backup.queue("q")) is None or queue["message_count"]:
        assert time.monotonic() - began < READY_S, queue
        time.sleep(0.02)
    assert queue["delivering_count"] == 0
    send(pair.backup, 100, 5)
    pair.backup.kill()
    # cold, over the damaged record, without a word
    pair.primary.start().wait_ready("active")
    pair.backup.start().wait_ready("passive")
    assert received(pair.primary) == list(range(100, 105))
    pair.primary.kill()
    pair.backup.wait_ready("active")
    assert pair.backup.facts()["store"]["quarantined"] == 1  # type: ignore[index]
    status, dropped = invoke(pair.backup, "broker", "dropQuarantinedMessage", entry["entry_id"])
    assert (status, dropped) == (200, True)
    pair.backup.kill()
    pair.primary.start().wait_ready("active")
    send(pair.primary, 200, 1)
    assert received(pair.primary) == [200]


@pytest.mark.long
def test_damage_met_at_a_start_is_refused_with_what_helps(pair: Pair, tmp_path: Path) -> None:
    pair.primary.start().wait_ready("active")
    send(pair.primary, 0, COUNT)
    assert pair.primary.terminate() == 0
    journal = pair.store / "journal"
    path, frame = messages(journal)[7]
    flip(path, frame.offset + frame.length - 5)
    pair.primary.start()
    assert pair.primary.process is not None
    assert pair.primary.process.wait(60) == 1
    log = pair.primary.log.read_text()
    assert "--quarantine" in log
    commands = re.findall(r"'understudy (data salvage [^']+)'", log.replace("\\'", "'"))
    assert commands[:2] == [f"data salvage {journal}", f"data salvage {journal} --to NEW_DIRECTORY"]
    shown = forked.run([str(COMMAND), *commands[0].split()], capture_output=True, text=True)
    assert shown.returncode == 1
    assert f"LOST: {path} at offset {frame.offset}" in shown.stdout

    pair.primary.arguments = ("--quarantine",)
    pair.primary.start().wait_ready("active")
    rest = [number for number in range(COUNT) if number != 7]
    queue = pair.primary.queue("q")
    assert queue is not None
    assert queue["message_count"] == len(rest)
    assert pair.primary.terminate() == 0
    pair.primary.arguments = ()

    new = tmp_path / "new" / "journal"
    command = commands[1].replace("NEW_DIRECTORY", str(new)).split()
    assert forked.run([str(COMMAND), *command], capture_output=True).returncode == 1, "something is lost"
    # and the salvaged journal in its place
    shutil.copy(journal / "server.lock", new / "server.lock")
    shutil.rmtree(journal)
    new.rename(journal)
    pair.primary.start().wait_ready("active")
    assert received(pair.primary) == rest
