"""Transactions: all or nothing, delivery counts (artemis-core s. 6.4), duplicate ids."""

from __future__ import annotations

import pytest

from support.routing import FakeCallback, World, callback_of, text
from understudy.errors import (
    AddressNotFound,
    BrokerError,
    DuplicateIdRejected,
    IllegalState,
    MachineError,
    RollbackOnly,
    TransactionRolledBack,
)
from understudy.message import DUPLICATE_ID
from understudy.session.outcomes import ACCEPTED
from understudy.session.session import ServerSession
from understudy.session.transaction import Event, State, Transaction


def reader(world: World, **options: object) -> ServerSession:
    session = world.session(transacted=True, **options)  # type: ignore[arg-type]
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    world.turn()
    return session


def filled(*names: str, automatic: bool = True) -> World:
    world = World(automatic=automatic)
    world.queue()
    producer = world.session()
    for name in names:
        producer.sends.send(text(name))
    world.store.sync()
    return world


def ids(session: ServerSession) -> list[int]:
    return [message.message_id for _, message, _ in callback_of(session).delivered]


def test_sends_become_visible_together_when_the_commit_is_durable() -> None:
    world = filled(automatic=False)
    seen: FakeCallback = callback_of(reader(world))
    session = world.session(transacted=True)
    session.sends.send(text("1"), world.answers.of("1"))
    session.sends.send(text("2", durable=False), world.answers.of("2"))
    world.sync()
    assert seen.bodies() == []
    assert world.answers.names == ["1", "2"], "taken into the transaction, not visible"
    session.commit(world.answers.of("commit"))
    world.turn()
    assert seen.bodies() == []
    assert "commit" not in world.answers.names
    world.sync()
    assert seen.bodies() == [b"1", b"2"]
    assert world.answers.names == ["1", "2", "commit"]


def test_rolled_back_sends_never_were() -> None:
    world = filled()
    seen = callback_of(reader(world))
    session = world.session(transacted=True)
    session.sends.send(text("1"))
    session.rollback(done=world.answers.of("rollback"))
    session.sends.send(text("2"))
    session.commit()
    world.turn()
    assert seen.bodies() == [b"2"]
    assert world.answers.error("rollback") is None
    queue = world.office.queues()[0]
    assert len(world.store.survivors(queue)) == 1
    assert queue.incoming == 0
    assert queue.address.message_count == 1


def test_acknowledgements_count_with_the_commit() -> None:
    world = filled(*"abc")
    queue = world.office.queues()[0]
    session = reader(world)
    session.acknowledge(0, ids(session)[1])
    assert (queue.message_count, queue.delivering_count, len(world.store.survivors(queue))) == (3, 3, 3)
    session.commit()
    assert (queue.message_count, queue.delivering_count, len(world.store.survivors(queue))) == (1, 1, 1)


def test_rollback_keeps_the_count_of_the_acknowledged_and_lowers_the_rest() -> None:
    world = filled(*"abcd")
    session = reader(world)
    session.acknowledge(0, ids(session)[1])
    callback_of(session).delivered.clear()
    session.rollback()
    world.turn()
    assert callback_of(session).bodies() == [b"a", b"b", b"c", b"d"]
    assert callback_of(session).counts() == [2, 2, 1, 1]


def test_recover_keeps_the_count_of_the_first_outstanding_one() -> None:
    world = filled(*"abc")
    session = reader(world)
    session.acknowledge(0, ids(session)[0])
    session.commit()
    callback_of(session).delivered.clear()
    session.rollback(consider_last_message_as_delivered=True)
    world.turn()
    assert callback_of(session).bodies() == [b"b", b"c"]
    assert callback_of(session).counts() == [2, 1]


def test_a_transaction_of_sends_and_acknowledgements_survives_whole_or_not_at_all() -> None:
    world = filled("in")
    out = world.queue("out")
    session = reader(world)
    session.acknowledge(0, ids(session)[0])
    session.sends.send(text("out", "out"))
    queue = world.office.directory.find_queue("q")
    assert queue is not None
    assert (len(world.store.survivors(queue)), len(world.store.survivors(out))) == (1, 0)
    session.commit()
    assert (len(world.store.survivors(queue)), len(world.store.survivors(out))) == (0, 1)


def test_a_failed_request_without_answer_makes_commit_fail_and_roll_back() -> None:
    world = filled("a")
    session = reader(world)
    session.sends.send(text("1"))
    session.acknowledge(0, ids(session)[0])
    session.sends.send(text("m", "::missing"))
    session.commit(world.answers.of("commit"))
    assert isinstance(world.answers.error("commit"), AddressNotFound)
    queue = world.office.queues()[0]
    assert len(world.store.survivors(queue)) == 1
    callback_of(session).delivered.clear()
    world.turn()
    assert callback_of(session).counts() == [2]
    session.commit(world.answers.of("next"))
    assert world.answers.error("next") is None, "a new transaction began"


def test_an_unknown_acknowledgement_marks_it_too() -> None:
    world = filled()
    session = reader(world)
    session.acknowledge(0, 4711, world.answers.of("ack"))
    session.commit(world.answers.of("commit"))
    assert isinstance(world.answers.error("ack"), IllegalState)
    assert isinstance(world.answers.error("commit"), IllegalState)


def test_a_duplicate_inside_a_transaction_fails_its_commit() -> None:
    world = filled()
    world.session().sends.send(text("original", properties={DUPLICATE_ID: "x"}))
    session = world.session(transacted=True)
    session.sends.send(text("new"))
    session.sends.send(text("again", properties={DUPLICATE_ID: "x"}))
    session.commit(world.answers.of("commit"))
    assert isinstance(world.answers.error("commit"), DuplicateIdRejected)
    assert world.office.queues()[0].message_count == 1


def test_ids_count_from_the_commit_on_and_the_first_to_commit_wins() -> None:
    world = filled()
    first, second = world.session(transacted=True), world.session(transacted=True)
    first.sends.send(text("1", properties={DUPLICATE_ID: "x"}))
    second.sends.send(text("2", properties={DUPLICATE_ID: "x"}))
    second.commit(world.answers.of("second"))
    first.commit(world.answers.of("first"))
    assert world.answers.error("second") is None
    assert isinstance(world.answers.error("first"), DuplicateIdRejected)
    rolled_back = world.session(transacted=True)
    rolled_back.sends.send(text("3", properties={DUPLICATE_ID: "y"}))
    rolled_back.rollback()
    world.session().sends.send(text("3", properties={DUPLICATE_ID: "y"}))
    assert world.office.queues()[0].message_count == 2


def test_one_id_twice_in_one_transaction_is_a_duplicate() -> None:
    world = filled()
    session = world.session(transacted=True)
    for _ in range(2):
        session.sends.send(text("1", properties={DUPLICATE_ID: "x"}))
    session.commit(world.answers.of("commit"))
    assert isinstance(world.answers.error("commit"), DuplicateIdRejected)


def test_closing_rolls_back() -> None:
    for failed, count in ((False, 2), (True, 2)):
        world = filled("a")
        session = reader(world)
        session.acknowledge(0, ids(session)[0])
        session.sends.send(text("lost"))
        session.close(failed=failed)
        assert callback_of(reader(world)).counts() == [count]
        assert world.office.queues()[0].message_count == 1


def test_acknowledgements_of_a_closed_consumer_stay_in_the_transaction() -> None:
    world = filled(*"ab")
    session = reader(world)
    session.acknowledge(0, ids(session)[0])
    session.consumers.close(0)
    queue = world.office.queues()[0]
    assert (queue.delivering_count, len(queue.pending)) == (1, 1)
    session.commit()
    assert (queue.message_count, queue.delivering_count) == (1, 0)


def test_a_queue_deleted_under_a_transaction() -> None:
    for outcome in ("commit", "rollback"):
        world = filled(*"ab")
        queue = world.office.queues()[0]
        session = reader(world)
        session.acknowledge(0, ids(session)[0])
        session.sends.send(text("late"))
        world.office.directory.delete_queue("q", disconnect=True)
        getattr(session, outcome)(done=world.answers.of(outcome))
        assert world.answers.error(outcome) is None
        assert (queue.message_count, queue.delivering_count, queue.incoming) == (0, 0, 0)
        assert world.office.memory.held_bytes == 0


@pytest.mark.parametrize("single", [False, True])
def test_an_acknowledgement_for_a_consumer_that_the_broker_has_closed_rolls_the_transaction_back(single: bool) -> None:
    world = filled(*"ab")
    session = reader(world)
    first, second = ids(session)
    session.acknowledge(0, first)
    session.consumers.by_id[0].disconnect()
    assert world.office.queues()[0].delivering_count == 1, "the first, which the transaction has"
    if single:
        session.settle(0, second, ACCEPTED)
    else:
        session.acknowledge(0, second)
    session.commit(world.answers.of("commit"))
    assert isinstance(world.answers.error("commit"), TransactionRolledBack)
    assert (world.office.queues()[0].message_count, world.office.queues()[0].delivering_count) == (2, 0)


def test_each_message_for_a_missing_address_is_refused_in_a_transaction_that_has_failed() -> None:
    """Artemis does the same, with error 106; a message that can be routed is answered, and dropped with the others."""
    world = World({"missing": {"auto_create_addresses": False}})
    world.queue("q")
    session = world.session(transacted=True)
    for name, address in (("first", "missing"), ("routed", "q"), ("second", "missing")):
        session.sends.send(text("m", address), world.answers.of(name))
    assert isinstance(world.answers.error("first"), AddressNotFound)
    assert world.answers.error("routed") is None
    assert isinstance(world.answers.error("second"), AddressNotFound)


def test_an_empty_commit_writes_nothing_and_waits_only_for_its_session() -> None:
    world = filled(automatic=False)
    session = world.session(transacted=True)
    before = world.store.last_sequence
    session.commit(world.answers.of("commit"))
    assert world.store.last_sequence == before
    assert world.answers.names == ["commit"]
    world.session().commit(world.answers.of("not transacted"))
    assert world.answers.names[-1] == "not transacted"


def test_the_machine_refuses_events_after_the_end() -> None:
    transaction = Transaction(World().office)
    assert transaction.empty
    transaction.roll_back()
    for event in Event:
        with pytest.raises(MachineError):
            transaction.fire(event)
    failed = Transaction(World().office)
    failed.fire(Event.FAIL)
    assert failed.rollback_only
    with pytest.raises(RollbackOnly):
        failed.commit(World().session().state.order, None)
    assert failed.state is State.ROLLBACK_ONLY


def commits_answered(world: World, session: ServerSession, *message_ids: int) -> list[tuple[int, BrokerError | None]]:
    """Acknowledge up to each of these messages, each time with a commit. Returns the answers, later ones included."""
    answered: list[tuple[int, BrokerError | None]] = []
    session.acknowledge_and_commit(
        0, message_ids, range(len(message_ids)), lambda ids, error: answered.append((len(ids), error))
    )
    return answered


@pytest.mark.parametrize("durable", [True, False])
def test_acknowledgements_with_a_commit_each_are_one_record(durable: bool) -> None:
    world = World(automatic=False)
    queue = world.queue()
    producer = world.session()
    for name in "abcd":
        producer.sends.send(text(name, durable=durable))
    world.sync()
    session = reader(world)
    first, _, third, last = ids(session)
    before = world.store.last_sequence
    answered = commits_answered(world, session, first, third)
    assert world.store.last_sequence == before + durable
    assert (queue.message_count, queue.delivering_count, queue.messages_acknowledged) == (1, 1, 3)
    assert answered == ([] if durable else [(2, None)]), "only durable ones are answered"
    world.sync()
    assert answered == [(2, None)]
    assert list(world.store.survivors(queue)) == ([last] if durable else [])
    session.rollback()
    assert (queue.delivering_count, len(queue.pending)) == (0, 1), "the last one is in no transaction"


def test_commits_of_acknowledgements_are_answered_after_earlier_requests() -> None:
    world = filled(*"ab", automatic=False)
    session = reader(world)
    session.sends.send(text("c"))
    session.commit(world.answers.of("commit"))
    answered = commits_answered(world, session, ids(session)[0])
    assert (world.answers.names, answered) == ([], [])
    world.sync()
    assert (world.answers.names, answered) == (["commit"], [(1, None)])


def test_an_open_transaction_is_committed_with_the_first_of_several_acknowledgements() -> None:
    world = filled(*"abc")
    out = world.queue("out")
    session = reader(world)
    session.sends.send(text("out", "out"))
    assert commits_answered(world, session, *ids(session)) == [(1, None)] * 3
    assert (out.message_count, world.office.queues()[0].message_count) == (1, 0)


def test_a_commit_of_an_unknown_acknowledgement_fails_alone() -> None:
    world = filled(*"abc")
    queue = world.office.queues()[0]
    session = reader(world)
    first, second, third = ids(session)
    (good, failed, again) = commits_answered(world, session, second, first, third)
    assert (good, again) == ((1, None), (1, None))
    assert failed[0] == 1
    assert isinstance(failed[1], IllegalState)
    assert (queue.message_count, queue.delivering_count) == (0, 0)


@pytest.mark.parametrize("known", [True, False])
def test_commits_of_sessions_without_transactions_or_consumers(known: bool) -> None:
    """They do the same as single ones: without a transaction the commits do nothing, without a consumer they fail."""
    world = filled(*"ab")
    queue = world.office.queues()[0]
    session = world.session() if known else world.session(transacted=True)
    if known:
        session.consumers.create(0, "q")
        session.consumers.receive_credits(0, -1)
        world.turn()
    answered = commits_answered(world, session, *(ids(session) if known else (1, 2)))
    errors = [type(error) for _, error in answered]
    assert errors == [type(None) if known else TransactionRolledBack] * 2
    assert queue.message_count == (0 if known else 2)
