"""Arguments of a session to the post office with a request: its order, its transaction, and the callback that
answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from understudy.errors import BrokerError
from understudy.message import Message
from understudy.routing.addresses.address import Address
from understudy.routing.queues.queue import Queue
from understudy.store.log.operation_context import Lane, OperationContext
from understudy.store.messages.reference import Arrival

Permit = Callable[..., None]
"""Called with a permission, an address and perhaps a queue; raises NotAuthorized."""

Done = Callable[[BrokerError | None], None]
"""Answer to one request: called once, in the order of the requests, with the error or None."""

Answer = tuple[Callable[[Any], None], Any]
"""The callback for one request or several whose messages are safe, and its argument: None for ``Done``, or the
correlation ids of the requests.
"""


class ResponseOrder:
    """The order one session's operations are released in.

    Operations of one session may wait for different durability contracts (ADR 0065). One that needs less than an
    earlier one that still waits joins the lane of that one, so answers do not overtake each other.
    """

    __slots__ = ("lane", "permit", "sequence", "user")

    def __init__(self, permit: Permit | None = None, user: str = "") -> None:
        """Args:
        permit: Asked before an address or queue is made for a message of the session.
        user: Such a queue is accounted to.
        """
        self.sequence = 0
        """Log sequence that the latest operation waits for."""
        self.lane: Lane | None = None
        """Lane in which the response waits; None: it waits in the context, for the strictest contract."""
        self.permit = permit
        self.user = user

    def enter(self, context: OperationContext, lane: Lane | None) -> Lane:
        """Place of an operation that waits for the contract of a lane, in order; to be called before ``sequence``
        is set.

        Args:
            lane: Lane of the address of the operation; None: the context.
        """
        current = self.lane
        if current is None:
            if self.sequence > context.durable:
                lane = None
        elif (
            lane is not None and self.sequence > current.durable and current.contract.strength > lane.contract.strength
        ):
            lane = current
        self.lane = lane
        return context if lane is None else lane


Lanes = set[Lane | None]
"""Lanes of several addresses; None: the context."""


def strictest(lanes: Lanes) -> Lane | None:
    """The lane of the strictest contract; None: the context, also for no lanes."""
    if None in lanes or not lanes:
        return None
    return max((lane for lane in lanes if lane is not None), key=lambda lane: lane.contract.strength)


class RoutingTransaction(Protocol):
    """An open transaction, as routing uses it."""

    lanes: Lanes
    """Lanes of the addresses that the transaction concerns: its commit waits for the strictest one."""

    def log_id(self) -> int:
        """The id its records carry in the log."""
        ...

    def admits(self) -> bool:
        """Whether a further message counts for it; False: it can only be rolled back, so the message is dropped.

        Raises:
            TransactionTooLarge: it holds as much as it may.
        """
        ...

    def staged(self, queues: tuple[Queue, ...], parts: Arrival, *, leaves: bool = False) -> None:
        """Messages become visible at commit; ``leaves``: their bodies leave memory once the log has them."""
        ...

    def staged_duplicate_id(self, address: Address, duplicate_id: bytes) -> None:
        """Stage a duplicate id, which counts as seen from the commit on."""
        ...


class SessionTransaction(RoutingTransaction, Protocol):
    """The transaction of a session."""

    def room(self, queue_count: int) -> int:
        """Further messages, each in that many queues, that count for it; 0: ``admits`` says why none does."""
        ...

    def held(self, address: Address, message: Message, queues: tuple[Queue, ...], parts: Arrival) -> None:
        """A message of a node that is scaled down, which the transaction has taken out of these queues there."""
        ...


class SendRequest(NamedTuple):
    """The request that sent a message: its order, its answer, its transaction and the duplicate id."""

    order: ResponseOrder
    """Order of the session that sent the message."""
    done: Done | None = None
    """Answers the request; None: no answer is wanted."""
    transaction: RoutingTransaction | None = None
    """The message becomes visible with it; None: when it is safe."""
    duplicate_id: bytes | None = None
    """Remembered for the address; None: the message has none."""
    number: bytes | None = None
    """Number of the publish of a client session, which the log gets with the message (``store.session_numbers``)."""
