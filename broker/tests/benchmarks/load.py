"""Load at the highest rate that a broker takes: the C driver in ``driver/``, and its plan.

A wire format (``core_link``, ``amqp_link``, ``openwire_link``, ``nats_link``) opens and logs in the connections, in
Python, because that is not measured; then the driver inherits the sockets and does everything that is. It inherits a
file in memory with the prepared frames too, because a message may have 100 MB.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from benchmarks.content import BODY_BYTES, PLAIN, Content, Shape

#: A run that takes longer than this hangs.
RUN_SECONDS_MAX = 180

SOURCES = Path(__file__).parent / "driver"
_PROGRAMS = {
    "driver": ("driver.c", "buffer.c", "core.c", "amqp.c", "openwire.c", "nats.c"),
    "floor": ("floor.c", "buffer.c"),
}


class CannotRun(Exception):
    """A peer or the driver is not to be had here; the text says exactly why."""


class RunFailed(Exception):
    """The broker lost, repeated or reordered something, refused, or did not come to an end."""


@dataclass(frozen=True)
class Patch:
    """A number to write over in a prepared frame: the sequence of the message plus ``base``."""

    offset: int
    base: int = 0
    kind: Literal["Q", "I", "X", "W"] = "Q"
    """64 or 32 bits, big-endian; 16 hexadecimal digits, in ASCII or in UTF-16 little-endian."""
    body: bool = False
    """The number by which the message is known, with its producer in the upper bits."""

    def __str__(self) -> str:
        return f"{self.offset}:{self.kind}:{self.base}:{int(self.body)}"

    def write(self, frame: bytearray, sequence: int, producer: int = 0) -> None:
        """Do as the driver does."""
        number = sequence + self.base + (producer << 40 if self.body else 0)
        digits = f"{number:016x}"
        raw = {
            "Q": lambda: number.to_bytes(8, "big"),
            "I": lambda: number.to_bytes(4, "big"),
            "X": lambda: digits.encode(),
            "W": lambda: digits.encode("utf-16-le"),
        }[self.kind]()
        frame[self.offset : self.offset + len(raw)] = raw


@dataclass(frozen=True)
class Producer:
    """A connection ready to send ``frame``, which may be several frames of its protocol in a row."""

    socket: socket.socket
    frame: bytes
    patches: tuple[Patch, ...]


@dataclass(frozen=True)
class Consumer:
    """A connection that gets messages once ``start`` was sent."""

    socket: socket.socket
    start: bytes
    acknowledgement: bytes = b""
    """Bytes that the driver needs for an acknowledgement, where the wire format alone does not suffice."""


class Link(Protocol):
    """One wire format, seen from a client."""

    protocol: str

    def declare(self, queues: Sequence[str], *, durable: bool = True) -> None:
        """Make durable queues; ``durable``: whether their messages are."""
        ...

    def producer(self, queue: str, content: Content) -> Producer: ...

    def consumer(self, queue: str, number: int, prefetch: int = 0) -> Consumer:
        """Connect a consumer.

        Args:
            queue: Name of its queue.
            number: Number of the consumer at this queue.
            prefetch: Deliveries that it may have unacknowledged; 0: the wire format's own number. Only ``Further``
                links have another one.
        """
        ...


@runtime_checkable
class Further(Protocol):
    """A wire format of which one producer can send to several queues."""

    def publish(self, queue: str, content: Content) -> bytes:
        """The frame of a message to another queue."""
        ...


@dataclass(frozen=True)
class Load:
    """One case: its producers, consumers, queues and messages."""

    queues: int = 1
    producers: int = 1
    """Per queue."""
    consumers: int = 1
    """Per queue."""
    in_flight: int = 1000
    """Unconfirmed messages per producer."""
    ack_batch: int = 50
    rate: int = 0
    """Messages a second and producer, 0 = as many as it can."""
    durable: bool = True
    body_bytes: int = BODY_BYTES
    consume_during: bool = True
    """False: the consumers come when the producers have ended, to see that all is there."""
    backlog_max: int = 50_000
    """Messages that may wait in a queue before its producers pause."""
    prefetch: int = 0
    """Deliveries that a consumer may have unacknowledged (AMQP 0-9-1 only); 0: as many as the wire format prefers."""
    in_turn: bool = False
    """Whether one producer sends to all queues in turn (AMQP 0-9-1 only)."""

    @property
    def of_amqp(self) -> bool:
        """Whether only AMQP 0-9-1 has this case."""
        return bool(self.prefetch) or self.in_turn


@dataclass(frozen=True)
class Outcome:
    """One run. Rates are of messages confirmed and (with consumers) delivered within the window."""

    messages: int
    per_s: float
    driver_cpu_us: float
    broker_cpu_us: float
    resident_mib: float
    p50_us: int
    p99_us: int
    total: int


def build_driver(directory: Path) -> Path:
    """Compile the driver. Raises CannotRun."""
    return build_program("driver", directory)


def build_program(name: Literal["driver", "floor"], directory: Path) -> Path:
    """Compile one of the C programs. Raises CannotRun."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise CannotRun("no C compiler (cc)")
    program = directory / name
    sources = [str(SOURCES / source) for source in _PROGRAMS[name]]
    result = subprocess.run(
        [compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(program), *sources],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if result.returncode:
        raise CannotRun(f"the {name} does not compile: {result.stderr[-500:]}")
    return program


def run(
    driver: Path,
    link: Link,
    load: Load,
    queue: str,
    pids: Iterable[int],
    *,
    warmup_ms: int,
    window_ms: int,
    shape: Shape = PLAIN,
) -> Outcome:
    """One run over queues of its own. Raises RunFailed."""
    content = Content(shape, load.durable, load.body_bytes)
    with ExitStack() as stack:
        sockets: list[socket.socket] = []
        frames = os.memfd_create("frames")
        stack.callback(os.close, frames)
        lines = [
            f"protocol {link.protocol}",
            f"frames {frames}",
            f"body_bytes {load.body_bytes}",
            f"in_flight {load.in_flight}",
            f"ack_batch {load.ack_batch}",
            f"queues_of_producer {load.queues if load.in_turn else 1}",
            f"shared_queues {int(load.consumers > 1)}",
            f"rate {load.rate}",
            f"consume_during {int(load.consume_during)}",
            f"backlog_max {load.backlog_max}",
            f"warmup_ms {warmup_ms}",
            f"window_ms {window_ms}",
            f"pids {' '.join(map(str, pids))}",
        ]

        def inherited(connected: socket.socket) -> int:
            sockets.append(stack.enter_context(connected))
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setblocking(False)
            return connected.fileno()

        names = [f"{queue}.{number}" for number in range(load.queues)]
        link.declare(names, durable=load.durable)
        for number, name in enumerate(names):
            for _ in range(load.producers if not (load.in_turn and number) else 0):
                producer = link.producer(name, content)
                offset = os.lseek(frames, 0, os.SEEK_END)
                _write_all(frames, producer.frame)
                if load.in_turn:
                    assert isinstance(link, Further), f"no producer of {link.protocol} sends to several queues"
                    for further in names[1:]:
                        frame = link.publish(further, content)
                        assert len(frame) == len(producer.frame), "frames for queues in turn have one size"
                        _write_all(frames, frame)
                numbers = " ".join(map(str, producer.patches))
                place = f"{offset} {len(producer.frame)}"
                lines.append(f"producer {inherited(producer.socket)} {number} {place} {numbers}")
            for each in range(load.consumers):
                consumer = link.consumer(name, each, load.prefetch)
                descriptor = inherited(consumer.socket)
                prepared = consumer.acknowledgement.hex() or "-"
                lines.append(f"consumer {descriptor} {number} {consumer.start.hex()} {prepared}")
        try:
            result = subprocess.run(
                [str(driver)],
                input="\n".join(lines) + "\n",
                capture_output=True,
                text=True,
                timeout=RUN_SECONDS_MAX,
                pass_fds=[frames, *(each.fileno() for each in sockets)],
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise RunFailed(f"no end after {RUN_SECONDS_MAX} s") from error
    if result.returncode:
        raise RunFailed(result.stderr.strip() or f"the driver ended with {result.returncode}")
    return Outcome(**json.loads(result.stdout))


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
