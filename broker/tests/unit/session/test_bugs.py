"""A defect in code that serves one client closes the connection of that client and affects no other.

Method: a callback, a selector or a queue that raises an exception of an unexpected type.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from support.core import CoreNode
from support.routing import FakeCallback, World, callback_of, text
from understudy.errors import DiskFull
from understudy.message import Message
from understudy.routing import post_office
from understudy.routing.queues.queue import Queue
from understudy.wire.core import packets


class Bug(Exception):
    """An exception that no code handles by its type."""


@dataclass
class Broken(FakeCallback):
    """Raises when a message ``poison`` is delivered."""

    poison: bytes = b"b"

    def sent(self, consumer_id: int, message: Message, delivery_count: int) -> int:
        if message.body == self.poison:
            raise Bug
        return super().sent(consumer_id, message, delivery_count)


@pytest.mark.parametrize("selector", [None, "x IS NULL"], ids=["plain", "selective"])
@pytest.mark.parametrize("runs", [False, True], ids=["one by one", "run"])
def test_a_delivery_that_cannot_be_written_costs_its_connection_and_no_message(
    runs: bool, selector: str | None
) -> None:
    world = World()
    queue = world.queue()
    world.queue("other")
    broken = world.session(callback=Broken(runs=runs))
    broken.consumers.create(0, "q", selector)
    broken.consumers.receive_credits(0, -1)
    elsewhere = world.session()
    elsewhere.consumers.create(0, "other")
    elsewhere.consumers.receive_credits(0, -1)
    producer = world.session()
    for body in "abc":
        producer.sends.send(text(body))
    producer.sends.send(text("z", "other"))
    world.turn()
    assert [type(bug) for bug in callback_of(broken).bugs] == [Bug], "told once"
    assert callback_of(broken).bodies() == [b"a"], "and then nothing more"
    assert callback_of(elsewhere).bodies() == [b"z"]
    assert queue.message_count == 3
    broken.close(failed=True)
    heir = world.session()
    heir.consumers.create(0, "q")
    heir.consumers.receive_credits(0, -1)
    world.turn()
    assert callback_of(heir).bodies() == [b"a", b"b", b"c"]
    assert callback_of(heir).counts()[:2] == [2, 2], "it counts as an attempt, so it ends as a dead letter"
    heir.acknowledge(0, callback_of(heir).delivered[-1][1].message_id)
    assert (queue.message_count, queue.delivering_count) == (0, 0)


def test_a_selector_that_breaks_leaves_the_message_to_the_others() -> None:
    world = World()
    queue = world.queue()
    sessions = [world.session(), world.session()]
    for session in sessions:
        session.consumers.create(0, "q", "n = 1")
        session.consumers.receive_credits(0, -1)

    def matches(message: Message) -> bool:
        raise Bug

    consumer: Any = sessions[0].consumers.by_id[0]
    consumer.filter = SimpleNamespace(matches=matches)
    world.session().sends.send(text("m", properties={"n": 1}))
    world.turn()
    assert [len(callback_of(session).bugs) for session in sessions] == [1, 0]
    assert callback_of(sessions[1]).bodies() == [b"m"]
    assert queue.delivering_count == 1


def test_an_error_of_the_store_is_no_bug_of_a_connection() -> None:
    class Full(FakeCallback):
        def sent(self, consumer_id: int, message: Message, delivery_count: int) -> int:
            raise DiskFull("no space")

    world = World()
    world.queue()
    session = world.session(callback=Full())
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    world.session().sends.send(text("m"))
    with pytest.raises(DiskFull):
        world.turn()
    assert callback_of(session).bugs == []


def test_a_queue_that_breaks_keeps_no_other_queue_from_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    seen: list[FakeCallback] = []
    for name in ("one", "two", "three"):
        world.queue(name)
        session = world.session()
        session.consumers.create(0, name)
        session.consumers.receive_credits(0, -1)
        seen.append(callback_of(session))
    world.turn()
    producer = world.session()
    for name in ("one", "two", "three"):
        producer.sends.send(text(name, name))
    serve = post_office.serve

    def breaks_for_two(queue: Queue) -> None:
        if queue.name == "two":
            raise Bug
        serve(queue)

    monkeypatch.setattr(post_office, "serve", breaks_for_two)
    with pytest.raises(Bug):
        world.turn()
    world.turn()
    assert [callback.bodies() for callback in seen] == [[b"one"], [], [b"three"]]


def test_accepted_messages_are_written_although_a_delivery_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    world = World()
    queue = world.queue()

    def breaks(_: Queue) -> None:
        raise Bug

    def flush(*, gather: bool) -> bool:
        events.append("flush")
        return False

    monkeypatch.setattr(post_office, "serve", breaks)
    monkeypatch.setattr(world.store, "flush", flush)
    world.office.mark_dirty(queue)
    with pytest.raises(Bug):
        world.turn()
    assert events == ["flush"]


def test_the_connection_is_aborted_with_its_traceback_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = CoreNode()
    queue = node.world.queue()
    broken, whole = node.client(), node.client("10.0.0.2:5000")
    for client, name in ((broken, "broken"), (whole, "whole")):
        client.create_session(name, window=-1)
        client.send(packets.CreateConsumer(0, "q", None, 0, False, False))
        client.send(packets.SessionStart())
    handler = broken.handler.sessions[10]

    def breaks(*arguments: object) -> int:
        raise Bug("while encoding")

    monkeypatch.setattr(handler.session.consumers.by_id[0], "_send", breaks, raising=False)
    handler.session.consumers.by_id[0].overhead_bytes = 0
    broken.send(packets.FlowToken(0, -1))
    node.world.session().sends.send(text("m"))
    node.world.turn()
    assert broken.connection.closed
    assert not whole.connection.closed
    assert "while encoding" in caplog.text
    assert "Traceback" in caplog.text
    broken.handler.connection_lost("aborted")
    whole.received()
    whole.send(packets.FlowToken(0, -1))
    assert [type(packet) for packet in whole.received()] == [packets.ReceiveMessage]
    assert queue.delivering_count == 1
