"""Why messages wait in a cluster, asked over HTTP and on the command line (docs/operate/management-api.md)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from support import forked
from support.members import Members, depth, url, wait_knows, wait_until
from support.nodes import Nodes
from support.processes import COMMAND, Node
from understudy.client.sync import connect


@pytest.fixture
def make_members(nodes: Nodes) -> Callable[..., Members]:
    """Makes members that are configured and not started."""
    return nodes.members


def reasons(node: Node, queue: str = "q") -> dict[str, dict[str, Any]]:
    """Reasons of the first message of a queue, by code."""
    status, found = node.get(f"/api/v1/queues/{queue}/explain")
    assert status == 200, found
    first: Any = found["first"]
    return {each["code"]: each for each in (found["reasons"] if first is None else first["reasons"])}  # type: ignore[attr-defined]


def send(node: Node, count: int, **options: Any) -> None:
    with connect(url(node)) as connection, connection.session() as session:
        producer = session.producer("q", routing="anycast")
        for number in range(count):
            producer.send(f"message {number}", **options)


def node_id(node: Node) -> str:
    return str(node.facts()["node_id"])


def test_demand_of_members_and_the_remaining_delay_are_said(make_members: Callable[..., Members]) -> None:
    settings = "<redistribution-delay>60000</redistribution-delay>"
    first, second = make_members(settings=settings).start().nodes
    wait_knows(first, "q")
    send(first, 3)
    wait_until(lambda: set(reasons(first)) == {"no-consumer", "no-demand"}, "not explained", first)
    assert reasons(first)["no-demand"]["values"] == {"members": [node_id(second)]}
    with connect(url(second)) as connection, connection.session() as session:
        session.consumer("q", filter="size > 5")
        wait_knows(first, "q", consumers=1)
        assert set(reasons(first)) == {"no-consumer", "no-remote-match"}
        session.consumer("q")
        wait_knows(first, "q", consumers=2)
        found = reasons(first)["redistribution-delay"]
        assert found["values"]["members"] == {node_id(second): 2}
        assert 0 < found["values"]["remaining_ms"] <= 60_000


def test_a_cluster_that_does_not_redistribute_says_so(make_members: Callable[..., Members]) -> None:
    first, second = make_members(settings="<redistribution-delay>-1</redistribution-delay>").start().nodes
    wait_knows(first, "q")
    send(first, 1)
    with connect(url(second)) as connection, connection.session() as session:
        session.consumer("q")
        wait_knows(first, "q", consumers=1)
        assert "redistribution-off" in reasons(first)
        assert depth(first, "q") == 1


def test_messages_for_a_member_that_is_away_name_the_bridge(make_members: Callable[..., Members]) -> None:
    first, second = make_members(cluster="<message-load-balancing>STRICT</message-load-balancing>").start().nodes
    wait_knows(first, "q")
    bridges: Any = first.get("/api/v1/cluster")[1]["bridges"]
    queue = bridges[0]["queue"]
    # it is known, takes its turns, and confirms nothing
    second.pause()
    send(first, 4)
    status, held = first.get(f"/api/v1/queues/{queue}/explain")
    assert (status, held.get("delivering")) == (200, 2), held
    second.kill()
    wait_until(lambda: "bridge-not-connected" in reasons(first, queue), "not explained", first)
    found = reasons(first, queue)["bridge-not-connected"]
    assert found["values"]["target"] == f"tcp://127.0.0.1:{second.port}"
    wait_until(lambda: bool(reasons(first, queue)["bridge-not-connected"]["values"]["error"]), "no error", first)


def test_the_command_prints_sentences_and_json(make_members: Callable[..., Members]) -> None:
    node = make_members().start().nodes[0]
    send(node, 2)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(COMMAND), "queue", "explain", "--instance", str(node.directory), *arguments]
        return forked.run(command, capture_output=True, text=True, check=False)

    shown = run("q")
    assert shown.returncode == 0, shown.stderr
    assert "queue q: 2 messages (2 waiting, 0 scheduled, 0 delivering)" in shown.stdout
    assert "no-consumer: the queue has no consumer here" in shown.stdout
    found = json.loads(run("q", "--json").stdout)
    with connect(url(node)) as connection, connection.session() as session:
        first, second = [message.message_id for message in session.browser("q")]
    assert found["first"]["message_id"] == first
    one = json.loads(run("q", "--message", str(second), "--json").stdout)
    assert (one["ahead"], one["place"]) == (1, "waiting")
    assert "messages-ahead" in run("q", "--message", str(second)).stdout
    for arguments, text in ((("missing",), "no queue 'missing'"), (("q", "--message", "999999999"), "no message")):
        refused = run(*arguments)
        assert refused.returncode == 1
        assert text in refused.stderr
