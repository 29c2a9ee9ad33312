"""``python -m benchmarks calls``: function calls that the broker makes for one message.

A node runs in this process on real files and uvloop. A client in another thread sends prepared frames and waits for
each response; ``sys.setprofile`` counts in every thread of the broker but not in the client's. Counts do not depend on
the speed of the machine, so they show a change of the hot path that times on a shared machine hide.

A Python call is a call of a function of an ``understudy`` module (comprehensions and resumed generators included). A
C call is a call of a built-in function or method, or of a function of the native kernel, by such a function. Both
include the shell (``understudy.runtime``). Not counted: ``Turn._look_again``, which polls while the loop has nothing
to do, so that its number depends on the client.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

import click
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.amqp_link import AmqpLink
from benchmarks.content import DUPLICATE, JMS, PLAIN, PROPERTIES, Content, Shape
from benchmarks.core_link import CoreLink, LinkClient
from benchmarks.goals import CALLS_MAX, MODULES_MAX, Goal
from benchmarks.load import Producer, RunFailed
from benchmarks.report import goal_table
from support.faulty_disk import start_node
from support.processes import Pair
from understudy import kernel
from understudy.ids import Xid
from understudy.runtime.base.disk import RealDisk
from understudy.runtime.process import interpreter
from understudy.wire.core import packets

#: Operations that are counted, and those before them that are not.
OPERATIONS: Final = 100
WARMUP: Final = 200
#: Messages of a batch, and batches.
BATCH: Final = 100
BATCHES: Final = 10
#: Of messages that are gathered in one turn.
PRODUCERS: Final = 16

_HEAD_BYTES: Final = 13
#: Bytes of a basic.ack with its frame, and its class and method.
_CONFIRM_BYTES: Final = 21
_BASIC_ACK: Final = bytes((0, 60, 0, 80))
#: Bytes of a send after its message: whether a response is wanted, correlation id, number of the producer.
_SEND_TAIL_BYTES: Final = 13
_EXCEPTION, _NULL_RESPONSE, _RECEIVE, _ACKNOWLEDGE, _COMMIT = 20, 21, 75, 41, 43
_POLLING: Final = ("understudy.runtime.base.turn", "Turn._look_again")
#: Methods of an asyncio protocol with which a read of a socket begins.
_READS: Final = (".data_received", ".buffer_updated")


class Call(NamedTuple):
    """One call, in the order in which they happened."""

    native: bool
    module: str
    function: str
    thread: str
    depth: int
    """Calls of the broker's functions around it in its thread."""


@dataclass
class Counter:
    """The profile function: records calls while ``counting`` is set."""

    calls: list[Call] = field(default_factory=list)
    counting: bool = False
    polls: int = 0
    _depths: dict[int, int] = field(default_factory=dict)

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if not self.counting:
            return
        module = frame.f_globals.get("__name__", "")
        if not module.startswith("understudy"):
            return
        function = frame.f_code.co_qualname
        if (module, function) == _POLLING:
            self.polls += event == "call"
            return
        thread = threading.get_ident()
        depth = self._depths.get(thread, 0)
        if event == "call":
            self.calls.append(Call(False, module, function, threading.current_thread().name, depth))
            self._depths[thread] = depth + 1
        elif event == "return":
            self._depths[thread] = max(depth - 1, 0)
        elif event == "c_call":
            owner = getattr(argument, "__module__", None) or type(getattr(argument, "__self__", None)).__name__
            name = getattr(argument, "__qualname__", repr(argument))
            self.calls.append(Call(True, str(owner), name, threading.current_thread().name, depth))

    def start(self) -> None:
        """Count from now on, the calling thread included."""
        self._depths.clear()
        self.counting = True
        sys.setprofile(self)

    def stop(self) -> None:
        sys.setprofile(None)
        self.counting = False


@dataclass(frozen=True)
class Count:
    """Calls of one case."""

    case: str
    messages: int
    calls: tuple[Call, ...]
    polls: int

    def per_message(self, *, native: bool) -> float:
        """Mean number of Python calls or C calls."""
        return sum(call.native is native for call in self.calls) / self.messages

    def segments(self) -> list[tuple[Call, ...]]:
        """The calls of each read of a socket and of what followed until the next one."""
        begins = [
            number
            for number, call in enumerate(self.calls)
            if not call.native and not call.depth and call.function.endswith(_READS)
        ]
        return [self.calls[one:two] for one, two in zip(begins, [*begins[1:], len(self.calls)], strict=True)]

    def typical(self) -> tuple[Call, ...]:
        """The read with the median number of Python calls; everything if the calls do not divide into reads."""
        ordered = sorted(self.segments(), key=lambda calls: sum(not call.native for call in calls))
        return ordered[len(ordered) // 2] if ordered else self.calls

    def modules(self) -> list[str]:
        """Modules of the broker whose functions a typical read calls."""
        return sorted({call.module for call in self.typical() if not call.native})

    def python_calls_typical(self) -> int:
        """Python calls of a typical read. The mean has in it timers of the node that fell into the measurement."""
        return sum(not call.native for call in self.typical())

    def facts(self) -> dict[str, object]:
        """Figures of the case for the option ``--json``."""
        return {
            "case": self.case,
            "messages": self.messages,
            "python_calls": self.per_message(native=False),
            "python_calls_typical": self.python_calls_typical(),
            "c_calls": self.per_message(native=True),
            "modules": self.modules(),
            "polls": self.polls / self.messages,
            "typical": [call._asdict() for call in self.typical()],
        }


class Client:
    """The client of a case, in a thread that is not counted."""

    def __init__(self, port: int, loop: asyncio.AbstractEventLoop, counter: Counter) -> None:
        self.link = CoreLink(port)
        self._loop = loop
        self._counter = counter

    def count(self, case: str, operation: Callable[[int], None], messages: int, warmup: int, times: int) -> Count:
        """Run ``operation`` (with its number) without and then with counting."""
        for number in range(warmup):
            operation(number)
        self._on_loop(self._counter.start)
        for number in range(warmup, warmup + times):
            operation(number)
        self._on_loop(self._counter.stop)
        calls, self._counter.calls = tuple(self._counter.calls), []
        polls, self._counter.polls = self._counter.polls, 0
        return Count(case, messages, calls, polls)

    @contextmanager
    def loop_held(self) -> Iterator[None]:
        """The loop of the broker stands still meanwhile."""
        release = threading.Event()

        def hold() -> None:
            self._loop.call_soon_threadsafe(release.wait, 60)

        self._on_loop(hold)
        try:
            yield
        finally:
            release.set()

    def let_read(self) -> None:
        """Wait until the broker has read and carried out the frames that were sent before."""
        for _ in range(3):
            self._on_loop(lambda: None)

    def _on_loop(self, call: Callable[[], None]) -> None:
        done = threading.Event()

        def run() -> None:
            call()
            done.set()

        self._loop.call_soon_threadsafe(run)
        if not done.wait(60):
            raise RunFailed("the loop of the broker does not answer")


def lone_sends(client: Client, name: str, shape: Shape) -> Count:
    """One producer that waits for each confirmation."""
    queue = f"lone.{shape.name}"
    client.link.declare([queue])
    producer = client.link.producer(queue, Content(shape))
    with producer.socket as connected:
        connected.settimeout(60)

        def send(number: int) -> None:
            connected.sendall(patched(producer, number))
            _responses(connected, 1)

        return client.count(name, send, OPERATIONS, WARMUP, OPERATIONS)


def lone_publishes(client: Client, name: str, shape: Shape) -> Count:
    """One producer over AMQP 0-9-1 that waits for each confirm."""
    queue = f"publishes.{shape.name}"
    link = AmqpLink(client.link.port, "classic")
    link.declare([queue])
    producer = link.producer(queue, Content(shape))
    with producer.socket as connected:
        connected.settimeout(60)

        def publish(number: int) -> None:
            connected.sendall(patched(producer, number))
            _confirm(connected)

        return client.count(name, publish, OPERATIONS, WARMUP, OPERATIONS)


def committed_sends(client: Client, name: str, *, together: bool) -> Count:
    """One producer of a transacted session that sends a message and commits, and waits for the commit.

    Args:
        together: Whether both requests come in one read.
    """
    queue = f"committed.{name}"
    client.link.declare([queue])
    content = Content(PROPERTIES)
    frame = client.link.producer(queue, content)
    session = LinkClient(client.link.port, auto_commit=False, auto_commit_acks=False)
    with frame.socket, session.socket as connected:
        connected.settimeout(60)

        def send(number: int) -> None:
            message = _unanswered(patched(frame, number))
            if together:
                connected.sendall(message + _commit(message))
            else:
                connected.sendall(message)
                client.let_read()
                connected.sendall(_commit(message))
            _responses(connected, 1)

        return client.count(name, send, OPERATIONS, WARMUP, OPERATIONS)


def branches(client: Client, name: str) -> Count:
    """A transaction manager that sends a message in each branch, and waits for each step but the send."""
    queue = f"branches.{name}"
    client.link.declare([queue])
    frame = client.link.producer(queue, Content(PROPERTIES))
    session = LinkClient(client.link.port, auto_commit=False, auto_commit_acks=False, xa=True)
    with frame.socket, session.socket as connected:
        connected.settimeout(60)

        def transact(number: int) -> None:
            xid = Xid(4711, b"%d" % number, b"\1")
            session.ask(packets.XaStart(xid), packets.XaResponse)
            connected.sendall(_unanswered(patched(frame, number)))
            session.ask(packets.XaEnd(xid, failed=False), packets.XaResponse)
            session.ask(packets.XaPrepare(xid), packets.XaResponse)
            session.ask(packets.XaCommit(xid, one_phase=False), packets.XaResponse)

        return client.count(name, transact, OPERATIONS, WARMUP, OPERATIONS)


def gathered_sends(client: Client, name: str, shape: Shape) -> Count:
    """``PRODUCERS`` that each send one message, all of which the broker reads before the same turn."""
    queue = f"gathered.{shape.name}"
    client.link.declare([queue])
    producers = [client.link.producer(queue, Content(shape)) for _ in range(PRODUCERS)]
    with ExitStack() as stack:
        for producer in producers:
            stack.enter_context(producer.socket).settimeout(60)

        def send(number: int) -> None:
            with client.loop_held():
                for index, producer in enumerate(producers):
                    producer.socket.sendall(patched(producer, number * PRODUCERS + index))
            for producer in producers:
                _responses(producer.socket, 1)

        return client.count(name, send, PRODUCERS * OPERATIONS, WARMUP, OPERATIONS)


def lone_acknowledgements(client: Client, name: str) -> Count:
    """One consumer that has its messages and acknowledges them one by one, each with a response."""
    client.link.declare(["acknowledged"])
    producer = client.link.producer("acknowledged", Content(PLAIN))
    consumer = client.link.consumer("acknowledged", 0)
    with producer.socket as sending, consumer.socket as receiving:
        for connected in (sending, receiving):
            connected.settimeout(60)
        count = WARMUP + OPERATIONS
        sending.sendall(b"".join(patched(producer, number) for number in range(count)))
        _responses(sending, count)
        receiving.sendall(consumer.start)
        deliveries = _frames(receiving, _RECEIVE, count)

        def acknowledge(number: int) -> None:
            receiving.sendall(_acknowledgement(deliveries[number]))
            _responses(receiving, 1)

        return client.count(name, acknowledge, OPERATIONS, WARMUP, OPERATIONS)


def acknowledgements_together(client: Client, name: str, *, committed: bool) -> Count:
    """A consumer of a JMS session that has its messages, and writes ``BATCH`` acknowledgements at once: with
    CLIENT_ACKNOWLEDGE each has its commit, with AUTO_ACKNOWLEDGE only the last one wants a response here.
    """
    client.link.declare([name])
    producer = client.link.producer(name, Content(PLAIN))
    consumer = client.link.consumer(name, 0, auto_commit_acks=not committed)
    with producer.socket as sending, consumer.socket as receiving:
        for connected in (sending, receiving):
            connected.settimeout(60)
        warmup, times = 2, 6
        # the credits of the consumer suffice for all of them
        count = BATCH * (warmup + times)
        sending.sendall(b"".join(patched(producer, number) for number in range(count)))
        _responses(sending, count)
        receiving.sendall(consumer.start)
        requests = [
            _acknowledgement(each, answered=not committed and number % BATCH == BATCH - 1)
            + (_commit(each) if committed else b"")
            for number, each in enumerate(_frames(receiving, _RECEIVE, count))
        ]

        def acknowledge(number: int) -> None:
            receiving.sendall(b"".join(requests[number * BATCH : (number + 1) * BATCH]))
            _responses(receiving, BATCH if committed else 1)

        return client.count(name, acknowledge, BATCH * times, warmup, times)


def batches(client: Client, name: str, shape: Shape) -> Count:
    """A producer that writes ``BATCH`` sends at once, and a consumer that gets and acknowledges them together."""
    queue = f"batches.{shape.name}"
    client.link.declare([queue])
    producer = client.link.producer(queue, Content(shape))
    consumer = client.link.consumer(queue, 0)
    with producer.socket as sending, consumer.socket as receiving:
        for connected in (sending, receiving):
            connected.settimeout(60)
        receiving.sendall(consumer.start)

        def batch(number: int) -> None:
            first = number * BATCH
            sending.sendall(b"".join(patched(producer, each) for each in range(first, first + BATCH)))
            _responses(sending, BATCH)
            deliveries = _frames(receiving, _RECEIVE, BATCH)
            receiving.sendall(_acknowledgement(deliveries[-1]) + _credits(deliveries))
            _responses(receiving, 1)

        return client.count(name, batch, BATCH * BATCHES, BATCHES, BATCHES)


CASES: Final[dict[str, Callable[[Client, str], Count]]] = {
    "send": lambda client, name: lone_sends(client, name, PLAIN),
    "send-properties": lambda client, name: lone_sends(client, name, PROPERTIES),
    "send-duplicate-id": lambda client, name: lone_sends(client, name, DUPLICATE),
    "gathered": lambda client, name: gathered_sends(client, name, PLAIN),
    "gathered-jms": lambda client, name: gathered_sends(client, name, JMS),
    "amqp-send": lambda client, name: lone_publishes(client, name, PLAIN),
    "tx-1": lambda client, name: committed_sends(client, name, together=False),
    "tx-1-together": lambda client, name: committed_sends(client, name, together=True),
    "xa-1": branches,
    "acknowledge": lone_acknowledgements,
    "batch-acknowledge": lambda client, name: acknowledgements_together(client, name, committed=False),
    "batch-commit": lambda client, name: acknowledgements_together(client, name, committed=True),
    "batch": lambda client, name: batches(client, name, PLAIN),
    "batch-properties": lambda client, name: batches(client, name, PROPERTIES),
    "batch-duplicate-id": lambda client, name: batches(client, name, DUPLICATE),
}


@click.command("calls")
@click.option("--cases", default=",".join(CASES), show_default=True, help="Some of these.")
@click.option("--list", "listed", is_flag=True, help="Also the calls of a typical read, in order.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
def calls(cases: str, listed: bool, as_json: bool) -> None:
    """Python calls, C calls and modules of the broker for one message."""
    chosen = [name for name in cases.split(",") if name]
    for name in chosen:
        if name not in CASES:
            raise click.BadParameter(f"{name!r} is none of {', '.join(CASES)}", param_hint="--cases")
    counts = measure(chosen)
    goals = judge_calls(counts)
    if as_json:
        facts = [count.facts() for count in counts]
        verdict = [asdict(goal) for goal in goals]
        print(json.dumps({"benchmark": "calls", "kernel": kernel.ACTIVE, "cases": facts, "goals": verdict}))
        return
    console = Console(width=130)
    table = Table(title=f"calls of the broker for one message, kernel {kernel.ACTIVE}", title_justify="left")
    for column in ("case", "Python calls", "typical", "C calls", "modules", "polls"):
        table.add_column(column, justify="left" if column == "case" else "right")
    for count in counts:
        table.add_row(
            count.case, f"{count.per_message(native=False):.1f}",
            "" if count.case.startswith(("batch", "gathered")) else str(count.python_calls_typical()),
            f"{count.per_message(native=True):.1f}",
            str(len(count.modules())), f"{count.polls / count.messages:.1f}",
        )  # fmt: skip
    console.print(table)
    if goals:
        console.print(goal_table(goals))
    if listed:
        for count in counts:
            print(f"\n{count.case}: {len(count.modules())} modules: {' '.join(count.modules())}")
            print(listing(count.typical()))


def judge_calls(counts: Sequence[Count]) -> list[Goal]:
    """Goals for a lone send of every shape, by a typical one."""
    goals = []
    for count in counts:
        if count.case.startswith("send"):
            calls, modules = count.python_calls_typical(), len(count.modules())
            goals.append(Goal(f"Python calls, {count.case}", f"at most {CALLS_MAX}", str(calls), calls <= CALLS_MAX))
            goals.append(Goal(f"modules, {count.case}", f"at most {MODULES_MAX}", str(modules), modules <= MODULES_MAX))
    return goals


def listing(found: Sequence[Call]) -> str:
    """Calls in order, a line each, indented by depth; C calls marked with ``c``, other threads with their name."""
    main = threading.main_thread().name
    return "\n".join(
        f"{'c' if call.native else ' '} {'  ' * call.depth}{call.module}:{call.function}"
        f"{'' if call.thread == main else f'  [{call.thread}]'}"
        for call in found
    )


def measure(cases: Sequence[str]) -> list[Count]:
    """Run cases, each with a broker of its own."""
    interpreter.settle()
    counts = []
    for name in cases:
        with tempfile.TemporaryDirectory(prefix="understudy-bench-") as directory:
            counts.append(uvloop.run(_one(name, Path(directory))))
    return counts


async def _one(name: str, directory: Path) -> Count:
    loop = asyncio.get_running_loop()
    counter = Counter()
    member = Pair(directory).primary
    # threads of the broker get it when they start
    threading.setprofile(counter)
    try:
        node = await start_node(member, RealDisk())
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]
    outcome: asyncio.Future[Count] = loop.create_future()

    def work() -> None:
        try:
            count = CASES[name](Client(member.port, loop, counter), name)
        except Exception as error:
            loop.call_soon_threadsafe(outcome.set_exception, error)
        else:
            loop.call_soon_threadsafe(outcome.set_result, count)

    threading.Thread(target=work, name="client", daemon=True).start()
    try:
        return await outcome
    finally:
        counter.stop()
        await node.stop()


# --- frames ------------------------------------------------------------------------------------------------------


def patched(producer: Producer, number: int) -> bytes:
    """The frame of a producer with the numbers of one message, as the driver writes it."""
    frame = bytearray(producer.frame)
    for patch in producer.patches:
        patch.write(frame, number)
    return bytes(frame)


def _frames(connected: socket.socket, kind: int, count: int) -> list[bytes]:
    """The next ``count`` frames of a kind."""
    found: list[bytes] = []
    data = b""
    while len(found) < count:
        received = connected.recv(1 << 18)
        if not received:
            raise RunFailed("the broker closed a connection")
        data += received
        while len(data) >= 4 and len(data) >= (size := 4 + int.from_bytes(data[:4], "big")):
            frame, data = data[:size], data[size:]
            if frame[4] == _EXCEPTION:
                raise RunFailed(f"the broker refuses: {frame!r}")
            if frame[4] == kind:
                found.append(frame)
    return found


def _responses(connected: socket.socket, count: int) -> None:
    _frames(connected, _NULL_RESPONSE, count)


def _confirm(connected: socket.socket) -> None:
    """Wait for the basic.ack of one publish."""
    left = _CONFIRM_BYTES
    while left:
        received = connected.recv(left)
        if not received:
            raise RunFailed("the broker closed a connection")
        left -= len(received)
        if len(received) == _CONFIRM_BYTES and received[7:11] != _BASIC_ACK:
            raise RunFailed(f"the broker does not confirm: {received!r}")


def _unanswered(send: bytes) -> bytes:
    """The frame of a send whose client wants no response."""
    return send[:-_SEND_TAIL_BYTES] + b"\0" + send[1 - _SEND_TAIL_BYTES :]


def _acknowledgement(delivery: bytes, *, answered: bool = True) -> bytes:
    """SESS_ACKNOWLEDGE of a delivery, with a response or without; cumulative, as always in CORE."""
    message_id = _HEAD_BYTES + int.from_bytes(delivery[_HEAD_BYTES : _HEAD_BYTES + 4], "big") - 9
    fields = delivery[-12:-4] + delivery[message_id : message_id + 8] + bytes((answered,))
    return (9 + len(fields)).to_bytes(4, "big") + bytes((_ACKNOWLEDGE,)) + delivery[5:13] + fields


def _commit(delivery: bytes) -> bytes:
    """SESS_COMMIT without a correlation id, as the client of Artemis sends it, on the channel of a delivery."""
    return (9).to_bytes(4, "big") + bytes((_COMMIT,)) + delivery[5:13]


def _credits(deliveries: Sequence[bytes]) -> bytes:
    """SESS_FLOWTOKEN that gives the bytes of deliveries back."""
    fields = deliveries[-1][-12:-4] + sum(map(len, deliveries)).to_bytes(4, "big")
    return (9 + len(fields)).to_bytes(4, "big") + bytes((70,)) + deliveries[-1][5:13] + fields
