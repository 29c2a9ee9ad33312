"""Arguments of the functions for AMQP 0-9-1, which are the same for many messages."""

from __future__ import annotations

from typing import NamedTuple


class PublishLimits(NamedTuple):
    """Limits of the publishes of one call."""

    payload_max: int
    """Largest payload of a frame in bytes."""
    count_max: int
    """Most messages."""
    body_max: int
    """Longest body in bytes; a message with a longer one is left."""


class PublishTarget(NamedTuple):
    """Values that all messages of one run get."""

    address: bytes
    """Address of the messages in UTF-16."""
    exchange: bytes
    """Exchange without the prefix of the virtual host in UTF-16."""
    routing_key: bytes
    """Routing key in UTF-16."""
    priority: int
    """Priority of the messages; -1: that of each message itself."""
    user: bytes
    """Login name of the publisher in UTF-8, the only one that a message may give."""


class DeliveryFrame(NamedTuple):
    """Values that the frames of all deliveries to one consumer have in common."""

    channel: int
    """Number of the channel."""
    frame_max: int
    """Largest frame in bytes."""
    consumer_tag: bytes
    """Consumer tag as a short string, with its length."""
