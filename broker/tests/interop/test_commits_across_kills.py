"""The outcome of a commit of the Artemis JMS client that is outstanding when the active node is killed (ADR 0021).

The client ends such a commit with success, TransactionRolledBackException or TRANSACTION_OUTCOME_UNKNOWN as soon as
its sessions are on the other node. If it waits for ``callTimeout`` instead, its reconnection was held up.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from support import low_listeners
from support.processes import READY_S, Node, Pair
from support.proxy import Proxy, proxy_to
from understudy.client.sync import connect

pytestmark = pytest.mark.maven

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


def kills(java: Java, pair: Pair, count: int) -> None:
    """Kill the active primary again and again; every second time it was stopped before. It fails back each time."""
    with others(pair.primary), committing(java, pair.url, NEVER_MS) as client:
        for turn in range(count):
            if turn % 2 == 0:
                kill_during_a_commit(pair.primary, client)
            else:
                pair.primary.kill()
            pair.backup.wait_ready("active")
            client.wait_for_successes()
            if turn < count - 1:
                pair.primary.start().wait_ready("active")
                pair.backup.wait_ready("passive")
                pair.wait_announced()
                client.wait_for_successes()
        reports, exceptions = client.finish()
    longest = max(report["longest_ms"] for report in reports)
    unknown, rolled_back = (sum(len(ended[kind]) for ended in exceptions) for kind in ("unknown", "rolled_back"))
    print(f"{count} kills: longest commit {longest} ms, {unknown} outcomes unknown, {rolled_back} rolled back")
    assert unknown > 0
    assert not any(report["other"] for report in reports), client.log
    assert_kept_what_was_committed(pair.url, reports, exceptions)


@pytest.mark.feature("failover: sends, consumers, temporary queues, transactions, XA, listeners")
def test_a_commit_that_is_outstanding_at_a_kill_ends_with_the_failover(java: Java, pair: Pair) -> None:
    kills(java, pair, 2)


@pytest.mark.feature("failover: sends, consumers, temporary queues, transactions, XA, listeners")
@pytest.mark.long
@pytest.mark.timeout(3_000)
def test_the_same_over_a_hundred_kills(java: Java, pair: Pair) -> None:
    kills(java, pair, 100)


@pytest.mark.feature("failover: sends, consumers, temporary queues, transactions, XA, listeners")
@pytest.mark.long
def test_a_client_accepted_by_a_dead_listener_ends_its_commit_with_its_call_timeout(java: Java, pair: Pair) -> None:
    """The cause, shown without chance: the proxy closes its connections first and its listener afterwards."""
    call_timeout_ms = 3_000
    pair.end()

    def through_proxy(text: str, proxy: Proxy) -> str:
        return text.replace(str(pair.primary.port), str(proxy.port))

    with proxy_to(pair.primary.port) as proxy:
        for node in (pair.primary, pair.backup):
            config = node.config.read_text()
            connector = f'<connector name="primary">tcp://127.0.0.1:{pair.primary.port}<'
            assert connector in config
            node.config.write_text(config.replace(connector, through_proxy(connector, proxy)))
        pair.start()
        with committing(java, through_proxy(pair.url, proxy), call_timeout_ms) as client:
            node_id = str(pair.primary.facts()["node_id"])
            pair.primary.pause()
            client.wait_for_outstanding()
            proxy.stop_accepting()
            proxy.cut()
            with proxy.take_unanswered(node_id.encode(), READY_S):  # in CHECK_FOR_FAILOVER
                proxy.close()
            pair.primary.kill()
            pair.backup.wait_ready("active")
            client.wait_for_successes()
            reports, _ = client.finish()
    assert sum(report["timed_out"] for report in reports) > 0


CALL_TIMEOUT_MS = 5_000


def timed_out_commits(java: Java, pair: Pair, rounds: int) -> int:
    """In how many of the kills a commit waited for its call timeout."""
    hits = 0
    for _ in range(rounds):
        with others(pair.primary), committing(java, pair.url, CALL_TIMEOUT_MS) as client:
            kill_during_a_commit(pair.primary, client)
            pair.backup.wait_ready("active")
            client.wait_for_successes()
            reports, _ = client.finish()
        hits += any(report["timed_out"] for report in reports)
        print([(report["longest_ms"], report["other"]) for report in reports], flush=True)
        pair.primary.start().wait_ready("active")
        pair.backup.wait_ready("passive")
        pair.wait_announced()
    return hits


@pytest.mark.feature("failover: sends, consumers, temporary queues, transactions, XA, listeners")
@pytest.mark.long
@pytest.mark.timeout(3_000)
def test_how_often_a_commit_waits_with_listeners_at_low_and_at_high_descriptors(java: Java, pair: Pair) -> None:
    high = timed_out_commits(java, pair, 20)
    pair.end()
    for node in (pair.primary, pair.backup):
        node.command = (sys.executable, str(low_listeners.__file__))
    pair.start()
    low = timed_out_commits(java, pair, 20)
    print(f"kills with a commit that waited for callTimeout: low listeners {low} of 20, high {high} of 20")
    assert high == 0
