"""Slow consumers: which ones are slow, which ones are not measured, and what happens to them."""

from __future__ import annotations

import pytest

from support.routing import World, callback_of, text
from understudy.config.model import AddressSettingsConfiguration
from understudy.routing.queues.queue import Queue
from understudy.session.consumer import ServerConsumer
from understudy.session.outcomes import ACCEPTED
from understudy.session.session import ServerSession
from understudy.session.slow_consumers import SlowConsumers, _rate


class Listener:
    def __init__(self) -> None:
        self.slow: list[tuple[str, int]] = []

    def consumer_slow(self, queue: Queue, consumer: ServerConsumer) -> None:
        self.slow.append((queue.name, consumer.consumer_id))


class SessionHarness:
    """A queue whose consumers must acknowledge 2 messages a second, measured every 5 seconds."""

    def __init__(self, **settings: object) -> None:
        self.world = World({"#": {"slow_consumer_threshold": 2, **settings}})
        self.slow_consumers = SlowConsumers(self.world.clock, self.world.clock)
        self.listener = Listener()
        self.slow_consumers.listeners.append(self.listener)
        self.world.office.directory.listeners.append(self.slow_consumers)
        self.queue = self.world.queue()
        self.producer = self.world.session()

    def consumer(self, **options: object) -> ServerSession:
        session = self.world.session(**options)  # type: ignore[arg-type]
        session.consumers.create(0, "q")
        session.consumers.receive_credits(0, -1)
        return session

    def send(self, count: int) -> None:
        for number in range(count):
            self.producer.sends.send(text(str(number)))
        self.world.turn()

    @staticmethod
    def acknowledge(session: ServerSession, count: int) -> None:
        for message_id in list(session.consumers.by_id[0].delivering)[:count]:
            session.settle(0, message_id, ACCEPTED)

    def period(self) -> None:
        self.world.clock.advance(5_000)


def test_a_slow_consumer_is_reported_once_per_period() -> None:
    rig = SessionHarness()
    session = rig.consumer()
    rig.send(40)
    rig.acknowledge(session, 9)
    rig.period()
    assert rig.listener.slow == [("q", 0)]
    rig.acknowledge(session, 10)
    rig.period()
    assert rig.listener.slow == [("q", 0)], "ten in five seconds are enough"
    rig.period()
    assert len(rig.listener.slow) == 2
    assert callback_of(session).killed == []


def test_acknowledging_in_a_transaction_or_at_delivery_counts() -> None:
    rig = SessionHarness()
    rig.consumer(pre_acknowledge=True)
    rig.send(20)
    rig.period()
    transacted = SessionHarness()
    session = transacted.consumer(transacted=True)
    transacted.send(20)
    transacted.acknowledge(session, 10)
    transacted.period()
    assert rig.listener.slow == transacted.listener.slow == []


def test_kill_ends_the_connection_of_that_consumer_only() -> None:
    rig = SessionHarness(slow_consumer_policy="KILL")
    slow, quick = rig.consumer(), rig.consumer()
    rig.send(60)
    rig.acknowledge(quick, 20)
    rig.period()
    assert callback_of(slow).killed == ["slow consumer"]
    assert callback_of(quick).killed == []
    assert rig.listener.slow == [], "the policy is one or the other"


def test_a_queue_with_too_little_to_do_is_not_judged() -> None:
    rig = SessionHarness()
    rig.consumer()
    rig.period()
    rig.send(1)
    rig.period()
    assert rig.listener.slow == []
    rig.send(9)
    rig.period()
    assert rig.listener.slow == [("q", 0)], "nine came and none was taken"


def test_waiting_messages_count_even_without_new_ones() -> None:
    rig = SessionHarness()
    rig.consumer()
    rig.send(10)
    rig.period()
    rig.period()
    assert len(rig.listener.slow) == 2


def test_a_consumer_is_judged_by_a_whole_period() -> None:
    rig = SessionHarness()
    rig.acknowledge(rig.consumer(), 0)
    rig.send(100)
    rig.world.clock.advance(4_999)
    late = rig.consumer()
    rig.world.clock.advance(1)
    assert rig.listener.slow == [("q", 0)]
    assert not late.state.closed
    rig.period()
    assert len(rig.listener.slow) == 3


def test_browsers_are_never_slow() -> None:
    rig = SessionHarness()
    rig.send(50)
    session = rig.world.session()
    session.consumers.create(0, "q", browse_only=True)
    rig.period()
    assert rig.listener.slow == []


@pytest.mark.parametrize(
    ("unit", "threshold"), [("MESSAGES_PER_MINUTE", 120), ("MESSAGES_PER_HOUR", 7_200), ("MESSAGES_PER_DAY", 172_800)]
)
def test_units(unit: str, threshold: int) -> None:
    """All of them are two a second."""
    for acknowledged, named in ((9, 1), (10, 0)):
        rig = SessionHarness(slow_consumer_threshold=threshold, slow_consumer_threshold_measurement_unit=unit)
        session = rig.consumer()
        rig.send(40)
        rig.acknowledge(session, acknowledged)
        rig.period()
        assert len(rig.listener.slow) == named


def test_a_threshold_of_zero_is_about_consumers_that_take_nothing_at_all() -> None:
    """Also where nothing is to be taken, as with Artemis: such a consumer connects again, perhaps at another member."""
    rig = SessionHarness(slow_consumer_threshold=0)
    session = rig.consumer()
    rig.send(2)
    rig.acknowledge(session, 1)
    rig.period()
    assert rig.listener.slow == []
    rig.period()
    assert rig.listener.slow == [("q", 0)]
    rig.acknowledge(session, 1)
    rig.period()
    rig.period()
    assert rig.listener.slow == [("q", 0)] * 2


def test_a_consumer_at_the_threshold_is_not_slow_because_the_check_is_late() -> None:
    rig = SessionHarness(slow_consumer_threshold=10, slow_consumer_check_period=1)
    session = rig.consumer()
    rig.send(40)
    rig.acknowledge(session, 10)
    rig.world.clock.advance(1_000)
    assert rig.listener.slow == []
    rig.acknowledge(session, 9)
    rig.world.clock.advance(1_000)
    assert rig.listener.slow == [("q", 0)]
    assert [_rate(count, 1.0005) for count in (9, 10, 11)] == [9.0, 10.0, 11.0]
    assert _rate(0, 2.0) == 0


def test_the_period_is_the_setting() -> None:
    rig = SessionHarness(slow_consumer_check_period=1)
    rig.consumer()
    rig.send(20)
    rig.world.clock.advance(1_000)
    assert len(rig.listener.slow) == 1


def test_nothing_is_measured_without_a_threshold_or_without_consumers() -> None:
    rig = SessionHarness(slow_consumer_threshold=-1)
    before = rig.world.clock.pending()
    rig.consumer()
    assert rig.world.clock.pending() == before
    watched = SessionHarness()
    session = watched.consumer()
    assert watched.world.clock.pending() == before + 1
    session.consumers.close(0)
    assert watched.world.clock.pending() == before
    watched.consumer()
    watched.slow_consumers.close()
    assert watched.world.clock.pending() == before


def test_a_threshold_that_is_set_later_counts_for_consumers_that_are_there() -> None:
    rig = SessionHarness(slow_consumer_threshold=-1)
    rig.consumer()
    rig.send(40)
    rig.period()
    assert rig.listener.slow == []
    office = rig.world.office
    office.directory.settings.add(AddressSettingsConfiguration("q", slow_consumer_threshold=2))
    office.apply_settings()
    rig.period()
    assert rig.listener.slow == [("q", 0)]
    office.directory.settings.remove("q")
    office.apply_settings()
    rig.period()
    assert rig.listener.slow == [("q", 0)]
