"""A client of AMQP 0-9-1 over a plain socket, made of the texts of the protocol and of ADR 0195 alone.

It uses no module of the broker or of its client, so an error that both sides of this project share is seen. It blocks,
has one connection and one thread, and knows what tests of sessions need.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Table = dict[str, Any]

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END = 0xCE
#: Class and method.
START, START_OK, TUNE, TUNE_OK = (10, 10), (10, 11), (10, 30), (10, 31)
OPEN, OPEN_OK, CLOSE, CLOSE_OK = (10, 40), (10, 41), (10, 50), (10, 51)
CHANNEL_OPEN, CHANNEL_OPEN_OK, CHANNEL_CLOSE = (20, 10), (20, 11), (20, 40)
QUEUE_DECLARE, QUEUE_DECLARE_OK = (50, 10), (50, 11)
QOS, QOS_OK, CONSUME, CONSUME_OK = (60, 10), (60, 11), (60, 20), (60, 21)
PUBLISH, RETURN, DELIVER, GET, GET_OK, GET_EMPTY = (60, 40), (60, 50), (60, 60), (60, 70), (60, 71), (60, 72)
ACK, NACK = (60, 80), (60, 120)
CONFIRM_SELECT, CONFIRM_SELECT_OK = (85, 10), (85, 11)
TX_SELECT, TX_SELECT_OK, TX_COMMIT, TX_COMMIT_OK = (90, 10), (90, 11), (90, 20), (90, 21)
TX_ROLLBACK, TX_ROLLBACK_OK = (90, 30), (90, 31)
_WITH_CONTENT = (RETURN, DELIVER, GET_OK)

#: Reply codes.
KEEP_SESSION, END_SESSION, FORCED, NOT_FOUND, LOCKED = 201, 200, 320, 404, 405

_FIXED = {"b": ">b", "B": ">B", "s": ">h", "u": ">H", "I": ">i", "i": ">I", "l": ">q", "T": ">Q", "f": ">f", "d": ">d"}


class Closed(Exception):
    """The broker has closed the connection, or the channel."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code


class Received(NamedTuple):
    """A method that came, with its content."""

    kind: tuple[int, int]
    arguments: bytes
    body: bytes = b""


class Delivery(NamedTuple):
    """A message of a consumer or of basic.get."""

    tag: int
    redelivered: bool
    body: bytes


# --- bytes -----------------------------------------------------------------------------------------


def short(text: str) -> bytes:
    encoded = text.encode()
    return bytes((len(encoded),)) + encoded


def long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def table(values: Mapping[str, str | int | bool]) -> bytes:
    """A table of texts, numbers and bits."""
    encoded = b""
    for name, value in values.items():
        if isinstance(value, str):
            encoded += short(name) + b"S" + long(value.encode())
        elif isinstance(value, bool):
            encoded += short(name) + b"t" + bytes((value,))
        else:
            encoded += short(name) + b"l" + struct.pack(">q", value)
    return long(encoded)


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + bytes((FRAME_END,))


def method(kind: tuple[int, int], arguments: bytes = b"", channel: int = 1) -> bytes:
    return frame(METHOD, channel, struct.pack(">HH", *kind) + arguments)


class Reading:
    """Values one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def fixed(self, layout: str) -> Any:
        (value,) = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return value

    def bytes(self, length: int) -> bytes:
        self._at += length
        assert self._at <= len(self._data), "a value is cut off"
        return self._data[self._at - length : self._at]

    def short(self) -> str:
        return self.bytes(self.fixed(">B")).decode()

    def long(self) -> bytes:
        return self.bytes(self.fixed(">I"))

    def table(self) -> Table:
        inner, found = Reading(self.long()), {}
        while inner._at < len(inner._data):
            name = inner.short()
            found[name] = inner.value()
        return found

    def value(self) -> Any:
        tag = self.bytes(1).decode()
        if tag == "S":
            return self.long().decode()
        if tag == "t":
            return bool(self.fixed(">B"))
        if tag == "F":
            return self.table()
        if tag == "A":
            inner, found = Reading(self.long()), []
            while inner._at < len(inner._data):
                found.append(inner.value())
            return found
        if tag == "V":
            return None
        return self.fixed(_FIXED[tag])


# --- the client ------------------------------------------------------------------------------------


class PlainClient:
    """A connection that has logged in, with its session."""

    def __init__(
        self, port: int, session: Mapping[str, str | int] | None = None, user: str = "u", password: str = "p"
    ) -> None:
        """Raises Closed or OSError.

        Args:
            port: Port of the node on loopback.
            session: Client properties that ask for a session; None: there is none.
            user: Name of the login.
            password: Checked by a node with security only.
        """
        self._input = b""
        self._closed_with: Closed | None = None
        self.confirmed = 0
        """All publishes up to this number are confirmed."""
        self.refused: list[int] = []
        self.deliveries: list[Delivery] = []
        self.status: Table = {}
        """Status of the channel that was opened last."""
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        try:
            self._log_in(session or {}, user, password)
        except BaseException:
            self.socket.close()
            raise

    def _log_in(self, session: Mapping[str, str | int], user: str, password: str) -> None:
        self.socket.sendall(PROTOCOL_HEADER)
        start = Reading(self.expect(START).arguments)
        assert (start.fixed(">B"), start.fixed(">B")) == (0, 9)
        self.server_properties = start.table()
        plain = f"\0{user}\0{password}".encode()
        # without the capability a broker may close the socket alone when it refuses a login
        answer = table(session) + short("PLAIN") + long(plain) + short("en_US")
        self.send(method(START_OK, answer, 0))
        tune = Reading(self.expect(TUNE).arguments)
        channels, frame_bytes = tune.fixed(">H"), tune.fixed(">I")
        self.send(method(TUNE_OK, struct.pack(">HIH", channels, frame_bytes, 0), 0))
        self.send(method(OPEN, short("/") + short("") + b"\0", 0))
        hosts = Reading(self.expect(OPEN_OK).arguments).short()
        self.known_hosts = [each for each in hosts.split(",") if each]

    def channel(self, request: str = "status") -> Table:
        """Open channel 1 with an out-of-band string. Returns its status, part ``channel``."""
        self.send(method(CHANNEL_OPEN, short(request)))
        text = Reading(self.expect(CHANNEL_OPEN_OK).arguments).long()
        self.status = Reading(text).table() if request else {}
        found = self.status.get("channel", {})
        if found.get("mode") == "confirm":
            self.confirmed = found["publishes"]["accepted"]
        return found

    def resume(self, tag: int = 0, publishes: int = 0) -> Table:
        """Resume channel 1. Returns its status, part ``channel``."""
        return self.channel(f"resume;tag={tag};seq={publishes}")

    def declare(self, queue: str, *, passive: bool = False, exclusive: bool = False) -> int:
        """Declare a queue, which is durable unless it is exclusive. Returns the number of its messages."""
        bits = passive | (not exclusive) << 1 | exclusive << 2
        self.send(method(QUEUE_DECLARE, b"\0\0" + short(queue) + bytes((bits,)) + table({})))
        answer = Reading(self.expect(QUEUE_DECLARE_OK).arguments)
        answer.short()
        return int(answer.fixed(">I"))

    def ask(self, request: tuple[int, int], answer: tuple[int, int], arguments: bytes = b"") -> Received:
        self.send(method(request, arguments))
        return self.expect(answer)

    def publish(self, queue: str, body: bytes) -> None:
        """Publish a durable message; the frames of the content go in the same segment."""
        # property flags: delivery-mode alone
        header = struct.pack(">HHQHB", 60, 0, len(body), 1 << 12, 2)
        data = method(PUBLISH, b"\0\0" + short("") + short(queue) + b"\0")
        self.send(data + frame(HEADER, 1, header) + frame(BODY, 1, body))

    def consume(self, queue: str, tag: str, prefetch: int) -> None:
        self.ask(QOS, QOS_OK, struct.pack(">IHB", 0, prefetch, 0))
        self.ask(CONSUME, CONSUME_OK, b"\0\0" + short(queue) + short(tag) + b"\0" + table({}))

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        self.send(method(ACK, struct.pack(">QB", tag, multiple)))

    def wait_confirmed(self, number: int) -> None:
        self.wait(lambda: self.confirmed >= number)

    def wait_deliveries(self, count: int) -> list[Delivery]:
        """Wait until that many deliveries have come since the last call. Returns them."""
        self.wait(lambda: len(self.deliveries) >= count)
        found, self.deliveries = self.deliveries, []
        return found

    def drain(self, queue: str) -> list[bytes]:
        """Bodies of all messages of a queue, which are taken out."""
        found: list[bytes] = []
        while True:
            self.send(method(GET, b"\0\0" + short(queue) + b"\1"))
            got = self.next(lambda kind: kind in (GET_OK, GET_EMPTY))
            if got.kind == GET_EMPTY:
                return found
            found.append(got.body)

    def close(self, code: int = END_SESSION) -> None:
        """End the connection in order; code 201 keeps the session."""
        self.send(method(CLOSE, struct.pack(">H", code) + short("") + bytes(4), 0))
        self.expect(CLOSE_OK)
        self.socket.close()

    def closed_with(self) -> int:
        """Wait until the broker closes the connection. Returns the reply code."""
        try:
            self.wait(lambda: False)
        except Closed as error:
            self.socket.close()
            return error.code
        raise AssertionError("the connection was not closed")

    def cut(self) -> None:
        """End the socket without a word."""
        self.socket.close()

    # --- frames ------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def expect(self, kind: tuple[int, int]) -> Received:
        return self.next(lambda found: found == kind)

    def next(self, wanted: Callable[[tuple[int, int]], bool]) -> Received:
        """The next method of a kind; confirms and deliveries before it are kept."""
        while True:
            found = self._receive()
            if wanted(found.kind):
                return found
            self._note(found)

    def wait(self, reached: Callable[[], bool]) -> None:
        """Read until a condition holds."""
        while not reached():
            self._note(self._receive())

    def read_waiting(self) -> None:
        """Take everything that has come, and wait for nothing."""
        self.socket.settimeout(0)
        try:
            while True:
                self._note(self._receive())
        except BlockingIOError:
            pass
        finally:
            self.socket.settimeout(10)

    def _note(self, found: Received) -> None:
        reading = Reading(found.arguments)
        if found.kind in (ACK, NACK):
            number, bits = reading.fixed(">Q"), reading.fixed(">B")
            # one that is not multiple names the next number: the broker confirms in order
            assert bits & 1 or number == self.confirmed + 1, f"{number} after {self.confirmed}"
            if found.kind == NACK:
                self.refused += range(self.confirmed + 1, number + 1)
            self.confirmed = number
        elif found.kind == DELIVER:
            reading.short()
            self.deliveries.append(Delivery(reading.fixed(">Q"), bool(reading.fixed(">B")), found.body))
        else:
            raise AssertionError(f"unexpected method {found.kind}")

    def _receive(self) -> Received:
        kind, _, payload = self._frame()
        if kind == HEARTBEAT:
            return self._receive()
        assert kind == METHOD, f"frame of type {kind}"
        class_id, method_id = struct.unpack_from(">HH", payload)
        found = Received((class_id, method_id), payload[4:])
        if found.kind in (CLOSE, CHANNEL_CLOSE):
            reading = Reading(found.arguments)
            raise Closed(reading.fixed(">H"), reading.short())
        if found.kind in _WITH_CONTENT:
            # the rest of a content follows at once, also for a reader that waits for nothing
            self.socket.settimeout(10)
            kind, _, header = self._frame()
            assert kind == HEADER
            (size,) = struct.unpack_from(">Q", header, 4)
            body = b""
            while len(body) < size:
                kind, _, part = self._frame()
                assert kind == BODY
                body += part
            found = found._replace(body=body)
        return found

    def _frame(self) -> tuple[int, int, bytes]:
        while len(self._input) < 7 or len(self._input) < self._length() + 8:
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionResetError("the broker has closed the socket")
            self._input += data
        kind, channel, length = struct.unpack_from(">BHI", self._input)
        payload, end = self._input[7 : 7 + length], self._input[7 + length]
        assert end == FRAME_END
        self._input = self._input[8 + length :]
        return kind, channel, payload

    def _length(self) -> int:
        return int(struct.unpack_from(">I", self._input, 3)[0])


def connect_again(port: int, session: Mapping[str, str | int], user: str = "u", timeout_s: float = 60) -> PlainClient:
    """A connection in a session as soon as the node takes over: until then it refuses, or answers 320."""
    end = time.monotonic() + timeout_s
    while True:
        try:
            return PlainClient(port, session, user)
        except (OSError, Closed) as error:
            if (isinstance(error, Closed) and error.code != FORCED) or time.monotonic() > end:
                raise
            time.sleep(0.05)
