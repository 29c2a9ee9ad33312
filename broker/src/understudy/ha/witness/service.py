"""The witness: locks by leases and numbers for pairs of brokers, on a third host. Pure; the shell is in ``runtime``.

Rules that keep a lock with one holder:

- A grant is on the disk before it is answered. Renewals are not recorded.
- The lease of a holder ends ``lease_ms`` after the witness has handled its last request. The client counts from before
  it sent that request, less a margin, so it stops first.
- After a start the leases of the previous process are unknown. Nothing is granted for the longest lease, except to the
  recorded holder, which shows its token: it has been the only one since that grant.
- A number that is read is on the disk, so it does not go back after a crash.
- A member of a group (ADR 0117) serves clients of the group only, any other witness single clients only: a lock that
  one node holds by a majority and the other one by a single witness would be held twice.
- A member that takes the place of another one grants nothing for twice the longest lease: by then no client counts a
  lease of the member before.

If the state cannot be written, the witness ends without an answer.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from understudy import __version__
from understudy.errors import BrokerError, DiskFailed
from understudy.ha.locks.noted_position import is_position
from understudy.ha.witness.frames import NO_TOKEN, OF_GROUP, Answer, Kind, Request, Standing
from understudy.ha.witness.registers import CONFIGURATION_MAX, EXPORT_MAX, Ballot, Register
from understudy.ha.witness.state import Holder, WitnessState
from understudy.limits import LEASE_MS_MIN, WITNESS_IDS_MAX
from understudy.ports import Clock

log = logging.getLogger(__name__)

_SINGLE: Final = frozenset((Kind.GET, Kind.SET, Kind.SWAP))
_GROUP: Final = frozenset((Kind.READ, Kind.PREPARE, Kind.ACCEPT))
_LOCKS: Final = frozenset((Kind.ACQUIRE, Kind.RENEW))
#: Requests that may add an id.
_ADDING: Final = frozenset((Kind.ACQUIRE, Kind.SET, Kind.SWAP, Kind.PREPARE, Kind.ACCEPT, Kind.IMPORT))

Answered = Callable[[Answer], None]
Save = Callable[[bytes, Callable[[BaseException | None], None]], None]
"""Writes the state durably, then calls back with None or the error. One call at a time."""


class Witness:
    """The state machine of one witness process."""

    def __init__(
        self,
        state: WitnessState,
        clock: Clock,
        save: Save,
        failed: Callable[[BrokerError], None],
        lease_max_ms: int,
    ) -> None:
        """Begins the time without grants.

        Args:
            state: State as it is on the disk.
            clock: Boot time.
            save: Writes the state.
            failed: Called when it could not be written: the process must end.
            lease_max_ms: Longest lease that is granted.
        """
        self._state = state
        self._clock = clock
        self._save = save
        self._failed = failed
        self.lease_max_ms = lease_max_ms
        longest_ms = max([lease_max_ms, *(holder.lease_ms for holder in state.holders.values())])
        self._started_ms = clock.monotonic_ms()
        self._grants_from_ms = self._started_ms + (2 if state.joined else 1) * longest_ms
        self._until_ms: dict[str, int] = {}
        """End of the lease of each holder that has been heard of since the start."""
        self._changes = 0
        """Changes of the state."""
        self._saved = 0
        """Changes that are on the disk."""
        self._changes_before = state.changes
        """Changes of the processes before this one."""
        self._saving = False
        self._waiting: list[tuple[int, Answered, Answer]] = []
        """Answers that depend on changes which are not on the disk yet."""
        self.counts = {kind.name.lower(): 0 for kind in Kind}
        """Requests and answers by kind, for status and metrics."""

    @property
    def identity(self) -> bytes:
        """Identity of this witness and its state."""
        return self._state.identity

    def handle(self, request: Request, client: str, answer: Answered) -> None:
        """Carry out a request; the answer may come later, and never comes if the state cannot be written."""
        self.counts[request.kind.name.lower()] += 1
        if request.kind in (Kind.PING, Kind.STATUS):
            text = json.dumps(self.status()) if request.kind is Kind.STATUS else ""
            self._give(answer, Answer(Kind.TEXT if text else Kind.YES, request.number, text=text))
            return
        reason = self._refusal(request)
        if reason:
            self._give(answer, Answer(Kind.ERROR, request.number, text=reason))
            return
        before = self._changes
        result = self._carry_out(request, client)
        if request.kind is Kind.RENEW and self._saved == self._changes:
            self._give(answer, result)
            return
        self._waiting.append((self._changes, answer, result))
        if self._changes != before:
            self._begin_save()
        else:
            self._release_answers()

    def _refusal(self, request: Request) -> str:
        """Reason why a request cannot be carried out; empty if it can."""
        if not request.id and request.kind not in (Kind.EXPORT, Kind.FORM):
            return "a request without an id"
        if request.kind in _LOCKS or request.kind in _SINGLE or request.kind in _GROUP:
            reason = self._other_client(request)
            if reason:
                return reason
        if request.kind is Kind.IMPORT and self._state.configuration:
            return "it is a member of a group already"
        if request.kind in _LOCKS:
            if not LEASE_MS_MIN <= request.first <= self.lease_max_ms:
                return f"a lease of {request.first} ms; {LEASE_MS_MIN} to {self.lease_max_ms} ms are granted"
            if request.token == NO_TOKEN:
                return "a lock without a token"
        state = self._state
        if request.kind in _ADDING and not state.knows(request.id) and len(state) >= WITNESS_IDS_MAX:
            return f"this witness keeps {WITNESS_IDS_MAX} ids already"
        return ""

    def _other_client(self, request: Request) -> str:
        """Reason why a client that takes this witness for the only one, or for one of a group, is refused."""
        for_group = request.kind in _GROUP or (request.kind in _LOCKS and request.second == OF_GROUP)
        if for_group and not self._state.configuration:
            return (
                "it is not a member of a group of witnesses yet: `understudy witness form`, or `replace` for a new one"
            )
        if not for_group and self._state.configuration:
            return "it is one of a group of witnesses: the property 'members' names all of them"
        return ""

    def _carry_out(self, request: Request, client: str) -> Answer:
        if request.kind is Kind.ACQUIRE:
            return self._acquire(request, client)
        if request.kind is Kind.RENEW:
            return self._renew(request)
        if request.kind is Kind.RELEASE:
            return self._release(request)
        if request.kind in _GROUP:
            return self._carry_out_register(request)
        if request.kind is Kind.EXPORT:
            return self._export(request)
        if request.kind is Kind.IMPORT:
            ballot = Ballot(request.first, request.token)
            self._keep(request.id, Register(ballot, ballot, request.second))
            return Answer(Kind.YES, request.number)
        if request.kind is Kind.FORM:
            return self._form(request, client)
        value = self._state.numbers.get(request.id, 0)
        if request.kind is Kind.GET:
            return Answer(Kind.NUMBER, request.number, value)
        if request.kind is Kind.SWAP and value != request.first:
            return Answer(Kind.NO, request.number, value, f"it is {value}")
        changed = request.second if request.kind is Kind.SWAP else request.first
        self._state.numbers[request.id] = changed
        self._changes += 1
        # the position of a store changes every few seconds, an activation sequence seldom
        level = logging.DEBUG if is_position(request.id) else logging.INFO
        log.log(level, "number changed", extra={"id": request.id, "from": value, "to": changed, "client": client})
        return Answer(Kind.YES, request.number)

    def _carry_out_register(self, request: Request) -> Answer:
        register = self._state.registers.get(request.id, Register())
        if request.kind is Kind.READ:
            return Answer(Kind.NUMBER, request.number, self._state.configuration, register.encode())
        ballot = Ballot(request.first, request.token)
        other = ballot.configuration != self._state.configuration
        if other or (ballot <= register.promised if request.kind is Kind.PREPARE else ballot < register.promised):
            return Answer(Kind.NO, request.number, self._state.configuration, register.encode())
        if request.kind is Kind.PREPARE:
            self._keep(request.id, replace(register, promised=ballot))
        else:
            self._keep(request.id, Register(ballot, ballot, request.second))
        # of a PREPARE: the newest value before it
        return Answer(Kind.TEXT, request.number, self._state.configuration, register.encode())

    def _keep(self, key: str, register: Register) -> None:
        self._state.registers[key] = register
        self._changes += 1

    def _export(self, request: Request) -> Answer:
        keys = sorted(self._state.registers)[request.first : request.first + EXPORT_MAX]
        found = {key: self._state.registers[key].as_json() for key in keys}
        return Answer(Kind.TEXT, request.number, len(self._state.registers), json.dumps(found))

    def _form(self, request: Request, client: str) -> Answer:
        state, before = self._state, self._state.configuration
        if before and state.group != request.token:
            return Answer(Kind.NO, request.number, text=f"it is a member of the group {state.group.hex()}")
        if before == request.second:
            # a command that was interrupted is repeated
            return Answer(Kind.YES, request.number)
        if before != request.first or not before < request.second <= CONFIGURATION_MAX:
            return Answer(Kind.NO, request.number, text=f"its group has the configuration {before}")
        state.configuration, state.group = request.second, request.token
        if not before:
            # what single clients were granted does not count for the group
            state.joined, state.holders, state.numbers = request.second > 1, {}, {}
            waits = (2 if state.joined else 1) * self.lease_max_ms
            self._grants_from_ms = max(self._grants_from_ms, self._clock.monotonic_ms() + waits)
            self._until_ms.clear()
        self._changes += 1
        log.info("group of witnesses", extra={"configuration": request.second, "before": before, "client": client})
        return Answer(Kind.YES, request.number)

    def _acquire(self, request: Request, client: str) -> Answer:
        now_ms = self._clock.monotonic_ms()
        holder = self._state.holders.get(request.id)
        if holder is not None and holder.token == request.token:
            return self._renew(request)
        if now_ms < self._grants_from_ms:
            left_ms = self._grants_from_ms - now_ms
            return Answer(Kind.NO, request.number, left_ms, f"started recently; grants locks in {left_ms} ms")
        left_ms = self._until_ms.get(request.id, 0) - now_ms
        if holder is not None and left_ms >= 0:
            return Answer(Kind.NO, request.number, left_ms, f"held by {holder.name} for {left_ms} ms more")
        self._state.joined = False
        self._state.holders[request.id] = Holder(request.token, client, request.first)
        self._until_ms[request.id] = now_ms + request.first
        self._changes += 1
        previous = holder.name if holder is not None else None
        log.info("lock granted", extra={"id": request.id, "client": client, "lease ended of": previous})
        return Answer(Kind.YES, request.number)

    def _renew(self, request: Request) -> Answer:
        holder = self._state.holders.get(request.id)
        if holder is None or holder.token != request.token:
            name = holder.name if holder is not None else "no client"
            return Answer(Kind.NO, request.number, text=f"held by {name}")
        if request.first > holder.lease_ms:
            # the grant is recorded before it is answered, so that the wait after a restart covers it
            self._state.holders[request.id] = Holder(holder.token, holder.name, request.first)
            self._changes += 1
        until_ms = self._clock.monotonic_ms() + request.first
        self._until_ms[request.id] = max(self._until_ms.get(request.id, 0), until_ms)
        return Answer(Kind.YES, request.number)

    def _release(self, request: Request) -> Answer:
        holder = self._state.holders.get(request.id)
        if holder is not None and holder.token == request.token:
            del self._state.holders[request.id]
            self._until_ms.pop(request.id, None)
            self._changes += 1
            log.info("lock released", extra={"id": request.id, "client": holder.name})
        return Answer(Kind.YES, request.number)

    # --- durability ------------------------------------------------------------------------------

    def _begin_save(self) -> None:
        if not self._saving:
            self._saving = True
            self._state.changes = self._changes_before + self._changes
            self._save(self._state.encode(), partial(self._ended_save, self._changes))

    def _ended_save(self, changes: int, error: BaseException | None) -> None:
        self._saving = False
        if error is not None:
            self._waiting.clear()
            self._failed(error if isinstance(error, BrokerError) else DiskFailed(f"cannot write the state: {error}"))
            return
        self._saved = changes
        self._release_answers()
        if self._changes != self._saved:
            self._begin_save()

    def _release_answers(self) -> None:
        ready = [each for each in self._waiting if each[0] <= self._saved]
        self._waiting = [each for each in self._waiting if each[0] > self._saved]
        for _, answer, result in ready:
            self._give(answer, result)

    def _give(self, answer: Answered, result: Answer) -> None:
        self.counts[result.kind.name.lower()] += 1
        if result.kind is Kind.YES:
            standing = Standing(self._state.configuration, self._changes_before + self._saved)
            result = replace(result, value=standing.value)
        answer(result)

    # --- status ----------------------------------------------------------------------------------

    def status(self) -> dict[str, object]:
        """Locks, numbers and counts, without tokens."""
        now_ms = self._clock.monotonic_ms()
        locks: dict[str, object] = {}
        numbers = self._state.numbers | {key: each.value for key, each in self._state.registers.items()}
        for key in sorted(self._state.holders)[:100]:
            holder = self._state.holders[key]
            left_ms = self._until_ms.get(key, 0) - now_ms if key in self._until_ms else None
            locks[key] = {
                "holder": holder.name,
                "lease_ms": holder.lease_ms,
                "left_ms": max(left_ms, 0) if left_ms is not None else None,
                "held": left_ms is not None and left_ms >= 0,
            }
        return {
            "version": __version__,
            "identity": self.identity.hex(),
            "configuration": self._state.configuration,
            "group": self._state.group.hex(),
            "changes": self._changes_before + self._saved,
            "uptime_ms": now_ms - self._started_ms,
            "grants_in_ms": max(0, self._grants_from_ms - now_ms),
            "lease_max_ms": self.lease_max_ms,
            "locks": locks,
            "locks_total": len(self._state.holders),
            "numbers": dict(sorted(numbers.items())[:100]),
            "numbers_total": len(numbers),
            "counts": {name: count for name, count in self.counts.items() if count},
        }
