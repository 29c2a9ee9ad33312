"""Properties that only a broker writes, in messages that a bridge or a tool sends (ADR 0123)."""

from __future__ import annotations

import random

import pytest

from support.large import Node, body_of, header_of
from support.routing import FakeSecurity, World, text
from support.store import StoreHarness
from understudy.errors import NotAuthorized, QueueNotFound
from understudy.message import (
    ACTUAL_EXPIRY,
    BRIDGE_DUPLICATE_ID,
    INGRESS_TIMESTAMP,
    ORIGINAL_ADDRESS,
    ORIGINAL_MESSAGE_ID,
    ORIGINAL_QUEUE,
    ROUTE_TO,
    TRANSFER,
    VALIDATED_USER,
    Transfer,
)
from understudy.properties import PropertyValue
from understudy.session.broker_properties import ValidatedUsers, admitted
from understudy.terms import DivertDefinition, Permission, RoutingType

ORIGIN = {ORIGINAL_ADDRESS: "work", ORIGINAL_QUEUE: "work", ORIGINAL_MESSAGE_ID: 7, ACTUAL_EXPIRY: 5}
SENDER = {VALIDATED_USER: "alice", INGRESS_TIMESTAMP: 3}
FORGED = {ROUTE_TO: b"12345678", "_hornetq.forced.delivery.seq": 1}
MARK = {TRANSFER: int(Transfer.KEEPS_ORIGIN)}


class Rights(FakeSecurity):
    """Permissions of one user by address."""

    def __init__(self, *rights: tuple[Permission, str]) -> None:
        super().__init__()
        self.rights = rights

    def check(self, permission: Permission, address: str, queue: str | None = None) -> None:
        if not self.allows(permission, address, queue):
            raise NotAuthorized(f"{permission.value} on {address}")

    def allows(self, permission: Permission, address: str, queue: str | None = None) -> bool:
        return (permission, address) in self.rights


def left(rights: Rights, **more: PropertyValue) -> dict[str, PropertyValue]:
    message = text("m", "DLQ::DLQ", properties={"n": 1, **ORIGIN, **SENDER, **FORGED, **more})
    found = dict(admitted(message, rights, lambda removed: None).properties)
    return {name: value for name, value in found.items() if name not in (TRANSFER, BRIDGE_DUPLICATE_ID)}


def test_a_message_that_is_no_transfer_loses_all_of_them() -> None:
    rights = Rights((Permission.MANAGE, "DLQ"), (Permission.SEND, "work"))
    assert left(rights) == {"n": 1}
    assert left(rights, **{TRANSFER: int(Transfer.NEEDS_QUEUE)}) == {"n": 1}


@pytest.mark.parametrize("mark", [MARK, {BRIDGE_DUPLICATE_ID: b"x" * 24}])
def test_the_origin_stays_for_those_who_may_send_there_or_manage_the_address(mark: dict[str, PropertyValue]) -> None:
    assert left(Rights((Permission.SEND, "DLQ")), **mark) == {"n": 1}
    assert left(Rights((Permission.SEND, "work")), **mark) == {"n": 1, **ORIGIN}
    assert left(Rights((Permission.MANAGE, "DLQ")), **mark) == {"n": 1, **ORIGIN, **SENDER}


def test_a_transfer_comes_back_as_it_was() -> None:
    world = World()
    queue = world.queue("DLQ")
    session = world.session(validated_users=ValidatedUsers(populate=True), validated_user="importer")
    session.sends.send(text("m", "DLQ::DLQ", properties={"n": 1, **ORIGIN, **SENDER, **MARK}))
    ((_, reference),) = queue.browse((9, -1))
    assert dict(queue.read(reference).properties) == {"n": 1, **ORIGIN, **SENDER}


def test_a_large_transfer_comes_back_as_it_was() -> None:
    node = Node(StoreHarness(random.Random(1)), "node-a")
    queue = node.world.queue("DLQ")
    session = node.world.session()
    node.send(session, header_of("m", "DLQ", {**ORIGIN, **MARK}), body_of("m", 1_000), "large")
    node.send(session, header_of("m", "DLQ", ORIGIN), body_of("m", 1_000), "forged")
    node.settle()
    assert node.world.answers.error("large") is None
    kept, forged = (dict(queue.read(reference).properties) for _, reference in queue.browse((9, -1)))
    assert {name: kept[name] for name in ORIGIN} == ORIGIN
    assert TRANSFER not in kept
    assert ORIGINAL_ADDRESS not in forged


def test_the_validated_user_of_an_ordinary_message_is_that_of_its_session() -> None:
    world = World()
    queue = world.queue()
    session = world.session(validated_users=ValidatedUsers(populate=True), validated_user="bob")
    session.sends.send(text("m", properties={VALIDATED_USER: "alice", ORIGINAL_ADDRESS: "work"}))
    ((_, reference),) = queue.browse((9, -1))
    assert dict(queue.read(reference).properties) == {VALIDATED_USER: "bob"}


@pytest.mark.parametrize("way", ["filter", "no queue", "purge", "divert"])
def test_a_message_that_no_queue_takes_is_refused_if_its_sender_asks_for_that(way: str) -> None:
    world = World({"#": {"send_to_dla_on_no_route": True, "dead_letter_address": "DLQ"}})
    dead = world.queue("DLQ")
    if way == "no queue":
        world.office.directory.create_address("a", {RoutingType.MULTICAST})
    elif way == "purge":
        world.queue("a", purge_on_no_consumers=True)
    else:
        world.queue("a", filter="n = 1")
    if way == "divert":
        world.office.diverts.create(DivertDefinition("d", "a", "a", exclusive=True))
    session = world.session()
    session.sends.send(text("m", "a", properties={TRANSFER: int(Transfer.NEEDS_QUEUE)}), world.answers.of("asked"))
    assert isinstance(world.answers.error("asked"), QueueNotFound)
    assert dead.message_count == 0
    session.sends.send(text("m", "a"), world.answers.of("not asked"))
    assert world.answers.error("not asked") is None
    assert dead.message_count == 1


def test_the_log_says_once_that_origins_are_removed(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.queue("DLQ")
    session = world.session(security=Rights((Permission.SEND, "DLQ")))
    for _ in range(2):
        session.sends.send(text("m", "DLQ", properties={**ORIGIN, **MARK}))
    session.sends.send(text("m", "DLQ", properties=ORIGIN))
    assert caplog.text.count("lose their origin") == 1
