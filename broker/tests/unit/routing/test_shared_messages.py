"""Counts of messages in several queues against a plain dict."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from understudy.routing.shared_messages import SharedMessages
from understudy.store.live_index import LiveIndex

IDS = st.sets(st.integers(0, 200))


@given(st.dictionaries(st.integers(0, 300), st.integers(2, 70_000)), st.lists(st.integers(0, 300), max_size=300))
def test_releases_count_down(counts: dict[int, int], releases: list[int]) -> None:
    shared = SharedMessages()
    for message_id, count in counts.items():
        shared.add(message_id, count)
    left = dict(counts)
    for message_id in releases:
        expected = left.get(message_id, 1) - 1
        assert shared.release(message_id) == expected
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
            assert shared.release(message_id) == expected
    assert not shared.counts
