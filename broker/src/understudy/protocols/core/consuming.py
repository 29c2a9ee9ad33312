"""The packets of a session channel about consumers and their deliveries (artemis-core s. 4.4), and the frames of
deliveries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from understudy.errors import IllegalState
from understudy.kernel.core import receives, run_receives
from understudy.limits import SETTLE_DELAY_MS_MAX
from understudy.protocols.core import queues
from understudy.protocols.core.answers import NO_CORRELATION, SessionAnswers
from understudy.session.outcomes import ACCEPTED, EXPIRED, REJECTED, modified
from understudy.store.messages.reference import Part, References
from understudy.wire.core import packets
from understudy.wire.core.codec import AcknowledgeBatch, CommitBatch


def _create_consumer(handler: SessionAnswers, packet: packets.CreateConsumer) -> None:
    handler.session.consumers.create(
        packet.consumer_id,
        packet.queue_name,
        selector_text=packet.filter,
        browse_only=packet.browse_only,
        priority=packet.priority,
    )
    handler.queue_names[packet.consumer_id] = packet.queue_name
    if packet.requires_response:
        queues.answer_queue(handler, packet.queue_name)


def _close_consumer(handler: SessionAnswers, packet: packets.ConsumerClose) -> None:
    handler.session.consumers.close(packet.consumer_id)
    handler.queue_names.pop(packet.consumer_id, None)
    handler.done_when_durable(True)


def _flow(handler: SessionAnswers, packet: packets.FlowToken) -> None:
    handler.session.consumers.receive_credits(packet.consumer_id, packet.credits)


def _force_delivery(handler: SessionAnswers, packet: packets.ForceConsumerDelivery) -> None:
    handler.session.consumers.force_delivery(packet.consumer_id, packet.sequence)


def _acknowledge(handler: SessionAnswers, packet: packets.Acknowledge) -> None:
    done = handler.done if packet.requires_response else None
    handler.session.acknowledge(packet.consumer_id, packet.message_id, done)


def _acknowledge_each(handler: SessionAnswers, packet: AcknowledgeBatch) -> None:
    handler.session.acknowledge_each(packet.consumer_id, packet.message_ids)


def _acknowledge_and_commit(handler: SessionAnswers, packet: CommitBatch) -> None:
    answers = (NO_CORRELATION,) * len(packet.message_ids)
    handler.session.acknowledge_and_commit(packet.consumer_id, packet.message_ids, answers, handler.answer_run)


def _acknowledge_one(handler: SessionAnswers, packet: packets.IndividualAcknowledge) -> None:
    done = handler.done if packet.requires_response else None
    handler.session.settle(packet.consumer_id, packet.message_id, ACCEPTED, done)


def _settle(handler: SessionAnswers, packet: packets.Settle) -> None:
    if packet.delay_ms > SETTLE_DELAY_MS_MAX:
        raise IllegalState(f"delay of {packet.delay_ms} ms before a redelivery, limit {SETTLE_DELAY_MS_MAX}")
    if packet.settlement == packets.Settlement.REJECT:
        outcome = REJECTED
    else:
        outcome = modified(
            delivery_failed=packet.settlement == packets.Settlement.FAIL,
            undeliverable_here=packet.undeliverable_here,
            delay_ms=packet.delay_ms if packet.delay_ms >= 0 else None,
        )
    done = handler.done if packet.requires_response else None
    handler.session.settle(packet.consumer_id, packet.message_id, outcome, done)


def _expire(handler: SessionAnswers, packet: packets.Expired) -> None:
    handler.session.settle(packet.consumer_id, packet.message_id, EXPIRED)


def delivery_frames(part: Part, begin: int, end: int, channel_id: int, consumer_id: int) -> bytes:
    """SESS_RECEIVE_MSG frames for the messages number ``begin`` to ``end`` of a part, the last one excluded, with the
    delivery counts that the messages have now.
    """
    # ``isinstance`` of a list is faster than of an abstract sequence
    if not isinstance(part, References):
        first = part.begin
        return run_receives(part.run, first + begin, first + end, channel_id, consumer_id)
    if part.shown is None:
        part = part.part(begin, end)
    return receives(part.encoded, [reference.delivery_count for reference in part], channel_id, consumer_id)


HANDLERS: Final[dict[type, Callable[[SessionAnswers, Any], None]]] = {
    packets.CreateConsumer: _create_consumer,
    packets.ConsumerClose: _close_consumer,
    packets.FlowToken: _flow,
    packets.ForceConsumerDelivery: _force_delivery,
    packets.Acknowledge: _acknowledge,
    AcknowledgeBatch: _acknowledge_each,
    CommitBatch: _acknowledge_and_commit,
    packets.IndividualAcknowledge: _acknowledge_one,
    packets.Settle: _settle,
    packets.Expired: _expire,
}
