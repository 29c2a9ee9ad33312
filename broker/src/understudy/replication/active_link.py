"""The active node's side of replication: takes a replica, copies the store to it, ships operations, goes on without it.

At most one replica at a time (artemis-ha s. 3.10). Its life is one machine: a registered replica gets the files in
passes while the node serves; when little is left, the writers are frozen, the last pass is sent, and the replica
notes durably that it may take over. From then on every operation is sent to it, and confirmations wait for it. If it
is lost, the authority permits to go on alone before anything that waits is confirmed; otherwise the node ends.

Source: artemis-ha s. 3.1, 3.4, 3.9; ADR 0057. Not here: the files (``store.replication``), the order of the
operations (``store.replication.shipping``), the connection (``protocols.core.replication_channel``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import ClassVar, Final, Protocol

from understudy.cluster.membership.passive_formats import PassiveFormats
from understudy.cluster.membership.replicas import ReplicaChannel
from understudy.dataclass import dataclass
from understudy.errors import BrokerError, ReplicaFailed
from understudy.ha.replication.ports import Authority
from understudy.limits import REPLICA_BEHIND_BYTES_PAUSE
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import Clock, Operation, Timer, Timers
from understudy.replication.progress import ReplicaProgress
from understudy.replication.silence import SilenceWatch
from understudy.store.log.operation_context import OperationContext, Voter
from understudy.store.replication.copy_messages import Directory
from understudy.store.replication.operation_codec import encode
from understudy.store.replication.shipping import Shipping
from understudy.wire.core import packets
from understudy.wire.core.packets_replication import (
    OPERATIONS_BYTES_MAX,
    PROMISE_PROTOCOL,
    REPLICATION_PROTOCOL,
    REPLICATION_PROTOCOL_MIN,
    ReplicaProblem,
)

log = logging.getLogger(__name__)

#: Longest wait of a stopping node for the replica to execute everything (artemis-ha s. 0).
FINISH_MS: Final = 5_000
#: Shortest and longest time between two checks of the progress (artemis-ha s. 3.9).
CHECK_MS: Final = (100, 1_000)


class Copy(Protocol):
    """The copy of the files to one replica (``store.replication.copy_source``)."""

    def receive(self, data: bytes) -> None:
        """A message of the replica. Raises BrokerError: it does not fit."""

    def finish(self) -> None:
        """The files do not change any more: send the rest, and call ``CopyOwner.copied`` at the end."""

    def cancel(self) -> None:
        """Send nothing more; the owner is not called any more."""


class CopyOwner(Protocol):
    """Owner of a copy, which a ``Copy`` calls."""

    def copy_send(self, data: bytes) -> None:
        """Send a message to the replica."""

    def little_left(self) -> None:
        """Called when a pass of the copy has ended, and few bytes have changed since it began."""

    def copied(self) -> None:
        """Called when the replica has everything, durably."""

    def copy_failed(self, error: BrokerError) -> None:
        """Called when the copy cannot be completed."""


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """Settings of the link."""

    group: str | None = None
    """Element group-name of the replication policy."""
    sync_timeout_ms: int = 30_000
    """initial-replication-sync-timeout: longest freeze of the writers; negative: no limit."""
    call_timeout_ms: int = 30_000
    """call-timeout: longest time without progress of a replica in sync; negative: no limit."""
    silence_ms: int = -1
    """replica-silence: longest time without data of a replica, which pings; negative: no limit (ADR 0060)."""
    protocol: int = REPLICATION_PROTOCOL
    """Newest version of the replication protocol that this node speaks."""
    place: Callable[[str, packets.ReplicaRegistration], str | None] = lambda node_id, registration: None
    """Reason why a node may not be the replica of the node with that node id (``ReplicaPlace.refusal``)."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A replica that was accepted."""

    registration: packets.ReplicaRegistration
    connection: ReplicaChannel


class LinkEvents(Protocol):
    """Listener of a link to a replica, which also begins the copies."""

    def make_copy(self, owner: CopyOwner, protocol: int) -> Copy:
        """Begin a copy of the files to a replica.

        Args:
            owner: Sends its messages.
            protocol: Version of the replication protocol that the replica speaks.
        """

    def replica_in_sync(self, registration: packets.ReplicaRegistration) -> None:
        """Called when a replica may take over from now on."""

    def replica_lost(self, registration: packets.ReplicaRegistration) -> None:
        """The replica that was in sync is lost; the node goes on without it."""

    def copy_received(self, data: bytes) -> None:
        """A message about files of a replica in sync. Raises BrokerError: it does not fit."""

    def cannot_go_on(self, error: BrokerError) -> None:
        """The replica is lost, and the node may not go on without it; or the node must not serve its store."""

    def put_back(self, registration: packets.ReplicaRegistration) -> BrokerError | None:
        """The reason why the store of this node must not be served: the copy of the backup proves that it has lost
        synced records. None: it does not.
        """


class LinkState(Enum):
    """States of the link."""

    CLOSED = auto()
    """The node does not take a replica."""
    FREE = auto()
    COPYING = auto()
    FREEZING = auto()
    """The writers hold new jobs; those under way end."""
    FROZEN = auto()
    """The rest of the files is sent, and the replica notes durably that it may take over. From here on it may believe
    so, whether its answer arrives or not: confirmations wait for it."""
    IN_SYNC = auto()
    LEAVING = auto()
    """A replica that may take over was lost: the authority is asked whether the node goes on alone."""
    FINISHING = auto()
    """The store is closed: the replica executes the rest."""


class LinkEvent(Enum):
    """Events of the link."""

    OPEN = auto()
    REGISTER = auto()
    """A replica has registered. Its argument is a ``Registered``."""
    LITTLE_LEFT = auto()
    QUIET = auto()
    """No job of a writer is under way."""
    COPIED = auto()
    LOST = auto()
    """The connection to the replica has ended. Its argument is the reason."""
    PERMITTED = auto()
    FINISH = auto()
    """The store is to be closed. Its argument is called when the replica has executed everything."""
    EXECUTED = auto()
    """The replica has executed everything."""


_S, _E = LinkState, LinkEvent


class ActiveLink(Machine[LinkState, LinkEvent]):
    """The replica of an active node. Also implements ``ReplicaPromises``.

    Implements ``CopyOwner``, ``cluster.membership.replicas.Replicas`` and ``store.replication.shipping.ReplicaStream``.
    """

    STATES: ClassVar[type[Enum]] = LinkState
    EVENTS: ClassVar[type[Enum]] = LinkEvent
    INITIAL: ClassVar[Enum] = LinkState.CLOSED

    def __init__(
        self,
        options: LinkOptions,
        authority: Authority,
        shipping: Shipping,
        events: LinkEvents,
        clock: Clock,
        timers: Timers,
        formats: PassiveFormats,
    ) -> None:
        """No replica is taken before ``open``.

        Args:
            options: Settings.
            authority: Permits to go on alone.
            shipping: Shipping of the store's writers.
            events: Begins copies; called when a replica comes into sync and is lost.
            clock: Measures the progress of the replica.
            formats: Gets what the replica reads.
        """
        super().__init__()
        self.options = options
        self._authority = authority
        self._shipping = shipping
        self._events = events
        self._clock = clock
        self._timers = timers
        self._formats = formats
        self._node_id = ""
        self._epoch = 0
        self._context: OperationContext | None = None
        self._leaving = False
        """The node is about to stop: no other replica is taken, and a lost one is not replaced by a permission."""
        self._replica: Registered | None = None
        self._copy: Copy | None = None
        self._frozen = False
        self._frozen_at_ms = 0
        self._timer: Timer | None = None
        self._silence = SilenceWatch(options.silence_ms, clock, timers, self._silent)
        self._progress = ReplicaProgress(0)
        self._finished: Callable[[], None] | None = None

    # --- called by the shell -----------------------------------------------------------------------

    def open(self, node_id: str, epoch: int, context: OperationContext) -> None:
        """Take replicas from now on.

        Args:
            context: Context of the store; confirmations wait there for the replica.
        """
        self._node_id, self._epoch, self._context = node_id, epoch, context
        self._leaving = False
        self.fire(LinkEvent.OPEN)

    def leave(self) -> None:
        """Take no other replica; called when the node is about to stop."""
        self._leaving = True
        # the store cannot be closed while its writers are frozen, and there is no time for a copy
        if self._state in (LinkState.COPYING, LinkState.FREEZING, LinkState.FROZEN):
            self.fire(LinkEvent.LOST, "the node is about to stop")
        if self._replica is not None and self._state is LinkState.IN_SYNC:
            self._replica.connection.send(packets.ReplicationStopping(False))

    def finish(self, finished: Callable[[], None]) -> None:
        """Let the replica execute everything, tell it to take over, then call ``finished``; called when the store is
        closed."""
        self.fire(LinkEvent.FINISH, finished)

    def register(self, registration: packets.ReplicaRegistration, connection: ReplicaChannel) -> None:
        """A backup asks to become the replica; it gets an answer."""
        if registration.had_node == self._node_id and self._state is not LinkState.CLOSED:
            lost = self._events.put_back(registration)
            if lost is not None:
                # nothing of either node is touched: the copy may be the only one with these records
                text = f"the active node says: {lost}"
                connection.send(packets.ReplicaAnswer(ReplicaProblem.PUT_BACK, text))
                connection.flush()
                self._events.cannot_go_on(lost)
                return
        problem, text = self._problem(registration)
        if problem is not ReplicaProblem.NONE:
            log.info("replica refused", extra={"peer": connection.peer, "reason": text})
            connection.send(packets.ReplicaAnswer(problem, text))
            return
        answer = packets.ReplicaAnswer(ReplicaProblem.NONE, "", self._common(registration), self._node_id, self._epoch)
        answer.sequence = self._authority.sequence
        connection.send(answer)
        self.fire(LinkEvent.REGISTER, Registered(registration, connection))

    def _common(self, registration: packets.ReplicaRegistration) -> int:
        """The version of the protocol that both nodes speak."""
        return min(registration.protocol, self.options.protocol)

    def _problem(self, registration: packets.ReplicaRegistration) -> tuple[ReplicaProblem, str]:
        if registration.protocol < REPLICATION_PROTOCOL_MIN:
            return (
                ReplicaProblem.PROTOCOL,
                f"replication protocol {registration.protocol}, this node speaks {REPLICATION_PROTOCOL_MIN} and newer",
            )
        if registration.group != self.options.group:
            return (
                ReplicaProblem.OTHER_GROUP,
                f"group-name is {self.options.group!r}, that of the backup {registration.group!r}",
            )
        if registration.node_id not in (None, self._node_id):
            return ReplicaProblem.OTHER_NODE, f"this is node {self._node_id}, not {registration.node_id}"
        other_pair = self.options.place(self._node_id, registration)
        if other_pair is not None:
            return ReplicaProblem.OTHER_PAIR, other_pair
        unreadable = self._formats.refusal(registration.format_version)
        if unreadable is not None:
            return ReplicaProblem.PROTOCOL, unreadable
        if self._leaving or self._state in (LinkState.CLOSED, LinkState.FINISHING):
            return ReplicaProblem.NOT_ACTIVE, "the node is stopping"
        if self._replica is not None or self._state is not LinkState.FREE:
            return ReplicaProblem.ALREADY_REPLICATING, "the node has a replica"
        return ReplicaProblem.NONE, ""

    def received(self, connection: ReplicaChannel, packet: packets.Packet) -> None:
        """A packet of the replica. Raises BrokerError: it does not fit, the connection must be closed."""
        if self._replica is None or connection is not self._replica.connection:
            return
        if isinstance(packet, packets.ReplicationCopy) and self._copy is not None:
            self._copy.receive(packet.data)
        elif isinstance(packet, packets.ReplicationCopy) and self._state is LinkState.IN_SYNC:
            self._events.copy_received(packet.data)
        elif isinstance(packet, packets.ReplicationProgress):
            self._progressed(packet)
        elif isinstance(packet, packets.ReplicationPromise):
            self._authority.promised(packet.number, None if packet.given else packet.reason)
        else:
            raise ReplicaFailed(f"{type(packet).__name__} in state {self._state.name}")

    def connection_lost(self, connection: ReplicaChannel, reason: str) -> None:
        """Called when the connection of a replica has ended."""
        if self._replica is not None and connection is self._replica.connection:
            self.fire(LinkEvent.LOST, reason)

    @property
    def in_sync(self) -> bool:
        """Whether a replica may take over."""
        return self._state is LinkState.IN_SYNC

    @property
    def wants_failback(self) -> bool:
        """Whether the present replica asks to become active."""
        return self._replica is not None and self._replica.registration.wants_failback

    @property
    def congested(self) -> bool:
        """Whether the replica has so much to execute that no client should be read."""
        return self._progress.behind_bytes > REPLICA_BEHIND_BYTES_PAUSE

    # --- CopyOwner -----------------------------------------------------------------------------------

    def copy_send(self, data: bytes) -> None:
        if self._replica is not None:
            self._replica.connection.send(packets.ReplicationCopy(data))

    def little_left(self) -> None:
        self.fire(LinkEvent.LITTLE_LEFT)

    def copied(self) -> None:
        self.fire(LinkEvent.COPIED)

    def copy_failed(self, error: BrokerError) -> None:
        self.fire(LinkEvent.LOST, str(error))

    # --- ha.replication.ports.ReplicaPromises --------------------------------------------------------

    def ask_promise(self, number: int, sequence: int, duration_ms: int) -> None:
        replica = self._replica
        if replica is None or self._state not in (LinkState.IN_SYNC, LinkState.FINISHING):
            return
        if self._common(replica.registration) < PROMISE_PROTOCOL:
            self._authority.promised(number, f"the replica speaks version {replica.registration.protocol} only")
            return
        replica.connection.send(packets.ReplicationPromiseRequest(number, sequence, duration_ms))
        replica.connection.flush()

    # --- ReplicaStream -------------------------------------------------------------------------------

    def ship(self, index: int, directory: Directory, operations: Sequence[Operation]) -> None:
        assert self._replica is not None
        data = b"".join(encode(operations))
        self._progress.add(index, len(data), self._clock.monotonic_ms())
        assert self._context is not None
        connection, receipt = self._replica.connection, self._context.wants_receipts
        send = connection.send
        for start in range(0, len(data), OPERATIONS_BYTES_MAX):
            end = start + OPERATIONS_BYTES_MAX
            part = data if end - start >= len(data) else data[start:end]
            send(packets.ReplicationOperations(index, directory, end < len(data), part, receipt))
        connection.flush()

    def diverged(self, error: ReplicaFailed) -> None:
        self.fire(LinkEvent.LOST, str(error))

    # --- actions: copying ------------------------------------------------------------------------------

    def _begin_copy(self, replica: Registered) -> None:
        self._replica = replica
        log.info("replica registered", extra={"peer": replica.connection.peer, "backup": replica.registration.name})
        self._formats.follows(self, f"the replica {replica.registration.name}", replica.registration.format_version)
        self._silence.begin(replica.connection.silent_ms)
        self._copy = self._events.make_copy(self, self._common(replica.registration))

    def _silent(self, silent_ms: int) -> None:
        log.error("silent replica dropped", extra={"silent_ms": silent_ms})
        self.fire(LinkEvent.LOST, f"nothing received for {silent_ms} ms")

    def _freeze(self) -> None:
        self._frozen_at_ms = self._clock.monotonic_ms()
        if self.options.sync_timeout_ms >= 0:
            self._timer = self._timers.call_later(self.options.sync_timeout_ms, self._sync_timed_out)
        self._frozen = True
        replica = self._replica

        def quiet() -> None:
            if self._replica is replica:
                self.fire(LinkEvent.QUIET)

        self._shipping.freeze(quiet)

    def _send_rest(self) -> None:
        assert self._context is not None
        assert self._copy is not None
        self._shipping.attach(self, self._context)
        self._progress = ReplicaProgress(self._clock.monotonic_ms())
        copy = self._copy
        assert self._replica is not None
        connector = self._replica.registration.connector

        def noted(error: BrokerError | None) -> None:
            if self._copy is not copy:
                return
            if error is not None:
                self.fire(LinkEvent.LOST, str(error))
            else:
                copy.finish()

        # before the replica can believe that it may take over
        self._authority.share(f"{connector.host}:{connector.port}", noted)

    def _sync_timed_out(self) -> None:
        self._timer = None
        log.error("the replica was not in sync in time", extra={"id": "AMQ229114"})
        self.fire(LinkEvent.LOST, f"not in sync within {self.options.sync_timeout_ms} ms")

    def _end_copy(self) -> None:
        copy, self._copy = self._copy, None
        if copy is not None:
            copy.cancel()
        self._forget_timer()

    def _thaw(self) -> None:
        if self._frozen:
            self._frozen = False
            self._shipping.thaw()

    def _lose_copy(self, reason: str) -> None:
        """The replica cannot take over: nothing waits for it."""
        self._end_copy()
        self._drop(reason)
        self._thaw()

    # --- actions: in sync --------------------------------------------------------------------------------

    def _enter_sync(self) -> None:
        assert self._replica is not None
        self._end_copy()
        self._thaw()
        self._watch_progress()
        self._authority.synced(self)
        frozen_ms = self._clock.monotonic_ms() - self._frozen_at_ms
        log.info("replica in sync", extra={"peer": self._replica.connection.peer, "frozen_ms": frozen_ms})
        self._events.replica_in_sync(self._replica.registration)

    def _progressed(self, progress: packets.ReplicationProgress) -> None:
        self._progress.report(progress.received, progress.durable, self._clock.monotonic_ms())
        self._shipping.confirmed(Voter.REPLICA_MEMORY, progress.received)
        self._shipping.confirmed(Voter.REPLICA_DISK, progress.durable)
        if self._state is LinkState.FINISHING and self._progress.finished:
            self.fire(LinkEvent.EXECUTED)

    def _watch_progress(self) -> None:
        """Drop a replica that makes no progress (artemis-ha s. 3.9)."""
        timeout_ms = self.options.call_timeout_ms
        if timeout_ms < 0:
            return
        silent_ms = self._progress.silent_ms(self._clock.monotonic_ms())
        if silent_ms > timeout_ms:
            log.error("slow replica dropped", extra={"id": "AMQ222207", "silent_ms": silent_ms})
            self.fire(LinkEvent.LOST, f"no progress for {silent_ms} ms")
            return
        delay_ms = min(max(timeout_ms // 10, CHECK_MS[0]), CHECK_MS[1])
        self._timer = self._timers.call_later(delay_ms, self._watch_progress)

    def _lose_replica(self, reason: str) -> None:
        """Ask whether this node goes on without it; called when the replica may take over."""
        self._end_copy()
        self._authority.synced(None)
        replica = self._replica
        self._drop(reason)
        self._shipping.stop_sending()
        # the store can be closed then if the node ends; confirmations wait for the replica until ``detach``
        self._thaw()
        if self._leaving:
            # waiting requests are not confirmed: the replica may be active soon
            return
        assert replica is not None

        def answered(error: BrokerError | None) -> None:
            if error is not None:
                self._events.cannot_go_on(error)
                return
            self.fire(LinkEvent.PERMITTED)
            self._events.replica_lost(replica.registration)

        self._authority.claim(answered, alone=True)

    def _go_on(self) -> None:
        log.warning("the node goes on without a replica")
        self._shipping.detach()

    def _drop(self, reason: str) -> None:
        self._silence.end()
        self._formats.left(self)
        replica, self._replica = self._replica, None
        self._progress = ReplicaProgress(0)
        if replica is not None:
            log.warning("replica lost", extra={"peer": replica.connection.peer, "reason": reason})
            replica.connection.close()

    # --- actions: end --------------------------------------------------------------------------------------

    def _finish(self, finished: Callable[[], None]) -> None:
        self._finished = finished
        self._forget_timer()
        self._timer = self._timers.call_later(FINISH_MS, lambda: self.fire(LinkEvent.LOST, "not finished in time"))
        if self._progress.finished:
            self.fire(LinkEvent.EXECUTED)

    def _hand_over(self) -> None:
        assert self._replica is not None
        log.info("the replica is to take over", extra={"peer": self._replica.connection.peer})
        self._replica.connection.send(packets.ReplicationStopping(True))
        self._end("the node has stopped")

    def _end(self, reason: str) -> None:
        self._end_copy()
        self._drop(reason)
        self._thaw()
        self._shipping.stop_sending()
        finished, self._finished = self._finished, None
        if finished is not None:
            finished()

    def _end_at_once(self, finished: Callable[[], None]) -> None:
        self._finished = finished
        self._end("the node stops")

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    TABLE = table(
        LinkState,
        LinkEvent,
        {
            (_S.CLOSED, _E.OPEN): To(_S.FREE),
            (_S.CLOSED, _E.FINISH): To(_S.CLOSED, _end_at_once),
            (_S.CLOSED, _E.PERMITTED): IGNORED,
            (_S.FREE, _E.REGISTER): To(_S.COPYING, _begin_copy),
            (_S.FREE, _E.FINISH): To(_S.CLOSED, _end_at_once),
            (_S.COPYING, _E.LITTLE_LEFT): To(_S.FREEZING, _freeze),
            (_S.COPYING, _E.LOST): To(_S.FREE, _lose_copy),
            (_S.COPYING, _E.FINISH): To(_S.CLOSED, _end_at_once),
            (_S.FREEZING, _E.QUIET): To(_S.FROZEN, _send_rest),
            (_S.FREEZING, _E.LOST): To(_S.FREE, _lose_copy),
            (_S.FREEZING, _E.FINISH): To(_S.CLOSED, _end_at_once),
            (_S.FROZEN, _E.COPIED): To(_S.IN_SYNC, _enter_sync),
            (_S.FROZEN, _E.LOST): To(_S.LEAVING, _lose_replica),
            (_S.FROZEN, _E.FINISH): To(_S.CLOSED, _end_at_once),
            (_S.IN_SYNC, _E.LOST): To(_S.LEAVING, _lose_replica),
            (_S.IN_SYNC, _E.FINISH): To(_S.FINISHING, _finish),
            (_S.LEAVING, _E.PERMITTED): To(_S.FREE, _go_on),
            (_S.LEAVING, _E.FINISH): To(_S.CLOSED, _end_at_once),
            (_S.FINISHING, _E.EXECUTED): To(_S.CLOSED, _hand_over),
            (_S.FINISHING, _E.LOST): To(_S.CLOSED, _end),
        },
        otherwise={
            _E.OPEN: ILLEGAL,
            # ``_problem`` has refused a second registration before
            _E.REGISTER: ILLEGAL,
            _E.LITTLE_LEFT: ILLEGAL,
            # the replica was lost meanwhile
            _E.QUIET: IGNORED,
            _E.COPIED: ILLEGAL,
            _E.LOST: IGNORED,
            _E.PERMITTED: ILLEGAL,
            _E.FINISH: ILLEGAL,
            _E.EXECUTED: IGNORED,
        },
    )
