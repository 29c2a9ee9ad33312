"""A pair whose log is consolidated all the time: kill -9, a takeover, offline compaction; only the size changes.

Goal: a few old messages do not keep the log, the node that serves next finds them, and
``data compact`` is refused while a broker runs and gives back the rest afterwards.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support import forked
from support.nodes import Nodes
from support.processes import COMMAND, Pair
from understudy.client import sync

EXTRA = """
    <journal-file-size>1M</journal-file-size>
    <journal-compact-min-files>2</journal-compact-min-files>
    <journal-compact-percentage>60</journal-compact-percentage>
"""
LARGE_BYTES = 300_000


@pytest.fixture
def pair(nodes: Nodes) -> Pair:
    return nodes.pair(extra=EXTRA)


def churn(session: sync.Session, rounds: int, kept: list[int], first: int) -> None:
    """Messages that are gone at once, and now and then one that stays."""
    passing, staying = session.producer("passing"), session.producer("staying")
    consumer = session.consumer("passing")
    for number in range(rounds):
        if number % 20 == 0:
            staying.send(bytes(2_000), properties={"n": first + number})
            kept.append(first + number)
        for _ in range(4):
            passing.send(bytes(20_000))
        for _ in range(4):
            received = consumer.receive(20)
            assert received is not None
            consumer.acknowledge(received)
    consumer.close()


def amplification(pair: Pair) -> float | None:
    store = pair.primary.facts()["store"]
    assert isinstance(store, dict)
    found: float | None = store["amplification"]
    return found


def segments(journal: Path) -> int:
    return len(list(journal.glob("segment-*.log")))


def wait_until(condition: Callable[[], bool], shown: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, shown()
        time.sleep(0.1)


@pytest.mark.long
def test_old_messages_do_not_keep_the_log_and_are_there_after_kill_takeover_and_compaction(pair: Pair) -> None:
    journal = pair.store / "journal"
    pair.start()
    kept: list[int] = []
    with sync.connect(pair.url) as connection, connection.session() as session:
        session.start()
        session.producer("large").send(bytes(range(256)) * (LARGE_BYTES // 256))
        churn(session, 200, kept, 0)
        # 16 MB went through it; what removes them works beside
        wait_until(
            lambda: segments(journal) < 14 and 1 <= (amplification(pair) or 0) < 20,
            lambda: (amplification(pair), sorted(path.name for path in journal.iterdir())),
        )
        pair.primary.kill()
        pair.backup.wait_ready("active")
        churn(session, 60, kept, 1_000)
    assert '"snapshot cannot be used"' not in pair.backup.log.read_text()
    compact = [str(COMMAND), "data", "compact", str(journal), "--json"]
    refused = forked.run(compact, capture_output=True, text=True, timeout=120, check=False)
    assert refused.returncode == 1
    assert "a broker has the lock" in refused.stderr
    assert pair.backup.terminate() == 0
    done = forked.run(compact, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["size_bytes_after"] <= report["size_bytes_before"]
    assert report["size_bytes_after"] < 2_000_000
    verified = forked.run([str(COMMAND), "data", "verify", str(journal)], capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stdout
    pair.primary.start().wait_ready("active")
    with sync.connect(f"tcp://127.0.0.1:{pair.primary.port}") as connection, connection.session() as session:
        session.start()
        found = []
        consumer = session.consumer("staying")
        while len(found) < len(kept):
            received = consumer.receive(20)
            assert received is not None
            found.append(received.properties["n"])
            consumer.acknowledge(received)
        assert found == kept
        large = session.consumer("large")
        body = large.receive(20)
        assert body is not None
        assert bytes(body.body) == bytes(range(256)) * (LARGE_BYTES // 256)
        large.acknowledge(body)
    files = pair.store / "large-messages"
    wait_until(lambda: not any(files.iterdir()), lambda: "the file of the large message stays")
