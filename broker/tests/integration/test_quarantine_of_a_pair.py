"""A message in the quarantine of a running pair, whose bytes are right on the disk of the other node, comes back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support import forked
from support.processes import COMMAND, Node
from support.replicated import ReplicatedPair, wait_in_sync, wait_until
from understudy.client import sync

MESSAGES = 20
DAMAGED = b"number 7 " * 40


def command(*arguments: object) -> str:
    done = forked.run([str(COMMAND), *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def flip(node: Node) -> None:
    """Flip a bit of the damaged message in the log of a node."""
    for path in (node.directory / "data" / "journal").glob("segment-*"):
        data = path.read_bytes()
        at = data.find(DAMAGED)
        if at >= 0:
            with path.open("r+b") as file:
                file.seek(at)
                file.write(bytes([data[at] ^ 1]))
            return
    raise AssertionError("no segment has the message")


def receive(url: str, count: int) -> set[bytes]:
    with sync.connect(url) as connection:
        session = connection.session()
        consumer = session.consumer("q")
        found = set()
        for _ in range(count):
            message = consumer.receive(30)
            assert message is not None, len(found)
            found.add(bytes(message.message.body))
            consumer.acknowledge(message)
        return found


@pytest.mark.long
def test_a_message_in_quarantine_comes_back_with_the_bytes_of_the_other_node(tmp_path: Path) -> None:
    """Copies of both running nodes are salvaged, and the message is imported. The entry names the node that was bad."""
    # the queue is empty while its last message is in the quarantine
    kept = "<auto-delete-queues>false</auto-delete-queues><auto-delete-addresses>false</auto-delete-addresses>"
    settings = f'<address-settings><address-setting match="#">{kept}</address-setting></address-settings>'
    pair = ReplicatedPair(tmp_path, extra=settings)
    primary, backup = pair.primary, pair.backup
    bodies = [b"number %d " % number * 40 for number in range(MESSAGES)]
    try:
        pair.start()
        with sync.connect(pair.url) as connection, connection.session().producer("q") as producer:
            for body in bodies:
                producer.send(body)
        backup.kill()
        primary.terminate()
        # bodies are in the log only
        primary.start().wait_ready("active")
        flip(primary)
        assert receive(pair.url, MESSAGES - 1) == set(bodies) - {DAMAGED}
        token = primary.directory / "etc" / "management.token"
        place = ("--url", f"http://127.0.0.1:{primary.http_port}", "--token-file", token)
        assert json.loads(command("queue", "quarantine-damaged", *place, "--yes", "--json")) == {"moved": 1}
        wait_until(lambda: primary.get("/api/v1/quarantine")[1]["count"] == 1, primary)
        entries = primary.get("/api/v1/quarantine")[1]["entries"]
        assert isinstance(entries, list)
        assert entries[0]["nodes"] == "primary"
        copies = {node: tmp_path / f"copy-{node.role}" for node in (primary, backup)}
        # before the backup is in sync again, which may replace its bytes
        command("data", "backup", "--instance", backup.directory, "--to", copies[backup])
        backup.start()
        wait_in_sync(primary, backup, 2)
        command("data", "backup", "--instance", primary.directory, "--to", copies[primary])
        file = tmp_path / "messages.jsonl"
        salvaged = command(
            "data", "salvage", copies[primary] / "journal", "--from", copies[backup] / "journal",
            "--to", tmp_path / "new" / "journal", "--quarantined", file, "--json",
        )  # fmt: skip
        assert json.loads(salvaged)["restored"]["quarantined message"] == 1
        for _ in range(2):
            # the second time sends nothing new
            command("data", "import", file, "--url", pair.url)
        assert receive(pair.url, 1) == {DAMAGED}
        queue = primary.queue("q")
        assert queue is not None
        assert queue["message_count"] == 0
    finally:
        pair.end()
