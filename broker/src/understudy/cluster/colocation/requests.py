"""The requests of an active node for a backup that another member hosts (artemis-ha s. 5).

The node asks all other members whether they can host a backup, and asks the one that hosts the fewest. Without a member
that can, or if that one refuses, it asks again after backup-request-retry-interval. While it has a host it looks every
interval whether its backup is announced, and asks again if it is not: the host may have ended. A host that still has
the backup, which may be copying the store, says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, auto
from typing import ClassVar, Protocol

from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import Timer, Timers
from understudy.wire.core import packets

log = logging.getLogger(__name__)


class Members(Protocol):
    """Other members of the cluster; implemented by ``cluster.membership.membership.Membership``."""

    def ask_for_hosts(
        self, cast: Callable[[packets.BackupVote | None], None], all_cast: Callable[[], None]
    ) -> Callable[[], None]:
        """Ask every other active node whether it can host a backup."""
        ...

    def request_backup(
        self, host: str, request: packets.BackupRequest, answered: Callable[[bool], None]
    ) -> Callable[[], None]:
        """Request one node to host a backup of this node."""
        ...


class State(Enum):
    """States of the requests."""

    IDLE = auto()
    """The node is not active."""
    ASKING = auto()
    """All members are asked whether they can host a backup."""
    REQUESTING = auto()
    """One member has been asked to host a backup."""
    WAITING = auto()
    """No member could host a backup; the next attempt is due after the interval."""
    HOSTED = auto()
    """A member hosts the backup, or a backup is announced."""
    EXHAUSTED = auto()
    """backup-request-retries is used up."""


class Event(Enum):
    """Events of the requests."""

    START = auto()
    """The node is active and in the cluster."""
    FOUND = auto()
    """Members can host a backup. Its argument is the vote of the member that hosts the fewest."""
    NOT_FOUND = auto()
    """No member can host a backup, or the one that was asked refused."""
    ACCEPTED = auto()
    """A member hosts the backup, or one is announced already."""
    TIMER = auto()
    MISSING = auto()
    """No backup was announced for a whole interval."""
    GIVE_UP = auto()
    STOP = auto()


_S, _E = State, Event


class BackupRequests(Machine[State, Event]):
    """Requests of one node for backups at other members."""

    STATES: ClassVar[type[Enum]] = State
    EVENTS: ClassVar[type[Enum]] = Event
    INITIAL: ClassVar[Enum] = State.IDLE

    def __init__(
        self,
        members: Members,
        has_backup: Callable[[], bool],
        make_request: Callable[[], packets.BackupRequest],
        timers: Timers,
        *,
        retries: int,
        interval_ms: int,
    ) -> None:
        """Nothing is asked before ``start``.

        Args:
            has_backup: Whether a backup of this node is announced.
            make_request: Makes a request, with the directories of the store if the backup is to use it.
            retries: backup-request-retries: attempts after the first one that fails; -1: no limit.
            interval_ms: backup-request-retry-interval.
        """
        super().__init__()
        self.host: str | None = None
        """Node id of the member that hosts the backup, as it said; None: none did."""
        self._members = members
        self._has_backup = has_backup
        self._make_request = make_request
        self._timers = timers
        self._retries = retries
        self._interval_ms = interval_ms
        self._failures = 0
        self._missing = False
        """Whether no backup was announced at the last look."""
        self._votes: list[packets.BackupVote] = []
        self._cancel: Callable[[], None] | None = None
        self._timer: Timer | None = None

    def start(self) -> None:
        """The node is active: see to it that it has a backup."""
        self.fire(Event.START)

    def stop(self) -> None:
        """The node is about to stop; a backup that was started goes on."""
        self.fire(Event.STOP)

    # --- actions -----------------------------------------------------------------------------------

    def _ask(self) -> None:
        self._clear()
        if self._has_backup():
            self.fire(Event.ACCEPTED)
            return
        self._votes = []
        cancel = self._members.ask_for_hosts(self._cast, self._all_cast)
        if self._state is State.ASKING:
            self._cancel = cancel

    def _cast(self, vote: packets.BackupVote | None) -> None:
        if vote is not None and vote.available and vote.node_id is not None and vote.backups >= 0:
            self._votes.append(vote)

    def _all_cast(self) -> None:
        if not self._votes:
            self.fire(Event.NOT_FOUND, "no member can host a backup")
            return
        self.fire(Event.FOUND, min(self._votes, key=lambda vote: (vote.backups, vote.node_id)))

    def _request(self, vote: packets.BackupVote) -> None:
        self._cancel = None
        host = vote.node_id
        assert host is not None, "see _cast"
        request = self._make_request()
        request.backup_size = vote.backups

        def answered(started: bool) -> None:
            if started:
                if self.host != host:
                    log.info("a backup is hosted by another member", extra={"host": host})
                self.host = host
                self.fire(Event.ACCEPTED)
            else:
                self.fire(Event.NOT_FOUND, f"node {host} refused")

        cancel = self._members.request_backup(host, request, answered)
        if self._state is State.REQUESTING:
            self._cancel = cancel

    def _wait(self, reason: str) -> None:
        self._clear()
        self.host = None
        self._failures += 1
        if 0 <= self._retries < self._failures:
            self.fire(Event.GIVE_UP, reason)
            return
        level = logging.WARNING if self._failures == 1 else logging.DEBUG
        log.log(level, "this node has no backup", extra={"reason": reason, "retry_ms": self._interval_ms})
        self._begin_timer()

    def _give_up(self, reason: str) -> None:
        log.error(
            "this node has no backup and asks for none any more: backup-request-retries is used up",
            extra={"reason": reason, "attempts": self._failures},
        )

    def _watch(self) -> None:
        self._clear()
        self._failures = 0
        self._missing = False
        self._begin_timer()

    def _look(self) -> None:
        """A backup that was announced at the last look may be connecting again."""
        if self._has_backup():
            self._missing = False
        elif self._missing:
            self.fire(Event.MISSING)
            return
        else:
            self._missing = True
        self._begin_timer()

    def _end(self) -> None:
        self._clear()
        self._failures = 0

    def _begin_timer(self) -> None:
        self._timer = self._timers.call_later(self._interval_ms, lambda: self.fire(Event.TIMER))

    def _clear(self) -> None:
        cancel, self._cancel = self._cancel, None
        if cancel is not None:
            cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # The table comes last: it names the functions above.
    TABLE = table(
        State,
        Event,
        {
            (_S.IDLE, _E.START): To(_S.ASKING, _ask),
            (_S.IDLE, _E.STOP): IGNORED,
            (_S.ASKING, _E.FOUND): To(_S.REQUESTING, _request),
            (_S.ASKING, _E.NOT_FOUND): To(_S.WAITING, _wait),
            (_S.ASKING, _E.ACCEPTED): To(_S.HOSTED, _watch),
            (_S.REQUESTING, _E.NOT_FOUND): To(_S.WAITING, _wait),
            (_S.REQUESTING, _E.ACCEPTED): To(_S.HOSTED, _watch),
            (_S.WAITING, _E.TIMER): To(_S.ASKING, _ask),
            (_S.WAITING, _E.GIVE_UP): To(_S.EXHAUSTED, _give_up),
            (_S.HOSTED, _E.TIMER): To(_S.HOSTED, _look),
            (_S.HOSTED, _E.MISSING): To(_S.ASKING, _ask),
            (_S.ASKING, _E.STOP): To(_S.IDLE, _end),
            (_S.REQUESTING, _E.STOP): To(_S.IDLE, _end),
            (_S.WAITING, _E.STOP): To(_S.IDLE, _end),
            (_S.HOSTED, _E.STOP): To(_S.IDLE, _end),
            (_S.EXHAUSTED, _E.STOP): To(_S.IDLE, _end),
        },
        otherwise={
            _E.START: ILLEGAL,
            _E.FOUND: ILLEGAL,
            _E.NOT_FOUND: ILLEGAL,
            _E.ACCEPTED: ILLEGAL,
            _E.TIMER: ILLEGAL,
            _E.MISSING: ILLEGAL,
            _E.GIVE_UP: ILLEGAL,
        },
    )
