"""The outcome of a commit of the Artemis JMS client that is outstanding when the active node is killed (ADR 0021).

The client ends such a commit with success, TransactionRolledBackException or TRANSACTION_OUTCOME_UNKNOWN as soon as
its sessions are on the other node. If it waits for ``callTimeout`` instead, its reconnection was held up.
"""

from __future__ import annotations

import sys

import pytest

from support import low_listeners
from support.committing import (
    NEVER_MS,
    Java,
    assert_kept_what_was_committed,
    committing,
    kill_during_a_commit,
    others,
)
from support.processes import READY_S, Pair
from support.proxy import Proxy, proxy_to

pytestmark = pytest.mark.maven


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
    """Number of kills during a commit after which the commit waited for its call timeout."""
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
