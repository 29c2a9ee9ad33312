"""``python -m benchmarks backlog``: the load of other queues on a node in which many messages wait.

Each case runs in turn on a node without a backlog and on one with the same settings that is above the limit of its
memory (``global-max-size``), because a queue without consumers holds more. The ratio says what the deep queue costs the
others; processor time for a message depends less on other load of the machine than rates do. ``--peers artemis`` adds
Artemis with the same limit and backlog, ``--baseline`` another commit of this broker, ``--curve`` a node whose deep
queue grows step by step.

The client checks that every message was confirmed, and that every consumer gets each message once and in order.
"""

from __future__ import annotations

import json
import selectors
import socket
import statistics
import struct
import tempfile
import time
from array import array
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.table import Table

from benchmarks.content import NUMBER
from benchmarks.core_link import LinkClient
from benchmarks.growth import Numbers, fill
from benchmarks.load import CannotRun, RunFailed
from benchmarks.targets import Artemis, Broker, Understudy
from benchmarks.usage import process_cpu_seconds
from understudy.kernel.core.frames import RECEIVE_OVERHEAD_BYTES
from understudy.message import Message, MessageType
from understudy.wire.core import packets
from understudy.wire.core.codec import encode, encode_send

DEEP: Final = "deep"
_BODY_BYTES: Final = 1024
_VERSION: Final = 134
_CHANNEL: Final = 10
_HEAD_BYTES: Final = 13
_ANSWER_BYTES: Final = 21
_WINDOW_BYTES: Final = 1024 * 1024
#: Deliveries that a consumer acknowledges together.
_TOGETHER: Final = 50
#: Messages that the slowest consumer may still have to get before the producer pauses.
_BEHIND_MAX: Final = 4_000
#: Messages whose numbers can be checked in one run.
_NUMBERS: Final = 4_000_000
_QUIET_S: Final = 60
_LENGTH: Final = struct.Struct(">i")


@dataclass(frozen=True)
class Case:
    """A producer, and consumers that each get every message."""

    text: str
    queues: int = 1
    transaction: int = 0
    """Messages of a transaction; 0: each is confirmed alone."""
    in_flight: int = 1_000
    """Unconfirmed messages without transactions."""
    consumes: bool = True
    drains: int = 0
    """Messages that wait already and are consumed; nothing is sent."""


CASES: Final[dict[str, Case]] = {
    "async": Case("asynchronous send and receive"),
    "topic-10": Case("durable topic, 10 subscribers", queues=10, in_flight=200),
    "topic-100": Case("durable topic, 100 subscribers", queues=100, in_flight=100),
    "tx-1": Case("transactions of 1", transaction=1),
    "tx-100": Case("transactions of 100", transaction=100),
    "tx-500": Case("transactions of 500", transaction=500),
    "fill-500": Case("a queue is filled in transactions of 500", transaction=500, consumes=False),
    "drain": Case("a queue of 100,000 messages is consumed", drains=100_000),
}


@dataclass(frozen=True)
class Figures:
    """One run. Messages are deliveries, or without consumers confirmed messages."""

    per_s: float
    broker_cpu_us: float
    client_cpu_us: float = 0.0
    """Processor time of the client for each message, in µs; 0: not measured."""


@dataclass
class Row:
    """A broker, with or without a backlog."""

    name: str
    limit_mib: int
    waiting: int
    broker: Broker
    samples: dict[str, list[Figures]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    """Reason of the failed run of a case, by case."""

    def median(self, case: str, figure: str) -> float | None:
        """The median of a figure over the rounds of a case; None if no round has it."""
        values = [float(getattr(each, figure)) for each in self.samples.get(case, ())]
        return statistics.median(values) if values else None


class _Producer:
    def __init__(self, port: int, address: str, case: Case) -> None:
        self._case = case
        client = LinkClient(port, auto_commit=not case.transaction)
        client.ask(packets.ProducerRequestCredits(1 << 30, address), packets.ProducerCredits)
        self.socket = client.socket
        body = NUMBER + b"x" * (_BODY_BYTES - len(NUMBER))
        message = Message(body, address=address, type=MessageType.BYTES, durable=True)
        frame = encode_send(
            message, _CHANNEL, requires_response=not case.transaction, correlation_id=0, sender_id=0, version=_VERSION
        )
        self._frame, self._at = frame, frame.index(NUMBER)
        self.message_bytes = len(message.encoded)
        self.id_offset = _HEAD_BYTES + message.header_offset
        self._commit = encode(packets.Commit(), _CHANNEL, _VERSION)
        self.sent = self.confirmed = 0
        self._answered_bytes = 0
        self._out = memoryview(b"")

    def produce(self, behind: int) -> None:
        """Send as much as the case allows."""
        if not self._out:
            case = self._case
            count = case.transaction or min(100, case.in_flight - (self.sent - self.confirmed))
            if behind + count > _BEHIND_MAX or count <= 0 or (case.transaction and self.sent > self.confirmed):
                return
            piece = bytearray(self._frame * count)
            for number in range(count):
                struct.pack_into(">Q", piece, number * len(self._frame) + self._at, self.sent + number)
            self._out = memoryview(bytes(piece) + (self._commit if case.transaction else b""))
            self.sent += count
        try:
            self._out = self._out[self.socket.send(self._out) :]
        except BlockingIOError:
            return

    @property
    def writes(self) -> bool:
        """Whether bytes are left that the socket did not take."""
        return bool(self._out)

    def receive(self) -> None:
        """Take confirmations."""
        data = self.socket.recv(1 << 16)
        if not data:
            raise RunFailed("the broker closed the connection of the producer")
        self._answered_bytes += len(data)
        self.confirmed = self._answered_bytes // _ANSWER_BYTES * (self._case.transaction or 1)


class _Consumer:
    def __init__(self, port: int, queue: str, producer: _Producer, numbers: bytes) -> None:
        client = LinkClient(port)
        client.ask(packets.CreateConsumer(0, queue, None, False, True, 0), packets.queue_query_response_type(_VERSION))
        self.socket = client.socket
        self._frame_bytes = size = producer.message_bytes + RECEIVE_OVERHEAD_BYTES
        self._id_offset = producer.id_offset
        at = _HEAD_BYTES + 4
        self._number = struct.Struct(f"{at}x8s{size - at - 8}x")
        self._numbers = numbers
        self._data = bytearray()
        self._last = b""
        self.delivered = self._acknowledged = 0
        acknowledge = encode(packets.Acknowledge(0, 0), _CHANNEL, _VERSION)
        self._acknowledge = bytearray(acknowledge)
        self._flow = partial(packets.FlowToken, 0)
        start = encode(packets.SessionStart(), _CHANNEL, _VERSION)
        self.socket.sendall(start + encode(self._flow(_WINDOW_BYTES), _CHANNEL, _VERSION))

    def receive(self) -> None:
        """Take deliveries, and acknowledge them some at a time."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise RunFailed("the broker closed the connection of a consumer")
        self._data += data
        size = self._frame_bytes
        count = len(self._data) // size
        if not count:
            return
        if _LENGTH.unpack_from(self._data)[0] != size - 4:
            raise RunFailed(f"a frame of {_LENGTH.unpack_from(self._data)[0]} bytes where deliveries have {size - 4}")
        whole = bytes(self._data[: count * size])
        del self._data[: count * size]
        found = b"".join([each[0] for each in self._number.iter_unpack(whole)])
        if found != self._numbers[8 * self.delivered : 8 * (self.delivered + count)]:
            raise RunFailed(f"deliveries after {self.delivered} are not the next ones")
        self.delivered += count
        self._last = whole[-size:]
        if self.delivered - self._acknowledged >= _TOGETHER:
            self.acknowledge()

    def acknowledge(self) -> None:
        """Acknowledge everything that was delivered."""
        count = self.delivered - self._acknowledged
        if count:
            self._acknowledge[-9:-1] = self._last[self._id_offset : self._id_offset + 8]
            granted = encode(self._flow(count * self._frame_bytes), _CHANNEL, _VERSION)
            self.socket.setblocking(True)
            self.socket.sendall(bytes(self._acknowledge) + granted)
            self.socket.setblocking(False)
            self._acknowledged = self.delivered


def _numbers() -> bytes:
    column = array("Q", range(_NUMBERS))
    column.byteswap()
    return column.tobytes()


def run_case(broker: Broker, case: Case, address: str, numbers: bytes, *, warmup_s: float, window_s: float) -> Figures:
    """One run over queues of its own. Raises RunFailed."""
    queues = [f"{address}.{number}" for number in range(case.queues)]
    kind = 0 if case.queues > 1 else 1
    with ExitStack() as stack:
        with LinkClient(broker.port) as client:
            client.ask(packets.CreateAddress(address, (kind,)), packets.NullResponse)
            for queue in [] if case.drains else queues:
                client.ask(packets.CreateQueueV2(address, queue, routing_type=kind), packets.NullResponse)
        if case.drains:
            fill(broker.port, address, case.drains, _BODY_BYTES)
            queues = [address]
        producer = _Producer(broker.port, address, case)
        made = [_Consumer(broker.port, queue, producer, numbers) for queue in queues] if case.consumes else []
        selector = stack.enter_context(selectors.DefaultSelector())
        if case.drains:
            # an idle connection would be closed
            producer.socket.close()
        for each in made if case.drains else (producer, *made):
            stack.enter_context(each.socket)
            each.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.socket.setblocking(False)
            selector.register(each.socket, selectors.EVENT_READ, each.receive)

        def turn(*, producing: bool) -> None:
            if producing or producer.writes:
                slowest = min((each.delivered for each in made), default=producer.confirmed)
                producer.produce(producer.sent - slowest if producing else 0)
            if not case.drains:
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if producer.writes else 0)
                selector.modify(producer.socket, wanted, producer.receive)
            for key, events in selector.select(0.01):
                if events & selectors.EVENT_READ:
                    key.data()

        def done() -> int:
            return sum(each.delivered for each in made) if made else producer.confirmed

        def work(seconds: float) -> None:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                turn(producing=True)

        if case.drains:
            producer.sent = producer.confirmed = case.drains
            warmup_s = window_s = 0
        work(warmup_s)
        before, before_s, began = done(), _cpu_s(broker), time.monotonic()
        work(window_s)
        while case.drains and made[0].delivered < case.drains:
            turn(producing=False)
        count, cpu_s, seconds = done() - before, _cpu_s(broker) - before_s, time.monotonic() - began
        end = time.monotonic() + _QUIET_S
        while producer.confirmed < producer.sent or any(each.delivered < producer.sent for each in made):
            turn(producing=False)
            if time.monotonic() > end:
                raise RunFailed(f"not everything was confirmed and delivered within {_QUIET_S} s")
        for consumer in made:
            consumer.acknowledge()
    if not count:
        raise RunFailed("nothing was done in the window")
    return Figures(count / seconds, cpu_s * 1e6 / count)


def _cpu_s(broker: Broker) -> float:
    return sum(map(process_cpu_seconds, broker.pids()))


def limit(path: Path, limit_mib: int, address_setting: str) -> None:
    """Write a limit of bodies in memory into a configuration, 0: its own default, and an element for addresses."""
    text = path.read_text()
    if limit_mib:
        text = text.replace("</core>", f"<global-max-size>{limit_mib * 1024 * 1024}</global-max-size></core>")
    if address_setting:
        if "</address-settings>" not in text:
            text = text.replace("</core>", "<address-settings></address-settings></core>")
        text = text.replace("</address-settings>", f"{address_setting}</address-settings>")
    path.write_text(text)


def start(name: str, directory: Path, limit_mib: int, revision: str = "", address_setting: str = "") -> Broker:
    """Start Artemis or this broker.

    Args:
        name: ``artemis``; anything else is this broker.
        directory: Directory in which only this broker keeps its files.
        limit_mib: Bodies in memory, ``global-max-size``; 0: the default of the broker.
        revision: Run the sources of another commit of this broker.
        address_setting: An element ``address-setting`` that is added to the configuration.

    Raises:
        CannotRun: the broker is not available on this machine.
    """
    broker: Artemis | Understudy = Artemis(directory) if name == "artemis" else Understudy(directory, revision=revision)
    broker.prepare()
    limit(broker.configuration, limit_mib, address_setting)
    broker.start()
    return broker


@click.command("backlog")
@click.option("--cases", default=",".join(CASES), show_default=True, help="Some of these.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="Medians are printed.")
@click.option("--window-s", default=3.0, show_default=True, help="Seconds of each run that are measured.")
@click.option(
    "--limits-mib",
    "limits",
    type=Numbers(),
    default="64",
    show_default=True,
    help="Values of global-max-size, with a row for each; 0: the default of each broker.",
)
@click.option("--waiting", default=150_000, show_default=True, help="Messages of 1 KiB that wait in the deep queue.")
@click.option("--peers", default="", metavar="artemis", help="Also Artemis, with the same limit and backlog.")
@click.option("--baseline", default="", metavar="REV", help="Also the sources of this commit.")
@click.option("--curve", type=Numbers(), default="", help="Instead: a deep queue that grows to each, as 0,1000000.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
def backlog(
    *,
    cases: str,
    rounds: int,
    window_s: float,
    limits: tuple[int, ...],
    waiting: int,
    peers: str,
    baseline: str,
    curve: tuple[int, ...],
    as_json: bool,
) -> None:
    """Measure what a deep queue on a node above its limit of memory costs other queues."""
    chosen = [name for name in cases.split(",") if name]
    for name in chosen:
        if name not in CASES:
            raise click.BadParameter(f"{name!r} is none of {', '.join(CASES)}", param_hint="--cases")
    if peers not in ("", "artemis"):
        raise click.BadParameter(f"{peers!r} is not artemis", param_hint="--peers")
    names = [("understudy", "")]
    if baseline:
        names.append((f"understudy-{baseline[:7]}", baseline))
    if peers:
        names.append((peers, ""))
    with tempfile.TemporaryDirectory(prefix="understudy-backlog-") as directory, ExitStack() as stack:
        rows: list[Row] = []
        for name, revision in names:
            for limit_mib, depth in product(limits, curve[:1] if curve else (0, waiting)):
                try:
                    broker = start(name, Path(directory) / f"{name}-{limit_mib}-{depth}", limit_mib, revision)
                except CannotRun as error:
                    click.echo(f"{name} skipped: {error}", err=True)
                    continue
                stack.callback(broker.stop)
                if depth:
                    fill(broker.port, DEEP, depth, _BODY_BYTES)
                rows.append(Row(name, limit_mib, depth, broker))
        if curve:
            rows = _along(rows, curve, chosen, window_s)
        else:
            numbers = _numbers()
            for number in range(rounds):
                for case in chosen:
                    for row in rows:
                        figures = run_case(
                            row.broker, CASES[case], f"{case}.{number}", numbers, warmup_s=1, window_s=window_s
                        )
                        row.samples.setdefault(case, []).append(figures)
                        where = f"{row.name}, {row.limit_mib} MiB, {row.waiting:,} waiting"
                        found = f"{figures.per_s:,.0f}/s, {figures.broker_cpu_us:.1f} us"
                        click.echo(f"round {number + 1}: {case}: {where}: {found}", err=True)
    if as_json:
        facts = [
            {"name": row.name, "limit_mib": row.limit_mib, "waiting": row.waiting,
             "samples": {case: [asdict(each) for each in figures] for case, figures in row.samples.items()}}
            for row in rows
        ]  # fmt: skip
        click.echo(json.dumps({"benchmark": "backlog", "rows": facts}))
        return
    _show(chosen, rows)


def _along(rows: Sequence[Row], depths: Sequence[int], cases: Sequence[str], window_s: float) -> list[Row]:
    """A row of figures for each depth of the deep queue of each broker."""
    numbers = _numbers()
    found = [Row(row.name, row.limit_mib, depth, row.broker) for row in rows for depth in depths]
    for row in rows:
        waiting = row.waiting
        for each in [each for each in found if each.broker is row.broker]:
            if each.waiting > waiting:
                fill(row.broker.port, DEEP, each.waiting - waiting, _BODY_BYTES, declare=not waiting)
                waiting = each.waiting
            for case in cases:
                name = f"{case}.{each.waiting}"
                each.samples[case] = [run_case(row.broker, CASES[case], name, numbers, warmup_s=1, window_s=window_s)]
                click.echo(
                    f"{row.name}: {each.waiting:,} waiting: {case}: {each.samples[case][0].per_s:,.0f}/s", err=True
                )
    return found


def _show(cases: Sequence[str], rows: Sequence[Row]) -> None:
    table = Table(title="Beside a deep queue")
    for column in ("case", "broker", "limit MiB", "waiting", "messages/s", "ratio", "CPU us", "ratio"):
        table.add_column(column, justify="left" if column in ("case", "broker") else "right")
    for case in cases:
        first: Row | None = None
        for row in rows:
            if first is None or (row.name, row.limit_mib) != (first.name, first.limit_mib):
                first = row
            per_s, cpu_us = row.median(case, "per_s"), row.median(case, "broker_cpu_us")
            first_per_s, first_us = first.median(case, "per_s"), first.median(case, "broker_cpu_us")
            if per_s and cpu_us is not None and first_per_s and first_us is not None:
                table.add_row(
                    case, row.name, str(row.limit_mib or ""), f"{row.waiting:,}", f"{per_s:,.0f}",
                    f"{per_s / first_per_s:.2f}", f"{cpu_us:.2f}", f"{cpu_us / max(first_us, 0.01):.2f}",
                )  # fmt: skip
        table.add_section()
    Console(width=120).print(table)
