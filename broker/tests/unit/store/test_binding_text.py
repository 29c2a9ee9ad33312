"""The text of an address or queue means what plain JSON says, whichever records came before it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.store.binding_text import read_address, read_queue
from understudy.store.log.records import AddressRecord, QueueRecord, RecordType, decode, encode_address, encode_queue

NAMES = st.one_of(
    st.text(max_size=8), st.sampled_from(["a", "b.c", 'quo"te', "back\\slash", "ä", '"name":"x"', "{", "\x7f", ""])
)
FILTERS = st.one_of(st.none(), st.text(max_size=8), st.sampled_from(["a = '{'", '"name":"x"', "a = 1"]))
SETTINGS = st.dictionaries(
    st.sampled_from(["name", "diverts", "internal", "max_consumers"]),
    st.one_of(st.booleans(), st.integers(-1, 2), st.lists(st.fixed_dictionaries({"name": NAMES}), max_size=2)),
)


@given(st.lists(st.tuples(NAMES, st.integers(0, 1), FILTERS, st.booleans(), SETTINGS), max_size=6))
def test_queues_of_one_log_are_read_as_they_were_written(
    values: list[tuple[str, int, str | None, bool, object]],
) -> None:
    for number, (name, routing_type, filter_text, durable, settings) in enumerate(values):
        record = QueueRecord(number, 7, name, routing_type, filter_text, durable, settings)  # type: ignore[arg-type]
        assert decode(RecordType.QUEUE_ADD, 0, encode_queue(record)) == record


@given(st.lists(st.tuples(NAMES, st.sets(st.integers(0, 1)), st.booleans(), SETTINGS), max_size=6))
def test_addresses_of_one_log_are_read_as_they_were_written(values: list[tuple[str, set[int], bool, object]]) -> None:
    for number, (name, types, auto_created, settings) in enumerate(values):
        record = AddressRecord(number, name, tuple(sorted(types)), auto_created, settings)  # type: ignore[arg-type]
        assert decode(RecordType.ADDRESS_ADD, 0, encode_address(record)) == record


@pytest.mark.parametrize(
    "text",
    [
        '{"settings":{"diverts":[{"name":"inner"}]},"durable":true,"filter":null,"name":"outer","routing_type":1}',
        '{"settings":{"name":"inner"},"durable":true,"filter":null,"name":"outer","routing_type":1}',
        '{"durable":true,"filter":null,"name":"first","routing_type":1,"settings":{},"name":"last"}',
        '{"durable":true,"filter":"\\"name\\":\\"x\\"","name":"outer","routing_type":1,"settings":{}}',
        '{"durable":true,"filter":null,"name":"tab\\tle","routing_type":0,"settings":{}}',
        '{ "durable": true, "filter": null, "name": "spaces", "routing_type": 0, "settings": {} }',
    ],
)
def test_a_text_in_another_order_is_read_as_json_says(text: str) -> None:
    values = json.loads(text)
    wanted = (values["name"], values["routing_type"], values["filter"], values["durable"], values["settings"])
    assert read_queue(text.encode()) == wanted
    assert read_queue(text.encode()) == wanted


def test_neighbours_that_differ_in_the_name_share_their_settings() -> None:
    one, other = (
        read_address(b'{"auto_created":true,"name":"%s","routing_types":[1],"settings":{"internal":true}}' % name)
        for name in (b"one", b"other")
    )
    assert (one[0], other[0]) == ("one", "other")
    assert one[3] is other[3]


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b'{"name":"a"', b'{"name":"a"}', b'[{"name":"a"}]', b'{"durable":1,"filter":null,"name":"a"}',
     b'{"durable":true,"filter":null,"name":"a\nb","routing_type":1,"settings":{}}',
     b'{"durable":true,"filter":null,"name":"a","routing_type":2,"settings":{}}',
     b'{"durable":true,"filter":null,"name":"\xff","routing_type":1,"settings":{}}'],
)  # fmt: skip
def test_a_text_that_no_broker_writes_is_refused(text: bytes) -> None:
    for _ in range(2):
        with pytest.raises((ValueError, KeyError, TypeError)):
            read_queue(text)
