"""Operations of the store as bytes, for another node that executes them (docs/build/architecture.md, "Replication").

``encode(operations)`` returns the parts of one text: ``b"".join(parts)``. Long bytes of an operation are parts of
their own and are not copied. ``decode(data)`` returns the operations, or raises ``RemoteProtocolError`` naming the
operation and the field, before anything is executed: an unknown version or class, bytes missing or left over, a number
out of range, a name outside of the directory of the applier. ``replicated(operations)`` leaves out the operations that
concern one machine only.

The text begins with the version of the encoding (u8) and the number of operations (u32). One submission is at most
``REPLICATED_SUBMISSION_BYTES_MAX`` long; it may be longer than a frame of the link, which then sends it in pieces.

Not here: the operations (``store.log.operations``), which names belong to a store (``store_files``).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from understudy.errors import LimitExceeded, RemoteProtocolError
from understudy.limits import (
    REPLICATED_NAME_BYTES_MAX,
    REPLICATED_REWRITE_BYTES_MAX,
    REPLICATED_SUBMISSION_BYTES_MAX,
    REPLICATED_ZEROS_BYTES_MAX,
)
from understudy.ports import Operation
from understudy.store.log.format_version import FORMAT_VERSION, FORMAT_VERSION_FIRST
from understudy.store.log.operations import (
    Append,
    BodyEnd,
    CloseFiles,
    CreateFile,
    CreateSegment,
    EmptyPool,
    FinishBodies,
    GiveUpReserve,
    GrowSegment,
    KeepReserve,
    MakeDirectory,
    PruneRetained,
    RemoveFile,
    RenameFile,
    ReplaceBytes,
    RequireEpoch,
    RewriteFile,
    SealSegment,
    SyncDirectory,
    SyncFile,
    TidyUp,
    WriteBody,
    WriteFile,
    WriteZeros,
    append_of,
)
from understudy.store.log.records import SealRecord, SegmentEnd
from understudy.store.log.segment import SegmentHeader
from understudy.store.replication.fields import (
    DATA,
    FLAG,
    I64,
    I64_MAX,
    NAME,
    NAME_OR_EMPTY,
    NODE_ID,
    PARTS,
    SIZE,
    U32,
    U64,
    FieldReader,
    Kinds,
    Shape,
    name_fault,
    number,
    several,
)

#: Of the encoding; an operation that gets another field or meaning raises it. 2: a segment has a format version.
#: ``encode`` uses the lowest one that has all fields of the operations, for nodes of earlier versions.
VERSION: Final = 2
VERSION_FIRST: Final = 1

_BEGIN: Final = struct.Struct("<BI")
#: As many as the name of a segment has digits for.
_SEGMENT_NUMBER: Final = number("Q", 0, 10**12 - 1)
_EPOCH: Final = number("Q", 0, 10**10 - 1)

_SEGMENT_HEADER: Final = Shape(
    SegmentHeader,
    {
        "node_id": NODE_ID,
        "epoch": _EPOCH,
        "number": _SEGMENT_NUMBER,
        "created_ms": I64,
        "allocated_bytes": U32,
        "first_of_epoch": FLAG,
    },
)
_FORMAT_HEADER: Final = Shape(
    SegmentHeader, {**_SEGMENT_HEADER.fields, "format_version": number("H", FORMAT_VERSION_FIRST, FORMAT_VERSION)}
)
_SEGMENT_END: Final = Shape(SegmentEnd, {"number": _SEGMENT_NUMBER, "epoch": _EPOCH, "end": U32})
_SEAL: Final = Shape(
    lambda **values: SealRecord(**values, offsets=()),
    {
        "closed": FLAG,
        "count": U32,
        "digest": U32,
        "first_sequence": U64,
        "last_sequence": U64,
        "first_ms": I64,
        "sealed_ms": I64,
        "message_id_min": U64,
        "message_id_max": U64,
    },
)
_BODY_END: Final = Shape(BodyEnd, {"name": NAME, "offset": SIZE, "parts": PARTS, "durable": FLAG})


def _append_fault(append: Append) -> str | None:
    size_bytes = sum(map(len, append.parts))
    if append.size_bytes != size_bytes:
        return f"size_bytes is {append.size_bytes}, its parts have {size_bytes} bytes"
    return None


def _seal_fault(seal: SealSegment) -> str | None:
    return "offsets are not whole numbers of 4 bytes" if len(seal.offsets) % 4 else None


_SHAPES: Final = {
    1: Shape(
        Append,
        {"name": NAME, "offset": U32, "parts": PARTS, "size_bytes": U32, "last_sequence": U64},
        _append_fault,
    ),
    2: Shape(SyncFile, {"name": NAME}),
    3: Shape(CreateSegment, {"header": _SEGMENT_HEADER.field, "records": DATA}),
    4: Shape(GrowSegment, {"name": NAME, "allocated_bytes": U32}),
    5: Shape(WriteZeros, {"name": NAME, "offset": U32, "length": number("I", 0, REPLICATED_ZEROS_BYTES_MAX)}),
    6: Shape(SealSegment, {"name": NAME, "record": _SEAL.field, "sequence": U64, "offsets": DATA}, _seal_fault),
    7: Shape(RewriteFile, {"name": NAME, "offset": SIZE, "length": number("I", 0, REPLICATED_REWRITE_BYTES_MAX)}),
    8: Shape(CreateFile, {"name": NAME}),
    9: Shape(WriteFile, {"name": NAME, "offset": SIZE, "data": DATA}),
    10: Shape(RenameFile, {"name": NAME, "target": NAME}),
    11: Shape(RemoveFile, {"name": NAME, "retain": FLAG, "sync": FLAG}),
    12: Shape(MakeDirectory, {"name": NAME_OR_EMPTY, "sync": FLAG}),
    13: Shape(SyncDirectory, {"name": NAME_OR_EMPTY}),
    14: Shape(CloseFiles, {}),
    15: Shape(RequireEpoch, {"epoch": _EPOCH}),
    16: Shape(TidyUp, {"epoch": _EPOCH, "names": several(NAME), "ends": several(_SEGMENT_END.field), "cut": FLAG}),
    17: Shape(KeepReserve, {"size_bytes": number("Q", 0, 1 << 33)}),
    18: Shape(GiveUpReserve, {}),
    19: Shape(PruneRetained, {"now_ms": number("q", 0, I64_MAX)}),
    20: Shape(WriteBody, {"name": NAME, "offset": SIZE, "parts": PARTS, "sync": FLAG}),
    22: Shape(ReplaceBytes, {"name": NAME, "offset": SIZE, "data": DATA, "cut_at": I64, "create": FLAG}),
    23: Shape(EmptyPool, {}),
    21: Shape(FinishBodies, {"ends": several(_BODY_END.field), "directory": NAME_OR_EMPTY}),
}
#: By version of the encoding.
_OPERATIONS: Final = {
    VERSION_FIRST: Kinds(_SHAPES),
    VERSION: Kinds({**_SHAPES, 3: Shape(CreateSegment, {"header": _FORMAT_HEADER.field, "records": DATA})}),
}

#: Classes that can be encoded: all of ``store.log.operations``.
ENCODED: Final = _OPERATIONS[VERSION].classes
#: Operations that concern one machine: on retained and kept files and the reserve (ADR 0048), and on bytes that only
#: this node has wrong (ADR 0114).
_OF_ONE_MACHINE: Final = frozenset({PruneRetained, KeepReserve, GiveUpReserve, EmptyPool, ReplaceBytes})


def replicated(operations: Sequence[Operation]) -> Sequence[Operation]:
    """The operations of a submission that a replica executes, in order; the same sequence if that is all of them."""
    if any(type(operation) in _OF_ONE_MACHINE for operation in operations):
        return [operation for operation in operations if type(operation) not in _OF_ONE_MACHINE]
    return operations


def encode(operations: Sequence[Operation]) -> list[bytes]:
    """The parts of the encoded operations."""
    first = operations[0] if operations else None
    if type(first) is Append and (len(operations) == 1 or operations[1:] == (_batch_names(first.name).sync,)):
        return _encode_batch(first, len(operations))
    version = max(map(_version_of, operations), default=VERSION_FIRST)
    out, write = [_BEGIN.pack(version, len(operations))], _OPERATIONS[version].write
    for operation in operations:
        write(operation, out)
    return out


def _version_of(operation: Operation) -> int:
    """The lowest version of the encoding that has all fields of an operation."""
    if type(operation) is CreateSegment and operation.header.format_version > FORMAT_VERSION_FIRST:
        return VERSION
    return VERSION_FIRST


def decode(data: bytes | memoryview) -> list[Operation]:
    """The operations; long bytes are copied once.

    Raises:
        RemoteProtocolError: the bytes are not the encoding of operations, or an operation is not acceptable.
        LimitExceeded: there are more bytes than a submission may have.
    """
    if len(data) > REPLICATED_SUBMISSION_BYTES_MAX:
        raise LimitExceeded(f"operations of {len(data)} bytes, at most {REPLICATED_SUBMISSION_BYTES_MAX}")
    if len(data) < _BEGIN.size:
        raise RemoteProtocolError(f"operations: cut off after {len(data)} bytes")
    return _decode_batch(data) or _decode_any(data)


def _decode_any(data: bytes | memoryview) -> list[Operation]:
    version, count = _BEGIN.unpack_from(data)
    kinds = _OPERATIONS.get(version)
    if kinds is None:
        known = f"only {VERSION_FIRST} to {VERSION} are known"
        raise RemoteProtocolError(f"operations: version {version} of the encoding, {known}")
    reader = FieldReader(memoryview(data)[_BEGIN.size :], "operations")
    if count > reader.left_bytes:
        raise RemoteProtocolError(f"operations: {count} operations in {reader.left_bytes} bytes")
    found: list[Operation] = []
    for index in range(count):
        reader.where = f"operation {index}"
        found.append(kinds.read(reader))
    reader.finish()
    return found


# --- batches: the same encoding without a call for each field -------------------------------------

#: Version, number of operations, kind of the first one, length of the name that follows.
_BATCH_BEGIN: Final = struct.Struct("<BIBH")
#: After the name: offset, length of the parts that follow.
_BATCH_PLACE: Final = struct.Struct("<II")
#: After the parts: size, last sequence.
_BATCH_END: Final = struct.Struct("<IQ")


class _BatchNames(NamedTuple):
    """The parts of an encoded batch that depend on the name of its segment only."""

    sync: SyncFile
    begin: tuple[bytes, bytes]
    """Everything before the offset, without and with a sync."""
    end: bytes
    """Encoded operation that syncs the file at the end of the batch."""


@lru_cache(64)
def _batch_names(name: str) -> _BatchNames:
    raw = name.encode("utf-8", "surrogateescape")
    begins = [_BATCH_BEGIN.pack(VERSION_FIRST, count, 1, len(raw)) + raw for count in (1, 2)]
    return _BatchNames(SyncFile(name), (begins[0], begins[1]), begins[1][_BEGIN.size :].replace(b"\1", b"\2", 1))


def _encode_batch(append: Append, count: int) -> list[bytes]:
    names = _batch_names(append.name)
    place = _BATCH_PLACE.pack(append.offset, sum(map(len, append.parts)))
    end = _BATCH_END.pack(append.size_bytes, append.last_sequence)
    return [names.begin[count - 1], place, *append.parts, end if count == 1 else end + names.end]


@lru_cache(64)
def _batch_name(raw: bytes) -> str | None:
    """The name of a segment in a batch; None if it is not acceptable."""
    name = raw.decode("utf-8", "surrogateescape")
    return name if len(raw) <= REPLICATED_NAME_BYTES_MAX and name and name_fault(name) is None else None


def _decode_batch(data: bytes | memoryview) -> list[Operation] | None:
    """The operations of a batch; None if it is something else, or not acceptable."""
    if len(data) < _BATCH_BEGIN.size:
        return None
    version, count, kind, length = _BATCH_BEGIN.unpack_from(data)
    place = _BATCH_BEGIN.size + length
    parts = place + _BATCH_PLACE.size
    if version != VERSION_FIRST or kind != 1 or count not in (1, 2) or len(data) < parts:
        return None
    name = _batch_name(bytes(data[_BATCH_BEGIN.size : place]))
    offset, size_bytes = _BATCH_PLACE.unpack_from(data, place)
    end = parts + size_bytes
    if name is None or len(data) < end + _BATCH_END.size:
        return None
    stated_bytes, last_sequence = _BATCH_END.unpack_from(data, end)
    names = _batch_names(name)
    rest = data[end + _BATCH_END.size :]
    if stated_bytes != size_bytes or rest != (names.end if count == 2 else b""):
        return None
    append = append_of((name, offset, (bytes(data[parts:end]),) if size_bytes else (), size_bytes, last_sequence, True))
    return [append, names.sync] if count == 2 else [append]
