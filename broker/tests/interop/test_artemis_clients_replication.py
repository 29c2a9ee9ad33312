"""The stock clients of Artemis with a replicated pair: SIGKILL, planned switch and failback of the active node.

What each client may see at a failover is that of the Artemis manual (client failover, handling blocking calls).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.committing import (
    NEVER_MS,
    Java,
    assert_kept_what_was_committed,
    committing,
    kill_during_a_commit,
    others,
)
from support.nodes import Nodes
from support.processes import COMMAND, READY_S, Node
from support.replicated import ReplicatedPair, wait_in_sync, wait_logged
from support.small_addresses import ADDRESS_SETTINGS
from support.voting_pairs import VotingPairs

pytestmark = [pytest.mark.maven, pytest.mark.long]

Leave = Callable[[ReplicatedPair], None]


@pytest.fixture
def pair(nodes: Nodes) -> ReplicatedPair:
    """A pair in sync whose primary gets its place back."""
    return nodes.replicated(allow_failback=True, extra=ADDRESS_SETTINGS).start()


def kill(pair: ReplicatedPair) -> None:
    """SIGKILL of the active primary; returns when the backup is active."""
    pair.primary.kill()
    pair.backup.wait_ready("active")


def switch(pair: ReplicatedPair) -> None:
    """Planned switch by command; returns when the backup is active."""
    token = pair.primary.config.with_name("management.token")
    subprocess.run(
        [str(COMMAND), "failover", "--url", f"http://{pair.primary.host}:{pair.primary.http_port}", "--token-file",
         str(token)],
        check=True, capture_output=True, timeout=READY_S,
    )  # fmt: skip
    assert pair.primary.process is not None
    pair.primary.process.wait(READY_S)
    pair.backup.wait_ready("active")


def fail_back(pair: ReplicatedPair) -> None:
    """Start the primary again; returns when it is active and the backup in sync."""
    in_sync = _in_sync(pair.primary)
    pair.primary.start().wait_ready("active")
    wait_in_sync(pair.primary, pair.backup, in_sync + 1)


def _in_sync(node: Node) -> int:
    # a standby logs the same words when it is in sync itself: wait_in_sync counts all of them
    return node.log.read_text().count("replica in sync") + 1


LEAVE = [pytest.param(kill, id="kill"), pytest.param(switch, id="switch")]


@pytest.mark.feature("failover with replication: sends, consumers, transactions, XA")
def test_a_stock_consumer_gets_every_message_across_kill_failback_and_switch(java: Java, pair: ReplicatedPair) -> None:
    count = 4_000
    producer = subprocess.Popen(
        [str(COMMAND), "produce", "--url", pair.url, "--queue", "interop.failover", "--count", str(count),
         "--size", "100", "--rate", "300", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    consumer = java("ReceiveAcrossFailover", pair.url, "interop.failover", str(count))
    assert consumer.stdout is not None
    seen: list[str] = []

    def wait_got(number: int) -> None:
        for line in consumer.stdout or ():
            seen.append(line)
            progress = re.match(r"got (\d+)", line)
            if progress and int(progress[1]) >= number:
                return
        raise AssertionError("".join(seen[-50:]))

    wait_got(count // 8)
    kill(pair)
    wait_got(count // 4)
    fail_back(pair)
    wait_got(count // 2)
    switch(pair)
    rest, _ = consumer.communicate(timeout=120)
    produced, _ = producer.communicate(timeout=60)
    assert producer.returncode == 0, produced
    assert consumer.returncode == 0, "".join(seen) + rest
    assert f"done {count} distinct, 0 seen again" in rest, rest[-500:]


@pytest.mark.feature("failover with replication: sends, consumers, transactions, XA")
def test_a_stock_consumer_goes_on_after_both_nodes_of_a_pair_without_lock_manager_were_killed(
    java: Java, tmp_path: Path
) -> None:
    """A node that waits for the other one closes its connections, and the client tries on."""
    count = 3_000
    pairs = VotingPairs(tmp_path, pairs=1)
    try:
        pairs.start()
        primary, backup = pairs["primary1"], pairs["backup1"]
        producer = subprocess.Popen(
            [str(COMMAND), "produce", "--url", pairs.url, "--queue", "interop.failover", "--count", str(count),
             "--size", "100", "--rate", "300", "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        consumer = java("ReceiveAcrossFailover", pairs.url, "interop.failover", str(count))
        assert consumer.stdout is not None
        for line in consumer.stdout:
            if line.startswith("got ") and int(line.split()[1]) >= count // 8:
                break
        for node in (primary, backup):
            node.pause()
        for node in (primary, backup):
            node.kill()
        primary.start()
        wait_logged(primary, "understudy promote --accept-data-loss")
        backup.start()
        primary.wait_ready("active")
        rest, _ = consumer.communicate(timeout=120)
        produced, _ = producer.communicate(timeout=60)
        assert producer.returncode == 0, produced
        assert consumer.returncode == 0, rest
        assert f"done {count} distinct, 0 seen again" in rest, rest[-500:]
    finally:
        pairs.end()


@pytest.mark.feature("failover with replication: sends, consumers, transactions, XA")
@pytest.mark.parametrize("leave", LEAVE)
@pytest.mark.parametrize(
    ("scenario", "end"),
    [("Xa", "ok failover\nok interrupted branch\ndone\n"), ("Transactions", "ok failover\ndone\n"),
     ("QueueKinds", "ok failover\ndone\n"), ("Sessions", "ok failover\ndone\n"),
     ("FlowControl", "ok failover\ndone\n")],
)  # fmt: skip
def test_scenarios_of_the_stock_client_across_a_failover(
    java: Java, pair: ReplicatedPair, scenario: str, end: str, leave: Leave
) -> None:
    """An XA branch that is prepared commits at the other node; a local transaction is rolled back."""
    arguments = () if scenario == "Xa" else ("failover",)
    process = java(scenario, pair.url, *arguments, stdin=subprocess.PIPE)
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if line == "ready\n":
            break
    assert process.poll() is None, "".join(seen)[-4000:]
    leave(pair)
    output, _ = process.communicate("go\n", timeout=120)
    assert process.returncode == 0, ("".join(seen) + output)[-4000:]
    assert output.endswith(end), output[-1000:]


@pytest.mark.feature("failover with replication: sends, consumers, transactions, XA")
def test_commits_that_are_outstanding_end_with_the_failover(java: Java, pair: ReplicatedPair) -> None:
    """Success, TransactionRolledBackException or TRANSACTION_OUTCOME_UNKNOWN, without a wait for ``callTimeout``."""
    with others(pair.primary), committing(java, pair.url, NEVER_MS) as client:
        kill_during_a_commit(pair.primary, client)
        pair.backup.wait_ready("active")
        client.wait_for_successes()
        fail_back(pair)
        client.wait_for_successes()
        switch(pair)
        client.wait_for_successes()
        reports, exceptions = client.finish()
    assert sum(len(ended["unknown"]) for ended in exceptions) > 0
    assert not any(report["other"] for report in reports), client.log
    assert_kept_what_was_committed(pair.url, reports, exceptions)


@pytest.mark.feature("failover with replication: sends, consumers, transactions, XA")
@pytest.mark.parametrize("leave", LEAVE)
def test_a_blocked_send_is_released_and_repeating_it_stores_nothing_twice(
    java: Java, pair: ReplicatedPair, leave: Leave
) -> None:
    """The stock client releases it with UNBLOCKED: the outcome is unknown until the same duplicate id is sent again."""
    count = 6_000
    process = java("BlockedSend", pair.url, "interop.blocked", str(count))
    assert process.stdout is not None
    for line in process.stdout:
        if line == "sent 500\n":
            break
    if leave is kill:
        # no answer leaves a node that is stopped, so a send is blocked when it is killed
        pair.primary.pause()
    leave(pair)
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output[-3000:]
    codes = [line.split()[2] for line in output.splitlines() if line.startswith("unblocked")]
    assert set(codes) <= {"UNBLOCKED", "DISCONNECTED"}, output[-3000:]
    assert len(codes) == 1 or (leave is switch and not codes)
    assert f"done {count} distinct, {len(codes)} released" in output, output[-500:]
