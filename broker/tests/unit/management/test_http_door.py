"""The JSON of the management API: the node field by field, readiness, pages of collections, and bodies of requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from unittest.mock import ANY

import pytest

from support.slices import counted, finish
from understudy.management.doors import http
from understudy.management.doors.http import COLLECTIONS, PageQuery, parse_page, parse_stop
from understudy.management.model.node import Activation, Following, Node, Protection, Step, readiness
from understudy.management.snapshot.rows import STEP_ITEMS, STEP_ROWS
from understudy.management.view import NodeView
from understudy.testing.fake_node import FakeNodeView, fake_item, fake_node, fake_queue

QUEUES = COLLECTIONS["queues"]


def node_json(view: NodeView) -> Any:
    return json.loads(finish(http.node_text(view)))


def test_the_fake_is_a_node_view() -> None:
    view: NodeView = FakeNodeView()
    assert view.rows("queues").items() == [fake_queue()]


def test_an_active_node() -> None:
    view = FakeNodeView(items={"queues": [fake_queue("b"), fake_queue("a")]})
    body = node_json(view)
    assert body == {
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
            "backup_present": None,
            "lock_proof_age_ms": None,
            "switches": {},
            "without_lock_manager": None,
        },
        "protection": {
            "protected": True,
            "successor": "10.0.0.2:61616",
            "who": "10.0.0.2:61616 takes over when this node fails",
            "loss": "both nodes use the same store: no confirmed durable message is lost",
            "advice": None,
            "sentence": "10.0.0.2:61616 takes over when this node fails; both nodes use the same store: no confirmed"
            " durable message is lost",
        },
        "promotion": None,
        "earlier_data": None,
        "peer": {"role": "backup", "connector": "10.0.0.2:61616", "name": "b"},
        "activation": None,
        "following": None,
        "acceptors": [
            {
                "name": "artemis",
                "url": "tcp://0.0.0.0:61616",
                "certificate": None,
                "received_bytes": 0,
                "sent_bytes": 0,
            }
        ],
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
            "kept_files": None,
            "kept_bytes": None,
            "disk_free_bytes": None,
            "disk_size_bytes": None,
        },
        "scrub": None,
        "connections": 5,
        "sessions": 6,
        "message_memory_bytes": None,
        "message_memory_limit_bytes": None,
        "dead_letters": None,
        "stale_acknowledgements": 0,
        "login_failures": {},
        "confirmation_times": None,
        "sync_times": None,
        "loop_lag": None,
        "queues": [ANY, ANY],
        "overrides": 0,
        "pending": [],
        "pending_count": 0,
    }
    assert [each["name"] for each in body["queues"]] == ["a", "b"]
    assert body["queues"][0] == {
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
    facts = Activation("begin epoch", False, 12, [Step("read the log to its end", 5), Step("begin epoch", 7)])
    assert node_json(FakeNodeView(fake_node(state="starting", activation=facts)))["activation"] == {
        "step": "begin epoch",
        "undoing": False,
        "took_ms": 12,
        "steps": [{"name": "read the log to its end", "took_ms": 5}, {"name": "begin epoch", "took_ms": 7}],
    }


def test_a_passive_node_that_knows_little() -> None:
    view = FakeNodeView(
        fake_node(state="passive", peer=None, store=None, epoch=None, node_id=None, following=Following(False, 77))
    )
    body = node_json(view)
    assert body["following"] == {"caught_up": False, "lag_bytes": 77}
    assert [body[key] for key in ("peer", "store", "epoch", "node_id")] == [None] * 4


@pytest.mark.parametrize(
    ("node", "ready", "reason"),
    [
        (fake_node(), True, None),
        (fake_node(trouble="the disk is full"), False, "the disk is full"),
        (fake_node(state="passive", following=Following(True, 0)), True, None),
        (fake_node(state="passive", following=Following(False, 9)), False, "passive with a lag of 9 bytes"),
        (fake_node(state="passive"), False, "passive and not following"),
        (fake_node(state="passive", in_line="another backup is next"), True, "another backup is next"),
        (fake_node(state="passive", in_line="another backup is next", trouble="damaged"), False, "damaged"),
        (
            fake_node(state="passive", following=Following(True, 0), trouble="the store is damaged"),
            False,
            "the store is damaged",
        ),
        (fake_node(state="starting"), False, "the node is starting"),
        (fake_node(state="stopping", trouble="x"), False, "the node is stopping"),
        (fake_node(state="stopped"), False, "the node is stopped"),
    ],
)
def test_ready_means_active_or_passive_and_caught_up(node: Node, ready: bool, reason: str | None) -> None:
    found = readiness(node)
    assert (found.ready, found.reason) == (ready, reason)
    said = {"protected": node.protection.protected, "protection": node.protection.sentence}
    said |= {"overrides": node.overrides, "pending_count": node.pending_count}
    assert http.ready_json(node) == {"ready": ready, "state": node.ha.state, "reason": reason, **said}


def test_an_option_of_the_ready_check_asks_for_another_node_that_may_take_over() -> None:
    alone = fake_node(protection=Protection(False, None, "none", "all", "Do.", "none; all. Do."))
    assert http.ready_json(alone)["ready"]
    assert http.ready_json(alone, [("protected", "false")])["ready"]
    refused = http.ready_json(alone, [("protected", "true")])
    assert (refused["ready"], refused["reason"]) == (False, "none; all. Do.")
    assert http.ready_json(fake_node(), [("protected", "true")])["ready"]
    disk = http.ready_json(fake_node(protection=alone.protection, trouble="disk full"), [("protected", "true")])
    assert disk["reason"] == "disk full", "the first reason is the more urgent one"
    for parameter in (("protected", "yes"), ("other", "true")):
        with pytest.raises(ValueError, match="protected=true"):
            http.ready_json(alone, [parameter])


def test_the_body_of_an_error() -> None:
    assert http.error_json("c", "m") == {"error": {"code": "c", "message": "m"}}


@pytest.mark.parametrize(("body", "failover"), [({}, False), ({"failover": True}, True), ({"failover": False}, False)])
def test_a_stop_request(body: object, failover: bool) -> None:
    assert parse_stop(body) is failover


@pytest.mark.parametrize("body", [None, [], "x", 1, {"failover": 1}, {"failover": None}, {"fail_over": True}])
def test_a_malformed_stop_request_is_refused(body: object) -> None:
    with pytest.raises(ValueError, match="failover"):
        parse_stop(body)


# -- collections ----------------------------------------------------------------------------------


def page(view: NodeView, *parameters: tuple[str, str], collection: str = "queues") -> Any:
    found = COLLECTIONS[collection]
    return json.loads(finish(http.page_text(found, view.rows(collection), parse_page(found, parameters))))


def names(view: NodeView, *parameters: tuple[str, str]) -> list[str]:
    return [each["name"] for each in page(view, *parameters)["items"]]


def many(count: int) -> FakeNodeView:
    queues = [fake_queue(f"q{number:05}", message_count=number % 7, durable=number % 2 == 0) for number in range(count)]
    return FakeNodeView(items={"queues": queues[::-1]})


def test_a_page_has_its_number_its_size_and_the_count_of_all() -> None:
    found = page(many(250), ("page", "3"), ("size", "100"))
    assert (found["page"], found["size"], found["count"], len(found["items"])) == (3, 100, 250, 50)
    assert found["items"][0]["name"] == "q00200"
    assert page(many(250))["size"] == http.PAGE_SIZE
    assert page(many(3), ("page", "9"))["items"] == []


def test_an_item_has_every_field_of_the_model() -> None:
    (item,) = page(FakeNodeView())["items"]
    assert list(item) == list(QUEUES.kind.__struct_fields__)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["message_count>4"], ["q00005", "q00006"]),
        (["message_count >= 5", "message_count != 6"], ["q00005"]),
        (["message_count<1"], ["q00000", "q00007"]),
        (["message_count<=0", "name!=q00000"], ["q00007"]),
        (["name=q00003"], ["q00003"]),
        (["name~Q0000", "durable=false", "name!~7"], ["q00001", "q00003", "q00005"]),
        (["filter=null", "name=q00001"], ["q00001"]),
        (["filter!=null"], []),
    ],
)
def test_conditions_must_all_be_met(filters: list[str], expected: list[str]) -> None:
    assert names(many(8), *(("filter", each) for each in filters)) == expected


def test_the_order_is_that_of_a_field_and_equal_items_keep_theirs() -> None:
    assert names(many(9), ("sort", "message_count"), ("size", "3")) == ["q00007", "q00000", "q00008"]
    assert names(many(9), ("sort", "-message_count"), ("size", "2")) == ["q00006", "q00005"]


@pytest.mark.parametrize(
    ("parameter", "says"),
    [
        (("page", "0"), "from 1 to"),
        (("page", "-1"), "from 1 to"),
        (("page", "x"), "from 1 to"),
        (("size", "501"), "from 1 to 500"),
        (("size", "\u0665"), "from 1 to"),
        (("sort", "alien"), "unknown field 'alien'"),
        (("filter", "alien=1"), "unknown field 'alien'"),
        (("filter", "name"), "FIELD OPERATOR VALUE"),
        (("filter", "name>1"), "name is not a number"),
        (("filter", "message_count>many"), "is not a number"),
        (("filter", "message_count=many"), "is not a number"),
        (("filter", "durable=maybe"), "not true or false"),
        (("colour", "red"), "unknown parameter 'colour'"),
    ],
)
def test_a_query_that_cannot_be_read(parameter: tuple[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_page(QUEUES, [parameter])


@pytest.mark.parametrize(
    ("parse", "name"),
    [(lambda given: parse_page(QUEUES, given), "page"), (http.parse_messages, "filter"), (http.parse_events, "after")],
)
def test_a_parameter_that_is_given_twice_is_refused(parse: Callable[[Any], object], name: str) -> None:
    with pytest.raises(ValueError, match=f"parameter '{name}' is given twice"):
        parse([(name, "1"), (name, "2")])


def test_conditions_have_a_limit() -> None:
    with pytest.raises(ValueError, match="limit"):
        parse_page(QUEUES, [("filter", "name=a")] * (http.CONDITIONS_MAX + 1))


def test_an_item_is_found_by_all_fields_of_its_key() -> None:
    consumers = [fake_item(COLLECTIONS["consumers"].kind, session="s", id=number) for number in range(3)]
    rows = FakeNodeView(items={"consumers": consumers}).rows("consumers")
    found: Any = finish(http.item_json(COLLECTIONS["consumers"], rows, "s:2"))
    assert (found["session"], found["id"]) == ("s", 2)
    assert finish(http.item_json(COLLECTIONS["consumers"], rows, "s:3")) is None


def test_a_page_of_very_many_queues_pauses_after_a_bounded_number_of_rows() -> None:
    view = many(50_000)
    rows = view.rows("queues")
    reads = 0

    def counting(read: Any) -> Any:
        def call(source: object) -> object:
            nonlocal reads
            reads += 1
            return read(source)

        return call

    rows.readers = {name: counting(read) for name, read in rows.readers.items()}
    query = PageQuery(
        page=90, size=500, sort="message_count", conditions=parse_page(QUEUES, [("filter", "name~q")]).conditions
    )
    most = before = 0

    def measured() -> Any:
        nonlocal most, before
        work = http.page_text(QUEUES, rows, query)
        while True:
            try:
                next(work)
            except StopIteration as end:
                return end.value
            most, before = max(most, reads - before), reads

    assert len(json.loads(measured())["items"]) == 500
    selecting, showing = STEP_ROWS * 2 + 100, STEP_ITEMS * len(rows.readers)
    assert most <= max(selecting, showing), "the order and the filter each read one field of a row"
    assert reads <= 50_000 * 3 + 500 * len(rows.readers), "the order is read once to sort and once to merge"


def test_the_queues_of_a_node_are_written_in_slices() -> None:
    text, pauses = counted(http.node_text(many(10_000)))
    assert len(json.loads(text)["queues"]) == 10_000
    assert pauses >= 10_000 // STEP_ITEMS
