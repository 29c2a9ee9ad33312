"""Whether a queue delivers yet: enough consumers first (manual, "Address Model":
consumers-before-dispatch, delay-before-dispatch), and a pause while groups are dealt out again
(manual, "Message Grouping": group-rebalance-pause-dispatch).

A consumer counts once it can take messages: its session is started and it has given credits. Otherwise those that
came before the last one would take everything before that one has credits.

Not here: deliveries (``delivery``). Invariant: without consumers the gate is closed, so that
the next consumers wait for each other again.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import ClassVar

from understudy.machine import IGNORED, Machine, To, table
from understudy.ports import Timer, Timers
from understudy.routing.queues.special import SpecialQueue


class State(Enum):
    """States of a gate."""

    CLOSED = auto()
    """Too few consumers that can take messages so far."""
    OPEN = auto()
    PAUSED = auto()
    """A consumer came: nothing is dispatched before the other consumers have settled their deliveries."""


class Event(Enum):
    """Events of a gate."""

    ENOUGH = auto()
    """Enough consumers can take messages, or the longest wait for them is over."""
    REBALANCE = auto()
    """A consumer came to a queue that pauses, and deliveries are outstanding."""
    DRAINED = auto()
    """No message of the queue is outstanding any more."""
    EMPTY = auto()
    """The last consumer left."""


class DispatchGate(Machine[State, Event]):
    """Gate of one queue, which delays its first delivery."""

    STATES: ClassVar[type[Enum]] = State
    EVENTS: ClassVar[type[Enum]] = Event
    INITIAL: ClassVar[Enum] = State.CLOSED

    def __init__(self, queue: SpecialQueue, timers: Timers) -> None:
        super().__init__()
        self._queue = queue
        self._timers = timers
        self._timer: Timer | None = None

    @property
    def open(self) -> bool:
        """Whether the queue may deliver now."""
        if self._state is State.PAUSED and not self._queue.delivering_count:
            self.fire(Event.DRAINED)
        elif self._state is State.CLOSED and self._enough:
            self.fire(Event.ENOUGH)
        return self._state is State.OPEN

    @property
    def _enough(self) -> bool:
        """Whether as many consumers as asked for can take messages; without such a number any consumer is enough."""
        wanted, consumers = self._queue.configuration.consumers_before_dispatch or 0, self._queue.consumers
        if wanted <= 0:
            return consumers.count > 0
        return consumers.count >= wanted and sum(each.ready for each in consumers) >= wanted

    def joined(self) -> None:
        """Called when a consumer was added, or the required number of consumers changed."""
        queue = self._queue
        asked = queue.configuration
        if not queue.consumers.count:
            return
        if asked.group_rebalance and asked.group_rebalance_pause_dispatch and queue.delivering_count:
            self.fire(Event.REBALANCE)
        if self._enough:
            self.fire(Event.ENOUGH)
        elif self._state is State.CLOSED and self._timer is None:
            delay_ms = asked.delay_before_dispatch
            if delay_ms is not None and delay_ms >= 0:
                self._timer = self._timers.call_later(delay_ms, self._waited)

    def left(self) -> None:
        """Called when a consumer is gone."""
        if not self._queue.consumers.count:
            self.fire(Event.EMPTY)

    def _waited(self) -> None:
        self._timer = None
        self.fire(Event.ENOUGH)
        self._queue.prompt()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # The table comes last: it names the functions above.
    TABLE = table(
        State,
        Event,
        {
            (State.CLOSED, Event.ENOUGH): To(State.OPEN, _stop_waiting),
            (State.CLOSED, Event.EMPTY): To(State.CLOSED, _stop_waiting),
            (State.OPEN, Event.REBALANCE): To(State.PAUSED),
            (State.OPEN, Event.EMPTY): To(State.CLOSED),
            (State.PAUSED, Event.DRAINED): To(State.OPEN),
            (State.PAUSED, Event.EMPTY): To(State.CLOSED),
        },
        otherwise={
            Event.ENOUGH: IGNORED,
            Event.REBALANCE: IGNORED,
            Event.DRAINED: IGNORED,
        },
    )
