"""The records of the log: their bytes and nothing else (docs/build/journal-format.md s. 2.2 and 4).

The hot writers (``message_store``) and the hot reader (``replay``) use the ``Struct`` objects
here directly; other modules use ``encode_*``, which give payloads, and ``decode``, which gives
a frozen dataclass. Little-endian throughout.

Not here: where a record lies, files, or what a record does to the state (``state``).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from typing import Final

from understudy.dataclass import dataclass
from understudy.message import Encoding, large_body_of
from understudy.store.binding_text import read_address, read_queue
from understudy.store.setting_record import SettingRecord, decode_setting

#: Priorities of messages are 0 up to this.
PRIORITY_MAX: Final = 9

#: After the crc: length, sequence, batch, type, flags, zero.
REST = struct.Struct("<IQIBBH")
#: The whole header: crc, then as ``REST``.
HEADER = struct.Struct("<IIQIBBH")
HEADER_BYTES: Final = HEADER.size
#: ``REST`` and the fixed part of MESSAGE_ADD: message id, tx id, address id, expiration, scheduled,
#: priority, flags, length of the duplicate id, number of queues.
MESSAGE_REST = struct.Struct("<IQIBBHQQQqqBBHI")
#: Head of a MESSAGE_ADD, followed by exactly one queue id.
MESSAGE_ONE_REST = struct.Struct("<IQIBBHQQQqqBBHIQ")
#: Header and fixed part of MESSAGE_ADD, for reading.
MESSAGE_HEADER = struct.Struct("<IIQIBBHQQQqqBBHI")
MESSAGE_HEADER_BYTES: Final = MESSAGE_HEADER.size
#: Payload of ACKNOWLEDGE without its ids.
ACKNOWLEDGE = struct.Struct("<QQII")
ACKNOWLEDGE_HEADER_BYTES: Final = HEADER_BYTES + ACKNOWLEDGE.size

_U64 = struct.Struct("<Q")
_MESSAGE = struct.Struct("<QQQqqBBHI")
_EPOCH = struct.Struct("<16sQqII")
_END = struct.Struct("<QQQ")
_TRIM = struct.Struct("<QQ")
_SNAPSHOT = struct.Struct("<QQQQ")
_DROP = struct.Struct("<QII")
_COUNT = struct.Struct("<QQII")
_I64 = struct.Struct("<q")
#: Of two ids: the payload of DUPLICATE_ID before the duplicate id (address id, tx id), and others.
TWO_IDS = struct.Struct("<QQ")
#: Before each item of a CHECKPOINT: bytes of its payload, type.
ITEM = struct.Struct("<IB3x")
_SEAL = struct.Struct("<IIQQqqQQ")
#: Offset of the seal, zero, magic: the last bytes of a sealed file.
SEAL_TRAILER = struct.Struct("<II8s")
SEAL_MAGIC: Final = b"USTSEAL\n"
#: Bytes of a SEAL record without its array of offsets.
SEAL_FIXED_BYTES: Final = HEADER_BYTES + _SEAL.size + SEAL_TRAILER.size


class RecordType(IntEnum):
    """Numbers of the record types of the log; 32 to 37 are those of a snapshot's own file (``snapshot``)."""

    EPOCH = 1
    CHECKPOINT = 2
    TRIM = 3
    SEAL = 4
    ADDRESS_ADD = 5
    ADDRESS_REMOVE = 6
    QUEUE_ADD = 7
    QUEUE_REMOVE = 8
    MESSAGE_ADD = 9
    ACKNOWLEDGE = 10
    DELIVERY_COUNT = 11
    DUPLICATE_ID = 12
    TX_PREPARE = 13
    TX_COMMIT = 14
    TX_ROLLBACK = 15
    SETTING = 17
    SNAPSHOT = 40
    SEGMENTS_DROP = 41
    MESSAGE_MOVE = 42


CHECKPOINT_FIRST: Final = 1
CHECKPOINT_LAST: Final = 2
SEAL_CLOSED: Final = 1
#: Bit 0, because ``message_store`` packs a boolean as the flags.
MESSAGE_LARGE: Final = 1
#: Bits 4 to 7 of the flags of a message: its ``Encoding``.
ENCODING_SHIFT: Final = 4
_ENCODINGS: Final = frozenset(Encoding)

Settings = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class SegmentEnd:
    """End of a segment of an older epoch."""

    number: int
    epoch: int
    end: int
    """Offset after the last record of the segment."""


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """The first record of an epoch."""

    node_id: bytes
    """Node id, 16 raw bytes."""
    epoch: int
    activated_ms: int
    """Wall time of the activation in ms."""
    ends: tuple[SegmentEnd, ...]
    """Every older segment with records, in log order."""


@dataclass(frozen=True, slots=True)
class AddressRecord:
    """Definition of an address in the log."""

    address_id: int
    name: str
    routing_types: tuple[int, ...]
    """0 multicast, 1 anycast."""
    auto_created: bool = False
    settings: Settings = field(default_factory=dict)
    """Further attributes by name: JSON values."""


@dataclass(frozen=True, slots=True)
class AddressRemoveRecord:
    """An address is gone."""

    address_id: int


@dataclass(frozen=True, slots=True)
class QueueRecord:
    """Definition of a queue in the log."""

    queue_id: int
    address_id: int
    name: str
    routing_type: int
    """0 multicast, 1 anycast."""
    filter: str | None = None
    durable: bool = True
    settings: Settings = field(default_factory=dict)
    """Further attributes by name (``max_consumers``, ``exclusive``, ...): JSON values."""


@dataclass(frozen=True, slots=True)
class QueueRemoveRecord:
    """Removal of a queue with all its references."""

    queue_id: int


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """A message and the queues to which it was routed."""

    message_id: int
    tx_id: int
    address_id: int
    expiration: int
    scheduled_ms: int
    priority: int
    flags: int
    """Bit 0: ``MESSAGE_LARGE``; bits 4 to 7: the encoding."""
    queue_ids: tuple[int, ...]
    duplicate_id: bytes
    encoded: bytes
    """The message as ``Message.encoded``, in the encoding of the flags."""


@dataclass(frozen=True, slots=True)
class AcknowledgeRecord:
    """Messages have left a queue."""

    queue_id: int
    tx_id: int
    message_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeliveryCountRecord:
    """How often a message was given to consumers of a queue."""

    queue_id: int
    message_id: int
    count: int
    not_before_ms: int = 0
    """Wall time in ms of the message's redelivery; 0: at once."""


@dataclass(frozen=True, slots=True)
class DuplicateIdRecord:
    """A duplicate id that an address has seen."""

    address_id: int
    tx_id: int
    duplicate_id: bytes


@dataclass(frozen=True, slots=True)
class DuplicateIdsItem:
    """Duplicate ids that an address has seen, oldest first: neighbouring items of a CHECKPOINT."""

    address_id: int
    duplicate_ids: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class PrepareRecord:
    """First phase of a transaction is done."""

    tx_id: int
    xid: bytes


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """Commit of a transaction."""

    tx_id: int


@dataclass(frozen=True, slots=True)
class RollbackRecord:
    """A transaction never was."""

    tx_id: int


@dataclass(frozen=True, slots=True)
class TrimRecord:
    """Segments below a number may be gone."""

    first_number: int
    first_sequence: int


CheckpointItem = AddressRecord | QueueRecord | DuplicateIdsItem | SettingRecord


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """One part of the bindings and duplicate ids, repeated so that earlier segments can be removed."""

    first: bool
    last: bool
    items: tuple[CheckpointItem, ...]


@dataclass(frozen=True, slots=True)
class SealRecord:
    """Footer of a sealed segment."""

    closed: bool
    count: int
    digest: int
    first_sequence: int
    last_sequence: int
    first_ms: int
    sealed_ms: int
    message_id_min: int
    message_id_max: int
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """A snapshot of the log up to a sequence is complete and synced."""

    epoch: int
    sequence: int
    number: int
    """Number of the segment the snapshot ends with."""
    size_bytes: int


@dataclass(frozen=True, slots=True)
class DropRecord:
    """Segments without a live message, anywhere before ``complete``, may be gone."""

    complete: int
    """Number of the first segment from which on none is missing."""
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MoveRecord:
    """The new place of a message, whose record was copied."""

    message_id: int
    source_number: int
    """Segment of the record that was copied ..."""
    source_offset: int
    """Offset of the record in the source segment."""
    queue_ids: tuple[int, ...]
    encoded: bytes


Record = (
    EpochRecord
    | AddressRecord
    | AddressRemoveRecord
    | QueueRecord
    | QueueRemoveRecord
    | MessageRecord
    | AcknowledgeRecord
    | DeliveryCountRecord
    | DuplicateIdRecord
    | PrepareRecord
    | CommitRecord
    | RollbackRecord
    | TrimRecord
    | CheckpointRecord
    | SealRecord
    | SnapshotRecord
    | DropRecord
    | MoveRecord
    | SettingRecord
)


def encode_epoch(node_id: bytes, epoch: int, activated_ms: int, ends: Sequence[SegmentEnd]) -> bytes:
    """Payload of EPOCH."""
    head = _EPOCH.pack(node_id, epoch, activated_ms, len(ends), 0)
    return head + b"".join(_END.pack(end.number, end.epoch, end.end) for end in ends)


_JSON: Final = json.JSONEncoder(separators=(",", ":"), sort_keys=True)
_FLAGS, _quoted = ("false", "true"), json.encoder.encode_basestring_ascii


class SettingsTexts:
    """JSON texts of settings; neighbours with equal settings share one text."""

    def __init__(self) -> None:
        self._settings: Settings = {}
        self._types: list[type] = []
        self._text = "{}"

    def of(self, settings: Settings) -> str:
        """The settings as JSON."""
        types = list(map(type, settings.values()))  # True and 1 are equal, and not the same JSON
        if types != self._types or settings != self._settings:
            self._settings, self._types, self._text = dict(settings), types, _JSON.encode(dict(settings))
        return self._text


def encode_address(record: AddressRecord, texts: SettingsTexts | None = None) -> bytes:
    """Payload of ADDRESS_ADD; ``texts`` when many are encoded."""
    settings = (texts or SettingsTexts()).of(record.settings)
    text = (
        f'{{"auto_created":{_FLAGS[record.auto_created]},"name":{_quoted(record.name)},'
        f'"routing_types":[{",".join(map(str, record.routing_types))}],"settings":{settings}}}'
    )
    return _U64.pack(record.address_id) + text.encode("ascii")


def encode_queue(record: QueueRecord, texts: SettingsTexts | None = None) -> bytes:
    """Payload of QUEUE_ADD; ``texts`` when many are encoded."""
    settings = (texts or SettingsTexts()).of(record.settings)
    selector = "null" if record.filter is None else _quoted(record.filter)
    text = (
        f'{{"durable":{_FLAGS[record.durable]},"filter":{selector},"name":{_quoted(record.name)},'
        f'"routing_type":{record.routing_type:d},"settings":{settings}}}'
    )
    return TWO_IDS.pack(record.queue_id, record.address_id) + text.encode("ascii")


def encode_id(identifier: int) -> bytes:
    """Payload of ADDRESS_REMOVE, QUEUE_REMOVE, TX_COMMIT and TX_ROLLBACK."""
    return _U64.pack(identifier)


def encode_prepare(tx_id: int, xid: bytes) -> bytes:
    """Payload of TX_PREPARE."""
    return _U64.pack(tx_id) + xid


def encode_delivery_count(queue_id: int, message_id: int, count: int, not_before_ms: int = 0) -> bytes:
    """Payload of DELIVERY_COUNT."""
    return _COUNT.pack(queue_id, message_id, count, 0) + (_I64.pack(not_before_ms) if not_before_ms else b"")


def encode_duplicate_id(address_id: int, duplicate_id: bytes, tx_id: int = 0) -> bytes:
    """Payload of DUPLICATE_ID."""
    return TWO_IDS.pack(address_id, tx_id) + duplicate_id


def encode_snapshot(record: SnapshotRecord) -> bytes:
    """Payload of SNAPSHOT."""
    return _SNAPSHOT.pack(record.epoch, record.sequence, record.number, record.size_bytes)


def encode_drop(complete: int, numbers: Sequence[int]) -> bytes:
    """Payload of SEGMENTS_DROP."""
    return _DROP.pack(complete, len(numbers), 0) + struct.pack(f"<{len(numbers)}Q", *numbers)


def encode_move(payload: bytes, number: int, offset: int) -> bytes:
    """Payload of MESSAGE_MOVE from that of the MESSAGE_ADD or MESSAGE_MOVE which lies there."""
    return b"".join((payload[:8], _U64.pack(number << 32 | offset), payload[16:]))


def encode_trim(first_number: int, first_sequence: int) -> bytes:
    """Payload of TRIM."""
    return _TRIM.pack(first_number, first_sequence)


def encode_seal(record: SealRecord, at: int, offsets: bytes) -> bytes:
    """Payload of SEAL.

    Args:
        record: The fields; its ``offsets`` are not looked at.
        at: Offset of the SEAL record in its file.
        offsets: The array as little-endian u32.
    """
    return b"".join(
        (
            _SEAL.pack(
                record.count,
                record.digest,
                record.first_sequence,
                record.last_sequence,
                record.first_ms,
                record.sealed_ms,
                record.message_id_min,
                record.message_id_max,
            ),
            offsets,
            SEAL_TRAILER.pack(at, 0, SEAL_MAGIC),
        )
    )


def decode(kind: int, flags: int, payload: bytes) -> Record:
    """The record of a crc-checked payload.

    Raises:
        ValueError: the type is unknown, or the payload is not what its type says. As the crc
            was right, this is a bug or a newer writer, never chance.
    """
    try:
        return _decode(kind, flags, payload)
    except (struct.error, KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"record of type {kind} is malformed: {error}") from error


def _decode(kind: int, flags: int, payload: bytes) -> Record:
    if kind == RecordType.MESSAGE_ADD:
        return decode_message(payload)
    if kind in _ITEMS:
        return _decode_item(kind, payload)
    if kind == RecordType.DUPLICATE_ID:
        address_id, tx_id = TWO_IDS.unpack_from(payload)
        return DuplicateIdRecord(address_id, tx_id, payload[TWO_IDS.size :])
    if kind == RecordType.ACKNOWLEDGE:
        queue_id, tx_id, count, _ = ACKNOWLEDGE.unpack_from(payload)
        return AcknowledgeRecord(queue_id, tx_id, struct.unpack_from(f"<{count}Q", payload, ACKNOWLEDGE.size))
    if kind == RecordType.DELIVERY_COUNT:
        later = payload[_COUNT.size :]
        return DeliveryCountRecord(*_COUNT.unpack_from(payload)[:3], *(_I64.unpack(later) if later else ()))
    if kind == RecordType.TX_COMMIT:
        return CommitRecord(_U64.unpack_from(payload)[0])
    if kind == RecordType.TX_ROLLBACK:
        return RollbackRecord(_U64.unpack_from(payload)[0])
    if kind == RecordType.TX_PREPARE:
        return PrepareRecord(_U64.unpack_from(payload)[0], payload[8:])
    if kind == RecordType.ADDRESS_REMOVE:
        return AddressRemoveRecord(_U64.unpack_from(payload)[0])
    if kind == RecordType.QUEUE_REMOVE:
        return QueueRemoveRecord(_U64.unpack_from(payload)[0])
    if kind == RecordType.EPOCH:
        return _decode_epoch(payload)
    if kind == RecordType.TRIM:
        return TrimRecord(*_TRIM.unpack_from(payload))
    if kind == RecordType.SEAL:
        return _decode_seal(flags, payload)
    if kind == RecordType.CHECKPOINT:
        return _decode_checkpoint(flags, payload)
    if kind == RecordType.MESSAGE_MOVE:
        message = decode_message(payload)
        source = message.tx_id
        return MoveRecord(message.message_id, source >> 32, source & 0xFFFF_FFFF, message.queue_ids, message.encoded)
    if kind == RecordType.SNAPSHOT:
        return SnapshotRecord(*_SNAPSHOT.unpack_from(payload))
    if kind == RecordType.SEGMENTS_DROP:
        complete, count, _ = _DROP.unpack_from(payload)
        return DropRecord(complete, struct.unpack_from(f"<{count}Q", payload, _DROP.size))
    raise ValueError(f"unknown record type {kind}")


#: Bindings and settings, which a checkpoint states again as they were.
_ITEMS: Final = frozenset({RecordType.ADDRESS_ADD, RecordType.QUEUE_ADD, RecordType.SETTING})


def _decode_item(kind: int, payload: bytes) -> AddressRecord | QueueRecord | SettingRecord:
    if kind == RecordType.QUEUE_ADD:
        queue_id, address_id = TWO_IDS.unpack_from(payload)
        return QueueRecord(queue_id, address_id, *read_queue(payload[16:]))
    if kind == RecordType.ADDRESS_ADD:
        return AddressRecord(_U64.unpack_from(payload)[0], *read_address(payload[8:]))
    if kind == RecordType.SETTING:
        return decode_setting(payload)
    raise ValueError(f"unknown record type {kind}")


def decode_message(payload: bytes) -> MessageRecord:
    """The payload of MESSAGE_ADD; that of MESSAGE_MOVE is the same with the source as ``tx_id``."""
    message_id, tx_id, address_id, expiration, scheduled_ms, priority, flags, duplicate_bytes, count = (
        _MESSAGE.unpack_from(payload)
    )
    queue_ids = struct.unpack_from(f"<{count}Q", payload, _MESSAGE.size)
    at = _MESSAGE.size + 8 * count
    start = at + duplicate_bytes
    if start > len(payload):
        raise ValueError("MESSAGE_ADD ends within its duplicate id")
    if priority > PRIORITY_MAX:
        raise ValueError(f"MESSAGE_ADD with priority {priority}")
    if flags >> ENCODING_SHIFT not in _ENCODINGS:
        raise ValueError(
            f"message {message_id} has the encoding {flags >> ENCODING_SHIFT}, which this version does not know: "
            "it was written by a newer version"
        )
    if flags & MESSAGE_LARGE:
        large_body_of(payload[start:])
    return MessageRecord(
        message_id,
        tx_id,
        address_id,
        expiration,
        scheduled_ms,
        priority,
        flags,
        queue_ids,
        payload[at:start],
        payload[start:],
    )


def _decode_epoch(payload: bytes) -> EpochRecord:
    node_id, epoch, activated_ms, count, _ = _EPOCH.unpack_from(payload)
    if len(payload) != _EPOCH.size + count * _END.size:
        raise ValueError(f"EPOCH of {len(payload)} bytes for {count} segments")
    ends = tuple(SegmentEnd(*end) for end in _END.iter_unpack(payload[_EPOCH.size :]))
    return EpochRecord(node_id, epoch, activated_ms, ends)


def _decode_seal(flags: int, payload: bytes) -> SealRecord:
    count, digest, first, last, first_ms, sealed_ms, id_min, id_max = _SEAL.unpack_from(payload)
    if len(payload) != _SEAL.size + 4 * count + SEAL_TRAILER.size:
        raise ValueError(f"SEAL of {len(payload)} bytes for {count} records")
    offsets = struct.unpack_from(f"<{count}I", payload, _SEAL.size)
    closed = bool(flags & SEAL_CLOSED)
    return SealRecord(closed, count, digest, first, last, first_ms, sealed_ms, id_min, id_max, offsets)


def _decode_checkpoint(flags: int, payload: bytes) -> CheckpointRecord:
    items: list[CheckpointItem] = []
    at = 0
    while at < len(payload):
        size, kind = ITEM.unpack_from(payload, at)
        begin = at + ITEM.size
        if begin + size > len(payload):
            raise ValueError("CHECKPOINT ends within an item")
        if kind == RecordType.DUPLICATE_ID:
            item = _duplicate_ids(payload, at, size)
            items.append(item)
            at += (ITEM.size + size) * len(item.duplicate_ids)
        else:
            items.append(_decode_item(kind, payload[begin : begin + size]))
            at = begin + size
    return CheckpointRecord(bool(flags & CHECKPOINT_FIRST), bool(flags & CHECKPOINT_LAST), tuple(items))


def _duplicate_ids(payload: bytes, at: int, size: int) -> DuplicateIdsItem:
    """The items from ``at`` on that are duplicate ids of one address and of one length; each has ``size`` bytes."""
    head_bytes = ITEM.size + TWO_IDS.size
    address_id, _ = TWO_IDS.unpack_from(payload, at + ITEM.size)
    step = ITEM.size + size
    head = payload[at : at + head_bytes]
    alike = memoryview(payload)[at : at + (len(payload) - at) // step * step]
    found: list[bytes] = []
    for found_head, duplicate_id in struct.iter_unpack(f"{head_bytes}s{step - head_bytes}s", alike):
        if found_head != head:
            break
        found.append(duplicate_id)
    return DuplicateIdsItem(address_id, tuple(found))
