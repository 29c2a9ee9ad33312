"""How cost grows: with messages that wait, with queues that exist, with connections that are idle.

``--waiting``: a pair is filled; load, memory, CPU time afterwards, take-over by the backup, and a start after SIGKILL.
``--queues`` and ``--connections``: a broker for each number, all at once, and the cost of a pipelined message in each,
in turn. Times are CPU seconds where possible, because the machine may do other work. Goals: ten times the messages
cost at most ten times as much, and the cost of a message is the same within 10 %.
"""

from __future__ import annotations

import json
import resource
import socket
import statistics
import struct
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.table import Table

from benchmarks.content import NUMBER
from benchmarks.core_link import CoreLink
from benchmarks.goals import Goal
from benchmarks.load import Load, build_driver, run
from benchmarks.usage import cpu_seconds, resident_mib, thread_seconds
from support.processes import Node, Pair
from understudy.message import Message, MessageType
from understudy.wire.core import packets
from understudy.wire.core.codec import MAGIC, FrameDecoder, encode, encode_send

QUEUE = "growth"
_VERSION = 134
_CHANNEL = 10
#: Bytes of the answer to one message.
_ANSWER_BYTES = 21
#: Unconfirmed messages while a queue is filled, and bytes that are sent at once.
_WINDOW = 4_000
_PIECE_BYTES = 512 * 1024
_START_SECONDS_MAX = 600
#: Goal: a start with so many queues takes so many seconds at most.
_START_GOAL_QUEUES = 50_000
_START_GOAL_S = 3.0
#: Goal: with ten times the messages waiting at most ten times as much.
_WAITING_GOALS: Final = (
    ("start, CPU time", "start_cpu_s"),
    ("start, wall time", "start_s"),
    ("take-over", "take_over_s"),
    ("memory", "resident_mib"),
    ("CPU time after the load", "after_cpu_s"),
)
#: CPU time is looked at for so long once a queue is full.
_AFTER_S = 20
_NUMBER = struct.Struct(">Q")


@dataclass
class Waiting:
    """A broker in which that many messages wait. Memory in MiB, times in seconds."""

    messages: int
    load_per_s: float = 0.0
    load_cpu_us: float = 0.0
    """CPU time of the active node for each message of the load. Microseconds."""
    resident_mib: float = 0.0
    after_cpu_s: float = 0.0
    """CPU time in the ``_AFTER_S`` seconds after the last confirmation."""
    after_threads_s: dict[str, float] = field(default_factory=dict)
    take_over_s: float = 0.0
    """Milliseconds from SIGKILL of the active node until its backup accepts connections."""
    start_s: float = 0.0
    """A start after SIGKILL of both, until it accepts connections."""
    start_cpu_s: float = 0.0
    start_resident_mib: float = 0.0
    log_mib: float = 0.0


@dataclass
class Start:
    """Take-over and start with that many queues. Times in seconds, memory in MiB."""

    queues: int
    messages_each: int
    take_over_s: float = 0.0
    """Milliseconds from SIGKILL of the active node until its backup accepts connections."""
    take_over_cpu_s: float = 0.0
    """CPU time of the backup during the take-over. Seconds."""
    start_s: float = 0.0
    """A start after SIGKILL of both, until it accepts connections."""
    start_cpu_s: float = 0.0
    resident_mib: float = 0.0


@dataclass
class Beside:
    """The cost of a message of one busy connection beside so many other things."""

    count: int
    cpu_us: list[float] = field(default_factory=list)
    per_s: list[float] = field(default_factory=list)
    made_us: float = 0.0
    """Wall time for making each of them."""
    resident_mib: float = 0.0
    start_cpu_s: float = 0.0


def fill(port: int, queue: str, count: int, body_bytes: int, *, declare: bool = True) -> None:
    """Send that many durable messages, whose bodies begin with their number, and wait for all confirmations."""
    if declare:
        CoreLink(port).declare([queue])
    with session(port, "growth") as connected:
        body = NUMBER + b"x" * (body_bytes - len(NUMBER))
        message = Message(body, address=queue, type=MessageType.BYTES, durable=True)
        frame = encode_send(message, _CHANNEL, requires_response=True, correlation_id=0, sender_id=0, version=_VERSION)
        at = frame.index(NUMBER)
        piece_count = max(1, min(_PIECE_BYTES // len(frame), _WINDOW // 4))
        piece = bytearray(frame * piece_count)
        sent = answered_bytes = 0
        while sent < count:
            while sent + piece_count - answered_bytes // _ANSWER_BYTES > _WINDOW:
                answered_bytes += _received(connected)
            taken = min(piece_count, count - sent)
            for number in range(taken):
                _NUMBER.pack_into(piece, number * len(frame) + at, sent + number)
            connected.sendall(memoryview(piece)[: taken * len(frame)])
            sent += taken
        while answered_bytes < count * _ANSWER_BYTES:
            answered_bytes += _received(connected)


def _received(connected: socket.socket) -> int:
    data = connected.recv(1 << 18)
    assert data, "the broker closed the connection"
    return len(data)


def session(port: int, name: str) -> socket.socket:
    """A connection with a session."""
    connected = socket.create_connection(("127.0.0.1", port), 60)
    decoder = FrameDecoder("client")
    decoder.version = _VERSION
    create = packets.CreateSession(name, _CHANNEL, _VERSION, user="bench", password="bench")
    connected.sendall(MAGIC + encode(create, 1, _VERSION))
    while not list(decoder.receive_data(connected.recv(65536))):
        pass
    return connected


def start_seconds(node: Node) -> float:
    """Start the node and wait until it accepts connections."""
    began = time.monotonic()
    node.start()
    while not listens(node.port):
        assert node.process is not None
        assert node.process.poll() is None, node.tail()
        assert time.monotonic() - began < _START_SECONDS_MAX, node.tail()
        time.sleep(0.005)
    return time.monotonic() - began


def listens(port: int) -> bool:
    """Whether a connection is accepted."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def measure_waiting(
    directory: Path, messages: int, body_bytes: int, *, snapshots: bool, after_s: float = _AFTER_S
) -> Waiting:
    """Fill a pair, let the backup take over, start the primary again."""
    extra = "" if snapshots else "<journal-compact-min-files>0</journal-compact-min-files>"
    pair = Pair(directory, extra=extra)
    node, found = pair.primary, Waiting(messages)
    try:
        pair.start()
        before_s, began = cpu_seconds(node), time.monotonic()
        fill(node.port, QUEUE, messages, body_bytes)
        found.load_per_s = messages / (time.monotonic() - began)
        found.load_cpu_us = (cpu_seconds(node) - before_s) * 1e6 / messages
        before = thread_seconds(node)
        time.sleep(after_s)
        after = thread_seconds(node)
        found.after_threads_s = {name: round(used - before.get(name, 0), 2) for name, used in after.items()}
        found.after_cpu_s = sum(found.after_threads_s.values())
        found.resident_mib = resident_mib(node)
        found.log_mib = sum(each.stat().st_size for each in (pair.store / "journal").iterdir()) / 1024 / 1024
        pair.backup.wait_ready("passive")
        node.kill()
        began = time.monotonic()
        while not listens(pair.backup.port):
            assert time.monotonic() - began < _START_SECONDS_MAX, pair.backup.tail()
            time.sleep(0.002)
        found.take_over_s = time.monotonic() - began
        _check(pair.backup, messages)
        pair.backup.kill()
        found.start_s = start_seconds(node)
        found.start_cpu_s = cpu_seconds(node)
        found.start_resident_mib = resident_mib(node)
        node.wait_ready("active")
        _check(node, messages)
    finally:
        pair.end()
    return found


def _check(node: Node, messages: int) -> None:
    queue = node.queue(QUEUE)
    assert queue is not None, node.tail()
    assert queue["message_count"] == messages, queue


def measure_start(directory: Path, queues: int, messages_each: int) -> Start:
    """Make queues with some messages in each, let the backup take over, start the primary again."""
    pair, found = Pair(directory), Start(queues, messages_each)
    names = [f"queue.{number}" for number in range(queues)]
    try:
        pair.start()
        CoreLink(pair.primary.port).declare(names)
        if messages_each:
            _send_to_each(pair.primary.port, names, messages_each)
        pair.backup.wait_ready("passive")
        before_s = cpu_seconds(pair.backup)
        pair.primary.kill()
        began = time.monotonic()
        while not listens(pair.backup.port):
            assert time.monotonic() - began < _START_SECONDS_MAX, pair.backup.tail()
            time.sleep(0.002)
        found.take_over_s = time.monotonic() - began
        found.take_over_cpu_s = cpu_seconds(pair.backup) - before_s
        pair.backup.kill()
        found.start_s = start_seconds(pair.primary)
        found.start_cpu_s = cpu_seconds(pair.primary)
        found.resident_mib = resident_mib(pair.primary)
        pair.primary.wait_ready("active")
        for name in (names[0], names[-1]):
            queue = pair.primary.queue(name)
            assert queue is not None, pair.primary.tail()
            assert queue["message_count"] == messages_each, queue
    finally:
        pair.end()
    return found


def _send_to_each(port: int, names: list[str], count: int) -> None:
    """Send that many durable messages of 1 KiB to each queue, and wait for all confirmations."""
    with session(port, "each") as connected:
        under_way = 0
        for name in names:
            message = Message(b"x" * 1024, address=name, type=MessageType.BYTES, durable=True)
            frame = encode_send(
                message, _CHANNEL, requires_response=True, correlation_id=0, sender_id=0, version=_VERSION
            )
            connected.sendall(frame * count)
            under_way += count * _ANSWER_BYTES
            while under_way > _WINDOW * _ANSWER_BYTES:
                under_way -= _received(connected)
        while under_way:
            under_way -= _received(connected)


def measure_beside(
    directory: Path, *, queues: tuple[int, ...] = (), connections: tuple[int, ...] = (), rounds: int, window_ms: int
) -> list[Beside]:
    """The cost of a pipelined message in brokers with different numbers of queues or connections beside it; rounds in
    turn.
    """
    found = [Beside(count) for count in queues or connections]
    with ExitStack() as stack:
        driver = build_driver(directory)
        pairs = [Pair(directory / str(each.count)) for each in found]
        for pair in pairs:
            stack.callback(pair.end)
        for each, pair in zip(found, pairs, strict=True):
            node = pair.primary
            node.start().wait_ready("active")
            began = time.monotonic()
            if queues:
                CoreLink(node.port).declare([f"other.{number}" for number in range(each.count)])
            else:
                for number in range(each.count):
                    stack.enter_context(session(node.port, f"idle.{number}"))
            each.made_us = (time.monotonic() - began) * 1e6 / max(each.count, 1)
            each.resident_mib = resident_mib(node)
        for number in range(rounds):
            for each, pair in zip(found, pairs, strict=True):
                process = pair.primary.process
                assert process is not None
                outcome = run(
                    driver, CoreLink(pair.primary.port), Load(), f"busy.{number}", [process.pid],
                    warmup_ms=500, window_ms=window_ms,
                )  # fmt: skip
                each.cpu_us.append(outcome.broker_cpu_us)
                each.per_s.append(outcome.per_s)
        if queues:
            for each, pair in zip(found, pairs, strict=True):
                pair.primary.kill()
                start_seconds(pair.primary)
                each.start_cpu_s = cpu_seconds(pair.primary)
                pair.primary.kill()
    return found


class Numbers(click.ParamType):
    """Numbers with commas between them."""

    name = "numbers"

    def convert(self, value: object, param: click.Parameter | None, context: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return tuple(int(each) for each in str(value).split(",") if each)
        except ValueError:
            self.fail(f"{value!r} are no numbers with commas", param, context)


@click.command()
@click.option("--waiting", type=Numbers(), default="", help="Messages that wait, as 1000000,10000000.")
@click.option("--size", default=1024, show_default=True, help="Bytes of their bodies.")
@click.option("--snapshots/--no-snapshots", default=True, help="Whether the log is consolidated.")
@click.option("--queues", type=Numbers(), default="", help="Queues, as 1,100,1000,10000.")
@click.option("--starts", type=Numbers(), default="", help="Queues of nodes that are only started, as 50000.")
@click.option("--each", default=0, show_default=True, help="Messages in each of these queues.")
@click.option("--connections", type=Numbers(), default="", help="Idle connections, as 0,100,1000,3000.")
@click.option("--rounds", default=5, show_default=True)
@click.option("--window-ms", default=2000, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
def growth(
    *,
    waiting: tuple[int, ...],
    size: int,
    snapshots: bool,
    queues: tuple[int, ...],
    starts: tuple[int, ...],
    each: int,
    connections: tuple[int, ...],
    rounds: int,
    window_ms: int,
    as_json: bool,
) -> None:
    """Measure the cost of waiting messages, queues and idle connections; by default some of each."""
    if not waiting and not queues and not connections and not starts:
        waiting, queues, connections = (100_000, 1_000_000), (1, 100, 1_000, 10_000), (0, 100, 1_000, 3_000)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(prefix="understudy-growth-") as name:
        directory = Path(name)
        depths = [
            measure_waiting(directory / f"waiting-{count}", count, size, snapshots=snapshots) for count in waiting
        ]
        started = [measure_start(directory / f"start-{count}", count, each) for count in starts]
        by_queues = (
            measure_beside(_made(directory / "queues"), queues=queues, rounds=rounds, window_ms=window_ms)
            if queues
            else []
        )
        by_connections = (
            measure_beside(
                _made(directory / "connections"), connections=connections, rounds=rounds, window_ms=window_ms
            )
            if connections
            else []
        )
    if as_json:
        cases = {"waiting": depths, "starts": started, "queues": by_queues, "connections": by_connections}
        figures = {case: [asdict(found) for found in values] for case, values in cases.items()}
        click.echo(json.dumps({"benchmark": "growth", "body_bytes": size, "snapshots": snapshots, **figures}))
        return
    if depths:
        _show_waiting(depths, size)
    if started:
        _show_starts(started)
    for title, beside in (("queues", by_queues), ("idle connections", by_connections)):
        if beside:
            _show_beside(title, beside)
    for goal in [*waiting_goals(depths), *start_goals(started), *flat_goals(by_queues, by_connections)]:
        click.echo(f"goal: {goal.text}: {goal.wanted}; {goal.found}: {'met' if goal.met else 'MISSED'}")


def waiting_goals(depths: Sequence[Waiting]) -> list[Goal]:
    """Goals of deep queues: a row with n times the messages of the first row has at most n times its cost."""
    goals: list[Goal] = []
    for more in depths[1:]:
        factor = more.messages / depths[0].messages
        for name, figure in _WAITING_GOALS:
            ratio = getattr(more, figure) / max(getattr(depths[0], figure), 0.01)
            text = f"{name} with {more.messages:,} instead of {depths[0].messages:,} waiting"
            goals.append(Goal(text, f"at most {factor:g} times", f"{ratio:.1f} times", ratio <= factor))
    return goals


def start_goals(started: Sequence[Start]) -> list[Goal]:
    """A start with up to 50,000 queues takes 3 s of CPU time at most, and so does a take-over."""
    return [
        Goal(f"{name} with {each.queues:,} queues, {each.messages_each} messages in each", "at most 3 s",
             f"{seconds:.2f} s", seconds <= _START_GOAL_S)
        for each in started
        if each.queues <= _START_GOAL_QUEUES
        for name, seconds in (("start, CPU time", each.start_cpu_s), ("take-over, CPU time", each.take_over_cpu_s))
    ]  # fmt: skip


def flat_goals(by_queues: Sequence[Beside], by_connections: Sequence[Beside]) -> list[Goal]:
    """A message costs the same within 10 %, whatever exists beside it."""
    goals: list[Goal] = []
    for title, found in (("queues", by_queues), ("idle connections", by_connections)):
        if len(found) > 1:
            first_us = statistics.median(found[0].cpu_us)
            worst = max(found[1:], key=lambda each: statistics.median(each.cpu_us))
            ratio = statistics.median(worst.cpu_us) / first_us
            text = f"CPU time of a message beside {worst.count:,} {title}"
            goals.append(Goal(text, f"at most 1.1 times that beside {found[0].count:,}", f"{ratio:.2f}", ratio <= 1.1))
    return goals


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _show_waiting(depths: list[Waiting], size: int) -> None:
    table = Table(title=f"Messages of {size} bytes that wait")
    for column in ("waiting", "load /s", "CPU us each", "MiB", f"CPU s in the {_AFTER_S} s after", "take-over s",
                   "start s", "start CPU s", "MiB then", "log MiB"):  # fmt: skip
        table.add_column(column, justify="right")
    for each in depths:
        table.add_row(
            f"{each.messages:,}", f"{each.load_per_s:,.0f}", f"{each.load_cpu_us:.1f}", f"{each.resident_mib:.0f}",
            f"{each.after_cpu_s:.2f}", f"{each.take_over_s:.2f}", f"{each.start_s:.2f}", f"{each.start_cpu_s:.2f}",
            f"{each.start_resident_mib:.0f}", f"{each.log_mib:,.0f}",
        )  # fmt: skip
    Console(width=140).print(table)


def _show_starts(started: Sequence[Start]) -> None:
    table = Table(title="Nodes with many queues")
    for column in ("queues", "messages in each", "take-over s", "take-over CPU s", "start s", "start CPU s", "MiB"):
        table.add_column(column, justify="right")
    for each in started:
        table.add_row(
            f"{each.queues:,}", f"{each.messages_each}", f"{each.take_over_s:.2f}", f"{each.take_over_cpu_s:.2f}",
            f"{each.start_s:.2f}",
            f"{each.start_cpu_s:.2f}", f"{each.resident_mib:.0f}",
        )  # fmt: skip
    Console(width=140).print(table)


def _show_beside(title: str, found: list[Beside]) -> None:
    table = Table(title=f"A pipelined message beside {title}, medians of {len(found[0].cpu_us)} rounds in turn")
    for column in (title, "CPU us", "ratio", "messages/s", "made us each", "MiB", "start CPU s"):
        table.add_column(column, justify="right")
    first_us = statistics.median(found[0].cpu_us)
    for each in found:
        cpu_us = statistics.median(each.cpu_us)
        table.add_row(
            f"{each.count:,}", f"{cpu_us:.2f}", f"{cpu_us / first_us:.2f}", f"{statistics.median(each.per_s):,.0f}",
            f"{each.made_us:,.0f}", f"{each.resident_mib:.0f}", f"{each.start_cpu_s:.2f}" if each.start_cpu_s else "",
        )  # fmt: skip
    Console(width=140).print(table)
