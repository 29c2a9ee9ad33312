"""Sessions with XA branches, and what tests of them expect."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.routing import World
from understudy.errors import XaCode, XaError
from understudy.ids import Xid
from understudy.session.resource_manager import ResourceManager
from understudy.session.session import ServerSession

XID = Xid(7, b"global", b"branch")
OTHER = Xid(7, b"global", b"other")


def xa_session(world: World) -> ServerSession:
    if world.office.directory.find_queue("q") is None:
        world.queue()
    return world.session(xa=True, auto_commit_sends=False, auto_commit_acks=False)


def refused(code: XaCode, call: Callable[[], object]) -> None:
    with pytest.raises(XaError) as caught:
        call()
    assert caught.value.xa_code == code, caught.value


def commit(session: ServerSession, *, one_phase: bool = False, xid: Xid = XID) -> None:
    answers: list[object] = []
    session.branches.commit(xid, one_phase=one_phase, done=answers.append)
    assert answers == [None]


def count(world: World) -> int:
    return world.office.queues()[0].message_count


def aging(world: World) -> ResourceManager:
    world.resources = ResourceManager(world.office, world.clock, world.clock, timeout_ms=10_000, scan_period_ms=1_000)
    return world.resources
