"""Publishes and deliveries of AMQP 0-9-1 in the native kernel and in its Python twin, and both against the code for
single messages.

Goal: the twins differ in nothing; a message that they make has the bytes that ``to_message`` gives it, and its delivery
those of ``content_frames``. Method: batches of every kind of publish, whole, cut, and changed as the fuzzers change
them.
"""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fuzz.mutation import mutate
from property.test_amqp091_wire import PROPERTIES, SHORT, TABLES
from support.kernel_views import view_of_sends
from support.kernels import NATIVE, needs_native
from understudy.kernel import sends as sends_twin
from understudy.kernel.amqp091 import deliveries, publishes
from understudy.kernel.amqp091.values import DeliveryFrame, PublishLimits, PublishTarget
from understudy.kernel.log import runs
from understudy.message import Message, MessageType
from understudy.properties import Properties
from understudy.protocols.amqp091.messages import (
    EXCHANGE,
    PROPERTY_LIST,
    ROUTING_KEY,
    Publish,
    to_delivery,
    to_message,
)
from understudy.protocols.amqp091.names import REPLIES
from understudy.wire.amqp091.codes import Amqp091Error
from understudy.wire.amqp091.frames import FrameDecoder, FrameType, content_frames
from understudy.wire.amqp091.layout import encode_method
from understudy.wire.amqp091.methods import BasicDeliver, BasicPublish
from understudy.wire.amqp091.properties import BasicProperties, decode_header, decode_properties, encode_properties
from understudy.wire.amqp091.tables import encode_short

Kernel = Any
#: Modules of publishes, deliveries and runs; the native ones all lie in one.
PYTHON: tuple[ModuleType, ...] = (publishes, deliveries, runs)
KERNELS = (
    pytest.param(PYTHON, id="python"),
    pytest.param((NATIVE, NATIVE, NATIVE), id="native", marks=needs_native),
)
FRAME_MAX = 4096
LIMITS = PublishLimits(FRAME_MAX, 100, 20_000)
NOW_MS = 1_700_000_000_000
USER = "guest"
UUIDS = ("01234567-89ab-cdef-0123-456789ABCDEF", "0123456789abcdef01--0123456789abcdef", "g" * 36, "é" * 36,
         "urn:uuid:0123456789abcdef0123456789a", "0x0123456789abcdef0123456789abcd----")  # fmt: skip


def utf16(text: str) -> bytes:
    return text.encode("utf-16-le")


def target(priority: int = -1, address: str = "ex", exchange: str = "ex", key: str = "key") -> PublishTarget:
    return PublishTarget(utf16(address), utf16(exchange), utf16(key), priority, USER.encode())


plain_properties = st.builds(
    BasicProperties,
    headers=st.none() | TABLES,
    delivery_mode=st.none() | st.integers(0, 3),
    priority=st.none() | st.integers(0, 12),
    timestamp=st.none() | st.integers(0, (1 << 64) - 1) | st.integers(0, 1 << 32),
    message_id=st.none() | SHORT | st.sampled_from(UUIDS),
    user_id=st.none() | st.just(USER),
    **{name: st.none() | SHORT for name in ("content_type", "correlation_id", "reply_to", "type", "app_id")},
)
any_properties = (
    plain_properties
    | PROPERTIES
    | st.just(BasicProperties(reply_to=REPLIES))
    | st.builds(
        BasicProperties, headers=st.sampled_from(({"CC": ["a"]}, {"BCC": []}, {"JMSType": "x", "_AMQ_GROUP_ID": "g"}))
    )
)
bodies = st.binary(max_size=60) | st.sampled_from((b"", b"x" * 5000, b"y" * 9000, b"z" * 30_000))
methods = st.just(BasicPublish(0, "ex", "key")) | st.builds(
    BasicPublish, st.just(0), st.just("ex"), st.sampled_from(("key", "other")), st.booleans()
)
encoded_publishes = st.builds(
    lambda method, properties, body, channel: content_frames(
        method, encode_properties(properties), body, channel, FRAME_MAX
    ),
    methods, any_properties, bodies, st.sampled_from((1, 1, 1, 1, 2)),
)  # fmt: skip
batches = st.lists(encoded_publishes, max_size=6).map(b"".join)
plain_batches = st.lists(
    st.builds(
        lambda properties, body: content_frames(
            BasicPublish(0, "ex", "key"), encode_properties(properties), body, 1, FRAME_MAX
        ),
        plain_properties, bodies,
    ), min_size=1, max_size=5,
).map(b"".join)  # fmt: skip


def single(data: bytes) -> list[tuple[Publish, int] | None]:
    """The publishes in whole frames of one channel and method, each with the offset after it, up to the first one that
    is more than an ordinary one (None)."""
    decoder = FrameDecoder(FRAME_MAX)
    decoder.receive(data)
    found: list[tuple[Publish, int] | None] = []
    first = None
    while (frame := decoder.next()) is not None:
        first = first or frame
        if frame != first:
            return found
        header = decoder.next()
        if header is None or header.type != FrameType.HEADER or header.channel != first.channel:
            return found
        size, encoded = decode_header(header.payload)
        properties = decode_properties(encoded)
        body = b""
        while len(body) < size:
            piece = decoder.next()
            if piece is None or piece.type != FrameType.BODY or piece.channel != first.channel:
                return found
            body += piece.payload
        publish = Publish("ex", "key", properties, encoded, body)
        found.append((publish, decoder.offset) if is_ordinary(publish) else None)
        if found[-1] is None:
            return found
    return found


def is_ordinary(publish: Publish) -> bool:
    properties = publish.properties
    return (
        properties.expiration is None
        and properties.user_id in (None, USER)
        and properties.reply_to != REPLIES
        and not {"CC", "BCC"} & set(properties.headers or {})
        and len(publish.body) <= LIMITS.body_max
    )


@pytest.mark.parametrize("kernel", KERNELS)
@given(batches, st.sampled_from((-1, 4)))
def test_messages_are_those_of_single_publishes(kernel: Kernel, data: bytes, priority: int) -> None:
    sends, cut = kernel[0].split_publishes(data, 0, LIMITS, target(priority), NOW_MS, 7)
    expected = [each for each in single(data) if each is not None]
    count = 0 if sends is None else sends.count
    # a UUID of an unusual form is left for the other way; nothing else is
    assert count == len(expected) or expected[count][0].properties.message_id in UUIDS
    assert not cut
    for row in range(count):
        publish, end = expected[row]
        message = to_message(publish, "ex", NOW_MS)
        if priority >= 0:
            message = message.replace(priority=priority)
        assert sends.encoded(row) == message.encoded
        assert sends.correlation_ids[row] == 7 + row
        assert sends.durable(row) is message.durable
        if row == count - 1:
            assert sends.end == end


@pytest.mark.parametrize("kernel", KERNELS)
@given(plain_batches, st.data())
def test_a_publish_that_is_cut_off_is_awaited(kernel: Kernel, data: bytes, draw: Any) -> None:
    end = draw.draw(st.integers(1, len(data)))
    method_bytes = len(encode_method(BasicPublish(0, "ex", "key"))) + 8
    cut_off = data[:end]
    sends, cut = kernel[0].split_publishes(cut_off, 0, LIMITS, target(), NOW_MS, 1)
    whole, _ = kernel[0].split_publishes(data, 0, LIMITS, target(), NOW_MS, 1)
    count, all_count = (0 if each is None else each.count for each in (sends, whole))
    assert count <= all_count
    taken_bytes = 0 if sends is None else sends.end
    if cut:
        assert taken_bytes + method_bytes <= end
    elif count < all_count and end - taken_bytes >= method_bytes:
        # nothing of it is missing that comes before a value that makes it another one
        assert kernel[0].split_publishes(cut_off, taken_bytes, LIMITS, target(), NOW_MS, 1) == (None, False)


def check_publishes(data: bytes, start: int = 0, limits: PublishLimits = LIMITS) -> None:
    assert NATIVE is not None
    arguments = (data, start, limits, target(), NOW_MS, 3)
    (found, cut), (expected, expected_cut) = NATIVE.split_publishes(*arguments), publishes.split_publishes(*arguments)
    assert (view_of_sends(found), cut) == (view_of_sends(expected), expected_cut)


@needs_native
@given(batches, st.integers(0, 30), st.integers(1, 5), st.integers(100, 10_000))
def test_publishes_are_split_alike(data: bytes, start: int, count_max: int, body_max: int) -> None:
    check_publishes(data, start, PublishLimits(FRAME_MAX, count_max, body_max))
    check_publishes(data, 0, PublishLimits(FRAME_MAX, count_max, body_max))


@needs_native
@settings(max_examples=200)
@given(st.binary(max_size=120) | batches | plain_batches, st.integers(0, 2**32), st.integers(0, 200))
@example(b"", 0, 0)
def test_changed_publishes_are_split_alike(data: bytes, seed: int, end: int) -> None:
    check_publishes(mutate([data], random.Random(seed), 8192))
    check_publishes(data[:end])


@needs_native
def test_each_byte_changed_is_split_alike() -> None:
    headers = {"s": "é\U0001f600", "i": 1, "l": 1 << 40, "d": 1.5, "b": True, "v": None, "x": b"\xff"}
    headers["a"] = [1, {"n": "y"}]
    properties = BasicProperties("t", "e", headers, 2, 9, "c", "r", None, UUIDS[0], 5, "k", USER, "a")
    one = content_frames(BasicPublish(0, "ex", "key"), encode_properties(properties), b"body", 1, FRAME_MAX)
    data = one + one
    for at, byte in enumerate(data):
        for value in {0, 0xFF, byte ^ 0x80, byte + 1 & 0xFF} - {byte}:
            check_publishes(data[:at] + bytes((value,)) + data[at + 1 :])
    for end in range(len(data)):
        check_publishes(data[:end])


# --- deliveries -------------------------------------------------------------------------------------------------------

core_messages = st.builds(
    lambda body, kind, values: Message(body, address="q", type=kind, properties=Properties(values)),
    st.binary(max_size=20), st.sampled_from(MessageType),
    st.sampled_from((
        {}, {"a": 1}, {PROPERTY_LIST: b"\0\0", EXCHANGE: "e", ROUTING_KEY: "k"}, {PROPERTY_LIST: b"\0\1"},
        {PROPERTY_LIST: b"\0\1", EXCHANGE: "e", ROUTING_KEY: "k"}, {EXCHANGE: "e", PROPERTY_LIST: b"\0\0"},
        {PROPERTY_LIST: b"\0\0", EXCHANGE: "x" * 300, ROUTING_KEY: "k"},
        {PROPERTY_LIST: b"\0\0", EXCHANGE: "\ud800", ROUTING_KEY: "k"},
        {PROPERTY_LIST: "text", EXCHANGE: "e", ROUTING_KEY: "k"},
    )),
)  # fmt: skip
publishes_of_any_route = st.builds(
    lambda properties, body, exchange, key: to_message(
        Publish(exchange, key, properties, encode_properties(properties), body), "address", NOW_MS
    ),
    plain_properties, bodies, st.sampled_from(("", "ex", "é\U0001f600")), SHORT,
)  # fmt: skip
FRAME = DeliveryFrame(5, FRAME_MAX, encode_short("tag"))


def run_of(kernel: Kernel, messages: list[Message]) -> Any:
    """A run of messages that are not durable."""
    encoded = [message.encoded for message in messages]
    of = NATIVE.sends_of if kernel[0] is NATIVE and NATIVE is not None else sends_twin.sends_of
    sends = of(encoded, range(len(encoded)), requires_response=True)
    return kernel[2].keep_sends([(sends, 0, sends.count)], 100)


@pytest.mark.parametrize("kernel", KERNELS)
@given(st.lists(publishes_of_any_route | core_messages, min_size=1, max_size=5), st.booleans())
def test_deliveries_are_those_of_single_messages(kernel: Kernel, messages: list[Message], redelivered: bool) -> None:
    run = run_of(kernel, messages)
    frames, end = kernel[1].run_deliveries(run, 0, run.count, FRAME, 10, redelivered)
    expected = b""
    for row in range(end):
        message = Message.decode(run.encoded(row), trusted=True)
        delivery = to_delivery(message, "unused", FRAME_MAX - 20)
        method = BasicDeliver("tag", 10 + row, redelivered, delivery.exchange, delivery.routing_key)
        expected += content_frames(method, delivery.properties, message.body, 5, FRAME_MAX)
    assert frames == expected
    if end < run.count:
        values = Message.decode(run.encoded(end), trusted=True)
        assert not is_of_this_protocol(values)


def is_of_this_protocol(message: Message) -> bool:
    """Whether the frames of a message are made from its bytes alone."""
    values = message.properties
    encoded, exchange, key = (values.get(name) for name in (PROPERTY_LIST, EXCHANGE, ROUTING_KEY))
    if message.type == MessageType.TEXT or list(values)[:3] != [PROPERTY_LIST, EXCHANGE, ROUTING_KEY]:
        return False
    try:
        decode_properties(encoded)
        return max(len(exchange.encode()), len(key.encode())) <= 255 and len(encoded) <= FRAME_MAX - 20
    except (Amqp091Error, TypeError, UnicodeEncodeError):
        return False


@needs_native
@settings(max_examples=150)
@given(st.lists(publishes_of_any_route | core_messages, min_size=1, max_size=5), st.integers(0, 2**32), st.data())
def test_deliveries_are_framed_alike(messages: list[Message], seed: int, draw: Any) -> None:
    assert NATIVE is not None
    changed = []
    for message in messages:
        encoded = mutate([message.encoded], random.Random(seed), 8192)
        is_whole = sends_twin.sends_of([encoded], [1], requires_response=True).count
        changed.append(encoded if is_whole else message.encoded)
    begin = draw.draw(st.integers(0, len(changed)))
    frame_max = draw.draw(st.sampled_from((19, 20, 28, 60, 200, FRAME_MAX)))
    found = []
    for kernel, of in ((PYTHON, sends_twin.sends_of), ((NATIVE, NATIVE, NATIVE), NATIVE.sends_of)):
        sends = of(changed, range(len(changed)), requires_response=True)
        run = kernel[2].keep_sends([(sends, 0, sends.count)], 100)
        try:
            found.append(kernel[1].run_deliveries(run, begin, run.count, FRAME._replace(frame_max=frame_max), 1, False))
        except ValueError as error:
            found.append(str(error))
    assert found[0] == found[1]
