"""Decoders of data from a socket: frames in both roles, packets, messages, connectors."""

from __future__ import annotations

from functools import cache
from typing import Any

from fuzz.captures import streams
from fuzz.target import Target
from understudy.errors import LocalProtocolError, RemoteProtocolError
from understudy.ids import Xid
from understudy.limits import FRAME_BYTES_BEFORE_LOGIN_MAX
from understudy.message import LargeBody, LargeMessage, Message, large_body_of
from understudy.properties import BYTE, CHAR, FLOAT, SHORT, Properties
from understudy.wire.buffer import Reader
from understudy.wire.core import layout
from understudy.wire.core import packets as p
from understudy.wire.core.codec import AcknowledgeBatch, CommitBatch, FrameDecoder, SendBatch, encode
from understudy.wire.core.http_upgrade import UpgradeRefused, accepted, read_request, split_head
from understudy.wire.core.packets_session import MessageField
from understudy.wire.core.transport import TransportConfiguration
from understudy.wire.detect import detect

VERSIONS = tuple(range(p.VERSION_MIN, p.VERSION + 1))
CONNECTOR = TransportConfiguration("c", parameters={"host": "127.0.0.1", "port": "61616", "ssl": False, "n": 2**40})


def sample_message(body: bytes = b"\0\0\0\x01\x54", **options: Any) -> Message:
    """A message with a property of every kind."""
    values = {"text": "é\U0001f600", "long": -1, "double": 1.5, "yes": True, "raw": b"\0\xff", "null": None}
    properties = Properties(values)
    for name, tag, value in (("byte", BYTE, 1), ("short", SHORT, -2), ("float", FLOAT, 0.5), ("char", CHAR, 65)):
        properties.set_typed(name, tag, value)
    return Message(body, **{"address": "orders", "user_id": bytes(16), "properties": properties, **options})


def _mark(alias: Any) -> layout.Encoding:
    return next(mark for mark in alias.__metadata__ if isinstance(mark, layout.Encoding))


_SAMPLES: dict[layout.Encoding, object] = {
    _mark(alias): value
    for alias, value in (
        (layout.Flag, True),
        (layout.I8, 1),
        (layout.I32, 70_000),
        (layout.I64, 1 << 40),
        (layout.FlagOrNull, True),
        (layout.I32OrNull, 5),
        (layout.I64OrNull, 6),
        (layout.Name, "orders"),
        (layout.NameOrNull, "orders::queue"),
        (layout.SimpleString, "orders"),
        (layout.SimpleStringOrNull, "a = 1 AND b LIKE 'x%'"),
        (layout.Text, "a text of more than nine"),
        (layout.TextOrNull, "short"),
        (layout.SizedBytes, b"some bytes"),
        (layout.SizedTexts, (b"one", b"")),
        (layout.Secret, bytes(32)),
        (layout.Rest, b"the rest"),
        (layout.XidField, Xid(1, b"global", b"branch")),
        (layout.Xids, (Xid(1, b"global", b"branch"), Xid(2, b"", b""))),
        (layout.Names, ("one", "two")),
        (layout.RoutingTypes, (0, 1)),
        (layout.Connector, CONNECTOR),
        (layout.ConnectorOrNull, CONNECTOR),
        (MessageField, sample_message()),
    )
}


@cache
def sample_packets() -> tuple[p.Packet, ...]:
    """One of every type."""
    vote = p.FailoverVote(True, "node", "cluster")
    by_hand: tuple[p.Packet, ...] = (
        p.QuorumVote(p.PRIMARY_FAILOVER_VOTE, vote),
        p.QuorumVoteReply(p.LIVE_FAILOVER_VOTE, vote),
        p.QuorumVoteReply(p.BACKUP_VOTE, p.BackupVote(2, "node", True)),
        p.SessionSendContinuation(b"piece", False, 5, True, 7, 1),
        p.ExceptionResponse(105, "no", 7),
    )
    known = {type(packet) for packet in by_hand}
    made = []
    for packet_type in p.PACKET_TYPES.values():
        if packet_type in known:
            continue
        packet = packet_type(*(_SAMPLES[field.encoding] for field in layout.layout_of(packet_type)))
        if getattr(packet, "exit", False):
            packet.exit = False  # type: ignore[attr-defined]
        made.append(packet)
    return (*by_hand, *made)


@cache
def sample_frames() -> tuple[bytes, ...]:
    """Every packet as a frame for the newest and the oldest version that can say it."""
    frames = []
    for packet in sample_packets():
        for version in (p.VERSION, p.VERSION_MIN):
            try:
                frames.append(encode(packet, 10, version))
            except LocalProtocolError:
                continue
    return tuple(frames)


def _decode(role: Any, limit_bytes: int, data: bytes) -> None:
    """The first byte chooses the version, whether the rest comes in one piece, and whether sends are grouped."""
    if not data:
        return
    version = VERSIONS[data[0] % len(VERSIONS)]
    decoder = FrameDecoder(role, limit_bytes)
    decoder.version = version
    decoder.groups_sends = decoder.groups_acknowledges = bool(data[0] & 0x40)
    rest = data[1:]
    half = len(rest) // 2 if data[0] & 0x80 else len(rest)
    for part in (rest[:half], rest[half:]):
        for frame in decoder.receive_data(part):
            # a decoded packet must be encodable again
            if isinstance(frame.packet, SendBatch):
                sends = frame.packet.sends
                for row in range(sends.count):
                    message = Message.decode(sends.encoded(row))
                    assert (message.address, message.durable) == (sends.address(row), sends.durable(row))
                    encode(p.SessionSend(message, False, 1, 1), frame.channel_id, version)
            elif isinstance(frame.packet, AcknowledgeBatch):
                assert frame.size_bytes == 30 * len(frame.packet.message_ids) > 30
            elif isinstance(frame.packet, CommitBatch):
                assert frame.size_bytes == 43 * len(frame.packet.message_ids) > 0
            else:
                encode(frame.packet, frame.channel_id, version)


def _server(data: bytes) -> None:
    _decode("server", FRAME_BYTES_BEFORE_LOGIN_MAX, data)


def _client(data: bytes) -> None:
    _decode("client", 1 << 20, data)


def _packet(data: bytes) -> None:
    """The first two bytes choose type and version, the rest is the body."""
    if len(data) < 2:
        return
    types = sorted(p.PACKET_TYPES)
    kind = p.PACKET_TYPES[types[data[0] % len(types)]]
    version = VERSIONS[data[1] % len(VERSIONS)]
    packet = kind.read_body(Reader(data[2:]), version)
    encode(packet, 10, version)


def _message(data: bytes) -> None:
    message = Message.decode(data)
    repr(message)
    again = message.replace(message_id=5)
    again.assign_id(6)
    Message.decode(again.encoded)
    try:
        large = large_body_of(data)
    except ValueError:
        large = LargeBody(1, len(message.body), 2)
    LargeMessage.of(message, large, 5)
    p.message_of_header(message.encoded[message.header_offset :])


def _properties(data: bytes) -> None:
    properties, end = Properties.decode(data, 0, len(data))
    again, _ = Properties.decode(properties.encode(), 0, len(properties.encode()))
    assert list(again) == list(properties)
    assert end <= len(data)


def _connector(data: bytes) -> None:
    connector = TransportConfiguration.decode(data)
    TransportConfiguration.decode(connector.encode())
    TransportConfiguration.from_url(connector.to_url())


def _connector_url(data: bytes) -> None:
    connector = TransportConfiguration.from_url(data.decode("utf-8", "replace"))
    connector.encode()
    assert TransportConfiguration.from_url(connector.to_url()).host == connector.host


def _http_upgrade(data: bytes) -> None:
    found = split_head(data)
    if found is not None:
        accepted(read_request(found[0]))


def _detect(data: bytes) -> None:
    for length in range(min(len(data), 16) + 1):
        detect(data[:length])


def _framed(prefix: int, parts: tuple[bytes, ...]) -> list[bytes]:
    return [bytes((prefix,)) + part for part in parts]


def _server_seeds() -> list[bytes]:
    run = encode(p.SessionSend(sample_message(), True, 1, 1), 10) * 3
    return [*_framed(15, sample_frames()), *_framed(15, streams("to-server")), *_framed(15 | 0x40, (run,))]


def _client_seeds() -> list[bytes]:
    return [*_framed(15, sample_frames()), *_framed(15, streams("to-client"))]


def _packet_seeds() -> list[bytes]:
    types = sorted(p.PACKET_TYPES)
    return [
        bytes((types.index(packet.TYPE), len(VERSIONS) - 1)) + encode(packet, 10)[13:] for packet in sample_packets()
    ]


WIRE = (
    Target("frames-server", _server, (RemoteProtocolError,), _server_seeds, memory_per_byte=128, weight=2),
    Target("frames-client", _client, (RemoteProtocolError,), _client_seeds, memory_per_byte=128),
    Target("packets", _packet, (RemoteProtocolError,), _packet_seeds, memory_per_byte=128),
    Target("message", _message, (RemoteProtocolError,), lambda: [sample_message().encoded], memory_per_byte=128),
    Target("properties", _properties, (RemoteProtocolError,), lambda: [sample_message().properties.encode()]),
    Target("connector", _connector, (RemoteProtocolError, LocalProtocolError), lambda: [CONNECTOR.encode()]),
    Target(
        "connector-url",
        _connector_url,
        (RemoteProtocolError, LocalProtocolError),
        lambda: [b"tcp://localhost:61616?sslEnabled=true&a=b%20c", b"tcps://[::1]:5?x=1"],
    ),
    Target(
        "http-upgrade",
        _http_upgrade,
        (UpgradeRefused,),
        lambda: [b"GET / HTTP/1.1\r\nupgrade: activemq-remoting\r\nconnection: upgrade\r\n\r\n"],
    ),
    Target("detect", _detect, (), lambda: [b"ARTEMIS" + bytes(13), b"\x10\x0c\0\4MQTT", b"GET / HTTP/1.1\r\n"]),
)
