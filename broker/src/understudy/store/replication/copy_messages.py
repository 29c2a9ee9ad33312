"""Messages of the copy of a store, and their bytes (docs/build/architecture.md, "Replication").

From the backup: ``InventoryPart`` (one or more, the last one marked), ``Written`` (for the window), ``TargetReady`` or
``CopyFailed``. From the active node: ``SetAside`` at most once and first, after any ``CommonFiles``; then for each file
``KeepFile`` or ``DropFile`` if the backup has it, ``Piece`` for its bytes and ``EndFile`` with its size;
``RenamedFile`` and ``DropFile`` for changes between two passes; ``PassEnd`` after each pass. After the final pass all
files are stated by ``FilesPart`` and the open ones by ``FinalState``, which the backup answers with ``TargetReady``.
Either side may send ``CopyFailed``.

Since version 3 of the replication protocol the active node sends ``CheckFile`` after the ``EndFile`` of a file that
does not change any more. Either side may send ``AskBytes``, also while the replica is in sync, which the other side
answers with ``AnswerBytes``: bytes that do not fit their checksum at one node (``store.repair``).

``encode_message(message)`` returns parts, ``decode_message(data)`` a message or ``RemoteProtocolError``. The link
carries the bytes and knows nothing of them. An encoded message is at most ``COPY_MESSAGE_BYTES_MAX`` long.

Not here: when which message is sent (``copy_source``, ``copy_target``).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import LimitExceeded, RemoteProtocolError
from understudy.ids import NodeId
from understudy.limits import COPY_MESSAGE_BYTES_MAX, COPY_PIECE_BYTES_MAX
from understudy.store.log.open_files import OpenBody, OpenFile, OpenFiles, OpenSegment
from understudy.store.replication.fields import (
    DATA,
    FLAG,
    I64,
    NAME,
    NODE_ID,
    SIZE,
    TEXT,
    U32,
    U64,
    Field,
    FieldReader,
    Kinds,
    Shape,
    fixed,
    number,
    several,
)

VERSION: Final = 1
HASH_BYTES: Final = 16


class Directory(IntEnum):
    """The two directories of a store, by the number in messages."""

    LOG = 0
    """Directory of the log (element journal-directory)."""
    BODIES = 1
    """Directory of large bodies (element large-messages-directory)."""


@dataclass(frozen=True, slots=True)
class InventoryFile:
    """A file that the backup has."""

    directory: Directory
    name: str
    """Relative to the directory."""
    length: int
    """Bytes of data: up to the last valid record of a segment without seal, else all bytes."""
    hash: bytes
    """BLAKE2b of the first bytes of the file, 16 bytes long."""


@dataclass(frozen=True, slots=True)
class InventoryPart:
    """Files that the backup has, in no order that matters."""

    files: tuple[InventoryFile, ...]
    last: bool
    copied: bool
    """Whether the files are those of an earlier copy that did not end, so that none has to be kept."""


@dataclass(frozen=True, slots=True)
class Written:
    """The number of bytes of pieces that were written since the beginning of the copy."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class TargetReady:
    """All files are as stated and durable; operations may follow."""


@dataclass(frozen=True, slots=True)
class CopyFailed:
    """The copy cannot go on at the sender of this message."""

    code: str
    """Code of the error (``BrokerError.code``)."""
    reason: str


@dataclass(frozen=True, slots=True)
class CommonFiles:
    """Files of the backup that are complete and the same at the active node. ``SetAside`` follows, and keeps them."""

    files: tuple[StatedFile, ...]


@dataclass(frozen=True, slots=True)
class SetAside:
    """The data of the backup is not a prefix of that of the active node: move all files away but the common ones."""


@dataclass(frozen=True, slots=True)
class KeepFile:
    """The first bytes of a file are those of the active node; cut it there."""

    directory: Directory
    name: str
    length: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a file; those between two pieces are zeros."""

    directory: Directory
    name: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class EndFile:
    """All bytes of a file that exist now were sent: set its size, make it durable."""

    directory: Directory
    name: str
    size_bytes: int
    """Bytes of the file, allocated bytes without content included."""


@dataclass(frozen=True, slots=True)
class DropFile:
    """Remove a file, if it exists."""

    directory: Directory
    name: str


@dataclass(frozen=True, slots=True)
class RenamedFile:
    """A file that was sent has another name now."""

    directory: Directory
    name: str
    target: str


@dataclass(frozen=True, slots=True)
class PassEnd:
    """A pass is over: make all names durable."""

    number: int
    sent_bytes: int
    """Bytes of pieces in this pass."""


@dataclass(frozen=True, slots=True)
class StatedFile:
    """A file of the store at the end of the copy."""

    directory: Directory
    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FilesPart:
    """Files of the store at the end of the copy; the parts before ``FinalState`` together have all of them."""

    files: tuple[StatedFile, ...]


@dataclass(frozen=True, slots=True)
class CopyIdentity:
    """Facts of the active node that the backup notes when the copy is complete."""

    node_id: NodeId
    epoch: int
    activation_sequence: int
    active_name: str
    """Name of the active node, for operators."""
    wall_ms: int
    """Wall time of the active node, epoch milliseconds."""


@dataclass(frozen=True, slots=True)
class FinalState:
    """The end of the copy: the open files of both directories. Nothing is written to the store meanwhile."""

    log: OpenFiles
    bodies: OpenFiles
    sequence: int
    """Sequence of the last record in the log."""
    identity: CopyIdentity


@dataclass(frozen=True, slots=True)
class CheckFile:
    """The bytes of a file that was sent completely have this hash: compare those that were written."""

    directory: Directory
    name: str
    length: int
    hash: bytes
    """BLAKE2b of the first bytes of the file, 16 bytes long."""


@dataclass(frozen=True, slots=True)
class AskBytes:
    """Bytes of a file of the other node are needed, because those of the sender do not fit their checksum."""

    number: int
    """Number of the question, for the answer."""
    directory: Directory
    name: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class AnswerBytes:
    """The bytes as the medium of the sender has them."""

    number: int
    found: bool
    """Whether the file exists and can be read."""
    size_bytes: int
    """Bytes of the file."""
    data: bytes
    """Fewer than asked for at the end of the file."""


CopyMessage = (
    InventoryPart
    | Written
    | TargetReady
    | CopyFailed
    | CommonFiles
    | SetAside
    | KeepFile
    | Piece
    | EndFile
    | DropFile
    | RenamedFile
    | PassEnd
    | FilesPart
    | FinalState
    | CheckFile
    | AskBytes
    | AnswerBytes
)


def _write_directory(value: Directory, out: list[bytes]) -> None:
    out.append(bytes((value,)))


def _read_directory(reader: FieldReader) -> Directory:
    value = reader.take(1)[0]
    if value not in (Directory.LOG, Directory.BODIES):
        raise reader.error(f"unknown directory {value}")
    return Directory(value)


_DIRECTORY: Final = Field(_write_directory, _read_directory)
_FILE: Final = {"directory": _DIRECTORY, "name": NAME}
_SEGMENT: Final = Shape(
    OpenSegment, {"name": NAME, "position": U32, "digest": U32, "last": U32, "before": U32, "seed": U32}
)
_OPEN_FILES: Final = Shape(
    OpenFiles,
    {
        "segments": several(_SEGMENT.field),
        "files": several(Shape(OpenFile, {"name": NAME}).field),
        "bodies": several(Shape(OpenBody, {"name": NAME, "written_bytes": SIZE, "crc": U32}).field),
    },
)
_IDENTITY: Final = Shape(
    CopyIdentity,
    {"node_id": NODE_ID, "epoch": U64, "activation_sequence": I64, "active_name": TEXT, "wall_ms": I64},
)
_INVENTORY_FILE: Final = Shape(InventoryFile, {**_FILE, "length": SIZE, "hash": fixed(HASH_BYTES)})
_STATED_FILE: Final = Shape(StatedFile, {**_FILE, "size_bytes": SIZE})

_MESSAGES: Final = Kinds(
    {
        1: Shape(InventoryPart, {"files": several(_INVENTORY_FILE.field), "last": FLAG, "copied": FLAG}),
        2: Shape(Written, {"size_bytes": SIZE}),
        3: Shape(TargetReady, {}),
        4: Shape(CopyFailed, {"code": TEXT, "reason": TEXT}),
        5: Shape(SetAside, {}),
        6: Shape(KeepFile, {**_FILE, "length": SIZE}),
        7: Shape(Piece, {**_FILE, "offset": SIZE, "data": DATA}),
        8: Shape(EndFile, {**_FILE, "size_bytes": SIZE}),
        9: Shape(DropFile, _FILE),
        10: Shape(RenamedFile, {**_FILE, "target": NAME}),
        11: Shape(PassEnd, {"number": number("I", 1, 1 << 31), "sent_bytes": SIZE}),
        12: Shape(FilesPart, {"files": several(_STATED_FILE.field)}),
        14: Shape(CommonFiles, {"files": several(_STATED_FILE.field)}),
        13: Shape(
            FinalState,
            {"log": _OPEN_FILES.field, "bodies": _OPEN_FILES.field, "sequence": U64, "identity": _IDENTITY.field},
        ),
        15: Shape(CheckFile, {**_FILE, "length": SIZE, "hash": fixed(HASH_BYTES)}),
        16: Shape(AskBytes, {"number": U64, **_FILE, "offset": SIZE, "length": number("I", 1, COPY_PIECE_BYTES_MAX)}),
        17: Shape(AnswerBytes, {"number": U64, "found": FLAG, "size_bytes": SIZE, "data": DATA}),
    }
)

#: Classes of messages.
ENCODED: Final = _MESSAGES.classes


def encode_message(message: CopyMessage) -> list[bytes]:
    """The parts of the encoded message; the bytes of a piece are a part of their own."""
    out = [bytes((VERSION,))]
    _MESSAGES.write(message, out)
    return out


def decode_message(data: bytes | memoryview) -> CopyMessage:
    """Decode one message of the copy.

    Raises:
        RemoteProtocolError: the bytes are no message.
        LimitExceeded: there are more bytes than a message may have.
    """
    if len(data) > COPY_MESSAGE_BYTES_MAX:
        raise LimitExceeded(f"message of a copy of {len(data)} bytes, at most {COPY_MESSAGE_BYTES_MAX}")
    reader = FieldReader(data, "message of a copy")
    reader.field = "version"
    version = reader.take(1)[0]
    if version != VERSION:
        raise RemoteProtocolError(f"message of a copy: version {version} of the encoding, only {VERSION} is known")
    message: CopyMessage = _MESSAGES.read(reader)
    reader.finish()
    return message
