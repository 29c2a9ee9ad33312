"""One lock of a witness, seen from the client that holds or wants it.

A token identifies an attempt and, once granted, the holder; each attempt has a new one. A token whose grant is not
known, or not wanted any more, is released with the next request, which cannot affect a lock held with another token.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from understudy.errors import BrokerError
from understudy.ha.locks.distributed_lock import Finished, Held
from understudy.ha.locks.lease import Lease
from understudy.ha.witness.frames import NO_TOKEN, OF_GROUP, TOKEN_BYTES, Answer, Kind
from understudy.ha.witness.options import WitnessClientOptions
from understudy.ports import Clock, Entropy, Timers

log = logging.getLogger(__name__)


class WitnessRequests(Protocol):
    """The manager, as a lock uses it."""

    @property
    def name(self) -> str:
        """Provider and addresses of the witness, for messages."""
        ...

    @property
    def options(self) -> WitnessClientOptions:
        """Times of a lease."""
        ...

    clock: Clock
    timers: Timers
    entropy: Entropy
    granted: Callable[[str, bytes], None]
    """Called with the id and the token of each lock that this node holds from now on."""

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
        """Send a request; whether it was sent. The answer is an error if it was not."""
        ...


class _Attempt:
    """An attempt to acquire the lock. Implements ``ha.locks.distributed_lock.Request``."""

    def __init__(self, answer: Held) -> None:
        self.answer: Held | None = answer

    def cancel(self) -> None:
        """Give no answer; a granted lock is released."""
        self.answer = None


class WitnessLock:
    """Lock that one witness grants. Implements ``ha.locks.distributed_lock.DistributedLock``."""

    def __init__(self, manager: WitnessRequests, lock_id: str, recorded: bytes = NO_TOKEN) -> None:
        """Begin without holding the lock.

        Args:
            manager: Sends the requests.
            recorded: ``take_recorded`` of the lock before.
        """
        self._manager = manager
        self._id = lock_id
        self._name = f"lock {lock_id} of {manager.name}"
        self.lost: Callable[[BrokerError], None] | None = None
        self.renewed: Callable[[], None] | None = None
        """Called when the proof was extended."""
        self.fence = Lease(self._name, manager.clock, manager.timers, self._ended)
        self._token = NO_TOKEN
        """Token of the held lock."""
        self._attempts: dict[bytes, _Attempt] = {}
        """Attempts without an answer, by token."""
        self._recorded = recorded
        """Token of a lease that has ended by itself: the witness may still have it as that of the last holder."""
        self._doubtful: set[bytes] = set()
        """Tokens that the witness may have granted, and that are not used any more."""

    @property
    def late_from_ms(self) -> int:
        return self.fence.late_from_ms

    def take_recorded(self) -> bytes:
        """The token of a lease that has ended by itself, for one further attempt: no request to release it was sent, so
        none can arrive after a new grant. Without such a lease ``NO_TOKEN``.
        """
        token, self._recorded = self._recorded, NO_TOKEN
        return token

    def try_acquire(self, answer: Held) -> _Attempt:
        assert not self.fence.held, "release it first"
        self._give_back()
        sent_ms = self._manager.clock.monotonic_ms()
        token = self.take_recorded()
        if token == NO_TOKEN:
            token = self._manager.entropy.token(TOKEN_BYTES)
        attempt = _Attempt(answer)
        if self._send(Kind.ACQUIRE, token, lambda found: self._acquired(token, attempt, sent_ms, found)):
            self._attempts[token] = attempt
        return attempt

    def _acquired(self, token: bytes, attempt: _Attempt, sent_ms: int, found: Answer | BrokerError) -> None:
        was_sent = self._attempts.pop(token, None) is not None
        granted = isinstance(found, Answer) and found.kind is Kind.YES
        if granted and (attempt.answer is None or not self.fence.begin(sent_ms + self._manager.options.proof_ms)):
            # given up meanwhile, or the answer has taken longer than the lease
            self._doubtful.add(token)
            self._give_back()
            granted = False
        elif granted:
            self._token = token
            self._manager.granted(self._id, token)
        elif isinstance(found, Answer):
            log.debug("lock not granted", extra={"id": self._id, "reason": found.text})
        elif was_sent:
            self._doubtful.add(token)
        if attempt.answer is not None:
            attempt.answer(granted if isinstance(found, Answer) else found)

    def verify(self, answer: Held) -> _Attempt:
        attempt = _Attempt(answer)

        def answered(found: Answer | BrokerError) -> None:
            if attempt.answer is not None:
                attempt.answer(self.fence.held if isinstance(found, Answer) else found)

        if self.fence.held:
            self._renew(answered)
        else:
            self._manager.timers.call_later(0, lambda: answered(Answer(Kind.NO, 0)))
        return attempt

    def release(self, answer: Finished) -> None:
        self.fence.release()
        token, self._token = self._token, NO_TOKEN
        if token == NO_TOKEN:
            token = self.take_recorded()
        if token == NO_TOKEN:
            self._manager.timers.call_later(0, lambda: answer(None))
            return

        def released(found: Answer | BrokerError) -> None:
            if not isinstance(found, Answer):
                self._doubtful.add(token)
            answer(None if isinstance(found, Answer) else found)

        self._send(Kind.RELEASE, token, released)

    # --- called by the manager ---------------------------------------------------------------------

    def renew(self) -> bool:
        """Renew the lease if there is one; whether a request was sent."""
        self.fence.check()
        if self.fence.held:
            self._renew(lambda found: None)
        return self.fence.held

    def reconnected(self) -> None:
        """Renew a held lock with its token at once; give back grants whose answers were lost."""
        self.renew()
        self._give_back()

    def give_up(self) -> None:
        """Give the lock back without waiting for the answer, and give no answers any more."""
        for token, attempt in self._attempts.items():
            attempt.cancel()
            self._doubtful.add(token)
        if self.fence.held:
            self._doubtful.add(self._token)
        recorded = self.take_recorded()
        if recorded != NO_TOKEN:
            self._doubtful.add(recorded)
        self.lost = self.renewed = None
        self.fence.release()
        self._token = NO_TOKEN
        self._give_back()

    def _renew(self, answered: Callable[[Answer | BrokerError], None]) -> None:
        token, sent_ms = self._token, self._manager.clock.monotonic_ms()

        def renewed(found: Answer | BrokerError) -> None:
            if isinstance(found, Answer) and token == self._token:
                if found.kind is Kind.YES:
                    self.fence.extend(sent_ms + self._manager.options.proof_ms)
                    if self.renewed is not None:
                        self.renewed()
                else:
                    # the witness does not have this token any more
                    self._token = NO_TOKEN
                    self.fence.lose(f"{self._name}: {found.text}")
            answered(found)

        self._send(Kind.RENEW, token, renewed)

    def _give_back(self) -> None:
        """Release grants that are not used. A token in use is never among them."""
        for token in list(self._doubtful):

            def released(found: Answer | BrokerError, token: bytes = token) -> None:
                if isinstance(found, Answer):
                    self._doubtful.discard(token)

            self._send(Kind.RELEASE, token, released)

    def _send(self, kind: Kind, token: bytes, answer: Callable[[Answer | BrokerError], None]) -> bool:
        options = self._manager.options
        second = OF_GROUP if options.of_group and kind is not Kind.RELEASE else 0
        return self._manager.ask(kind, self._id, answer, token=token, first=options.lease_ms, second=second)

    def _ended(self, error: BrokerError) -> None:
        """Called when the lease has ended by itself, or the witness has another holder."""
        self._recorded, self._token = self._token, NO_TOKEN
        if self.lost is not None:
            self.lost(error)
