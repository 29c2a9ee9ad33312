"""A session's requests: acknowledgement modes, errors, limits, permissions, end."""

from __future__ import annotations

import pytest

from support.routing import Answers, FakeSecurity, World, callback_of, text
from support.sends import sends_of
from understudy.errors import (
    AddressNotFound,
    DuplicateMetadata,
    IllegalState,
    InvalidSelector,
    LimitExceeded,
    NotAuthorized,
    ObjectClosed,
    QueueExists,
    QueueNotFound,
    SharedQueueMismatch,
)
from understudy.limits import METADATA_PER_SESSION_MAX
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.batch import BatchSends, Taking
from understudy.session.connection_scope import ConnectionScope
from understudy.session.outcomes import ACCEPTED, EXPIRED
from understudy.session.session import ServerSession
from understudy.terms import Permission, RoutingType


def loaded(world: World, *names: str, **options: object) -> ServerSession:
    """A session with a consumer that has been given these messages."""
    if world.office.directory.find_queue("q") is None:
        world.queue()
    producer = world.session()
    for name in names:
        producer.sends.send(text(name))
    session = world.session(**options)  # type: ignore[arg-type]
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    world.turn()
    return session


def ids(session: ServerSession) -> list[int]:
    return [message.message_id for _, message, _ in callback_of(session).delivered]


def test_acknowledge_covers_everything_up_to_the_message() -> None:
    world = World()
    session = loaded(world, *"abcd")
    session.acknowledge(0, ids(session)[2], world.answers.of("ack"))
    queue = world.office.queues()[0]
    assert world.answers.error("ack") is None
    assert world.store.survivors(queue) == ids(session)[3:]
    session.acknowledge(0, ids(session)[0], world.answers.of("again"))
    assert isinstance(world.answers.error("again"), IllegalState)


def test_individual_acknowledge_covers_one() -> None:
    world = World()
    session = loaded(world, *"abc")
    session.settle(0, ids(session)[1], ACCEPTED, world.answers.of("ack"))
    queue = world.office.queues()[0]
    assert world.store.survivors(queue) == [ids(session)[0], ids(session)[2]]
    session.settle(0, ids(session)[1], ACCEPTED, world.answers.of("again"))
    assert isinstance(world.answers.error("again"), IllegalState)
    session.acknowledge(0, ids(session)[2])
    assert queue.message_count == 0


def test_an_acknowledgement_is_answered_when_durable() -> None:
    world = World(automatic=False)
    world.queue()
    world.session().sends.send(text("a"))
    world.store.sync()
    session = loaded(world)
    session.acknowledge(0, ids(session)[0], world.answers.of("ack"))
    assert world.answers.names == []
    world.sync()
    assert world.answers.names == ["ack"]


def test_errors_without_an_answer_reach_the_log() -> None:
    world = World()
    session = loaded(world, "a")
    session.acknowledge(9, 1)
    session.acknowledge(0, 12345)
    session.sends.send(text("m", "::missing"))
    assert [type(error) for error in callback_of(session).errors] == [IllegalState, IllegalState, AddressNotFound]


def test_answers_keep_the_order_of_requests_even_when_one_fails() -> None:
    world = World(automatic=False)
    world.queue()
    session = world.session()
    session.sends.send(text("a"), world.answers.of("a"))
    session.sends.send(text("b", "::missing"), world.answers.of("b"))
    session.sends.send(text("c", durable=False), world.answers.of("c"))
    session.rollback(done=world.answers.of("rollback"))
    assert world.answers.names == []
    world.sync()
    assert world.answers.names == ["a", "b", "c", "rollback"]
    assert isinstance(world.answers.error("b"), AddressNotFound)


def test_pre_acknowledge_settles_at_delivery() -> None:
    world = World()
    session = loaded(world, *"ab", pre_acknowledge=True)
    queue = world.office.queues()[0]
    assert len(ids(session)) == 2
    assert (queue.message_count, queue.delivering_count, queue.messages_acknowledged) == (0, 0, 2)
    session.close(failed=True)
    assert queue.message_count == 0


def test_client_acknowledge_mode_needs_a_commit() -> None:
    world = World()
    session = loaded(world, *"ab", auto_commit_acks=False)
    queue = world.office.queues()[0]
    session.sends.send(text("sent at once"))
    assert queue.messages_added == 3
    session.acknowledge(0, ids(session)[1])
    assert len(world.store.survivors(queue)) == 3
    session.commit(world.answers.of("commit"))
    assert world.answers.error("commit") is None
    assert len(world.store.survivors(queue)) == 1


def test_consumers_ids_queues_selectors_and_permissions_are_checked() -> None:
    world = World()
    session = loaded(world)
    with pytest.raises(IllegalState, match="consumer 0"):
        session.consumers.create(0, "q")
    with pytest.raises(QueueNotFound):
        session.consumers.create(1, "missing")
    with pytest.raises(InvalidSelector):
        session.consumers.create(1, "q", "((")
    denied = world.session(security=FakeSecurity(Permission.CONSUME))
    with pytest.raises(NotAuthorized, match="consume"):
        denied.consumers.create(1, "q")
    denied.consumers.create(1, "q", browse_only=True)
    for call in (session.consumers.close, lambda consumer_id: session.consumers.receive_credits(consumer_id, 1)):
        with pytest.raises(IllegalState, match="no consumer 5"):
            call(5)
    assert world.office.queues()[0].consumers.count == 1


def test_sending_needs_permission_once_in_a_while() -> None:
    world = World()
    world.queue()
    security = FakeSecurity()
    session = world.session(security=security)
    for _ in range(3):
        session.sends.send(text("m"))
    assert security.asked == [(Permission.SEND, "q", None)]
    security.denied.add(Permission.SEND)
    world.clock.advance(60_000)
    world.turn()
    session.sends.send(text("m"), world.answers.of("denied"))
    assert isinstance(world.answers.error("denied"), NotAuthorized)


def test_creating_needs_permission_by_durability() -> None:
    world = World()
    for denied, configuration in (
        (Permission.CREATE_DURABLE_QUEUE, QueueConfiguration(name="a")),
        (Permission.CREATE_NON_DURABLE_QUEUE, QueueConfiguration(name="a", durable=False)),
        (Permission.CREATE_ADDRESS, QueueConfiguration(name="a")),
    ):
        with pytest.raises(NotAuthorized, match=denied.value):
            world.session(security=FakeSecurity(denied)).queues.create_queue(configuration)
    denied_session = world.session(security=FakeSecurity(Permission.CREATE_ADDRESS, Permission.DELETE_DURABLE_QUEUE))
    with pytest.raises(NotAuthorized):
        denied_session.queues.create_address("a", {RoutingType.ANYCAST})
    denied_session.sends.send(text("m", "on-demand"), world.answers.of("send"))
    assert isinstance(world.answers.error("send"), NotAuthorized)
    world.queue()
    with pytest.raises(NotAuthorized):
        denied_session.queues.delete_queue("q")
    assert sorted(world.office.directory.queues) == ["q"]


def test_creating_and_deleting_queues() -> None:
    world = World()
    session = world.session()
    session.queues.create_address("a", {RoutingType.ANYCAST})
    session.queues.create_queue(QueueConfiguration(name="a::q", routing_type=RoutingType.ANYCAST))
    assert world.office.directory.queues["q"].address.name == "a"
    with pytest.raises(QueueExists):
        session.queues.create_queue(QueueConfiguration(name="q", address="a"))
    session.queues.delete_queue("a::q")
    with pytest.raises(QueueNotFound):
        session.queues.delete_queue("q")


def test_an_address_that_exists_gets_the_routing_types_it_lacks() -> None:
    """Two clients that find an address missing both ask for it."""
    world = World()
    world.session().queues.create_address("a", {RoutingType.ANYCAST}, auto_created=True)
    session = world.session()
    session.queues.create_address("a", {RoutingType.ANYCAST}, auto_created=True)
    session.queues.create_queue(QueueConfiguration(name="a", address="a", routing_type=RoutingType.ANYCAST))
    session.queues.create_address("a", {RoutingType.MULTICAST})
    assert world.office.directory.addresses["a"].routing_types == {RoutingType.ANYCAST, RoutingType.MULTICAST}
    assert "a" in world.office.directory.queues


def test_arrangements_are_answered_when_durable() -> None:
    world = World(automatic=False)
    session = world.session()
    answers: list[str] = []
    session.queues.create_queue(QueueConfiguration(name="q"))
    session.state.when_durable(answers.append, "created")
    assert answers == []
    world.sync()
    assert answers == ["created"]
    session.state.when_durable(answers.append, "nothing to wait for")
    assert len(answers) == 2


def test_a_browser_that_leaves_takes_no_shared_queue_along() -> None:
    world = World()
    session = world.session()
    session.queues.create_shared_queue(QueueConfiguration(name="s", address="t", durable=False))
    session.consumers.create(0, "s", browse_only=True)
    session.consumers.close(0)
    assert world.office.directory.find_queue("s") is not None
    session.consumers.create(1, "s")
    session.consumers.close(1)
    assert world.office.directory.find_queue("s") is None


def test_shared_queues_are_made_once() -> None:
    world = World()
    configuration = QueueConfiguration(name="s", address="t", durable=False, routing_type=RoutingType.MULTICAST)
    for _ in range(2):
        world.session().queues.create_shared_queue(configuration)
    assert world.office.directory.queues["s"].configuration.auto_delete is True
    with pytest.raises(SharedQueueMismatch):
        world.session().queues.create_shared_queue(
            QueueConfiguration(name="s", address="t", durable=False, filter="a=1")
        )


def test_temporary_queues_live_as_long_as_the_connection() -> None:
    world = World()
    connection = ConnectionScope("c")
    session, other = world.session(connection=connection), world.session()
    session.queues.create_queue(QueueConfiguration(name="t1", temporary=True, routing_type=RoutingType.ANYCAST))
    session.queues.create_queue(QueueConfiguration(name="t2", temporary=True, routing_type=RoutingType.ANYCAST))
    session.queues.delete_queue("t1")
    other.consumers.create(0, "t2")
    session.close(failed=False)
    assert list(world.office.directory.queues) == ["t2"]
    connection.delete_temporary_queues(world.office)
    assert world.office.directory.queues == {}
    assert callback_of(other).disconnected == [0]
    connection.delete_temporary_queues(world.office)


def test_an_address_goes_with_the_last_temporary_queue_though_others_were_there_before() -> None:
    world = World()
    connection = ConnectionScope("c")
    session = world.session(connection=connection)
    session.queues.create_queue(
        QueueConfiguration(name="t", address="a", temporary=True, routing_type=RoutingType.MULTICAST)
    )
    session.queues.create_queue(QueueConfiguration(name="q", address="a", routing_type=RoutingType.MULTICAST))
    session.queues.delete_queue("q")
    assert "a" in world.office.directory.addresses
    connection.delete_temporary_queues(world.office)
    assert "a" not in world.office.directory.addresses


def test_messages_without_address_use_the_sessions_default() -> None:
    world = World()
    queue = world.queue()
    anonymous = text("m", None)  # type: ignore[arg-type]
    world.session(default_address="q").sends.send(anonymous, world.answers.of("default"))
    world.session().sends.send(anonymous, world.answers.of("none"))
    assert world.answers.error("default") is None
    assert isinstance(world.answers.error("none"), AddressNotFound)
    assert queue.message_count == 1


def test_unknown_producers_are_tolerated() -> None:
    session = World().session()
    session.sends.create_producer(1, "q")
    session.sends.create_producer(2, None)
    assert session.sends.producers[1].address == "q"
    session.sends.remove_producer(1)
    session.sends.remove_producer(77)
    assert list(session.sends.producers) == [2]


def test_metadata_unique_and_limited() -> None:
    world = World()
    first, second = world.session(), world.session()
    first.state.add_unique_metadata("jms-client-id", "me")
    first.state.add_unique_metadata("jms-client-id", "me")
    with pytest.raises(DuplicateMetadata, match="me"):
        second.state.add_unique_metadata("jms-client-id", "me")
    first.close(failed=True)
    second.state.add_unique_metadata("jms-client-id", "me")
    for number in range(METADATA_PER_SESSION_MAX - 1):
        second.state.add_metadata(f"k{number}", "v")
    with pytest.raises(LimitExceeded):
        second.state.add_metadata("one too many", "v")
    second.state.add_metadata("k0", "changed")
    assert second.state.metadata["k0"] == "changed"


def test_expired_at_the_client_goes_to_expiry() -> None:
    world = World({"#": {"expiry_address": "EXP"}})
    expired = world.queue("EXP")
    session = loaded(world, *"ab")
    queue = world.office.directory.find_queue("q")
    assert queue is not None
    session.settle(0, ids(session)[0], EXPIRED)
    assert (queue.messages_expired, queue.delivering_count, queue.message_count) == (1, 1, 1)
    assert expired.message_count == 1
    session.settle(0, 999, EXPIRED)
    assert isinstance(callback_of(session).errors[-1], IllegalState)


def test_closing_gives_back_and_frees_everything() -> None:
    world = World()
    session = loaded(world, *"abc")
    queue = world.office.queues()[0]
    session.sends.send(text("d"))
    assert len(world.registry) == 2
    session.close(failed=False)
    session.close(failed=False)
    assert (queue.message_count, queue.delivering_count, queue.consumers.count) == (4, 0, 0)
    assert world.registry.get(session.state.name) is None
    with pytest.raises(ObjectClosed):
        session.consumers.create(1, "q")
    answers = Answers()
    session.sends.send(text("late"), answers.of("late"))
    assert isinstance(answers.error("late"), ObjectClosed)


@pytest.mark.parametrize(("failed", "count"), [(False, 1), (True, 2)])
def test_delivery_counts_after_the_end_of_a_connection(failed: bool, count: int) -> None:
    world = World()
    loaded(world, "a").close(failed=failed)
    assert callback_of(loaded(world)).counts() == [count]


def test_a_batch_that_is_not_plain_is_offered_to_the_short_way_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.queue()
    session = world.session()
    session.sends.send(text("permitted"))
    asked: list[int] = []

    def take(batch: BatchSends, taking: Taking, row: int) -> tuple[int, int]:
        asked.append(taking.sends.count - row)
        return 0, 0

    monkeypatch.setattr(BatchSends, "take", take)
    session.sends.send_batch(sends_of([text(str(number)) for number in range(50)]), 0, None)
    world.sync()
    assert asked == [50]
    assert world.office.directory.queues["q"].message_count == 51
