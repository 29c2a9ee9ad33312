"""Goal: exact per message, safe against mistakes, and a range question that never says dead wrongly."""

import random

from understudy.store.live_index import LiveIndex


def test_against_sets() -> None:
    stream, index, model = random.Random(1), LiveIndex(), {}
    for _ in range(5000):
        queue_id, message_id = stream.randrange(3), stream.randrange(1000)
        if stream.random() < 0.5:
            index.add(queue_id, message_id)
            model.setdefault(queue_id, set()).add(message_id)
        else:
            index.remove(queue_id, (message_id,))
            model.get(queue_id, set()).discard(message_id)
    assert index.count() == sum(map(len, model.values()))
    for queue_id, ids in model.items():
        for message_id in range(1000):
            assert index.is_live(queue_id, message_id) == (message_id in ids)


def test_removing_twice_or_the_unknown_changes_nothing() -> None:
    index = LiveIndex()
    index.add(1, 10)
    index.add(1, 11)
    index.remove(1, (10, 10, 12, 999))
    index.remove(2, (11,))
    assert index.is_live(1, 11)
    assert index.count() == 1


def test_any_between_never_misses() -> None:
    stream = random.Random(2)
    for _ in range(300):
        index = LiveIndex()
        ids = {stream.randrange(5000) for _ in range(stream.choice((0, 1, 5, 200)))}
        for message_id in ids:
            index.add(stream.randrange(2), message_id)
        first = stream.randrange(5000)
        last = first + stream.choice((0, 10, 3000))
        if any(first <= message_id <= last for message_id in ids):
            assert index.any_between(first, last)
        if not any(first // 64 <= message_id // 64 <= last // 64 for message_id in ids):
            assert not index.any_between(first, last)


def test_empty_masks_are_dropped() -> None:
    index = LiveIndex()
    for message_id in range(1000):
        index.add(7, message_id)
    index.remove(7, range(1000))
    assert index.queues == {7: {}}
    index.remove_queue(7)
    assert index.queues == {}


def test_a_range_is_each_of_its_ids() -> None:
    stream = random.Random(2)
    for _ in range(200):
        first, count = stream.randrange(1, 300), stream.randrange(200)
        range_index, index = LiveIndex(), LiveIndex()
        for filled in (range_index, index):
            filled.add(1, 100)
        range_index.add_range(1, first, count)
        for message_id in range(first, first + count):
            index.add(1, message_id)
        assert range_index.queues == index.queues
