"""A node that is stopped (SIGSTOP) while its lock is replaced confirms nothing that its successor does not have.

Method: a real pair under load from several clients that wait for each confirmation. The active node is stopped, the
file of its lock is replaced, the other node takes over, the first goes on after the given time. Every message that was
confirmed must be in the store that the second node serves. docs/reliability.md has the figures.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from support.processes import Pair
from understudy.client import sync
from understudy.errors import BrokerError

SENDERS = 4


class Load:
    """Clients of one node; each sends a message, waits for its confirmation and sends the next, until one fails."""

    def __init__(self, port: int) -> None:
        self._url = f"tcp://127.0.0.1:{port}?reconnectAttempts=0&callTimeout=10000"
        self.confirmed: set[bytes] = set()
        self._threads = [threading.Thread(target=self._send, args=(number,)) for number in range(SENDERS)]
        for thread in self._threads:
            thread.start()

    def _send(self, number: int) -> None:
        try:
            with sync.connect(self._url) as connection, connection.session().producer("zombie") as producer:
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


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_the_window(tmp_path: Path) -> None:
    """The window of docs/reliability.md: from 0.3 s on nothing is lost; below, losses are printed."""
    for stopped_s, runs in ((0.0, 5), (0.1, 5), (0.2, 5), (0.3, 10), (0.6, 10), (1.1, 10), (2.0, 5), (2.9, 5)):
        results = [confirmed_and_lost(tmp_path / f"{stopped_s}-{run}", stopped_s) for run in range(runs)]
        print(f"stopped {stopped_s} s: confirmed afterwards and lost, per run: {results}", flush=True)
        if stopped_s >= 0.3:
            assert not any(lost for _, lost in results), stopped_s
