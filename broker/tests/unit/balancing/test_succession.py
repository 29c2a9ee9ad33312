"""When messages that are kept for a node that was scaled down begin to move (ADR 0070)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from support.routing import manual_time
from understudy.cluster.balancing.succession import Successions


def flow(node_id: str, link: object = None) -> Any:
    """A flow with one message in its queue; without link the node is away."""
    closed: list[str] = []
    bridge = SimpleNamespace(close=lambda: closed.append(node_id))
    queue = SimpleNamespace(name=f"sf.{node_id}", deleted=False)
    return SimpleNamespace(node_id=node_id, link=link, bridge=bridge, queue=queue, closed=closed)


def successions(*flows: Any) -> tuple[Successions, dict[str, Any]]:
    by_node = {each.node_id: each for each in flows}
    any_flows: Any = SimpleNamespace(by_node=by_node)
    office: Any = None
    return Successions(any_flows, office, "own", manual_time()), by_node


def test_it_begins_when_the_link_is_gone() -> None:
    gone = flow("gone", link=object())
    made, _ = successions(gone, flow("target", link=object()))
    made.node_scaled_down("gone", "target")
    assert gone.closed == []
    gone.link = None
    made.node_left(gone)
    assert gone.closed == ["gone"]


def test_it_begins_when_the_target_is_known() -> None:
    gone = flow("gone")
    made, by_node = successions(gone)
    made.node_scaled_down("gone", "target")
    assert gone.closed == []
    by_node["target"] = flow("target", link=object())
    made.node_joined("target")
    assert gone.closed == ["gone"]
    made.close()


def test_a_node_that_is_active_again_keeps_its_messages() -> None:
    gone = flow("gone", link=object())
    made, _ = successions(gone, flow("target", link=object()))
    made.node_scaled_down("gone", "target")
    made.node_joined("gone")
    gone.link = None
    made.node_left(gone)
    assert gone.closed == []
