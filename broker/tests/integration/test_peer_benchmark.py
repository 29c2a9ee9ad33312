"""Goal: the load driver of the peer benchmark tells a wrong broker from a fast one.

Against a broker of our own it counts every message; against a scripted peer that confirms messages that were not sent,
delivers twice, out of order, cut or not at all, or closes, the run ends with the reason. In each wire format whose
frames the driver cuts in its own way.
"""

from __future__ import annotations

import shutil
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from benchmarks.calls import patched
from benchmarks.content import DIGITS, JMS, NUMBER, PLAIN, PROPERTIES, SHAPES, Content, Shape
from benchmarks.core_link import CoreLink
from benchmarks.load import Consumer, Load, Patch, Producer, RunFailed, build_driver, run
from support.nodes import Nodes
from support.processes import Pair
from understudy.message import DUPLICATE_ID
from understudy.wire.core import packets
from understudy.wire.core.codec import FrameDecoder

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the driver needs a C compiler (cc)")

BODY = Content().body


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module")
def pair(nodes_of_module: Nodes) -> Pair:
    return nodes_of_module.active()


def _counted(driver: Path, pair: Pair, name: str, load: Load, shape: Shape = PLAIN) -> None:
    """One run: the broker took every message that the driver counted, and has fewer than a batch left."""
    assert pair.primary.process is not None
    link, pids = CoreLink(pair.primary.port), [pair.primary.process.pid]
    outcome = run(driver, link, load, name, pids, warmup_ms=50, window_ms=400, shape=shape)
    assert 0 < outcome.messages <= outcome.total
    # the kernel counts in hundredths of a second, of which few messages need none
    assert outcome.broker_cpu_us > 0 or load.rate
    names = [f"{name}.{each}" for each in range(load.queues)]
    # a duplicate would not be added
    assert sum(int(str(queue["messages_added"])) for each in names if (queue := pair.primary.queue(each))) == (
        outcome.total
    )
    # unacknowledged messages return to the queue when the connection closes
    _wait(pair, names, load.ack_batch)


@pytest.mark.parametrize(
    ("name", "load", "shape"),
    [
        ("several", Load(queues=3, producers=2, in_flight=50), PLAIN),
        ("several-jms", Load(queues=2, producers=2, in_flight=50), JMS),
        ("not-durable", Load(durable=False), PROPERTIES),
        ("blocking", Load(producers=4, in_flight=1, consume_during=False), JMS),
        ("at-a-rate", Load(rate=500, consume_during=False), PLAIN),
        ("half-a-megabyte", Load(body_bytes=500_000, in_flight=20, backlog_max=40, ack_batch=1), JMS),
        ("more-than-its-window", Load(body_bytes=5_000_000, in_flight=2, backlog_max=4, ack_batch=1), PLAIN),
    ],
)
def test_every_message_is_counted(driver: Path, pair: Pair, name: str, load: Load, shape: Shape) -> None:
    _counted(driver, pair, name, load, shape)


@pytest.mark.long
def test_a_message_of_a_hundred_megabytes_is_counted(driver: Path, pair: Pair) -> None:
    load = Load(body_bytes=100_000_000, in_flight=1, backlog_max=1, ack_batch=1, consume_during=False)
    _counted(driver, pair, "huge", load)


def _wait(pair: Pair, queues: Sequence[str], fewer_than: int) -> None:
    ends = time.monotonic() + 60
    left = dict.fromkeys(queues, fewer_than)
    while any(count >= fewer_than for count in left.values()):
        assert time.monotonic() < ends, left
        for name in queues:
            facts = pair.primary.queue(name)
            left[name] = int(str(facts["message_count"])) if facts is not None else fewer_than


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("size", [1024, 300_000])
def test_what_a_shape_carries_is_in_its_frames(pair: Pair, shape: Shape, size: int) -> None:
    link = CoreLink(pair.primary.port)
    queue = f"shapes.{shape.name}.{size}"
    link.declare([queue])
    producer = link.producer(queue, Content(shape, body_bytes=size))
    producer.socket.close()
    headers = []
    for number in (1, 2):
        decoder = FrameDecoder("server")
        decoder.version, decoder.frame_limit_bytes = 134, 1 << 20
        first = decoder.receive_data(patched(producer, number))[0].packet
        if isinstance(first, packets.SessionSendLarge):
            headers.append(packets.message_of_header(first.header))
        else:
            assert isinstance(first, packets.SessionSend)
            headers.append(first.message)
    properties = [header.properties for header in headers]
    assert len({header.user_id for header in headers}) == (2 if shape.properties else 1)
    assert len({each.get(DUPLICATE_ID) for each in properties}) == (2 if shape.duplicate_id else 1)
    assert len(properties[0]) == 3 * shape.properties + shape.duplicate_id
    assert len(str(properties[0].get("__AMQ_CID"))) == (36 if shape.properties else len("None"))


# --- scripted peers ----------------------------------------------------------------------------------------------


class Format:
    """The frames of one wire format, as far as a script needs them."""

    protocol = ""
    body_bytes = len(BODY)

    def frame(self) -> tuple[bytes, tuple[Patch, ...]]:
        raise NotImplementedError

    def confirm(self, number: int) -> bytes:
        raise NotImplementedError

    def deliver(self, number: int, *, body: bytes = b"", redelivered: bool = False) -> bytes:
        raise NotImplementedError

    def refuse(self) -> bytes:
        raise NotImplementedError

    def body(self, number: int) -> bytes:
        return (NUMBER + b"x" * (self.body_bytes - len(NUMBER))).replace(NUMBER, struct.pack(">q", number))


class Core(Format):
    """Whole messages."""

    protocol = "core"
    _HEAD = struct.Struct(">ibq")

    def _packet(self, kind: int, fields: bytes) -> bytes:
        return self._HEAD.pack(9 + len(fields), kind, 10) + fields

    def frame(self) -> tuple[bytes, tuple[Patch, ...]]:
        frame = self._packet(71, self.body(0).replace(bytes(8), NUMBER, 1) + bytes(8))
        return frame, (Patch(13, body=True), Patch(len(frame) - 8))

    def confirm(self, number: int) -> bytes:
        return self._packet(21, struct.pack(">q", number))

    def deliver(self, number: int, *, body: bytes = b"", redelivered: bool = False) -> bytes:
        body = body or self.body(number)
        return self._packet(
            75, struct.pack(">i", len(body) + 13) + body + bytes(38) + struct.pack(">i", 1 + redelivered)
        )

    def refuse(self) -> bytes:
        return self._packet(20, struct.pack(">i", 105))


class CoreLarge(Core):
    """Deliveries in pieces, with a body larger than the driver's buffer."""

    body_bytes = 1_500_000

    def deliver(self, number: int, *, body: bytes = b"", redelivered: bool = False) -> bytes:
        body = body or self.body(number)
        announced = struct.pack(">qiq", 0, 1 + redelivered, len(body)) + bytes(30)
        pieces = [body[at : at + 400_000] for at in range(0, len(body), 400_000)]
        return self._packet(76, announced) + b"".join(
            self._packet(77, struct.pack(">i", len(piece)) + piece + bytes((piece is not pieces[-1],)) + bytes(8))
            for piece in pieces
        )


class Amqp(Format):
    """Bodies in two frames."""

    protocol = "amqp"
    body_bytes = 2_000

    def _frame(self, kind: int, payload: bytes) -> bytes:
        return struct.pack(">BHI", kind, 1, len(payload)) + payload + b"\xce"

    def frame(self) -> tuple[bytes, tuple[Patch, ...]]:
        return NUMBER + DIGITS.encode(), (Patch(0, body=True), Patch(8, kind="X"))

    def confirm(self, number: int) -> bytes:
        return self._frame(1, struct.pack(">HHQB", 60, 80, number + 1, 0))

    def deliver(self, number: int, *, body: bytes = b"", redelivered: bool = False) -> bytes:
        body = body or self.body(number)
        method = struct.pack(">HH", 60, 60) + b"\1c" + struct.pack(">Q?", number + 1, redelivered) + b"\0\1q"
        header = struct.pack(">HHQH", 60, 0, len(body), 0)
        return self._frame(1, method) + self._frame(2, header) + self._frame(3, body[:900]) + self._frame(3, body[900:])

    def refuse(self) -> bytes:
        return self._frame(1, struct.pack(">HHHB", 20, 40, 404, 4) + b"gone" + bytes(4))


class OpenWire(Format):
    """Loose encoding, with properties after the body."""

    protocol = "openwire"

    def _command(self, kind: int, fields: bytes) -> bytes:
        return struct.pack(">IBI?", 6 + len(fields), kind, 0, False) + fields

    def frame(self) -> tuple[bytes, tuple[Patch, ...]]:
        return b"send" + NUMBER + DIGITS.encode(), (
            Patch(0, base=1000, kind="I"),
            Patch(4, body=True),
            Patch(12, kind="X"),
        )

    def confirm(self, number: int) -> bytes:
        return self._command(30, struct.pack(">I", 1000 + number))

    def deliver(self, number: int, *, body: bytes = b"", redelivered: bool = False) -> bytes:
        body = body or self.body(number)
        name = b"\1\0\4name"
        identity, queue = b"\1\x7b" + name + bytes(16), b"\1\x64" + name
        message = b"".join(
            (
                b"\1\x18" + bytes(5),  # bytes message, command id, response required
                identity + queue + b"\0\0",  # producer, destination, no transaction, no original destination
                b"\1\x6e" + identity + bytes(16),  # message id
                b"\0\0" + bytes(4),  # no original transaction, no group
                b"\0" + bytes(9) + b"\4" + b"\0" + bytes(8) + b"\0",  # from the correlation id to the type
                b"\1" + struct.pack(">I", len(body)) + body,
                b"\1" + struct.pack(">I", 3) + b"map" + b"\0\0\0",  # properties, then to whether it is compressed
                struct.pack(">I", redelivered),
            )
        )
        return self._command(21, identity + queue + message)

    def refuse(self) -> bytes:
        return self._command(31, bytes(4))


class Nats(Format):
    """Messages without a header."""

    protocol = "nats"
    header = b""

    def frame(self) -> tuple[bytes, tuple[Patch, ...]]:
        line = f"PUB q _INBOX.a.{DIGITS} {self.body_bytes}\r\n".encode()
        frame = line + NUMBER + b"x" * (self.body_bytes - len(NUMBER)) + b"\r\n"
        return frame, (Patch(len(line), body=True), Patch(frame.index(DIGITS.encode()), kind="X"))

    def confirm(self, number: int, answer: str = '{"stream":"q","seq":7}') -> bytes:
        return f"MSG _INBOX.a.{number:016x} 1 {len(answer)}\r\n{answer}\r\n".encode()

    def deliver(self, number: int, *, body: bytes = b"", redelivered: bool = False) -> bytes:
        body = body or self.body(number)
        reply = f"$JS.ACK.q.c.{1 + redelivered}.{number + 1}.{number + 1}.1700000000000000000.0"
        if not self.header:
            return f"MSG deliver.q 1 {reply} {len(body)}\r\n".encode() + body + b"\r\n"
        sizes = f"{len(self.header)} {len(self.header) + len(body)}"
        return f"PING\r\nHMSG deliver.q 1 {reply} {sizes}\r\n".encode() + self.header + body + b"\r\n"

    def refuse(self) -> bytes:
        return b"-ERR 'Permissions Violation'\r\n"


class NatsHeaders(Nats):
    """Messages with a header, and a server that asks whether its client is there."""

    header = b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n"


FORMATS = (Core(), CoreLarge(), Amqp(), OpenWire(), Nats(), NatsHeaders())


class Scripted:
    """A link to a peer that answers each send with what ``script`` says; producer 0 and consumer 1."""

    def __init__(self, talk: Format, script: Callable[[int], tuple[bytes, bytes] | None]) -> None:
        self.protocol = talk.protocol
        self.talk = talk
        self.script = script
        self.theirs: list[socket.socket] = []
        self.sent: list[bytes] = []

    def declare(self, queues: Sequence[str], *, durable: bool = True) -> None:
        pass

    def producer(self, queue: str, content: Content) -> Producer:
        return Producer(self._pair(), *self.talk.frame())

    def consumer(self, queue: str, number: int, prefetch: int = 0) -> Consumer:
        ours = self._pair()
        threading.Thread(target=self._serve, args=(len(self.talk.frame()[0]),), daemon=True).start()
        return Consumer(ours, b"start")

    def _pair(self) -> socket.socket:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            ours = socket.create_connection(listener.getsockname())
            self.theirs.append(listener.accept()[0])
        return ours

    def _serve(self, frame_bytes: int) -> None:
        producer, consumer = self.theirs
        number = 0
        try:
            while frame := producer.recv(frame_bytes, socket.MSG_WAITALL):
                self.sent = [*self.sent[-1:], frame]
                answer = self.script(number)
                if answer is None:
                    break
                producer.sendall(answer[0])
                consumer.sendall(answer[1])
                number += 1
        except OSError:
            pass
        producer.close()
        consumer.close()


def _load(talk: Format) -> Load:
    return Load(in_flight=1, body_bytes=talk.body_bytes, ack_batch=2)


Script = Callable[[Format, int], tuple[bytes, bytes] | None]
WRONG: dict[str, tuple[Script, str]] = {
    "unknown": (lambda t, n: (t.confirm(n + 7), t.deliver(n)), "confirmation of 7, which does not wait"),
    "twice": (lambda t, n: (t.confirm(n) * 2, t.deliver(n)), "confirmation of 0, which does not wait"),
    "doubled": (lambda t, n: (t.confirm(n), t.deliver(n) * 2), "delivery of 0 where 1 was next"),
    "reordered": (lambda t, n: (t.confirm(n), t.deliver(n + 1)), "delivery of 1 where 0 was next"),
    "lost": (lambda t, n: (t.confirm(n), t.deliver(n) if n != 4 else b""), "delivery of 5 where 4 was next"),
    "cut": (
        lambda t, n: (t.confirm(n), t.deliver(n, body=t.body(n)[:-1])),
        r"delivery of \d+ bytes where \d+ were sent",
    ),
    "again": (lambda t, n: (t.confirm(n), t.deliver(n, redelivered=n == 3)), "delivery marked redelivered"),
    "closed": (lambda t, n: (t.confirm(n), t.deliver(n)) if n < 4 else None, "closed a connection"),
    "refused": (lambda t, n: (t.refuse(), b""), "EXCEPTION, code 105|the broker closes: gone|the broker reports"),
}


@pytest.mark.parametrize("talk", FORMATS, ids=lambda talk: type(talk).__name__)
@pytest.mark.parametrize(("script", "reason"), WRONG.values(), ids=WRONG)
def test_a_wrong_broker_is_a_failed_run(driver: Path, talk: Format, script: Script, reason: str) -> None:
    link = Scripted(talk, lambda number: script(talk, number))
    with pytest.raises(RunFailed, match=reason):
        # it ends as soon as it is wrong; the window is only longer than that may take
        run(driver, link, _load(talk), "q", [], warmup_ms=20, window_ms=60_000)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ('{"error":{"code":503},"seq":0}', "not confirmed"),
        ('{"stream":"q"}', "not confirmed"),
        ('{"stream":"q","seq":7,"duplicate":true}', "taken for a duplicate"),
    ],
)
def test_a_stream_that_does_not_take_a_message_is_a_failed_run(driver: Path, answer: str, reason: str) -> None:
    talk = Nats()
    link = Scripted(talk, lambda number: (talk.confirm(number, answer), b""))
    with pytest.raises(RunFailed, match=reason):
        run(driver, link, _load(talk), "q", [], warmup_ms=20, window_ms=60_000)


@pytest.mark.parametrize("talk", FORMATS, ids=lambda talk: type(talk).__name__)
def test_a_right_one_is_not(driver: Path, talk: Format) -> None:
    link = Scripted(talk, lambda n: (talk.confirm(n), talk.deliver(n)))
    outcome = run(driver, link, _load(talk), "q", [], warmup_ms=20, window_ms=300)
    assert outcome.messages > 0
    # the numbers that the driver wrote are those that this code writes
    last = bytearray(talk.frame()[0])
    for patch in talk.frame()[1]:
        patch.write(last, outcome.total - 1)
    assert link.sent[-1] == bytes(last)


def test_digits_are_written_in_both_encodings(driver: Path) -> None:
    talk = Core()

    class Wide(Core):
        def frame(self) -> tuple[bytes, tuple[Patch, ...]]:
            frame, patches = talk.frame()
            wide = DIGITS.encode("utf-16-le")
            return frame + DIGITS.encode() + wide, (
                *patches,
                Patch(len(frame), base=0xABC, kind="X"),
                Patch(len(frame) + 16, base=0xDEF0, kind="W"),
            )

    link = Scripted(Wide(), lambda n: (talk.confirm(n), talk.deliver(n)))
    total = run(driver, link, _load(talk), "q", [], warmup_ms=20, window_ms=200).total
    tail = link.sent[-1][len(talk.frame()[0]) :]
    assert tail[:16].decode() == f"{total - 1 + 0xABC:016x}"
    assert tail[16:].decode("utf-16-le") == f"{total - 1 + 0xDEF0:016x}"
