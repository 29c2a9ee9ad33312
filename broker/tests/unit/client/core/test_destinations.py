"""Conversations that create addresses and queues on demand (artemis-core s. 6.1)."""

from __future__ import annotations

from typing import Any

import pytest

from understudy.client.core.url.destinations import (
    Conversation,
    RoutingType,
    ensure_address,
    ensure_queue,
    queue_request,
    routing_type,
    split_name,
    subscription_queue,
)
from understudy.errors import (
    AddressExists,
    AddressNotFound,
    BrokerError,
    ConfigError,
    QueueExists,
    QueueNotFound,
    UnexpectedRoutingType,
)
from understudy.wire.core.packets import (
    BindingQuery,
    BindingQueryResponseV5,
    CreateAddress,
    CreateQueueV2,
    NullResponse,
    Packet,
    QueueQuery,
    QueueQueryResponseV3,
)

ANYCAST, MULTICAST = RoutingType.ANYCAST, RoutingType.MULTICAST


def drive(conversation: Conversation, *answers: Packet | BrokerError) -> list[Packet]:
    """The requests of a conversation that gets these answers in turn."""
    asked: list[Packet] = []
    waiting = list(answers)
    request = next(conversation)
    while True:
        asked.append(request.packet)
        answer: Any = waiting.pop(0)
        try:
            request = conversation.throw(answer) if isinstance(answer, BrokerError) else conversation.send(answer)
        except StopIteration:
            assert not waiting
            return asked


MISSING = QueueQueryResponseV3(False, name="q", auto_create_queues=True, max_consumers=4)
NO_ADDRESS = BindingQueryResponseV5(False, (), True, True)


def test_existing_queue_needs_nothing() -> None:
    asked = drive(ensure_queue("q", ANYCAST), QueueQueryResponseV3(True, name="q", routing_type=1))
    assert asked == [QueueQuery("q")]


def test_missing_queue_and_address_are_created() -> None:
    asked = drive(ensure_queue("a::q", ANYCAST), MISSING, NO_ADDRESS, NullResponse(), NullResponse())
    assert asked[:3] == [QueueQuery("q"), BindingQuery("a"), CreateAddress("a", (1,), True, True)]
    created = asked[3]
    assert isinstance(created, CreateQueueV2)
    assert (created.address, created.name, created.durable, created.auto_created) == ("a", "q", True, True)
    assert (created.routing_type, created.max_consumers) == (1, 4), "the address settings' defaults"


def test_another_client_may_be_faster() -> None:
    asked = drive(ensure_queue("q", ANYCAST), MISSING, NO_ADDRESS, AddressExists("q"), QueueExists("q"))
    assert len(asked) == 4


def test_existing_address() -> None:
    assert drive(ensure_address("a", MULTICAST), BindingQueryResponseV5(True)) == [BindingQuery("a")]


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ((MISSING, BindingQueryResponseV5(False, (), True, False)), AddressNotFound),
        ((QueueQueryResponseV3(False, name="q"), BindingQueryResponseV5(True)), QueueNotFound),
        ((QueueQueryResponseV3(True, name="q", routing_type=0),), UnexpectedRoutingType),
    ],
)
def test_refused(answers: tuple[Packet, ...], error: type[BrokerError]) -> None:
    with pytest.raises(error):
        drive(ensure_queue("q", ANYCAST), *answers)


def test_a_producer_does_not_mind_the_routing_type_of_the_queue() -> None:
    drive(ensure_queue("q", ANYCAST, producing=True), QueueQueryResponseV3(True, name="q", routing_type=0))


def test_names() -> None:
    assert split_name("q") == ("q", "q")
    assert split_name("a::q") == ("a", "q")
    assert routing_type("Multicast") is MULTICAST
    assert routing_type(ANYCAST) is ANYCAST
    with pytest.raises(ConfigError):
        routing_type("unicast")


def test_queues_of_subscriptions_are_called_as_jms_clients_call_them() -> None:
    assert subscription_queue("sub", None, durable=True) == "sub"
    assert subscription_queue("sub", "me", durable=True) == "me.sub"
    assert subscription_queue("a.b", "m\\e", durable=True) == "m\\\\e.a\\.b"
    assert subscription_queue("sub", "me", durable=False) == "nonDurable.me.sub"
    assert subscription_queue("sub", None, durable=False) == "nonDurable.sub"


def test_a_queue_takes_known_attributes_only() -> None:
    packet = queue_request("q", "a", RoutingType.ANYCAST, None, durable=True, temporary=False, ring_size=3)
    assert (packet.name, packet.address, packet.ring_size, packet.requires_response) == ("q", "a", 3, True)
    with pytest.raises(TypeError, match="colour"):
        queue_request("q", "a", RoutingType.ANYCAST, None, durable=True, temporary=False, colour=1)  # type: ignore[call-arg]
