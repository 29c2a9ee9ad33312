"""Sessions, transactions and flow control as the stock core and JMS clients see them, also across a SIGKILL."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from support.nodes import Nodes
from support.processes import Pair
from support.small_addresses import ADDRESS_SETTINGS

pytestmark = pytest.mark.maven

Java = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def small_pair(nodes: Nodes) -> Pair:
    """A running pair with those addresses."""
    return nodes.pair(extra=ADDRESS_SETTINGS).start()


def run(java: Java, name: str, pair: Pair) -> str:
    """A scenario from its beginning to its end."""
    process = java(name, pair.url)
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output[-4000:]
    assert output.endswith("done\n"), output[-1000:]
    return output


def run_across_a_kill(java: Java, name: str, pair: Pair) -> None:
    """A scenario that continues when the other node is active."""
    process = java(name, pair.url, "failover", stdin=subprocess.PIPE)
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if line == "ready\n":
            break
    assert process.poll() is None, "".join(seen)[-4000:]
    pair.primary.kill()
    pair.backup.wait_ready("active")
    output, _ = process.communicate("go\n", timeout=120)
    assert process.returncode == 0, ("".join(seen) + output)[-4000:]
    assert output.endswith("ok failover\ndone\n"), output[-1000:]


@pytest.mark.feature("sessions, subscriptions and acknowledgement modes")
def test_sessions(java: Java, small_pair: Pair) -> None:
    assert run(java, "Sessions", small_pair).count("ok ") == 13


@pytest.mark.long
@pytest.mark.feature("sessions, subscriptions and acknowledgement modes")
def test_sessions_across_a_kill(java: Java, pair: Pair) -> None:
    run_across_a_kill(java, "Sessions", pair)


@pytest.mark.feature("local transactions and duplicate ids")
def test_transactions(java: Java, small_pair: Pair) -> None:
    assert run(java, "Transactions", small_pair).count("ok ") == 6


@pytest.mark.long
@pytest.mark.feature("local transactions and duplicate ids")
def test_transactions_across_a_kill(java: Java, pair: Pair) -> None:
    run_across_a_kill(java, "Transactions", pair)


@pytest.mark.feature("flow control, full addresses and slow consumers")
def test_flow_control(java: Java, small_pair: Pair) -> None:
    assert run(java, "FlowControl", small_pair).count("ok ") == 8


@pytest.mark.long
@pytest.mark.feature("flow control, full addresses and slow consumers")
def test_flow_control_across_a_kill(java: Java, pair: Pair) -> None:
    run_across_a_kill(java, "FlowControl", pair)
