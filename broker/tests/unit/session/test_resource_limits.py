"""Limits of one user: sessions and queues (resource-limit-settings)."""

from __future__ import annotations

import pytest

from support.routing import FakeSecurity, World, text
from understudy.errors import NotAuthorized, SessionRejected
from understudy.message import ROUTING_TYPE
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.addresses.records import queue_configuration, queue_record
from understudy.session.registry import SessionRegistry
from understudy.terms import ResourceLimits, RoutingType


class Amy(FakeSecurity):
    user = "amy"


def limited(**limits: int) -> World:
    world = World()
    world.registry = SessionRegistry({"amy": ResourceLimits(**limits)})
    return world


@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_sessions_of_a_user_are_counted(allowed: int) -> None:
    world = limited(max_sessions=allowed)
    world.session()
    made = [world.session(security=Amy()) for _ in range(allowed)]
    with pytest.raises(SessionRejected, match=f"has {allowed} sessions, limit {allowed}"):
        world.session(security=Amy())
    assert len(world.registry) == allowed + 1
    for session in made:
        session.close(failed=False)
        world.session(security=Amy())


def test_queues_that_a_user_made_are_counted() -> None:
    world = limited(max_queues=2)
    session = world.session(security=Amy())
    session.queues.create_queue(QueueConfiguration("a", routing_type=RoutingType.ANYCAST))
    session.sends.send(text("m", "b", properties={ROUTING_TYPE: 1}), world.answers.of("made for a message"))
    assert world.answers.error("made for a message") is None
    assert [queue.configuration.user for queue in world.office.queues()] == ["amy", "amy"]
    for make in (session.queues.create_queue, session.queues.create_shared_queue):
        with pytest.raises(NotAuthorized, match="has made 2 queues, limit 2"):
            make(QueueConfiguration("c", routing_type=RoutingType.ANYCAST))
    session.sends.send(text("m", "c", properties={ROUTING_TYPE: 1}), world.answers.of("one too many"))
    assert isinstance(world.answers.error("one too many"), NotAuthorized)
    assert "c" not in world.office.directory.queues
    world.session().queues.create_queue(QueueConfiguration("c", routing_type=RoutingType.ANYCAST))
    session.queues.delete_queue("a")
    session.queues.create_queue(QueueConfiguration("d", routing_type=RoutingType.ANYCAST))


def test_no_limit_is_none() -> None:
    world = limited()
    for number in range(5):
        session = world.session(security=Amy())
        session.queues.create_queue(QueueConfiguration(f"q{number}", routing_type=RoutingType.ANYCAST))


def test_the_log_keeps_the_user_that_made_a_queue() -> None:
    full = QueueConfiguration("q", "a", RoutingType.ANYCAST, user="amy")
    record = queue_record(7, 3, full)
    assert record.settings["user"] == "amy"
    assert queue_configuration(record, "a").user == "amy"
    assert "user" not in queue_record(7, 3, QueueConfiguration("q", "a", RoutingType.ANYCAST)).settings
