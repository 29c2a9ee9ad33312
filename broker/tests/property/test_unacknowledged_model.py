"""Outstanding deliveries as ranges, beside a dictionary of single ones: random programs of adding and taking."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from understudy.protocols.amqp091.unacknowledged import DeliveredRange, Unacknowledged

steps = st.lists(
    st.tuples(
        st.sampled_from(
            ("add", "add", "add list", "take", "take", "take each", "take each", "take through", "take all", "restore")
        ),
        st.integers(0, 40), st.integers(1, 6),
    ), max_size=60,
)  # fmt: skip


def single(ranges: list[DeliveredRange]) -> list[tuple[int, tuple[int, int]]]:
    return [
        (each.first_tag + number, (each.consumer_id, message_id))
        for each in ranges
        for number, message_id in enumerate(each.ids)
    ]


@given(steps)
def test_ranges_are_the_deliveries_of_a_dictionary(program: list[tuple[str, int, int]]) -> None:
    ranges, model = Unacknowledged(), dict[int, tuple[int, int]]()
    taken: list[DeliveredRange] = []
    last_tag = last_id = 0
    for action, number, count in program:
        expected: list[tuple[int, tuple[int, int]]] = []
        found: list[DeliveredRange] = []
        if action.startswith("add"):
            ids = range(last_id + 1, last_id + 1 + count)
            if action == "add list":
                ids = [3 * each for each in ids]  # type: ignore[assignment]  # a sequence, too
            ranges.add(last_tag + 1, number % 2, ids)
            model |= {last_tag + 1 + each: (number % 2, message_id) for each, message_id in enumerate(ids)}
            last_tag, last_id = last_tag + count, 3 * (last_id + count)
        elif action == "take":
            expected = [(number, model.pop(number))] if number in model else []
            found = ranges.take(number)
        elif action == "take each":
            # some rise, some fall, some come twice or are not outstanding
            tags = [number + step * each % 5 for step in (1, -2) for each in range(count)]
            for tag in tags:
                if tag not in model:
                    break
                expected.append((tag, model.pop(tag)))
            expected.sort()
            found = ranges.take_each(tags)
        elif action == "take through":
            if number in model:
                expected = [(tag, model.pop(tag)) for tag in sorted(model) if tag <= number]
            found = ranges.take_through(number)
        elif action == "take all":
            expected, model = sorted(model.items()), {}
            found = ranges.take_all()
        else:
            ranges.restore(taken)
            model |= dict(single(taken))
            taken = []
        assert single(found) == expected
        taken += found
        assert len(ranges) == len(model)
        assert single(list(ranges)) == sorted(model.items())


def test_many_ranges_are_taken_from_the_front() -> None:
    ranges = Unacknowledged()
    for tag in range(1, 5001):
        ranges.add(tag, 1, [2 * tag])
    for tag in range(1, 5001):
        assert [each.ids for each in ranges.take(tag)] == [[2 * tag]]
    assert not len(ranges)
    assert list(ranges) == []
