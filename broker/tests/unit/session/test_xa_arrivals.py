"""XA branches that a scale-down of another node moves to this one (ADR 0110)."""

from __future__ import annotations

from support.routing import World
from support.xa import XID, commit, refused, xa_session
from understudy.errors import XaCode
from understudy.session.resource_manager import ResourceManager


def test_a_branch_that_came_is_taken_once() -> None:
    """The simulation found one that was decided and came again, from a node that was killed after it had sent it: no
    manager knew it any more (members, 4581).
    """
    world = World()
    world.queue()
    other = world.session(of_cluster=True, xa=True, auto_commit_sends=False, auto_commit_acks=False)
    other.branches.start(XID)
    other.branches.end(XID, failed=False)
    other.branches.prepare(XID)
    session = xa_session(world)
    assert session.branches.in_doubt() == (XID,)
    commit(session)
    refused(XaCode.UNKNOWN_XID, lambda: commit(session))
    for resources in (world.resources, ResourceManager(world.office, world.clock, world.clock)):
        if resources is not world.resources:
            resources.restore(world.store.found())
        assert resources.in_doubt() == ()
        assert resources.in_doubt(came=True) == (XID,)
    refused(XaCode.DUPLICATE_XID, lambda: other.branches.start(XID))


def test_a_branch_on_its_way_is_not_decided_by_clients() -> None:
    """A manager asked the target of a scale-down while the branch was moved there (scaled-voters, 720077)."""
    world = World()
    world.queue()
    other = world.session(of_cluster=True, xa=True, auto_commit_sends=False, auto_commit_acks=False)
    session = xa_session(world)

    def refused_to_clients() -> None:
        for request in (commit, lambda each: each.branches.roll_back(XID), lambda each: each.branches.prepare(XID)):
            refused(XaCode.RESOURCE_MANAGER_FAILED, lambda request=request: request(session))
        assert session.branches.in_doubt() == ()

    other.branches.start(XID)
    refused_to_clients()
    other.branches.end(XID, failed=False)
    refused_to_clients()
    other.branches.prepare(XID)
    assert session.branches.in_doubt() == (XID,)
    commit(session)
