"""Messages that leave their queue otherwise than by an acknowledgement: deliveries that failed, and
copies that take the place of an original elsewhere. No client waits for an answer to that, so where there is
no room (a full disk, no further queue) the message stays and leaves later.

Not here: which address they go to (``dead_letters``), ends of transactions (``session``).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from understudy.errors import BrokerError, DiskFull, MessageUnreadable, StoreError
from understudy.message import Message
from understudy.routing.address import Address
from understudy.routing.lifecycle.quarantine import NEVER_MS
from understudy.routing.queues.non_destructive import LentReference
from understudy.routing.queues.queue import Queue
from understudy.routing.references import references_of
from understudy.store.reference import MessageReference, References

if TYPE_CHECKING:
    from understudy.ports import Entropy
    from understudy.routing.post_office import PostOffice

log = logging.getLogger(__name__)

_TWO_31 = 1 << 31
#: Pause before a message leaves again for an address that had no room for it.
TRY_AGAIN_MS: Final = 30_000


def cancel(
    office: PostOffice, queue: Queue, references: list[MessageReference], *, delay_redelivery: bool = True
) -> None:
    """Deliveries that failed: each goes back to its place, or waits for redelivery, or, tried too
    often, to the dead letters (artemis-core s. 6.4). Delivery counts are final already.
    """
    if queue.kind is not None:
        references = queue.kind.lending.cancelled(references, partial(kill, office))
    if queue.deleted:
        queue.delivering_count -= len(references)
        queue.forget(References(references))
        return
    settings = queue.address.settings
    attempts = settings.max_delivery_attempts
    back: list[MessageReference] = []
    for reference in references:
        count = reference.delivery_count
        # with counts stored before each delivery, one that was taken back is stored too
        if (count or office.store.settings.count_before_delivery) and reference.durable and not queue.internal:
            office.store.store_delivery_count(queue.queue_id, reference.message_id, count)
        if 0 < attempts <= count and not queue.internal:
            queue.delivering_count -= 1
            kill(office, queue, reference)
            continue
        delay_ms = 0
        if count and delay_redelivery:
            varied = settings.redelivery_collision_avoidance_factor and settings.redelivery_delay > 0
            delay_ms = settings.redelivery_delay_ms(count, _share(office.entropy) if varied else 0.0)
        if delay_ms > 0:
            queue.postpone()
            office.scheduled.add(queue, reference, office.clock.wall_ms() + delay_ms)
        else:
            back.append(reference)
    queue.put_back(back)
    if queue.kind is not None:
        queue.kind.gate_may_open(0)


def expire(office: PostOffice, queue: Queue, reference: MessageReference) -> None:
    """A reference in no place any more whose time is over: to the expiry address, as soon as that takes it."""
    try:
        office.dead_letters.expire(queue, reference)
    except BrokerError as error:
        _try_again(office, queue, reference, error)


def kill(office: PostOffice, queue: Queue, reference: MessageReference) -> None:
    """A reference in no place any more that was delivered too often: to the dead letters, likewise."""
    try:
        office.dead_letters.kill(queue, reference)
    except BrokerError as error:
        _try_again(office, queue, reference, error)


def reject(office: PostOffice, queue: Queue, reference: MessageReference) -> None:
    """Send a delivery that its consumer rejected to the dead letter address, whatever its number of deliveries; from a
    non-destructive queue, too.
    """
    if isinstance(reference, LentReference) and queue.kind is not None:
        original = queue.kind.lending.original(reference)
        if original is None:
            return
        reference = original
    else:
        queue.delivering_count -= 1
    if queue.deleted:
        queue.forget(References((reference,)))
        return
    kill(office, queue, reference)


def _try_again(office: PostOffice, queue: Queue, reference: MessageReference, error: BrokerError) -> None:
    """There is no room where it should go: it waits, and after a while it is in its place again. One that cannot
    be read is set aside. Raises what says that the store has failed.
    """
    if isinstance(error, MessageUnreadable):
        queue.set_aside(reference, error)
        return
    if isinstance(error, StoreError) and not isinstance(error, DiskFull):
        raise error
    if not office.store.full:
        # of a full disk the log speaks elsewhere, once and not for each message
        log.warning("message cannot leave its queue", extra={"queue": queue.name, "error": str(error)})
    if queue.deleted:
        queue.forget(References((reference,)))
        return
    queue.scheduled_count += 1
    office.scheduled.add(queue, reference, office.clock.wall_ms() + TRY_AGAIN_MS)


def set_aside(office: PostOffice, queue: Queue, reference: MessageReference, error: BrokerError) -> None:
    """The delivery of a large message whose body cannot be read: no consumer is given it again before an operator
    releases it, or the next activation. A loan ends, as the queue keeps what was lent.
    """
    office.damaged.hold(queue, reference, error)
    if queue.kind is not None and not queue.kind.settled((reference,)):
        return
    queue.postpone()
    office.scheduled.add(queue, reference, NEVER_MS)


def _share(entropy: Entropy | None) -> float:
    """A random number from -1 up to 1."""
    return int.from_bytes(entropy.token(4), "big") / _TWO_31 - 1 if entropy is not None else 0.0


def move(
    office: PostOffice,
    copy: Message,
    target: Address,
    queues: tuple[Queue, ...],
    queue: Queue,
    reference: MessageReference,
) -> None:
    """Put a copy in queues of an address and end the original, both or neither; without a queue it ends only."""
    store = office.store
    if not queues:
        target.messages_unrouted += 1
        queue.log_acknowledges(References((reference,)))
        return
    durable_ids: tuple[int, ...] = ()
    if copy.durable or reference.durable:
        durable_ids = tuple([each.queue_id for each in queues if each.durable])
    location = None
    if durable_ids:
        transaction_id = store.next_id()
        location = store.store_message(copy, target.address_id, durable_ids, tx_id=transaction_id, large=copy.is_large)
        queue.log_acknowledges(References((reference,)), transaction_id=transaction_id)
        store.store_commit(transaction_id)
    else:
        queue.log_acknowledges(References((reference,)))
    references = references_of(store, copy, queues, location, 0)
    office.charge(copy.message_id, len(copy.encoded), queues)
    target.messages_routed += 1
    logged = location is not None or reference.durable
    office.context.when_durable(store.last_sequence if logged else 0, office.arrive, queues, references, None)
