"""Visibility of addresses and queues: any permission on an address is enough to query it; without one it is hidden."""

from __future__ import annotations

import pytest

from support.routing import FakeSecurity, World
from understudy.errors import NotAuthorized, QueueNotFound
from understudy.session.queue_requests import check_visible, find_visible, queue_names, visible_queue
from understudy.terms import Permission


@pytest.mark.parametrize("permission", Permission)
def test_one_permission_is_enough(permission: Permission) -> None:
    security = FakeSecurity(*(each for each in Permission if each is not permission))
    check_visible(security, "q", "q")


def test_no_permission_is_refused_and_the_error_has_only_the_requested_name() -> None:
    world, security = World(), FakeSecurity(*Permission)
    world.queue("q", address="secret address")
    for name in ("q", "secret address::q", "absent"):
        with pytest.raises(NotAuthorized) as caught:
            find_visible(world.office.directory, security, name)
        assert str(caught.value) == f"user 'tester' has no permission on {name!r}"


def test_a_permitted_user_learns_that_a_queue_does_not_exist() -> None:
    world = World()
    assert find_visible(world.office.directory, FakeSecurity(), "absent") is None
    with pytest.raises(QueueNotFound, match="absent"):
        visible_queue(world.office.directory, FakeSecurity(), "absent")


def test_a_refusal_is_one_violation_and_leave_is_none() -> None:
    """A check for any permission counts as no violation; a refused operation counts as one."""
    security = FakeSecurity(*Permission)
    with pytest.raises(NotAuthorized):
        check_visible(security, "q", "q", purpose=Permission.SEND)
    assert security.asked == [(Permission.SEND, "q", None)]
    security = FakeSecurity(*(each for each in Permission if each is not Permission.EDIT))
    check_visible(security, "q", "q")
    assert security.asked == []


def test_a_wildcard_address_tells_of_no_queue_that_the_client_may_not_know_of() -> None:
    world = World()
    world.queue("q", address="a.b")
    assert queue_names(world.office.directory, FakeSecurity(), "a.*") == ("q",)
    assert queue_names(world.office.directory, FakeSecurity(*Permission), "a.*") == ()
