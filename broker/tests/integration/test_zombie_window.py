"""A node that is stopped (SIGSTOP) while its lock is replaced confirms nothing that its successor does not have.

Method: a real pair under load from several clients that wait for each confirmation. The active node is stopped, the
file of its lock is replaced, the other node takes over, the first goes on after the given time. Every message that was
confirmed must be in the store that the second node serves. docs/build/reliability.md has the figures.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path

import pytest

from support import forked
from support.processes import COMMAND, READY_S, Pair
from understudy.client import sync
from understudy.errors import BrokerError

SENDERS = 4


class Load:
    """Clients of one node; each sends a message, waits for its confirmation and sends the next, until one fails."""

    def __init__(self, port: int, queue: str = "zombie") -> None:
        self._queue = queue
        self._url = f"tcp://127.0.0.1:{port}?reconnectAttempts=0&callTimeout=10000"
        self.confirmed: set[bytes] = set()
        self._threads = [threading.Thread(target=self._send, args=(number,)) for number in range(SENDERS)]
        for thread in self._threads:
            thread.start()

    def _send(self, number: int) -> None:
        try:
            with sync.connect(self._url) as connection, connection.session().producer(self._queue) as producer:
                for count in range(1_000_000):
                    body = b"%d-%d" % (number, count)
                    producer.send(body)
                    self.confirmed.add(body)
        except BrokerError:
            pass  # the node has gone, as it should

    def finish(self) -> None:
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a client waits although its node has lost the lock"


def confirmed_and_lost(directory: Path, stopped_s: float) -> tuple[int, int]:
    """Messages confirmed after the node went on, and messages confirmed that the successor does not have."""
    pair = Pair(directory)
    try:
        pair.start()
        load = Load(pair.primary.port)
        while len(load.confirmed) < 50:
            time.sleep(0.01)
        pair.primary.pause()
        before = len(load.confirmed)
        lock = pair.store / "journal" / "serverlock.1"
        os.rename(lock, lock.with_suffix(".old"))
        time.sleep(stopped_s)
        pair.primary.resume()
        load.finish()
        assert pair.primary.process is not None
        assert pair.primary.process.wait(60) == 1
        pair.backup.wait_ready("active")
        kept = set()
        with sync.connect(f"tcp://127.0.0.1:{pair.backup.port}") as connection:
            session = connection.session()
            kept = {bytes(message.message.body) for message in session.browser("zombie")}
        return len(load.confirmed) - before, len(load.confirmed - kept)
    finally:
        pair.end()


def test_a_node_that_was_stopped_for_a_moment_confirms_nothing_that_its_successor_has_not(tmp_path: Path) -> None:
    _, lost = confirmed_and_lost(tmp_path, 0.6)
    assert lost == 0


def give_back(pair: Pair) -> None:
    """Start the primary and ask the backup to fail back until it has. By itself the backup waits for some time when
    the primary that it gave its place to has ended soon (ADR 0112), as it does in each of these rounds.
    """
    token = pair.backup.directory / "etc" / "management.token"
    url = f"http://127.0.0.1:{pair.backup.http_port}"
    pair.primary.start()
    deadline = time.monotonic() + READY_S
    while pair.primary.get("/health/ready")[1].get("state") != "active":
        assert time.monotonic() < deadline, pair.primary.tail()
        forked.run(
            [str(COMMAND), "failback", "--url", url, "--token-file", str(token)], capture_output=True, check=False
        )
    pair.primary.wait_ready("active")
    pair.backup.wait_ready("passive")


def at_a_random_point(pair: Pair, number: int, stream: random.Random) -> tuple[int, int]:
    """One round, after which the primary is active again: the lock of the active node is replaced, and the node is
    stopped shortly before or after, for up to half a second.

    Returns:
        Confirmed messages, and those of them that the successor does not have.
    """
    queue = f"zombie-{number}"
    load = Load(pair.primary.port, queue)
    while len(load.confirmed) < 20:
        time.sleep(0.005)
    lock = pair.store / "journal" / "serverlock.1"
    stop_s, replace_s = stream.uniform(0.0, 0.15), stream.uniform(0.0, 0.15)
    actions: list[tuple[float, Callable[[], object]]] = [
        (stop_s, pair.primary.pause),
        (replace_s, lambda: os.rename(lock, lock.with_suffix(".old"))),
        (max(stop_s, replace_s) + stream.uniform(0.0, 0.5), pair.primary.resume),
    ]
    began = time.monotonic()
    for at_s, action in sorted(actions, key=itemgetter(0)):
        time.sleep(max(0.0, began + at_s - time.monotonic()))
        action()
    load.finish()
    assert pair.primary.process is not None
    assert pair.primary.process.wait(60) == 1
    pair.backup.wait_ready("active")
    with sync.connect(f"tcp://127.0.0.1:{pair.backup.port}") as connection:
        kept = {bytes(message.message.body) for message in connection.session().browser(queue)}
    give_back(pair)
    pair.wait_announced()
    return len(load.confirmed), len(load.confirmed - kept)


def at_random_points(directory: Path, count: int, seed: int) -> None:
    """Run ``count`` rounds with one pair and print a table of the results."""
    stream, pair = random.Random(seed), Pair(directory)
    results: list[tuple[int, int]] = []
    try:
        pair.start()
        results.extend(at_a_random_point(pair, number, stream) for number in range(count))
    finally:
        pair.end()
        confirmed, lost = (sum(each) for each in zip(*results, strict=True))
        print("\n| points | confirmed messages | missing at the successor |\n|---:|---:|---:|")
        print(f"| {len(results)} | {confirmed} | {lost} |", flush=True)
    assert lost == 0


def test_a_node_that_is_stopped_at_random_points_confirms_nothing_that_its_successor_has_not(tmp_path: Path) -> None:
    at_random_points(tmp_path, 3, 1)


@pytest.mark.long
@pytest.mark.timeout(14_400)
def test_a_thousand_random_points(tmp_path: Path) -> None:
    """``POINTS`` in the environment is another number of points."""
    at_random_points(tmp_path, int(os.environ.get("POINTS", "1000")), 2)


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_stops_of_different_lengths(tmp_path: Path) -> None:
    """Stops of different lengths: nothing that was confirmed is missing at the successor."""
    for stopped_s, runs in ((0.0, 5), (0.1, 5), (0.2, 5), (0.3, 10), (0.6, 10), (1.1, 10), (2.0, 5), (2.9, 5)):
        results = [confirmed_and_lost(tmp_path / f"{stopped_s}-{run}", stopped_s) for run in range(runs)]
        print(f"stopped {stopped_s} s: confirmed afterwards and lost, per run: {results}", flush=True)
        assert not any(lost for _, lost in results), stopped_s
