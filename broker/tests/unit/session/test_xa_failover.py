"""XA branches of clients that lost their connection, or failed over to another node."""

from __future__ import annotations

import pytest

from support.routing import World, callback_of, text
from support.xa import OTHER, XID, aging, commit, count, refused, xa_session
from understudy.errors import XaCode
from understudy.session.session import ServerSession


@pytest.mark.parametrize("ended", [False, True], ids=["working in it", "ended"])
def test_a_lost_connection_rolls_back_unprepared_branches(ended: bool) -> None:
    """Artemis: requests of the client may be missing, and no other session knows that the branch is to be decided."""
    world, session = received_in_branch()
    if ended:
        session.branches.end(XID, failed=False)
    session.close(failed=True)
    reader = consuming(world)
    assert callback_of(reader).bodies() == [b"a"], "redelivered at once, not after the timeout"
    refused(XaCode.UNKNOWN_XID, lambda: commit(xa_session(world), one_phase=True))
    assert count(world) == 1
    assert world.store.found().transactions == {}


def test_a_lost_connection_leaves_a_prepared_branch() -> None:
    world, session = received_in_branch()
    session.branches.end(XID, failed=False)
    session.branches.prepare(XID)
    session.close(failed=True)
    assert callback_of(consuming(world)).bodies() == []
    commit(xa_session(world))
    assert count(world) == 1


def test_a_lost_connection_undoes_a_branch_that_others_work_in() -> None:
    world, session = received_in_branch()
    other = xa_session(world)
    other.branches.join(XID)
    session.close(failed=True)
    other.sends.send(text("rolled back"))
    refused(XaCode.ROLLED_BACK, lambda: other.branches.end(XID, failed=False))
    refused(XaCode.ROLLED_BACK, lambda: other.branches.prepare(XID))
    assert count(world) == 1
    assert callback_of(consuming(world)).bodies() == [b"a"]


# failover


def consuming(world: World) -> ServerSession:
    session = xa_session(world)
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    session.consumers.start()
    world.turn()
    return session


def received_in_branch() -> tuple[World, ServerSession]:
    """A session that has received ``a`` from ``q``, acknowledged it and sent ``sent`` in a branch."""
    world = World()
    world.queue()
    world.session().sends.send(text("a"))
    session = consuming(world)
    session.branches.start(XID)
    session.acknowledge(0, callback_of(session).delivered[0][1].message_id)
    session.sends.send(text("sent"))
    return world, session


def fail_over() -> tuple[World, ServerSession]:
    """The session after a failover in the middle of a branch: it sends and acknowledges before its client ends it."""
    world = World()
    world.queue()
    world.session().sends.send(text("a"))
    session = consuming(world)
    session.branches.failed(XID)
    session.acknowledge(0, callback_of(session).delivered[0][1].message_id)
    session.sends.send(text("sent"))
    return world, session


def roll_back_locally(world: World, session: ServerSession) -> None:
    session.consumers.stop()
    session.rollback(done=world.answers.of("rolled back"))
    session.consumers.start()
    world.turn()


def test_work_after_a_failover_is_rolled_back_with_the_branch() -> None:
    """The stock client's ``end`` rolls the session back (SESS_ROLLBACK) and throws XAER_RMFAIL."""
    world, session = fail_over()
    assert count(world) == 1, "not visible"
    roll_back_locally(world, session)
    assert callback_of(session).bodies() == [b"a", b"a"], "redelivered"
    assert callback_of(session).counts() == [1, 2]
    assert count(world) == 1, "the sent message is gone"
    assert session.branches.in_doubt() == ()
    session.branches.roll_back(XID)
    refused(XaCode.UNKNOWN_XID, lambda: session.branches.roll_back(XID))
    assert world.store.found().transactions == {}
    session.sends.send(text("outside"))
    assert count(world) == 2


@pytest.mark.parametrize("phases", [1, 2])
def test_a_branch_that_was_ended_after_a_failover_cannot_commit(phases: int) -> None:
    world, session = fail_over()
    session.branches.end(XID, failed=False)
    if phases == 1:
        refused(XaCode.ROLLED_BACK, lambda: commit(session, one_phase=True))
    else:
        refused(XaCode.ROLLED_BACK, lambda: session.branches.prepare(XID))
        session.branches.roll_back(XID)
    session.close(failed=False)
    assert callback_of(consuming(world)).bodies() == [b"a"]
    assert count(world) == 1
    assert len(world.resources) == 0


@pytest.mark.parametrize("call", ["prepare", "commit"])
def test_a_branch_that_its_session_rolled_back_answers_so_once(call: str) -> None:
    world, session = fail_over()
    roll_back_locally(world, session)
    refused(XaCode.DUPLICATE_XID, lambda: session.branches.start(XID))
    refused(XaCode.PROTOCOL, lambda: session.branches.join(XID))
    refused(XaCode.PROTOCOL, lambda: session.branches.end(XID, failed=False))
    if call == "prepare":
        refused(XaCode.ROLLED_BACK, lambda: session.branches.prepare(XID))
    else:
        refused(XaCode.ROLLED_BACK, lambda: commit(session))
    assert len(world.resources) == 0
    session.branches.start(XID)


def test_a_branch_that_its_session_rolled_back_is_forgotten_in_time() -> None:
    world = World()
    aging(world)
    session = xa_session(world)
    session.branches.failed(XID)
    session.rollback()
    assert len(world.resources) == 1
    world.clock.advance(11_000)
    assert len(world.resources) == 0


def test_a_local_rollback_without_a_failover_rolls_the_branch_back_too() -> None:
    world, session = received_in_branch()
    roll_back_locally(world, session)
    assert callback_of(session).bodies() == [b"a", b"a"]
    assert session.branches.branch is None
    session.branches.roll_back(XID)
    assert count(world) == 1


def test_a_local_rollback_undoes_work_of_other_sessions_in_the_branch() -> None:
    world, session = received_in_branch()
    other = xa_session(world)
    other.branches.join(XID)
    other.sends.send(text("before"))
    roll_back_locally(world, session)
    other.sends.send(text("after"))
    refused(XaCode.ROLLED_BACK, lambda: other.branches.end(XID, failed=False))
    session.branches.roll_back(XID)
    assert count(world) == 1
    assert world.store.found().transactions == {}


@pytest.mark.parametrize("state", ["suspended", "ended"])
def test_a_failover_of_a_branch_that_no_session_works_in(state: str) -> None:
    world, session = received_in_branch()
    if state == "suspended":
        session.branches.suspend()
    else:
        session.branches.end(XID, failed=False)
    session.branches.failed(XID)
    session.sends.send(text("later"))
    session.branches.end(XID, failed=False)
    refused(XaCode.ROLLED_BACK, lambda: commit(session, one_phase=True))
    assert count(world) == 1
    assert session.branches.branch is None


def test_a_failover_report_for_another_branch_leaves_the_present_one() -> None:
    world = World()
    session = xa_session(world)
    session.branches.start(XID)
    session.sends.send(text("kept"))
    session.branches.failed(OTHER)
    session.sends.send(text("undone"))
    session.branches.end(OTHER, failed=False)
    commit(session, one_phase=True)
    session.branches.roll_back(OTHER)
    assert count(world) == 1


@pytest.mark.parametrize("decided", [False, True], ids=["prepared", "decided by an operator"])
@pytest.mark.parametrize("ends_by", ["end", "rollback", "close"])
def test_work_for_a_branch_that_is_prepared_never_counts(decided: bool, ends_by: str) -> None:
    """The promise holds, and what the client does before it learns of the failover is no part of it."""
    world, session = received_in_branch()
    session.branches.end(XID, failed=False)
    session.branches.prepare(XID)
    if decided:
        world.resources.decide(XID, commit=True)
    visible = count(world)
    session.branches.failed(XID)
    session.sends.send(text("rolled back"))
    if ends_by == "end":
        refused(XaCode.PROTOCOL, lambda: session.branches.end(XID, failed=False))
    elif ends_by == "rollback":
        session.rollback()
    else:
        session.close(failed=True)
    assert count(world) == visible
    if not decided:
        commit(xa_session(world))
    assert count(world) == 1, "a was acknowledged, sent is there"
    session.close(failed=False)
    assert callback_of(consuming(world)).bodies() == [b"sent"]


def test_work_after_a_failover_never_counts_when_there_are_too_many_branches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.session.resource_manager.XA_BRANCHES_MAX", 0)
    world, session = fail_over()
    refused(XaCode.ROLLED_BACK, lambda: session.branches.end(XID, failed=False))
    assert count(world) == 1
    session.close(failed=False)
    assert callback_of(consuming(world)).bodies() == [b"a"]


# ages
