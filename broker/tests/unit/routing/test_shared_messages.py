"""Counts of messages in several queues against a plain dict."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from understudy.routing.shared_messages import SharedMessages
from understudy.store.live_index import LiveIndex

IDS = st.sets(st.integers(0, 200))


def is_freed(shared: SharedMessages, message_id: int) -> bool:
    """Release a message once. Whether no other queue holds it."""
    return bool(shared.release_range(message_id, 1))


@given(st.dictionaries(st.integers(0, 300), st.integers(2, 70_000)), st.lists(st.integers(0, 300), max_size=300))
def test_releases_count_down(counts: dict[int, int], releases: list[int]) -> None:
    shared = SharedMessages()
    for message_id, count in counts.items():
        shared.add(message_id, count)
    left = dict(counts)
    for message_id in releases:
        expected = left.get(message_id, 1) - 1
        assert is_freed(shared, message_id) == (expected == 0)
        left[message_id] = expected
        if expected <= 1:
            left.pop(message_id)
    assert bool(shared.counts) == bool(left)


@given(st.lists(st.one_of(IDS, st.just(set(range(256)))), max_size=5))
def test_what_several_queues_hold(queues: list[set[int]]) -> None:
    live = LiveIndex()
    for number, ids in enumerate(queues):
        for message_id in ids:
            live.add(number, message_id)
    shared = SharedMessages()
    seen: dict[int, int] = {}
    before: set[int] = set()
    for number, ids in enumerate(queues):
        assert shared.overlay(live.queues.get(number, {}), seen) == len(ids & before)
        before |= ids
    for message_id in before:
        held = sum(message_id in ids for ids in queues)
        for expected in range(held - 1, -1, -1):
            assert is_freed(shared, message_id) == (expected == 0)
    assert not shared.counts


@given(
    st.lists(st.tuples(st.integers(0, 150), st.integers(1, 100), st.integers(2, 4)), max_size=6),
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 200)), max_size=8),
)
def test_neighbours_are_counted_as_one_by_one(
    added: list[tuple[int, int, int]], released: list[tuple[int, int]]
) -> None:
    together, single = SharedMessages(), SharedMessages()
    first_id = 1
    for gap, count, queues in added:
        first_id += gap
        together.add_range(first_id, count, queues)
        for message_id in range(first_id, first_id + count):
            single.add(message_id, queues)
        first_id += count
        assert together.counts == single.counts
    for first_id, count in released:
        freed = together.release_range(first_id, count)
        assert freed == sorted(freed)
        assert all(begin < end for begin, end in freed)
        assert [message_id for begin, end in freed for message_id in range(begin, end)] == [
            message_id for message_id in range(first_id, first_id + count) if is_freed(single, message_id)
        ]
        assert together.counts == single.counts
