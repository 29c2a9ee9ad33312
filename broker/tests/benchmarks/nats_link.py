"""NATS JetStream: a stream with a durable push consumer for each queue, every publication confirmed by the stream.

Source: the documentation of the NATS client protocol and of the JetStream API. One acknowledgement stands for all
before it (policy ``all``), as in the other protocols. Streams in files keep every message (retention ``limits``, the
default): removing each one when it is acknowledged (``interest``, ``workqueue``) made the server up to three times
slower, because it syncs the removal as well. Messages that are not durable go to streams in memory, which remove them.
"""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Sequence

from benchmarks.content import DIGITS, NUMBER, Content, connection_name, properties, unique_text
from benchmarks.load import Consumer, Patch, Producer, RunFailed

#: As the server allows by default.
_UNACKNOWLEDGED_MAX = 1000


class NatsLink:
    """One NATS connection of the benchmark."""

    protocol = "nats"

    def __init__(self, port: int) -> None:
        self.port = port

    def declare(self, queues: Sequence[str], *, durable: bool = True) -> None:
        """Make a stream and its consumer for each queue."""
        client = _Client(self.port)
        with client.socket:
            for queue in queues:
                name = _name(queue)
                stream = {
                    "name": name,
                    "subjects": [queue],
                    "retention": "limits" if durable else "interest",
                    "storage": "file" if durable else "memory",
                    "num_replicas": 1,
                }
                client.ask(f"$JS.API.STREAM.CREATE.{name}", stream)
                consumer = {
                    "durable_name": "c",
                    "deliver_subject": f"deliver.{name}",
                    "ack_policy": "all",
                    "max_ack_pending": _UNACKNOWLEDGED_MAX,
                }
                client.ask(f"$JS.API.CONSUMER.DURABLE.CREATE.{name}.c", {"stream_name": name, "config": consumer})

    def producer(self, queue: str, content: Content) -> Producer:
        client = _Client(self.port)
        inbox = f"_INBOX.{uuid.uuid4().hex}"
        client.send(f"SUB {inbox}.* 1\r\n")
        client.ping()
        header = _header(content)
        kind, sizes = "PUB", f"{content.body_bytes}"
        if header:
            kind, sizes = "HPUB", f"{len(header)} {len(header) + content.body_bytes}"
        line = f"{kind} {queue} {inbox}.{DIGITS} {sizes}\r\n".encode()
        frame = line + header + content.body + b"\r\n"
        patches = [Patch(len(line) + len(header) + content.body.index(NUMBER), body=True)]
        at = frame.find(DIGITS.encode())
        while at >= 0:
            patches.append(Patch(at, kind="X"))
            at = frame.find(DIGITS.encode(), at + 1)
        return Producer(client.socket, frame, tuple(patches))

    def consumer(self, queue: str, number: int, prefetch: int = 0) -> Consumer:
        client = _Client(self.port)
        return Consumer(client.socket, f"SUB deliver.{_name(queue)} 1\r\n".encode())


def _name(queue: str) -> str:
    """Names of streams have no dots."""
    return queue.replace(".", "_")


def _header(content: Content) -> bytes:
    """NATS knows no user id; the id by which it finds duplicates is the duplicate id."""
    values: dict[str, str | int] = {}
    if content.shape.properties:
        values |= {"message-id": unique_text(), **properties(connection_name())}
    if content.shape.duplicate_id:
        values["Nats-Msg-Id"] = unique_text()
    if not values:
        return b""
    return "".join(["NATS/1.0\r\n", *(f"{name}: {value}\r\n" for name, value in values.items()), "\r\n"]).encode()


class _Client:
    """A connection, as far as it is needed to arrange things."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self._input = b""
        if not self._line().startswith(b"INFO "):
            raise RunFailed("no NATS server")
        options = {"verbose": False, "pedantic": False, "headers": True, "lang": "bench", "version": "1", "protocol": 1}
        self.send(f"CONNECT {json.dumps(options)}\r\n")
        self.ping()

    def send(self, text: str) -> None:
        self.socket.sendall(text.encode())

    def ping(self) -> None:
        """Wait until the server has processed all that was sent before."""
        self.send("PING\r\n")
        while (line := self._line()) != b"PONG":
            self._check(line)

    def ask(self, subject: str, request: dict[str, object]) -> None:
        """A request to the JetStream API."""
        inbox, text = f"_INBOX.{uuid.uuid4().hex}", json.dumps(request)
        self.send(f"SUB {inbox} 9\r\nUNSUB 9 1\r\nPUB {subject} {inbox} {len(text)}\r\n{text}\r\n")
        while not (line := self._line()).startswith(b"MSG "):
            self._check(line)
        size = int(line.split(b" ")[-1])
        while len(self._input) < size + 2:
            self._receive()
        answer, self._input = json.loads(self._input[:size]), self._input[size + 2 :]
        if "error" in answer:
            raise RunFailed(f"{subject}: {answer['error']}")

    def _check(self, line: bytes) -> None:
        if line.startswith(b"-ERR"):
            raise RunFailed(f"the broker reports: {line.decode(errors='replace')}")
        if line == b"PING":
            self.send("PONG\r\n")

    def _line(self) -> bytes:
        while b"\r\n" not in self._input:
            self._receive()
        line, _, self._input = self._input.partition(b"\r\n")
        return line

    def _receive(self) -> None:
        received = self.socket.recv(65536)
        if not received:
            raise ConnectionError("the broker closed the connection")
        self._input += received
