"""Operations on message counters, for the tables of ``broker`` and of ``queue`` (manual, "Message Counters")."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final, Protocol

from understudy.management.events.message_counters import (
    HOURS,
    NOT_COUNTED,
    MessageCounter,
    MessageCounters,
    date_text,
    time_text,
)
from understudy.management.json_text import to_json
from understudy.management.operations.table import integer, long, operation

if TYPE_CHECKING:
    from understudy.management.operations.invocation import Control, ManagedNode
    from understudy.routing.queues.queue import Queue


class QueueOfNode(Protocol):
    """A control of a queue: its node and the queue."""

    @property
    def node(self) -> ManagedNode:
        """The active node that has the queue."""

    @property
    def queue(self) -> Queue:
        """The queue with that name."""


def _all(control: Control) -> MessageCounters:
    return control.node.counters


def _of(control: QueueOfNode) -> MessageCounter:
    return control.node.counters.of(control.queue)


def list_counter(control: QueueOfNode) -> str:
    """The counter of a queue as JSON, with the fields of Artemis. Deltas count from the previous call."""
    counter = _of(control)
    count_delta, depth_delta = counter.deltas()
    return to_json(
        {
            "destinationName": counter.queue.name,
            "destinationSubscription": None,
            "destinationDurable": counter.queue.durable,
            "count": counter.count,
            "countDelta": count_delta,
            "messageCount": counter.queue.message_count,
            "messageCountDelta": depth_delta,
            "lastAddTimestamp": time_text(counter.last_add_ms),
            "lastAckTimestamp": time_text(counter.last_acknowledge_ms),
            "updateTimestamp": time_text(counter.last_update_ms),
        }
    )


def list_history(control: QueueOfNode) -> str:
    """The history of a queue as JSON: one row per day, ``-1`` for hours without data."""
    counter = _of(control)
    counter.record(0, control.node.services.clock.wall_ms())
    rows = [{"date": date_text(day.date), "counters": day.hours} for day in counter.history]
    return to_json({"dayCounters": rows})


_COLUMNS: Final = (
    "Type", "Name", "Subscription", "Durable", "Count", "CountDelta", "Depth", "DepthDelta", "Last Add", "Last Ack",
    "Last Update",
)  # fmt: skip


def counter_as_html(control: QueueOfNode) -> str:
    """The counter of a queue as an HTML table."""
    counter = _of(control)
    count_delta, depth_delta = counter.deltas()
    times = (counter.last_add_ms, counter.last_acknowledge_ms, counter.last_update_ms)
    cells = [
        *("Queue", counter.queue.name, "-", "-", str(counter.count)),
        *(str(each) if each else "-" for each in (count_delta, counter.queue.message_count, depth_delta)),
        *(time_text(each) if each else "-" for each in times),
    ]
    return (
        f'<table class="activemq-message-counter">\n<tr>{_cells("th", _COLUMNS)}</tr>\n'
        f'<tr bgcolor="#FFFFFF">{_cells("td", cells)}</tr>\n</table>\n'
    )


def history_as_html(control: QueueOfNode) -> str:
    """The history of a queue as an HTML table."""
    counter = _of(control)
    counter.record(0, control.node.services.clock.wall_ms())
    heads = ["Date", *map(str, range(HOURS)), "Total"]
    rows = [f"<tr>{_cells('th', heads)}</tr>\n"]
    for place, day in enumerate(counter.history):
        counted = [count for count in day.hours if count != NOT_COUNTED]
        hours = ["" if count == NOT_COUNTED else str(count) for count in day.hours]
        cells = [date_text(day.date), *hours, str(sum(counted))]
        rows.append(f'<tr bgcolor="#{"F0F0F0" if place % 2 else "FFFFFF"}">{_cells("td", cells)}</tr>\n')
    return (
        f"<ul>\n<li>\n  <ul>\n    <li>Queue '{escape(counter.queue.name)}'</li>\n    <li>"
        f'<table class="activemq-message-counter-history">\n{"".join(rows)}</table></li>\n  </ul>\n</li>\n</ul>\n'
    )


def _cells(tag: str, texts: list[str] | tuple[str, ...]) -> str:
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)


BROKER_OPERATIONS: Final = (
    operation("isMessageCounterEnabled", lambda c: _all(c).enabled, "Whether message counters are sampled.",
              returns=bool),
    operation("enableMessageCounters", lambda c: _all(c).enable(), "Sample message counters from now on.",
              returns=None),
    operation("disableMessageCounters", lambda c: _all(c).disable(), "Stop sampling and reset the counts.",
              returns=None),
    operation("getMessageCounterSamplePeriod", lambda c: _all(c).period_ms, "Milliseconds between two samples.",
              returns=int),
    operation("setMessageCounterSamplePeriod", lambda c, period_ms: _all(c).set_period(period_ms),
              "Change it; at least 1000.", long("newPeriod"), returns=None),
    operation("getMessageCounterMaxDayCount", lambda c: _all(c).max_day_count,
              "Days of history; the address setting message-counter-history-day-limit decides for its queues.",
              returns=int),
    operation("setMessageCounterMaxDayCount", lambda c, days: _all(c).set_max_day_count(days), "Change it.",
              integer("count"), returns=None),
    operation("resetAllMessageCounters", lambda c: _all(c).reset_counters(), "Set the counts of all queues to 0.",
              returns=None),
    operation("resetAllMessageCounterHistories", lambda c: _all(c).reset_histories(), "Clear all histories.",
              returns=None),
)  # fmt: skip

QUEUE_OPERATIONS: Final = (
    operation("listMessageCounter", list_counter, "Its message counter, as JSON."),
    operation("listMessageCounterAsHTML", counter_as_html, "Its message counter, as an HTML table."),
    operation("resetMessageCounter", lambda c: _of(c).reset(), "Set its counts to 0.", returns=None),
    operation("listMessageCounterHistory", list_history, "Messages added by day and hour (UTC), as JSON."),
    operation("listMessageCounterHistoryAsHTML", history_as_html, "The same as an HTML table."),
)
