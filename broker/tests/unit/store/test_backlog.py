"""A follower's references against a plain dict, with blocks of three."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from understudy.store import backlog
from understudy.store.backlog import Backlog
from understudy.store.reference import LargeReference, MessageReference, pack_location

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
