"""A post office without disk, network or time: everything a routing or session test needs.

The store here keeps what it was told in plain containers, so that a test can say what must survive
a crash: ``FakeStore.survivors`` is what a restart would find.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from understudy.config.model import Permission, RoutingType
from understudy.errors import BrokerError, DiskFull, NotAuthorized
from understudy.kernel import LogPosition, Run, SendsPart, append_sends
from understudy.message import LargeMessage, Message
from understudy.ports import Operation
from understudy.routing.configuration import QueueConfiguration
from understudy.routing.post_office import PostOffice
from understudy.routing.queues.queue import Queue
from understudy.routing.settings import AddressSettingsRepository
from understudy.session.connection_scope import ConnectionScope
from understudy.session.registry import SessionRegistry
from understudy.session.resource_registry import ResourceRegistry
from understudy.session.services import SessionOptions, SessionServices
from understudy.session.session import ServerSession
from understudy.store.log.applier import Applier
from understudy.store.log.operation_context import OperationContext
from understudy.store.quarantine import Quarantine
from understudy.store.reference import MessageReference, Part, RunSlice
from understudy.store.settings import StoreSettings
from understudy.store.state import StoreState
from understudy.testing.sim_disk import SimVolume


class FakeTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class FakeClock:
    """Clock and Timers in one: time stands still until ``advance``."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.now_ms = now_ms
        self._timers: list[tuple[int, int, FakeTimer]] = []
        self._count = 0

    def wall_ns(self) -> int:
        """Wall time, epoch nanoseconds."""
        return self.wall_ms() * 1_000_000

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(callback)
        self._count += 1
        heapq.heappush(self._timers, (self.now_ms + delay_ms, self._count, timer))
        return timer

    def advance(self, by_ms: int) -> None:
        """Move on, running every timer that is due on the way at its time."""
        end = self.now_ms + by_ms
        while self._timers and self._timers[0][0] <= end:
            at, _, timer = heapq.heappop(self._timers)
            self.now_ms = max(self.now_ms, at)
            if timer.callback is not None:
                timer.callback()
        self.now_ms = end

    @property
    def pending(self) -> int:
        return sum(timer.callback is not None for _, _, timer in self._timers)


class AtOnce:
    """A log writer without a thread: work is done when it is submitted."""

    def __init__(self, applier: Applier) -> None:
        self._applier = applier

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        work()
        done(None)

    def submit(self, operations: Sequence[Operation], done: Callable[[BaseException | None], None]) -> None:
        self._applier.apply(operations)
        done(None)

    def close(self) -> None:
        pass


class FakeStore:
    """What the post office uses of ``MessageStore``."""

    def __init__(self, *, automatic: bool = True) -> None:
        """``automatic``: everything is durable as soon as it is appended."""
        self.context = OperationContext()
        self.automatic = automatic
        self.full = False
        self.full_reason = "no room"
        self.epoch = 1
        self.disk_used_percent = 0.0
        self.last_sequence = 0
        self.addresses: dict[int, Any] = {}
        self.queues: dict[int, Any] = {}
        self.settings = StoreSettings()
        self.stored_settings: dict[Any, Any] = {}
        self.bodies: dict[int, Message] = {}
        self.references: dict[int, dict[int, Message]] = {}
        self.delivery_counts: dict[tuple[int, int], int] = {}
        self.duplicate_ids: list[tuple[int, bytes]] = []
        self.transactions: dict[int, list[tuple[Any, ...]]] = {}
        self.prepared: dict[int, bytes] = {}
        self.reads = 0
        disk = SimVolume().disk("fake")
        self.quarantine = Quarantine(disk, "/store", AtOnce(Applier(disk, "/store")))
        self.read_back = SimpleNamespace(place_of=lambda location: None)
        self.failed: list[BaseException] = []
        self.fail = self.failed.append
        self.last_id = 0
        self._offset = 0

    def flush(self, *, gather: bool) -> bool:
        self._close_gathered()
        return False

    def next_id(self) -> int:
        self._close_gathered()
        self.last_id += 1
        return self.last_id

    def hold_room(self, length: int) -> int:
        assert self.context.gathered is None
        # what is durable once it is appended has nothing to wait for
        return 0 if self.automatic else 1 << 30

    def store_run(
        self,
        parts: Sequence[SendsPart],
        count: int,
        first_id: int,
        address_id: int,
        queue_ids: tuple[int, ...],
        transaction_id: int = 0,
        held: int = 0,
        duplicate_ids: Sequence[bytes] = (),
    ) -> list[Run]:
        position = LogPosition(1, self._offset, sys.maxsize, self.last_sequence, 0, 0)
        run = append_sends(parts, first_id, address_id, queue_ids, transaction_id, position)
        assert run.count == count
        self._offset += len(run.data)
        sends, row, _ = parts[0]
        for duplicate_id, reference in zip(
            duplicate_ids or [b""] * count, RunSlice(run, 0, count, sends.priority(row), -1), strict=True
        ):
            assert reference.message is not None
            self.store_message(
                reference.message, address_id, queue_ids, tx_id=transaction_id, duplicate_id=duplicate_id
            )
            self.bodies[reference.location or 0] = self.bodies.pop(self.last_sequence)
        return [run]

    def _close_gathered(self) -> None:
        if self.context.gathered is not None:
            self.context.gathered.close()

    def _append(self) -> int:
        self._close_gathered()
        self.last_sequence += 1
        self.context.appended = self.last_sequence
        if self.automatic:
            self.context.durable = self.last_sequence
        return self.last_sequence

    def sync(self) -> None:
        """Everything appended becomes durable."""
        self._close_gathered()
        self.context.advance(self.last_sequence)

    def store_address(self, record: Any) -> int:
        self.addresses[record.address_id] = record
        return self._append()

    def delete_address(self, address_id: int) -> int:
        self._close_gathered()
        del self.addresses[address_id]
        return self._append()

    def store_queue(self, record: Any) -> int:
        self.queues[record.queue_id] = record
        return self._append()

    def store_setting(self, record: Any) -> int:
        self.stored_settings[record.key] = record
        if record.values is None:
            del self.stored_settings[record.key]
        return self._append()

    def delete_queue(self, queue_id: int) -> int:
        self._close_gathered()
        del self.queues[queue_id]
        self.references.pop(queue_id, None)
        for records in self.transactions.values():
            records[:] = [record for record in records if record[:2] != ("acknowledge", queue_id)]
        return self._append()

    def store_message(
        self,
        message: Message,
        address_id: int,
        queue_ids: tuple[int, ...],
        *,
        tx_id: int = 0,
        duplicate_id: bytes = b"",
        scheduled_ms: int = 0,
        large: bool = False,
    ) -> int:
        if self.full:
            raise DiskFull("no room")
        assert queue_ids
        assert set(queue_ids) <= self.queues.keys(), "a reference of a queue the log does not have"
        assert address_id in self.addresses, "a message of an address the log does not have"
        sequence = self._append()
        self.bodies[sequence] = message
        if tx_id:
            self.transactions.setdefault(tx_id, []).append(("add", message, queue_ids, address_id, duplicate_id))
        else:
            self._add(message, queue_ids, address_id, duplicate_id)
        return sequence

    def _add(self, message: Message, queue_ids: tuple[int, ...], address_id: int, duplicate_id: bytes) -> None:
        for queue_id in self.queues.keys() & set(queue_ids):
            self.references.setdefault(queue_id, {})[message.message_id] = message
        if duplicate_id:
            self.duplicate_ids.append((address_id, duplicate_id))

    def store_acknowledges(self, queue_id: int, message_ids: Sequence[int], tx_id: int = 0) -> None:
        self._append()
        if tx_id:
            self.transactions.setdefault(tx_id, []).append(("acknowledge", queue_id, list(message_ids)))
        else:
            self._acknowledge(queue_id, message_ids)

    def _acknowledge(self, queue_id: int, message_ids: Sequence[int]) -> None:
        for message_id in message_ids:
            # KeyError = acknowledged twice or never stored: the caller's bug.
            del self.references[queue_id][message_id]

    def store_delivery_count(self, queue_id: int, message_id: int, count: int) -> None:
        self._append()
        self.delivery_counts[queue_id, message_id] = count

    def store_duplicate_ids(self, address_id: int, duplicate_ids: Sequence[bytes], tx_id: int = 0) -> None:
        for duplicate_id in duplicate_ids:
            self._append()
            if tx_id:
                self.transactions.setdefault(tx_id, []).append(("duplicate", address_id, duplicate_id))
            else:
                self.duplicate_ids.append((address_id, duplicate_id))

    def store_prepare(self, tx_id: int, xid: bytes) -> int:
        self.transactions.setdefault(tx_id, [])
        self.prepared[tx_id] = xid
        return self._append()

    def store_commit(self, tx_id: int) -> int:
        self.prepared.pop(tx_id, None)
        for kind, *rest in self.transactions.pop(tx_id, []):
            if kind == "add":
                self._add(*rest)
            elif kind == "acknowledge":
                self._acknowledge(*rest)
            else:
                self.duplicate_ids.append((rest[0], rest[1]))
        return self._append()

    def store_rollback(self, tx_id: int) -> int:
        self.transactions.pop(tx_id, None)
        self.prepared.pop(tx_id, None)
        return self._append()

    def read_message(self, location: int, upcoming: Iterable[int | None] = ()) -> Message:
        self.reads += 1
        return Message.decode(self.bodies[location].encoded)

    def reader(self, run_bytes: int, messages_max: int) -> Any:
        """Reads every message by itself."""
        return SimpleNamespace(read=self.read_message)

    def survivors(self, queue: Queue) -> list[int]:
        """Ids of the messages that a restart would find in a queue."""
        return sorted(self.references.get(queue.queue_id, {}))

    def state(self) -> StoreState:
        """What a restart would read."""
        state = StoreState()
        state.addresses = dict(self.addresses)
        state.queues = dict(self.queues)
        state.settings = dict(self.stored_settings)
        locations = {message.message_id: location for location, message in self.bodies.items()}
        for queue_id, messages in self.references.items():
            for message_id, message in messages.items():
                reference = _reference(queue_id, message, locations[message_id], self.delivery_counts)
                state.backlog(queue_id).append_reference(reference)
                state.live.add(queue_id, message_id)
        for address_id, duplicate_id in self.duplicate_ids:
            state.remember_duplicate(address_id, duplicate_id)
        return state


def _reference(
    queue_id: int, message: Message, location: int, counts: Mapping[tuple[int, int], int]
) -> MessageReference:
    scheduled = message.properties.get("_AMQ_SCHED_DELIVERY") or 0
    reference = MessageReference(
        message.message_id,
        message.priority,
        message.expiration,
        scheduled,
        len(message.encoded),
        True,
        location,  # type: ignore[arg-type]
    )
    reference.delivery_count = counts.get((queue_id, message.message_id), 0)
    return reference


@dataclass
class FakeCallback:
    """Records what the client of a session sees."""

    delivered: list[tuple[int, Message, int]] = field(default_factory=list)
    forced: list[tuple[int, int, int]] = field(default_factory=list)
    """Consumer, sequence, number of deliveries before it."""
    disconnected: list[int] = field(default_factory=list)
    bugs: list[Exception] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    credits: list[tuple[str, int]] = field(default_factory=list)
    refused: list[tuple[str, int]] = field(default_factory=list)
    errors: list[BrokerError] = field(default_factory=list)
    slow: bool = False
    frame_bytes: int | None = None
    """What each delivery costs; None = its size."""
    large: list[tuple[int, LargeMessage, int]] = field(default_factory=list)
    """Large messages announced: consumer, message, delivery count."""
    large_bodies: list[bytes] = field(default_factory=list)
    """Those that came to their end."""
    unfinished: dict[int, bytearray] = field(default_factory=dict)
    """Consumer to what came of a body so far."""

    runs: bool = False
    """Whether deliveries may come several at a time."""

    @property
    def delivery_overhead_bytes(self) -> int:
        return 25 if self.runs and self.frame_bytes is None else 0

    def deliver(self, consumer_id: int, part: Part) -> int:
        charged = 0
        for reference in part:
            message = part.shown or reference.message
            assert message is not None
            charged += self.sent(consumer_id, message, reference.delivery_count)
        return charged

    def sent(self, consumer_id: int, message: Message, delivery_count: int) -> int:
        """One message of ``deliver``."""
        self.delivered.append((consumer_id, message, delivery_count))
        return len(message.encoded) + 25 if self.frame_bytes is None else self.frame_bytes

    def deliver_large(self, consumer_id: int, message: LargeMessage, delivery_count: int) -> int:
        self.large.append((consumer_id, message, delivery_count))
        self.unfinished[consumer_id] = bytearray()
        return len(message.header) if self.frame_bytes is None else self.frame_bytes

    def deliver_piece(self, consumer_id: int, piece: bytes, continues: bool) -> int:
        self.unfinished[consumer_id] += piece
        if not continues:
            self.large_bodies.append(bytes(self.unfinished.pop(consumer_id)))
        return len(piece) if self.frame_bytes is None else self.frame_bytes

    def forced_delivery(self, consumer_id: int, sequence: int) -> None:
        self.forced.append((consumer_id, sequence, len(self.delivered)))

    def kill_connection(self, reason: str) -> None:
        self.killed.append(reason)

    def met_bug(self, bug: Exception) -> None:
        self.bugs.append(bug)

    def disconnect_consumer(self, consumer_id: int) -> None:
        self.disconnected.append(consumer_id)

    def producer_credits(self, address: str, credit_bytes: int) -> None:
        self.credits.append((address, credit_bytes))

    def producer_credits_refused(self, address: str, credit_bytes: int) -> None:
        self.refused.append((address, credit_bytes))

    def operation_failed(self, error: BrokerError) -> None:
        self.errors.append(error)

    def writable(self) -> bool:
        return not self.slow

    def bodies(self, consumer_id: int | None = None) -> list[bytes]:
        """Bodies delivered, in order."""
        return [message.body for owner, message, _ in self.delivered if consumer_id in (None, owner)]

    def counts(self) -> list[int]:
        return [count for _, _, count in self.delivered]


class FakeSecurity:
    """Allows everything that is not in ``denied``."""

    user = "tester"
    permission_ms = 10_000

    def __init__(self, *denied: Permission) -> None:
        self.denied = set(denied)
        self.asked: list[tuple[Permission, str, str | None]] = []

    def check(self, permission: Permission, address: str, queue: str | None = None) -> None:
        self.asked.append((permission, address, queue))
        if permission in self.denied:
            raise NotAuthorized(f"{permission.value} on {address}")

    def allows(self, permission: Permission, address: str, queue: str | None = None) -> bool:
        return permission not in self.denied


class Answers:
    """A ``done`` for every request, in the order they were called."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, BrokerError | None]] = []

    def of(self, name: str) -> Callable[[BrokerError | None], None]:
        return lambda error: self.seen.append((name, error))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.seen]

    def error(self, name: str) -> BrokerError | None:
        (found,) = [error for seen, error in self.seen if seen == name]
        return found


class World:
    """One node: store, post office, registry, and sessions as needed."""

    def __init__(
        self,
        settings: Mapping[str, Mapping[str, object]] | None = None,
        *,
        automatic: bool = True,
        store: FakeStore | Any | None = None,
        **options: Any,
    ) -> None:
        self.clock = FakeClock()
        self.store = store if store is not None else FakeStore(automatic=automatic)
        self.settings = AddressSettingsRepository((settings or {}).items())
        self.office = PostOffice(
            store=self.store,  # type: ignore[arg-type]
            settings=self.settings,
            clock=self.clock,
            timers=self.clock,
            **options,
        )
        self.registry: SessionRegistry[ServerSession] = SessionRegistry()
        self.resources = ResourceRegistry(self.office, self.clock, self.clock, scan_period_ms=-1)
        self.answers = Answers()
        self._sessions = 0

    def services(self, **options: Any) -> SessionServices:
        """Services of its sessions."""
        return SessionServices(self.office, self.registry, self.resources, self.clock, **options)

    def session(
        self,
        *,
        callback: FakeCallback | None = None,
        security: FakeSecurity | None = None,
        connection: ConnectionScope | None = None,
        start: bool = True,
        transacted: bool = False,
        **options: Any,
    ) -> ServerSession:
        self._sessions += 1
        if transacted:
            options |= {"auto_commit_sends": False, "auto_commit_acks": False}
        shared = {name: options.pop(name) for name in ("management", "validated_users") if name in options}
        session = ServerSession(
            f"s{self._sessions}",
            self.services(**shared),
            callback=callback or FakeCallback(),
            connection=connection or ConnectionScope(f"c{self._sessions}"),
            security=security or FakeSecurity(),
            options=SessionOptions(**options),
        )
        if start:
            session.start()
        return session

    def queue(self, name: str = "q", **options: Any) -> Queue:
        options.setdefault("routing_type", RoutingType.ANYCAST)
        return self.office.directory.create_queue(QueueConfiguration(name=name, **options))

    def turn(self) -> None:
        self.office.turn()

    def sync(self) -> None:
        """The log reaches the medium, and the loop turns."""
        self.store.sync()
        self.office.turn()


def text(body: str, address: str = "q", **options: Any) -> Message:
    """A message as a client sends it."""
    return Message(body.encode(), address=address, **options)


def callback_of(session: ServerSession) -> FakeCallback:
    found = session._callback
    assert isinstance(found, FakeCallback)
    return found
