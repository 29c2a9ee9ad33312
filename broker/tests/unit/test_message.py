"""The message layout (artemis-core s. 5): bytes kept, fields read, junk refused."""

from __future__ import annotations

import struct

import pytest

from understudy.errors import LimitExceeded, LocalProtocolError, RemoteProtocolError
from understudy.limits import NAME_UNITS_MAX
from understudy.message import Message, MessageType
from understudy.properties import BYTE, Properties

USER_ID = bytes(range(16))


def full() -> Message:
    properties = Properties({"text": "é", "number": 5})
    properties.set_typed("_AMQ_ROUTING_TYPE", BYTE, 1)
    return Message(
        b"body",
        address="orders",
        type=MessageType.TEXT,
        durable=False,
        priority=9,
        expiration=1,
        timestamp=2,
        user_id=USER_ID,
        properties=properties,
        message_id=3,
    )


def test_layout() -> None:
    message = Message(b"xy", address="a", priority=4, timestamp=7, message_id=5)
    assert message.encoded == bytes.fromhex(
        "0000000f 7879 0000000000000005 01 00000002 6100 00 04 01 0000000000000000 0000000000000007 04 00"
    )
    assert message.encode_size == len(message.encoded)
    assert message.header_offset == 6


def test_decode_is_the_inverse() -> None:
    message = full()
    found = Message.decode(message.encoded)
    assert found.encoded == message.encoded
    for name in ("address", "type", "durable", "priority", "expiration", "timestamp", "user_id", "message_id", "body"):
        assert getattr(found, name) == getattr(message, name), name
    assert dict(found.properties) == {"text": "é", "number": 5, "_AMQ_ROUTING_TYPE": 1}
    assert found.properties.tag("_AMQ_ROUTING_TYPE") == BYTE
    assert repr(found) == "<Message 3 to 'orders', 4 body bytes>"


def test_decode_within_a_larger_buffer() -> None:
    message = full()
    data = b"head" + message.encoded + b"tail"
    assert Message.decode(data, 4, len(data) - 4).encoded == message.encoded


def test_an_anonymous_empty_message() -> None:
    found = Message.decode(Message().encoded)
    assert (found.address, found.user_id, found.body, len(found.properties)) == (None, None, b"", 0)
    assert found.durable
    assert found.priority == 4


def test_the_broker_writes_its_id_in_place() -> None:
    message = Message.decode(full().encoded)
    before = message.encoded
    message.assign_id(2**62)
    assert message.message_id == Message.decode(message.encoded).message_id == 2**62
    assert len(message.encoded) == len(before)
    assert message.encoded.replace((2**62).to_bytes(8), (3).to_bytes(8)) == before


def test_unknown_types_and_flags_are_carried_through_untouched() -> None:
    raw = bytearray(Message(b"b", address="a").encoded)
    at = 5 + 8 + 1 + 4 + 2 + 1
    raw[at : at + 2] = b"\x63\x7f"
    found = Message.decode(bytes(raw))
    assert (found.type, found.durable) == (0x63, True)
    assert found.encoded == raw


def test_replace_copies() -> None:
    message = full()
    other = message.replace(address="dead", expiration=0, message_id=8)
    assert (other.address, other.expiration, other.message_id) == ("dead", 0, 8)
    assert (other.body, other.user_id, other.priority, other.durable) == (b"body", USER_ID, 9, False)
    other.properties["more"] = True
    assert "more" not in message.properties
    assert (
        message.replace(properties=Properties()).encoded
        == Message.decode(message.replace(properties=Properties()).encoded).encoded
    )
    assert dict(message.replace(properties=Properties()).properties) == {}
    assert message.replace().message_id == 0


@pytest.mark.parametrize("priority", [-1, 10])
def test_our_own_mistakes(priority: int) -> None:
    with pytest.raises(LocalProtocolError):
        Message(priority=priority)
    with pytest.raises(LocalProtocolError):
        Message(user_id=bytes(15))


def test_every_cut_is_refused() -> None:
    raw = full().encoded
    for size in range(len(raw)):
        with pytest.raises(RemoteProtocolError):
            Message.decode(raw[:size])
    with pytest.raises(RemoteProtocolError, match="1 bytes after"):
        Message.decode(raw + b"\0")


@pytest.mark.parametrize("end", [-(2**31), -1, 0, 12, 4096, 2**31 - 1])
def test_body_ends_within_the_message(end: int) -> None:
    with pytest.raises(RemoteProtocolError, match="body ends"):
        Message.decode(struct.pack(">i", end) + full().encoded[4:])


@pytest.mark.parametrize("length", [-1, -(2**31), 3, 2**31 - 2])
def test_bad_address_lengths(length: int) -> None:
    raw = bytearray(Message(b"", address="abcdef").encoded)
    raw[13:17] = struct.pack(">i", length)
    # Once with an empty remembered address too, which a negative length must not find.
    Message.decode(Message(b"", address="").encoded)
    for _ in range(2):
        with pytest.raises(RemoteProtocolError):
            Message.decode(bytes(raw))


def test_address_limit() -> None:
    assert Message.decode(Message(address="a" * NAME_UNITS_MAX).encoded).address == "a" * NAME_UNITS_MAX
    with pytest.raises(LimitExceeded):
        Message.decode(Message(address="a" * (NAME_UNITS_MAX + 1)).encoded)


@pytest.mark.parametrize("priority", [-1, 10, 127])
def test_bad_priority(priority: int) -> None:
    raw = bytearray(Message(b"", address="a").encoded)
    raw[-2] = priority & 0xFF
    with pytest.raises(RemoteProtocolError, match="priority"):
        Message.decode(bytes(raw))


def test_remembered_addresses_stay_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    import understudy.message as module

    monkeypatch.setattr(module, "_ADDRESSES", {})
    monkeypatch.setattr(module, "_ADDRESSES_MAX", 4)
    for number in range(20):
        raw = Message(address=f"a{number}").encoded
        assert Message.decode(raw).address == Message.decode(raw).address == f"a{number}"
        assert 1 <= len(module._ADDRESSES) <= 4
    long = Message(address="x" * 1000).encoded
    assert Message.decode(long).address == "x" * 1000
    assert all(len(key) <= 512 for key in module._ADDRESSES)


@pytest.mark.parametrize("field", [{"type": 1 << 40}, {"expiration": 1 << 64}, {"timestamp": -(1 << 64)}])
def test_a_field_out_of_its_range_is_our_own_fault(field: dict[str, int]) -> None:
    """Found by fuzzing: an import file with such a number ended in a struct.error."""
    with pytest.raises(LocalProtocolError):
        Message(b"", **field)  # type: ignore[arg-type]
