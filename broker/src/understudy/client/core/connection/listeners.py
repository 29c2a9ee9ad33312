"""Listeners for failures of a connection, and their arguments.

artemis-ha s. 8: failure listeners are called after every failure, always, with whether a new
connection carries the sessions on, and the code that a JMS ExceptionListener gets for it. Failover
listeners hear when it begins too. A listener that raises is logged, and the others are still called.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial

from understudy.errors import BrokerError


class FailureCode(Enum):
    """Outcome of a lost connection."""

    FAILOVER = "FAILOVER"
    """A new connection works and continues the sessions."""
    DISCONNECT = "DISCONNECT"
    """No connection could be made: the sessions are closed."""


class FailoverEvent(Enum):
    """The stage of a failover."""

    FAILURE_DETECTED = "FAILURE_DETECTED"
    FAILOVER_COMPLETED = "FAILOVER_COMPLETED"
    FAILOVER_FAILED = "FAILOVER_FAILED"


FailureListener = Callable[[BrokerError, bool, FailureCode], None]
"""Called with the error that ended the connection, whether a failover follows, and the outcome as a code."""

FailoverListener = Callable[[FailoverEvent], None]


class Listeners:
    """Failure and failover listeners of one connection."""

    def __init__(self, call: Callable[[Callable[[], None]], None], log: Callable[[str], None]) -> None:
        """
        Args:
            call: Calls its argument, now or on a thread of the shell.
            log: Takes the text about a listener that raised.
        """
        self._call = call
        self._log = log
        self.of_failures: list[FailureListener] = []
        self.of_failovers: list[FailoverListener] = []

    def failure_detected(self) -> None:
        """Called when a working connection was lost."""
        self._tell(FailoverEvent.FAILURE_DETECTED)

    def failed_over(self, error: BrokerError) -> None:
        """``error`` ended the connection, and a new one works."""
        self._tell(FailoverEvent.FAILOVER_COMPLETED)
        self._tell_failure(error, FailureCode.FAILOVER)

    def disconnected(self, error: BrokerError) -> None:
        """``error`` is why no connection is left."""
        self._tell(FailoverEvent.FAILOVER_FAILED)
        self._tell_failure(error, FailureCode.DISCONNECT)

    def _tell(self, event: FailoverEvent) -> None:
        for listener in tuple(self.of_failovers):
            self._call(partial(self._guarded, "failover", listener, event))

    def _tell_failure(self, error: BrokerError, code: FailureCode) -> None:
        for listener in tuple(self.of_failures):
            self._call(partial(self._guarded, "failure", listener, error, code is FailureCode.FAILOVER, code))

    def _guarded(self, kind: str, listener: Callable[..., None], *arguments: object) -> None:
        try:
            listener(*arguments)
        except Exception as raised:
            # An error of the application must not end the change of state in which it is called.
            self._log(f"a {kind} listener raised {raised!r}")
