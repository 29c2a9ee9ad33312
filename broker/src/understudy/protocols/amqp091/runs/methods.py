"""Method frames of publishes, each of which is read once."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from understudy.protocols.amqp091 import names
from understudy.protocols.amqp091.publisher import REPLY_PREFIX
from understudy.wire.amqp091.codes import Amqp091Error
from understudy.wire.amqp091.layout import decode_method, encode_method
from understudy.wire.amqp091.methods import BasicPublish

#: Encoded class and method of a publish.
PUBLISH: Final = encode_method(BasicPublish(0, "", ""))[:4]


class PublishMethod(NamedTuple):
    """A method frame that was read."""

    exchange: str
    routing_key: str
    encoded_exchange: bytes
    """Exchange in UTF-16."""
    encoded_key: bytes


@lru_cache(maxsize=1024)
def method_of(payload: bytes) -> PublishMethod | None:
    """The publish in a payload; None: it cannot be read, or every such publish needs a look of its own."""
    try:
        method = decode_method(payload)
        assert isinstance(method, BasicPublish)
        names.check_exchange(method.exchange)
    except Amqp091Error:
        return None
    exchange, key = method.exchange, method.routing_key
    if method.immediate or (not exchange and key.startswith(REPLY_PREFIX)):
        return None
    return PublishMethod(exchange, key, utf16(exchange), utf16(key))


def utf16(text: str) -> bytes:
    """A text as the properties of messages have it."""
    return text.encode("utf-16-le")
