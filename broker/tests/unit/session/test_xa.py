"""XA branches: the requests that each state allows, what a rollback gives back, ages, and decisions of an operator."""

from __future__ import annotations

from functools import partial

import pytest

from support.lost_fence import replace_node
from support.routing import World, callback_of, text
from support.xa import OTHER, XID, aging, commit, count, refused, xa_session
from understudy.errors import MachineError, ObjectClosed, StoreError, XaCode, XaError
from understudy.ids import Xid
from understudy.machine import To
from understudy.message import DUPLICATE_ID, ROUTING_TYPE
from understudy.session.branch import Branch, Event, Kind, State, decode_name, encode_name
from understudy.session.resource_manager import ResourceManager
from understudy.session.session import ServerSession
from understudy.session.transaction import Transaction
from understudy.terms import RoutingType


def test_two_phases() -> None:
    world = World()
    session = xa_session(world)
    session.branches.start(XID)
    session.sends.send(text("a"))
    session.branches.end(XID, failed=False)
    session.branches.prepare(XID)
    assert count(world) == 0
    assert session.branches.in_doubt() == (XID,)
    commit(world.session(xa=True))
    assert count(world) == 1
    assert session.branches.in_doubt() == ()
    refused(XaCode.UNKNOWN_XID, lambda: commit(session))


def test_one_phase_and_work_outside_a_branch() -> None:
    world = World()
    session = xa_session(world)
    session.sends.send(text("outside"))
    assert count(world) == 1
    session.branches.start(XID)
    session.sends.send(text("inside"))
    session.commit(world.answers.of("a local commit means nothing here"))
    assert count(world) == 1
    session.branches.end(XID, failed=False)
    commit(session, one_phase=True)
    assert count(world) == 2


def test_rolling_back_gives_everything_back_in_order() -> None:
    world = World()
    session = xa_session(world)
    for name in "abc":
        world.session().sends.send(text(name))
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    world.turn()
    session.branches.start(XID)
    session.acknowledge(0, callback_of(session).delivered[1][1].message_id)
    session.sends.send(text("never"))
    session.branches.end(XID, failed=False)
    session.branches.prepare(XID)
    session.consumers.stop()
    session.branches.roll_back(XID)
    session.consumers.start()
    world.turn()
    assert callback_of(session).bodies() == [b"a", b"b", b"c"] * 2
    assert callback_of(session).counts()[3:] == [2, 2, 1]


def test_a_branch_is_shared_by_sessions() -> None:
    world = World()
    one, two = xa_session(world), xa_session(world)
    one.branches.start(XID)
    refused(XaCode.DUPLICATE_XID, lambda: two.branches.start(XID))
    two.branches.join(XID)
    one.sends.send(text("a"))
    two.sends.send(text("b"))
    one.branches.end(XID, failed=False)
    refused(XaCode.PROTOCOL, lambda: one.branches.prepare(XID))
    two.branches.end(XID, failed=False)
    one.branches.prepare(XID)
    refused(XaCode.PROTOCOL, lambda: two.branches.join(XID))
    refused(XaCode.PROTOCOL, lambda: commit(one, one_phase=True))
    commit(two)
    assert count(world) == 2


def test_a_branch_that_another_one_replaces_is_rolled_back() -> None:
    """XaTimeoutTest.testChangeXID of Artemis expects the same."""
    world = World()
    session = xa_session(world)
    session.branches.start(XID)
    session.sends.send(text("of the first"))
    session.branches.start(OTHER)
    session.sends.send(text("of the second"))
    refused(XaCode.UNKNOWN_XID, lambda: session.branches.roll_back(XID))
    session.branches.end(OTHER, failed=False)
    commit(session, one_phase=True, xid=OTHER)
    assert count(world) == 1


def test_suspending() -> None:
    world = World()
    session = xa_session(world)
    refused(XaCode.PROTOCOL, session.branches.suspend)
    session.branches.start(XID)
    refused(XaCode.PROTOCOL, lambda: session.branches.resume(XID))
    session.branches.suspend()
    session.sends.send(text("outside"))
    assert count(world) == 1
    for call in (session.branches.prepare, session.branches.join, session.branches.roll_back):
        refused(XaCode.PROTOCOL, lambda call=call: call(XID))  # type: ignore[misc]
    session.branches.start(OTHER)
    session.branches.end(OTHER, failed=False)
    session.branches.resume(XID)
    session.sends.send(text("inside"))
    session.branches.suspend()
    session.branches.end(XID, failed=False)
    refused(XaCode.PROTOCOL, lambda: commit(session))
    commit(session, one_phase=True)
    assert count(world) == 2


def test_unknown_names_and_wrong_sessions() -> None:
    world = World()
    session = xa_session(world)
    requests = session.branches
    for call in (requests.join, requests.resume, requests.prepare, requests.roll_back, requests.forget):
        refused(XaCode.UNKNOWN_XID, lambda call=call: call(XID))  # type: ignore[misc]
    refused(XaCode.UNKNOWN_XID, lambda: requests.end(XID, failed=False))
    refused(XaCode.PROTOCOL, lambda: world.session().branches.start(XID))
    transacted = world.session(auto_commit_sends=False)
    refused(XaCode.PROTOCOL, lambda: transacted.branches.failed(XID))
    transacted.sends.send(text("kept"))
    transacted.commit()
    assert count(world) == 1


def test_a_node_that_was_replaced_does_not_say_that_there_is_no_branch() -> None:
    """The node that has taken over may have prepared it meanwhile."""
    world = World()
    requests = xa_session(world).branches
    replace_node(world.office)
    for call in (requests.prepare, requests.roll_back, requests.forget):
        refused(XaCode.RESOURCE_MANAGER_FAILED, partial(call, XID))
    refused(XaCode.RESOURCE_MANAGER_FAILED, requests.in_doubt)


def test_a_promise_asked_for_again_holds() -> None:
    """A client whose answer got lost with its connection asks once more."""
    world = World()
    session = xa_session(world)
    session.branches.start(XID)
    session.sends.send(text("a"))
    session.branches.end(XID, failed=False)
    for _ in range(2):
        session.branches.prepare(XID)
    assert session.branches.in_doubt() == (XID,)
    commit(session)
    assert count(world) == 1


def test_a_part_may_be_ended_more_than_once_until_the_promise() -> None:
    world = World()
    session, other = xa_session(world), xa_session(world)
    session.branches.start(XID)
    other.branches.end(XID, failed=False)
    assert session.branches.branch is not None, "it is not the other's to end"
    for _ in range(2):
        session.branches.end(XID, failed=False)
    session.branches.prepare(XID)
    refused(XaCode.PROTOCOL, lambda: session.branches.end(XID, failed=False))


def test_rolling_back_an_unknown_branch_gives_back_what_the_client_dropped() -> None:
    """The branch may have taken too long; the client has emptied its buffers either way."""
    world = World()
    session = xa_session(world)
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    session.consumers.start()
    session.sends.send(text("a"))
    world.turn()
    refused(XaCode.UNKNOWN_XID, lambda: session.branches.roll_back(XID))
    world.turn()
    assert callback_of(session).bodies() == [b"a", b"a"]


def test_what_failed_cannot_commit() -> None:
    world = World()
    session = xa_session(world)
    session.branches.start(XID)
    session.sends.send(text("a"))
    session.branches.end(XID, failed=True)
    refused(XaCode.ROLLED_BACK, lambda: session.branches.prepare(XID))
    refused(XaCode.ROLLED_BACK, lambda: commit(session))
    session.branches.roll_back(XID)
    session.branches.failed(OTHER)
    refused(XaCode.PROTOCOL, lambda: commit(session, one_phase=True, xid=OTHER))
    session.branches.end(OTHER, failed=False)
    refused(XaCode.ROLLED_BACK, lambda: commit(session, one_phase=True, xid=OTHER))
    assert len(world.resources) == 0


def test_a_duplicate_id_is_found_before_the_promise() -> None:
    world = World()
    session = xa_session(world)
    session.branches.start(XID)
    session.sends.send(text("a", properties={DUPLICATE_ID: "x"}))
    world.session().sends.send(text("b", properties={DUPLICATE_ID: "x"}))
    session.branches.end(XID, failed=False)
    refused(XaCode.ROLLED_BACK, lambda: session.branches.prepare(XID))
    session.branches.start(XID)
    session.sends.send(text("a", properties={DUPLICATE_ID: "y"}))
    session.branches.end(XID, failed=False)
    session.branches.prepare(XID)
    world.session().sends.send(text("b", properties={DUPLICATE_ID: "y"}))
    commit(session)
    assert count(world) == 3, "a promise is kept even so"


def test_a_branch_that_could_not_be_prepared_is_known_until_its_rollback() -> None:
    world = World()
    session = xa_session(world)
    world.session().sends.send(text("b", properties={DUPLICATE_ID: "x"}))
    session.branches.start(XID)
    session.sends.send(text("a", properties={DUPLICATE_ID: "x"}))
    session.branches.end(XID, failed=False)
    for _ in range(2):
        with pytest.raises(XaError, match="duplicate id") as told:
            session.branches.prepare(XID)
        assert told.value.xa_code == XaCode.ROLLED_BACK
    assert session.branches.in_doubt() == ()
    session.branches.roll_back(XID)
    refused(XaCode.UNKNOWN_XID, lambda: session.branches.roll_back(XID))
    assert count(world) == 1
    assert len(world.resources) == 0


def test_a_branch_that_could_not_be_prepared_is_forgotten_after_its_timeout() -> None:
    world = World()
    aging(world)
    session = xa_session(world)
    session.branches.start(XID)
    session.branches.end(XID, failed=True)
    refused(XaCode.ROLLED_BACK, lambda: session.branches.prepare(XID))
    world.clock.advance(20_000)
    assert len(world.resources) == 0


def test_a_prepared_branch_cannot_be_joined() -> None:
    world = World()
    session = xa_session(world)
    session.branches.start(XID)
    session.sends.send(text("a"))
    session.branches.end(XID, failed=False)
    session.branches.prepare(XID)
    refused(XaCode.PROTOCOL, lambda: session.branches.join(XID))
    commit(session)
    assert count(world) == 1


def test_answers_wait_for_the_log() -> None:
    world = World(automatic=False)
    session = xa_session(world)
    world.sync()
    session.branches.start(XID)
    session.sends.send(text("a"))
    session.branches.end(XID, failed=False)
    session.branches.prepare(XID)
    session.state.when_durable(world.answers.of("prepared"), None)
    assert world.answers.names == []
    world.sync()
    session.branches.commit(XID, one_phase=False, done=world.answers.of("committed"))
    assert world.answers.names == ["prepared"]
    assert count(world) == 0
    world.sync()
    assert world.answers.names == ["prepared", "committed"]
    assert count(world) == 1


def test_a_session_that_closes_leaves_its_branch() -> None:
    world = World()
    session = xa_session(world)
    session.branches.start(XID)
    session.sends.send(text("a"))
    session.close(failed=False)
    commit(xa_session(world), one_phase=True)
    assert count(world) == 1


def test_an_old_branch_is_rolled_back() -> None:
    world = World()
    registry = aging(world)
    session = xa_session(world)
    session.branches.start(XID)
    session.sends.send(text("a"))
    session.branches.end(XID, failed=False)
    session.branches.start(OTHER)
    session.branches.end(OTHER, failed=False)
    session.branches.prepare(OTHER)
    world.clock.advance(9_000)
    assert len(registry) == 2
    world.clock.advance(2_000)
    refused(XaCode.UNKNOWN_XID, lambda: session.branches.prepare(XID))
    assert session.branches.in_doubt() == (OTHER,), "a prepared branch waits without limit"
    assert all(each.prepared for each in world.store.found().transactions.values())


def test_an_old_branch_in_which_a_session_works() -> None:
    world = World()
    aging(world)
    session = xa_session(world)
    world.session().sends.send(text("held"))
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    world.turn()
    session.branches.start(XID)
    session.acknowledge(0, callback_of(session).delivered[0][1].message_id)
    world.clock.advance(11_000)
    world.turn()
    assert callback_of(session).counts() == [1, 2], "its message is delivered again"
    session.sends.send(text("too late"), world.answers.of("late"))
    refused(XaCode.ROLLED_BACK_TIMEOUT, lambda: session.branches.end(XID, failed=False))
    refused(XaCode.UNKNOWN_XID, lambda: session.branches.prepare(XID))
    assert count(world) == 1
    session.sends.send(text("outside"))
    assert count(world) == 2


def test_timeouts_of_a_session() -> None:
    world = World()
    registry = aging(world)
    session = xa_session(world)
    assert session.branches.timeout_s == 10
    assert session.branches.set_timeout(20)
    assert not session.branches.set_timeout(-1)
    session.branches.start(XID)
    session.branches.end(XID, failed=False)
    world.clock.advance(15_000)
    assert len(registry) == 1
    world.clock.advance(6_000)
    assert len(registry) == 0
    assert session.branches.set_timeout(0)
    assert session.branches.timeout_s == 10
    registry.close()


# heuristic outcomes


@pytest.mark.parametrize(
    ("commits", "code", "messages"), [(True, XaCode.HEURISTIC_COMMIT, 1), (False, XaCode.HEURISTIC_ROLLBACK, 0)]
)
def test_an_operator_decides(commits: bool, code: XaCode, messages: int) -> None:
    world = World()
    session = xa_session(world)
    session.branches.start(XID)
    session.sends.send(text("a"))
    refused(XaCode.PROTOCOL, lambda: world.resources.decide(XID, commit=commits))
    session.branches.end(XID, failed=False)
    session.branches.prepare(XID)
    world.resources.decide(XID, commit=commits)
    assert count(world) == messages
    assert session.branches.in_doubt() == (XID,), "its manager must still learn of it"
    refused(code, lambda: commit(session))
    refused(code, lambda: session.branches.roll_back(XID))
    refused(XaCode.DUPLICATE_XID, lambda: session.branches.start(XID))
    kind = Kind.HEURISTICALLY_COMMITTED if commits else Kind.HEURISTICALLY_ROLLED_BACK
    assert world.resources.heuristic(kind) == [XID]
    session.branches.forget(XID)
    assert session.branches.in_doubt() == ()
    assert world.store.found().transactions == {}
    refused(XaCode.UNKNOWN_XID, lambda: commit(session))


# branches that a scale-down moved


def prepared(session: ServerSession) -> None:
    """A message was sent in a branch, which is prepared."""
    session.branches.start(XID)
    session.sends.send(text("a"))
    session.branches.end(XID, failed=False)
    session.branches.prepare(XID)


def test_a_branch_that_was_moved_is_not_unknown() -> None:
    """UNKNOWN_XID would tell its manager that it is decided."""
    world = World()
    session = xa_session(world)
    prepared(session)
    world.resources.will_move("another-node")
    assert world.resources.may_be_at(XID, "another-node")
    world.resources.hand_over(next(world.resources.prepared()))
    assert session.branches.in_doubt() == ()
    refused(XaCode.RESOURCE_MANAGER_FAILED, lambda: commit(session))
    refused(XaCode.RESOURCE_MANAGER_FAILED, lambda: session.branches.roll_back(XID))
    restored = ResourceManager(world.office, world.clock, world.clock)
    restored.restore(world.store.found())
    with pytest.raises(XaError, match="moved to the node another-node"):
        restored.get(XID)
    session.branches.failed(XID)
    session.branches.roll_back_work()
    refused(XaCode.RESOURCE_MANAGER_FAILED, lambda: commit(session))
    prepared(session)
    commit(session)
    assert count(world) == 1
    refused(XaCode.UNKNOWN_XID, lambda: commit(session))
    assert not world.store.found().settings


def test_a_moved_branch_can_be_forgotten_and_their_number_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.session.branch.XA_BRANCHES_MAX", 2)
    world = World()
    session = xa_session(world)
    xids = [Xid(1, b"g", bytes([number])) for number in range(3)]
    for xid in xids:
        session.branches.start(xid)
        session.branches.end(xid, failed=False)
        session.branches.prepare(xid)
        world.resources.will_move("another-node")
        world.resources.hand_over(next(world.resources.prepared()))
    assert len(world.store.found().settings) == 2
    refused(XaCode.UNKNOWN_XID, lambda: session.branches.commit(xids[0], one_phase=False, done=None))
    session.branches.forget(xids[1])
    refused(XaCode.UNKNOWN_XID, lambda: session.branches.commit(xids[1], one_phase=False, done=None))
    refused(XaCode.RESOURCE_MANAGER_FAILED, lambda: session.branches.commit(xids[2], one_phase=False, done=None))


def test_a_branch_that_stays_after_all_is_decided_here() -> None:
    """The node gave up its scale-down."""
    world = World()
    session = xa_session(world)
    prepared(session)
    world.resources.will_move("another-node")
    commit(session)
    refused(XaCode.UNKNOWN_XID, lambda: commit(session))
    assert not world.store.found().settings


# parts


@pytest.mark.parametrize("xid", [XID, Xid(-1, b"", b""), Xid(2**31 - 1, b"g" * 64, b"\0" * 64)])
def test_names_in_the_log(xid: Xid) -> None:
    for kind in Kind:
        assert decode_name(encode_name(kind, xid)) == (kind, xid)


@pytest.mark.parametrize("name", [b"", b"\0" * 6, b"\7" + encode_name(Kind.BRANCH, XID)[1:], b"x" * 20])
def test_names_that_no_broker_wrote(name: bytes) -> None:
    with pytest.raises(StoreError):
        decode_name(name)


def test_every_state_takes_every_event_or_refuses_it() -> None:
    for state in State:
        for event in Event:
            branch = Branch(XID, Transaction(World().office), expires_ms=0)
            branch._state = state
            if isinstance(Branch.TABLE[state, event], To):
                branch.take(event)
                continue
            refused(XaCode.PROTOCOL, lambda branch=branch, event=event: branch.take(event))  # type: ignore[misc]
            with pytest.raises(MachineError):
                branch.fire(event)


# auto-deletion


@pytest.mark.parametrize("what", ["a message", "an acknowledgement"])
@pytest.mark.parametrize("committed", [True, False], ids=["commit", "roll back"])
def test_a_queue_made_on_demand_stays_while_a_branch_in_doubt_needs_it(what: str, committed: bool) -> None:
    """Auto-deletion is for queues without messages (manual, "Automatic creation and deletion"): an in-doubt message may
    still be one, so it counts until the branch is decided, and the queue goes only then.
    """
    world = World(address_queue_scan_period_ms=1_000)
    asked = {ROUTING_TYPE: int(RoutingType.ANYCAST)}
    producer = world.session()
    producer.sends.send(text("m", "made", properties=asked))
    session = world.session(xa=True, auto_commit_sends=False, auto_commit_acks=False)
    session.consumers.create(0, "made")
    session.consumers.receive_credits(0, -1)
    world.turn()
    first = callback_of(session).delivered[0][1].message_id
    if what == "a message":
        reader = world.session()
        session.consumers.close(0)
        reader.consumers.create(0, "made")
        reader.consumers.receive_credits(0, -1)
        world.turn()
        reader.acknowledge(0, first)
        reader.close(failed=False)
    session.branches.start(XID)
    if what == "a message":
        session.sends.send(text("in doubt", "made", properties=asked))
    else:
        session.acknowledge(0, first)
    session.branches.end(XID, failed=False)
    session.branches.prepare(XID)
    session.close(failed=False)
    world.clock.advance(10_000)
    queue = world.office.directory.find_queue("made")
    assert queue is not None
    decider = xa_session(world)
    if committed:
        commit(decider)
    else:
        decider.branches.roll_back(XID)
    stays = committed is (what == "a message")
    assert queue.message_count == (1 if stays else 0)
    world.clock.advance(10_000)
    assert (world.office.directory.find_queue("made") is queue) is stays


@pytest.mark.parametrize("ends", [True, False])
def test_work_in_a_branch_that_timed_out_is_undone(ends: bool) -> None:
    """Work of the session after the rollback is undone, too, when it ends its part or closes."""
    world = World()
    aging(world)
    session = xa_session(world)
    world.session().sends.send(text("held"))
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    session.branches.start(XID)
    world.clock.advance(11_000)
    world.turn()
    session.acknowledge(0, callback_of(session).delivered[0][1].message_id)
    session.sends.send(text("too late"))
    if ends:
        refused(XaCode.ROLLED_BACK_TIMEOUT, lambda: session.branches.end(XID, failed=False))
    session.close(failed=True)
    (queue,) = world.office.queues()
    assert (queue.message_count, queue.delivering_count, queue.incoming, len(queue.pending)) == (1, 0, 0, 1)
    assert queue.address.message_count == 1
    assert not world.store.found().transactions
    assert len(world.resources) == 0


def test_a_closed_session_begins_nothing() -> None:
    world = World()
    session = xa_session(world)
    session.close(failed=False)
    with pytest.raises(ObjectClosed):
        session.branches.start(XID)
    assert len(world.resources) == 0


@pytest.mark.parametrize("one_phase", [True, False])
def test_a_branch_in_which_a_send_was_refused_is_rolled_back_and_says_so(one_phase: bool) -> None:
    """Whatever the reason was: a code of a resource manager that does not know would leave it to its timeout."""
    world = World({"#": {"address_full_policy": "FAIL", "max_size_bytes": 1}})
    session = xa_session(world)
    session.branches.start(XID)
    session.sends.send(text("a"))
    session.sends.send(text("does not fit"))
    session.branches.end(XID, failed=False)
    if one_phase:
        refused(XaCode.ROLLED_BACK, lambda: commit(session, one_phase=True))
    else:
        refused(XaCode.ROLLED_BACK, lambda: session.branches.prepare(XID))
        session.branches.roll_back(XID)
    assert len(world.resources) == 0
    assert world.office.directory.addresses["q"].message_count == 0


def test_a_store_that_failed_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    session = xa_session(world)
    session.branches.start(XID)
    session.sends.send(text("a"))
    session.branches.end(XID, failed=False)

    def fails(*_: object) -> int:
        raise StoreError("gone")

    monkeypatch.setattr(world.store, "store_prepare", fails)
    with pytest.raises(StoreError):
        session.branches.prepare(XID)
    assert len(world.resources) == 1
