"""Outcomes of a delivery, with which a client settles it (AMQP 1.0 s. 3.4; CORE uses ACCEPTED and EXPIRED).

============  ================================================================================================
outcome       effect
============  ================================================================================================
``ACCEPTED``  the message is removed from its queue
``REJECTED``  the message goes to the dead letter address at once, whatever its number of deliveries
``RELEASED``  the message returns to its place in the queue; the delivery is not counted
``EXPIRED``   the client found the message expired: it goes to the expiry address
``modified``  as RELEASED; ``delivery_failed`` counts the delivery, so that the limit of deliveries and the redelivery
              delay apply; ``undeliverable_here`` excludes the message from this consumer; ``delay_ms`` takes the
              place of the redelivery delay
============  ================================================================================================

In a transacted session an outcome takes effect with the commit; after a rollback the delivery returns to its queue like
every other one of the transaction. EXPIRED always takes effect at once, as in Artemis.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from understudy.dataclass import dataclass
from understudy.routing.post_office import PostOffice
from understudy.routing.queues.consumer import Consumer
from understudy.routing.queues.queue import Queue
from understudy.store.messages.reference import MessageReference


class Kind(Enum):
    """Effect on the message."""

    ACCEPT = auto()
    REJECT = auto()
    RETURN = auto()
    EXPIRE = auto()


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one delivery."""

    kind: Kind
    delivery_failed: bool = False
    """Count the delivery (RETURN)."""
    undeliverable_here: bool = False
    """Do not deliver the message to this consumer again."""
    delay_ms: int | None = None
    """Time in ms until the message is delivered again; None for that of the address settings."""


ACCEPTED: Final = Outcome(Kind.ACCEPT)
REJECTED: Final = Outcome(Kind.REJECT)
RELEASED: Final = Outcome(Kind.RETURN)
EXPIRED: Final = Outcome(Kind.EXPIRE)


def modified(
    *, delivery_failed: bool = False, undeliverable_here: bool = False, delay_ms: int | None = None
) -> Outcome:
    """The outcome *modified* of AMQP 1.0 s. 3.4.5, with a delay of our own."""
    return Outcome(Kind.RETURN, delivery_failed, undeliverable_here, delay_ms)


def apply_outcome(
    office: PostOffice, queue: Queue, consumer: Consumer, reference: MessageReference, outcome: Outcome
) -> None:
    """Carry out an outcome other than ACCEPTED.

    Args:
        consumer: To which the message was delivered.
        reference: Reference of the message; no longer outstanding.
    """
    if outcome.kind is Kind.REJECT:
        office.redelivery.reject(queue, reference)
    elif outcome.kind is Kind.EXPIRE:
        queue.expire_delivered(reference)
    else:
        if not outcome.delivery_failed:
            reference.delivery_count -= 1
        if outcome.undeliverable_here and consumer.exclude(reference.message_id):
            queue.choose_dispatch()
        office.redelivery.cancel(
            queue, [reference], delay_redelivery=reference.delivery_count > 0, delay_ms=outcome.delay_ms
        )
