"""The program Commits.java: connections of the stock client that commit in a loop while nodes fail."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from support.processes import READY_S, Node
from understudy.client.sync import connect

Java = Callable[..., "subprocess.Popen[str]"]
Reports = list[dict[str, int]]

QUEUE = "interop.commits"
CONNECTIONS = 8
#: Connections of other clients.
OTHERS = 500
#: So long that a test which waits for it fails by its own limits.
NEVER_MS = 3_600_000


class Committing:
    """The program Commits.java: one report per connection."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.log: list[str] = []

    def _json(self) -> list[dict[str, object]]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("[{"):
                answer: list[dict[str, object]] = json.loads(line)
                return answer
            self.log.append(line)
        raise AssertionError("the client ended: " + "".join(self.log[-50:]))

    def report(self) -> Reports:
        """The commits of each connection so far."""
        assert self.process.stdin is not None
        self.process.stdin.write("report\n")
        self.process.stdin.flush()
        reports: Reports = self._json()  # type: ignore[assignment]
        assert not any(report["failed"] for report in reports), "".join(self.log[-50:])
        return reports

    def wait_until(self, condition: Callable[[Reports], bool], what: str) -> Reports:
        """Ask until the condition holds."""
        deadline = time.monotonic() + READY_S
        while not condition(reports := self.report()):
            assert time.monotonic() < deadline, f"{what} after {READY_S} s: {reports} {''.join(self.log[-30:])}"
            time.sleep(0.02)
        return reports

    def wait_for_successes(self) -> Reports:
        """Wait until each connection has ended the commit it was in, and a later one with success."""
        before = [report["succeeded"] for report in self.report()]

        def all_succeeded(reports: Reports) -> bool:
            return all(report["succeeded"] > count + 1 for report, count in zip(reports, before, strict=True))

        return self.wait_until(all_succeeded, "not every connection commits")

    def wait_for_outstanding(self) -> None:
        """Wait until a commit is outstanding that nothing answers."""
        self.wait_until(lambda reports: any(report["outstanding"] for report in reports), "no commit is outstanding")

    def finish(self) -> tuple[Reports, list[dict[str, list[int]]]]:
        """The last reports, and the numbers of the commits that did not succeed."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        reports: Reports = self._json()  # type: ignore[assignment]
        exceptions: list[dict[str, list[int]]] = self._json()  # type: ignore[assignment]
        assert self.process.wait(60) == 0
        return reports, exceptions


@contextmanager
def committing(java: Java, url: str, call_timeout_ms: int) -> Iterator[Committing]:
    """Connections that commit in a loop; begins when each has done so."""
    options = f"&callTimeout={call_timeout_ms}"
    arguments = (url + options, QUEUE, str(CONNECTIONS), str(call_timeout_ms))
    with java("Commits", *arguments, stdin=subprocess.PIPE) as process:
        try:
            client = Committing(process)
            client.wait_for_successes()
            yield client
        finally:
            process.kill()


@contextmanager
def others(node: Node) -> Iterator[None]:
    """Connections that are older than those that commit, so the kernel closes them later when the node is killed.

    With the listener at a low descriptor they keep it open for some milliseconds after the first connection is lost.
    """
    with ExitStack() as connections:
        for _ in range(OTHERS):
            connections.enter_context(socket.create_connection(("127.0.0.1", node.port)))
        yield


def kill_during_a_commit(node: Node, client: Committing) -> None:
    """Kill a node that was stopped before, so that SESS_COMMIT is outstanding on most connections."""
    node.pause()
    client.wait_for_outstanding()
    node.kill()


def assert_kept_what_was_committed(url: str, reports: Reports, exceptions: list[dict[str, list[int]]]) -> None:
    """Every commit that succeeded is in the queue once, none that was rolled back, the others at most once."""
    found: Counter[tuple[int, int]] = Counter()
    with connect(url) as connection, connection.session() as session, session.consumer(QUEUE) as consumer:
        while (message := consumer.receive_nowait()) is not None:
            found[message.properties["worker"], message.properties["number"]] += 1
            consumer.acknowledge(message)
    assert max(found.values()) == 1
    for worker, (report, ended) in enumerate(zip(reports, exceptions, strict=True)):
        numbers = {number for each, number in found if each == worker}
        assert not numbers & set(ended["rolled_back"])
        assert set(range(report["commits"])) - numbers <= {*ended["rolled_back"], *ended["unknown"]}
