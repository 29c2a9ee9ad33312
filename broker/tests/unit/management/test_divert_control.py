"""Diverts made, shown and destroyed by an operator, and told to subscribers."""

from __future__ import annotations

import json

import pytest

from support.managed import ManagedWorld
from support.routing import callback_of, text
from understudy.terms import RoutingType


def test_a_divert_is_made_shown_and_destroyed() -> None:
    node = ManagedWorld()
    source, target = node.world.queue("q"), node.world.queue("r")
    node.ask("broker", "createDivert", "d", None, "q", "r", True, "n = 1", None)
    assert "exists" in node.refused("broker", "createDivert", "d", None, "q", "r", True, None, None)
    assert node.ask("broker", "getDivertNames") == ["d"]
    assert node.ask("divert.d", "getForwardingAddress") == "r"
    assert node.ask("divert.d", "getFilter") == "n = 1"
    assert node.ask("divert.d", "isExclusive") is True
    assert node.ask("divert.d", "getRoutingType") == "STRIP"
    node.world.session().sends.send(text("moved", properties={"n": 1}))
    node.world.session().sends.send(text("stays", properties={"n": 2}))
    assert (source.message_count, target.message_count) == (1, 1)
    node.ask("broker", "destroyDivert", "d")
    assert "no divert 'd'" in node.refused("divert.d", "getFilter")
    assert "no divert 'd'" in node.refused("broker", "destroyDivert", "d")


def test_a_divert_from_json() -> None:
    node = ManagedWorld()
    asked = {"name": "d", "address": "q", "forwarding-address": "r", "exclusive": "true", "routing-type": "ANYCAST"}
    node.ask("broker", "createDivert", json.dumps(asked))
    assert node.ask("divert.d", "getRoutingType") == "ANYCAST"
    assert node.ask("divert.d", "isExclusive") is True


@pytest.mark.parametrize(
    "bad",
    ["{", "[]", '{"name": "d"}', '{"name": "d", "address": 1, "forwarding-address": "r"}',
     '{"name": "d", "address": "a", "forwarding-address": "r", "exclusive": "maybe"}',
     '{"name": "d", "address": "a", "forwarding-address": "r", "transformer-configuration": {}}',
     '{"name": "d", "address": "a", "forwarding-address": "r", "routing-type": "ANY"}'],
)  # fmt: skip
def test_json_that_is_no_divert(bad: str) -> None:
    node = ManagedWorld()
    assert node.refused("broker", "createDivert", bad)
    assert node.ask("broker", "getDivertNames") == []


def test_a_class_is_refused() -> None:
    refused = ManagedWorld().refused("broker", "createDivert", "d", None, "q", "r", True, None, "org.example.Change")
    assert "is not supported" in refused


def test_subscribers_are_notified_of_diverts() -> None:
    node = ManagedWorld()
    session = node.world.session()
    node.world.queue("n", address="activemq.notifications", routing_type=RoutingType.MULTICAST, durable=False)
    session.consumers.create(0, "n", selector_text="_AMQ_Binding_Type = 2 OR _AMQ_ClusterName LIKE 'd%'")
    session.consumers.receive_credits(0, -1)
    node.ask("broker", "createDivert", "d", "shared", "q", "r", False, None, None)
    node.ask("broker", "destroyDivert", "d")
    node.settle()
    added, removed = [message.properties for _, message, _ in callback_of(session).delivered]
    assert (added["_AMQ_NotifType"], added["_AMQ_Address"], added["_AMQ_RoutingName"]) == (
        "BINDING_ADDED",
        "q",
        "shared",
    )
    assert removed["_AMQ_NotifType"] == "BINDING_REMOVED"


def test_a_divert_is_changed_while_it_works() -> None:
    """The name of a divert, its address and whether it moves messages stay; its filter and forwarding address change at
    once.
    """
    node = ManagedWorld()
    source, target, other = node.world.queue("q"), node.world.queue("r"), node.world.queue("s")
    node.ask("broker", "createDivert", "d", None, "q", "r", True, "n = 1", None)
    node.ask("broker", "updateDivert", json.dumps({"name": "d", "address": "x", "forwarding-address": "s"}))
    node.world.session().sends.send(text("moved", properties={"n": 2}))
    assert (source.message_count, target.message_count, other.message_count) == (0, 0, 1)
    assert node.ask("divert.d", "getAddress") == "q"
    assert node.ask("divert.d", "getFilter") is None
    node.ask("broker", "updateDivert", "d", None, "n = 3", None, None, "PASS")
    assert node.ask("divert.d", "getForwardingAddress") == "s"
    assert node.ask("divert.d", "getRoutingType") == "PASS"
    node.world.session().sends.send(text("stays", properties={"n": 2}))
    assert (source.message_count, other.message_count) == (1, 1)
    (kept,) = node.office.diverts.kept_for("q")
    assert kept["filter"] == "n = 3", "the log has it"


def test_a_divert_that_cannot_be_changed_stays_as_it_is() -> None:
    node = ManagedWorld()
    node.ask("broker", "createDivert", "d", None, "q", "r", True, "n = 1", None)
    assert "no divert 'x'" in node.refused("broker", "updateDivert", "x", None, None, None, None, None)
    assert "is not supported" in node.refused("broker", "updateDivert", "d", None, None, "org.X", None, None)
    assert "unknown routing type" in node.refused("broker", "updateDivert", "d", None, None, None, None, "ANY")
    assert node.refused("broker", "updateDivert", "d", None, "n >", None, None, None)
    assert node.ask("divert.d", "getFilter") == "n = 1"
