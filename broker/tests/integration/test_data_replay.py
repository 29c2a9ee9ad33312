"""A real broker with the journal settings of the documents: retention fills, replay sends again, once.

Goal: what consumers have had can be had again for a time and an address, and asking twice gives it
once; syncing off is honoured and said loudly.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support.processes import Pair

from support import forked
from understudy.client.sync import connect

#: Above minLargeMessageSize, to be stored in a file of its own.
BODY_BYTES = 1_500_000
#: Where every log begins.
FIRST = "segment-000000000001-0000000001.log"
COMMAND = [str(forked.COMMAND)]


def run(*arguments: str, code: int = 0) -> dict[str, object]:
    return spoken(*arguments, code=code)[0]


def spoken(*arguments: str, code: int = 0) -> tuple[dict[str, object], str]:
    """The output of a command, parsed, and its standard error."""
    ended = forked.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == code, (ended.returncode, ended.stdout, ended.stderr)
    result: dict[str, object] = json.loads(ended.stdout)
    return result, ended.stderr


def body(seed: int) -> bytes:
    return random.Random(seed).randbytes(BODY_BYTES)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.long
def test_large_messages_are_replayed_with_their_bodies(tmp_path: Path) -> None:
    kept, large = tmp_path / "kept", tmp_path / "store" / "large-messages"
    extra = f"""
    <journal-file-size>1M</journal-file-size>
    <journal-min-files>2</journal-min-files>
    <journal-compact-min-files>2</journal-compact-min-files>
    <journal-retention-directory unit="HOURS" period="2" storage-limit="40M">{kept}</journal-retention-directory>
    """
    pair = Pair(tmp_path, extra=extra)
    node = pair.primary
    url = f"tcp://127.0.0.1:{node.port}"
    compressible = b"again and again " * 100_000 + body(4)
    try:
        node.start().wait_ready("active")
        with connect(url) as connection, connection.session() as session:
            session.start()
            session.producer("large").send(body(1), properties={"n": 1})
            session.producer("large").send(body(2), properties={"n": 2})
            # stays in its queue, so its body stays with the broker
            session.producer("waiting").send(body(3), properties={"n": 3})
        with connect(f"{url}?compressLargeMessage=true") as connection, connection.session() as session:
            session.producer("large").send(compressible, properties={"n": 4})
        with connect(url) as connection, connection.session() as session:
            session.start()
            consumer = session.consumer("large")
            for _ in range(3):
                received = consumer.receive(10)
                assert received is not None
                received.read_body()
                consumer.acknowledge(received)
            # after this their segments leave the log
            producer, consumer = session.producer("often"), session.consumer("often")
            for _ in range(120):
                producer.send(bytes(90_000))
                received = consumer.receive(10)
                assert received is not None
                consumer.acknowledge(received)
        wait_until(lambda: len(list(kept.glob("*.large"))) == 3 and (kept / FIRST).exists())
        assert [path.stat().st_size for path in large.glob("*.large")] == [BODY_BYTES]

        arguments = ["data", "replay", str(kept), "--url", url, "--target", "again", "--filter", "n > 0", "--json"]
        # bodies of waiting messages are not retained, and the output says so
        summary, said = spoken(*arguments, "--dry-run", code=1)
        assert summary["messages"] == 3
        assert "to 'waiting' left out: " in said
        assert "the body of a large message is missing" in said
        for _ in range(2):
            assert run(*arguments, "--large-messages", str(large))["confirmed"] == 4
        assert texts(url, "again") == [body(1), body(2), body(3), compressible]

        min(kept.glob("*.large"), key=lambda path: int(path.stem)).unlink()
        summary, said = spoken(*arguments, "--large-messages", str(large), "--dry-run", code=1)
        assert summary["messages"] == 3
        assert "to 'large' left out: " in said
    finally:
        pair.end()


def texts(url: str, queue: str) -> list[bytes]:
    with connect(url) as connection, connection.session() as session:
        session.start()
        return [received.read_body() for received in session.browser(queue)]


def test_retained_segments_are_replayed_once(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    extra = f"""
    <journal-file-size>1M</journal-file-size>
    <journal-min-files>3</journal-min-files>
    <journal-sync-transactional>false</journal-sync-transactional>
    <journal-sync-non-transactional>false</journal-sync-non-transactional>
    <journal-retention-directory unit="HOURS" period="2" storage-limit="20M">{kept}</journal-retention-directory>
    """
    pair = Pair(tmp_path, extra=extra)
    node = pair.primary
    url = f"tcp://127.0.0.1:{node.port}"
    try:
        node.start().wait_ready("active")
        with connect(url) as connection, connection.session() as session:
            session.start()
            for queue in ("rare", "often"):
                producer, consumer = session.producer(queue), session.consumer(queue)
                for number in range(8 if queue == "rare" else 120):
                    producer.send(bytes(100_000), properties={"n": number})
                    received = consumer.receive(10)
                    assert received is not None
                    consumer.acknowledge(received)
        # the first segment holds the rare records, and leaves the log as the others do: beside
        wait_until(lambda: (kept / FIRST).exists() and len(list(kept.iterdir())) >= 4)
        assert "SYNC IS OFF" in node.log.read_text()
        before = {path.name: path.stat().st_mtime_ns for path in kept.iterdir()}
        arguments = ["data", "replay", str(kept), "--url", url, "--address", "rare", "--filter", "n >= 3", "--json"]
        assert run(*arguments, "--dry-run")["messages"] == 5
        past = datetime(2020, 1, 1, tzinfo=UTC).isoformat()
        assert run(*arguments, "--to", past)["messages"] == 0
        for _ in range(2):
            assert run(*arguments, "--from", past)["confirmed"] == 5
            queue = node.queue("rare")
            assert queue is not None
            assert queue["message_count"] == 5
        assert run(*arguments, "--target", "elsewhere")["confirmed"] == 5
        assert (node.queue("elsewhere") or {})["message_count"] == 5
        assert {name for name in before if (kept / name).stat().st_mtime_ns == before[name]} == set(before)
        assert node.terminate() == 0
        node.start().wait_ready("active")
        assert (node.queue("rare") or {})["message_count"] == 5
    finally:
        pair.end()
