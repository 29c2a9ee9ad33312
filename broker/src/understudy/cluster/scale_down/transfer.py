"""The scale-down of one node: the search for a member that takes its messages, and the transfer.

The target is chosen while clients are still served, so that their farewell names it. A lost connection is made
again, also to the backup that takes over for the target, and the transfer goes on with the messages that are left.
After some time without progress it gives up; messages that have not moved stay in the journal.

Source: artemis-ha s. 6. Not here: the messages (``messages``, ``transactions``), the moment
(``runtime.members.scale_down``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final

from understudy.cluster.bridges.target import TargetAccess, TargetSession
from understudy.cluster.membership.topology import Member
from understudy.cluster.scale_down.messages import MovingMessages
from understudy.cluster.scale_down.work import Answer, Ask, Pause, Steps
from understudy.config.bridge import BridgeConfiguration
from understudy.dataclass import dataclass
from understudy.errors import BrokerError, StoreError
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.message import Message
from understudy.ports import Timer
from understudy.wire.core.transport import TransportConfiguration

log = logging.getLogger(__name__)

#: Longest search for a node that takes the messages (artemis-ha s. 6).
SEARCH_MS: Final = 10_000
#: Longest search in ms for the node that has begun to take the messages.
SEARCH_ONLY_MS: Final = 60_000
#: Wait between two rounds of attempts.
RETRY_MS: Final = 500
#: Longest wait in ms of one attempt for the connection, the session and the topology.
ATTEMPT_MS: Final = 5_000
#: Longest time without an answer of the target, or without a connection to a target that has a backup, after which the
#: transfer is given up.
SILENCE_MS: Final = 30_000
#: Longest wait in ms for a target without a backup that cannot be reached.
AWAY_MS: Final = 10_000


class State(Enum):
    """States of a scale-down."""

    IDLE = auto()
    SEARCHING = auto()
    """The node looks for a node that takes the messages."""
    CHOSEN = auto()
    """A node has accepted; the transfer has not begun."""
    MOVING = auto()
    RECONNECTING = auto()
    """The connection was lost during the transfer."""
    ENDED = auto()


class Event(Enum):
    """Events of a scale-down."""

    SEARCH = auto()
    FOUND = auto()
    """A node that may take the messages has accepted the connection."""
    MOVE = auto()
    """The clients have left."""
    CONNECT = auto()
    """The next stage needs a connection of its own."""
    READY = auto()
    """The connection to the target is open again."""
    LOST = auto()
    """The connection ended, could not be made, or leads to a node that may not take the messages."""
    FINISHED = auto()
    """One stage of the transfer has ended."""
    DONE = auto()
    GIVE_UP = auto()
    CLOSE = auto()


_S, _E = State, Event


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the transfer that has a connection of its own."""

    xa: bool
    work: Callable[[TargetSession], Steps[None]]
    """Begun anew on each connection."""


@dataclass(frozen=True, slots=True)
class TransferSettings:
    """Settings of a scale-down."""

    node_id: str
    """Id of this node, which is no target."""
    group: str | None
    """scale-down group of the target; None: any."""
    only: str | None
    """Id of the only node that may be the target; None: any."""
    session: BridgeConfiguration
    """Configuration of the connection to the target; with ``ha``."""


class Transfer(Machine[State, Event]):
    """One scale-down of this node to a target. Implements ``cluster.bridges.target.TargetOwner``."""

    STATES = State
    EVENTS = Event
    INITIAL = State.IDLE

    def __init__(
        self,
        settings: TransferSettings,
        access: TargetAccess,
        candidates: Callable[[], Sequence[TransportConfiguration]],
        moving: MovingMessages,
        waits: Callable[[], bool] = lambda: False,
    ) -> None:
        """Nothing is dialled yet.

        Args:
            settings: Settings of the scale-down.
            access: Dialer, clock and credentials.
            candidates: Connectors of nodes that may take the messages, as they are known at each attempt.
            moving: The messages.
            waits: Whether the answer of the target is waited for without a limit.
        """
        super().__init__()
        self.target: Member | None = None
        """The node that takes the messages; None: not found yet."""
        self.error = ""
        """Reason why the last attempt failed, or the transfer was given up."""
        self._settings = settings
        self._access = access
        self._candidates = candidates
        self._moving = moving
        self._waits = waits
        self._session: TargetSession | None = None
        self._timer: Timer | None = None
        self._ended: Callable[[], None] | None = None
        """Called at the end of the search, and at the end of the transfer."""
        self._since_ms = 0
        """Monotonic time of the beginning of the search, or of the latest answer of the target."""
        self._failing_since_ms = 0
        """Monotonic time of the first of the attempts that have moved nothing."""
        self._progress = 0
        """``progress`` of the messages at the latest connection."""
        self._full = ""
        """Address that was full at the target when the connection ended last; empty: none."""
        self._next = 0
        """Candidate of the next attempt."""
        self._stages: list[Stage] = []
        self._work: Steps[None] | None = None
        self._pause: Pause | None = None
        """The work waits for this; None: for an answer, or there is none."""
        self._received: list[Message] = []

    # -- for the node -----------------------------------------------------------------------------

    def search(self, ended: Callable[[], None]) -> None:
        """Look for a target; ``ended`` is called when there is one, or none was found."""
        self._ended = ended
        self.fire(_E.SEARCH)

    def move(self, stages: Sequence[Stage], ended: Callable[[], None]) -> None:
        """Carry out the stages at the target that was chosen; ``ended`` is called when everything moved or it was given
        up.
        """
        self._stages = list(stages)
        self._ended = ended
        self.fire(_E.MOVE)

    @property
    def complete(self) -> bool:
        """Whether all stages were carried out."""
        return self.state is _S.ENDED and self.target is not None and not self._stages

    def close(self) -> None:
        """End the transfer at once; messages that are not confirmed stay on this node."""
        self.fire(_E.CLOSE)

    # -- TargetOwner ------------------------------------------------------------------------------

    def target_ready(self) -> None:
        """The session at the other node exists; while a target is looked for, its entry in the topology follows."""
        if self.state is _S.RECONNECTING:
            self.fire(_E.READY)

    def target_member(self, member: Member) -> None:
        """Take the node id and the backup that the target names."""
        if self.state is not _S.SEARCHING:
            if self.target is not None and member.node_id == self.target.node_id:
                self.target = member
            return
        settings = self._settings
        if member.node_id == settings.node_id:
            self.fire(_E.LOST, "it is this node, or its pair")
        elif settings.only not in (None, member.node_id):
            self.fire(_E.LOST, f"it is not the node {settings.only}")
        elif settings.group is not None and member.scale_down_group != settings.group:
            self.fire(_E.LOST, f"its scale-down group is {member.scale_down_group!r}")
        else:
            self.target = member
            self.fire(_E.FOUND)

    def target_confirmed(self, first: int, last: int) -> None:
        """Called when the target has messages."""
        self._since_ms = self._access.clock.monotonic_ms()
        for correlation_id in range(first, last + 1):
            self._moving.confirmed(correlation_id)
        self._go_on()

    def _refused(self, correlation_id: int, error: BrokerError) -> bool:
        self._since_ms = self._access.clock.monotonic_ms()
        if not self._moving.refuse(correlation_id, error):
            return False
        self._go_on()
        return True

    def target_writable(self) -> None:
        """Called when the target takes further messages."""
        self._go_on()

    def record_written(self) -> None:
        """Called when the log has the record of the target, and messages may move."""
        self._moving.target_written = True
        self._go_on()

    def target_lost(self, reason: str) -> None:
        """Called when the connection has ended, or could not be made."""
        self.fire(_E.LOST, reason)

    # -- the search -------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._since_ms = self._access.clock.monotonic_ms()
        self._dial()

    def _dial(self) -> None:
        self._cancel_timer()
        candidates = self._candidates() if self.target is None else _places_of(self.target)
        if not candidates:
            self._retry("no other member of the cluster is known")
            return
        connector = candidates[self._next % len(candidates)]
        xa = bool(self._stages) and self._stages[0].xa
        node_id = "" if self.target is None else self.target.node_id
        self._session = TargetSession(self, connector, self._settings.session, self._access, xa=xa, node_id=node_id)
        self._timer = self._access.timers.call_later(
            ATTEMPT_MS, lambda: self.fire(_E.LOST, f"it did not say within {ATTEMPT_MS} ms which node it is")
        )

    def _next_candidate(self, reason: str) -> None:
        connector = self._session.target.to_url() if self._session is not None else ""
        self._hang_up()
        self._retry(f"{connector}: {reason}")

    def _retry(self, reason: str) -> None:
        if self.error != reason:
            log.info("scale-down", extra={"attempt": reason})
        self.error = reason
        self._next += 1
        if self.target is None:
            begun_ms, limit_ms = self._since_ms, SEARCH_MS if self._settings.only is None else SEARCH_ONLY_MS
        else:
            begun_ms, limit_ms = self._failing_since_ms, AWAY_MS if self.target.backup is None else SILENCE_MS
        now_ms = self._access.clock.monotonic_ms()
        if now_ms - begun_ms >= limit_ms and not self._waits():
            if not self._moving.leave_out(self._full):
                self._later(0, lambda: self.fire(_E.GIVE_UP))
                return
            self._failing_since_ms = now_ms
        count = len(self._candidates() if self.target is None else _places_of(self.target))
        self._later(RETRY_MS if not count or not self._next % count else 0, self._dial)

    def _later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._cancel_timer()
        self._timer = self._access.timers.call_later(delay_ms, call)

    def _chosen(self) -> None:
        self._cancel_timer()
        self.error = ""
        self._tell_end()

    def _lose_chosen(self, reason: str) -> None:
        # the target is dialled again when the transfer begins
        self._hang_up()
        self.error = reason

    # -- the transfer -----------------------------------------------------------------------------

    def _begin_moving(self) -> None:
        self._since_ms = self._failing_since_ms = self._access.clock.monotonic_ms()
        self._next = 0
        if self._session is None or not self._session.ready or self._stages[0].xa:
            self.fire(_E.CONNECT)
        else:
            self._start_stage()

    def _connect(self) -> None:
        self._hang_up()
        self._dial()

    def _start_stage(self) -> None:
        self.error = ""
        self._later(RETRY_MS, self._check_progress)
        session = self._session
        assert session is not None
        session.received = self._receive
        session.refused = self._refused
        self._work = self._stages[0].work(session)
        self._pause = None
        self._received.clear()
        self._run(None)

    def _check_progress(self) -> None:
        if self._access.clock.monotonic_ms() - self._since_ms >= SILENCE_MS:
            self.error = f"the target has taken nothing for {SILENCE_MS} ms"
            session = self._session
            full = session is not None and self._moving.leave_out(session.full_address)
            if full or self._waits():
                # on a new connection the others go on without the messages of that address
                self._failing_since_ms = self._access.clock.monotonic_ms()
                self.fire(_E.LOST, self.error)
            else:
                self.fire(_E.GIVE_UP)
        else:
            self._later(RETRY_MS, self._check_progress)

    def _receive(self, message: Message) -> None:
        self._received.append(message)
        self._go_on()

    def _go_on(self) -> None:
        pause = self._pause
        if pause is None or not self._is_over(pause):
            return
        self._pause = None
        self._run(self._received.pop(0) if pause is Pause.RECEIVED else None)

    def _is_over(self, pause: Pause) -> bool:
        if pause is Pause.ROOM:
            return self._moving.has_room and self._session is not None and self._session.writable
        if pause is Pause.CONFIRMED:
            return self._moving.all_confirmed
        if pause is Pause.WRITTEN:
            return self._moving.target_written
        return pause is Pause.RECEIVED and bool(self._received)

    def _run(self, answer: Answer) -> None:
        work, session = self._work, self._session
        if work is None or session is None or self.state is not _S.MOVING:
            return
        self._since_ms = self._access.clock.monotonic_ms()
        try:
            while True:
                wait = work.send(answer)
                answer = None
                if isinstance(wait, Ask):
                    session.request(wait.packet, wait.expected, self._run, of_cluster=wait.of_cluster)
                    return
                if wait is Pause.TURN:
                    self._access.timers.call_later(0, lambda: self._run(None) if self._work is work else None)
                    return
                if not self._is_over(wait):
                    self._pause = wait
                    return
                if wait is Pause.RECEIVED:
                    answer = self._received.pop(0)
        except StopIteration:
            self._work = None
            self.fire(_E.FINISHED)
        except StoreError:
            raise
        except BrokerError as error:
            self.fire(_E.LOST, str(error))

    def _next_stage(self) -> None:
        self._moving.remove_confirmed()
        del self._stages[0]
        self.fire(_E.CONNECT if self._stages else _E.DONE)

    def _reconnect(self, reason: str) -> None:
        session = self._session
        self._full = self._moving.full_address or ("" if session is None else session.full_address)
        self._moving.full_address = ""
        self._interrupt()
        if self._moving.progress > self._progress:
            self._progress = self._moving.progress
            self._failing_since_ms = self._access.clock.monotonic_ms()
        self._next_candidate(reason)

    def _interrupt(self) -> None:
        work, self._work, self._pause = self._work, None, None
        if work is not None:
            work.close()
        self._moving.give_back()

    def _end(self) -> None:
        self._interrupt()
        self._hang_up()
        self._tell_end()

    def _drop(self) -> None:
        self._ended = None
        self._end()

    def _tell_end(self) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            ended()

    def _hang_up(self) -> None:
        self._cancel_timer()
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # The table comes last: it names the functions above.
    TABLE = table(
        State,
        Event,
        {
            (_S.IDLE, _E.SEARCH): To(_S.SEARCHING, _begin),
            (_S.SEARCHING, _E.FOUND): To(_S.CHOSEN, _chosen),
            (_S.SEARCHING, _E.LOST): To(_S.SEARCHING, _next_candidate),
            (_S.SEARCHING, _E.GIVE_UP): To(_S.ENDED, _end),
            (_S.CHOSEN, _E.MOVE): To(_S.MOVING, _begin_moving),
            (_S.CHOSEN, _E.LOST): To(_S.CHOSEN, _lose_chosen),
            (_S.MOVING, _E.FINISHED): To(_S.MOVING, _next_stage),
            (_S.MOVING, _E.CONNECT): To(_S.RECONNECTING, _connect),
            (_S.MOVING, _E.DONE): To(_S.ENDED, _end),
            (_S.MOVING, _E.LOST): To(_S.RECONNECTING, _reconnect),
            (_S.MOVING, _E.GIVE_UP): To(_S.ENDED, _end),
            (_S.RECONNECTING, _E.LOST): To(_S.RECONNECTING, _next_candidate),
            (_S.RECONNECTING, _E.READY): To(_S.MOVING, _start_stage),
            (_S.RECONNECTING, _E.GIVE_UP): To(_S.ENDED, _end),
            (_S.IDLE, _E.CLOSE): To(_S.ENDED),
            (_S.SEARCHING, _E.CLOSE): To(_S.ENDED, _drop),
            (_S.CHOSEN, _E.CLOSE): To(_S.ENDED, _drop),
            (_S.MOVING, _E.CLOSE): To(_S.ENDED, _drop),
            (_S.RECONNECTING, _E.CLOSE): To(_S.ENDED, _drop),
        },
        otherwise={
            _E.SEARCH: ILLEGAL,
            _E.FOUND: ILLEGAL,
            _E.MOVE: ILLEGAL,
            _E.CONNECT: ILLEGAL,
            _E.READY: ILLEGAL,
            # the connection may end in the turn in which the transfer does
            _E.LOST: IGNORED,
            _E.FINISHED: ILLEGAL,
            _E.DONE: ILLEGAL,
            _E.GIVE_UP: IGNORED,
            _E.CLOSE: IGNORED,
        },
    )


def _places_of(member: Member) -> list[TransportConfiguration]:
    return [each for each in (member.primary, member.backup) if each is not None]
