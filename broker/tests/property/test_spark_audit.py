"""Goal: the Spark audit and ``ledger.check`` give the same report on the same files, whatever is in them.

Method: many small histories of any shape, under names of their own, go into few files and one
audit; files are cut into pieces and the order of a course is made from blocks of a few rows.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from understudy.ledger import Kind, Row, check, check_epochs, encode
from understudy.spark.jobs.jobs import RemainingMessages, audit
from understudy.spark.ledger import audits

pytestmark = pytest.mark.spark

ROWS = st.lists(
    st.builds(
        Row,
        st.sampled_from([*Kind, Kind.DELIVERED]),
        st.sampled_from(["p", "r"]),
        st.integers(0, 4) | st.sampled_from([255, 2**40]),
        st.sampled_from(["a", "a", "a", "q"]),
        st.integers(0, 9) | st.integers(0, 2000),
        st.sampled_from(["c", "d", "e"]),
        st.sampled_from(["q", "s", ""]),
        st.integers(0, 2),
        st.sampled_from([0, 1, 1, 2]),
        st.sampled_from([True, True, True, False]),
        st.sampled_from([0, 0, 7, 8]),
        st.sampled_from(["", "", "t", "u"]),
        st.sampled_from(["", "", "", "q", "s"]),
        st.sampled_from([3, 2, 2, 1]),
        st.sampled_from(["", "n1", "n2"]),
        st.sampled_from(["", "i", "j"]),
        st.sampled_from([0, 0, 1, 2, 3]),
    ),
    max_size=30,
)


def dense(seed: int) -> list[Row]:
    """Many rows about few messages: duplicates, acknowledgements across consumers, rewinds."""
    random = Random(seed)
    consumers = random.choice(["c", "cd", "cde"])
    rows = []
    for place in range(random.randrange(10, 40)):
        kind = random.choice([*Kind, Kind.DELIVERED, Kind.ACKNOWLEDGED])
        number, message_id = random.randrange(6), random.choice([0, 1, 1, 1, 2])
        consumer = random.choice(consumers)
        at_ms = 5 * place + 300 * consumers.index(consumer) * random.choice([0, 1]) + random.randrange(10)
        rows.append(Row(kind, "p", number, "a", at_ms, consumer, "q", message_id, random.choice([1, 1, 2])))
    return rows


@st.composite
def orderly(draw: st.DrawFn) -> list[Row]:
    """The ledger of a working broker, with a rewind and at most one fault."""
    count = draw(st.integers(1, 30))
    batch = draw(st.sampled_from([0, 1, 3]))
    rows = [
        Row(
            Kind.SENT, "p", number, "a", 10 * number, digest=number + 1,
            transaction=f"t{number // batch}" if batch else "",
        )
        for number in range(count)
    ]  # fmt: skip
    rows += [Row(Kind.CONFIRMED, "p", number, "a", 10 * number + 3) for number in range(count)]
    rewind = draw(st.integers(0, count - 1))
    successor = draw(st.integers(0, 2 * count))
    opening = [
        Row(Kind.OPENED, "", 0, "", 990, "c", "q"),
        Row(Kind.CLOSED, "", 0, "", 1000 + successor, "c", "q"),
        Row(Kind.OPENED, "", 0, "", 1000 + successor, "b", "q"),
        Row(Kind.CLOSED, "", 0, "", 8000, "b", "q"),
    ]
    del opening[draw(st.integers(0, 4)) :]
    course = [(number, 1) for number in range(count)] + [(number, 2) for number in range(rewind, count)]
    if draw(st.booleans()):
        place = draw(st.integers(0, count - 1))
        course.insert(draw(st.integers(0, count - 1)), course.pop(place))
    rows += [
        Row(
            Kind.DELIVERED,
            "p",
            number,
            "a",
            1000 + place,
            "b" if opening and place > successor else "c",
            "q",
            number + 1,
            again,
            digest=number + 1,
        )
        for place, (number, again) in enumerate(course)
    ]
    rows += opening
    for kind in (Kind.ACKNOWLEDGING, Kind.ACKNOWLEDGED):
        rows += [Row(kind, "p", number, "a", 3000 + number, "c", "q", number + 1) for number in range(count)]
    if draw(st.booleans()):
        rows.append(Row(Kind.DRAINED, "", 0, "a", 9000, "d", "q"))
    if draw(st.booleans()):
        del rows[draw(st.integers(0, len(rows) - 1))]
    return rows


def members_history(seed: int) -> list[Row]:
    """A queue of two members between which messages move: some are delivered at both, few acknowledged at both."""
    random = Random(seed)
    rows = [Row(kind, "p", number, "a", number) for number in range(20) for kind in (Kind.SENT, Kind.CONFIRMED)]
    for number in range(20):
        first, last = random.sample("cd", 2)
        moved = random.random() < 0.6
        at_ms = random.randrange(100, 200)
        rows.append(Row(Kind.DELIVERED, "p", number, "a", at_ms, first, "q", number + 1))
        rows += [Row(Kind.ACKNOWLEDGED, "p", number, "a", at_ms + 2, first, "q")] * random.choice([0, 0, 1, 2])
        if moved:
            again = at_ms + random.choice([1, 50])
            rows.append(Row(Kind.DELIVERED, "p", number, "a", again, last, "q", 1000 + number))
            rows.append(Row(Kind.ACKNOWLEDGED, "p", number, "a", again + 5, last, "q"))
    return rows


def named(rows: list[Row], place: int) -> list[Row]:
    """The history under producers, addresses and queues of its own."""

    def own(name: str) -> str:
        return f"{place}{name}" if name else ""

    return [
        replace(
            row,
            producer=own(row.producer),
            address=own(row.address),
            queue=own(row.queue) if row.consumer else "",
            origin=own(row.origin),
            # a row without an epoch is written without its node
            node=row.node if row.epoch else "",
            node_id=own(row.node_id) if row.epoch else "",
        )
        for row in rows
    ]


@given(
    st.lists(ROWS | orderly() | st.integers(0, 2**32).map(dense), min_size=10, max_size=30),
    st.integers(1, 4),
    st.integers(0, 3),
    st.none() | st.sets(st.tuples(st.integers(0, 5).map("{}p".format), st.integers(0, 4)), max_size=4),
    st.booleans(),
)
@example([dense(seed) for seed in range(4)] + [members_history(seed) for seed in range(4)], 2, 0, None, True)
@settings(
    max_examples=2,  # each takes half a minute: dozens of histories in one audit
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_the_audit_agrees_with_the_reference(
    spark: SparkSession,
    histories: list[list[Row]],
    file_count: int,
    slack_ms: int,
    remaining: set[tuple[str, int]] | None,
    members: bool,
) -> None:
    files: list[list[Row]] = [[] for _ in range(file_count)]
    for place, history in enumerate(histories):
        files[place % file_count] += named(history, place)
    everything = [row for rows in files for row in rows]
    options = {"window_ms": 50 * slack_ms, "clock_skew_ms": slack_ms, "members": members}
    expected = check(everything, remaining=remaining, **options)
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(audits, "BLOCK_BITS", 3)
        paths = [Path(directory) / f"{place}.jsonl" for place in range(file_count)]
        for path, rows in zip(paths, files, strict=True):
            path.write_text("".join(encode(row) for row in rows))
        kept = None
        if remaining is not None:
            kept = Path(directory) / "remaining"
            lines = [f'{{"producer":"{producer}","number":{number}}}\n' for producer, number in remaining]
            kept.write_text("".join(lines))
        found = audit(spark, paths, remaining=RemainingMessages(kept), **options)
    assert found.torn == {}
    assert found.report == expected
    assert found.confirmed_by == check_epochs(everything, clock_skew_ms=slack_ms)
