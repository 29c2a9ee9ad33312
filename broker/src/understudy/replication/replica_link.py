"""The backup's side of replication: finds the active node, registers, gets its files, executes its operations.

Candidates are tried in turn until one accepts (artemis-ha s. 3.2). Then the files are copied; when the active node says
that the copy is complete, this node notes durably that it may take over, and executes every operation that follows.

Not here: the files (``store.replication``), what happens when the connection is lost (``standby_life``), and the proof
of the credentials (``cluster.membership.handshake``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import field
from enum import Enum, auto
from typing import ClassVar, Final, NamedTuple, Protocol

from understudy.cluster.membership.credentials import ClusterCredentials
from understudy.cluster.membership.handshake import prove
from understudy.dataclass import dataclass
from understudy.errors import BrokerError, ReplicaFailed
from understudy.ha.replication.moved_store import LogEnd, MovedStore
from understudy.ha.replication.ports import Found, ReplicaListener
from understudy.ha.replication.standing import WaitingCopy
from understudy.limits import FRAME_BYTES_MAX, REPLICATED_SUBMISSION_BYTES_MAX
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import Clock, Executor, Operation, Timers
from understudy.store.log.format_version import FORMAT_VERSION
from understudy.store.replication.copy_messages import Directory
from understudy.store.replication.operation_codec import decode
from understudy.wire.core import packets
from understudy.wire.core.packets_replication import (
    REPLICATION_CHANNEL,
    REPLICATION_PROTOCOL,
    REPLICATION_PROTOCOL_MIN,
    ReplicaProblem,
)
from understudy.wire.core.peer import CorePeer, Dialer, PeerOptions, RefusalLog
from understudy.wire.core.transport import TransportConfiguration

log = logging.getLogger(__name__)


class Accepted(NamedTuple):
    """The answer of an active node that takes this one as its replica."""

    protocol: int
    """Version of the replication protocol that both nodes speak."""
    node_id: str | None
    """Node id of the store of the active node."""
    sequence: int
    """Activation sequence of the active node; -1: an earlier version of Understudy does not say it."""


class CopyTarget(Protocol):
    """The files that are being copied, then the execution of operations on them."""

    def begin(self, accepted: Accepted) -> None:
        """Send the inventory."""

    def receive(self, data: bytes) -> None:
        """A message of the active node. Raises BrokerError: it does not fit."""

    def execute(
        self, index: int, directory: Directory, operations: Sequence[Operation], size_bytes: int, *, at_once: bool
    ) -> None:
        """Execute operations, ``size_bytes`` encoded, after everything before; ``TargetOwner.progress`` follows. With
        ``at_once`` perhaps before the return."""

    def end(self, ended: Callable[[], None]) -> None:
        """Execute everything that was given, close the files, call ``ended``. Nothing changes a file after it."""


class TargetOwner(Protocol):
    """Owner of the received copy, which a ``CopyTarget`` calls."""

    def copy_send(self, data: bytes) -> None:
        """Send a message to the active node."""

    def copied(self) -> None:
        """The copy is complete, and that is noted durably: operations follow once the active node knows."""

    def copy_failed(self, error: BrokerError) -> None:
        """Called when the copy cannot be completed, or an operation could not be executed."""

    def progress(self, durable: int) -> None:
        """Everything up to this index is executed, durably."""


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """How this node registers."""

    name: str
    """Name for logs of the active node."""
    connector: TransportConfiguration
    """The connector by which clients reach this node once it is active."""
    group: str | None
    """Element group-name of the replication policy."""
    wants_failback: bool
    credentials: ClusterCredentials
    """Credentials of the cluster."""
    peer: PeerOptions
    """Time limits of the connection: those of the cluster connection."""
    waiting_copy: Callable[[], WaitingCopy | None] = lambda: None
    """Function that returns the statement of this node while it waits (``Authority.waiting_copy``)."""
    node_id: Callable[[bool], str | None] = lambda place_taken: None
    """Node id of the only node of which this one becomes the replica; None: of any node of the group. The argument is
    whether an active node has another replica.
    """
    not_asked: Callable[[Sequence[TransportConfiguration], bool], Sequence[str]] = lambda answered, place_taken: ()
    """``Replica.not_asked``, given the connectors of the nodes that answered, and whether one has another replica."""
    others_not_asked: Callable[[Sequence[TransportConfiguration]], Sequence[str]] = lambda answered: ()
    """``Replica.others_not_asked``, given the connectors of the nodes that answered."""
    had: Callable[[], tuple[str, int, int] | None] = lambda: None
    """Node id, epoch and sequence that the writer of the complete copy of this node had synced; None: no copy."""
    protocol: int = REPLICATION_PROTOCOL
    """Newest version of the replication protocol that this node speaks."""


@dataclass(slots=True)
class _Search:
    """One search of a backup for an active node."""

    reasons: list[str] = field(default_factory=list)
    """Reason why each candidate did not take this node."""
    problems: set[int] = field(default_factory=set)
    """Answers of the nodes."""
    answered: list[TransportConfiguration] = field(default_factory=list)
    """Connectors of the nodes that answered."""


class ReplicaState(Enum):
    """States of the link."""

    IDLE = auto()
    CONNECTING = auto()
    PROVING = auto()
    REGISTERING = auto()
    COPYING = auto()
    IN_SYNC = auto()
    LOST = auto()
    """The connection has ended; operations that were received are still executed until ``end``."""
    ENDING = auto()


class ReplicaEvent(Enum):
    """Events of the link."""

    SEEK = auto()
    OPENED = auto()
    PROVED = auto()
    EXHAUSTED = auto()
    """No candidate is left."""
    ACCEPTED = auto()
    """The active node takes this one as its replica. Its argument is the version of the protocol that both speak."""
    REFUSED = auto()
    """The active node does not take this one. Its argument is the reason."""
    COPIED = auto()
    LOST = auto()
    """The connection has ended. Its argument is the reason."""
    END = auto()
    """The link is not needed any more. Its argument is called at its end."""
    ENDED = auto()


_S, _E = ReplicaState, ReplicaEvent
#: Answers that stay the same until a node is updated, or configured in another way: they are logged.
_LASTING: Final = (ReplicaProblem.PROTOCOL, ReplicaProblem.OTHER_PAIR)
#: States in which messages about files come.
_WITH_FILES: Final = (_S.COPYING, _S.IN_SYNC)
#: Result of a search by an answer in it; the first one counts.
_FOUND: Final = {
    ReplicaProblem.ALREADY_REPLICATING: Found.PLACE_TAKEN,
    ReplicaProblem.ACTIVATES: Found.PARTNER_ACTIVATES,
    ReplicaProblem.PUT_BACK: Found.PUT_BACK,
}


@dataclass(frozen=True, slots=True)
class ActiveNodes:
    """The places at which the active node of a backup may be."""

    candidates: Callable[[bool], Sequence[TransportConfiguration]]
    """Their connectors, given whether one of them has another replica."""
    dialer: Dialer
    """Connects to one of them."""


class ReplicaLink(Machine[ReplicaState, ReplicaEvent]):
    """The connection of a backup to its active node. Implements ``Replica``, ``PeerOwner`` and ``TargetOwner``."""

    STATES: ClassVar[type[Enum]] = ReplicaState
    EVENTS: ClassVar[type[Enum]] = ReplicaEvent
    INITIAL: ClassVar[Enum] = ReplicaState.IDLE

    def __init__(
        self,
        options: ReplicaOptions,
        active_nodes: ActiveNodes,
        listener: ReplicaListener,
        new_target: Callable[[TargetOwner], CopyTarget],
        clock: Clock,
        timers: Timers,
        executor: Executor,
    ) -> None:
        """Nothing is dialled before ``seek``.

        Args:
            options: How this node registers.
            active_nodes: Where an active node may be.
            listener: Called when something happens.
            new_target: Begins a copy of the files; its directory belongs to it until ``CopyTarget.end``.
            clock: Measures silence.
            executor: Gathers reports of progress.
        """
        super().__init__()
        self.options = options
        self._candidates = active_nodes.candidates
        self._listener = listener
        self._new_target = new_target
        self._dialer = active_nodes.dialer
        self._clock = clock
        self._refusals = RefusalLog(clock)
        self._timers = timers
        self._executor = executor
        self._left: list[TransportConfiguration] = []
        """Candidates of this search that were not tried."""
        self._search = _Search()
        self.found = Found.NOTHING
        """Result of the last search; see ``Replica``."""
        self._peer: CorePeer | None = None
        self._target: CopyTarget | None = None
        self._parts: list[bytes] = []
        """Parts of a submission that is not complete."""
        self._parts_bytes = 0
        self._received = 0
        self._durable = 0
        self._reporting = False
        self._ended: list[Callable[[], None]] = []

    # --- Replica -------------------------------------------------------------------------------------

    @property
    def active_node(self) -> str | None:
        if self._peer is None or self._state not in (_S.COPYING, _S.IN_SYNC):
            return None
        target = self._peer.target
        return f"{target.host}:{target.port}"

    @property
    def _place_taken(self) -> bool:
        """Whether an active node has another replica."""
        return self.found is Found.PLACE_TAKEN

    def not_asked(self) -> Sequence[str]:
        return self.options.not_asked(self._search.answered, self._place_taken)

    def others_not_asked(self) -> Sequence[str]:
        return self.options.others_not_asked(self._search.answered)

    def seek(self) -> None:
        own = self.options.connector
        self._left = [each for each in self._candidates(self._place_taken) if not each.same_place(own)]
        self._search = _Search()
        self.fire(ReplicaEvent.SEEK)

    def end(self, ended: Callable[[], None]) -> None:
        self.fire(ReplicaEvent.END, ended)

    # --- PeerOwner -------------------------------------------------------------------------------------

    def peer_opened(self, peer: CorePeer) -> None:
        self.fire(ReplicaEvent.OPENED, peer)

    def peer_received(self, peer: CorePeer, channel_id: int, packet: packets.Packet) -> None:
        if channel_id != REPLICATION_CHANNEL:
            return
        target = self._target
        if isinstance(packet, packets.ReplicationOperations) and self._state is ReplicaState.IN_SYNC:
            self._take(packet)
        elif isinstance(packet, packets.ReplicationCopy) and self._state in _WITH_FILES and target is not None:
            target.receive(packet.data)
        elif isinstance(packet, packets.ReplicationPromiseRequest) and self._state is ReplicaState.IN_SYNC:
            self._promise(peer, packet)
        elif isinstance(packet, packets.ReplicationStopping):
            self._stopping(packet)
        else:
            raise ReplicaFailed(f"{type(packet).__name__} in state {self._state.name}")

    def peer_lost(self, peer: CorePeer, reason: str) -> None:
        self._refusals.note(peer)
        self.fire(ReplicaEvent.LOST, reason)

    def _take(self, packet: packets.ReplicationOperations) -> None:
        if packet.index != self._received + 1:
            raise ReplicaFailed(f"operations {packet.index} after {self._received}")
        self._parts.append(packet.data)
        self._parts_bytes += len(packet.data)
        if self._parts_bytes > REPLICATED_SUBMISSION_BYTES_MAX:
            raise ReplicaFailed(f"operations {packet.index} have more than {REPLICATED_SUBMISSION_BYTES_MAX} bytes")
        if packet.more:
            return
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._parts_bytes = [], 0
        try:
            directory = Directory(packet.directory)
        except ValueError:
            raise ReplicaFailed(f"operations {packet.index} are for directory {packet.directory}") from None
        operations = decode(data)
        self._received = packet.index
        assert self._target is not None
        self._target.execute(packet.index, directory, operations, len(data), at_once=not packet.report_receipt)
        if packet.report_receipt:
            self._report()

    def _promise(self, peer: CorePeer, packet: packets.ReplicationPromiseRequest) -> None:
        """Ask the listener, and answer on this connection only."""

        def answered(refusal: str | None) -> None:
            if peer is self._peer:
                answer = packets.ReplicationPromise(packet.number, refusal is None, refusal or "")
                peer.send(answer, REPLICATION_CHANNEL)

        self._listener.promise_asked(packet.sequence, packet.duration_ms, answered)

    def _stopping(self, packet: packets.ReplicationStopping) -> None:
        if packet.fail_over and self._state is ReplicaState.IN_SYNC:
            self._listener.fail_over()
        else:
            log.info("the active node is about to stop")

    # --- TargetOwner -------------------------------------------------------------------------------------

    def copy_send(self, data: bytes) -> None:
        if self._peer is not None:
            self._peer.send(packets.ReplicationCopy(data), REPLICATION_CHANNEL)

    def copied(self) -> None:
        self.fire(ReplicaEvent.COPIED)

    def copy_failed(self, error: BrokerError) -> None:
        self.fire(ReplicaEvent.LOST, str(error))

    def progress(self, durable: int) -> None:
        self._durable = durable
        self._report()

    def _report(self) -> None:
        """Report the progress once for everything that happens before the loop waits."""
        if not self._reporting:
            self._reporting = True
            self._executor.soon(self._send_progress)

    def _send_progress(self) -> None:
        self._reporting = False
        if self._peer is not None:
            self._peer.send(packets.ReplicationProgress(self._received, self._durable), REPLICATION_CHANNEL)

    # --- actions -----------------------------------------------------------------------------------------

    def _dial(self) -> None:
        if not self._left:
            self.fire(ReplicaEvent.EXHAUSTED)
            return
        candidate = self._left.pop(0)
        self._peer = CorePeer(self, candidate, self._clock, self._timers, self.options.peer)
        self._dialer.dial(candidate, self._peer)

    def _give_up(self) -> None:
        results = (each for problem, each in _FOUND.items() if problem in self._search.problems)
        self.found = next(results, Found.NOTHING)
        self._listener.not_found("; ".join(self._search.reasons) or "no other connector is configured")

    def _dial_next(self, reason: str) -> None:
        assert self._peer is not None
        self._search.reasons.append(f"{self._peer.target.host}:{self._peer.target.port}: {reason}")
        self._hang_up()
        self._dial()

    def _prove(self, peer: CorePeer) -> None:
        prove(peer, self.options.credentials, lambda: self.fire(ReplicaEvent.PROVED, peer))

    def _register(self, peer: CorePeer) -> None:
        peer.accept_frames(FRAME_BYTES_MAX)
        options = self.options
        stated = options.waiting_copy()
        had_node, had_epoch, had_sequence = options.had() or (None, 0, 0)
        registration = packets.ReplicaRegistration(
            options.protocol,
            options.name,
            options.group,
            options.wants_failback,
            options.connector,
            options.node_id(self._place_taken),
            -1 if stated is None else stated.copied_at,
            FORMAT_VERSION,
            had_node,
            had_epoch,
            had_sequence,
            None if stated is None else stated.node_id,
        )
        peer.request(registration, REPLICATION_CHANNEL, (packets.ReplicaAnswer,), self._answered)

    def _answered(self, answer: packets.Packet) -> None:
        assert isinstance(answer, packets.ReplicaAnswer)
        if self._peer is not None:
            self._search.answered.append(self._peer.target)
        if answer.problem != ReplicaProblem.NONE:
            self._search.problems.add(answer.problem)
            if answer.problem == ReplicaProblem.PUT_BACK:
                hint = "this node waits; `understudy promote --accept-data-loss` lets it serve with its records"
                log.error("the active node has lost records of this one", extra={"error": answer.text, "hint": hint})
            if answer.problem == ReplicaProblem.MOVED:
                self._listener.hear_moved(_moved(answer, self.options.node_id(self._place_taken)))
            if answer.problem in _LASTING and self._peer is not None:
                self._refusals.refuse(self._peer, answer.text)
            self.fire(ReplicaEvent.REFUSED, answer.text)
        elif not REPLICATION_PROTOCOL_MIN <= answer.protocol <= self.options.protocol:
            text = (
                f"replication protocol {answer.protocol}, this node speaks {REPLICATION_PROTOCOL_MIN} to"
                f" {self.options.protocol}"
            )
            self.fire(ReplicaEvent.REFUSED, text)
        else:
            log.info("accepted as replica", extra={"node_id": answer.node_id, "epoch": answer.epoch})
            self.fire(ReplicaEvent.ACCEPTED, Accepted(answer.protocol, answer.node_id, answer.sequence))

    def _begin_copy(self, accepted: Accepted) -> None:
        self._received = self._durable = 0
        self._parts, self._parts_bytes = [], 0
        self._left = []
        self.found = Found.NOTHING
        self._target = self._new_target(self)
        self._listener.accepted()
        self._target.begin(accepted)

    def _enter_sync(self) -> None:
        self._listener.in_sync()

    def _lose(self, reason: str) -> None:
        self._hang_up()
        self._listener.lost(reason)

    def _hang_up(self) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()

    def _end(self, ended: Callable[[], None]) -> None:
        self._hang_up()
        self._left = []
        self._ended.append(ended)
        if self._target is None:
            self.fire(ReplicaEvent.ENDED)
        else:
            self._target.end(lambda: self.fire(ReplicaEvent.ENDED))

    def _join_end(self, ended: Callable[[], None]) -> None:
        self._ended.append(ended)

    def _tell_ended(self) -> None:
        self._target = None
        ended, self._ended = self._ended, []
        for call in ended:
            call()

    def _ended_already(self, ended: Callable[[], None]) -> None:
        ended()

    TABLE = table(
        ReplicaState,
        ReplicaEvent,
        {
            (_S.IDLE, _E.SEEK): To(_S.CONNECTING, _dial),
            (_S.IDLE, _E.END): To(_S.IDLE, _ended_already),
            (_S.CONNECTING, _E.OPENED): To(_S.PROVING, _prove),
            (_S.CONNECTING, _E.LOST): To(_S.CONNECTING, _dial_next),
            (_S.CONNECTING, _E.EXHAUSTED): To(_S.IDLE, _give_up),
            (_S.PROVING, _E.PROVED): To(_S.REGISTERING, _register),
            (_S.PROVING, _E.LOST): To(_S.CONNECTING, _dial_next),
            (_S.REGISTERING, _E.ACCEPTED): To(_S.COPYING, _begin_copy),
            (_S.REGISTERING, _E.REFUSED): To(_S.CONNECTING, _dial_next),
            (_S.REGISTERING, _E.LOST): To(_S.CONNECTING, _dial_next),
            (_S.COPYING, _E.COPIED): To(_S.IN_SYNC, _enter_sync),
            (_S.COPYING, _E.LOST): To(_S.LOST, _lose),
            (_S.IN_SYNC, _E.LOST): To(_S.LOST, _lose),
            (_S.LOST, _E.END): To(_S.ENDING, _end),
            (_S.CONNECTING, _E.END): To(_S.ENDING, _end),
            (_S.PROVING, _E.END): To(_S.ENDING, _end),
            (_S.REGISTERING, _E.END): To(_S.ENDING, _end),
            (_S.COPYING, _E.END): To(_S.ENDING, _end),
            (_S.IN_SYNC, _E.END): To(_S.ENDING, _end),
            (_S.ENDING, _E.END): To(_S.ENDING, _join_end),
            (_S.ENDING, _E.ENDED): To(_S.IDLE, _tell_ended),
        },
        otherwise={
            _E.SEEK: ILLEGAL,
            _E.OPENED: IGNORED,
            _E.PROVED: IGNORED,
            _E.EXHAUSTED: ILLEGAL,
            _E.ACCEPTED: IGNORED,
            _E.REFUSED: IGNORED,
            # the connection was lost while it was noted
            _E.COPIED: IGNORED,
            _E.LOST: IGNORED,
            _E.ENDED: ILLEGAL,
        },
    )


def _moved(answer: packets.ReplicaAnswer, node_id: str | None) -> MovedStore:
    """The record in an answer to a node that looks for ``node_id``."""
    end = LogEnd(answer.moved_epoch, answer.moved_log_sequence, answer.moved_common, answer.moved_last_batch)
    return MovedStore(node_id or "", answer.moved_sequence, end, answer.moved_copied_at, answer.moved_place)
