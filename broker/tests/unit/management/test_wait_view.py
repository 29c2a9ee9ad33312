"""Goal: the reasons why messages wait are those of the running node, for each place where a message can be.

Method: a node over a simulated disk, brought into each state by its own sessions.
"""

from __future__ import annotations

from typing import Any

import pytest

from support.managed import ManagedWorld
from support.routing import World, callback_of, text
from understudy.config.bridge import BridgeConfiguration
from understudy.ids import Xid
from understudy.management.waiting import view as wait_view
from understudy.session.session import ServerSession


def codes(found: dict[str, Any]) -> list[str]:
    return [each["code"] for each in found["reasons"]]


def of_message(node: ManagedWorld, number: int = 0) -> dict[str, Any]:
    """Why the message of this number waits; messages are numbered in the order in which they were sent."""
    return dict(node.ask("queue.q", "listWaitReasons", IDS[number]))


IDS: list[int] = []


def loaded(count: int = 1, queue: dict[str, Any] | None = None, **settings: object) -> ManagedWorld:
    node = ManagedWorld(world=World({"#": settings}) if settings else None)
    made = node.world.queue(**(queue or {}))
    producer = node.world.session()
    for number in range(count):
        producer.sends.send(text(str(number)))
    IDS[:] = [reference.message_id for _, reference in made.browse((9, -1))]
    return node


def consume(node: ManagedWorld, credit: int = 0, selector: str | None = None, **options: Any) -> ServerSession:
    session = node.world.session(**options)
    session.consumers.create(0, "q", selector)
    if credit:
        session.consumers.receive_credits(0, credit)
    session.consumers.start()
    node.world.turn()
    return session


def test_without_a_consumer_the_queue_and_its_first_message_say_so() -> None:
    node = loaded(3)
    found = node.ask("queue.q", "listWaitReasons")
    assert codes(found) == ["no-consumer"]
    assert (found["message_count"], found["waiting"], found["first"]["message_id"]) == (3, 3, IDS[0])
    assert codes(found["first"]) == ["no-consumer"]
    assert codes(of_message(node, 2)) == ["no-consumer", "messages-ahead"]
    assert of_message(node, 2)["ahead"] == 2


def test_an_empty_queue_has_no_first_message() -> None:
    node = loaded(0)
    assert node.ask("queue.q", "listWaitReasons")["first"] is None


def test_a_message_that_the_queue_does_not_have_is_an_error() -> None:
    assert "no message 12345" in loaded(1).refused("queue.q", "listWaitReasons", 12345)


def test_a_deep_queue_is_searched_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_view, "_SLICE_MESSAGES", 10)
    node = loaded(45)
    assert [of_message(node, number)["ahead"] for number in (0, 9, 10, 11, 44)] == [0, 9, 10, 11, 44]
    assert "no message 12345" in node.refused("queue.q", "listWaitReasons", 12345)


def test_a_consumer_without_credit_is_named() -> None:
    node = loaded()
    session = consume(node)
    (reason,) = of_message(node)["reasons"]
    assert reason["code"] == "no-credit"
    assert reason["values"]["consumers"][0]["name"] == f"{session.state.alias}:0"
    assert session.state.name not in str(reason)


def test_a_session_that_is_not_started_is_named() -> None:
    node = loaded()
    session = node.world.session()
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, 1000)
    session.consumers.stop()
    assert codes(of_message(node)) == ["not-started"]


def test_a_connection_that_takes_no_bytes_is_named() -> None:
    node = loaded()
    session = node.world.session()
    callback_of(session).slow = True
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, 1000)
    session.consumers.start()
    node.world.turn()
    assert codes(of_message(node)) == ["socket-full"]


def test_filters_that_do_not_match_are_named() -> None:
    node = loaded()
    consume(node, 1000, "size > 5")
    (reason,) = of_message(node)["reasons"]
    assert (reason["code"], reason["values"]) == ("no-filter-matches", {"filters": ["size > 5"]})


def test_a_delivery_says_which_consumer_has_it_and_since_when() -> None:
    node = loaded()
    began_ms = node.world.clock.wall_ms()
    session = consume(node, 1000)
    node.world.clock.advance(7_000)
    found = of_message(node)
    (reason,) = found["reasons"]
    assert found["place"] == "delivering"
    assert reason["values"]["consumer"] == f"{session.state.alias}:0"
    assert (reason["values"]["since_ms"], reason["values"]["deliveries"]) == (began_ms, 1)
    assert "for 7." in reason["text"]


def test_a_transaction_that_acknowledges_it_is_named() -> None:
    node = loaded()
    session = consume(node, 1000, auto_commit_sends=False, auto_commit_acks=False)
    session.acknowledge(0, IDS[0])
    found = of_message(node)
    assert codes(found) == ["acknowledged-in-transaction"]
    assert session.state.alias in found["reasons"][0]["text"]
    session.rollback()
    assert codes(of_message(node)) != ["acknowledged-in-transaction"]


def test_a_transaction_that_sends_it_is_named_for_the_queue_and_the_message() -> None:
    node = loaded(0)
    session = node.world.session(auto_commit_sends=False, auto_commit_acks=False)
    session.sends.send(text("later"))
    node.world.turn()
    (transaction,) = node.ask("queue.q", "listWaitReasons")["transactions"]
    assert (transaction["sends"], transaction["acknowledges"], transaction["prepared"]) == (1, 0, False)
    assert session.state.transaction is not None
    IDS[:] = session.state.transaction.sent_ids(node.office.directory.queue("q"))
    assert codes(of_message(node)) == ["sent-in-transaction"]
    session.commit()
    node.settle()
    assert codes(of_message(node)) == ["no-consumer"]


def test_a_prepared_branch_is_named() -> None:
    node = loaded()
    session = consume(node, 1000, xa=True, auto_commit_sends=False, auto_commit_acks=False)
    xid = Xid(7, b"global", b"branch")
    session.branches.start(xid)
    session.acknowledge(0, IDS[0])
    session.branches.end(xid, failed=False)
    session.branches.prepare(xid)
    (reason,) = of_message(node)["reasons"]
    assert reason["code"] == "acknowledged-in-transaction"
    assert reason["values"]["prepared"] is True
    assert reason["values"]["transaction"] == str(xid)


def test_scheduled_messages_and_redeliveries_say_when_they_are_due() -> None:
    node = loaded(1, redelivery_delay=5_000)
    session = consume(node, 1000)
    session.rollback(consider_last_message_as_delivered=True)
    session.close(failed=True)
    (reason,) = of_message(node)["reasons"]
    assert (reason["code"], reason["values"]["deliveries"]) == ("redelivery-delay", 1)
    at_ms = node.world.clock.wall_ms() + 60_000
    node.world.session().sends.send(text("later", properties={"_AMQ_SCHED_DELIVERY": at_ms}))
    node.world.turn()
    queue = node.office.directory.queue("q")
    IDS[:] = [each.message_id for each in node.office.scheduled.of(queue) if each.message_id != IDS[0]]
    (reason,) = of_message(node)["reasons"]
    assert (reason["code"], reason["values"]) == ("scheduled", {"at_ms": at_ms})


def test_pauses_of_the_queue_and_of_the_address() -> None:
    node = loaded()
    node.ask("queue.q", "pause")
    assert codes(of_message(node)) == ["queue-paused", "no-consumer"]
    node.ask("address.q", "pause")
    assert codes(of_message(node)) == ["address-paused", "no-consumer"]


def test_an_exclusive_queue_names_its_consumer() -> None:
    node = loaded(1, {"exclusive": True})
    first, second = consume(node), consume(node)
    second.consumers.receive_credits(0, 1000)
    node.world.turn()
    reasons = of_message(node)["reasons"]
    assert [each["code"] for each in reasons] == ["exclusive", "no-credit"]
    assert reasons[0]["values"] == {"consumer": f"{first.state.alias}:0", "spares": 1}


def test_a_group_names_its_consumer() -> None:
    node = loaded(0)
    one, _ = consume(node, 80), consume(node, 100_000)
    producer = node.world.session()
    for number in range(8):
        producer.sends.send(text(str(number), properties={"_AMQ_GROUP_ID": "g"}))
        node.world.turn()
    queue = node.office.directory.queue("q")
    IDS[:] = [reference.message_id for _, reference in queue.browse((9, -1))]
    (reason,) = of_message(node)["reasons"]
    assert reason["code"] == "group-of-consumer"
    assert reason["values"] == {"group": "g", "consumer": f"{one.state.alias}:0"}


def test_a_gate_says_how_many_consumers_it_waits_for() -> None:
    node = loaded(1, {"consumers_before_dispatch": 2})
    consume(node, 1000)
    (reason,) = of_message(node)["reasons"]
    assert (reason["code"], reason["values"]["wanted"], reason["values"]["present"]) == ("dispatch-gate", 2, 1)


def test_kinds_of_queues_that_keep_messages() -> None:
    node = loaded(1, {"non_destructive": True, "last_value": True, "last_value_key": "isin"})
    assert codes(of_message(node)) == ["no-consumer", "non-destructive", "last-value"]


def test_a_bridge_that_is_not_started_is_named() -> None:
    node = ManagedWorld(configuration={"bridges": [BridgeConfiguration("b", "q")]})
    node.world.queue()
    node.world.session().sends.send(text("m"))
    assert codes(node.ask("queue.q", "listWaitReasons")) == ["bridge-stopped"]
