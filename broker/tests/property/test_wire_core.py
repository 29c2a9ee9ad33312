"""The CORE codec against everything Hypothesis can think of.

Goals: every packet comes back as it went for every version; how TCP cuts the stream does not
matter; whatever a peer sends raises documented errors only and takes memory in proportion to what
it sent. Method: strategies follow from the layouts, so a new packet is covered when it is declared.
"""

from __future__ import annotations

import dataclasses
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from understudy import properties as typed
from understudy.errors import LimitExceeded, RemoteProtocolError, UnsupportedPacket
from understudy.ids import Xid
from understudy.message import Message
from understudy.properties import Properties
from understudy.wire.core import layout
from understudy.wire.core import packets as p
from understudy.wire.core.codec import FrameDecoder, encode
from understudy.wire.core.packets_session import MessageField
from understudy.wire.core.transport import TransportConfiguration
from understudy.wire.detect import BYTES_MAX, BYTES_NEEDED, Protocol, detect

VERSIONS = range(p.VERSION_MIN, p.VERSION + 1)
quick = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def integers(bits: int) -> st.SearchStrategy[int]:
    bound = 1 << (bits - 1)
    return st.integers(-bound, bound - 1) | st.sampled_from((-bound, -1, 0, 1, bound - 1))


# Lone surrogates are legal in both string forms; the lengths cross all their boundaries.
texts = st.text(st.characters(exclude_categories=()), max_size=12) | st.sampled_from(
    ("", "a" * 8, "a" * 9, "é" * 4094, "a" * 4095, "\U0001f600" * 5, "\ud800x" + "a" * 8)
)
# A surrogate pair written as two characters would come back as the one it is.
texts = texts.map(lambda text: text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass"))
names = texts.filter(lambda text: len(text) < 4096)
blobs = st.binary(max_size=40)
secrets = st.binary(max_size=256)
xids = st.builds(Xid, integers(32), st.binary(max_size=64), st.binary(max_size=64))
connectors = st.builds(
    TransportConfiguration,
    texts,
    texts,
    st.dictionaries(texts, st.booleans() | integers(32) | integers(64) | texts, max_size=4),
)


@st.composite
def property_maps(draw: st.DrawFn) -> Properties:
    values: dict[int, st.SearchStrategy[Any]] = {
        typed.NULL: st.none(),
        typed.BOOLEAN: st.booleans(),
        typed.BYTE: integers(8),
        typed.BYTES: blobs,
        typed.SHORT: integers(16),
        typed.INT: integers(32),
        typed.LONG: integers(64),
        typed.FLOAT: st.floats(width=32),
        typed.DOUBLE: st.floats(),
        typed.STRING: texts,
        typed.CHAR: st.integers(0, 0xFFFF),
    }
    found = Properties()
    for key in draw(st.lists(texts, max_size=4, unique=True)):
        tag = draw(st.sampled_from(sorted(values)))
        found.set_typed(key, tag, draw(values[tag]))
    return found


messages = st.builds(
    Message,
    blobs,
    address=st.none() | names,
    type=st.integers(0, 8),
    durable=st.booleans(),
    priority=st.integers(0, 9),
    expiration=integers(64),
    timestamp=integers(64),
    user_id=st.none() | st.binary(min_size=16, max_size=16),
    properties=property_maps(),
    message_id=integers(64),
)


def encoding_of(alias: Any) -> layout.Encoding:
    return next(mark for mark in alias.__metadata__ if isinstance(mark, layout.Encoding))


def tuples(items: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(items, max_size=4).map(tuple)


STRATEGIES: dict[layout.Encoding, st.SearchStrategy[Any]] = {
    encoding_of(alias): strategy
    for alias, strategy in (
        (layout.Flag, st.booleans()),
        (layout.I8, integers(8)),
        (layout.I32, integers(32)),
        (layout.I64, integers(64)),
        (layout.FlagOrNull, st.none() | st.booleans()),
        (layout.I32OrNull, st.none() | integers(32)),
        (layout.I64OrNull, st.none() | integers(64)),
        (layout.Name, names),
        (layout.NameOrNull, st.none() | names),
        (layout.SimpleString, texts),
        (layout.SimpleStringOrNull, st.none() | texts),
        (layout.Text, texts),
        (layout.TextOrNull, st.none() | texts),
        (layout.SizedBytes, blobs),
        (layout.SizedTexts, tuples(blobs)),
        (layout.Secret, secrets),
        (layout.Rest, blobs),
        (layout.XidField, xids),
        (layout.Xids, tuples(xids)),
        (layout.Names, tuples(names)),
        (layout.RoutingTypes, tuples(integers(8))),
        (layout.Connector, connectors),
        (layout.ConnectorOrNull, st.none() | connectors),
        (MessageField, messages),
    )
}
votes = st.tuples(
    st.sampled_from((p.PRIMARY_FAILOVER_VOTE, p.LIVE_FAILOVER_VOTE)),
    st.builds(p.FailoverVote, st.booleans(), texts, st.none() | texts),
) | st.tuples(names.filter(lambda name: not name.endswith("FailoverQuorumVote")), blobs)
votes |= st.tuples(
    st.just(p.BACKUP_VOTE), st.builds(p.BackupVote, integers(32), st.none() | texts, available=st.booleans())
)
#: Packets whose fields depend on one another, which their layout cannot say.
BY_HAND: dict[type[p.Packet], st.SearchStrategy[Any]] = {
    p.QuorumVote: votes.map(lambda pair: p.QuorumVote(*pair)),
    p.QuorumVoteReply: votes.map(lambda pair: p.QuorumVoteReply(*pair)),
    p.SessionSendContinuation: st.builds(
        lambda body, size, *rest: p.SessionSendContinuation(body, size is None, -1 if size is None else size, *rest),
        blobs,
        st.none() | integers(64),
        st.booleans(),
        integers(64),
        integers(32),
    ),
    p.ExceptionResponse: st.builds(p.ExceptionResponse, integers(32), st.none() | texts, st.none() | integers(64)),
}


def packets_of(packet_type: type[p.Packet]) -> st.SearchStrategy[Any]:
    by_hand = BY_HAND.get(packet_type)
    if by_hand is not None:
        return by_hand
    packets = st.builds(packet_type, *(STRATEGIES[field.encoding] for field in layout.layout_of(packet_type)))
    if "exit" in packet_type.__dataclass_fields__:  # type: ignore[attr-defined]
        return packets.map(without_connectors_if_gone)
    return packets


def without_connectors_if_gone(packet: Any) -> Any:
    return dataclasses.replace(packet, primary=None, backup=None, last=False) if packet.exit else packet


def plain(value: Any) -> Any:
    """Something comparable with ``==``: messages by their bytes and fields, NaN by its name."""
    if isinstance(value, Message):
        fields = [getattr(value, name) for name in Message.__slots__ if name != "properties"]
        return [*fields, sorted((key, value.properties.tag(key), repr(item)) for key, item in value.properties.items())]
    if isinstance(value, p.Packet):
        return [type(value), *(plain(getattr(value, f.name)) for f in dataclasses.fields(value))]  # type: ignore[arg-type]
    return value


SINCE_BY_HAND: dict[type[p.Packet], dict[str, tuple[int, object]]] = {
    p.SessionSend: {"correlation_id": (130, -1), "sender_id": (134, -1)},
    p.SessionSendContinuation: {"correlation_id": (130, -1), "sender_id": (134, -1)},
}


def as_seen_by(packet: Any, version: int) -> Any:
    """The packet with the defaults of all fields that this version does not have."""
    since: dict[str, tuple[int, object]] = dict(SINCE_BY_HAND.get(type(packet), {}))
    for field in layout.layout_of(type(packet)) if type(packet) not in BY_HAND else ():
        if field.since:
            since[field.name] = (field.since, field.default)
    if isinstance(packet, p.ExceptionResponse):
        since["correlation_id"] = (130, None)
    return dataclasses.replace(packet, **{name: value for name, (first, value) in since.items() if version < first})


@pytest.mark.parametrize("packet_type", p.PACKET_TYPES.values(), ids=lambda cls: cls.__name__)
def test_every_packet_comes_back_for_every_version(packet_type: type[p.Packet]) -> None:
    @settings(quick, max_examples=40)
    @given(packets_of(packet_type), integers(64))
    def check(packet: Any, channel_id: int) -> None:
        for version in VERSIONS:
            raw = encode(packet, channel_id, version)
            decoder = FrameDecoder("client")
            decoder.version = version
            (frame,) = decoder.receive_data(raw)
            assert (frame.channel_id, frame.size_bytes) == (channel_id, len(raw))
            assert plain(frame.packet) == plain(as_seen_by(packet, version))
            assert encode(frame.packet, channel_id, version) == raw

    check()


streams = st.lists(
    st.tuples(st.one_of([packets_of(packet_type) for packet_type in p.PACKET_TYPES.values()]), st.integers(0, 20)),
    min_size=1,
    max_size=5,
)


@settings(quick, max_examples=150)
@given(streams, st.lists(st.integers(1, 30), min_size=1, max_size=20), st.booleans())
def test_any_split_gives_the_same_packets(
    stream: list[tuple[p.Packet, int]], sizes: list[int], with_magic: bool
) -> None:
    raw = b"".join(encode(packet, channel_id) for packet, channel_id in stream)
    expected = [(channel_id, plain(packet)) for packet, channel_id in stream]
    data = b"ARTEMIS" + raw if with_magic else raw
    for steps in ([1], [len(data)], sizes):
        decoder = FrameDecoder("server" if with_magic else "client", 1 << 20)
        found, offset, turn = [], 0, 0
        while offset < len(data):
            size = steps[turn % len(steps)]
            found += decoder.receive_data(data[offset : offset + size])
            while decoder.backlog:
                # nothing follows a proof of the password in the same call, because sealed bytes may
                found += decoder.receive_data(b"")
            offset, turn = offset + size, turn + 1
        assert [(frame.channel_id, plain(frame.packet)) for frame in found] == expected
        assert sum(frame.size_bytes for frame in found) == len(raw)
        assert decoder.pending_bytes == 0


def survives(data: bytes, version: int, role: Any = "client") -> None:
    """Decode; documented errors are fine, anything else is not. A decoded packet must encode again."""
    decoder = FrameDecoder(role, 1 << 20)
    decoder.version = version
    try:
        frames = decoder.receive_data(data)
    except (RemoteProtocolError, LimitExceeded, UnsupportedPacket) as error:
        if "of the stream" not in str(error):
            pytest.fail(f"{error!r} names no place")
        return
    for frame in frames:
        encode(frame.packet, frame.channel_id, version)


@settings(quick, max_examples=150)
@given(st.binary(max_size=200), st.sampled_from(VERSIONS), st.sampled_from(("client", "server")))
def test_junk_raises_documented_errors_only(data: bytes, version: int, role: str) -> None:
    survives(data, version, role)


@settings(quick, max_examples=1000)
@given(st.sampled_from(sorted(p.PACKET_TYPES)), st.binary(max_size=120), st.sampled_from(VERSIONS))
def test_junk_in_a_frame_raises_documented_errors_only(packet_type: int, body: bytes, version: int) -> None:
    survives((len(body) + 9).to_bytes(4) + packet_type.to_bytes(1, signed=True) + bytes(8) + body, version)


@settings(quick, max_examples=1000)
@given(
    st.one_of([packets_of(packet_type) for packet_type in p.PACKET_TYPES.values()]),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=4),
    st.integers(0, 40),
    st.sampled_from(VERSIONS),
)
def test_mutated_frames_raise_documented_errors_only(
    packet: p.Packet, changes: list[tuple[int, int]], cut: int, version: int
) -> None:
    raw = bytearray(encode(packet, 10))
    for position, value in changes:
        raw[4 + position % (len(raw) - 4)] = value
    if cut and len(raw) - cut >= 13:
        del raw[-cut:]
    raw[:4] = (len(raw) - 4).to_bytes(4)
    survives(bytes(raw), version)


def measured(call: Callable[[], None]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


#: Bytes taken per byte of input, and besides: an error with its traceback, an empty decoder.
MEMORY_FACTOR, MEMORY_BASE = 100, 64 * 1024


@settings(quick, max_examples=150)
@given(
    st.sampled_from(sorted(p.PACKET_TYPES)),
    st.lists(
        st.sampled_from((b"\x7f\xff\xff\xff", b"\x00\x00\xff\xff", b"\x00\x01\x00\x00", b"\xff", bytes(4))), max_size=12
    ),
    st.integers(0, 12),
    st.sampled_from(VERSIONS),
)
def test_announced_sizes_take_no_memory(packet_type: int, parts: list[bytes], shift: int, version: int) -> None:
    body = bytes(shift) + b"".join(parts)
    raw = (len(body) + 9).to_bytes(4) + packet_type.to_bytes(1, signed=True) + bytes(8) + body
    survives(raw, version)  # once before: layouts and caches are made on first use
    assert measured(lambda: survives(raw, version)) < MEMORY_BASE + MEMORY_FACTOR * len(raw)


def test_the_greediest_frames_stay_in_proportion() -> None:
    count = 16_000
    entries = b"".join(
        b"\x00\x00\x00\x04" + (0x4E00 + number % 64).to_bytes(2, "little") + number.to_bytes(2, "little") + b"\x00"
        for number in range(count)
    )
    header = bytes(8) + b"\x00\x00" + bytes(18) + b"\x04"
    send = b"\x00\x00\x00\x0d" + header + b"\x01" + count.to_bytes(4) + entries + bytes(13)
    bodies = {
        71: send,
        50: b"\xff\x00\x00\xff\x00" + bytes(4 * 0xFF00),
        62: b"\x00\x00\xff\x00" + bytes(12 * 0xFF00),
        -11: bytes(4) + b"\x00\x00\xff\x00" + bytes(0xFF00 + 2),
    }
    for number, body in bodies.items():
        raw = (len(body) + 9).to_bytes(4) + number.to_bytes(1, signed=True) + bytes(8) + body
        found: list[Any] = []
        decoder = FrameDecoder("client")
        used = measured(lambda decoder=decoder, raw=raw, found=found: found.extend(decoder.receive_data(raw)))
        assert len(found) == 1, number
        assert used < MEMORY_BASE + MEMORY_FACTOR * len(raw), number


@settings(quick, max_examples=200)
@given(st.binary(max_size=24))
def test_detection_settles(data: bytes) -> None:
    answers = [detect(data[:size]) for size in range(len(data) + 1)]
    assert all(answer is Protocol.NEED_MORE for answer in answers[:BYTES_NEEDED])
    settled = [answer for answer in answers if answer is not Protocol.NEED_MORE]
    assert len(set(settled)) <= 1
    if len(data) >= BYTES_MAX:
        assert settled
