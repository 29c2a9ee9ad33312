"""One core bridge: when it connects, forwards, pauses and gives up.

A bridge consumes only while it is connected to its target. When the connection ends, messages that the target has not
confirmed return to the queue, and the next connection sends them again; the target drops those that it has already by
the bridge's duplicate id. With ``ha`` the bridge follows the pair of nodes that its target belongs to.

Source: manual, "Core Bridges". Beyond it, a bridge whose queue does not exist waits for the queue.
Not here: the session at the target (``target``), the local consumer (``forwarding``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final, Protocol

from understudy.cluster.bridges.conversion import Converts
from understudy.cluster.bridges.forwarding import BridgeCounts, Forwarding, Stall
from understudy.cluster.bridges.hops import CountedHops
from understudy.cluster.bridges.target import TargetAccess, TargetSession
from understudy.cluster.membership.member_link import LinkSettings
from understudy.cluster.membership.topology import Member
from understudy.config.bridge import BridgeConfiguration
from understudy.dataclass import dataclass
from understudy.errors import BrokerError, IllegalState
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import Timer
from understudy.routing.queues.queue import Queue
from understudy.session.services import SessionServices
from understudy.wire.core.transport import TransportConfiguration

log = logging.getLogger(__name__)

FAILURE_REPEATED_MS: Final = 60_000
"""After the first failed attempt a further one is logged this often, while the target is away."""


class State(Enum):
    """States of a bridge."""

    STOPPED = auto()
    WAITING_FOR_QUEUE = auto()
    CONNECTING = auto()
    WAITING = auto()
    """The bridge waits before its next attempt to connect."""
    RUNNING = auto()
    PAUSING = auto()
    """The bridge takes no message from the queue and waits for confirmations."""
    PAUSED = auto()
    """Like STOPPED; an operator has paused the bridge."""
    STOPPING = auto()
    """Like PAUSING, before the bridge stops."""
    FAILED = auto()
    """The bridge has given up after the configured number of attempts."""


class Event(Enum):
    """Events of a bridge."""

    START = auto()
    QUEUE_FOUND = auto()
    QUEUE_LOST = auto()
    READY = auto()
    """The target takes messages."""
    LOST = auto()
    """The connection to the target ended or could not be made."""
    RETRY = auto()
    GIVE_UP = auto()
    PAUSE = auto()
    DRAINED = auto()
    """Everything that was sent is confirmed, or pending-ack-timeout is over."""
    STOP = auto()
    CLOSE = auto()
    """The node is not active any more."""


_S, _E = State, Event


class BridgeListener(Protocol):
    """Called when a bridge is started and stopped."""

    def bridge_started(self, name: str) -> None:
        """The bridge was started; it may not be connected yet."""

    def bridge_stopped(self, name: str) -> None:
        """Called when the bridge was stopped or paused."""


@dataclass(frozen=True, slots=True)
class BridgeParts:
    """Objects that the bridges of a node share."""

    access: TargetAccess
    services: SessionServices
    node_id: str
    find_queue: Callable[[str], Queue | None]
    listener: BridgeListener
    of_cluster: bool = True
    """Whether the bridge belongs to a cluster connection, whose members send a message back to no member."""
    may_be_anonymous: bool = False
    """Whether a bridge without user goes on without a login where the target refuses the cluster credentials."""


class Bridge(Machine[State, Event]):
    """One bridge. Implements ``target.TargetOwner``."""

    STATES = State
    EVENTS = Event
    INITIAL = State.STOPPED

    def __init__(
        self,
        name: str,
        configuration: BridgeConfiguration,
        connectors: Callable[[], Sequence[TransportConfiguration]],
        parts: BridgeParts,
        conversion: Converts,
        node_id: str = "",
    ) -> None:
        """Args:
        name: Name with the index, if the bridge is one of several.
        connectors: Returns those of the target, in the order in which they are tried.
        conversion: Changes the messages.
        node_id: Id that the target must have; empty: any.
        """
        super().__init__()
        if not parts.of_cluster:
            office = parts.services.post_office
            office.acceptance.hops = office.acceptance.hops or CountedHops(office)
        self.name = name
        self.configuration = configuration
        self.counts = BridgeCounts()
        self.last_error = ""
        """Reason why the latest connection ended or could not be made; empty: none did."""
        self._connectors = connectors
        self._parts = parts
        self._conversion = conversion
        self._node_id = node_id
        self._target: TargetSession | None = None
        self._forwarding: Forwarding | None = None
        self.target = ""
        """URL of the connector that is in use or was tried last; empty: none was."""
        self._timer: Timer | None = None
        self.retry_ms = 0
        """Monotonic time of the next attempt, while it waits for that."""
        self._failures = 0
        """Failed attempts since the last connection."""
        self._logged_ms = 0
        """Monotonic time in ms at which a failed attempt was logged last."""
        self._ever_connected = False
        self._next = 0
        """Connector of the next attempt, from the first of this round."""
        self._pair: tuple[TransportConfiguration, ...] = ()
        """Connectors of the pair of nodes that the bridge was connected to; only with ``ha``."""
        self._proves = True
        """Whether the next attempt proves the cluster credentials, if there is no user."""
        self._retry = LinkSettings(
            configuration.connection.retry_interval_ms,
            configuration.connection.retry_interval_multiplier,
            configuration.connection.max_retry_interval_ms,
        )

    # -- for the owner ----------------------------------------------------------------------------

    @property
    def started(self) -> bool:
        """Whether the bridge forwards, or will forward when its queue and target exist."""
        return self.state in (_S.WAITING_FOR_QUEUE, _S.CONNECTING, _S.WAITING, _S.RUNNING)

    @property
    def connected(self) -> bool:
        """Whether the bridge has a session at its target."""
        return self._target is not None and self._target.ready

    @property
    def unconfirmed(self) -> int:
        """Messages that were sent and that the target has not confirmed."""
        return self._forwarding.unconfirmed if self._forwarding is not None else 0

    @property
    def stall(self) -> Stall | None:
        """Reason why a connected bridge sends nothing at present; None if nothing prevents it."""
        return self._forwarding.stall if self._forwarding is not None else None

    def start(self) -> None:
        """Begin to forward; without effect if it has begun. Raises IllegalState: it is pausing or stopping."""
        self._check_settled("started")
        self.fire(_E.START)

    def pause(self) -> None:
        """Forward nothing after the messages that are under way. Raises IllegalState: it is stopping or stopped."""
        if self.state in (_S.STOPPING, _S.STOPPED, _S.FAILED):
            raise IllegalState(f"bridge {self.name!r} cannot be paused while it is {self.state.name.lower()}")
        self.fire(_E.PAUSE)

    def stop(self) -> None:
        """Stop after the messages that are under way. Raises IllegalState: it is pausing."""
        if self.state is _S.PAUSING:
            raise IllegalState(f"bridge {self.name!r} cannot be stopped while it is pausing")
        self.fire(_E.STOP)

    def close(self) -> None:
        """End at once, without a notification: the node is not active any more."""
        self.fire(_E.CLOSE)

    def queue_added(self, queue: Queue) -> None:
        """A queue exists from now on."""
        if queue.name == self.configuration.queue_name and self.state is _S.WAITING_FOR_QUEUE:
            self.fire(_E.QUEUE_FOUND)

    def queue_removed(self, queue: Queue) -> None:
        """Called when a queue was deleted."""
        if queue.name == self.configuration.queue_name:
            self.fire(_E.QUEUE_LOST)

    def _check_settled(self, wanted: str) -> None:
        if self.state in (_S.PAUSING, _S.STOPPING):
            raise IllegalState(f"bridge {self.name!r} cannot be {wanted} while it is {self.state.name.lower()}")

    # -- TargetOwner ------------------------------------------------------------------------------

    def target_ready(self) -> None:
        """Called when the target takes messages. Raises BrokerError: the queue cannot be consumed."""
        self.fire(_E.READY)

    def target_confirmed(self, first: int, last: int) -> None:
        """Called when the target has the messages with these correlation ids."""
        forwarding = self._forwarding
        if forwarding is not None:
            forwarding.confirmed(first, last)
            if not forwarding.unconfirmed and self.state in (_S.PAUSING, _S.STOPPING):
                self.fire(_E.DRAINED)

    def _refused(self, correlation_id: int, error: BrokerError) -> bool:
        """Called when the target has refused a message. Returns whether the others go on without it."""
        forwarding = self._forwarding
        if forwarding is None or not forwarding.refused(correlation_id, error):
            return False
        self.last_error = f"{self.target}: a message was refused: {error}"
        if not forwarding.unconfirmed and self.state in (_S.PAUSING, _S.STOPPING):
            self.fire(_E.DRAINED)
        return True

    def target_writable(self) -> None:
        """Called when the target takes further messages."""
        if self._forwarding is not None:
            self._forwarding.resume()

    def target_member(self, member: Member) -> None:
        """The target announced the connectors of its pair."""
        self._pair = tuple(each for each in (member.primary, member.backup) if each is not None)

    def target_lost(self, reason: str) -> None:
        """Called when the connection to the target has ended, or could not be made."""
        self.fire(_E.LOST, reason)

    # -- actions ----------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._failures = self._next = 0
        self._ever_connected = False
        self._parts.listener.bridge_started(self.name)
        self._look_for_queue()

    def _look_for_queue(self) -> None:
        name = self.configuration.queue_name
        if self._parts.find_queue(name) is not None:
            self.fire(_E.QUEUE_FOUND)
        else:
            log.warning("bridge waits for its queue", extra={"bridge": self.name, "queue": name})

    def _candidates(self) -> Sequence[TransportConfiguration]:
        """Connectors of one attempt: those of the known pair first, then the configured or discovered ones."""
        limit = self.configuration.connection.reconnect_attempts_same_node
        if self._pair and (limit < 0 or self._failures < limit):
            return self._pair
        return self._connectors()

    def _dial(self) -> None:
        self._cancel_timer()
        candidates = self._candidates()
        if not candidates:
            group = self.configuration.target.discovery_group
            self.fire(_E.LOST, f"no broker was heard in discovery group {group!r}")
            return
        connector = candidates[self._next % len(candidates)]
        self.target = connector.to_url()
        self._target = TargetSession(
            self, connector, self.configuration, self._parts.access, node_id=self._node_id, proves=self._proves
        )
        self._target.refused = self._refused

    def _run(self) -> None:
        queue, target = self._parts.find_queue(self.configuration.queue_name), self._target
        if queue is None or target is None:
            raise IllegalState(f"bridge {self.name!r}: its queue was deleted")
        forwarding = Forwarding(
            self.configuration,
            self._parts.services,
            self._conversion,
            target,
            self.counts,
            self._consumer_ended,
            self._parts.access.timers,
        )
        try:
            forwarding.open(queue)
        except BrokerError:
            forwarding.close()
            raise
        self._forwarding = forwarding
        self._failures = self._next = 0
        self._ever_connected = True
        self.last_error = ""
        log.info("bridge connected", extra={"bridge": self.name, "queue": queue.name, "target": self.target})

    def _consumer_ended(self, reason: str) -> None:
        # not within the call: the queue may be in the middle of a delivery
        self._parts.access.timers.call_later(0, lambda: self.fire(_E.LOST, reason))

    def _hang_up(self) -> None:
        self._cancel_timer()
        target, self._target = self._target, None
        if target is not None:
            target.close()
        forwarding, self._forwarding = self._forwarding, None
        if forwarding is not None:
            forwarding.close()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _retry_later(self, reason: str) -> None:
        was_connected = self._forwarding is not None
        refused = self._target is not None and self._target.proof_refused
        self._hang_up()
        self.last_error = reason if self.target in reason else f"{self.target}: {reason}"
        self.counts.lost_connections += was_connected
        self._proves = not (refused and self._parts.may_be_anonymous)
        if not self._proves:
            self._wait(0)
            return
        self._next += 1
        if not was_connected and self._next < len(self._candidates()):
            # the attempt is over when all connectors were tried
            self._wait(0)
            return
        self._next = 0
        self._failures += 1
        limit = (
            self.configuration.connection.reconnect_attempts
            if self._ever_connected
            else self.configuration.connection.initial_connect_attempts
        )
        self._log_failure()
        if 0 <= limit < self._failures:
            self.fire(_E.GIVE_UP)
        else:
            self._wait(self._retry.retry_ms(self._failures))

    def _log_failure(self) -> None:
        now_ms = self._parts.services.clock.monotonic_ms()
        if self._failures == 1 or now_ms - self._logged_ms >= FAILURE_REPEATED_MS:
            self._logged_ms = now_ms
            log.warning(
                "bridge not connected",
                extra={"bridge": self.name, "reason": self.last_error, "failures": self._failures},
            )

    def _wait(self, delay_ms: int) -> None:
        self.retry_ms = self._parts.services.clock.monotonic_ms() + delay_ms
        self._timer = self._parts.access.timers.call_later(delay_ms, lambda: self.fire(_E.RETRY))

    def _give_up(self) -> None:
        log.error("bridge failed: it does not try again before it is started", extra={"bridge": self.name})
        self._parts.listener.bridge_stopped(self.name)

    def _queue_lost(self) -> None:
        log.warning("the queue of a bridge was deleted", extra={"bridge": self.name})
        self._hang_up()

    def _drain(self) -> None:
        forwarding = self._forwarding
        if forwarding is None or not forwarding.unconfirmed:
            self.fire(_E.DRAINED)
            return
        forwarding.stop()
        self._timer = self._parts.access.timers.call_later(
            self.configuration.connection.pending_ack_timeout_ms, lambda: self.fire(_E.DRAINED)
        )

    def _stopped(self) -> None:
        if self.unconfirmed:
            log.warning(
                "the target of a bridge has not confirmed everything",
                extra={"bridge": self.name, "unconfirmed": self.unconfirmed},
            )
        self._hang_up()
        log.info("bridge stopped", extra={"bridge": self.name})
        self._parts.listener.bridge_stopped(self.name)

    def _ended_without_stop(self, reason: str) -> None:
        self.last_error = reason
        self._stopped()

    # The table comes last: it names the functions above.
    TABLE = table(
        State,
        Event,
        {
            (_S.STOPPED, _E.START): To(_S.WAITING_FOR_QUEUE, _begin),
            (_S.PAUSED, _E.START): To(_S.WAITING_FOR_QUEUE, _begin),
            (_S.FAILED, _E.START): To(_S.WAITING_FOR_QUEUE, _begin),
            (_S.WAITING_FOR_QUEUE, _E.QUEUE_FOUND): To(_S.CONNECTING, _dial),
            (_S.CONNECTING, _E.QUEUE_LOST): To(_S.WAITING_FOR_QUEUE, _queue_lost),
            (_S.WAITING, _E.QUEUE_LOST): To(_S.WAITING_FOR_QUEUE, _queue_lost),
            (_S.RUNNING, _E.QUEUE_LOST): To(_S.WAITING_FOR_QUEUE, _queue_lost),
            (_S.CONNECTING, _E.READY): To(_S.RUNNING, _run),
            (_S.CONNECTING, _E.LOST): To(_S.WAITING, _retry_later),
            (_S.RUNNING, _E.LOST): To(_S.WAITING, _retry_later),
            (_S.WAITING, _E.RETRY): To(_S.CONNECTING, _dial),
            (_S.WAITING, _E.GIVE_UP): To(_S.FAILED, _give_up),
            (_S.RUNNING, _E.PAUSE): To(_S.PAUSING, _drain),
            (_S.WAITING_FOR_QUEUE, _E.PAUSE): To(_S.PAUSED, _stopped),
            (_S.CONNECTING, _E.PAUSE): To(_S.PAUSED, _stopped),
            (_S.WAITING, _E.PAUSE): To(_S.PAUSED, _stopped),
            (_S.PAUSING, _E.DRAINED): To(_S.PAUSED, _stopped),
            (_S.PAUSING, _E.LOST): To(_S.PAUSED, _ended_without_stop),
            (_S.PAUSING, _E.QUEUE_LOST): To(_S.PAUSED, _stopped),
            (_S.RUNNING, _E.STOP): To(_S.STOPPING, _drain),
            (_S.WAITING_FOR_QUEUE, _E.STOP): To(_S.STOPPED, _stopped),
            (_S.CONNECTING, _E.STOP): To(_S.STOPPED, _stopped),
            (_S.WAITING, _E.STOP): To(_S.STOPPED, _stopped),
            (_S.PAUSED, _E.STOP): To(_S.STOPPED, _stopped),
            (_S.FAILED, _E.STOP): To(_S.STOPPED),
            (_S.STOPPING, _E.DRAINED): To(_S.STOPPED, _stopped),
            (_S.STOPPING, _E.LOST): To(_S.STOPPED, _ended_without_stop),
            (_S.STOPPING, _E.QUEUE_LOST): To(_S.STOPPED, _stopped),
            (_S.STOPPED, _E.CLOSE): To(_S.STOPPED, _hang_up),
            (_S.WAITING_FOR_QUEUE, _E.CLOSE): To(_S.STOPPED, _hang_up),
            (_S.CONNECTING, _E.CLOSE): To(_S.STOPPED, _hang_up),
            (_S.WAITING, _E.CLOSE): To(_S.STOPPED, _hang_up),
            (_S.RUNNING, _E.CLOSE): To(_S.STOPPED, _hang_up),
            (_S.PAUSING, _E.CLOSE): To(_S.STOPPED, _hang_up),
            (_S.PAUSED, _E.CLOSE): To(_S.STOPPED, _hang_up),
            (_S.STOPPING, _E.CLOSE): To(_S.STOPPED, _hang_up),
            (_S.FAILED, _E.CLOSE): To(_S.STOPPED, _hang_up),
        },
        otherwise={
            _E.START: IGNORED,
            _E.QUEUE_FOUND: ILLEGAL,
            _E.QUEUE_LOST: IGNORED,
            _E.READY: ILLEGAL,
            # the consumer may end in the turn in which the bridge does
            _E.LOST: IGNORED,
            _E.RETRY: ILLEGAL,
            _E.GIVE_UP: ILLEGAL,
            _E.PAUSE: IGNORED,
            _E.DRAINED: ILLEGAL,
            _E.STOP: IGNORED,
        },
    )
