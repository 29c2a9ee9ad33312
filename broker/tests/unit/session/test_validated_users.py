"""populate-validated-user and reject-empty-validated-user: the property that consumers may trust, and refused sends."""

from __future__ import annotations

import random

import pytest

from support.large import Node, header_of
from support.routing import World, callback_of, text
from support.sends import sends_of
from support.store import StoreHarness
from understudy.errors import IllegalState
from understudy.message import VALIDATED_USER
from understudy.session.broker_properties import ValidatedUsers
from understudy.session.prefixes import AddressPrefixes
from understudy.session.session import ServerSession
from understudy.terms import RoutingType

POPULATE = ValidatedUsers(populate=True)
FORGED = {VALIDATED_USER: "root", "kept": 1}


def consumed(world: World) -> list[object]:
    session = world.session()
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    world.turn()
    return [message.properties.get(VALIDATED_USER) for _, message, _ in callback_of(session).delivered]


def sender(world: World, validated_users: ValidatedUsers = POPULATE, user: str | None = "ann") -> ServerSession:
    return world.session(validated_users=validated_users, validated_user=user)


@pytest.mark.parametrize("as_a_batch", [False, True])
@pytest.mark.parametrize("properties", [{}, FORGED])
def test_every_message_has_the_name_of_its_user(as_a_batch: bool, properties: dict[str, object]) -> None:
    world = World()
    world.queue("q")
    session = sender(world)
    messages = [text(str(number), properties=dict(properties)) for number in range(3)]
    if as_a_batch:
        session.sends.send_batch(sends_of(messages), 0, None)
    else:
        for message in messages:
            session.sends.send(message)
    assert consumed(world) == ["ann"] * 3


def test_the_name_is_in_the_stored_message_beside_its_other_properties() -> None:
    world = World()
    world.queue("q")
    sender(world).sends.send(text("m", properties=dict(FORGED)))
    (stored,) = world.store.recorded.values()
    assert dict(stored.properties) == {VALIDATED_USER: "ann", "kept": 1}


def test_without_a_validated_user_a_forged_name_is_removed() -> None:
    world = World()
    world.queue("q")
    sender(world, user=None).sends.send(text("m", properties=dict(FORGED)))
    assert consumed(world) == [None]


def test_messages_without_a_validated_user_are_rejected() -> None:
    world = World()
    world.queue("q")
    reject = ValidatedUsers(populate=True, reject_empty=True)
    without_user = sender(world, reject, user=None)
    without_user.sends.send(text("no"), world.answers.of("no"))
    without_user.sends.send(text("forged", properties=dict(FORGED)))
    assert isinstance(world.answers.error("no"), IllegalState)
    assert isinstance(callback_of(without_user).errors[-1], IllegalState)
    sender(world, reject).sends.send(text("yes"))
    assert consumed(world) == ["ann"]


def test_it_goes_with_prefixes() -> None:
    world = World()
    world.queue("q")
    prefixes = AddressPrefixes((("queue:", RoutingType.ANYCAST),))
    session = world.session(validated_users=POPULATE, validated_user="ann", prefixes=prefixes)
    session.sends.send(text("m", "queue:q"))
    assert consumed(world) == ["ann"]


def test_a_large_message_has_it_too() -> None:
    rig = StoreHarness(random.Random(5))
    node = Node(rig, "a")
    node.world.queue("q")
    session = sender(node.world)
    node.send(session, header_of("m", properties=FORGED), b"x" * 200_000)
    node.settle()
    reader = node.consumer()
    node.settle()
    (_, message, _), *_ = callback_of(reader).large
    assert message.properties[VALIDATED_USER] == "ann"
