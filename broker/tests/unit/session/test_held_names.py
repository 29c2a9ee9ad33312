"""Names that a session makes the server keep without a permission are bounded (docs/operate/security.md, class 14b)."""

from __future__ import annotations

import pytest

from support.core import CoreNode
from support.routing import World
from understudy.errors import LimitExceeded
from understudy.limits import (
    GROUP_NAME_CHARACTERS_MAX,
    METADATA_CHARACTERS_MAX,
    NAME_UNITS_MAX,
    NAMES_OF_CONNECTION_CHARACTERS_MAX,
    NAMES_OF_SESSION_CHARACTERS_MAX,
)
from understudy.session.connection_scope import ConnectionScope
from understudy.wire.core import packets as p

LONG = "n" * 4_000


def test_metadata_of_a_session_is_bounded_and_an_entry_can_be_replaced() -> None:
    session = World().session()
    for number in range(15):
        session.state.add_metadata(f"key{number}", LONG)
    held = session.state.names.characters
    for _ in range(100):
        session.state.add_metadata("key0", LONG)
    assert session.state.names.characters == held
    with pytest.raises(LimitExceeded, match="metadata"):
        session.state.add_metadata("key0", "v" * METADATA_CHARACTERS_MAX)
    assert session.state.metadata["key0"] == LONG
    with pytest.raises(LimitExceeded):
        session.state.add_unique_metadata("unique", "v" * METADATA_CHARACTERS_MAX)
    World().session().state.add_unique_metadata("unique", "other")


def test_producers_of_a_session_are_bounded_by_their_addresses() -> None:
    session = World().session()
    with pytest.raises(LimitExceeded):
        for number in range(10_000):
            session.sends.create_producer(number, LONG)
    assert session.state.names.characters <= NAMES_OF_SESSION_CHARACTERS_MAX
    registered = len(session.sends.producers)
    session.sends.create_producer(0, "replaced")
    session.sends.remove_producer(1)
    session.sends.create_producer(20_000, LONG)
    assert len(session.sends.producers) == registered


def test_credit_requests_for_many_addresses_keep_bounded_memory() -> None:
    session = World().session()
    for number in range(3_000):
        session.sends.request_credits(f"{number}{LONG}"[:4_000], 100)
    assert session.state.names.characters <= NAMES_OF_SESSION_CHARACTERS_MAX
    assert 0 < len(session.sends._targets) < 600


def test_a_connection_is_bounded_and_its_closed_sessions_count_no_more() -> None:
    world, scope = World(), ConnectionScope("c")

    def fill() -> None:
        session = world.session(connection=scope)
        for number in range(500):
            session.sends.create_producer(number, LONG)

    sessions = len(world.registry)
    with pytest.raises(LimitExceeded):
        for _ in range(10):
            fill()
    assert scope.held_characters <= NAMES_OF_CONNECTION_CHARACTERS_MAX
    for session in list(world.registry)[sessions:]:
        session.close(failed=False)
    assert scope.held_characters == 0
    fill()


def test_a_session_that_moves_takes_its_names_along() -> None:
    first, second = ConnectionScope("1"), ConnectionScope("2")
    session = World().session(connection=first)
    session.state.add_metadata("key", "value")
    held = first.held_characters
    session.state.move(second)
    assert (first.held_characters, second.held_characters) == (0, held)
    session.close(failed=False)
    assert second.held_characters == 0


@pytest.mark.parametrize("field", ["name", "user"])
def test_long_names_in_a_createsession_are_refused(field: str) -> None:
    node = CoreNode()
    client = node.client()
    create = p.CreateSession(name="n" * 40, session_channel_id=10, version=136, user="u", password="p")
    setattr(create, field, "n" * (NAME_UNITS_MAX + 1))
    answer = client.ask(create, p.ExceptionResponse, 1)
    assert str(NAME_UNITS_MAX) in (answer.message or "")
    assert node.services.connections.session_count == 0


def test_long_group_names_are_kept_as_a_digest() -> None:
    """Two names with a common prefix are two groups."""
    queue = World().queue("q")
    assert queue.group_key("short") == "short"
    first, second = queue.group_key(LONG + "1"), queue.group_key(LONG + "2")
    assert first != second
    assert first == queue.group_key(LONG + "1")
    assert len(first) < GROUP_NAME_CHARACTERS_MAX + 80
