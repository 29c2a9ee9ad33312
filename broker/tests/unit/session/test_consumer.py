"""Consumers and browsers."""

from __future__ import annotations

from support.routing import FakeCallback, World, callback_of, text
from understudy.session.session import ServerSession


def filled(*names: str) -> World:
    world = World()
    world.queue()
    producer = world.session()
    for name in names:
        producer.sends.send(text(name, properties={"name": name}))
    return world


def browser(world: World, credit_bytes: int = -1, selector: str | None = None) -> ServerSession:
    session = world.session(start=False)
    session.consumers.create(0, "q", selector, browse_only=True)
    session.consumers.receive_credits(0, credit_bytes)
    return session


def test_forced_delivery_comes_after_everything_deliverable() -> None:
    world = filled(*"abc")
    session = world.session()
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    session.consumers.force_delivery(0, 42)
    assert callback_of(session).bodies() == [b"a", b"b", b"c"]
    assert callback_of(session).forced == [(0, 42, 3)]
    assert session.consumers.by_id[0].flow.credits > 0, "the marker is not charged"


def test_forced_delivery_without_credits_or_start_gives_the_marker_alone() -> None:
    world = filled("a")
    session = world.session(start=False)
    session.consumers.create(0, "q")
    session.consumers.force_delivery(0, 1)
    assert (callback_of(session).bodies(), callback_of(session).forced) == ([], [(0, 1, 0)])


def test_a_browser_looks_without_taking_even_before_start() -> None:
    world = filled(*"abc")
    session = browser(world)
    assert callback_of(session).bodies() == [b"a", b"b", b"c"]
    assert callback_of(session).counts() == [0, 0, 0]
    queue = world.office.queues()[0]
    assert (queue.message_count, queue.delivering_count, queue.consumers.count) == (3, 0, 0)
    session.acknowledge(0, callback_of(session).delivered[0][1].message_id, world.answers.of("ack"))
    assert world.answers.error("ack") is None
    assert queue.message_count == 3
    session.close(failed=False)
    assert queue.message_count == 3


def test_a_browser_respects_credits_and_goes_on_where_it_stopped() -> None:
    world = filled(*"abcd")
    session = world.session(callback=FakeCallback(frame_bytes=1))
    session.consumers.create(0, "q", browse_only=True)
    session.consumers.receive_credits(0, 1)
    assert callback_of(session).bodies() == [b"a"]
    session.consumers.receive_credits(0, 2)
    assert callback_of(session).bodies() == [b"a", b"b", b"c"]
    world.session().sends.send(text("e"))
    session.consumers.receive_credits(0, -1)
    session.consumers.force_delivery(0, 7)
    assert callback_of(session).bodies() == [b"a", b"b", b"c", b"d", b"e"]
    assert callback_of(session).forced == [(0, 7, 5)]


def test_a_browser_waits_for_a_slow_socket() -> None:
    world = filled(*"ab")
    session = world.session()
    callback_of(session).slow = True
    session.consumers.create(0, "q", browse_only=True)
    session.consumers.receive_credits(0, -1)
    assert callback_of(session).bodies() == []
    callback_of(session).slow = False
    session.consumers.resume_deliveries()
    assert callback_of(session).bodies() == [b"a", b"b"]


def test_a_browser_with_a_selector_skips_and_ignores_the_expired() -> None:
    world = filled(*"abc")
    world.session().sends.send(text("old", properties={"name": "c"}, expiration=world.clock.now_ms + 1))
    world.clock.advance(1)
    assert callback_of(browser(world, selector="name = 'c'")).bodies() == [b"c"]


def test_browsing_goes_through_all_priorities() -> None:
    world = filled("normal")
    producer = world.session()
    for name, priority in (("low", 1), ("high", 9)):
        producer.sends.send(text(name, priority=priority))
    assert callback_of(browser(world)).bodies() == [b"high", b"normal", b"low"]


def test_a_consumer_started_later_than_created() -> None:
    world = filled("a")
    session = world.session(start=False)
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    world.turn()
    assert callback_of(session).bodies() == []
    session.consumers.start()
    world.turn()
    assert callback_of(session).bodies() == [b"a"]
    assert session.consumers.delivering_count == 1
