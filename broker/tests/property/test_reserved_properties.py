"""Properties that only a broker writes, given by a client: they have no effect, whichever way the message comes in.

Goal: no message in a queue holds a reserved property that a client wrote (ADR 0025), every other property stays as it
was sent, and ``retryMessages`` moves nothing on the word of a client. Method: the same properties by every way a
message can enter: alone, in a run, in a transaction, in an XA branch, as a large message, by ``sendMessage`` of
management, and with an address prefix.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.large import Node as LargeNode
from support.managed import ManagedWorld
from support.routing import World
from support.sends import sends_of
from support.store import StoreHarness
from understudy.ids import Xid
from understudy.message import Message
from understudy.properties import RESERVED_PREFIXES, Properties, PropertyValue
from understudy.routing.queues.queue import Queue
from understudy.session.prefixes import AddressPrefixes
from understudy.terms import RoutingType

#: What Artemis writes under the prefixes, and names that only begin like them.
RESERVED = (
    "_AMQ_ORIG_ADDRESS",
    "_AMQ_ORIG_QUEUE",
    "_AMQ_ORIG_MESSAGE_ID",
    "_AMQ_ORIG_ROUTING_TYPE",
    "_AMQ_ACTUAL_EXPIRY",
    "_AMQ_INGRESS_TIMESTAMP",
    "_AMQ_VALIDATED_USER",
    "_AMQ_ROUTE_TO",
    "_AMQ_ROUTE_TOsf.my-cluster.one",
    "_AMQ_ACK_ROUTE_TO",
    "_AMQ_SCALEDOWN_TO",
    "_hornetq.forced.delivery.seq",
)
#: Properties of clients, some of them much like the others.
ALLOWED = (
    "colour",
    "_AMQ_ORIGIN",
    "_AMQ_GROUP_ID",
    "_AMQ_CONTENT_TYPE",
    "_AMQ_VALIDATED",
    "AMQ_ORIG_ADDRESS",
    "JMSXUserID",
)

values = st.sampled_from(("other", "q", b"\x00" * 8, 7, True, None))
given_properties = st.dictionaries(st.sampled_from(RESERVED + ALLOWED), values, max_size=6)
Given = dict[str, PropertyValue]


def received(properties: Given, address: str = "q") -> Message:
    """Message with the given properties, decoded as the broker decodes one of a client."""
    return Message.decode(Message(b"body", address=address, properties=Properties(properties)).encoded)


def send_alone(world: World, many: list[Given]) -> None:
    session = world.session()
    for each in many:
        session.sends.send(received(each))


def send_in_a_batch(world: World, many: list[Given]) -> None:
    session = world.session()
    # the first one asks for permission, the others are taken together
    session.sends.send(received({}))
    session.sends.send_batch(sends_of([received(each) for each in many]), 0, None)


def send_in_a_transaction(world: World, many: list[Given]) -> None:
    session = world.session(transacted=True)
    for each in many:
        session.sends.send(received(each))
    session.commit()


def send_in_a_branch(world: World, many: list[Given]) -> None:
    session = world.session(xa=True, auto_commit_sends=False, auto_commit_acks=False)
    xid = Xid(7, b"global", b"branch")
    session.branches.start(xid)
    for each in many:
        session.sends.send(received(each))
    session.branches.end(xid, failed=False)
    session.branches.commit(xid, one_phase=True, done=lambda answer: None)


def send_with_a_prefix(world: World, many: list[Given]) -> None:
    prefixes = AddressPrefixes((("queue://", RoutingType.ANYCAST),))
    session = world.session(prefixes=prefixes)
    session.sends.send_batch(sends_of([received(each, "queue://q") for each in many]), 0, None)


def send_by_management(world: World, many: list[Given]) -> None:
    node = ManagedWorld(world=world)
    for each in many:
        headers = {name: str(value) for name, value in each.items()}
        node.ask("address.q", "sendMessage", headers, 3, "body", True, None, None)


WAYS = (send_alone, send_in_a_batch, send_in_a_transaction, send_in_a_branch, send_with_a_prefix, send_by_management)


def held(queue: Queue) -> list[Message]:
    return [queue.read(reference) for _, reference in queue.browse((9, -1))]


def check(messages: list[Message], many: list[Given]) -> None:
    """Nothing reserved, and all the rest."""
    messages = [message for message in messages if message.properties]
    wanted = [sorted(name for name in each if not name.startswith(RESERVED_PREFIXES)) for each in many]
    found = [sorted(name for name in message.properties if name != "_AMQ_ROUTING_TYPE") for message in messages]
    assert [each for each in found if each] == [each for each in wanted if each]
    for message in messages:
        # these bytes are stored and delivered
        assert sorted(Message.decode(message.encoded).properties) == sorted(message.properties)


@pytest.mark.parametrize("send", WAYS)
@settings(deadline=None, max_examples=60)
@given(st.lists(given_properties, min_size=1, max_size=6))
def test_a_client_writes_no_reserved_property(send: Callable[[World, list[Given]], None], many: list[Given]) -> None:
    world = World()
    queue = world.queue()
    send(world, many)
    world.turn()
    check(held(queue), many)


@settings(deadline=None, max_examples=20)
@given(given_properties, st.booleans())
def test_nor_in_the_header_of_a_large_message(properties: Given, transacted: bool) -> None:
    node = LargeNode(StoreHarness(random.Random(1)), "one")
    queue = node.world.queue()
    session = node.world.session(transacted=transacted)
    node.send(session, received(properties), b"x" * 150_000)
    if transacted:
        node.settle()
        session.commit()
    node.settle()
    (message,) = held(queue)
    assert not [name for name in message.properties if name.startswith(RESERVED_PREFIXES)]
    assert set(message.properties) - {"_AMQ_LARGE_SIZE"} == {
        name for name in properties if not name.startswith(RESERVED_PREFIXES)
    }


@pytest.mark.parametrize("send", WAYS)
@settings(deadline=None, max_examples=30)
@given(given_properties)
def test_retry_moves_nothing_on_the_word_of_a_client(
    send: Callable[[World, list[Given]], None], properties: Given
) -> None:
    world = World()
    queue, other = world.queue(), world.queue("other")
    forged: Given = {"_AMQ_ORIG_ADDRESS": "other", "_AMQ_ORIG_QUEUE": "other", **properties}
    send(world, [forged])
    world.turn()
    before = queue.message_count
    assert ManagedWorld(world=world).ask("queue.q", "retryMessages") == 0
    assert (queue.message_count, other.message_count) == (before, 0)
