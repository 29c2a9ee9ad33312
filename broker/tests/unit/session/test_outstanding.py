"""Goal: outstanding deliveries are those of an ordered dictionary, whether they came alone or as slices of runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from support.sends import sends_of
from understudy.kernel.log import LogPosition, append_sends, keep_sends
from understudy.message import Message
from understudy.session.consumer import Outstanding
from understudy.store.messages.reference import MessageReference, References, RunSlice

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("alone"), st.just(1)),
        st.tuples(st.just("together"), st.integers(1, 8)),
        st.tuples(st.just("neighbours"), st.integers(2, 8)),
        st.tuples(st.just("tried before"), st.integers(2, 8)),
        st.tuples(st.just("list"), st.integers(1, 4)),
        st.tuples(st.just("through"), st.integers(0, 30)),
        st.tuples(st.just("each"), st.integers(0, 30)),
        st.tuples(st.just("one"), st.integers(0, 30)),
        st.tuples(st.just("unknown"), st.just(0)),
    ),
    max_size=40,
)


def references(first_id: int, count: int) -> list[MessageReference]:
    return [MessageReference(first_id + number, 4, 0, 0, 100, False, None) for number in range(count)]


@given(STEPS)
def test_deliveries_are_settled_in_order_or_one_by_one(steps: list[tuple[str, int]]) -> None:
    outstanding = Outstanding()
    model: list[int] = []
    next_id = 1
    for kind, number in steps:
        if kind == "alone":
            outstanding.add(References(references(next_id, 1)))
        elif kind == "list":
            outstanding.add(References(references(next_id, number)))
        elif kind == "together":
            sends = sends_of([Message(b"m", address="a")] * number)
            outstanding.add(RunSlice(keep_sends([(sends, 0, number)], next_id), 0, number, 4, 10, 1))
        elif kind in ("neighbours", "tried before"):
            sends = sends_of([Message(b"m", address="a")] * number)
            run = keep_sends([(sends, 0, number)], next_id)
            for row in range(number):
                deliveries = 2 if kind == "tried before" and row == 1 else 1
                outstanding.add(RunSlice(run, row, row + 1, 4, 10 + row, deliveries))
        elif kind == "unknown":
            assert not outstanding.take_one(next_id)
            assert outstanding.take_through(next_id) == []
            assert outstanding.take_through_each([next_id]) == (0, [])
        elif model:
            message_id = model[number % len(model)]
            if kind == "one":
                (taken,) = outstanding.take_one(message_id)
                assert taken.message_id == message_id
                model.remove(message_id)
            elif kind == "each":
                # every second one up to it, and then one that is taken already
                end = model.index(message_id) + 1
                wanted = [*model[: end - 1 : 2], message_id]
                count, parts = outstanding.take_through_each([*wanted, model[0], *model[end:]])
                assert count == len(wanted)
                assert [each.message_id for part in parts for each in part] == model[:end]
                del model[:end]
            else:
                end = model.index(message_id) + 1
                parts = outstanding.take_through(message_id)
                assert [each.message_id for part in parts for each in part] == model[:end]
                del model[:end]
        if kind in ("alone", "list", "together", "neighbours", "tried before"):
            model += range(next_id, next_id + number)
            next_id += number
        assert list(outstanding) == model
        assert [each.message_id for each in outstanding.values()] == model
        assert len(outstanding) == len(model)
        assert (next_id in outstanding) is False
    assert [each.message_id for each in outstanding.clear()] == model
    assert not outstanding


def test_messages_delivered_together_return_with_their_positions_and_counts() -> None:
    outstanding = Outstanding()
    sends = sends_of([Message(b"m", address="a", expiration=number) for number in range(5)])
    run = append_sends([(sends, 0, 5)], 100, 1, (1, 2), 0, LogPosition(1, 0, 10_000, 0, 0, 0))
    shared: dict[int, Message] = {}
    outstanding.add(RunSlice(run, 1, 5, 4, 21, 1, durable=False, shared=shared))
    outstanding.take_one(102)
    found = outstanding.clear()
    assert [(each.message_id, each.position, each.delivery_count, each.expiration) for each in found] == [
        (101, 21, 1, 1),
        (103, 23, 1, 3),
        (104, 24, 1, 4),
    ]
    assert [(each.durable, each.location) for each in found] == [(False, None)] * 3


def test_a_message_that_several_queues_hold_is_in_memory_once() -> None:
    sends = sends_of([Message(b"m", address="a")] * 3)
    run = append_sends([(sends, 0, 3)], 100, 1, (1, 2), 0, LogPosition(1, 0, 10_000, 0, 0, 0))
    shared: dict[int, Message] = {}
    one, other = (RunSlice(run, 0, 3, 4, -1, durable=durable, shared=shared) for durable in (True, False))
    assert [each.message for each in one[:2]] == [each.message for each in other[:2]]
    assert one[2].message is other.part(1, 3)[1].message
    assert [(each.durable, each.location is None) for each in (one[0], other[0])] == [(True, False), (False, True)]


def test_each_delivery_has_its_time_within_a_second() -> None:
    outstanding = Outstanding()
    for number in range(4):
        outstanding.add(References(references(1 + 2 * number, 2)), 10_000 + 600 * number)
    assert [outstanding.delivered_ms(number) for number in range(1, 10)] == [10_000] * 4 + [11_200] * 4 + [None]
    outstanding.take_one(2)
    assert [outstanding.delivered_ms(number) for number in (1, 2, 3)] == [10_000, None, 10_000]
    outstanding.take_through(5)
    assert outstanding.oldest_ms == 11_200
    outstanding.take_through(8)
    assert outstanding.oldest_ms is None
