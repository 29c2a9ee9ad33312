"""AMQP 0-9-1: every method, field table and property list is read as it was written, in pieces of any size."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from understudy.wire.amqp091.frames import FrameDecoder, FrameType, content_frames, encode_frame, method_frame
from understudy.wire.amqp091.layout import METHODS, Kind, Method, decode_method, encode_method, layout_of
from understudy.wire.amqp091.methods import BasicPublish
from understudy.wire.amqp091.properties import (
    BasicProperties,
    decode_header,
    decode_properties,
    encode_properties,
    with_fields,
)
from understudy.wire.amqp091.tables import (
    Decimal,
    Timestamp,
    decode_table,
    encode_table,
    encode_value,
    join_fields,
    raw_fields,
)

SHORT = st.text(st.characters(codec="utf-8"), max_size=63)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="utf-8"), max_size=40),
    st.binary(max_size=40),
    st.builds(Timestamp, st.integers(0, (1 << 64) - 1)),
    st.builds(Decimal, st.integers(0, 255), st.integers(0, (1 << 32) - 1)),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(SHORT, inner, max_size=4), max_leaves=20
)
TABLES = st.dictionaries(SHORT, VALUES, max_size=6)
FIELD_VALUES: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.OCTET: st.integers(0, 255),
    Kind.U16: st.integers(0, (1 << 16) - 1),
    Kind.U32: st.integers(0, (1 << 32) - 1),
    Kind.U64: st.integers(0, (1 << 64) - 1),
    Kind.SHORT_TEXT: SHORT,
    Kind.LONG_BYTES: st.binary(max_size=100),
    Kind.FIELDS: TABLES,
    Kind.BIT: st.booleans(),
}
METHOD_VALUES = st.sampled_from(sorted(METHODS.values(), key=lambda kind: kind.name)).flatmap(
    lambda kind: st.builds(kind, **{name: FIELD_VALUES[encoding] for name, encoding in layout_of(kind)})
)
PROPERTIES = st.builds(
    BasicProperties,
    headers=st.none() | TABLES,
    delivery_mode=st.none() | st.integers(0, 255),
    priority=st.none() | st.integers(0, 255),
    timestamp=st.none() | st.integers(0, (1 << 64) - 1),
    **{
        name: st.none() | SHORT
        for name in (
            "content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id", "type",
            "user_id", "app_id", "cluster_id",
        )
    },
)  # fmt: skip


@given(METHOD_VALUES)
def test_methods_are_read_as_they_were_written(method: Method) -> None:
    assert decode_method(encode_method(method)) == method


@given(TABLES)
def test_tables_are_read_as_they_were_written(table: dict[str, Any]) -> None:
    encoded = encode_table(table)
    assert decode_table(b"before" + encoded + b"after", 6, 6 + len(encoded)) == (table, 6 + len(encoded))
    assert join_fields(dict(raw_fields(encoded))) == encoded


@given(PROPERTIES)
def test_properties_are_read_as_they_were_written(properties: BasicProperties) -> None:
    assert decode_properties(encode_properties(properties)) == properties


@given(PROPERTIES, TABLES)
def test_replaced_headers_leave_the_other_bytes(properties: BasicProperties, changes: dict[str, Any]) -> None:
    encoded = encode_properties(properties)
    changed = with_fields(encoded, headers={name: encode_value(value) for name, value in changes.items()})
    assert decode_properties(changed).headers == (
        {**(properties.headers or {}), **changes} if changes else properties.headers
    )
    assert with_fields(encoded) == encoded


@given(METHOD_VALUES, PROPERTIES, st.binary(max_size=300), st.lists(st.integers(1, 50)), st.integers(20, 4096))
def test_frames_come_in_pieces_of_any_size(
    method: Method, properties: BasicProperties, body: bytes, sizes: list[int], frame_max: int
) -> None:
    encoded = encode_properties(properties)
    stream = method_frame(method, 7) + content_frames(BasicPublish(0, "x", "k"), encoded, body, 3, frame_max)
    decoder = FrameDecoder(1 << 20)
    found = []
    while stream:
        size = sizes.pop() if sizes else len(stream)
        decoder.receive(stream[:size])
        stream = stream[size:]
        while (frame := decoder.next()) is not None:
            found.append(frame)
    assert decoder.held_bytes == 0
    assert found[0] == (FrameType.METHOD, 7, encode_method(method))
    assert decode_header(found[2].payload) == (len(body), encoded)
    assert b"".join(frame.payload for frame in found[3:]) == body
    assert all(len(frame.payload) + 8 <= frame_max for frame in found[3:])
    assert encode_frame(*found[0]) == method_frame(method, 7)


@given(
    st.lists(st.tuples(st.sampled_from((1, 2, 3)), st.integers(0, 3), st.binary(max_size=40)), max_size=8), st.data()
)
def test_frames_are_cut_alike_in_pieces(frames: list[tuple[int, int, bytes]], draw: Any) -> None:
    data = b"".join(encode_frame(*frame) for frame in frames)
    decoder = FrameDecoder(4096)
    found: list[Any] = []
    at = 0
    while at < len(data):
        size = draw.draw(st.sampled_from((1, 2, 5, 30, 200)))
        decoder.receive(memoryview(data)[at : at + size])
        at += size
        # some of the frames are left for later, as at the end of a turn
        for _ in range(draw.draw(st.integers(0, 3))):
            frame = decoder.next()
            found += [] if frame is None else [tuple(frame)]
            if draw.draw(st.booleans()):
                decoder.more()
    while (frame := decoder.next()) is not None:
        found.append(tuple(frame))
    assert found == frames
    assert not decoder.held_bytes
