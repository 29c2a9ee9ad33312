"""Destinations of JMS: read from JMSReplyTo, written into it, and as addresses of producers and consumers."""

from __future__ import annotations

import pytest

from understudy.client.core.url.destinations import RoutingType
from understudy.client.core.url.jms_names import (
    JmsDestination,
    ProducerTarget,
    producer_target,
    queue_name,
    read_destination,
    reply_text,
    topic_name,
)
from understudy.errors import AddressNotFound, ConfigError
from understudy.wire.core.packets import BindingQuery, BindingQueryResponse

ANYCAST, MULTICAST = RoutingType.ANYCAST, RoutingType.MULTICAST


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("queue://a", JmsDestination("a", ANYCAST, False)),
        ("topic://a", JmsDestination("a", MULTICAST, False)),
        ("temp-queue://a://b", JmsDestination("a://b", ANYCAST, True)),
        ("temp-topic://a", JmsDestination("a", MULTICAST, True)),
        ("a", None),
        ("a::queue://b", None),
        ("QUEUE://a", None),
    ],
)
def test_the_kind_is_before_the_name(text: str, expected: JmsDestination | None) -> None:
    assert read_destination(text) == expected


def test_a_destination_has_a_name() -> None:
    with pytest.raises(ConfigError, match="has no name"):
        read_destination("temp-queue://")


def test_consumers_take_queues_and_subscribers_topics() -> None:
    assert queue_name("temp-queue://a") == queue_name("a") == "a"
    assert topic_name("temp-topic://a") == topic_name("a") == "a"
    with pytest.raises(ConfigError, match="is a topic"):
        queue_name("topic://a")
    with pytest.raises(ConfigError, match="is a queue"):
        topic_name("queue://a")


def test_a_reply_address_has_its_kind() -> None:
    assert reply_text("a", temporary=True) == "temp-queue://a"
    assert reply_text("a", temporary=False) == "queue://a"
    assert reply_text("topic://a", temporary=False) == "topic://a"


def test_the_kind_decides_the_routing_type() -> None:
    assert producer_target("topic://a", ANYCAST, auto_create=False) == ProducerTarget("a", MULTICAST)
    assert producer_target("a", ANYCAST, auto_create=False) == ProducerTarget("a", ANYCAST)
    assert producer_target("a", None, auto_create=True) == ProducerTarget("a", None)


def test_a_temporary_destination_is_not_created_for_its_requester() -> None:
    name, routing, conversation, on_demand = producer_target("temp-queue://gone", ANYCAST, auto_create=True)
    assert (name, routing, on_demand) == ("gone", ANYCAST, False)
    assert conversation is not None
    assert next(conversation).packet == BindingQuery("gone")
    with pytest.raises(AddressNotFound, match="the connection of its owner has ended"):
        conversation.send(BindingQueryResponse(False))
