"""Unfinished large messages of one client do not hold up those of others."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from support.large import Node, header_of
from support.store import StoreHarness
from understudy.errors import BrokerError, LargeMessageFailed, LimitExceeded
from understudy.limits import (
    LARGE_HEADER_BYTES_MAX,
    LARGE_MESSAGE_IDLE_MS,
    LARGE_MESSAGES_UNFINISHED_OF_CONNECTION_MAX,
    LARGE_MESSAGES_UNFINISHED_OF_USER_MAX,
)
from understudy.session.connection_scope import ConnectionScope
from understudy.session.registry import UploadSlots
from understudy.session.session import ServerSession


@pytest.fixture
def node() -> Node:
    node = Node(StoreHarness(random.Random(1)), "a")
    node.world.queue("q")
    return node


def begun(node: Node, scope: ConnectionScope | None = None) -> ServerSession:
    """A session with a large message that is not finished."""
    session = node.world.session(connection=scope) if scope is not None else node.world.session()
    session.uploads.begin(header_of("a"))
    session.uploads.take(b"piece")
    return session


def finish(node: Node, session: ServerSession) -> BrokerError | None:
    """The outcome of its large message."""
    outcomes: list[BrokerError | None] = []
    session.uploads.finish(b"last", -1, outcomes.append, lambda: None)
    node.settle()
    assert len(outcomes) == 1
    return outcomes[0]


def test_a_connection_has_a_part_of_them(node: Node) -> None:
    scope = ConnectionScope("greedy")
    sessions = [begun(node, scope) for _ in range(LARGE_MESSAGES_UNFINISHED_OF_CONNECTION_MAX)]
    assert isinstance(finish(node, begun(node, scope)), LimitExceeded)
    assert finish(node, begun(node)) is None
    assert finish(node, sessions[0]) is None
    assert finish(node, begun(node, scope)) is None


@pytest.mark.parametrize("end", [lambda s: s.close(failed=True), lambda s: s.uploads.begin(header_of("b"))])
def test_an_aborted_upload_does_not_count(node: Node, end: Callable[[ServerSession], None]) -> None:
    slots = node.world.registry.uploads
    session = begun(node)
    assert slots._counts.total() == 2
    end(session)
    session.close(failed=True)
    assert slots._counts.total() == 0
    node.settle()
    assert node.store.large.unfinished == 0


def test_a_user_has_a_part_of_them_and_at_most_half_of_the_node_s() -> None:
    slots = UploadSlots()
    for number in range(LARGE_MESSAGES_UNFINISHED_OF_USER_MAX):
        slots.take(f"connection {number}", "greedy", 500)
    with pytest.raises(LimitExceeded, match="user"):
        slots.take("another", "greedy", 500)
    slots.take("another", "other", 500)
    few = UploadSlots()
    held = [few.take("c", "greedy", 20) for _ in range(10)]
    with pytest.raises(LimitExceeded):
        few.take("d", "greedy", 20)
    held[0].release()
    held[0].release()
    few.take("d", "greedy", 20)
    with pytest.raises(LimitExceeded):
        few.take("d", "greedy", 20)


def test_one_that_gets_no_more_pieces_is_given_up(node: Node) -> None:
    session = begun(node)
    node.world.clock.advance(LARGE_MESSAGE_IDLE_MS)
    session.uploads.check_idle()
    session.uploads.take(b"in time")
    node.world.clock.advance(LARGE_MESSAGE_IDLE_MS)
    session.uploads.check_idle()
    assert node.store.large.unfinished == 1
    node.world.clock.advance(1)
    session.uploads.check_idle()
    node.settle()
    assert node.store.large.unfinished == 0
    assert node.world.registry.uploads._counts.total() == 0
    session.uploads.take(b"too late")
    assert isinstance(finish(node, session), LargeMessageFailed)
    assert finish(node, begun(node)) is None


def test_a_header_has_a_limit(node: Node) -> None:
    session = node.world.session()
    session.uploads.begin(header_of("a", properties={"p": "x" * LARGE_HEADER_BYTES_MAX}))
    assert isinstance(finish(node, session), LimitExceeded)
