"""Attacks on a running node over AMQP 0-9-1, with plain sockets: what each gets, and that the node serves on.

The single limits have tests of their own (``unit/protocols/test_amqp091_attacks.py``).
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from support.nodes import Nodes
from support.processes import Node, assert_serves
from understudy import limits
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.frames import (
    HEARTBEAT,
    PROTOCOL_HEADER,
    PROTOCOL_HEADER_0_9,
    FrameDecoder,
    FrameType,
    content_frames,
    encode_frame,
    method_frame,
)
from understudy.wire.amqp091.layout import Method, decode_method, encode_method
from understudy.wire.amqp091.properties import BasicProperties, encode_header, encode_properties

PLAIN = b"\0u\0p"
NO_PROPERTIES = encode_properties(BasicProperties())
START_OK = method_frame(m.ConnectionStartOk({}, "PLAIN", PLAIN, "en_US"), 0)
OPEN_CHANNEL = method_frame(m.ChannelOpen(), 1)
PUBLISH = method_frame(m.BasicPublish(0, "", "q"), 1)
#: How much more memory a node may have after a client was refused that had reached its limits. KiB.
GROWTH_KIB_MAX = 3 * limits.AMQP091_CONTENTS_OF_CONNECTION_BYTES_MAX // 1024


@pytest.fixture(scope="module")
def node(nodes_of_module: Nodes) -> Iterator[Node]:
    made = nodes_of_module.active().primary
    yield made
    # a client of the other protocol too
    assert_serves(made)


@pytest.fixture(autouse=True)
def _serves_on(node: Node) -> Iterator[None]:
    yield
    with Client(node) as client:
        client.open().send(method_frame(m.QueueDeclare(0, "honest", no_wait=True), 1))
        client.send(content_frames(m.BasicPublish(0, "", "honest"), NO_PROPERTIES, b"safe", 1, 4096))
        client.send(method_frame(m.BasicGet(0, "honest", no_ack=True), 1))
        client.wait_for(m.BasicGetOk)
    assert "internal error" not in node.log.read_text()


class Client:
    """A connection to the node."""

    def __init__(self, node: Node) -> None:
        self.socket = socket.create_connection(("127.0.0.1", node.port), timeout=60)
        self.name = "{}:{}".format(*self.socket.getsockname()[:2])
        self._decoder = FrameDecoder(1 << 20)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes, of which the node may refuse to read the rest."""
        with suppress(ConnectionError):
            self.socket.sendall(data)

    def next(self) -> Method | None:
        """The next method; None: the node has closed the connection."""
        while True:
            frame = self._decoder.next()
            if frame is not None and frame.type == FrameType.METHOD:
                return decode_method(frame.payload)
            if frame is None:
                try:
                    data = self.socket.recv(65536)
                except ConnectionError:
                    return None
                if not data:
                    return None
                self._decoder.receive(data)

    def wait_for(self, *kinds: type[Method]) -> Method:
        """The next method of one of these kinds."""
        while not isinstance(method := self.next(), kinds):
            assert method is not None, "the node closed the connection"
        return method

    def open(self, *, frame_max: int = limits.AMQP091_FRAME_BYTES_MAX) -> Client:
        """The handshake, and the channel 1."""
        tune_ok = m.ConnectionTuneOk(limits.AMQP091_CHANNELS_MAX, frame_max, 0)
        self.send(PROTOCOL_HEADER)
        self.wait_for(m.ConnectionStart)
        self.send(START_OK)
        self.wait_for(m.ConnectionTune)
        self.send(method_frame(tune_ok, 0) + method_frame(m.ConnectionOpen("/"), 0) + OPEN_CHANNEL)
        self.wait_for(m.ChannelOpenOk)
        return self


def nested(levels: int) -> bytes:
    """A table of tables."""
    table = (0).to_bytes(4, "big")
    for _ in range(levels):
        body = b"\x01a" + b"F" + table
        table = len(body).to_bytes(4, "big") + body
    return table


def header(size_bytes: int, properties: bytes = NO_PROPERTIES) -> bytes:
    """A header frame on channel 1."""
    return encode_frame(FrameType.HEADER, 1, encode_header(size_bytes, properties))


def start_ok(table: bytes) -> bytes:
    """connection.start-ok with encoded client properties."""
    whole = encode_method(m.ConnectionStartOk({}, "PLAIN", PLAIN, "en_US"))
    return encode_frame(FrameType.METHOD, 0, whole[:4] + table + whole[8:])


BEFORE_LOGIN = {
    "a frame of 4 GiB": b"\x01\x00\x00\xff\xff\xff\xff",
    "a frame above the limit": encode_frame(FrameType.METHOD, 0, bytes(8193)),
    "a response of a megabyte": method_frame(m.ConnectionStartOk({}, "PLAIN", bytes(1 << 20), "en_US"), 0),
    "client properties of a megabyte": method_frame(m.ConnectionStartOk({"a": bytes(1 << 20)}, "PLAIN", PLAIN, ""), 0),
    "no end byte": START_OK[:-1] + b"\x00",
    "tables inside each other": start_ok(nested(9)),
    "too many values": start_ok((257 * 3).to_bytes(4, "big") + b"\x01aV" * 257),
    "a length beyond its table": start_ok((10).to_bytes(4, "big") + b"\x01aS\xff\xff\xff\xff" + bytes(3)),
    "an unknown mechanism": method_frame(m.ConnectionStartOk({}, "GSSAPI", PLAIN, "en_US"), 0),
    "a response that cannot be read": method_frame(m.ConnectionStartOk({}, "PLAIN", b"\xff" * 4000, "en_US"), 0),
    "AMQPLAIN of garbage": method_frame(m.ConnectionStartOk({}, "AMQPLAIN", b"\xff" * 4000, "en_US"), 0),
    "tune-ok before a login": method_frame(m.ConnectionTuneOk(1, 4096, 0), 0),
    "open before a login": method_frame(m.ConnectionOpen("/"), 0),
    "secure-ok unasked": method_frame(m.ConnectionSecureOk(PLAIN), 0),
    "a channel before a login": OPEN_CHANNEL,
    "a content before a login": encode_frame(FrameType.BODY, 1, b"x"),
    "heartbeats before a login": HEARTBEAT * 2000,
    "an unknown method": encode_frame(FrameType.METHOD, 0, b"\xff\xff\xff\xff"),
    "an empty method": encode_frame(FrameType.METHOD, 0, b""),
}  # fmt: skip


@pytest.mark.parametrize("data", BEFORE_LOGIN.values(), ids=BEFORE_LOGIN.keys())
def test_garbage_before_a_login_ends_the_connection_without_an_answer(node: Node, data: bytes) -> None:
    with Client(node) as client:
        client.send(PROTOCOL_HEADER)
        assert isinstance(client.next(), m.ConnectionStart)
        client.send(data)
        assert client.next() is None


@pytest.mark.parametrize(
    "beginning", [b"AMQP\x00\x00\x09\x02", b"AMQP\x01\x01\x08\x00", b"AMQP\x03\x01\x00\x00", b"AMQP\xff" * 2, bytes(8)]
)
def test_other_protocol_headers_end_the_connection(node: Node, beginning: bytes) -> None:
    with Client(node) as client:
        client.send(beginning)
        while client.socket.recv(65536):
            pass


LIMIT = limits.AMQP091_MESSAGE_BYTES_MAX
AFTER_LOGIN = {
    "a method on a closed channel": (method_frame(m.BasicQos(0, 1), 9), 504),
    "a header on a closed channel": (encode_frame(FrameType.HEADER, 9, encode_header(1, NO_PROPERTIES)), 504),
    "a channel opened twice": (OPEN_CHANNEL, 504),
    "a header without a method": (header(1), 505),
    "a body without a method": (encode_frame(FrameType.BODY, 1, b"x"), 505),
    "a method within a content": (PUBLISH * 2, 505),
    "a heartbeat on a channel": (encode_frame(FrameType.HEARTBEAT, 1, b""), 505),
    "an unknown type of frame": (encode_frame(7, 1, b""), 501),
    "a frame above frame-max": (encode_frame(FrameType.BODY, 1, bytes(limits.AMQP091_FRAME_BYTES_MAX + 1)), 501),
    "a body longer than announced": (
        PUBLISH + header(3) + encode_frame(3, 1, b"four"), 501,
    ),
    "too many body frames": (
        PUBLISH + header(9000) + encode_frame(3, 1, b"") * 9000,
        501,
    ),
    "a body of 2^63 bytes": (PUBLISH + header(1 << 63), 311),
    "a body above the limit": (PUBLISH + header(LIMIT + 1), 311),
    "another class in a header": (PUBLISH + encode_frame(FrameType.HEADER, 1, bytes(14)), 505),
    "properties that are cut off": (PUBLISH + header(1, b"\x80\x00\xff"), 502),
    "deep headers": (
        PUBLISH + header(1, b"\x20\x00" + nested(5000)), 502,
    ),
    "a prefetch of bytes": (method_frame(m.BasicQos(1 << 31, 0), 1), 540),
    "a publish to amq.qpid": (
        content_frames(m.BasicPublish(0, "amq.qpid", "cluster"), NO_PROPERTIES, b"", 1, 4096), 403,
    ),
    "a declare of amq.qpid": (method_frame(m.ExchangeDeclare(0, "amq.qpid", "fanout"), 1), 403),
    "a second open": (method_frame(m.ConnectionOpen("/"), 0), 503),
    "a second start-ok": (START_OK, 503),
    "a method of a broker": (method_frame(m.BasicGetEmpty(), 1), 503),
}  # fmt: skip


@pytest.mark.parametrize(("data", "code"), AFTER_LOGIN.values(), ids=AFTER_LOGIN.keys())
def test_breaches_after_the_login_get_their_code_and_a_log_line(node: Node, data: bytes, code: int) -> None:
    with Client(node) as client:
        client.open().send(data)
        closed = client.wait_for(m.ConnectionClose, m.ChannelClose)
        assert isinstance(closed, m.ConnectionClose | m.ChannelClose)
        assert closed.reply_code == code, closed
        assert client.name in node.log.read_text()


@pytest.mark.parametrize("beginning", [PROTOCOL_HEADER, PROTOCOL_HEADER_0_9])
@pytest.mark.parametrize(
    "tune", [(1, 1), (1, 4095), (1, (1 << 32) - 1), (limits.AMQP091_CHANNELS_MAX + 1, 4096), ((1 << 16) - 1, 0)]
)
def test_limits_above_the_offered_ones_are_refused(node: Node, beginning: bytes, tune: tuple[int, int]) -> None:
    with Client(node) as client:
        client.send(beginning + START_OK)
        client.wait_for(m.ConnectionTune)
        client.send(method_frame(m.ConnectionTuneOk(*tune, 0), 0))
        closed = client.wait_for(m.ConnectionClose)
        assert isinstance(closed, m.ConnectionClose)
        assert closed.reply_code == 530


def test_a_client_without_limits_of_its_own_sends_no_longer_frame_than_was_offered(node: Node) -> None:
    with Client(node) as client:
        client.send(PROTOCOL_HEADER + START_OK)
        client.wait_for(m.ConnectionTune)
        client.send(method_frame(m.ConnectionTuneOk(0, 0, 0), 0) + method_frame(m.ConnectionOpen("/"), 0))
        client.wait_for(m.ConnectionOpenOk)
        client.send(b"\x03\0\x01" + (limits.AMQP091_FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
        closed = client.wait_for(m.ConnectionClose)
        assert isinstance(closed, m.ConnectionClose)
        assert closed.reply_code == 501


def resident_kib(node: Node) -> int:
    assert node.process is not None
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def test_messages_begun_on_every_channel_end_the_connection_and_no_other(node: Node) -> None:
    """2,047 channels with 16 MiB each would be 32 GiB."""
    before = resident_kib(node)
    with Client(node) as witness, Client(node) as client:
        witness.open()
        client.open()
        piece = bytes(limits.AMQP091_FRAME_BYTES_MAX - 8)
        announced = encode_header(LIMIT, NO_PROPERTIES)
        for number in range(2, limits.AMQP091_CHANNELS_MAX):
            begun = method_frame(m.ChannelOpen(), number) + method_frame(m.BasicPublish(0, "", "q"), number)
            client.send(begun + encode_frame(FrameType.HEADER, number, announced) + encode_frame(3, number, piece))
        closed = client.wait_for(m.ConnectionClose)
        assert isinstance(closed, m.ConnectionClose)
        assert closed.reply_code == 506
        witness.send(method_frame(m.BasicQos(0, 1), 1))
        witness.wait_for(m.BasicQosOk)
    assert resident_kib(node) - before < GROWTH_KIB_MAX


def test_returns_of_a_transaction_end_its_channel(node: Node) -> None:
    before = resident_kib(node)
    with Client(node) as client:
        client.open().send(method_frame(m.TxSelect(), 1))
        client.wait_for(m.TxSelectOk)
        unroutable = content_frames(
            m.BasicPublish(0, "", "no queue", mandatory=True), NO_PROPERTIES, bytes(1 << 20), 1, 131_072
        )
        for _ in range(70):
            client.send(unroutable)
        closed = client.wait_for(m.ChannelClose)
        assert isinstance(closed, m.ChannelClose)
        assert closed.reply_code == 406
    assert resident_kib(node) - before < GROWTH_KIB_MAX


def test_a_client_that_publishes_and_does_not_read_its_returns_is_cut_off(node: Node) -> None:
    with Client(node) as client:
        client.open()
        unroutable = content_frames(
            m.BasicPublish(0, "", "no queue", mandatory=True), NO_PROPERTIES, bytes(1 << 20), 1, 131_072
        )
        with pytest.raises(ConnectionError):
            for _ in range(2 * limits.OUTGOING_BYTES_MAX >> 20):
                client.socket.sendall(unroutable)
    assert "outgoing buffer over its limit" in node.log.read_text()


def test_a_circle_of_exchanges_delivers_once(node: Node) -> None:
    with Client(node) as client:
        client.open()
        names = [f"circle{number}" for number in range(50)]
        for name in names:
            client.send(method_frame(m.ExchangeDeclare(0, name, "fanout", no_wait=True), 1))
        for source in names:
            for destination in names:
                client.send(method_frame(m.ExchangeBind(0, destination, source, "", no_wait=True), 1))
        client.send(method_frame(m.QueueDeclare(0, "circled", exclusive=True, no_wait=True), 1))
        for name in names:
            client.send(method_frame(m.QueueBind(0, "circled", name, "", no_wait=True), 1))
        key = "." * 255
        client.send(content_frames(m.BasicPublish(0, names[0], key), NO_PROPERTIES, b"once", 1, 4096))
        client.send(method_frame(m.QueuePurge(0, "circled"), 1))
        purged = client.wait_for(m.QueuePurgeOk)
        assert isinstance(purged, m.QueuePurgeOk)
        assert purged.message_count == 1
        for name in names:
            client.send(method_frame(m.ExchangeDelete(0, name, no_wait=True), 1))
        client.send(method_frame(m.TxSelect(), 1))
        client.wait_for(m.TxSelectOk)
