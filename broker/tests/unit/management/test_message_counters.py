"""Message counters: sampled counts, times and the history by day and hour."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.managed import ManagedWorld
from understudy.management.events.message_counters import HOURS, NOT_COUNTED, time_text

DAY_MS = 86_400_000
PERIOD_MS = 10_000


@pytest.fixture
def node() -> Iterator[ManagedWorld]:
    made = ManagedWorld()
    made.counters.enable()
    yield made
    made.counters.close()


def send(node: ManagedWorld, count: int) -> None:
    for _ in range(count):
        node.ask("queue.q", "sendMessage", {}, 3, "text", True, None, None)


def make_queue(node: ManagedWorld, days: int = 2) -> None:
    node.ask("broker", "addAddressSettings", "#", json.dumps({"messageCounterHistoryDayLimit": days}))
    node.ask("broker", "createQueue", "q", "ANYCAST", "q", None, True, -1, False, True)


def counter(node: ManagedWorld) -> dict[str, Any]:
    listed = json.loads(node.ask("queue.q", "listMessageCounter"))
    assert isinstance(listed, dict)
    return listed


def history(node: ManagedWorld) -> list[dict[str, Any]]:
    days = json.loads(node.ask("queue.q", "listMessageCounterHistory"))["dayCounters"]
    assert isinstance(days, list)
    return days


def advance(node: ManagedWorld, milliseconds: int) -> None:
    node.world.clock.advance(milliseconds)
    node.settle()


def test_messages_are_counted_at_the_next_sample(node: ManagedWorld) -> None:
    make_queue(node)
    send(node, 3)
    before = counter(node)
    assert (before["count"], before["messageCount"], before["updateTimestamp"]) == (0, 3, "1/1/70, 12:00:00 AM")
    advance(node, PERIOD_MS)
    now = counter(node)
    assert (now["count"], now["countDelta"], now["messageCount"], now["messageCountDelta"]) == (3, 3, 3, 0)
    assert now["destinationName"] == "q"
    assert now["destinationDurable"] is True
    assert now["lastAddTimestamp"] != "1/1/70, 12:00:00 AM"
    assert now["lastAckTimestamp"] == "1/1/70, 12:00:00 AM"
    assert counter(node)["countDelta"] == 0, "the delta is since the counter was listed last"


def test_a_reset_of_the_queue_s_own_count_is_no_negative_number(node: ManagedWorld) -> None:
    make_queue(node)
    send(node, 3)
    advance(node, PERIOD_MS)
    node.ask("queue.q", "resetMessagesAdded")
    send(node, 1)
    advance(node, PERIOD_MS)
    assert counter(node)["count"] == 4


def test_resetting_and_disabling_set_counts_to_zero_and_keep_the_history(node: ManagedWorld) -> None:
    make_queue(node)
    send(node, 2)
    advance(node, PERIOD_MS)
    node.ask("queue.q", "resetMessageCounter")
    assert counter(node)["count"] == 0
    assert sum(count for count in history(node)[-1]["counters"] if count > 0) == 2
    send(node, 2)
    advance(node, PERIOD_MS)
    node.ask("broker", "disableMessageCounters")
    assert node.ask("broker", "isMessageCounterEnabled") is False
    send(node, 5)
    advance(node, PERIOD_MS)
    assert counter(node)["count"] == 0, "no samples while disabled"
    node.ask("broker", "enableMessageCounters")
    advance(node, PERIOD_MS)
    assert counter(node)["count"] == 5
    node.ask("broker", "resetAllMessageCounters")
    assert counter(node)["count"] == 0
    node.ask("broker", "resetAllMessageCounterHistories")
    assert sum(count for count in history(node)[-1]["counters"] if count > 0) == 0


def test_the_history_has_a_row_for_each_day_and_keeps_as_many_as_the_address_setting_says(node: ManagedWorld) -> None:
    make_queue(node, days=2)
    send(node, 1)
    advance(node, PERIOD_MS)
    first = history(node)
    assert len(first) == 1
    assert len(first[0]["counters"]) == HOURS
    assert first[0]["counters"].count(NOT_COUNTED) == HOURS - 1
    node.counters.set_period(DAY_MS)
    advance(node, DAY_MS)
    assert [sum(count for count in day["counters"] if count > 0) for day in history(node)] == [1, 0]
    hour = next(place for place, count in enumerate(first[0]["counters"]) if count == 1)
    yesterday = history(node)[0]["counters"]
    assert yesterday[:hour] == [NOT_COUNTED] * hour
    assert NOT_COUNTED not in yesterday[hour:]
    advance(node, 5 * DAY_MS)
    assert [sum(count for count in day["counters"] if count > 0) for day in history(node)] == [0, 0]


def test_without_a_limit_no_history_is_kept(node: ManagedWorld) -> None:
    make_queue(node, days=0)
    send(node, 1)
    advance(node, PERIOD_MS)
    assert history(node) == []


def test_wrong_periods_and_days_are_refused(node: ManagedWorld) -> None:
    assert "greater than 0" in node.refused("broker", "setMessageCounterSamplePeriod", 0)
    assert "greater than 0" in node.refused("broker", "setMessageCounterMaxDayCount", -1)
    node.ask("broker", "setMessageCounterSamplePeriod", 5)
    assert node.ask("broker", "getMessageCounterSamplePeriod") == 1_000
    node.ask("broker", "setMessageCounterMaxDayCount", 7)
    assert node.ask("broker", "getMessageCounterMaxDayCount") == 7


def test_counters_of_many_queues_are_sampled_in_slices(node: ManagedWorld) -> None:
    make_queue(node)
    for number in range(1_500):
        node.ask("broker", "createQueue", f"a{number}", "ANYCAST", f"a{number}", None, True, -1, False, True)
    send(node, 1)
    advance(node, PERIOD_MS)
    queues = node.office.directory.queues
    assert all(node.counters.of(queue).last_update_ms > 0 for queue in queues.values())
    node.ask("broker", "destroyQueue", "q")
    assert "q" not in {queue.name for queue in node.counters._counters}


def test_html_escapes_names(node: ManagedWorld) -> None:
    node.ask("broker", "createQueue", "<b>", "ANYCAST", "<b>", None, True, -1, False, True)
    for name in ("listMessageCounterAsHTML", "listMessageCounterHistoryAsHTML"):
        page = node.ask("queue.<b>", name)
        assert "&lt;b&gt;" in page
        assert "<b>" not in page


def test_times_have_the_form_of_java() -> None:
    assert time_text(1_764_000_000_000) == "11/24/25, 4:00:00 PM"
    assert time_text(1_764_028_800_000) == "11/25/25, 12:00:00 AM"
