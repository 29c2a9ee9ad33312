"""Operations of the store as bytes, for another node that executes them (docs/architecture.md, "Replication").

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
from typing import Final

from understudy.errors import LimitExceeded, RemoteProtocolError
from understudy.limits import (
    REPLICATED_REWRITE_BYTES_MAX,
    REPLICATED_SUBMISSION_BYTES_MAX,
    REPLICATED_ZEROS_BYTES_MAX,
)
from understudy.ports import Operation
from understudy.store.log.operations import (
    Append,
    BodyEnd,
    CloseFiles,
    CreateFile,
    CreateSegment,
    FinishBodies,
    GiveUpReserve,
    GrowSegment,
    KeepReserve,
    MakeDirectory,
    PruneRetained,
    RemoveFile,
    RenameFile,
    RequireEpoch,
    RewriteFile,
    SealSegment,
    SyncDirectory,
    SyncFile,
    TidyUp,
    WriteBody,
    WriteFile,
    WriteZeros,
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
    number,
    several,
)

#: Of the encoding; an operation that gets another field or meaning raises it.
VERSION: Final = 1

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


_OPERATIONS: Final = Kinds(
    {
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
        21: Shape(FinishBodies, {"ends": several(_BODY_END.field), "directory": NAME_OR_EMPTY}),
    }
)

#: Classes that can be encoded: all of ``store.log.operations``.
ENCODED: Final = _OPERATIONS.classes
#: Operations on files that belong to one machine: retained segments and the reserve (ADR 0048).
_OF_ONE_MACHINE: Final = frozenset({PruneRetained, KeepReserve, GiveUpReserve})


def replicated(operations: Sequence[Operation]) -> Sequence[Operation]:
    """The operations of a submission that a replica executes, in order; the same sequence if that is all of them."""
    if any(type(operation) in _OF_ONE_MACHINE for operation in operations):
        return [operation for operation in operations if type(operation) not in _OF_ONE_MACHINE]
    return operations


def encode(operations: Sequence[Operation]) -> list[bytes]:
    """The parts of the encoded operations."""
    out = [_BEGIN.pack(VERSION, len(operations))]
    for operation in operations:
        _OPERATIONS.write(operation, out)
    return out


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
    version, count = _BEGIN.unpack_from(data)
    if version != VERSION:
        raise RemoteProtocolError(f"operations: version {version} of the encoding, only {VERSION} is known")
    reader = FieldReader(memoryview(data)[_BEGIN.size :], "operations")
    if count > reader.left_bytes:
        raise RemoteProtocolError(f"operations: {count} operations in {reader.left_bytes} bytes")
    found: list[Operation] = []
    for index in range(count):
        reader.where = f"operation {index}"
        found.append(_OPERATIONS.read(reader))
    reader.finish()
    return found
