"""AMQP 0-9-1: bytes of the specification, and refused ones with their reply codes."""

from __future__ import annotations

import pytest

from understudy.errors import LocalProtocolError
from understudy.limits import AMQP091_TABLE_DEPTH_MAX
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode
from understudy.wire.amqp091.frames import HEARTBEAT, FrameDecoder, encode_frame, method_frame
from understudy.wire.amqp091.layout import METHODS, decode_method, encode_method
from understudy.wire.amqp091.methods import BasicConsume, BasicPublish, ConnectionTune, ExchangeUnbindOk, QueueDeclare
from understudy.wire.amqp091.properties import decode_header, decode_properties, encode_header
from understudy.wire.amqp091.tables import decode_table, encode_table, encode_value


def refused(call: object, *arguments: object, **options: object) -> ReplyCode:
    with pytest.raises(Amqp091Error) as raised:
        call(*arguments, **options)  # type: ignore[operator]
    return raised.value.reply_code


def test_every_method_has_its_own_ids_and_fields_of_the_specification() -> None:
    assert len(METHODS) == 64
    assert METHODS[40, 51] is ExchangeUnbindOk
    assert {kind.name for kind in METHODS.values() if kind.has_content} == {
        "basic.publish",
        "basic.return",
        "basic.deliver",
        "basic.get-ok",
    }


def test_bytes_of_methods() -> None:
    assert encode_method(ConnectionTune(2047, 131072, 60)) == bytes.fromhex("000a001e 07ff 00020000 003c")
    declare = QueueDeclare(0, "q", passive=False, durable=True, exclusive=False, auto_delete=True)
    assert encode_method(declare) == bytes.fromhex("0032000a 0000 0171 0a 00000000")
    consume = BasicConsume(0, "q", "t", no_ack=True, arguments={"x": 1})
    assert encode_method(consume) == bytes.fromhex("003c0014 0000 0171 0174 02 00000007 0178 49 00000001")
    assert decode_method(bytes.fromhex("003c0028 0000 0178 016b 03")) == BasicPublish(0, "x", "k", True, True)
    assert method_frame(ConnectionTune(0, 0, 0), 0)[-1] == 0xCE
    assert bytes.fromhex("08 0000 00000000 ce") == HEARTBEAT


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        ("", ReplyCode.SYNTAX_ERROR),
        ("000a00", ReplyCode.SYNTAX_ERROR),
        ("000a0063", ReplyCode.COMMAND_INVALID),
        ("000a001e 07ff 000200", ReplyCode.SYNTAX_ERROR),
        ("000a001e 07ff 00020000 003c 00", ReplyCode.SYNTAX_ERROR),
        ("003c0028 0000 0578", ReplyCode.SYNTAX_ERROR),
        ("003c0028 0000 01ff 0161 00", ReplyCode.SYNTAX_ERROR),
        ("003c0028 0000 0178 016b", ReplyCode.SYNTAX_ERROR),
        ("000a0014 00000005 00", ReplyCode.SYNTAX_ERROR),
    ],
)
def test_malformed_methods_are_refused(payload: str, code: ReplyCode) -> None:
    assert refused(decode_method, bytes.fromhex(payload)) is code


@pytest.mark.parametrize(
    "table",
    [
        "000000",
        "00000005 0178",
        "00000002 0178",
        "00000003 0178 55",
        "00000003 0578 56",
        "00000007 0178 53 ffffffff",
        "00000007 0178 41 00000001",
        "00000007 0178 46 00000005",
        "00000005 0178 49 0000",
        "00000003 01ff 56",
    ],
)
def test_malformed_tables_are_refused(table: str) -> None:
    data = bytes.fromhex(table)
    assert refused(decode_table, data, 0, len(data)) is ReplyCode.SYNTAX_ERROR


def test_tables_are_limited_in_depth_and_values() -> None:
    value = b""
    for _ in range(26_000):
        value = b"A" + len(value).to_bytes(4, "big") + value
    data = len(value + b"..").to_bytes(4, "big") + b"\x01x" + value
    assert refused(decode_table, data, 0, len(data)) is ReplyCode.SYNTAX_ERROR
    nested: object = []
    for _ in range(AMQP091_TABLE_DEPTH_MAX - 2):
        nested = [nested]
    table = encode_table({"x": nested})
    assert decode_table(table, 0, len(table))[0] == {"x": nested}
    voids = encode_table({"x": [None] * 1_000})
    assert len(decode_table(voids, 0, len(voids))[0]["x"]) == 1_000
    assert refused(decode_table, voids, 0, len(voids), values_max=1_000) is ReplyCode.SYNTAX_ERROR


def test_values_of_other_clients_are_read() -> None:
    data = bytes.fromhex(
        "0000002d 0161 42ff 0162 75ffff 0163 73ffff 0164 69ffffffff 0165 4cffffffffffffffff 0166 663fc00000"
    )
    data = (len(data) - 4).to_bytes(4, "big") + data[4:]
    assert decode_table(data, 0, len(data))[0] == {"a": 255, "b": 65535, "c": -1, "d": 0xFFFFFFFF, "e": -1, "f": 1.5}
    latin = bytes.fromhex("00000008 0161 53 00000001 ff")
    assert decode_table(latin, 0, len(latin))[0] == {"a": b"\xff"}
    with pytest.raises(LocalProtocolError, match="out of range"):
        encode_value(1 << 63)
    with pytest.raises(LocalProtocolError, match="256 bytes"):
        encode_table({"x" * 256: 1})


def test_headers_of_contents() -> None:
    assert decode_header(encode_header(5, b"\x00\x00")) == (5, b"\x00\x00")
    assert refused(decode_header, b"\x00\x3c\x00\x00") is ReplyCode.FRAME_ERROR
    assert refused(decode_header, bytes.fromhex("0032 0000 0000000000000000 0000")) is ReplyCode.UNEXPECTED_FRAME
    assert refused(decode_header, bytes.fromhex("003c 0001 0000000000000000 0000")) is ReplyCode.FRAME_ERROR
    for flags in ("0001", "0002"):
        assert refused(decode_properties, bytes.fromhex(flags)) is ReplyCode.FRAME_ERROR
    for cut in ("", "8000", "8000 05 61", "2000 00000005", "1000", "0040 00", "8000 0161 00"):
        assert refused(decode_properties, bytes.fromhex(cut)) is ReplyCode.SYNTAX_ERROR


def test_frames_above_the_limit_are_refused_before_their_payload() -> None:
    decoder = FrameDecoder(100)
    decoder.receive(bytes.fromhex("01 0000 00000065"))
    assert refused(decoder.next) is ReplyCode.FRAME_ERROR
    decoder = FrameDecoder(100)
    decoder.receive(encode_frame(1, 0, bytes(100)))
    assert decoder.next() == (1, 0, bytes(100))
    decoder.receive(encode_frame(1, 0, b"ab")[:-1] + b"\x00")
    assert refused(decoder.next) is ReplyCode.FRAME_ERROR


def test_codes_that_close_a_channel_and_those_that_close_the_connection() -> None:
    closes = {code for code in ReplyCode if Amqp091Error(code, "").closes_connection}
    assert min(closes - {ReplyCode.SUCCESS}) is ReplyCode.CONNECTION_FORCED
    assert not Amqp091Error(ReplyCode.NOT_FOUND, "").closes_connection
    assert Amqp091Error(ReplyCode.NOT_FOUND, "", closes_connection=True).closes_connection
