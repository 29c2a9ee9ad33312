"""Ports of a session: calls to its protocol (deliveries, answers, permissions of its client) and management requests.

``understudy.management`` carries the requests out. Not here: permissions and replies of those (``send_requests``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from understudy.errors import BrokerError
from understudy.message import LargeMessage, Message
from understudy.store.messages.reference import Part
from understudy.terms import Permission


class SessionCallback(Protocol):
    """The protocol side of one session. Calls come in the order in which the client must see them."""

    @property
    def delivery_overhead_bytes(self) -> int:
        """Bytes of a delivery beside its message, if that is constant; otherwise 0."""
        ...

    def deliver(self, consumer_id: int, part: Part) -> int:
        """Send messages, whose delivery was counted. Returns the bytes on the wire, which credits are charged."""
        ...

    def deliver_large(self, consumer_id: int, message: LargeMessage, delivery_count: int) -> int:
        """Announce a large message, whose pieces follow. Returns the bytes it cost."""
        ...

    def deliver_piece(self, consumer_id: int, piece: bytes, continues: bool) -> int:
        """Send the next piece of the large message announced last. Returns the bytes it cost."""
        ...

    def forced_delivery(self, consumer_id: int, sequence: int) -> None:
        """Tell the consumer that everything deliverable went out before this (artemis-core s. 6.3)."""
        ...

    def disconnect_consumer(self, consumer_id: int) -> None:
        """Called when the consumer's queue is gone."""
        ...

    def producer_credits(self, address: str, credit_bytes: int) -> None:
        """Credits for an address."""
        ...

    def producer_credits_refused(self, address: str, credit_bytes: int) -> None:
        """Refuse credits: the address is full, and its policy is FAIL (PRODUCER_FAIL_CREDITS)."""
        ...

    def kill_connection(self, reason: str) -> None:
        """End the client's connection with all its sessions; they are closed soon, not in this call."""
        ...

    def internal_error(self, bug: Exception) -> None:
        """An internal error occurred while something was sent: end the connection at once, keep nothing of it
        and say so with the traceback. Its sessions are closed soon, not in this call.
        """
        ...

    def operation_failed(self, error: BrokerError) -> None:
        """A request that wanted no answer failed; there is only the log to tell."""
        ...

    def writable(self) -> bool:
        """Whether the socket keeps up; False pauses deliveries until
        ``SessionConsumers.resume_deliveries``.
        """
        ...


class RunAnswers(Protocol):
    """Answers the requests of a run of messages."""

    def answer_run(self, correlation_ids: Sequence[int], error: BrokerError | None = None) -> None:
        """The messages with these correlation ids are safe, or were not taken because of an error."""
        ...


class SessionSecurity(Protocol):
    """Permissions of one authenticated client."""

    @property
    def user(self) -> str:
        """Name for logs and management; empty without one."""
        ...

    @property
    def permission_ms(self) -> int:
        """How long an answer of ``check`` need not be asked for again."""
        ...

    def check(self, permission: Permission, address: str, queue: str | None = None) -> None:
        """Raises NotAuthorized, and reports the violation."""
        ...

    def allows(self, permission: Permission, address: str, queue: str | None = None) -> bool:
        """Whether the user has a permission; a missing one is not reported as a violation."""
        ...


class Management(Protocol):
    """Executes the requests."""

    address: str
    """The management address."""

    def handle(
        self, request: Message, security: SessionSecurity, remote_address: str, reply: Callable[[Message], None]
    ) -> None:
        """Carry out a request and give its reply, now or later; without an address."""
        ...
