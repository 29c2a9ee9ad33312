"""The sends, runs and deliveries of the native kernel and of its Python twin, and both against the codec and the store.

Goal: a row exists exactly for the frames whose message ``Message.decode`` accepts, and says the same; the records are
those that ``MessageStore`` writes; the twins differ in nothing. Method: batches of every kind of message, whole, cut,
and changed as the fuzzers change them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from itertools import accumulate, pairwise, takewhile
from struct import pack
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fuzz.captures import streams
from fuzz.mutation import mutate
from support.kernel_views import expected_messages, view_of_run, view_of_sends
from support.kernels import NATIVE, needs_native
from support.store import Rig
from understudy import limits
from understudy import properties as typed
from understudy.kernel import deliveries, frames, log, names
from understudy.kernel.frames import Sends
from understudy.kernel.log import LogPosition
from understudy.message import Message
from understudy.properties import Properties, encode_simple_string
from understudy.store.log.records import AddressRecord, QueueRecord
from understudy.store.message_store import MessageStore
from understudy.wire.core.codec import encode_null_response, encode_send

Kernel = Any
#: The twins by their modules; the native ones all lie in one.
PYTHON: tuple[ModuleType, ...] = (frames, log, deliveries)
KERNELS = (
    pytest.param(PYTHON, id="python"),
    pytest.param((NATIVE, NATIVE, NATIVE), id="native", marks=needs_native),
)
SEND = 71
LIMIT_BYTES = 4 * 1024 * 1024

# --- input ------------------------------------------------------------------------------------------------------------


def integers(bits: int) -> st.SearchStrategy[int]:
    bound = 1 << (bits - 1)
    return st.integers(-bound, bound - 1) | st.sampled_from((-bound, -1, 0, 1, bound - 1))


texts = st.text(st.characters(exclude_categories=()), max_size=8) | st.sampled_from(
    ("", "_", "é", "\U0001f600", "\ud800", "\udc00\ud800", "x\udfff")
)
# pairs of surrogates come back as the character that they are
texts = texts.map(lambda text: text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass"))
#: Names that matter to the broker, and their neighbours.
marked = st.sampled_from(
    (
        *(names.ROUTING_TYPE, names.DUPLICATE_ID, names.SCHEDULED_DELIVERY, names.GROUP_ID, names.GROUP_SEQUENCE),
        *names.RESERVED_PREFIXES,
        *(prefix[:-1] for prefix in names.RESERVED_PREFIXES),
        *(prefix + "X" for prefix in names.RESERVED_PREFIXES),
        *(name + "X" for name in (names.ROUTING_TYPE, names.DUPLICATE_ID, names.SCHEDULED_DELIVERY, names.GROUP_ID)),
        "_AMQ_",
        "_",
        "\uff5fAMQ_GROUP_ID",
    )
)
VALUES: dict[int, st.SearchStrategy[Any]] = {
    typed.NULL: st.none(),
    typed.BOOLEAN: st.booleans(),
    typed.BYTE: integers(8) | st.sampled_from((0, 1)),
    typed.BYTES: st.binary(max_size=20),
    typed.SHORT: integers(16),
    typed.INT: integers(32),
    typed.LONG: integers(64),
    typed.FLOAT: st.floats(width=32),
    typed.DOUBLE: st.floats(),
    typed.STRING: texts,
    typed.CHAR: st.integers(0, 0xFFFF),
}


@st.composite
def property_maps(draw: st.DrawFn) -> Properties:
    found = Properties()
    for key in draw(st.lists(texts | marked, max_size=4, unique=True)):
        tag = draw(st.sampled_from(sorted(VALUES)))
        found.set_typed(key, tag, draw(VALUES[tag]))
    return found


def _properties(*entries: tuple[str, int, Any]) -> Properties:
    found = Properties()
    for key, tag, value in entries:
        found.set_typed(key, tag, value)
    return found


#: Those of ordinary clients, so that neighbours are often alike.
ordinary = st.sampled_from(
    (
        (),
        ((names.ROUTING_TYPE, typed.BYTE, 1),),
        ((names.ROUTING_TYPE, typed.BYTE, 0),),
        ((names.GROUP_ID, typed.STRING, "group"),),
        ((names.GROUP_ID, typed.STRING, "\ud800 é\U0001f600"), ("number", typed.INT, 1)),
        ((names.GROUP_ID, typed.STRING, "group"), (names.GROUP_SEQUENCE, typed.INT, 1)),
        ((names.GROUP_ID, typed.STRING, "group"), (names.GROUP_SEQUENCE, typed.INT, -1)),
        ((names.GROUP_ID, typed.STRING, "group"), (names.GROUP_SEQUENCE, typed.DOUBLE, 1.0)),
        ((names.DUPLICATE_ID, typed.STRING, "number 1"),),
        ((names.DUPLICATE_ID, typed.STRING, "number 2"), ("number", typed.INT, 1)),
        ((names.DUPLICATE_ID, typed.BYTES, b"bytes ids"),),
        ((names.DUPLICATE_ID, typed.STRING, "\ud800\U0001f600é"),),
        ((names.DUPLICATE_ID, typed.BYTES, bytes(limits.DUPLICATE_ID_BYTES_MAX)),),
        ((names.DUPLICATE_ID, typed.STRING, "é" * (limits.DUPLICATE_ID_BYTES_MAX // 2 + 1)),),
    )
).map(lambda entries: _properties(*entries))
addresses = st.sampled_from(("a", "a", "a", "orders.é", None, "", "\ud83d", "\U0001f600", "x" * 300))
messages = st.builds(
    Message,
    st.binary(max_size=40),
    address=addresses | texts,
    type=st.integers(0, 8),
    durable=st.booleans() | st.just(True),
    priority=st.integers(0, 9) | st.just(4),
    expiration=st.just(0) | st.integers(1, 10) | integers(64),
    timestamp=integers(64),
    user_id=st.none() | st.binary(min_size=16, max_size=16),
    properties=ordinary | property_maps(),
    message_id=integers(64),
)


def encode_one(message: Message, channel_id: int, requires_response: bool, correlation_id: int) -> bytes:
    return encode_send(message, channel_id, requires_response, correlation_id)


#: Neighbouring frames, mostly of one channel and alike in what they want.
batches = st.lists(
    st.builds(
        encode_one, messages, st.sampled_from((10,) * 9 + (11,)), st.sampled_from((True,) * 9 + (False,)), integers(64)
    ),
    min_size=1,
    max_size=8,
).map(b"".join)
alike_batches = st.builds(lambda message, count: encode_one(message, 10, True, 7) * count, messages, st.integers(1, 40))
starts = st.just(0) | st.integers(0, 60)
limits_bytes = st.just(LIMIT_BYTES) | st.integers(0, 200)
counts_max = st.just(256) | st.integers(0, 3)


@cache
def captured() -> tuple[bytes, ...]:
    """SESS_SEND frames of real clients, with what comes behind them."""
    found = []
    for stream in streams("to-server"):
        offset = stream.find(b"ARTEMIS") + 7 if stream.startswith(b"ARTEMIS") else 0
        while offset + 13 <= len(stream):
            if stream[offset + 4] == SEND:
                found.append(stream[offset : offset + 2000])
            offset += 4 + int.from_bytes(stream[offset : offset + 4])
    return tuple(found)


@cache
def corpus() -> tuple[bytes, ...]:
    """Batches that the changes begin with."""
    rich = _properties(
        *((f"name {tag}", tag, value) for tag, value in ((typed.STRING, "é\ud800"), (typed.BYTES, b"raw"))),
        *((f"name {tag}", tag, 1) for tag in (typed.BYTE, typed.SHORT, typed.INT, typed.LONG, typed.CHAR)),
        *((f"name {tag}", tag, 0.5) for tag in (typed.FLOAT, typed.DOUBLE)),
        ("null", typed.NULL, None),
        ("yes", typed.BOOLEAN, True),
        (names.ROUTING_TYPE, typed.BYTE, 1),
        (names.DUPLICATE_ID, typed.STRING, "text"),
    )
    plain = encode_one(Message(b"body", address="orders"), 10, True, 1)
    full = encode_one(Message(b"body", address="orders", user_id=bytes(16), properties=rich), 10, True, 2)
    group = Properties({names.GROUP_ID: "g"})
    grouped = encode_one(Message(b"", address="orders", properties=group), 10, True, 3)
    return (plain * 3, full * 2, plain + full + grouped, *captured()[:20])


# --- what is expected -------------------------------------------------------------------------------------------------


def duplicate_id_of(message: Message) -> bytes:
    value = message.properties.get(names.DUPLICATE_ID)
    key = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return key if isinstance(key, bytes) and len(key) <= limits.DUPLICATE_ID_BYTES_MAX else b""


def closes_group(properties: Properties) -> bool:
    """Whether the number of a message in its group closes the group, or may do so."""
    tag = properties.tag(names.GROUP_SEQUENCE)
    return tag in (typed.FLOAT, typed.DOUBLE) or (
        tag in (typed.BYTE, typed.SHORT, typed.INT, typed.LONG) and properties[names.GROUP_SEQUENCE] == -1
    )


def group_of(message: Message) -> str | None:
    group = message.properties.get(names.GROUP_ID)
    return group if isinstance(group, str) else None


def is_ordinary(message: Message, bytes_max: int, routing_type: int) -> bool:
    properties = message.properties
    if not isinstance(properties.get(names.GROUP_ID, ""), str):
        return False
    if names.GROUP_SEQUENCE in properties and closes_group(properties):
        return False
    if message.expiration < 0 or len(message.encoded) > bytes_max or names.SCHEDULED_DELIVERY in properties:
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
        return message.address, message.durable, message.priority, len(duplicate_id_of(message))

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
def test_limits_of_properties(kernel: Kernel, block: bytes, accepted: bool) -> None:
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
def test_a_message_with_a_name_twice_is_never_taken_as_what_it_is_not(
    kernel: Kernel, entries: tuple[tuple[str, int, Any], ...]
) -> None:
    block = block_of(len(entries), b"".join(_properties(each).encode()[5:] for each in entries))
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
    assert len(constants) == 13
    for name, value in constants.items():
        (module,) = (module for module in (limits, names, log) if hasattr(module, name))
        assert value == getattr(module, name), name


# --- records ----------------------------------------------------------------------------------------------------------

ids = st.integers(1, 2**62)
positions = st.builds(
    LogPosition,
    segment=st.integers(1, 2**31),
    offset=st.integers(0, 2**20),
    room=st.just(2**31) | st.integers(-10, 3_000),
    sequence=st.integers(0, 2**63),
    batch=st.integers(0, 2**32 - 1),
    seed=st.integers(0, 2**32 - 1),
)


@needs_native
@given(
    batches | alike_batches, st.integers(0, 5), st.integers(0, 50), ids, ids, st.lists(ids, max_size=5).map(tuple),
    st.just(0) | ids, positions, st.lists(st.integers(0, 30), max_size=4), st.booleans(), st.booleans(),
)  # fmt: skip
def test_runs_are_the_same(
    data: bytes,
    row: int,
    count: int,
    first_id: int,
    address_id: int,
    queue_ids: tuple[int, ...],
    transaction_id: int,
    position: LogPosition,
    cuts: list[int],
    reverse: bool,
    beyond: bool,
) -> None:
    assert NATIVE is not None
    sends, native = frames.split_sends(data, 0, LIMIT_BYTES, 256), NATIVE.split_sends(data, 0, LIMIT_BYTES, 256)
    assert sends is not None
    row %= sends.count
    count = sends.alike(row, 1 << 30, 1, 1 << 62, count)[0]
    position = position._replace(room=position.offset + position.room)
    # parts of several reads, in the order of their rows or not, some with fewer messages than they name
    cuts = sorted(min(cut, count) for cut in cuts)
    bounds = list(pairwise((0, *cuts, count)))
    extents = [(row + begin, end - begin) for begin, end in (bounds[::-1] if reverse else bounds)]
    if beyond:
        extents.append((sends.count - 1 if count else row, 5 if count == sends.count - row else 0))
    extents = [each for each in extents if each[1]] or [(row, 0)]
    native_parts, parts = ([(each, *extent) for extent in extents] for each in (native, sends))
    assert view_of_run(NATIVE.keep_sends(native_parts, first_id)) == view_of_run(log.keep_sends(parts, first_id))
    arguments = (first_id, address_id, queue_ids, transaction_id, position)
    found = NATIVE.append_sends(native_parts, *arguments)
    assert view_of_run(found) == view_of_run(log.append_sends(parts, *arguments))
    assert type(found.grouped) is bool
    whole = [(native, row, count)]
    if not (reverse or beyond):
        assert view_of_run(found) == view_of_run(NATIVE.append_sends(whole, *arguments))


@needs_native
@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(batches, st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=4),
    st.sampled_from((0, 0, 3)),
    st.lists(st.integers(0, 3), min_size=4, max_size=4),
)
def test_the_same_joined_run_from_either_kernel(
    parts: list[tuple[bytes, int, int]], segment: int, gaps: list[int]
) -> None:
    """Rows of several runs are one run, whose messages, places and ids are theirs."""
    both: list[list[tuple[Any, int, int]]] = [[], []]
    next_id = offset = 100
    for (data, begin, count), gap in zip(parts, gaps, strict=False):
        next_id += gap
        run = None
        for each, split, append, keep in (
            (both[0], frames.split_sends, log.append_sends, log.keep_sends),
            (both[1], NATIVE.split_sends, NATIVE.append_sends, NATIVE.keep_sends),
        ):
            sends = split(data, 0, LIMIT_BYTES, 256)
            taken = sends.alike(0, 1 << 30, 1, 1 << 62, 256)[0] if sends is not None else 0
            if not taken:
                continue
            if segment:
                run = append([(sends, 0, taken)], next_id, 5, (7,), 0, LogPosition(segment, offset, 1 << 40, 0, 0, 0))
            else:
                run = keep([(sends, 0, taken)], next_id)
            end = min(run.count, begin + count)
            if begin < end:
                each.append((run, begin, end))
        if run is not None:
            next_id, offset = next_id + run.count, offset + len(run.data)
    if not both[0]:
        return
    found, expected = NATIVE.join_runs(both[1]), log.join_runs(both[0])
    assert view_of_run(found) == view_of_run(expected)
    rows = [(run, row) for run, begin, end in both[0] for row in range(begin, end)]
    assert [expected.encoded(row) for row in range(expected.count)] == [run.encoded(row) for run, row in rows]
    assert expected.ids(0, expected.count) == [run.first_id + row for run, row in rows]
    if segment:
        assert [expected.place(row) for row in range(expected.count)] == [run.place(row) for run, row in rows]
    # and of joined runs again
    last = expected.count
    twice = log.join_runs([(expected, 0, 1), *([(expected, 1, last)] if last > 1 else [])])
    assert view_of_run(twice) == view_of_run(expected)
    again = NATIVE.join_runs([(found, 0, 1), *([(found, 1, last)] if last > 1 else [])])
    assert view_of_run(again) == view_of_run(found)


@pytest.mark.parametrize("kernel", KERNELS)
def test_runs_that_cannot_be_joined(kernel: Kernel) -> None:
    sends = kernel[0].split_sends(corpus()[0], 0, LIMIT_BYTES, 256)
    run = kernel[1].keep_sends([(sends, 1, 50)], 9)
    logged = kernel[1].append_sends([(sends, 1, 2)], 11, 1, (1,), 0, LogPosition(1, 0, 1 << 40, 0, 0, 0))
    for parts in ([], [(run, 0, 3)], [(run, 1, 1)], [(run, 0, 2), (run, 0, 2)], [(run, 0, 2), (logged, 0, 1)]):
        with pytest.raises(ValueError, match=r"row|rising"):
            kernel[1].join_runs(parts)


@pytest.mark.parametrize("kernel", KERNELS)
def test_rows_that_a_run_has_not(kernel: Kernel) -> None:
    sends = kernel[0].split_sends(corpus()[0], 0, LIMIT_BYTES, 256)
    run = kernel[1].keep_sends([(sends, 1, 50)], 9)
    assert run.count == 2
    for read in (run.encoded, run.size, run.place):
        with pytest.raises(IndexError):
            read(2)
    with pytest.raises(IndexError):
        run.receives(0, 3, 1, 1)
    with pytest.raises(IndexError):
        run.bytes_between(0, 3)
    assert run.receives(2, 2, 1, 1) == run.receives(5, 2, 1, 1) == b""
    assert kernel[1].keep_sends([(sends, 3, 50)], 9).count == 0
    with pytest.raises(IndexError):
        kernel[1].append_sends([(sends, 3, 1)], 9, 1, (1,), 0, LogPosition(1, 0, 5_000, 1, 0, 0))


class Log:
    """A store whose records are looked at before they are written."""

    def __init__(self) -> None:
        self.rig = Rig(random.Random(1), segment_bytes=1 << 20)
        self.store: MessageStore = self.rig.activate("a")
        self.address_id, self.queue_id = self.store.next_id(), self.store.next_id()
        self.store.store_address(AddressRecord(self.address_id, "a", (1,)))
        self.other_id = self.store.next_id()
        self.store.store_queue(QueueRecord(self.queue_id, self.address_id, "q", 1))
        self.store.store_queue(QueueRecord(self.other_id, self.address_id, "other", 1))

    def position(self, size_bytes: int) -> LogPosition:
        """Where the log ends, with at least that much room before the end of the segment."""
        self.store.flush()
        self.rig.settle()
        journal = self.store._journal
        if journal.offset + size_bytes > journal.room:
            journal.make_room(size_bytes)
        return LogPosition(journal.number, journal.offset, journal.room, journal.sequence, journal.batch, journal.seed)

    def written_by(self, work: Callable[[], object]) -> bytes:
        """The records that ``work`` appends."""
        parts = self.store._journal.parts
        before = len(parts)
        work()
        assert self.store._journal.parts is parts
        return b"".join(parts[before:])


@pytest.mark.parametrize("kernel", KERNELS)
def test_records_are_those_of_the_store(kernel: Kernel) -> None:
    told = Log()

    @settings(max_examples=60)
    @given(batches | alike_batches, st.sampled_from((0, 0, 77)), st.booleans())
    def check(data: bytes, transaction_id: int, both: bool) -> None:
        sends = kernel[0].split_sends(data, 0, LIMIT_BYTES, 256)
        queue_ids = (told.queue_id, told.other_id) if both else (told.queue_id,)
        count = sends.alike(0, 1 << 30, 1, 1 << 62, 256)[0]
        if not count or not sends.durable(0):
            return
        position = told.position(4 * len(data) + 200 * count)
        first_id = told.store.last_id + 1
        told.store.last_id += count
        run = kernel[1].append_sends(
            [(sends, 0, count)], first_id, told.address_id, queue_ids, transaction_id, position
        )
        assert run.count == count

        def store() -> None:
            for row in range(count):
                message = Message.decode(sends.encoded(row))
                message.assign_id(first_id + row)
                duplicate_id = duplicate_id_of(message)
                place = told.store.store_message(
                    message, told.address_id, queue_ids, tx_id=transaction_id, duplicate_id=duplicate_id
                )
                assert place == run.segment << 64 | run.place(row)[0] << 32 | run.place(row)[1]
                assert run.encoded(row) == message.encoded
                assert run.expiration(row) == message.expiration
                assert list(run.groups(row, row + 1)) == [group for group in (group_of(message),) if group is not None]

        assert told.written_by(store) == run.data

    check()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", [list, tuple, range])
def test_acknowledgements_are_those_of_the_store(kernel: Kernel, kind: Any) -> None:
    told = Log()

    @settings(max_examples=30)
    @given(st.integers(1, 300), st.integers(1, 2**40), st.sampled_from((0, 77)))
    def check(count: int, first_id: int, tx_id: int) -> None:
        message_ids = range(first_id, first_id + count) if kind is range else kind(range(first_id, first_id + count))
        position = told.position(8 * count + 100)
        record = kernel[2].acknowledge_record(
            told.queue_id, tx_id, message_ids, position.sequence + 1, position.batch, position.seed
        )
        assert record == told.written_by(lambda: told.store.store_acknowledges(told.queue_id, message_ids, tx_id))

    check()


@needs_native
@given(
    ids, ids, st.lists(ids, max_size=20) | st.builds(range, st.integers(0, 90), ids.map(lambda n: n % 200)), ids,
    st.integers(0, 2**32 - 1),
)  # fmt: skip
@example(1, 0, range(9, 0, -2), 5, 6)
@example(1, 0, range(5, 0), 5, 6)
def test_acknowledgements_are_the_same(
    queue_id: int, transaction_id: int, message_ids: Any, sequence: int, seed: int
) -> None:
    assert NATIVE is not None
    arguments = (queue_id, transaction_id, message_ids, sequence, seed // 2, seed)
    assert NATIVE.acknowledge_record(*arguments) == deliveries.acknowledge_record(*arguments)


@needs_native
@pytest.mark.parametrize("message_ids", [range(1 << 60), 5, None, ["1"]])
def test_acknowledgements_of_no_ids_are_refused(message_ids: Any) -> None:
    assert NATIVE is not None
    with pytest.raises((TypeError, OverflowError)):
        NATIVE.acknowledge_record(1, 0, message_ids, 1, 1, 1)


@pytest.mark.parametrize("kernel", KERNELS)
@given(st.lists(st.tuples(st.binary(max_size=40), integers(32)), max_size=8), integers(64), integers(64))
def test_frames_of_single_messages(
    kernel: Kernel, messages: list[tuple[bytes, int]], channel_id: int, consumer_id: int
) -> None:
    found = kernel[2].receives(
        [each for each, _ in messages], [count for _, count in messages], channel_id, consumer_id
    )
    expected = [
        pack(">ibq", len(each) + 21, 75, channel_id) + each + pack(">qi", consumer_id, count)
        for each, count in messages
    ]
    assert found == b"".join(expected)
    with pytest.raises(ValueError, match="counts"):
        kernel[2].receives([b"x"], [], channel_id, consumer_id)


@pytest.mark.parametrize("kernel", KERNELS)
@given(integers(64), st.lists(integers(64), max_size=20) | st.builds(range, st.integers(0, 20)))
def test_confirmations_are_those_of_the_codec(kernel: Kernel, channel_id: int, correlation_ids: Any) -> None:
    one_by_one = b"".join(encode_null_response(channel_id, each) for each in correlation_ids)
    assert kernel[2].confirms(channel_id, correlation_ids) == one_by_one
