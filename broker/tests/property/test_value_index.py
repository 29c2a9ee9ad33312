"""Selectors by an index of property values against the evaluation of each message.

Goal: consumers get the same messages in the same order whether a queue finds them by an index or looks at each; the
native kernel and its Python twin make the same index.
Method: two worlds run the same program of sends, credits, rollbacks, acknowledgements and time, with consumers whose
selectors are drawn. In one of them no selector has comparisons that an index may use.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.kernels import NATIVE, needs_native
from support.routing import FakeCallback, World, callback_of, text
from support.sends import sends_of
from understudy.kernel.core import frames
from understudy.kernel.log import keep_sends, runs
from understudy.kernel.log.values import run_values
from understudy.message import Message
from understudy.properties import BYTE, BYTES, CHAR, DOUBLE, FLOAT, INT, LONG, NULL, SHORT, STRING, Properties
from understudy.routing.filter import Filter, parse_filter
from understudy.routing.queues.value_index import next_equal
from understudy.selector import parse_selector
from understudy.selector.equalities import NO_EQUALITIES, Equalities
from understudy.store.messages.reference import RunSlice
from understudy.store.messages.reference_block import Block
from understudy.wire.core.codec import encode_send

VALUES = st.one_of(
    st.tuples(st.just(NULL), st.none()),
    st.tuples(st.sampled_from([BYTE, SHORT, INT, LONG]), st.integers(-3, 3)),
    st.tuples(st.just(LONG), st.sampled_from([2**53, 2**53 + 1, 2**63 - 1])),
    st.tuples(st.just(CHAR), st.integers(0, 3)),
    st.tuples(st.sampled_from([FLOAT, DOUBLE]), st.sampled_from([0.0, -0.0, 1.0, 1.5, -3.0, 2.0**53, float("nan")])),
    st.tuples(st.just(STRING), st.sampled_from(["", "1", "x", "X", "é", "\U0001f600"])),
    st.tuples(st.just(BYTES), st.sampled_from([b"", b"x"])),
    st.tuples(st.just(2), st.booleans()),
)
NAMES = ("a", "b", "c")
LITERALS = st.sampled_from(
    ["0", "1", "1.0", "1.5", "-3", "2", "3", "9007199254740992", "9007199254740993", "9223372036854775807", "''",
     "'1'", "'x'", "'é'", "'\U0001f600'", "TRUE"]
)  # fmt: skip
EQUALITIES = st.builds("{} = {}".format, st.sampled_from(NAMES), LITERALS) | st.builds(
    "{1} = {0}".format, st.sampled_from(NAMES), LITERALS
)
CONDITIONS = EQUALITIES | st.sampled_from(
    ["a <> 1", "b IS NULL", "c > 0", "a = b", "NOT (a = 1)", "a = 1 OR b = 1", "a IN ('x')", "JMSPriority = 4", "a",
     "b LIKE 'x%'", "(a = 1) = TRUE", "a = 0 + 1"]
)  # fmt: skip
SELECTORS = st.one_of(
    EQUALITIES,
    st.lists(CONDITIONS, min_size=1, max_size=4).map(" AND ".join),
    st.lists(EQUALITIES, min_size=1, max_size=6).map(" AND ".join),
    st.builds("({}) AND ({})".format, CONDITIONS, CONDITIONS),
    st.builds("convert_string_expressions:{}".format, EQUALITIES),
)
MAPS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3)


def properties_of(values: dict[str, tuple[int, Any]]) -> Properties:
    properties = Properties()
    for name, (tag, value) in values.items():
        properties.set_typed(name, tag, value)
    return properties


def messages_of(maps: list[dict[str, tuple[int, Any]]], **options: Any) -> list[Message]:
    return [text(str(number), properties=properties_of(each), **options) for number, each in enumerate(maps)]


def run_of(messages: list[Message]) -> Any:
    return keep_sends([(sends_of(messages), 0, len(messages))], 100)


def decoded(message: Message) -> Message:
    """The message that the broker reads: a float has the precision of its wire type."""
    return Message.decode(message.encoded)


def meets(equalities: Equalities, message: Message) -> bool:
    index = run_values(run_of([message]), 0, 1, equalities.names)
    return equalities.values in index


@given(SELECTORS, st.lists(MAPS, min_size=1, max_size=6))
@example("a = 1", [{"a": (2, True)}])
@example("a = 9007199254740993", [{"a": (DOUBLE, 2.0**53)}])
def test_every_selected_message_meets_the_comparisons(selector: str, maps: list[dict[str, Any]]) -> None:
    parsed = parse_selector(selector)
    equalities = parsed.equalities
    for message in map(decoded, messages_of(maps)):
        selected = parsed.matches(message)
        if not equalities.names:
            assert not equalities.complete
        elif equalities.complete:
            assert meets(equalities, message) is selected, selector
        else:
            assert meets(equalities, message) or not selected, selector


@pytest.mark.parametrize(
    ("selector", "names", "complete"),
    [
        ("a = 1", 1, True),
        ("'x' = a AND b = 2", 2, True),
        ("(a = 1 AND (b = 2))", 2, True),
        ("a = 1 AND c > 2", 1, False),
        ("a = 1 AND a = 2", 1, False),
        ("a = 1 OR b = 2", 0, False),
        ("NOT a = 1", 0, False),
        ("a = TRUE", 0, False),
        ("a <> 1", 0, False),
        ("a = b", 0, False),
        ("JMSPriority = 4", 0, False),
        ("JMSCorrelationID = 'x'", 1, True),
        ("convert_string_expressions:a = 1", 0, False),
        ("a = 1 AND b = 1 AND c = 1 AND d = 1 AND e = 1", 4, False),
    ],
)
def test_comparisons_of_selectors(selector: str, names: int, complete: bool) -> None:
    equalities = parse_selector(selector).equalities
    assert (len(equalities.names), equalities.complete) == (names, complete)


def test_the_comparisons_of_a_consumer_that_excludes_messages_decide_alone_no_more() -> None:
    world = World()
    world.queue("q")
    session = world.session()
    session.consumers.create(0, "q", "a = 1")
    consumer = session.consumers.by_id[0]
    consumer.exclude(5)
    assert consumer.filter is not None
    assert consumer.filter.equalities.names
    assert not consumer.filter.equalities.complete


@needs_native
@given(
    st.lists(MAPS, min_size=1, max_size=8), st.lists(st.sampled_from([*NAMES, "d"]), min_size=1, max_size=3), st.data()
)
def test_both_kernels_make_the_same_index(maps: list[dict[str, Any]], names: list[str], drawn: st.DataObject) -> None:
    # no NaN: it is not equal to itself
    maps = [{name: each for name, each in values.items() if each[1] == each[1]} for values in maps]
    data = b"".join(encode_send(message, 10, True, 1) for message in messages_of(maps))
    assert NATIVE is not None
    native, twin = (
        module.keep_sends([(split(data, 0, len(data), len(maps)), 0, len(maps))], 100)
        for module, split in ((NATIVE, NATIVE.split_sends), (runs, frames.split_sends))
    )
    begin = drawn.draw(st.integers(0, len(maps)))
    end = drawn.draw(st.integers(begin, len(maps)))
    wanted = [name.encode("utf-16-le") for name in names]
    index, expected = NATIVE.run_values(native, begin, end, wanted), run_values(twin, begin, end, wanted)
    assert index == expected
    assert {key: [type(each) for each in key] for key in index} == {
        key: [type(each) for each in key] for key in expected
    }


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.lists(MAPS, min_size=1, max_size=20), st.sampled_from([0, 0, 5])),
        st.tuples(st.just("priority"), st.lists(MAPS, min_size=1, max_size=4), st.just(0)),
        st.tuples(st.just("one"), MAPS, st.just(0)),
        st.tuples(st.just("credits"), st.integers(0, 3), st.integers(1, 400)),
        st.tuples(st.just("rollback"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("acknowledge"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("time"), st.integers(1, 10), st.just(0)),
    ),
    max_size=14,
)


class Program:
    """One world and what its consumers saw."""

    def __init__(self, selectors: list[str | None]) -> None:
        self.world = World()
        self.queue = self.world.queue("q")
        self.producer = self.world.session()
        self.producer.sends.permit("q")
        self.sessions = []
        for selector in selectors:
            session = self.world.session(callback=FakeCallback(runs=True), transacted=True)
            session.consumers.create(0, "q", selector)
            self.sessions.append(session)

    def run(self, step: tuple[str, Any, Any]) -> None:
        kind, what, more = step
        if kind in ("send", "priority"):
            expiration = self.world.clock.wall_ms() + more if more else 0
            messages = messages_of(what, expiration=expiration, priority=7 if kind == "priority" else 4)
            self.producer.sends.send_batch(sends_of(messages), 0, None)
        elif kind == "one":
            self.producer.sends.send(text("one", properties=properties_of(what)))
        elif kind == "time":
            self.world.clock.advance(what)
        else:
            session = self.sessions[what % len(self.sessions)]
            if kind == "credits":
                session.consumers.receive_credits(0, more)
            elif kind == "rollback":
                session.rollback()
            elif session.consumers.by_id[0].delivering:
                session.acknowledge(0, list(session.consumers.by_id[0].delivering)[-1])
                session.commit()
        self.world.sync()
        while self.world.office.dirty:
            self.world.turn()

    def seen(self) -> list[list[tuple[int, bytes, int]]]:
        return [
            [(message.message_id, message.body, count) for _, message, count in callback_of(session).delivered]
            for session in self.sessions
        ]


def without_comparisons(selector: str | None, *, stored: bool = False) -> Filter | None:
    made = parse_filter(selector, stored=stored)
    if made is not None:
        made.equalities = NO_EQUALITIES
    return made


@given(st.lists(st.none() | SELECTORS, min_size=1, max_size=4), STEPS)
def test_consumers_get_the_same_in_the_same_order(selectors: list[str | None], steps: list[Any]) -> None:
    indexed = Program(selectors)
    with patch("understudy.session.consumers.parse_filter", without_comparisons):
        plain = Program(selectors)
    for step in steps:
        indexed.run(step)
        plain.run(step)
        assert indexed.seen() == plain.seen()
        assert indexed.queue.delivering_count == plain.queue.delivering_count


def test_a_consumer_that_acknowledges_nothing_keeps_few_runs() -> None:
    program = Program([f"a = {number}" for number in range(10)])
    program.run(("credits", 3, 1_000_000))
    for _ in range(30):
        program.run(("send", [{"a": (INT, number)} for number in range(10)], 0))
    consumer = program.sessions[3].consumers.by_id[0]
    ids = list(consumer.delivering)
    assert len(ids) == 30
    runs = [part.run for part in consumer.delivering._parts if isinstance(part, RunSlice)]
    assert sum(run.count > 1 for run in runs) <= 8
    assert sum(run.size_bytes for run in runs) <= (30 + 8 * 10) * runs[0].size_bytes // runs[0].count
    # they are the same messages: settled one by one, given back in order, and delivered again
    for message_id in ids[5:25:2]:
        consumer.delivering.take_one(message_id)
    program.queue.delivering_count -= 10
    program.run(("rollback", 3, 0))
    again = [message.message_id for _, message, _ in callback_of(program.sessions[3]).delivered[30:]]
    assert again == [each for each in ids if each not in ids[5:25:2]]


def test_a_queue_finds_messages_without_an_object_for_each() -> None:
    """100 messages for 100 consumers: no message is decoded, and each selector is looked up twice at most."""
    program = Program([f"a = {number}" for number in range(100)])
    for number in range(100):
        program.run(("credits", number, 100_000))
    with (
        patch.object(Block, "at", side_effect=AssertionError("an object")),
        patch("understudy.routing.queues.level.next_equal", side_effect=next_equal) as looks,
        patch.object(FakeCallback, "deliver", lambda self, consumer_id, part: part.size_bytes),
    ):
        program.run(("send", [{"a": (INT, number)} for number in range(100)], 0))
    assert program.queue.delivering_count == 100
    assert looks.call_count <= 200
