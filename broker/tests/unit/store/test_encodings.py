"""The encoding of a stored message (docs/build/journal-format.md, 4.6)."""

from __future__ import annotations

import random
import struct

import pytest

from fuzz.targets_store import parts_of, volume_of
from support.large import Node
from support.routing import text
from support.store import DIRECTORY, StoreHarness
from understudy.errors import JournalCorrupt
from understudy.message import Encoding, Message
from understudy.store.log.reading.follower import recover
from understudy.store.log.records import ENCODING_SHIFT, MESSAGE_LARGE, RecordType, decode_message
from understudy.store.log.segment import HEADER_BLOCK_BYTES

ENCODED = text("hello").replace(message_id=7).encoded


def payload(flags: int) -> bytes:
    """A MESSAGE_ADD of message 7 in queue 2."""
    return struct.pack("<QQQqqBBHIQ", 7, 0, 1, 0, 0, 4, flags, 0, 1, 2) + ENCODED


def test_a_record_without_encoding_is_core() -> None:
    record = decode_message(payload(0))
    assert record.flags >> ENCODING_SHIFT == Encoding.CORE
    assert Message.decode(record.encoded).encoding == Encoding.CORE
    assert decode_message(payload(0)).flags & MESSAGE_LARGE == 0


@pytest.mark.parametrize("encoding", range(1, 16))
def test_an_unknown_encoding_stops_recovery_at_the_record(encoding: int) -> None:
    entries = [(int(RecordType.MESSAGE_ADD), 0, payload(encoding << ENCODING_SHIFT))]
    disk = volume_of(parts_of(entries)).disk("reader")
    with pytest.raises(JournalCorrupt, match=f"message 7 has the encoding {encoding},") as caught:
        recover(disk, DIRECTORY)
    assert caught.value.offset > HEADER_BLOCK_BYTES
    assert caught.value.file


class Foreign(Message):
    """A message of another protocol."""

    __slots__ = ()

    encoding = 5


@pytest.mark.parametrize("queue_ids", [(2,), (2, 3)])
def test_the_log_keeps_the_encoding_of_a_message(queue_ids: tuple[int, ...]) -> None:
    rig = StoreHarness(random.Random(1))
    node = Node(rig, "a")
    message = Foreign(b"x", address="q")
    message.assign_id(node.store.next_id())
    node.store.store_message(message, 1, queue_ids)
    node.settle()
    with pytest.raises(JournalCorrupt, match=f"message {message.message_id} has the encoding 5,"):
        recover(rig.volume.disk("reader"), DIRECTORY)
