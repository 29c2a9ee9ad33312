"""A follower's references against a plain dict, with blocks of three."""

from __future__ import annotations

from array import array
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from understudy.store.live_index import LiveIndex
from understudy.store.messages import backlog
from understudy.store.messages.backlog import Backlog
from understudy.store.messages.columns import Rows
from understudy.store.messages.reference import LargeReference, MessageReference, pack_location

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 8), st.sampled_from([4, 4, 4, 0])),
        st.tuples(st.just("late"), st.integers(1, 3), st.just(4)),
        st.tuples(st.just("first"), st.integers(1, 8), st.just(0)),
        st.tuples(st.just("any"), st.integers(0, 99), st.just(0)),
        st.tuples(st.just("count"), st.integers(0, 99), st.integers(1, 5)),
        st.tuples(st.just("unknown"), st.integers(0, 99), st.just(0)),
    ),
    max_size=60,
)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "BLOCK_REFERENCES", 3)
    monkeypatch.setattr(backlog, "_OPEN_BLOCKS", 1)


def file_of(reference: MessageReference) -> int | None:
    return reference.file_id if isinstance(reference, LargeReference) else None


def contents(log: Backlog) -> dict[int, tuple[int, ...]]:
    return {
        each.message_id: (
            each.priority,
            each.expiration,
            each.scheduled_ms,
            each.size_bytes,
            file_of(each),
            each.delivery_count,
        )
        for each in log.references()
    }


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_it_is_a_dict_in_log_order(steps: list[tuple[str, int, int]]) -> None:
    log = Backlog()
    expected: dict[int, tuple[int, ...]] = {}
    next_id, late = 1000, 999
    for kind, number, more in steps:
        ids = list(expected)
        if kind in ("add", "late"):
            for _ in range(number):
                # a transaction commits after messages that were sent later
                message_id = next_id if kind == "add" else late
                next_id, late = (next_id + 1, late) if kind == "add" else (next_id, late - 1)
                row = (more, message_id % 3, message_id % 5, 10 + message_id % 7)
                # every fourth is large, some of them share a file as dead letters do
                file_id = message_id // 8 if message_id % 4 == 0 else None
                log.append(message_id, *row, pack_location(1, 10 * message_id, 10), file_id=file_id)
                expected[message_id] = (*row, file_id, 0)
        elif kind == "first":
            for message_id in sorted(expected, key=lambda each: -expected[each][0])[:number]:
                assert log.remove(message_id)
                del expected[message_id]
        elif kind == "any" and ids:
            message_id = ids[number % len(ids)]
            reference = log.pop(message_id)
            assert reference is not None
            assert reference.location == pack_location(1, 10 * message_id, 10)
            del expected[message_id]
        elif kind == "count" and ids:
            message_id = ids[number % len(ids)]
            log.set_delivery_count(message_id, more)
            expected[message_id] = (*expected[message_id][:-1], more)
        elif kind == "unknown":
            assert not log.remove(10**6 + number)
            assert log.get(10**6 + number) is None
            log.set_delivery_count(10**6 + number, 1)
        assert contents(log) == expected
        assert list(contents(log)) == sorted(expected, key=lambda each: -expected[each][0])
        assert (log.count, log.size_bytes) == (len(expected), sum(row[3] for row in expected.values()))
        assert log.expiring_count == sum(row[1] > 0 for row in expected.values())
        assert log.scheduled_count == sum(row[2] > 0 for row in expected.values())
        assert log.files == Counter(row[4] for row in expected.values() if row[4] is not None)
    later = {each.message_id for each in log.scheduled_after(2)}
    assert later == {message_id for message_id, row in expected.items() if row[2] > 2}
    blocks = log.blocks()
    left = [each.message_id for priority in sorted(blocks, reverse=True) for block in blocks[priority]
            for each in block.references()]  # fmt: skip
    assert left == [each for each in sorted(expected, key=lambda each: -expected[each][0]) if each not in later]


BULK_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), st.integers(1, 8), st.sampled_from([0, 0, 0, 1]), st.sampled_from([1, 1, 2])),
        st.tuples(st.just("acknowledge"), st.integers(0, 20), st.integers(1, 9), st.just(0)),
        st.tuples(st.just("count"), st.integers(0, 20), st.integers(1, 3), st.just(0)),
    ),
    max_size=30,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(BULK_STEPS)
def test_rows_come_and_go_in_bulk_as_one_by_one(steps: list[tuple[str, int, int, int]]) -> None:
    """The same as single references: contents, order, counts and bytes, and the live index beside it."""
    bulk, single = Backlog(), Backlog()
    live, live_single = LiveIndex(), LiveIndex()
    waiting: list[int] = []
    next_id = 1000
    for kind, number, more, segment in steps:
        if kind == "rows":
            # with gaps, as where other queues get messages too
            ids = [next_id + 3 * each if segment == 2 else next_id + each for each in range(number)]
            next_id = ids[-1] + 1
            times = array("q", [each % 3 for each in ids]) if more else None
            fields = [10 * each for each in ids], [10] * number, [each % 7 for each in ids]
            rows = Rows(array("Q", ids), *(array("I", each) for each in fields), times, times)
            bulk.extend(4, segment, rows)
            live.add_all(7, rows.ids)
            for message_id in ids:
                time = message_id % 3 if more else 0
                single.append(message_id, 4, time, time, message_id % 7, pack_location(segment, 10 * message_id, 10))
                live_single.add(7, message_id)
            waiting += ids
        elif kind == "acknowledge":
            gone = [*waiting[number : number + more], 5]
            bulk.remove_all(gone, lambda message_id: live.is_live(7, message_id))
            live.remove(7, gone)
            for message_id in gone[:-1]:
                assert single.remove(message_id)
                waiting.remove(message_id)
                live_single.remove(7, [message_id])
        elif number < len(waiting):
            bulk.set_delivery_count(waiting[number], more)
            single.set_delivery_count(waiting[number], more)
        assert contents(bulk) == contents(single)
        assert list(bulk) == waiting
        assert [each.location for each in bulk.references()] == [each.location for each in single.references()]
        assert (bulk.count, bulk.size_bytes) == (single.count, single.size_bytes)
        assert (bulk.expiring_count, bulk.scheduled_count) == (single.expiring_count, single.scheduled_count)
        assert live.queues.get(7, {}) == live_single.queues.get(7, {})
