"""The network check: whether this node still reaches the network, by addresses and URLs outside of the cluster.

Source: artemis-ha s. 3.6. One target that answers is enough. The first check is made at once, then one per period.
Without targets the network counts as reachable and nothing is checked. A target that turns out to be this machine
itself (loopback) is left out with a warning.

``NodeLife`` stops and starts the node by the results; a replication policy uses ``NetworkVoter``, in which the result
replaces the votes of the cluster. Not here: pings and HTTP requests (``Prober``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import ClassVar, Final, Protocol

from understudy.dataclass import dataclass
from understudy.ha.votes.decisions import QuorumVoter
from understudy.ha.votes.round import Decided, Pending
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import Timer, Timers

log = logging.getLogger(__name__)

#: Default commands of Artemis; the first argument is the time limit in seconds, the second the address.
PING_COMMAND: Final = "ping -c 1 -w %d %s"
PING6_COMMAND: Final = "ping6 -c 1 %2$s"


class Reach(Enum):
    """Result of one probe of a target."""

    ANSWERED = auto()
    SILENT = auto()
    LOOPBACK = auto()
    """The target is this machine: it says nothing about the network."""


class Prober(Protocol):
    """Reaches out for a target; ``runtime.base.network_probe`` implements it."""

    def address(self, host: str, done: Callable[[Reach], None]) -> None:
        """Probe a host name or address; ``done`` is called once, within the time limit of the prober or little
        later."""

    def url(self, url: str, done: Callable[[Reach], None]) -> None:
        """Fetch an ``http`` or ``https`` URL; as ``address``."""


@dataclass(frozen=True, slots=True)
class NetworkCheckOptions:
    """Settings of the check (artemis-ha s. 1)."""

    addresses: tuple[str, ...] = ()
    """Addresses to ping (element network-check-list)."""
    urls: tuple[str, ...] = ()
    """URLs to request (element network-check-URL-list)."""
    period_ms: int = 5_000
    """network-check-period: between the end of one check and the next."""


class State(Enum):
    """States of the check."""

    OFF = auto()
    CHECKING = auto()
    WAITING = auto()


class Event(Enum):
    """Events of the check."""

    START = auto()
    DEMAND = auto()
    """A check is wanted now."""
    DONE = auto()
    """The check has ended. Its argument says whether a target answered."""
    PERIOD_OVER = auto()
    STOP = auto()


class NetworkCheck(Machine[State, Event]):
    """Network check of one node."""

    STATES: ClassVar[type[Enum]] = State
    EVENTS: ClassVar[type[Enum]] = Event
    INITIAL: ClassVar[Enum] = State.OFF

    def __init__(self, options: NetworkCheckOptions, prober: Prober, timers: Timers) -> None:
        """Nothing is checked before ``start``.

        Args:
            options: Targets and period.
            prober: Reaches out for a target.
        """
        super().__init__()
        self.reachable = True
        """Result of the last check."""
        self._options = options
        self._prober = prober
        self._timers = timers
        self._checked: Callable[[bool], None] | None = None
        self._timer: Timer | None = None
        self._loopback: set[str] = set()
        self._round = 0
        """Number of the check, so that late answers of an earlier one are recognized."""
        self._silent = 0
        """Targets of this check that have not answered and still may."""
        self._waiting: dict[object, Decided] = {}
        """Calls for the result of the check under way or the next one."""

    def start(self, checked: Callable[[bool], None]) -> None:
        """Check now, then once per period; ``checked`` is called with the result of each check."""
        self._checked = checked
        if not self.empty:
            self.fire(Event.START)

    def stop(self) -> None:
        """End the checks; calls that wait for a result are dropped."""
        self.fire(Event.STOP)

    @property
    def empty(self) -> bool:
        """Whether no target is configured, so that the check says nothing."""
        return not self._targets()

    def ask(self, done: Decided) -> Pending:
        """Probe the targets at once.

        Args:
            done: Called with whether a target answered. Without targets, and unless started, it is called at once with
                True.
        """
        asked = _Asked(self._forget)
        if self.empty or self.state is State.OFF:
            done(True)
        else:
            self._waiting[asked] = done
            self.fire(Event.DEMAND)
        return asked

    def _forget(self, asked: object) -> None:
        self._waiting.pop(asked, None)

    def _targets(self) -> list[tuple[str, Callable[[str, Callable[[Reach], None]], None]]]:
        addresses = [(each, self._prober.address) for each in self._options.addresses if each not in self._loopback]
        urls = [(each, self._prober.url) for each in self._options.urls if each not in self._loopback]
        return [*addresses, *urls]

    def _check(self) -> None:
        self._cancel_timer()
        self._round += 1
        targets = self._targets()
        number, self._silent = self._round, len(targets)
        for target, probe in targets:
            probe(target, self._reporting(number, target))

    def _reporting(self, number: int, target: str) -> Callable[[Reach], None]:
        def report(reach: Reach) -> None:
            if reach is Reach.LOOPBACK and target not in self._loopback:
                extra = {"id": "AMQ202001", "target": target}
                log.warning("a loopback address is left out of the network check", extra=extra)
                self._loopback.add(target)
            if number != self._round or self.state is not State.CHECKING:
                return
            self._silent -= 1
            if reach is Reach.ANSWERED:
                self.fire(Event.DONE, True)
            elif self._silent == 0:
                # without any target left the check says nothing, which counts as reachable
                self.fire(Event.DONE, self.empty)

        return report

    def _end_check(self, reachable: bool) -> None:
        if reachable is not self.reachable:
            if reachable:
                log.info("network reachable again", extra={"id": "AMQ201000"})
            else:
                log.warning("network not reachable: no target answered", extra={"id": "AMQ201001"})
        self.reachable = reachable
        if not self.empty:
            self._timer = self._timers.call_later(self._options.period_ms, lambda: self.fire(Event.PERIOD_OVER))
        waiting, self._waiting = self._waiting, {}
        if self._checked is not None:
            self._checked(reachable)
        for done in waiting.values():
            done(reachable)

    def _end(self) -> None:
        self._cancel_timer()
        self._waiting = {}

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # The table comes last: it names the functions above.
    TABLE = table(
        State,
        Event,
        {
            (State.OFF, Event.START): To(State.CHECKING, _check),
            (State.OFF, Event.STOP): IGNORED,
            (State.OFF, Event.DEMAND): ILLEGAL,
            (State.CHECKING, Event.DONE): To(State.WAITING, _end_check),
            (State.CHECKING, Event.DEMAND): IGNORED,
            (State.CHECKING, Event.STOP): To(State.OFF, _end),
            (State.WAITING, Event.PERIOD_OVER): To(State.CHECKING, _check),
            (State.WAITING, Event.DEMAND): To(State.CHECKING, _check),
            (State.WAITING, Event.STOP): To(State.OFF, _end),
        },
        otherwise={Event.START: IGNORED, Event.DONE: ILLEGAL, Event.PERIOD_OVER: ILLEGAL},
    )


class _Asked:
    """A call that waits for a result. Implements ``vote_round.Pending``."""

    def __init__(self, forget: Callable[[object], None]) -> None:
        self._forget = forget

    def cancel(self) -> None:
        self._forget(self)


class NetworkVoter:
    """Decisions by the network check where it has targets, else by votes (artemis-ha s. 3.3). Implements
    ``votes.QuorumVoter``.
    """

    def __init__(self, check: NetworkCheck, votes: QuorumVoter) -> None:
        self._check = check
        self._votes = votes

    def ask_whether_gone(self, node_id: str, done: Decided) -> Pending:
        """See ``QuorumVoter``: the network is reachable, so the partner is gone and not this node."""
        return self._votes.ask_whether_gone(node_id, done) if self._check.empty else self._check.ask(done)

    def ask_whether_active(self, done: Decided) -> Pending:
        """See ``QuorumVoter``: the network is reachable, so this node may stay active."""
        return self._votes.ask_whether_active(done) if self._check.empty else self._check.ask(done)


def listed(text: str) -> Sequence[str]:
    """The parts of a list with commas, without blanks and empty parts."""
    return [part.strip() for part in text.split(",") if part.strip()]
