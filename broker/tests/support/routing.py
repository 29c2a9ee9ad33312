"""A post office on a real store with a simulated disk, without network or time: for tests of routing and sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from support.unit_store import UnitStore
from understudy.errors import BrokerError, NotAuthorized
from understudy.message import LargeMessage, Message
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.addresses.settings import AddressSettingsRepository
from understudy.routing.post_office import PostOffice, RoutingSettings
from understudy.routing.queues.queue import Queue
from understudy.session.connection_scope import ConnectionScope
from understudy.session.registry import SessionRegistry
from understudy.session.resource_manager import ResourceManager
from understudy.session.services import SessionOptions, SessionServices
from understudy.session.session import ServerSession
from understudy.store.messages.message_store import MessageStore
from understudy.store.messages.reference import Part
from understudy.terms import DurabilityContract, Permission, RoutingType
from understudy.testing.manual_time import ManualTime


def manual_time() -> ManualTime:
    """Clock and timers moved by hand, whose wall time and monotonic time are the same small number."""
    return ManualTime(wall_ms=0, monotonic_ms=1_000_000)


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
    """Credits that each delivery costs; None = its size."""
    large: list[tuple[int, LargeMessage, int]] = field(default_factory=list)
    """Large messages announced: consumer, message, delivery count."""
    large_bodies: list[bytes] = field(default_factory=list)
    """Bodies of the large messages that are complete."""
    unfinished: dict[int, bytearray] = field(default_factory=dict)
    """Consumer to the received part of a body."""

    runs: bool = False
    """Whether deliveries may come several at a time."""

    @property
    def delivery_overhead_bytes(self) -> int:
        return 25 if self.runs and self.frame_bytes is None else 0

    def deliver(self, consumer_id: int, part: Part) -> int:
        charged = 0
        for reference, encoded in zip(part, part.encoded, strict=True):
            # of a run that was read for this delivery only the part has the messages
            message = part.shown or reference.message or Message.decode(encoded)
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

    def internal_error(self, bug: Exception) -> None:
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
        store: MessageStore | None = None,
        durability_contract: DurabilityContract = DurabilityContract.REPLICA_DISK,
        **options: Any,
    ) -> None:
        self.clock = manual_time()
        self.store: Any = store if store is not None else UnitStore.begin(automatic=automatic)
        self.settings = AddressSettingsRepository((settings or {}).items(), durability_contract=durability_contract)
        ports = {name: options.pop(name) for name in ("pages", "wake", "entropy") if name in options}
        self.office = PostOffice(
            store=self.store,
            settings=RoutingSettings(self.settings, **options),
            clock=self.clock,
            timers=self.clock,
            **ports,
        )
        self.registry: SessionRegistry[ServerSession] = SessionRegistry()
        self.resources = ResourceManager(self.office, self.clock, self.clock, scan_period_ms=-1)
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
            session.consumers.start()
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
    found = session.state.callback
    assert isinstance(found, FakeCallback)
    return found
