"""Names in encoded values stay within the directory; lengths are checked before bytes are taken."""

from __future__ import annotations

import pytest

from understudy.errors import LimitExceeded, RemoteProtocolError
from understudy.limits import REPLICATED_NAME_BYTES_MAX
from understudy.store.log.operations import Append, CreateFile, RemoveFile, SealSegment, WriteZeros
from understudy.store.log.records import SealRecord
from understudy.store.replication import operation_codec
from understudy.store.replication.copy_messages import Directory, DropFile, Piece, decode_message, encode_message


def encoded(*operations: object) -> bytes:
    return b"".join(operation_codec.encode(operations))


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("/etc/passwd", "leaves the directory"),
        ("../server.lock", "leaves the directory"),
        ("quarantine/../../x", "leaves the directory"),
        ("a//b", "leaves the directory"),
        (".", "leaves the directory"),
        ("", "leaves the directory"),
        ("a\0b", "NUL"),
        ("a/b/c", "more than one directory below"),
    ],
)
def test_a_name_outside_of_the_directory_is_refused(name: str, fault: str) -> None:
    with pytest.raises(RemoteProtocolError, match=f"operation 1: CreateFile: field name .*{fault}"):
        operation_codec.decode(encoded(RemoveFile("x"), CreateFile(name)))
    with pytest.raises(RemoteProtocolError, match=f"DropFile: field name .*{fault}"):
        decode_message(b"".join(encode_message(DropFile(Directory.LOG, name))))


def test_a_long_name_is_refused() -> None:
    operation_codec.decode(encoded(CreateFile("x" * REPLICATED_NAME_BYTES_MAX)))
    with pytest.raises(LimitExceeded, match="field name"):
        operation_codec.decode(encoded(CreateFile("x" * (REPLICATED_NAME_BYTES_MAX + 1))))


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="WriteZeros: field length"):
        operation_codec.decode(encoded(WriteZeros("s", 0, 1 << 30)))
    with pytest.raises(RemoteProtocolError, match="size_bytes is 3"):
        operation_codec.decode(encoded(Append("s", 0, (b"ab",), 3, 1)))
    seal = SealSegment("s", SealRecord(False, 0, 0, 7, 7, 0, 0, 0, 0, ()), 8, b"abc")
    with pytest.raises(RemoteProtocolError, match="whole numbers"):
        operation_codec.decode(encoded(seal))


def test_bytes_that_are_missing_or_left_over_are_refused() -> None:
    data = encoded(Append("s", 0, (b"ab", b"c"), 3, 1))
    for cut in range(len(data)):
        with pytest.raises(RemoteProtocolError):
            operation_codec.decode(data[:cut])
    with pytest.raises(RemoteProtocolError, match="1 bytes are left"):
        operation_codec.decode(data + b"x")
    with pytest.raises(RemoteProtocolError, match="version 9"):
        operation_codec.decode(b"\x09" + data[1:])


def test_long_bytes_are_not_copied_when_they_are_encoded() -> None:
    data = bytes(100_000)
    assert any(part is data for part in operation_codec.encode([Append("s", 0, (data,), len(data), 1)]))
    assert any(part is data for part in encode_message(Piece(Directory.LOG, "s", 0, data)))
