"""Blocks of a level that are made of messages that came alone, and the memory that browsed ones keep."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable

import pytest

from support.sends import sends_of
from understudy.kernel.log import LogPosition, append_sends, keep_sends
from understudy.message import Message
from understudy.routing.queues.level import Level
from understudy.store.messages.reference import MessageReference, RunSlice

Add = Callable[[Level, int], None]


def add_durable(level: Level, message_id: int, size: int = 10) -> None:
    sends = sends_of([Message(b"x" * size, address="a", durable=True)])
    position = LogPosition(7, 100 * message_id, 1 << 40, 0, 0, 0)
    run = append_sends([(sends, 0, 1)], message_id, 1, (1,), 0, position)
    level.add(RunSlice(run, 0, 1, 4, -1))


def add_transient(level: Level, message_id: int) -> None:
    sends = sends_of([Message(b"x" * 10, address="a")])
    level.add(RunSlice(keep_sends([(sends, 0, 1)], message_id), 0, 1, 4, -1))


def filled(count: int, *, add: Add = add_durable, step: int = 1) -> Level:
    level = Level(4)
    for number in range(count):
        add(level, 1 + number * step)
    return level


def objects() -> int:
    gc.collect()
    types = Counter(map(type, gc.get_objects()))
    return sum(count for kind, count in types.items() if issubclass(kind, MessageReference | Message))


@pytest.mark.parametrize("add", [add_durable, add_transient])
@pytest.mark.parametrize("step", [1, 3])
def test_messages_that_come_alone_wait_without_objects_in_few_blocks(add: Add, step: int) -> None:
    before = objects()
    level = filled(10_000, add=add, step=step)
    assert len(level.blocks) < 40
    assert objects() == before
    taken: list[int] = []
    parts = 0
    while level.count:
        part = level.take_plain(1 << 30, 25, 0)
        taken += part.ids
        parts += 1
    assert taken == [1 + number * step for number in range(10_000)]
    assert parts < 40


def test_a_queue_that_was_looked_through_keeps_no_objects() -> None:
    level = filled(5_000)
    before = objects()
    position = -1
    while (reference := level.next_from(position)) is not None:
        position = reference.position + 1
    del reference
    assert position == 5_000
    assert objects() - before < 2 * 2 * 1024, "those of the first block and of the last"


def test_messages_that_cannot_be_joined_are_still_in_few_blocks() -> None:
    level = Level(4)
    for number in range(3_000):
        (add_durable if number % 2 else add_transient)(level, number + 1)
    assert len(level.blocks) < 300
    assert [each.message_id for each in level] == list(range(1, 3_001))
    assert sum(reference.durable for reference in level) == 1_500


def test_long_messages_are_not_joined_to_long_buffers() -> None:
    level = Level(4)
    for number in range(200):
        add_durable(level, number + 1, size=20_000)
    assert max(block.run.size_bytes for block in level.blocks if block.run is not None) <= 64 * 1024
    assert [each.message_id for each in level] == list(range(1, 201))


def test_a_joined_run_gives_each_message_its_own_place_in_the_log() -> None:
    level = filled(200, step=2)
    assert [each.location and each.location >> 32 & 0xFFFF_FFFF for each in level] == [
        100 * (1 + 2 * number) for number in range(200)
    ]


@pytest.mark.parametrize("add", [add_durable, add_transient])
def test_neighbours_are_given_as_they_wait_and_taken_from_anywhere(add: Add) -> None:
    level = filled(200, add=add)
    returned = [level.next_from(5), level.next_from(6)]
    for each in returned:
        assert each is not None
        level.remove(each.position)
    level.requeue([each for each in returned if each is not None])
    level.remove(20)
    found: list[list[int]] = []
    position = 0
    while (part := level.part_from(position, 50)) is not None:
        found.append([*part.ids])
        position = part[-1].position + 1
    assert level.count == 199, "they stay"
    assert [each for part in found for each in part] == [*range(1, 21), *range(22, 201)]
    assert [6, 7] in found, "messages that were put back are objects"
    middle = level.part_from(100, 50)
    assert middle is not None
    level.take(middle.part(10, 20))
    put_back = level.part_from(5, 50)
    assert put_back is not None
    level.take(put_back)
    assert [each.message_id for each in level] == [*range(1, 6), *range(8, 21), *range(22, 111), *range(121, 201)]
    assert level.count == len([*level])


def test_the_rest_of_a_run_gives_up_its_bodies_as_they_are_taken() -> None:
    level = filled(60)
    first, rest = level.part_from(0, 50), level.part_from(50, 10)
    assert first is not None
    assert rest is not None
    level.take(first)
    level.take(rest.part(2, 4))
    assert [each.message_id for each in level] == [51, 52, *range(55, 61)]
    assert all(each.message is not None for each in level)
