"""The order of waiting references, against a plain sorted list."""

from __future__ import annotations

from collections.abc import Iterable

from understudy.routing.queues.level import Level
from understudy.routing.queues.pending import PendingMessages
from understudy.store.messages.backlog import Backlog
from understudy.store.messages.reference import MessageReference


def reference(message_id: int, priority: int = 4) -> MessageReference:
    return MessageReference(message_id, priority, 0, 0, 10, False, None)


def backlog(references: Iterable[MessageReference]) -> Backlog:
    made = Backlog()
    for each in references:
        made.append_reference(each)
    return made


def ids(waiting: PendingMessages) -> list[int]:
    return [each.message_id for each in waiting]


def filled(count: int) -> PendingMessages:
    waiting = PendingMessages()
    for number in range(count):
        waiting.append(reference(number))
    return waiting


def test_higher_priorities_first_then_order_of_arrival() -> None:
    waiting = PendingMessages()
    for message_id, priority in ((1, 4), (2, 9), (3, 4), (4, 0), (5, 9)):
        waiting.append(reference(message_id, priority))
    assert ids(waiting) == [2, 5, 1, 3, 4]
    first = waiting.first_level()
    assert first is not None
    assert first.priority == 9
    assert len(waiting) == 5


def test_a_returned_message_keeps_its_place() -> None:
    waiting = filled(6)
    level = waiting.level(4)
    taken = [level.pop() for _ in range(4)]
    waiting.requeue(each for each in (taken[2], taken[0]) if each is not None)
    assert ids(waiting) == [0, 2, 4, 5]
    assert [each.message_id for each in iter(level.pop, None)] == [0, 2, 4, 5]


def test_put_back_after_its_place_was_cut_off() -> None:
    waiting = filled(4000)
    level = waiting.level(4)
    taken = [level.pop() for _ in range(3000)]
    assert level.blocks[0].base > 2000, "this test needs a block that was used up"
    waiting.requeue(each for each in (taken[2999], taken[5], taken[700], taken[2998]) if each is not None)
    assert ids(waiting)[:5] == [5, 700, 2998, 2999, 3000]
    assert len(waiting) == 1004
    popped = level.pop()
    assert popped is not None
    assert popped.message_id == 5
    waiting.requeue((popped,))
    assert ids(waiting)[:2] == [5, 700]


def test_taking_from_the_middle_leaves_the_others_in_order() -> None:
    waiting = filled(5)
    level = waiting.level(4)
    second = level.next_from(1)
    assert second is not None
    level.remove(second.position)
    assert ids(waiting) == [0, 2, 3, 4]
    after = level.next_from(second.position)
    assert after is not None
    assert after.message_id == 2
    waiting.requeue((second,))
    assert ids(waiting) == [0, 1, 2, 3, 4]


def test_next_from_sees_returned_ones_below_the_base() -> None:
    waiting = filled(3000)
    level = waiting.level(4)
    taken = [level.pop() for _ in range(2500)]
    early = taken[3]
    assert early is not None
    waiting.requeue((early,))
    assert level.next_from(-1) is early
    following = level.next_from(early.position + 1)
    assert following is not None
    assert following.message_id == 2500
    level.remove(early.position)
    assert len(waiting) == 500


def test_drained_positions_stay_valid_for_delivered_messages() -> None:
    waiting = filled(10)
    level = waiting.level(4)
    seventh = level.next_from(7)
    assert seventh is not None
    level.remove(seventh.position)
    assert sum(map(len, waiting.drain())) == 9
    waiting.append(reference(100))
    waiting.requeue((seventh,))
    assert ids(waiting) == [7, 100]


def test_adopting_many_of_one_priority_keeps_order_and_positions() -> None:
    waiting = PendingMessages()
    waiting.adopt(backlog(reference(number) for number in range(5)))
    level = waiting.level(4)
    first, second = level.pop(), level.pop()
    assert first is not None
    assert second is not None
    waiting.requeue((second, first))
    assert ids(waiting) == [0, 1, 2, 3, 4]


def test_adopting_mixed_priorities() -> None:
    waiting = PendingMessages()
    waiting.adopt(backlog((reference(1, 0), reference(2, 9), reference(3, 0))))
    assert ids(waiting) == [2, 1, 3]


def test_an_empty_level_gives_nothing() -> None:
    level = Level(4)
    assert level.pop() is None
    assert level.next_from(-1) is None
    assert PendingMessages().first_level() is None
