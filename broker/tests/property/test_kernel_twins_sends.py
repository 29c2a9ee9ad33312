"""The sends of the native kernel and of its Python twin, and both against the codec.

Goal: a row exists exactly for the frames whose message ``Message.decode`` accepts, and has the same values; the twins
differ in nothing. Method: batches of every kind of message, whole, cut, and changed as the fuzzers change them.
"""

import random
from itertools import accumulate, takewhile
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fuzz.captures import streams
from fuzz.mutation import mutate
from support.kernel_sends import (
    KERNELS,
    LIMIT_BYTES,
    SEND,
    Kernel,
    alike_batches,
    batches,
    captured,
    corpus,
    counts_max,
    due_ms,
    duplicate_id_of,
    encode_one,
    group_of,
    limits_bytes,
    messages,
    starts,
    typed_properties,
)
from support.kernel_views import expected_messages, view_of_sends
from support.kernels import NATIVE, needs_native
from understudy import limits
from understudy import properties as typed
from understudy.kernel import names
from understudy.kernel import sends as twin
from understudy.kernel.core import frames
from understudy.kernel.log import runs
from understudy.kernel.sends import Sends
from understudy.message import Message
from understudy.properties import Properties, encode_simple_string

# --- the expected result ----------------------------------------------------------------------------------------------


def closes_group(properties: Properties) -> bool:
    """Whether the number of a message in its group closes the group, or may do so."""
    tag = properties.tag(names.GROUP_SEQUENCE)
    return tag in (typed.FLOAT, typed.DOUBLE) or (
        tag in (typed.BYTE, typed.SHORT, typed.INT, typed.LONG) and properties[names.GROUP_SEQUENCE] == -1
    )


def is_ordinary(message: Message, bytes_max: int, routing_type: int) -> bool:
    properties = message.properties
    if not isinstance(properties.get(names.GROUP_ID, ""), str):
        return False
    if names.GROUP_SEQUENCE in properties and closes_group(properties):
        return False
    if message.expiration < 0 or len(message.encoded) > bytes_max:
        return False
    if names.SCHEDULED_DELIVERY in properties and not due_ms(message):
        return False
    if names.BRIDGE_DUPLICATE_ID in properties:
        return False
    if any(name.startswith(names.RESERVED_PREFIXES) for name in properties):
        return False
    if names.DUPLICATE_ID in properties and not duplicate_id_of(message):
        return False
    if names.ROUTING_TYPE in properties:
        byte = properties.tag(names.ROUTING_TYPE) == typed.BYTE
        return byte and properties[names.ROUTING_TYPE] == routing_type
    return True


def expected_alike(
    found: list[Message], row: int, bytes_max: int, routing_type: int, room_bytes: int, room_count: int
) -> tuple[int, int]:
    def shared(message: Message) -> Any:
        return message.address, message.durable, message.priority, len(duplicate_id_of(message)), due_ms(message) > 0

    first = shared(found[row])
    fitting = takewhile(lambda each: shared(each) == first and is_ordinary(each, bytes_max, routing_type), found[row:])
    sizes = [*accumulate((len(each.encoded) for each in fitting), initial=0)]
    count = min(sum(before < room_bytes for before in sizes[:-1]), room_count)
    return count, sizes[count]


def repeats_a_name(message: Message) -> bool:
    """Whether a name stands twice in the properties: of the decoded ones only the last is left."""
    address, encoded = message.address, message.encoded
    block = message.header_offset + 9 + 1 + 19
    block += 4 + len(address.encode("utf-16-le", "surrogatepass")) if address is not None else 0
    block += 16 if message.user_id is not None else 0
    return encoded[block] != 0 and int.from_bytes(encoded[block + 1 : block + 5]) != len(message.properties)


def check_rows(kernel: Kernel, data: bytes, start: int, limit_bytes: int, count_max: int) -> None:
    sends: Sends | None = kernel[0].split_sends(data, start, limit_bytes, count_max)
    expected = expected_messages(data, start, limit_bytes, count_max)
    if not expected:
        assert sends is None
        return
    assert sends is not None
    found = [message for message, _, _ in expected]
    assert sends.count == len(found)
    assert sends.data is data
    assert sends.end == start + sum(26 + len(message.encoded) for message in found)
    assert sends.requires_response is expected[0][1]
    assert sends.correlation_ids == [each for _, _, each in expected]
    assert sends.correlation_ids is sends.correlation_ids
    repeated = any(map(repeats_a_name, found))
    for row, message in enumerate(found):
        assert sends.encoded(row) == message.encoded
        assert sends.size(row) == len(message.encoded)
        assert (sends.address(row), sends.durable(row), sends.priority(row)) == (
            message.address,
            message.durable,
            message.priority,
        )
        (extent,) = sends.extents(row, 1)
        assert data[extent[0] : extent[2]] == message.encoded
        assert extent[1] - extent[0] == message.header_offset
        if repeated:
            continue
        assert sends.grouped(row, 1) == (names.GROUP_ID in message.properties)
        begin, end = sends.group(row)
        assert (message.encoded[begin:end].decode("utf-16-le", "surrogatepass") if end else None) == group_of(message)
        assert sends.expiration(row) == message.expiration
        assert sends.bytes_of(row, 2) == sum(len(each.encoded) for each in found[row : row + 2])
        assert sends.duplicate_id(row) == duplicate_id_of(message)
        for bytes_max in (1 << 30, len(message.encoded), len(message.encoded) - 1):
            for routing_type in (0, 1):
                for room_bytes in (0, len(message.encoded), 2 * len(message.encoded) + 1, 1 << 62):
                    for room_count in (1, 1 << 62):
                        arguments = (row, bytes_max, routing_type, room_bytes, room_count)
                        *expected, kind = sends.alike(*arguments)
                        assert tuple(expected) == expected_alike(found, *arguments)
                        assert kind & 1 == message.durable
        assert sends.duplicate_ids(row, 2) == [duplicate_id_of(each) for each in found[row : row + 2]]


def check_twins(data: bytes, start: int = 0, limit_bytes: int = LIMIT_BYTES, count_max: int = 256) -> None:
    assert NATIVE is not None
    arguments = (data, start, limit_bytes, count_max)
    assert view_of_sends(NATIVE.split_sends(*arguments)) == view_of_sends(frames.split_sends(*arguments))


@pytest.mark.parametrize("kernel", KERNELS)
@given(batches | alike_batches)
def test_columns_of_messages_alone_are_those_of_their_frames(kernel: Kernel, data: bytes) -> None:
    framed: Sends | None = kernel[0].split_sends(data, 0, LIMIT_BYTES, 256)
    messages = [] if framed is None else [framed.encoded(row) for row in range(framed.count)]
    ids = [] if framed is None else list(framed.correlation_ids)
    found: Sends = kernel[2].sends_of(messages, ids, requires_response=True)
    assert found.data == b"".join(messages)
    assert (found.count, found.end, found.requires_response) == (len(messages), 0, True)
    assert found.correlation_ids == ids
    for row in range(found.count):
        assert framed is not None
        for read in ("address", "durable", "priority", "duplicate_id", "expiration", "group", "encoded", "size"):
            assert getattr(found, read)(row) == getattr(framed, read)(row), read
        assert found.alike(row, 1 << 30, 1, 1 << 62, 256) == framed.alike(row, 1 << 30, 1, 1 << 62, 256)


@needs_native
@given(st.lists(st.binary(max_size=120) | messages.map(lambda each: each.encoded), max_size=6), st.booleans())
def test_columns_of_any_bytes_are_the_same(encoded: list[bytes], requires_response: bool) -> None:
    assert NATIVE is not None
    ids = [7 * number for number in range(len(encoded))]
    found = NATIVE.sends_of(encoded, ids, requires_response=requires_response)
    assert view_of_sends(found) == view_of_sends(twin.sends_of(encoded, ids, requires_response=requires_response))


@pytest.mark.parametrize("kernel", KERNELS)
def test_columns_end_before_the_first_malformed_message(kernel: Kernel) -> None:
    first, *_ = corpus()
    framed = kernel[0].split_sends(first, 0, LIMIT_BYTES, 1)
    message = framed.encoded(0)
    assert kernel[2].sends_of([message, message[:-1], message], [1, 2, 3], requires_response=False).count == 1
    assert kernel[2].sends_of([], [], requires_response=False).count == 0
    with pytest.raises(ValueError, match="1 messages, 2 correlation ids"):
        kernel[2].sends_of([message], [1, 2], requires_response=False)


# --- frames -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
@given(batches | alike_batches, starts, limits_bytes, counts_max)
def test_rows_are_the_messages_that_decode(
    kernel: Kernel, data: bytes, start: int, limit_bytes: int, count_max: int
) -> None:
    check_rows(kernel, data, start, limit_bytes, count_max)


@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=150)
@given(batches | st.sampled_from(corpus()), st.integers(0, 2**32))
def test_rows_of_changed_bytes_are_the_messages_that_decode(kernel: Kernel, data: bytes, seed: int) -> None:
    check_rows(kernel, mutate([data], random.Random(seed), 8192), 0, LIMIT_BYTES, 256)


@needs_native
@given(batches | alike_batches, starts, limits_bytes, counts_max)
def test_columns_are_the_same(data: bytes, start: int, limit_bytes: int, count_max: int) -> None:
    check_twins(data, start, limit_bytes, count_max)


@needs_native
@settings(max_examples=150)
@given(st.binary(max_size=120) | batches | st.sampled_from(corpus()), st.integers(0, 2**32), starts)
@example(b"", 0, 0)
def test_columns_of_changed_bytes_are_the_same(data: bytes, seed: int, start: int) -> None:
    check_twins(data, start)
    check_twins(mutate([data], random.Random(seed), 8192), start)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("number", range(3))
def test_bytes_that_end_anywhere(kernel: Kernel, number: int) -> None:
    data = corpus()[number]
    for end in range(len(data)):
        check_rows(kernel, data[:end], 0, LIMIT_BYTES, 256)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("number", range(3))
def test_each_byte_changed(kernel: Kernel, number: int) -> None:
    data = corpus()[number]
    for at, byte in enumerate(data):
        for value in {0, 0xFF, byte ^ 0x80, byte + 1 & 0xFF} - {byte}:
            check_rows(kernel, data[:at] + bytes((value,)) + data[at + 1 :], 0, LIMIT_BYTES, 256)


@needs_native
def test_captured_bytes_from_every_offset() -> None:
    for stream in streams("to-server"):
        for offset in range(min(len(stream), 600)):
            check_twins(stream, offset, LIMIT_BYTES, 3)


@pytest.mark.parametrize("kernel", KERNELS)
def test_captured_sends(kernel: Kernel) -> None:
    assert captured()
    for data in captured():
        check_rows(kernel, data, 0, LIMIT_BYTES, 256)


def with_block(block: bytes) -> bytes:
    """A frame whose message has this property block."""
    encoded = Message(b"body", address="a").encoded[:-1] + block
    tail = bytes(13)
    return (len(encoded) + 22).to_bytes(4) + bytes((SEND,)) + (10).to_bytes(8) + encoded + tail


def block_of(count: int, entries: bytes) -> bytes:
    return b"\x01" + count.to_bytes(4, signed=True) + entries


LONGEST = "x" * limits.STRING_UNITS_MAX
TOO_LONG = LONGEST + "x"
NULL_ENTRY = bytes(5)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("block", "accepted"),
    [
        (block_of(limits.PROPERTIES_MAX, NULL_ENTRY * limits.PROPERTIES_MAX), True),
        (block_of(limits.PROPERTIES_MAX + 1, NULL_ENTRY * (limits.PROPERTIES_MAX + 1)), False),
        (block_of(-1, b""), False),
        (block_of(0, b""), True),
        (block_of(0, b"\0"), False),
        (block_of(1, b""), False),
        (block_of(1, encode_simple_string(LONGEST) + b"\0"), True),
        (block_of(1, encode_simple_string(TOO_LONG) + b"\0"), False),
        (block_of(1, encode_simple_string("a") + b"\x0a" + encode_simple_string(LONGEST)), True),
        (block_of(1, encode_simple_string("a") + b"\x0a" + encode_simple_string(TOO_LONG)), False),
        (block_of(1, encode_simple_string("a") + b"\x0a\0\0\0\x03abc"), False),
        (block_of(1, encode_simple_string("a") + b"\x04\0\0\0\x03abc"), True),
        (block_of(1, encode_simple_string("a") + b"\x04\xff\xff\xff\xff"), False),
        (block_of(1, b"\0\0\0\x03abc\0"), False),
        (block_of(1, b"\xff\xff\xff\xfe\0"), False),
        (block_of(1, encode_simple_string("a") + b"\x01"), False),
        (block_of(1, encode_simple_string("a") + b"\x0c"), False),
        (block_of(1, encode_simple_string("a") + b"\x07" + bytes(7)), False),
    ],
)
def test_limits_oftyped_properties(kernel: Kernel, block: bytes, accepted: bool) -> None:
    data = with_block(block)
    check_rows(kernel, data, 0, 1 << 30, 256)
    assert (kernel[0].split_sends(data, 0, 1 << 30, 1) is not None) == accepted


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("units", "accepted"), [(limits.NAME_UNITS_MAX, True), (limits.NAME_UNITS_MAX + 1, False)])
@pytest.mark.parametrize("text", ["x", "\ud800"])
def test_limits_of_addresses(kernel: Kernel, units: int, accepted: bool, text: str) -> None:
    data = encode_one(Message(b"", address=text * units), 10, True, 1)
    check_rows(kernel, data, 0, LIMIT_BYTES, 256)
    assert (kernel[0].split_sends(data, 0, LIMIT_BYTES, 1) is not None) == accepted


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("priority", "accepted"), [(0, True), (9, True), (10, False), (127, False), (255, False)])
def test_limits_of_priorities(kernel: Kernel, priority: int, accepted: bool) -> None:
    data = bytearray(encode_one(Message(b"", address="a"), 10, True, 1))
    # before the flag of the properties and the tail of the frame
    data[-15] = priority
    check_rows(kernel, bytes(data), 0, LIMIT_BYTES, 256)
    assert (kernel[0].split_sends(bytes(data), 0, LIMIT_BYTES, 1) is not None) == accepted


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("length", [1, 2, 3, -1, -2, 2**31 - 1, -(2**31)])
def test_lengths_of_addresses(kernel: Kernel, length: int) -> None:
    data = bytearray(encode_one(Message(b"", address="abc"), 10, True, 1))
    at = data.index("abc".encode("utf-16-le")) - 4
    data[at : at + 4] = length.to_bytes(4, signed=True)
    check_rows(kernel, bytes(data), 0, LIMIT_BYTES, 256)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    "entries",
    [
        ((names.DUPLICATE_ID, typed.STRING, "first"), (names.DUPLICATE_ID, typed.INT, 5)),
        ((names.DUPLICATE_ID, typed.INT, 5), (names.DUPLICATE_ID, typed.STRING, "second")),
        ((names.DUPLICATE_ID, typed.STRING, "first"), (names.DUPLICATE_ID, typed.BYTES, b"second")),
        ((names.ROUTING_TYPE, typed.BYTE, 0), (names.ROUTING_TYPE, typed.BYTE, 1)),
        ((names.ROUTING_TYPE, typed.STRING, ""), (names.ROUTING_TYPE, typed.BYTE, 1)),
    ],
)
def test_a_message_with_a_property_twice_is_never_read_as_another_message(
    kernel: Kernel, entries: tuple[tuple[str, int, Any], ...]
) -> None:
    block = block_of(len(entries), b"".join(typed_properties(each).encode()[5:] for each in entries))
    data = with_block(block)
    sends = kernel[0].split_sends(data, 0, LIMIT_BYTES, 1)
    (message,) = (message for message, _, _ in expected_messages(data, 0, LIMIT_BYTES, 1))
    for routing_type in (0, 1):
        if sends.alike(0, 1 << 30, routing_type, 1 << 62, 1)[0]:
            assert is_ordinary(message, 1 << 30, routing_type)
            assert sends.duplicate_id(0) == duplicate_id_of(message)
    if NATIVE is not None:
        check_twins(data)


@pytest.mark.parametrize("kernel", KERNELS)
def test_messages_of_one_address_share_its_string(kernel: Kernel) -> None:
    data = b"".join(encode_one(Message(b"", address=name * 200), 10, True, 1) for name in "ababba")
    sends = kernel[0].split_sends(data, 0, LIMIT_BYTES, 256)
    assert len({id(sends.address(row)) for row in range(sends.count)}) == 2


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("method", ["address", "durable", "priority", "encoded", "size"])
def test_rows_that_are_not_there(kernel: Kernel, method: str) -> None:
    sends = kernel[0].split_sends(corpus()[0], 0, LIMIT_BYTES, 256)
    with pytest.raises(IndexError):
        getattr(sends, method)(sends.count)
    assert sends.duplicate_id(sends.count) == b""
    assert not sends.grouped(sends.count, 5)
    assert list(sends.extents(sends.count, 5)) == []


@needs_native
def test_constants_are_those_of_the_python_modules() -> None:
    assert NATIVE is not None
    constants = NATIVE.constants()
    assert len(constants) == 24
    for name, value in constants.items():
        (module,) = (module for module in (limits, names, runs, frames) if hasattr(module, name))
        assert value == getattr(module, name), name
