"""Goal: the management JSON says what the view says, field by field as the contract names them."""

from __future__ import annotations

import json

import pytest

from understudy.ha.activation import ActivationFacts, StepTime
from understudy.management.controls import (
    FollowingFacts,
    NodeView,
    error_json,
    live_json,
    node_json,
    parse_stop,
    queue_json,
    readiness,
    ready_json,
)
from understudy.testing.fake_node import FakeNodeView, fake_queue


def test_the_fake_is_a_node_view() -> None:
    view: NodeView = FakeNodeView()
    assert view.queue("orders") == fake_queue()


def test_an_active_node() -> None:
    view = FakeNodeView(queue_facts=[fake_queue("b"), fake_queue("a")])
    body = node_json(view)
    assert json.loads(json.dumps(body)) == {
        "name": "node-a",
        "version": "0.0.0",
        "kernel": {"active": "native", "reason": "understudy_kernel 0.0.0"},
        "node_id": "11111111-2222-3333-4444-555555555555",
        "pid": 4711,
        "uptime_ms": 12500,
        "epoch": 3,
        "ha": {
            "policy": "shared-store",
            "role": "primary",
            "state": "active",
            "machine_state": "ACTIVE",
            "waiting_because": None,
            "without_lock_manager": None,
        },
        "promotion": None,
        "earlier_data": None,
        "peer": {"role": "backup", "connector": "10.0.0.2:61616"},
        "activation": None,
        "following": None,
        "acceptors": [{"name": "artemis", "url": "tcp://0.0.0.0:61616", "certificate": None}],
        "store": {
            "directory": "/data/journal",
            "segments": 2,
            "bytes": 4096,
            "full": False,
            "durable_sequence": 99,
            "live_bytes": 1024,
            "amplification": 4.0,
            "quarantined": None,
            "waiting_for_other_node": 0,
            "repaired": 0,
        },
        "scrub": None,
        "connections": 5,
        "sessions": 6,
        "queues": [queue_json(fake_queue("a")), queue_json(fake_queue("b"))],
    }
    assert queue_json(fake_queue("a")) == {
        "name": "a",
        "address": "a",
        "routing_type": "ANYCAST",
        "durable": True,
        "temporary": False,
        "message_count": 7,
        "delivering_count": 2,
        "consumer_count": 1,
        "messages_added": 20,
        "messages_acknowledged": 11,
        "messages_expired": 1,
        "messages_killed": 3,
        "messages_replaced": 5,
        "paging": True,
        "memory_bytes": 512,
        "spilled_count": 4,
        "measured": True,
    }


def test_a_node_names_the_steps_of_its_activation() -> None:
    facts = ActivationFacts(
        "begin epoch", False, 12, (StepTime("read the log to its end", 5), StepTime("begin epoch", 7))
    )
    assert node_json(FakeNodeView(state="starting", activation=facts))["activation"] == {
        "step": "begin epoch",
        "undoing": False,
        "took_ms": 12,
        "steps": [{"name": "read the log to its end", "took_ms": 5}, {"name": "begin epoch", "took_ms": 7}],
    }


def test_a_passive_node_that_knows_little() -> None:
    view = FakeNodeView(
        state="passive", peer=None, store=None, epoch=None, node_id=None, following=FollowingFacts(False, 77)
    )
    body = node_json(view)
    assert body["following"] == {"caught_up": False, "lag_bytes": 77}
    assert [body[key] for key in ("peer", "store", "epoch", "node_id")] == [None] * 4


@pytest.mark.parametrize(
    ("view", "ready", "reason"),
    [
        (FakeNodeView(), True, None),
        (FakeNodeView(trouble="the disk is full"), False, "the disk is full"),
        (FakeNodeView(state="passive", following=FollowingFacts(True, 0)), True, None),
        (FakeNodeView(state="passive", following=FollowingFacts(False, 9)), False, "passive with a lag of 9 bytes"),
        (FakeNodeView(state="passive"), False, "passive and not following"),
        (FakeNodeView(state="passive", in_line="another backup is next"), True, "another backup is next"),
        (FakeNodeView(state="passive", in_line="another backup is next", trouble="damaged"), False, "damaged"),
        (
            FakeNodeView(state="passive", following=FollowingFacts(True, 0), trouble="the store is damaged"),
            False,
            "the store is damaged",
        ),
        (FakeNodeView(state="starting"), False, "the node is starting"),
        (FakeNodeView(state="stopping", trouble="x"), False, "the node is stopping"),
        (FakeNodeView(state="stopped"), False, "the node is stopped"),
    ],
)
def test_ready_means_active_or_passive_and_caught_up(view: FakeNodeView, ready: bool, reason: str | None) -> None:
    found = readiness(view)
    assert (found.ready, found.reason) == (ready, reason)
    assert ready_json(view) == {"ready": ready, "state": view.state, "reason": reason}


def test_small_bodies() -> None:
    assert live_json() == {"status": "live"}
    assert error_json("c", "m") == {"error": {"code": "c", "message": "m"}}


@pytest.mark.parametrize(("body", "failover"), [({}, False), ({"failover": True}, True), ({"failover": False}, False)])
def test_a_stop_request(body: object, failover: bool) -> None:
    assert parse_stop(body) is failover


@pytest.mark.parametrize("body", [None, [], "x", 1, {"failover": 1}, {"failover": None}, {"fail_over": True}])
def test_a_malformed_stop_request_is_refused(body: object) -> None:
    with pytest.raises(ValueError, match="failover"):
        parse_stop(body)
