"""Message counters: messages added to each queue, sampled at a fixed period, by hour and day.

Manual, "Message Counters": while they are enabled, every ``message-counter-sample-period`` the messages that were added
and acknowledged since the last sample are counted. The history of a queue has one row per day with 24 hours; how many
days are kept is the address setting ``message-counter-history-day-limit`` (0 keeps none, -1 keeps all up to
``HISTORY_DAYS_MAX``). Hours and days are those of UTC. Counters start at zero at each activation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import field
from datetime import UTC, date, datetime
from itertools import islice
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import ManagementError
from understudy.ports import Clock, Timer, Timers
from understudy.routing.addresses.address import Address
from understudy.routing.addresses.directory import Directory
from understudy.routing.queues.consumer import Consumer
from understudy.routing.queues.queue import Queue

HOURS: Final = 24
#: Maximum number of days in the history of one queue, even without a limit.
HISTORY_DAYS_MAX: Final = 366
#: Shortest time between two samples. Milliseconds.
SAMPLE_PERIOD_MS_MIN: Final = 1_000
#: Queues sampled in one turn of the loop, and the pause before the next ones.
_QUEUES_AT_ONCE: Final = 1_000
_PAUSE_MS: Final = 1
_HOUR_MS: Final = 3_600_000
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
NOT_COUNTED: Final = -1
"""Value in the history for an hour before the counter existed, or in the future."""


@dataclass(slots=True)
class Day:
    """One day of a history."""

    number: int
    """Days since 1970-01-01 UTC."""
    hours: list[int]
    """Messages added in each hour, or ``NOT_COUNTED``."""

    @property
    def date(self) -> date:
        """Date of the day in UTC."""
        return date.fromordinal(_EPOCH_ORDINAL + self.number)


@dataclass(slots=True)
class MessageCounter:
    """Counter of the messages of one queue."""

    queue: Queue
    count: int = field(default=0, init=False)
    """Messages added since the counter was reset, as of the last sample."""
    last_update_ms: int = field(default=0, init=False)
    last_add_ms: int = field(default=0, init=False)
    last_acknowledge_ms: int = field(default=0, init=False)
    history: deque[Day] = field(default_factory=deque, init=False)
    _count_shown: int = field(default=0, init=False)
    _depth_shown: int = field(default=0, init=False)
    _added_seen: int = field(default=0, init=False)
    _acknowledged_seen: int = field(default=0, init=False)

    def sample(self, now_ms: int) -> None:
        """Count the messages since the last sample. ``now_ms`` is wall time."""
        added = self.queue.messages_added - self._added_seen
        acknowledged = self.queue.messages_acknowledged - self._acknowledged_seen
        # an operator may have reset the counters of the queue in between
        added = added if added >= 0 else self.queue.messages_added
        acknowledged = acknowledged if acknowledged >= 0 else self.queue.messages_acknowledged
        self._added_seen = self.queue.messages_added
        self._acknowledged_seen = self.queue.messages_acknowledged
        self.count += added
        if added:
            self.last_add_ms = now_ms
        if acknowledged:
            self.last_acknowledge_ms = now_ms
        self.last_update_ms = now_ms
        self.record(added, now_ms)

    def record(self, added: int, now_ms: int) -> None:
        """Extend the history to the present hour; hours without a sample count zero messages."""
        limit = self.queue.address.settings.message_counter_history_day_limit
        kept = HISTORY_DAYS_MAX if limit < 0 else min(limit, HISTORY_DAYS_MAX)
        today, hour = divmod(now_ms // _HOUR_MS, HOURS)
        if kept:
            first = self.history[-1].number + 1 if self.history else today
            if self.history:
                last = self.history[-1]
                _fill(last.hours, hour if last.number == today else HOURS - 1)
            for number in range(max(first, today - kept + 1), today + 1):
                hours = [NOT_COUNTED if not self.history else 0] * (hour if number == today else HOURS)
                self.history.append(Day(number, hours + [NOT_COUNTED] * (HOURS - len(hours))))
            hours = self.history[-1].hours
            hours[hour] = max(hours[hour], 0) + added
        while len(self.history) > kept:
            self.history.popleft()

    def reset(self) -> None:
        """Reset the counts and times, not the history."""
        self.count = self._count_shown = self._depth_shown = 0
        self.last_update_ms = self.last_add_ms = self.last_acknowledge_ms = 0

    def deltas(self) -> tuple[int, int]:
        """Change of the count and of the depth of the queue since the previous call."""
        depth = self.queue.message_count
        changes = self.count - self._count_shown, depth - self._depth_shown
        self._count_shown, self._depth_shown = self.count, depth
        return changes


def _fill(hours: list[int], last_hour: int) -> None:
    """Set hours without a sample to zero, from the first counted hour to this one."""
    began = next((hour for hour, count in enumerate(hours) if count != NOT_COUNTED), HOURS)
    for hour in range(began, last_hour + 1):
        hours[hour] = max(hours[hour], 0)


class MessageCounters:
    """The counters of all queues of an active node. Implements ``routing.addresses.listeners.RoutingListener``."""

    def __init__(
        self, directory: Directory, clock: Clock, timers: Timers, *, enabled: bool, period_ms: int, days: int
    ) -> None:
        """Begin to sample, if enabled.

        Args:
            directory: Directory of the queues.
            clock: Wall time of the samples.
            enabled: Element ``message-counter-enabled``.
            period_ms: Element ``message-counter-sample-period``; shorter ones are raised to a second.
            days: Element ``message-counter-max-day-history``; shown and settable, without effect as in Artemis,
                where the address setting decides.
        """
        self.enabled = False
        self.period_ms = max(period_ms, SAMPLE_PERIOD_MS_MIN)
        self.max_day_count = days
        self._directory = directory
        self._clock = clock
        self._timers = timers
        self._timer: Timer | None = None
        self._counters: dict[Queue, MessageCounter] = {}
        if enabled:
            self.enable()

    def of(self, queue: Queue) -> MessageCounter:
        """The counter of a queue; with zero counts if it was not sampled yet."""
        counter = self._counters.get(queue)
        if counter is None:
            counter = self._counters[queue] = MessageCounter(queue)
        return counter

    def enable(self) -> None:
        """Begin to sample the counters."""
        if not self.enabled:
            self.enabled = True
            self._arm()

    def disable(self) -> None:
        """Stop sampling; counts are reset, histories are kept."""
        if self.enabled:
            self.enabled = False
            self.close()
            self.reset_counters()

    def set_period(self, period_ms: int) -> None:
        """Change the period. Raises ManagementError: not a positive number."""
        if period_ms <= 0:
            raise ManagementError(f"the sample period must be greater than 0, not {period_ms}")
        self.period_ms = max(period_ms, SAMPLE_PERIOD_MS_MIN)
        if self.enabled:
            self.close()
            self._arm()

    def set_max_day_count(self, days: int) -> None:
        """Change the value of the element. Raises ManagementError: not a positive number."""
        if days <= 0:
            raise ManagementError(f"the number of days must be greater than 0, not {days}")
        self.max_day_count = days

    def reset_counters(self) -> None:
        """Reset all counts and times."""
        for counter in self._counters.values():
            counter.reset()

    def reset_histories(self) -> None:
        """Clear all histories; they begin with the present hour."""
        for counter in self._counters.values():
            counter.history.clear()
            counter.record(0, self._clock.wall_ms())

    def close(self) -> None:
        """Stop sampling the counters."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._timer = self._timers.call_later(self.period_ms, self._begin)

    def _begin(self) -> None:
        self._go_on(iter(list(self._directory.queues.values())))

    def _go_on(self, queues: Iterator[Queue]) -> None:
        now_ms = self._clock.wall_ms()
        some = False
        for queue in islice(queues, _QUEUES_AT_ONCE):
            some = True
            if not queue.deleted:
                self.of(queue).sample(now_ms)
        if some:
            self._timer = self._timers.call_later(_PAUSE_MS, lambda: self._go_on(queues))
        else:
            self._arm()

    # -- routing.listeners.RoutingListener --------------------------------------------------------

    def queue_removed(self, queue: Queue) -> None:
        """Drop the counter of the removed queue."""
        self._counters.pop(queue, None)

    def queue_added(self, queue: Queue) -> None:
        """Do nothing: the counter of a new queue is created at the next sample."""

    def address_added(self, address: Address) -> None:
        """Does nothing: addresses have no counters."""

    def address_removed(self, address: Address) -> None:
        """Does nothing: addresses have no counters."""

    def queue_updated(self, queue: Queue) -> None:
        """Do nothing: the counters do not depend on the filter of a queue."""

    def settings_changed(self, address: Address) -> None:
        """Does nothing: the limit of the history is read at each sample."""

    def consumer_added(self, queue: Queue, consumer: Consumer) -> None:
        """Does nothing: consumers are not counted."""

    def consumer_removed(self, queue: Queue, consumer: Consumer) -> None:
        """Does nothing: consumers are not counted."""


def time_text(wall_ms: int) -> str:
    """A time as the counters show it: UTC, in the form of Java's short date and medium time in English."""
    when = datetime.fromtimestamp(wall_ms / 1000, UTC)
    hour = when.hour % 12 or 12
    half = "AM" if when.hour < 12 else "PM"
    return f"{date_text(when.date())}, {hour}:{when:%M:%S} {half}"


def date_text(day: date) -> str:
    """A day in the form of Java's short date in English."""
    return f"{day.month}/{day.day}/{day:%y}"
