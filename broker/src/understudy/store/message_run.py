"""Many plain messages for one queue, appended to the log in one pass.

What ``MessageStore.store_message`` does for any message, done for a run of them that need nothing special (no
transaction, duplicate id, schedule or file of their own): one record each, byte for byte the same, but everything that
is the same for all is looked up once. Not here: which messages these are (``routing.plain_sends``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from understudy.kernel import crc32
from understudy.message import Message
from understudy.store.journal import Journal
from understudy.store.live_index import LiveIndex
from understudy.store.operation_context import OperationContext
from understudy.store.records import MESSAGE_HEADER_BYTES, MESSAGE_ONE_REST, RecordType
from understudy.store.reference import Location

_MESSAGE_ADD: Final = int(RecordType.MESSAGE_ADD)
_MESSAGE_BYTES: Final = MESSAGE_HEADER_BYTES + 8


def append_run(
    journal: Journal,
    context: OperationContext,
    live: LiveIndex,
    messages: Sequence[Message],
    address_id: int,
    queue_id: int,
) -> list[Location]:
    """Append one record per message, whose ids follow each other; where they lie.

    Raises:
        StoreError: the journal has failed; what was appended before is never released.
    """
    pack = MESSAGE_ONE_REST.pack
    locations: list[int] = []
    place = locations.append
    first_id = messages[0].message_id
    position = 0
    while position < len(messages):
        length = len(messages[position].encoded) + _MESSAGE_BYTES
        if journal.offset + length > journal.room:
            journal.make_room(length)
        # until there is no room: the segment and the batch stay the same
        offset, room, sequence = journal.offset, journal.room, journal.sequence
        batch, seed, segment = journal.batch, journal.seed, journal.number << 64
        parts, note_offset = journal.parts, journal.offsets.append
        begin = position
        for message in messages[begin:] if begin else messages:
            encoded = message.encoded
            length = len(encoded) + _MESSAGE_BYTES
            if offset + length > room:
                break
            sequence += 1
            rest = pack(
                length, sequence, batch, _MESSAGE_ADD, 0, 0, message.message_id, 0, address_id,
                message.expiration, 0, message.priority, False, 0, 1, queue_id,
            )  # fmt: skip
            parts += (crc32(encoded, crc32(rest, seed)).to_bytes(4, "little") + rest, encoded)
            note_offset(offset)
            place(segment | offset << 32 | length)
            offset += length
            room -= 4
            position += 1
        journal.offset, journal.room = offset, room
        journal.sequence = context.appended = sequence
        journal.use.note(first_id + begin)
        journal.use.note(first_id + position - 1)
    live.add_range(queue_id, first_id, position)
    return locations  # type: ignore[return-value]  # pack_location, in line
