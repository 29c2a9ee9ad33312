"""Numbers that a group of witnesses keeps: read and changed by a majority of them (ADR 0117).

Every operation is a round. It reads the registers of the members. A number that a majority has accepted with the same
ballot is the number. Otherwise, and for a change, the round has a majority promise to take no older ballot, takes the
newest accepted value among their answers, changes it, and has a majority accept it. A read that finds a value which
only a minority has completes it in the same way, so a later read finds the same one.

A round whose last phase was not answered by a majority ends with an error: whether the change counts shows at the next
one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import partial
from typing import Final, Protocol

from understudy.errors import BrokerError, LockManagerUnavailable
from understudy.ha.locks.distributed_lock import Finished, Held, Read
from understudy.ha.witness.frames import NO_TOKEN, TOKEN_BYTES, Answer, Kind
from understudy.ha.witness.registers import Ballot, Register, newest
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import Entropy, Timer, Timers

#: Attempts of a round when another node changes the same number, and the pause between two.
ATTEMPTS: Final = 8
PAUSE_MS: Final = 20

Change = Callable[[int], int | None]
"""Gets the number; returns the new one, or None: it stays."""


class Member(Protocol):
    """Client of one witness of the group."""

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
        """Send a request. The answer is an error if it was not sent."""
        ...


class Group(Protocol):
    """The members, as a round uses them."""

    @property
    def name(self) -> str:
        """Provider and addresses of the group, for messages."""
        ...

    @property
    def members(self) -> Sequence[Member]:
        """The clients of all witnesses of the group; an odd number."""
        ...

    timers: Timers
    entropy: Entropy


class RoundState(Enum):
    """States of a round."""

    IDLE = auto()
    READING = auto()
    PREPARING = auto()
    """A majority is to promise to take no older ballot."""
    ACCEPTING = auto()
    """A majority is to accept the value."""
    PAUSED = auto()
    """The round lost against another one and waits before its next attempt."""
    ENDED = auto()


class RoundEvent(Enum):
    """Events of a round."""

    BEGIN = auto()
    DECIDED = auto()
    """A majority has the number. The arguments are the number before the change, and whether it changed."""
    PREPARE = auto()
    """A new ballot begins. Its argument is the ballot that the new one follows."""
    PREPARED = auto()
    """A majority has accepted the ballot. Its argument is the newest register of these members."""
    OUTBID = auto()
    FAILED = auto()
    """No majority can be reached. Its argument is the error."""
    AGAIN = auto()
    CANCEL = auto()


_S, _E = RoundState, RoundEvent


class Round(Machine[RoundState, RoundEvent]):
    """One operation on a number of a group. Implements ``ha.locks.distributed_lock.Request``."""

    STATES = RoundState
    EVENTS = RoundEvent
    INITIAL = RoundState.IDLE

    def __init__(
        self, group: Group, number_id: str, change: Change, answer: Callable[[tuple[int, bool] | BrokerError], None]
    ) -> None:
        """Nothing is asked before ``begin``.

        Args:
            group: The members.
            answer: Gets the number before the change and whether it changed, or the error.
        """
        super().__init__()
        self._group = group
        self._id = number_id
        self._change = change
        self._answer = answer
        self._majority = len(group.members) // 2 + 1
        self._phase = 0
        """Answers of an earlier phase do not count."""
        self._attempts = 0
        self._configuration = 0
        self._found: list[tuple[int, Register]] = []
        """Configuration and register of each member that has answered the present phase."""
        self._refused: list[tuple[int, Register]] = []
        self._errors: list[BrokerError] = []
        self._ballot = Ballot()
        self._before = 0
        self._timer: Timer | None = None

    def begin(self) -> None:
        """Begin the round by reading the registers."""
        self.fire(RoundEvent.BEGIN)

    def cancel(self) -> None:
        """End the round without an answer; the number may be changed nevertheless."""
        self.fire(RoundEvent.CANCEL)

    # --- phases --------------------------------------------------------------------------------------------

    def _ask(self, kind: Kind, ballot: Ballot, value: int, settle: Callable[[], None]) -> None:
        self._phase += 1
        self._found, self._refused, self._errors = [], [], []
        phase = self._phase

        def answered(answer: Answer | BrokerError) -> None:
            if phase != self._phase or self._state is RoundState.ENDED:
                return
            try:
                self._take(answer)
            except BrokerError as error:
                self._errors.append(error)
            settle()

        for member in self._group.members:
            member.ask(kind, self._id, answered, token=ballot.token, first=ballot.number, second=value)

    def _take(self, answer: Answer | BrokerError) -> None:
        if isinstance(answer, BrokerError):
            self._errors.append(answer)
            return
        entry = (answer.value, Register.decode(answer.text))
        (self._refused if answer.kind is Kind.NO else self._found).append(entry)

    def _impossible(self) -> bool:
        """Whether no majority can answer as wanted any more."""
        return len(self._errors) + len(self._refused) > len(self._group.members) - self._majority

    def _unavailable(self) -> LockManagerUnavailable:
        reasons = "; ".join(str(error) for error in self._errors) or "its members do not agree"
        return LockManagerUnavailable(f"{self._group.name}: no majority answers: {reasons}")

    def _read(self) -> None:
        self._ask(Kind.READ, Ballot(), 0, self._settle_read)

    def _settle_read(self) -> None:
        if len(self._found) >= self._majority:
            (_, register), count = self._most_equal()
            changes = self._change(register.value) is not None
            if count >= self._majority and not changes:
                self.fire(RoundEvent.DECIDED, register.value, False)
                return
            self._configuration = max(each for each, _ in self._found)
            self.fire(RoundEvent.PREPARE, newest([each for _, each in self._found]).promised)
        elif self._impossible():
            self.fire(RoundEvent.FAILED, self._unavailable())

    def _most_equal(self) -> tuple[tuple[int, Register], int]:
        """The entry with the same configuration and accepted ballot at the most members, and how many have it."""
        keys = [(configuration, register.accepted) for configuration, register in self._found]
        counts = [keys.count(key) for key in keys]
        place = counts.index(max(counts))
        return self._found[place], counts[place]

    def _prepare(self, after: Ballot) -> None:
        self._ballot = after.after(self._configuration, self._group.entropy.token(TOKEN_BYTES))
        self._ask(Kind.PREPARE, self._ballot, 0, self._settle_prepare)

    def _settle_prepare(self) -> None:
        if len(self._found) >= self._majority:
            self.fire(RoundEvent.PREPARED, newest([register for _, register in self._found]))
        elif self._impossible():
            self._end_phase()

    def _accept(self, register: Register) -> None:
        self._before = register.value
        changed = self._change(register.value)
        value = register.value if changed is None else changed
        self._ask(Kind.ACCEPT, self._ballot, value, partial(self._settle_accept, changed is not None))

    def _settle_accept(self, changed: bool) -> None:
        if len(self._found) >= self._majority:
            self.fire(RoundEvent.DECIDED, self._before, changed)
        elif self._impossible():
            if not changed or len(self._refused) == len(self._group.members):
                # no member has the register
                self._end_phase()
            elif self._found or len(self._errors) + len(self._refused) == len(self._group.members):
                # a minority may have the number: the next round decides whether it counts
                self.fire(RoundEvent.FAILED, self._unavailable())

    def _end_phase(self) -> None:
        """End a phase that changed nothing; try again if another round has prevented it."""
        if not self._refused or self._attempts >= ATTEMPTS:
            self.fire(RoundEvent.FAILED, self._unavailable())
        else:
            self.fire(RoundEvent.OUTBID)

    def _pause(self) -> None:
        self._attempts += 1
        # answers of the phase that has ended do not count
        self._phase += 1
        # rounds of two nodes that began together must not go on in step
        delay_ms = PAUSE_MS * self._attempts + self._group.entropy.token(1)[0] % PAUSE_MS
        self._timer = self._group.timers.call_later(delay_ms, lambda: self.fire(RoundEvent.AGAIN))

    # --- ends ------------------------------------------------------------------------------------------------

    def _decide(self, before: int, changed: bool) -> None:
        self._answer((before, changed))

    def _fail(self, error: BrokerError) -> None:
        self._answer(error)

    def _drop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    TABLE = table(
        RoundState,
        RoundEvent,
        {
            (_S.IDLE, _E.BEGIN): To(_S.READING, _read),
            (_S.IDLE, _E.CANCEL): To(_S.ENDED),
            (_S.READING, _E.DECIDED): To(_S.ENDED, _decide),
            (_S.READING, _E.PREPARE): To(_S.PREPARING, _prepare),
            (_S.READING, _E.FAILED): To(_S.ENDED, _fail),
            (_S.READING, _E.CANCEL): To(_S.ENDED, _drop),
            (_S.PREPARING, _E.PREPARED): To(_S.ACCEPTING, _accept),
            (_S.PREPARING, _E.OUTBID): To(_S.PAUSED, _pause),
            (_S.PREPARING, _E.FAILED): To(_S.ENDED, _fail),
            (_S.PREPARING, _E.CANCEL): To(_S.ENDED, _drop),
            (_S.ACCEPTING, _E.DECIDED): To(_S.ENDED, _decide),
            (_S.ACCEPTING, _E.OUTBID): To(_S.PAUSED, _pause),
            (_S.ACCEPTING, _E.FAILED): To(_S.ENDED, _fail),
            (_S.ACCEPTING, _E.CANCEL): To(_S.ENDED, _drop),
            (_S.PAUSED, _E.AGAIN): To(_S.READING, _read),
            (_S.PAUSED, _E.CANCEL): To(_S.ENDED, _drop),
            (_S.ENDED, _E.CANCEL): IGNORED,
        },
        otherwise=dict.fromkeys(RoundEvent, ILLEGAL),
    )


class MajorityNumber:
    """Number kept by a majority of a group of members. Implements ``ha.locks.distributed_lock.DistributedNumber``."""

    def __init__(self, group: Group, number_id: str) -> None:
        """Begin without a request."""
        self._group = group
        self._id = number_id

    def get(self, answer: Read) -> Round:
        return self._begin(lambda number: None, lambda found: answer(found[0]), answer)

    def set(self, value: int, answer: Finished) -> Round:
        return self._begin(lambda number: value, lambda found: answer(None), answer)

    def compare_and_set(self, expected: int, value: int, answer: Held) -> Round:
        return self._begin(lambda number: value if number == expected else None, lambda found: answer(found[1]), answer)

    def _begin(
        self, change: Change, give: Callable[[tuple[int, bool]], None], fail: Callable[[BrokerError], None]
    ) -> Round:
        def answered(found: tuple[int, bool] | BrokerError) -> None:
            if isinstance(found, BrokerError):
                fail(found)
            else:
                give(found)

        started = Round(self._group, self._id, change, answered)
        started.begin()
        return started
