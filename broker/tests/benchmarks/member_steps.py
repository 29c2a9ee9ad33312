"""``python -m benchmarks member-steps``: processor time of each step of a message between two members, in this process.

Two post offices, a store each whose writes are left out, and a bridge whose bytes are moved by hand: no sockets, no
disk, no other process. Only the work of the broker for a message is measured, so the figures depend little on other
load of the machine; the lowest of several rounds is printed.

Also a single node that takes and logs the same messages, for comparison, and messages that wait at one member and are
redistributed to a consumer at the other one.
"""

from __future__ import annotations

import gc
import json
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from support.bridged import NODE_ID, Entropy, FakeTarget, Listener, Wire, connector
from support.routing import FakeCallback, World
from support.unit_store import UnitStore
from understudy import kernel
from understudy.cluster.balancing.cluster_bridge import ClusterConversion
from understudy.cluster.balancing.redistribution import Redistribution
from understudy.cluster.balancing.remote_bindings import RemoteBindings
from understudy.cluster.bridges.bridge import Bridge, BridgeParts
from understudy.cluster.bridges.target import TargetAccess
from understudy.config.bridge import BridgeConfiguration
from understudy.kernel.core import confirms, split_sends
from understudy.message import Message
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.remote import RemoteBinding, RemoteQueue
from understudy.runtime.process import interpreter
from understudy.session.session import ServerSession
from understudy.store.settings import SEGMENT_BYTES
from understudy.terms import MessageLoadBalancing, RoutingType
from understudy.wire.core.codec import FrameDecoder, SendBatch, encode_send

_BODY_BYTES = 100
_OTHER = "11111111-2222-3333-4444-555555555555"
_FLOW = f"$.artemis.internal.sf.my-cluster.{_OTHER}"


class _Store(UnitStore):
    """A store whose records go nowhere."""

    def _watch(self) -> None:
        self.writer._applier = self

    def apply(self, operations: Sequence[Any]) -> None:
        """Drop operations, which a real store would carry out on its disk."""


class _Answers:
    """Confirmations of the second member."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def answer_run(self, correlation_ids: Sequence[int], error: Exception | None = None) -> None:
        """See ``session.send_requests.RunAnswers``."""
        self.frames.append(confirms(10, list(correlation_ids)))

    def internal_error(self, bug: Exception) -> None:
        """See there."""
        raise bug


class _RawWire(Wire):
    """A connection whose bytes are moved as they are, once the bridge has its session."""

    raw = False

    def send(self, data: bytes) -> None:
        if self.raw:
            self.broker.bytes.append(data)  # type: ignore[attr-defined]  # of ``_Target``
        else:
            super().send(data)


class _Target(FakeTarget):
    def __init__(self) -> None:
        super().__init__()
        self.bytes: list[bytes] = []

    def dial(self, target: Any, link: Any) -> None:
        self.wires.append(_RawWire(target, link, self))


def _node() -> World:
    store = _Store.begin(automatic=False, segment_bytes=SEGMENT_BYTES, compact_segments_min=1 << 30)
    return World(store=store, settings={"#": {"redistribution_delay": 0}})


def _sender(world: World, *, of_cluster: bool = False) -> ServerSession:
    session = world.session(callback=FakeCallback(runs=True), of_cluster=of_cluster)
    session.sends.permit("q")
    return session


class Pair:
    """Two members with a queue ``q`` of the same address, and the bridge from the first to the second one."""

    def __init__(self, mode: MessageLoadBalancing) -> None:
        self.first, self.second = _node(), _node()
        if mode is not MessageLoadBalancing.STRICT:
            self.here = self.first.queue("q")
        self.there = self.second.queue("q")
        directory = self.first.office.directory
        self.flow = directory.create_queue(
            QueueConfiguration(_FLOW, _FLOW, RoutingType.MULTICAST, internal=True), may_create_address=True
        )
        self.bindings = RemoteBindings(directory, lambda address: mode)
        self.redistribution = Redistribution(self.first.office, self.bindings, self.first.clock)
        self.binding = RemoteBinding(
            RemoteQueue("q" + _OTHER, "q", "q", self.there.queue_id, 1), binding_id=5, queue=self.flow, filter=None
        )
        if mode is MessageLoadBalancing.STRICT:
            directory.create_address("q", {RoutingType.ANYCAST})
        self.bindings.add(self.binding)
        self.target = _Target()
        clock = self.first.clock
        access = TargetAccess(self.target, clock, clock, Entropy(), None)
        parts = BridgeParts(access, self.first.services(), NODE_ID, directory.queues.get, Listener())
        conversion = ClusterConversion(_FLOW, NODE_ID, use_duplicate_detection=True)
        self.bridge = Bridge("b", BridgeConfiguration(_FLOW, _FLOW), lambda: [connector(1)], parts, conversion)
        self.bridge.start()
        self.wire = self.target.wires[-1]
        self.wire.open()
        while self.wire.take() + self.wire.give():
            pass
        self.wire.raw = True  # type: ignore[attr-defined]
        self.producer = _sender(self.first)
        self.arriving = _sender(self.second, of_cluster=True)
        self.decoder = FrameDecoder(role="server")
        self.decoder._expects_magic = False
        self.decoder.groups_sends = True
        self.decoder.version = self.bridge._target._peer.version  # type: ignore[union-attr]
        self.answers = _Answers()
        self.spent: defaultdict[str, float] = defaultdict(float)
        self._began = 0.0

    def want(self) -> None:
        """A consumer comes at the second member."""
        self.binding.consumers.add(None, None)
        self.bindings.tell(lambda listener: listener.remote_consumer_added(self.binding, None))

    def _spend(self, step: str) -> None:
        now = time.process_time()
        self.spent[step] += now - self._began
        self._began = now

    def start(self) -> None:
        """Count from now on."""
        self._began = time.process_time()

    def take(self, data: bytes, count: int) -> None:
        """A read of the producer's socket at the first member, until it is in the log."""
        sends = split_sends(data, 0, len(data), count)
        assert sends is not None
        assert self.producer.sends.send_batch(sends, 0, self.answers) == count
        self.first.store.sync()
        self.answers.frames.clear()
        self._spend("first member: route and log")

    def carry(self) -> None:
        """The bridge until it has confirmations for everything that it sent."""
        self.first.office.turn()
        self._spend("first member: bridge sends")
        while self.target.bytes:
            sent, self.target.bytes = b"".join(self.target.bytes), []
            for frame in self.decoder.receive_data(sent):
                packet = frame.packet
                if isinstance(packet, SendBatch):
                    taken = self.arriving.sends.send_batch(packet.sends, 0, self.answers)
                    assert taken == packet.sends.count
                else:
                    self.wire._carry_out(frame.channel_id, packet)
            self.second.store.sync()
            self._spend("second member: receive, route and log")
            answers, self.answers.frames = self.answers.frames, []
            for answer in (*answers, *self.wire._outgoing):
                self.wire.link.receive_data(answer)
            self.wire._outgoing.clear()
            self.first.clock.advance(0)
            self.first.store.sync()
            self._spend("first member: confirmation and acknowledgement")
            self.first.office.turn()
            self._spend("first member: bridge sends")


def frames(count: int, body_bytes: int = _BODY_BYTES) -> bytes:
    """A read with so many messages to ``q``."""
    return b"".join(
        encode_send(Message(bytes(body_bytes), address="q", timestamp=1), 10, True, number + 1, -1)
        for number in range(count)
    )


def across(mode: MessageLoadBalancing, messages: int, batch: int) -> dict[str, float]:
    """µs of each step for a message that is sent to the first member and wanted at the second one."""
    pair = Pair(mode)
    pair.want()
    data = frames(batch)
    for number in range(messages // batch + 5):
        if number == 5:
            pair.spent.clear()
        pair.start()
        pair.take(data, batch)
        pair.carry()
    assert pair.there.message_count == (messages // batch + 5) * batch
    done = messages // batch * batch
    return {step: 1e6 * spent / done for step, spent in pair.spent.items()}


def single(messages: int, batch: int) -> dict[str, float]:
    """µs for a message that a node takes and logs for a queue of its own."""
    node = _node()
    queue = node.queue("q")
    producer, answers = _sender(node), _Answers()
    data = frames(batch)
    spent = 0.0
    for number in range(messages // batch + 5):
        began = time.process_time()
        sends = split_sends(data, 0, len(data), batch)
        assert sends is not None
        assert producer.sends.send_batch(sends, 0, answers) == batch
        node.store.sync()
        if number >= 5:
            spent += time.process_time() - began
        answers.frames.clear()
        queue.purge()
        node.store.sync()
    return {"a single node: take and log": 1e6 * spent / (messages // batch * batch)}


def redistributed(messages: int, batch: int) -> dict[str, float]:
    """µs of each step for a message that waits at the first member when a consumer comes at the second one."""
    pair = Pair(MessageLoadBalancing.OFF_WITH_REDISTRIBUTION)
    data = frames(batch)
    for _ in range(messages // batch):
        pair.start()
        pair.take(data, batch)
    pair.spent.clear()
    pair.want()
    done = messages // batch * batch
    while pair.there.message_count < done:
        pair.start()
        pair.first.clock.advance(1)
        pair.first.store.sync()
        pair._spend("first member: take, route and log")
        pair.carry()
    return {step: 1e6 * spent / done for step, spent in pair.spent.items()}


@dataclass(frozen=True, slots=True)
class Step:
    """Processor time of one step."""

    case: str
    step: str
    us: float


def measure(rounds: int, messages: int, batch: int) -> list[Step]:
    """The lowest of each step."""
    cases: dict[str, Callable[[], dict[str, float]]] = {
        "single": lambda: single(messages, batch),
        "ON_DEMAND": lambda: across(MessageLoadBalancing.ON_DEMAND, messages, batch),
        "STRICT": lambda: across(MessageLoadBalancing.STRICT, messages, batch),
        "redistribution": lambda: redistributed(messages, batch),
    }
    interpreter.settle()
    lowest: dict[tuple[str, str], float] = {}
    for _ in range(rounds):
        for case, run in cases.items():
            gc.collect()
            gc.disable()
            for step, us in run().items():
                lowest[case, step] = min(us, lowest.get((case, step), us))
            gc.enable()
    return [Step(case, step, us) for (case, step), us in lowest.items()]


@click.command("member-steps")
@click.option("--rounds", default=10, show_default=True, help="Rounds; the lowest is printed.")
@click.option("--messages", default=30_000, show_default=True, help="Messages in a round of a case.")
@click.option("--batch", default=300, show_default=True, help="Messages of one read of a socket.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def member_steps(*, rounds: int, messages: int, batch: int, as_json: bool) -> None:
    """Processor time of each step of a message between two members, in one process."""
    steps = measure(rounds, messages, batch)
    if as_json:
        print(json.dumps({"benchmark": "member-steps", "kernel": kernel.ACTIVE, "steps": [*map(asdict, steps)]}))
        return
    table = Table(title=f"µs of processor time for a message, reads of {batch}, lowest of {rounds}")
    for column in ("case", "step", "µs"):
        table.add_column(column, justify="right" if column == "µs" else "left")
    for step in steps:
        table.add_row(step.case, step.step, f"{step.us:.2f}")
    for case in dict.fromkeys(step.case for step in steps):
        table.add_row(case, "all", f"{sum(step.us for step in steps if step.case == case):.2f}")
    Console(width=100).print(table)
