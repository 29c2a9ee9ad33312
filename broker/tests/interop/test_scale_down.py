"""Scale-down with the clients and the broker of Artemis (docs/operate/scale-down.md)."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

import pytest

from support.members import Members, depth, url
from support.nodes import Nodes
from support.processes import COMMAND

pytestmark = [pytest.mark.maven, pytest.mark.long]

Java = Callable[..., subprocess.Popen[str]]


def scale_down(name: str) -> str:
    """The HA policy of a node that moves its messages to the connector of this name."""
    connectors = f"<connectors><connector-ref>{name}</connector-ref></connectors>"
    return f"<ha-policy><primary-only><scale-down>{connectors}</scale-down></primary-only></ha-policy>"


@pytest.fixture
def members(nodes: Nodes) -> Members:
    """Two nodes of ours that move their messages to each other."""
    return nodes.members(2, extra=lambda number: scale_down(f"n{1 - number}")).start()


@pytest.mark.feature("scale-down: consumers follow, messages to and from Artemis")
def test_a_jms_consumer_follows_its_messages(java: Java, members: Members) -> None:
    """A stock client with failoverAttempts=-1 gets every message although its node is gone for good."""
    first, second = members.nodes
    count = 2_000
    produced = subprocess.run(
        [str(COMMAND), "produce", "--url", url(first), "--queue", "q", "--count", str(count), "--size", "100"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert produced.returncode == 0, produced.stderr
    places = f"tcp://127.0.0.1:{first.port},tcp://127.0.0.1:{second.port}"
    options = (
        "ha=true&reconnectAttempts=3&failoverAttempts=-1&retryInterval=100&connectionLoadBalancingPolicyClassName="
    )
    options += "org.apache.activemq.artemis.api.core.client.loadbalance.FirstElementConnectionLoadBalancingPolicy"
    target = f"({places})?{options}"
    consumer = java("ReceiveAcrossFailover", target, "q", str(count))
    assert consumer.stdout is not None
    seen = []
    for line in consumer.stdout:
        seen.append(line)
        progress = re.match(r"got (\d+)", line)
        if progress and int(progress[1]) >= count // 4:
            break
    assert first.terminate() == 0, first.tail()
    rest, _ = consumer.communicate(timeout=120)
    assert consumer.returncode == 0, "".join(seen) + rest + first.tail()
    assert f"done {count} distinct" in rest, rest[-500:]
    assert depth(second, "q") == 0
