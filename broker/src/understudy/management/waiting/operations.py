"""Operations of ``queue.<name>`` that explain why messages wait."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import asdict
from typing import Final

from understudy.management.operations.counters import QueueOfNode
from understudy.management.operations.table import Operation, long, operation
from understudy.management.waiting.reasons import (
    ConsumerState,
    MessageState,
    QueueState,
    Reason,
    explain_message,
    explain_queue,
)
from understudy.management.waiting.view import WaitView


def of_queue(control: QueueOfNode) -> dict[str, object]:
    """Reason why messages of the queue wait, and why its first one does."""
    view = WaitView(control.node, control.queue)
    queue, first = view.queue(), view.first()
    now_ms = control.node.services.clock.wall_ms()
    return _queue_json(queue, explain_queue(queue)) | {
        "first": None if first is None else _message_json(first, explain_message(queue, first, now_ms))
    }


def of_message(control: QueueOfNode, message_id: int) -> Generator[None, None, dict[str, object]]:
    """Reasons for which one message waits. Raises MessageNotFound."""
    view = WaitView(control.node, control.queue)
    message = yield from view.message(message_id)
    queue = view.queue()
    reasons = explain_message(queue, message, control.node.services.clock.wall_ms())
    return {"queue": queue.name} | _message_json(message, reasons)


def _queue_json(queue: QueueState, reasons: list[Reason]) -> dict[str, object]:
    return {
        "queue": queue.name,
        "message_count": queue.message_count,
        "waiting": queue.waiting,
        "scheduled": queue.scheduled,
        "delivering": queue.delivering,
        "paged": queue.paged,
        "reasons": [each.as_json() for each in reasons],
        "consumers": [_consumer_json(each) for each in queue.consumers],
        "transactions": [asdict(each) for each in queue.transactions],
        "members": [asdict(each) for each in queue.members or ()],
    }


def _consumer_json(consumer: ConsumerState) -> dict[str, object]:
    return {
        **{
            name: getattr(consumer, name)
            for name in ("name", "connection", "filter", "delivering", "oldest_ms", "served", "bridge")
        },
        "ready": consumer.ready,
    }


def _message_json(message: MessageState, reasons: list[Reason]) -> dict[str, object]:
    return {
        "message_id": message.message_id,
        "place": message.place.value,
        "ahead": message.ahead,
        "reasons": [each.as_json() for each in reasons],
    }


OPERATIONS: Final[tuple[Operation, ...]] = (
    operation("listWaitReasons", of_queue, "Why messages of the queue wait, and why the first one does."),
    operation("listWaitReasons", of_message, "Why one message waits, wherever it is.", long("messageID")),
)
