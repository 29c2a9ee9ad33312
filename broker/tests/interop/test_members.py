"""Members of a cluster with the JMS client of Artemis (docs/operate/clustering.md)."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from support.members import Members, url, wait_knows
from support.nodes import Nodes
from support.processes import COMMAND
from understudy.client.sync import connect

pytestmark = pytest.mark.maven

Java = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def members(nodes: Nodes) -> Members:
    """Two members."""
    return nodes.members().start()


@pytest.mark.feature("cluster: a JMS consumer of a queue that only another member has")
def test_a_jms_consumer_gets_a_queue_at_its_own_member(java: Java, members: Members) -> None:
    first, second = members.nodes
    with connect(url(first)) as connection, connection.session() as session:
        session.create_queue("far", address="far", routing="anycast")
        wait_knows(second, "far")
        consumer = java("ReceiveAcrossFailover", url(second), "far", "10")
        try:
            wait_knows(first, "far", consumers=1)
            produced = subprocess.run(
                [str(COMMAND), "produce", "--url", url(first), "--queue", "far", "--count", "10"],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert produced.returncode == 0, produced.stderr
            output, _ = consumer.communicate(timeout=120)
        finally:
            consumer.kill()
    assert consumer.returncode == 0, output
    assert "done 10 distinct" in output
