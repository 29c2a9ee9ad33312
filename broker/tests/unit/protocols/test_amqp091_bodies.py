"""Bodies that clients of CORE have sent, as clients of AMQP 0-9-1 read them: long texts, large and compressed ones."""

from __future__ import annotations

import random
import zlib
from typing import Any

import pytest

from support.amqp091 import AmqpNode
from support.large import Node
from support.store import StoreHarness
from understudy.limits import STRING_UNITS_MAX
from understudy.message import LARGE_COMPRESSED, Message, MessageType
from understudy.properties import Properties, encode_simple_string
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.core_messages import plain_body
from understudy.wire.core import packets

PIECE = 100 * 1024
TEXT = "grün " * 60_000
STORED_TEXT = b"\x01" + encode_simple_string(TEXT)
MAP = Properties({"name": "v" * 200_000}).encode()


class Place:
    """A node with a real store, a channel of AMQP 0-9-1 and a session of CORE."""

    def __init__(self) -> None:
        self.node = Node(StoreHarness(random.Random(1)), "a")
        self.amqp_node = AmqpNode(world=self.node.world)
        self.amqp = self.amqp_node.channel()
        self.declare("q")
        self.core = self.amqp_node.client()
        self.core.create_session(window=-1)

    def settle(self) -> None:
        self.node.settle()

    def declare(self, name: str, **arguments: Any) -> None:
        """Make a queue."""
        given = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        self.amqp.send(m.QueueDeclare(0, name, durable=True, arguments=given))
        self.settle()
        self.amqp.received()

    def send(
        self, kind: MessageType, body: bytes, *, compressed: bool = False, large: bool = True, address: str = "q"
    ) -> None:
        """Send a message of CORE, in pieces if it is large."""
        properties = Properties({"n": 1})
        if compressed:
            properties[LARGE_COMPRESSED] = True
        header = Message(b"", address=address, type=kind, properties=properties)
        if large:
            self.core.send(packets.SessionSendLarge(packets.header_of_message(header)))
            pieces = [body[start : start + PIECE] for start in range(0, len(body), PIECE)]
            for number, piece in enumerate(pieces, 1):
                last = number == len(pieces)
                size = len(body) if last else -1
                self.core.send(packets.SessionSendContinuation(piece, not last, size, last, 7, 1))
        else:
            message = Message(body, address=address, type=kind, properties=properties)
            self.core.send(packets.SessionSend(message, True, 7, 1))
        self.settle()

    def got(self, queue: str = "q", *, no_ack: bool = True) -> Any:
        """The next message, with its body whole."""
        self.amqp.send(m.BasicGet(0, queue, no_ack=no_ack))
        self.settle()
        (found,) = self.amqp.received()
        return found


@pytest.fixture
def place() -> Place:
    return Place()


def test_a_text_of_any_length_is_utf_8() -> None:
    text = "ä" * (STRING_UNITS_MAX + 1)
    assert plain_body(MessageType.TEXT, b"\x01" + encode_simple_string(text)) == text.encode()


def test_a_large_text_is_utf_8(place: Place) -> None:
    place.send(MessageType.TEXT, STORED_TEXT)
    found = place.got()
    assert found.body.decode() == TEXT
    assert found.properties.content_type == "text/plain; charset=utf-8"


def test_a_large_map_is_named_as_a_map(place: Place) -> None:
    place.send(MessageType.MAP, MAP)
    found = place.got()
    assert (found.body, found.properties.content_type) == (MAP, "application/x-understudy-map")


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("kind", "stored", "body"),
    [(MessageType.TEXT, STORED_TEXT, TEXT.encode()), (MessageType.BYTES, TEXT.encode(), TEXT.encode())],
)
def test_a_compressed_body_is_inflated(
    place: Place, large: bool, kind: MessageType, stored: bytes, body: bytes
) -> None:
    place.send(kind, zlib.compress(stored), compressed=True, large=large)
    found = place.got()
    assert (found.body, found.properties.content_encoding) == (body, None)


@pytest.mark.parametrize("large", [False, True])
def test_a_compressed_body_above_the_limit_says_that_it_is_compressed(
    place: Place, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("understudy.protocols.amqp091.messages.AMQP091_MESSAGE_BYTES_MAX", 1000)
    stored = zlib.compress(bytes(1001))
    place.send(MessageType.BYTES, stored, compressed=True, large=large)
    found = place.got()
    assert (found.body, found.properties.content_encoding) == (stored, "deflate")


def test_a_large_text_above_the_limit_comes_as_it_is_stored(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.protocols.amqp091.messages.AMQP091_MESSAGE_BYTES_MAX", 1000)
    place.send(MessageType.TEXT, STORED_TEXT)
    found = place.got()
    assert (found.body, found.properties.content_type) == (STORED_TEXT, "application/octet-stream")


def test_a_body_that_is_no_zlib_stream_comes_as_it_is_stored(place: Place) -> None:
    place.send(MessageType.BYTES, b"no stream" * 20_000, compressed=True)
    assert place.got().body == b"no stream" * 20_000


def test_a_large_text_is_a_text_as_a_dead_letter(place: Place) -> None:
    place.declare("first", dead_letter_exchange="", dead_letter_routing_key="q")
    place.send(MessageType.TEXT, STORED_TEXT, address="first")
    tag = place.got("first", no_ack=False).method.delivery_tag
    place.amqp.send(m.BasicReject(tag, requeue=False))
    place.settle()
    found = place.got()
    assert found.body.decode() == TEXT
    assert (found.properties.content_type, "x-death" in found.properties.headers) == ("text/plain; charset=utf-8", True)
