"""Who is told of what: any permission opens an address to questions, none closes it."""

from __future__ import annotations

import pytest

from support.routing import FakeSecurity, World
from understudy.config.model import Permission
from understudy.errors import NotAuthorized, QueueNotFound
from understudy.session.visibility import check_visible, find_visible, queue_names, visible_queue


@pytest.mark.parametrize("permission", Permission)
def test_one_permission_is_enough(permission: Permission) -> None:
    security = FakeSecurity(*(each for each in Permission if each is not permission))
    check_visible(security, "q", "q")


def test_none_is_refused_and_only_the_asked_name_is_told() -> None:
    world, security = World(), FakeSecurity(*Permission)
    world.queue("q", address="secret address")
    for name in ("q", "secret address::q", "absent"):
        with pytest.raises(NotAuthorized) as caught:
            find_visible(world.office.directory, security, name)
        assert str(caught.value) == f"user 'tester' has no permission on {name!r}"


def test_what_is_not_there_is_said_to_be_so_to_whoever_may_know() -> None:
    world = World()
    assert find_visible(world.office.directory, FakeSecurity(), "absent") is None
    with pytest.raises(QueueNotFound, match="absent"):
        visible_queue(world.office.directory, FakeSecurity(), "absent")


def test_a_refusal_is_one_violation_and_leave_is_none() -> None:
    """What is only asked for, to find out whether anything is allowed, is not told of as a violation."""
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
