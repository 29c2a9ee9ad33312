"""Named readers of real brokers: kept by a failover over a shared store and over replication.

Goal: the log after the committed position is there on the node that took over, although everything in it was
acknowledged; the reader is bounded, and says so after the failover, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import forked
from support.processes import COMMAND, Node, Pair
from support.replicated import ReplicatedPair, wait_until
from understudy.client import sync
from understudy.runtime.base.disk import RealDisk
from understudy.store.log.reading.replay import read_frames
from understudy.store.log.segment import parse_name, seed_of

EXTRA = """
    <journal-file-size>1M</journal-file-size>
    <journal-compact-min-files>2</journal-compact-min-files>
"""


def reader(node: Node, *arguments: object, code: int = 0) -> Any:
    """``understudy reader`` on a node; its JSON, or its error output if it is to fail."""
    place = (
        "--url",
        f"http://{node.host}:{node.http_port}",
        "--token-file",
        node.directory / "etc" / "management.token",
    )
    words = [str(each) for each in (COMMAND, "reader", *arguments, *place, "--json")]
    done = forked.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stdout + done.stderr + node.tail()
    return done.stderr if code and not done.stdout else json.loads(done.stdout)


def churn(session: sync.Session, megabytes: int) -> None:
    """Messages that are acknowledged at once."""
    producer, consumer = session.producer("passing"), session.consumer("passing")
    for _ in range(10 * megabytes):
        producer.send(bytes(100_000))
        received = consumer.receive(20)
        assert received is not None
        consumer.acknowledge(received)
    consumer.close()


def sequences(journal: Path) -> set[int]:
    """Sequences of all valid records in the segments of a directory."""
    found: set[int] = set()
    for path in sorted(journal.glob("segment-*.log")):
        parsed = parse_name(path.name)
        assert parsed is not None
        file = RealDisk().open(str(path), read_only=True)
        found |= {frame.sequence for frame, _ in read_frames(file, seed_of(parsed[0], parsed[1]))}
        file.close()
    return found


def check(first: Node, second: Node, url: str, journal: Path) -> None:
    """Register at the first node, fail over, and look at the journal of the second."""
    with sync.connect(url) as connection, connection.session() as session:
        session.start()
        churn(session, 2)
        registered = reader(first, "register", "stream", "--max-bytes", "1G")
        reader(first, "register", "small", "--max-bytes", "3M")
        churn(session, 8)
        listed = reader(first, "list", code=1)
        states = {each["name"]: each for each in listed["readers"]}
        assert states["stream"]["dropped"] is None
        assert states["stream"]["held_bytes"] > 8_000_000
        assert "its limit is 3145728" in states["small"]["dropped"]
        first.kill()
        second.wait_ready("active")
        churn(session, 4)
        listed = reader(second, "list", code=1)
        after = {each["name"]: each for each in listed["readers"]}
        assert after["stream"]["sequence"] == registered["sequence"]
        assert after["small"]["dropped"] == states["small"]["dropped"]
        assert "reader 'small' was dropped" in reader(second, "commit", "small", "latest", code=1)
        wanted = set(range(registered["sequence"] + 1, listed["confirmed"]["sequence"] + 1))
        assert wanted <= sequences(journal), "records that the reader has not committed are gone"
        assert "after the confirmed end" in reader(second, "commit", "stream", "2:999999999", code=1)
        committed = reader(second, "commit", "stream", "latest")
        assert committed["epoch"] == listed["confirmed"]["epoch"]
        churn(session, 4)
        wait_until(lambda: min(sequences(journal)) > registered["sequence"] + 1, second)
        reader(second, "drop", "stream")
        reader(second, "drop", "small")
        assert reader(second, "list")["readers"] == []
        metrics = second.get("/api/v1/readers")[1]
        assert metrics["readers"] == []


def test_readers_over_a_shared_store(tmp_path: Path) -> None:
    pair = Pair(tmp_path, extra=EXTRA)
    try:
        pair.start()
        check(pair.primary, pair.backup, pair.url, pair.store / "journal")
    finally:
        pair.end()


@pytest.mark.long
def test_readers_over_replication(make_pair: Callable[..., ReplicatedPair]) -> None:
    pair = make_pair(extra=EXTRA).start()
    check(pair.primary, pair.backup, pair.url, pair.backup.directory / "data" / "journal")
