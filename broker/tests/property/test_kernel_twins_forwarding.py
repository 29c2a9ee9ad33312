"""Messages between brokers, by the native kernel and by its Python twin, and both against ``Message``.

Goal: messages that a bridge sends, that arrive and that get properties on the way equal the same changes of
``Properties``; the twins differ in nothing. Method: the batches of ``test_kernel_twins_sends``, and messages with
the properties of bridges.
"""

import random
import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fuzz.mutation import mutate
from support.kernel_sends import LIMIT_BYTES, alike_batches, batches, corpus, encode_one, integers, messages
from support.kernel_views import view_of_sends
from support.kernels import NATIVE, both, needs_native
from understudy.kernel import changes, names
from understudy.kernel.core import forwarding, frames
from understudy.message import Message
from understudy.properties import Properties
from understudy.routing.lifecycle.duplicate_ids import forwarded_id_bytes
from understudy.routing.remote import without_routes
from understudy.wire.core.codec import encode, encode_null_response, encode_send
from understudy.wire.core.packets import Acknowledge, Commit

ROUTE = names.ROUTE_TO + "sf.one"
NODE = bytes(range(16))
_I64 = struct.Struct(">q")


@st.composite
def bridged(draw: st.DrawFn) -> bytes:
    """Frames of messages with properties of bridges, often alike."""
    found = []
    template = draw(messages)
    for _ in range(draw(st.integers(1, 6))):
        message = draw(messages) if draw(st.integers(0, 4)) == 0 else template
        properties = message.properties.copy()
        for name in (names.BRIDGE_DUPLICATE_ID, names.ROUTE_TO, ROUTE):
            value = draw(st.sampled_from((None, b"", NODE, b"12345678", bytes(1020), "text", 7)))
            if value is not None and draw(st.integers(0, 3)):
                properties[name] = value
        found.append(encode_one(message.with_properties(properties), 10, True, draw(integers(64))))
    return b"".join(found)


def split(module: Any, data: bytes) -> Any:
    return module.split_sends(data, 0, LIMIT_BYTES, 256)


def entries_of(properties: Properties) -> bytes:
    return properties.encode()[5:]


@needs_native
@given(batches | alike_batches | bridged(), st.integers(0, 4), st.integers(1, 4), st.integers(0, 50), st.integers(0, 2))
def test_picked_messages_are_those_with_the_properties_added(
    data: bytes, row: int, step: int, count: int, added: int
) -> None:
    assert NATIVE is not None
    sends = split(frames, data)
    new = Properties({f"{names.ROUTE_TO}new {number}": _I64.pack(number) for number in range(added)})
    entries = entries_of(new) if added else b""
    picked = changes.pick_sends(sends, row, step, count, entries, added)
    native = NATIVE.pick_sends(split(NATIVE, data), row, step, count, entries, added)
    assert view_of_sends(native) == view_of_sends(picked)
    rows = range(row, sends.count, step)[:count]
    assert picked.count == len(rows)
    for number, each in enumerate(rows):
        message = Message.decode(sends.encoded(each))
        changed = Message.decode(picked.encoded(number))
        assert changed.properties == {**message.properties, **new}
        assert changed.encoded[: message.header_offset + 8] == message.encoded[: message.header_offset + 8]
        same = (sends.address, sends.durable, sends.priority, sends.duplicate_id, sends.expiration, sends.group)
        assert [f(each) for f in same] == [
            f(number)
            for f in (
                picked.address, picked.durable, picked.priority, picked.duplicate_id, picked.expiration, picked.group,
            )
        ]  # fmt: skip
        assert picked.correlation_ids[number] == sends.correlation_ids[each]


@needs_native
@given(bridged() | batches | alike_batches, st.integers(0, 2), st.booleans(), st.randoms())
def test_messages_that_move_lose_the_ids_of_queues_and_get_others(
    data: bytes, added: int, damaged: bool, random: random.Random
) -> None:
    assert NATIVE is not None
    sends = split(frames, data)
    encoded = [sends.encoded(row) for row in range(sends.count)]
    if damaged:
        encoded[-1] = mutate([encoded[-1]], random, 10_000)
    new = Properties({f"{names.ROUTE_TO}new {number}": _I64.pack(number) for number in range(added)})
    arguments = (encoded, entries_of(new) if added else b"", added)
    moved = changes.moved_sends(*arguments)
    assert view_of_sends(NATIVE.moved_sends(*arguments)) == view_of_sends(moved)
    for number in range(moved.count):
        message = Message.decode(encoded[number])
        changed = Message.decode(moved.encoded(number))
        expected = {**without_routes(message.properties), **new}
        assert changed.properties == expected
        assert not any(name.startswith(names.RESERVED_PREFIXES) for name in expected if name not in new)
        assert (changed.body, changed.address, changed.durable) == (message.body, message.address, message.durable)
        fields = moved.address(number), moved.durable(number), moved.priority(number), moved.expiration(number)
        assert fields == (message.address, message.durable, message.priority, message.expiration)
        assert moved.duplicate_id(number) == b""
        assert moved.alike(number, 1 << 30, plain_type(message.properties), 1 << 62, 1 << 62)[0] > 0


def names_once(message: Message) -> bool:
    """Whether the properties are encoded as they are decoded."""
    return message.with_properties(message.properties.copy()).encoded == message.encoded


@needs_native
@given(bridged() | batches, st.integers(0, 3))
def test_what_a_bridge_has_sent_arrives_without_its_properties(data: bytes, row: int) -> None:
    assert NATIVE is not None
    sends = split(frames, data)
    row %= sends.count
    found = changes.split_forwarded(sends, row)
    native = NATIVE.split_forwarded(split(NATIVE, data), row)
    if found is None:
        assert native is None
    else:
        assert native is not None
        assert (view_of_sends(native[0]), native[1]) == (view_of_sends(found[0]), found[1])
    plain, ids = found if found is not None else (None, b"")
    for number in range(plain.count if plain is not None else 0):
        message = Message.decode(sends.encoded(row + number))
        properties = message.properties.copy()
        key = forwarded_id_bytes(properties.pop(names.BRIDGE_DUPLICATE_ID))
        assert properties.pop(names.ROUTE_TO, b"") == ids
        assert not any(name.startswith(names.RESERVED_PREFIXES) for name in properties)
        if names_once(message):
            assert plain.encoded(number) == message.with_properties(properties).encoded
        assert (plain.duplicate_id(number), plain.address(number)) == (key, message.address)
        assert plain.correlation_ids[number] == sends.correlation_ids[row + number]
        assert plain.alike(number, 1 << 30, plain_type(properties), 1 << 62, 1 << 62)[0] > 0


def plain_type(properties: Properties) -> int:
    value = properties.get(names.ROUTING_TYPE, 0)
    return int(value) & 255


def expected_frame(
    message: Message, message_id: int, address: str | None, route: str | None, node_id: bytes, correlation_id: int
) -> bytes:
    properties = without_routes(message.properties)
    if route is not None:
        properties[names.ROUTE_TO] = message.properties[route]
    if node_id:
        properties[names.BRIDGE_DUPLICATE_ID] = node_id + _I64.pack(message_id)
    if address is not None:
        changed = message.replace(address=address, properties=properties, message_id=message.message_id)
    else:
        changed = message.with_properties(properties)
    return encode_send(changed, 10, True, correlation_id)


@needs_native
@given(
    bridged() | alike_batches, st.sampled_from((None, "", "target.é\ud800")), st.booleans(), st.booleans(),
    st.sampled_from((-1, 0, 10, 1 << 30)), integers(40), integers(62),
)  # fmt: skip
def test_a_bridge_sends_what_its_changes_of_each_message_give(
    data: bytes,
    address: str | None,
    routed: bool,
    marked: bool,
    body_bytes_max: int,
    first_id: int,
    correlation_id: int,
) -> None:
    sends = split(frames, data)
    encoded = [sends.encoded(row) for row in range(sends.count)]
    ids = [first_id + 3 * row for row in range(sends.count)]
    raw = None if address is None else address.encode("utf-16-le", "surrogatepass")
    name = ROUTE.encode("utf-16-le") if routed else b""
    node_id = NODE if marked else b""
    arguments = (encoded, ids, raw, name, node_id, body_bytes_max, 10, correlation_id)
    found, count, target = both(forwarding.forward_messages, *arguments)
    expected = []
    decoded = [Message.decode(each) for each in encoded]
    for number, message in enumerate(decoded):
        takes = (
            len(message.body) <= body_bytes_max
            and names.BRIDGE_DUPLICATE_ID not in message.properties
            and (message.address or "") == (decoded[0].address or "")
            and (not routed or isinstance(message.properties.get(ROUTE), bytes))
        )
        if not takes:
            break
        route = ROUTE if routed else None
        expected.append(expected_frame(message, ids[number], address, route, node_id, correlation_id + number))
    assert count == len(expected)
    if all(map(names_once, decoded[:count])):
        assert found == b"".join(expected)
    if count:
        assert target == (decoded[0].address or "").encode("utf-16-le", "surrogatepass")


@needs_native
@given(
    st.lists(integers(64), max_size=8),
    st.binary(max_size=30) | st.just(encode_null_response(11, 5)) | st.just(encode_null_response(10, 5, 129)),
    st.integers(0, 30),
    st.integers(0, 10),
)
@example([-1, 1], b"", 0, 10)
def test_confirmations_are_read_as_the_codec_writes_them(ids: list[int], tail: bytes, cut: int, most: int) -> None:
    data = b"".join(encode_null_response(10, each) for each in ids) + tail
    data = data[: len(data) - cut] if cut else data
    found = both(frames.split_confirms, data, 0, most)
    whole = min(len(data) // 21, len(ids))
    assert found[:whole] == ids[:whole][:most]
    assert len(found) <= most
    both(frames.split_confirms, data, 5, most)


@needs_native
@given(
    st.lists(st.tuples(st.integers(0, 1), integers(64), st.booleans(), st.sampled_from((None, -1, 7))), max_size=8),
    st.binary(max_size=50) | st.just(encode(Commit(), 10, 131)),
    st.integers(0, 60),
    st.integers(0, 10),
)
@example([(0, 1, False, None), (0, 2, False, None), (1, 3, False, None)], b"", 0, 10)
def test_acknowledgements_with_commits_are_read_as_the_codec_writes_them(
    pairs: list[tuple[int, int, bool, int | None]], tail: bytes, cut: int, most: int
) -> None:
    data = b"".join(
        encode(Acknowledge(consumer, message_id, answered), 10)
        + (encode(Commit(), 10, 131) if correlation is None else encode(Commit(correlation), 10))
        for consumer, message_id, answered, correlation in pairs
    )
    size = len(encode(Acknowledge(0, 0, False), 10)) + len(encode(Commit(), 10, 131))
    whole = []
    for number, (consumer, message_id, answered, correlation) in enumerate(pairs):
        if answered or correlation is not None or consumer != pairs[0][0] or len(data) - cut < size * (number + 1):
            break
        whole.append(message_id)
    data = data[: len(data) - cut] if cut else data + tail
    consumer, found = both(frames.split_commits, data, 0, most)
    assert found[: len(whole)] == whole[:most]
    assert consumer == (pairs[0][0] if found and pairs else 0)
    assert len(found) <= most
    both(frames.split_commits, data, 5, most)


@needs_native
@pytest.mark.parametrize(("messages", "ids", "node_id"), [([b""], [], b""), ([], [], b"short")])
def test_wrong_arguments_are_the_same_errors(messages: list[bytes], ids: list[int], node_id: bytes) -> None:
    with pytest.raises(ValueError, match="messages"):
        both(forwarding.forward_messages, messages, ids, None, b"", node_id, 0, 1, 1)


@needs_native
@given(st.integers(0, 1 << 40), st.binary(max_size=8))
def test_damaged_messages_are_refused_alike(seed: int, address: bytes) -> None:
    """Runs are read back from the disk: nothing that is in them may be taken for well formed."""
    for message in (mutate([each[13:-13] for each in corpus()], random.Random(seed), 1_000), b"\0\0\0\x0d"):
        both(forwarding.forward_messages, [message], [7], address, b"", NODE, 1 << 30, 10, 1)
        both(forwarding.forward_messages, [message], [7], None, ROUTE.encode("utf-16-le"), NODE, 1 << 30, 10, 1)
