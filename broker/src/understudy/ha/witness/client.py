"""Lock manager over a witness: one connection, renewals of its locks, reconnection. Implements ``LockManager``.

Every lock that is held is renewed four times within its lease; without one, a PING shows that the witness answers. A
connection whose requests have no answer for half a lease is given up, and the next address is tried. Until the lease
has ended a lost connection costs nothing: the locks are renewed with their tokens as soon as it is up again. After that
the manager is unavailable and every lock lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Final, Protocol

from understudy.dataclass import dataclass
from understudy.errors import BrokerError, LockManagerUnavailable
from understudy.ha.locks.distributed_lock import Finished, Held, ManagerListener, Read
from understudy.ha.witness.frames import NO_TOKEN, Answer, Kind, Request, Standing
from understudy.ha.witness.link import WitnessLink, WitnessLinkOwner
from understudy.ha.witness.lock import WitnessLock
from understudy.ha.witness.options import WitnessClientOptions
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import Clock, Connection, Entropy, Timer, Timers

log = logging.getLogger(__name__)

#: Pause before a further attempt to connect.
DIAL_AGAIN_MS: Final = 250
#: Renewals within a lease.
RENEWALS: Final = 4


#: Reason of a connection that is given up.
_OLD_STATE: Final = (
    "its state is older than the one that this node knows: it was put back from a backup; stop the nodes of its pairs,"
    " compare its numbers with theirs (docs/operate/lock-managers.md), then start them"
)


class Link(Protocol):
    """Gets the events of a dialled connection."""

    def connected(self, connection: Connection) -> None:
        """Called when the connection is established."""
        ...

    def receive_data(self, data: bytes) -> None:
        """Take bytes received from the witness."""
        ...

    def disconnected(self, reason: str) -> None:
        """Called when the connection has ended, or could not be established."""
        ...


class WitnessDialer(Protocol):
    """Opens connections; TLS, if it is configured, is a matter of the dialer."""

    def dial(self, host: str, port: int, link: Link) -> None:
        """Connect, and call the link with the result."""
        ...


class State(Enum):
    """States of the manager."""

    STOPPED = auto()
    CONNECTING = auto()
    """A connection is being established, up to the proof of the witness."""
    CONNECTED = auto()
    WAITING = auto()
    """The next attempt comes soon."""
    UNAVAILABLE = auto()
    """The witness has not answered for a whole lease; the client stays so until it is started again."""


class Event(Enum):
    """Events of the manager."""

    START = auto()
    WELCOME = auto()
    """The witness has proved the secret."""
    LOST = auto()
    """The connection to the witness has ended. Its argument is the reason."""
    DIAL_AGAIN = auto()
    EXPIRED = auto()
    """The witness has not answered for a whole lease."""
    STOP = auto()


_S, _E = State, Event


@dataclass(slots=True)
class _Sent:
    """A request without an answer so far."""

    sent_ms: int
    answer: Callable[[Answer | BrokerError], None]


@dataclass(slots=True)
class _Known:
    """Facts about the witness that this node has heard."""

    identity: bytes | None
    changes: int = 0
    """Highest count of changes of its state."""


class WitnessLockManager(Machine[State, Event], WitnessLinkOwner):
    """Access of one node to a witness. Implements ``ha.locks.distributed_lock.LockManager``."""

    STATES = State
    EVENTS = Event
    INITIAL = State.STOPPED

    def __init__(
        self,
        options: WitnessClientOptions,
        dialer: WitnessDialer,
        clock: Clock,
        timers: Timers,
        entropy: Entropy,
        granted: Callable[[str, bytes], None] = lambda lock_id, token: None,
    ) -> None:
        """Begin in the state before ``start``.

        Args:
            options: Addresses, secret and lease.
            dialer: Opens connections.
            clock: Boot time.
            granted: Called with the id and the token of each lock that this node holds from now on.
        """
        super().__init__()
        self.options = options
        self.clock = clock
        self.timers = timers
        self.entropy = entropy
        self.granted = granted
        self._dialer = dialer
        self._listener: ManagerListener | None = None
        self._available = False
        """The listener was called with ``available`` since the last start."""
        self._link: WitnessLink | None = None
        self._timer: Timer | None = None
        """Timer of the next attempt."""
        self._beat: Timer | None = None
        self._address = 0
        self._known = _Known(options.identity)
        self._reason = ""
        """Reason of the last loss of the connection."""
        self._contact_until_ms = 0
        """Without a further answer the manager is unavailable from then on."""
        self._numbers = 0
        self._sent: dict[int, _Sent] = {}
        self._locks: dict[str, WitnessLock] = {}
        self._recorded: dict[str, bytes] = {}
        """Token of a lease that ended without an answer of the witness, by lock."""

    # --- LockManager -----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Provider and addresses of the witness, for messages."""
        return "witness " + ",".join(f"{host}:{port}" for host, port in self.options.addresses)

    def start(self, listener: ManagerListener) -> None:
        self.stop()
        self._listener = listener
        self.fire(Event.START)

    def stop(self) -> None:
        self._listener = None
        for lock_id, lock in self._locks.items():
            if self.state is State.UNAVAILABLE:
                # shown again after the next start: the witness grants it at once, also soon after a start of its own
                self._recorded[lock_id] = lock.take_recorded()
            lock.give_up()
        for sent in self._sent.values():
            sent.answer = lambda answer: None
        self.fire(Event.STOP)
        self._locks.clear()

    def lock(self, lock_id: str) -> WitnessLock:
        found = self._locks.get(lock_id)
        if found is None:
            recorded = self._recorded.pop(lock_id, NO_TOKEN)
            found = self._locks[lock_id] = WitnessLock(self, lock_id, recorded)
        return found

    def number(self, number_id: str) -> WitnessNumber:
        return WitnessNumber(self, number_id)

    # --- requests ----------------------------------------------------------------------------------

    def ask(
        self,
        kind: Kind,
        lock_id: str,
        answer: Callable[[Answer | BrokerError], None],
        *,
        token: bytes = NO_TOKEN,
        first: int = 0,
        second: int = 0,
    ) -> bool:
        """Send a request; whether it was sent. The answer is an error if it was not, or if the connection ends before
        it comes.
        """
        if self.state is not State.CONNECTED or self._link is None:
            error = self._no_answer(self._reason or "not connected")
            self.timers.call_later(0, partial(answer, error))
            return False
        self._send(kind, lock_id, answer, token, first, second)
        return True

    def _send(
        self,
        kind: Kind,
        lock_id: str,
        answer: Callable[[Answer | BrokerError], None],
        token: bytes,
        first: int,
        second: int,
    ) -> None:
        assert self._link is not None
        self._numbers = (self._numbers + 1) % (1 << 32)
        self._sent[self._numbers] = _Sent(self.clock.monotonic_ms(), answer)
        self._link.send(Request(kind, self._numbers, lock_id, token, first, second))

    def _no_answer(self, reason: str) -> LockManagerUnavailable:
        return LockManagerUnavailable(f"{self.name}: {reason}")

    # --- WitnessLinkOwner --------------------------------------------------------------------------

    def link_welcomed(self, link: WitnessLink) -> None:
        """Called when the witness has proved the secret."""
        if link is not self._link:
            return
        if self._known.identity != link.identity:
            self._known = _Known(link.identity)

        def greeted(answer: Answer | BrokerError) -> None:
            if isinstance(answer, Answer):
                self.fire(Event.WELCOME)

        # before any other request, the state of the witness is compared with the state that this node knows
        self._send(Kind.PING, "", greeted, NO_TOKEN, 0, 0)

    def link_answered(self, link: WitnessLink, answer: Answer) -> None:
        """Called when an answer has come."""
        sent = self._sent.pop(answer.number, None)
        if link is not self._link or sent is None:
            return
        why = self._why_not_count(answer) if answer.kind is Kind.YES else None
        if why is _OLD_STATE:
            # the answer is no proof: it becomes an error like every other one of this connection
            self._sent[answer.number] = sent
            self.fire(Event.LOST, f"{link.address}: {why}")
            return
        self._contact_until_ms = max(self._contact_until_ms, sent.sent_ms + self.options.proof_ms)
        if answer.kind is Kind.ERROR or why is not None:
            sent.answer(self._no_answer(why or answer.text))
        else:
            sent.answer(answer)

    def _why_not_count(self, answer: Answer) -> str | None:
        """The reason why an answer YES is none; notes the state of the witness."""
        standing, group = Standing.of(answer.value), self.options.group
        if 0 < standing.changes < self._known.changes:
            return _OLD_STATE
        # an earlier version of the witness tells nothing
        self._known.changes = standing.changes
        if group is not None and not group.note(standing.configuration):
            return f"it has the configuration {standing.configuration} of the group, and {group.newest} is the newest"
        return None

    def link_lost(self, link: WitnessLink, reason: str) -> None:
        """Called when the connection has ended, or could not be established."""
        if link is self._link:
            self.fire(Event.LOST, reason)

    # --- actions -----------------------------------------------------------------------------------

    def _start(self) -> None:
        self._reason = ""
        self._available = False
        self._contact_until_ms = self.clock.monotonic_ms() + self.options.lease_ms
        self._beat_later()
        self._dial()

    def _dial(self) -> None:
        self._timer = None
        host, port = self.options.addresses[self._address % len(self.options.addresses)]
        # the place of a member of a group may be taken by another witness, which counts once it has joined
        expected = self._known.identity if self.options.group is None else None
        self._link = WitnessLink(self, self.options, expected, self.entropy.token, f"{host}:{port}")
        self._dialled_ms = self.clock.monotonic_ms()
        self._dialer.dial(host, port, self._link)

    def _connected(self) -> None:
        assert self._link is not None
        log.info("witness connected", extra={"address": self._link.address})
        for lock in self._locks.values():
            lock.reconnected()
        if not self._available and self._listener is not None:
            self._available = True
            self._contact_until_ms = self._dialled_ms + self.options.proof_ms
            self._listener.available()

    def _wait(self, reason: str) -> None:
        if reason != self._reason:
            log.warning("witness not connected", extra={"witness": self.name, "reason": reason})
        self._hang_up(reason)
        self._address += 1
        self._timer = self.timers.call_later(DIAL_AGAIN_MS, partial(self.fire, Event.DIAL_AGAIN))

    def _beat_later(self) -> None:
        self._beat = self.timers.call_later(self.options.lease_ms // RENEWALS, self._do_beat)

    def _do_beat(self) -> None:
        """Renew held locks, give up a connection without answers, and notice a lease without contact."""
        self._beat_later()
        now_ms = self.clock.monotonic_ms()
        if now_ms > self._contact_until_ms:
            self.fire(Event.EXPIRED)
            return
        half_ms = self.options.lease_ms // 2
        oldest_ms = min((sent.sent_ms for sent in self._sent.values()), default=now_ms)
        if self.state is State.CONNECTING:
            oldest_ms = min(oldest_ms, self._dialled_ms)
        if now_ms - oldest_ms >= half_ms:
            self.fire(Event.LOST, f"no answer within {now_ms - oldest_ms} ms")
        elif self.state is State.CONNECTED and not [lock for lock in self._locks.values() if lock.renew()]:
            self.ask(Kind.PING, "", lambda answer: None)

    def _expire(self) -> None:
        error = self._no_answer(self._reason or "no answer")
        self._end(error)
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.unavailable(error)

    def _stop(self) -> None:
        self._end(self._no_answer("stopped"))

    def _end(self, error: BrokerError) -> None:
        for timer in (self._beat, self._timer):
            if timer is not None:
                timer.cancel()
        self._beat = self._timer = None
        for lock in self._locks.values():
            lock.fence.lose(str(error))
        self._hang_up(str(error))

    def _hang_up(self, reason: str) -> None:
        self._reason = reason
        link, self._link = self._link, None
        if link is not None:
            link.close()
        sent, self._sent = self._sent, {}
        for each in sent.values():
            each.answer(self._no_answer(reason))

    TABLE = table(
        State,
        Event,
        {
            (_S.STOPPED, _E.START): To(_S.CONNECTING, _start),
            (_S.STOPPED, _E.STOP): IGNORED,
            (_S.CONNECTING, _E.WELCOME): To(_S.CONNECTED, _connected),
            (_S.CONNECTING, _E.LOST): To(_S.WAITING, _wait),
            (_S.CONNECTING, _E.EXPIRED): To(_S.UNAVAILABLE, _expire),
            (_S.CONNECTING, _E.STOP): To(_S.STOPPED, _stop),
            (_S.CONNECTED, _E.LOST): To(_S.WAITING, _wait),
            (_S.CONNECTED, _E.EXPIRED): To(_S.UNAVAILABLE, _expire),
            (_S.CONNECTED, _E.STOP): To(_S.STOPPED, _stop),
            (_S.WAITING, _E.DIAL_AGAIN): To(_S.CONNECTING, _dial),
            (_S.WAITING, _E.EXPIRED): To(_S.UNAVAILABLE, _expire),
            (_S.WAITING, _E.STOP): To(_S.STOPPED, _stop),
            (_S.UNAVAILABLE, _E.STOP): To(_S.STOPPED, _stop),
        },
        otherwise={
            _E.START: ILLEGAL,
            _E.WELCOME: ILLEGAL,
            _E.LOST: IGNORED,
            _E.DIAL_AGAIN: ILLEGAL,
            _E.EXPIRED: ILLEGAL,
            _E.STOP: ILLEGAL,
        },
    )


class _Answering:
    """Gives an answer unless it was cancelled. Implements ``ha.locks.distributed_lock.Request``."""

    def __init__(self, give: Callable[[Answer | BrokerError], None]) -> None:
        self._give: Callable[[Answer | BrokerError], None] | None = give

    def cancel(self) -> None:
        """End the request without an answer."""
        self._give = None

    def __call__(self, answer: Answer | BrokerError) -> None:
        give, self._give = self._give, None
        if give is not None:
            give(answer)


class WitnessNumber:
    """A number of the witness. Implements ``ha.locks.distributed_lock.DistributedNumber``."""

    def __init__(self, manager: WitnessLockManager, number_id: str) -> None:
        """Begin without a request."""
        self._manager = manager
        self._id = number_id

    def get(self, answer: Read) -> _Answering:
        request = _Answering(lambda found: answer(found.value if isinstance(found, Answer) else found))
        self._manager.ask(Kind.GET, self._id, request)
        return request

    def set(self, value: int, answer: Finished) -> _Answering:
        request = _Answering(lambda found: answer(None if isinstance(found, Answer) else found))
        self._manager.ask(Kind.SET, self._id, request, first=value)
        return request

    def compare_and_set(self, expected: int, value: int, answer: Held) -> _Answering:
        request = _Answering(lambda found: answer(found.kind is Kind.YES if isinstance(found, Answer) else found))
        self._manager.ask(Kind.SWAP, self._id, request, first=expected, second=value)
        return request
