"""Goal: a message comes back from its line exactly, typed; its duplicate id is the same each time and
differs for a different message of the same id; other files are refused with a reason.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from zlib import crc32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from understudy.ids import Xid
from understudy.message import DELIVERIES, DUPLICATE_ID, SENT_TO, TRANSFER, LargeBody, LargeMessage, Message
from understudy.properties import (
    BOOLEAN,
    BYTE,
    BYTES,
    CHAR,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    NULL,
    SHORT,
    STRING,
    Properties,
)
from understudy.store.log.records import MESSAGE_LARGE, AddressRecord, MessageRecord, QueueRecord
from understudy.store.messages.reference import MessageReference
from understudy.tools.contents import LiveMessage
from understudy.tools.export import (
    ORIGINAL_DUPLICATE_ID,
    BodyCheck,
    ExportedMessage,
    ExportedPiece,
    ExportedQueue,
    ExportedTransaction,
    ExportEnd,
    ExportHeader,
    diverts_of,
    end_line,
    header_line,
    message_line,
    parse_line,
    piece_line,
    queue_line,
    transaction_line,
)

HEADER = ExportHeader("0f1e2d3c-4b5a-4697-8897-a6b5c4d3e2f1", 3, 99, "/store")


def live(message: Message, message_id: int = 5, queue: str = "q") -> LiveMessage:
    record = MessageRecord(message_id, 0, 1, 0, 0, message.priority, 0, (2,), b"", message.encoded)
    reference = MessageReference(message_id, message.priority, 0, 0, len(message.encoded), True, None)
    reference.delivery_count = 4
    return LiveMessage(QueueRecord(2, 1, queue, 1, "a = 1"), AddressRecord(1, "addr", (0, 1)), reference, 3, 77, record)


def queue_of(one: LiveMessage) -> tuple[QueueRecord, AddressRecord | None]:
    return one.queue, one.address


def there_and_back(message: Message, message_id: int = 5, queue: str = "q") -> ExportedMessage:
    parsed = parse_line(message_line(live(message, message_id, queue)), HEADER)
    assert isinstance(parsed, ExportedMessage)
    return parsed


VALUES = st.one_of(
    st.tuples(st.just(NULL), st.none()),
    st.tuples(st.just(BOOLEAN), st.booleans()),
    st.tuples(st.just(BYTE), st.integers(-128, 127)),
    st.tuples(st.just(BYTES), st.binary()),
    st.tuples(st.just(SHORT), st.integers(-(2**15), 2**15 - 1)),
    st.tuples(st.just(INT), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just(LONG), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just(FLOAT), st.floats(width=32)),
    st.tuples(st.just(DOUBLE), st.floats()),
    st.tuples(st.just(STRING), st.text(st.characters())),
    st.tuples(st.just(CHAR), st.integers(0, 65535)),
)


@given(
    body=st.binary(),
    address=st.one_of(st.none(), st.text(st.characters(), max_size=20)),
    kind=st.integers(0, 127),
    durable=st.booleans(),
    priority=st.integers(0, 9),
    expiration=st.integers(0, 2**62),
    timestamp=st.integers(0, 2**62),
    user_id=st.one_of(st.none(), st.binary(min_size=16, max_size=16)),
    entries=st.dictionaries(st.text(st.characters(), max_size=10), VALUES, max_size=6),
)
@example(
    body=b"",
    address=None,
    kind=0,
    durable=False,
    priority=0,
    expiration=0,
    timestamp=0,
    user_id=None,
    entries={"a": (DOUBLE, -math.nan), "b": (FLOAT, -math.nan)},
)
def test_a_message_comes_back_to_the_byte(
    body: bytes,
    address: str | None,
    kind: int,
    durable: bool,
    priority: int,
    expiration: int,
    timestamp: int,
    user_id: bytes | None,
    entries: dict[str, tuple[int, object]],
) -> None:
    properties = Properties()
    for name, (tag, value) in entries.items():
        properties.set_typed(name, tag, value)  # type: ignore[arg-type]
    message = Message(
        body,
        address=address,
        type=kind,
        durable=durable,
        priority=priority,
        expiration=expiration,
        timestamp=timestamp,
        user_id=user_id,
        properties=properties,
    )
    original = message.encoded
    message.assign_id(5)
    parsed = there_and_back(message)
    assert parsed.message.encoded == original
    assert (parsed.epoch, parsed.sequence, parsed.message_id, parsed.delivery_count) == (3, 77, 5, 4)


def test_duplicate_ids() -> None:
    message = Message(b"one", address="a")
    first = there_and_back(message)
    assert first.duplicate_id == there_and_back(message).duplicate_id
    # another message to which a copy that went its own way gave the same id
    assert first.duplicate_id != there_and_back(Message(b"two", address="a")).duplicate_id
    assert first.duplicate_id != there_and_back(message, message_id=6).duplicate_id
    assert first.duplicate_id != there_and_back(message, queue="r").duplicate_id
    sent = first.to_send("x::q")
    assert (sent.address, sent.body, sent.properties[DUPLICATE_ID]) == ("x::q", b"one", first.duplicate_id)
    assert ORIGINAL_DUPLICATE_ID not in sent.properties


def test_the_producers_duplicate_id_is_kept_beside() -> None:
    properties = Properties()
    properties.set_typed(DUPLICATE_ID, BYTES, b"\x01\x02")
    sent = there_and_back(Message(b"", address="a", properties=properties)).to_send("a::q")
    assert sent.properties[ORIGINAL_DUPLICATE_ID] == b"\x01\x02"
    assert sent.properties.tag(ORIGINAL_DUPLICATE_ID) == BYTES


def test_a_large_message_goes_without_what_spoke_of_its_file() -> None:
    body = LargeBody(9, 11, crc32(b"hello world"))
    header = Message(b"", address="a", type=3, priority=7, properties={"_AMQ_LARGE_COMPRESSED": True, "name": "x"})
    message = LargeMessage.of(header, body, 4711)
    record = MessageRecord(9, 0, 1, 0, 0, 7, MESSAGE_LARGE, (2,), b"", message.encoded)
    one = dataclasses.replace(live(message), record=record)
    parsed = parse_line(message_line(one, transaction_id=77), HEADER)
    assert isinstance(parsed, ExportedMessage)
    assert (parsed.large, parsed.compressed, parsed.transaction_id) == (body, True, 77)
    sent = parsed.to_send("a::q")
    assert (sent.body, sent.type, sent.priority) == (b"", 3, 7)
    assert sorted(sent.properties) == sorted([DUPLICATE_ID, TRANSFER, "name"])
    # another body with the same id and size is another message
    other = LargeMessage.of(header, body._replace(crc=5), 4711)
    assert there_and_back(other).duplicate_id != parsed.duplicate_id


@given(st.binary(min_size=1), st.data())
def test_pieces_are_in_order_and_whole_or_refused(body: bytes, data: st.DataObject) -> None:
    cuts = sorted({0, len(body), *data.draw(st.lists(st.integers(0, len(body)), max_size=4))})
    pieces = [parse_line(piece_line(a, body[a:b]), HEADER) for a, b in itertools.pairwise(cuts)]
    check = BodyCheck(LargeBody(1, len(body), crc32(body)))
    assert [check.add(piece) for piece in pieces] == [False] * (len(pieces) - 1) + [True]  # type: ignore[arg-type]
    broken = data.draw(st.sampled_from(["swapped", "flipped", "longer"]))
    check = BodyCheck(LargeBody(1, len(body), crc32(body)))
    if broken == "swapped":
        wrong = [ExportedPiece(1, body)]
    elif broken == "flipped":
        wrong = [ExportedPiece(0, bytes([body[0] ^ 1]) + body[1:])]
    else:
        wrong = [ExportedPiece(0, body + b"x")]
    with pytest.raises(ValueError):
        for piece in wrong:
            check.add(piece)


def test_a_prepared_transaction() -> None:
    transaction = ExportedTransaction(5, Xid(-1, b"g", b"q"), "prepared", 3, (("q", (1, 2)),))
    assert parse_line(transaction_line(transaction), HEADER) == transaction
    without = dataclasses.replace(transaction, xid=None)
    assert parse_line(transaction_line(without), HEADER) == without


def test_the_other_lines() -> None:
    assert parse_line(header_line(HEADER), None) == HEADER
    queue = parse_line(queue_line(*queue_of(live(Message(address="a")))), HEADER)
    assert queue.name == "q"  # type: ignore[union-attr]
    assert queue.address_routing_types == (0, 1)  # type: ignore[union-attr]
    end = parse_line(end_line(3, 1), HEADER)
    assert (end.messages, end.left_out) == (3, 1)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "change",
    [
        {"body": "not base64!"},
        {"priority": 10},
        {"properties": [["a", "byte", 300]]},
        {"properties": [["a", "int", "1"]]},
        {"properties": [["a", "colour", 1]]},
        {"properties": [["a", "null", 1]]},
        {"properties": [["a"]]},
        {"user_id": "00"},
        {"address": 5},
        {"type": None},
    ],
)
def test_a_malformed_message_is_refused(change: dict[str, object]) -> None:
    fields = json.loads(message_line(live(Message(b"x", address="a"))))["message"]
    with pytest.raises(ValueError):
        parse_line(json.dumps({"message": fields | change}), HEADER)
    for name in fields:
        with pytest.raises(ValueError, match=name):
            parse_line(json.dumps({"message": {key: value for key, value in fields.items() if key != name}}), HEADER)


@pytest.mark.parametrize("line", ["", "7", "[]", "{}", '{"what": {}}', '{"export": {"format": 3}}', '{"a":1,"b":2}'])
def test_an_invalid_line_is_refused(line: str) -> None:
    for header in (None, HEADER):
        with pytest.raises(ValueError):
            parse_line(line, header)


def test_a_message_that_goes_back_says_where_it_was_and_how_often_it_was_delivered() -> None:
    origin = {"_AMQ_ORIG_ADDRESS": "work", "_AMQ_ORIG_QUEUE": "work", "_AMQ_ACTUAL_EXPIRY": 5}
    exported = there_and_back(Message(b"", address="addr", properties=origin))
    back = exported.to_send("addr::q", back=True).properties
    assert {name: back[name] for name in origin} == origin
    assert (back[SENT_TO], back[DELIVERIES], back[TRANSFER]) == ("addr", 4, 3)
    replayed = exported.to_send("addr").properties
    assert {name: replayed[name] for name in origin} == origin
    assert SENT_TO not in replayed
    assert DELIVERIES not in replayed


def test_the_settings_of_a_queue_and_the_names_of_diverts_are_in_the_file() -> None:
    settings: dict[str, object] = {"last_value": True, "last_value_key": "isin", "ring_size": 5, "auto_created": True}
    kept = {"diverts": [{"name": "copy", "address": "addr", "forwarding_address": "other", "exclusive": False}]}
    address = AddressRecord(1, "addr", (0, 1), True, kept)
    one = dataclasses.replace(
        live(Message(b"")), queue=QueueRecord(2, 1, "q", 1, None, True, settings), address=address
    )
    queue = parse_line(queue_line(*queue_of(one)), HEADER)
    assert isinstance(queue, ExportedQueue)
    assert (queue.settings, queue.address_auto_created, queue.address_routing_types) == (settings, True, (0, 1))
    end = parse_line(end_line(3, 1, 0, diverts_of([address])), HEADER)
    assert isinstance(end, ExportEnd)
    assert end.diverts == (("copy", "addr", "other"),)


def test_a_file_of_an_earlier_version_is_read() -> None:
    line = json.loads(queue_line(*queue_of(live(Message(b"")))))
    for name in ("settings", "address_auto_created"):
        del line["queue"][name]
    queue = parse_line(json.dumps(line), HEADER)
    assert isinstance(queue, ExportedQueue)
    assert (queue.settings, queue.address_auto_created) == ({}, False)
