"""Durable state of a witness and its file: identity, numbers, and the recorded holder of each lock.

``witness.state``: eight bytes ``UWITNESS``, format (2 bytes), length of the rest (4) and its crc32 (4), big-endian,
then JSON. The file is replaced as a whole. A damaged one is an error that names the file and the offset; the witness
does not start with it, because grants that it may have forgotten could be granted twice.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import field
from typing import Any, Final

from understudy.dataclass import dataclass
from understudy.errors import JournalCorrupt, StoreVersionUnsupported

STATE_FILE: Final = "witness.state"
#: Largest file that is read. Bytes.
STATE_BYTES_MAX: Final = 16 * 1024 * 1024
_MAGIC: Final = b"UWITNESS"
_FORMAT: Final = 1
_HEAD: Final = struct.Struct(">8sHII")


@dataclass(frozen=True, slots=True)
class Holder:
    """A granted lock."""

    token: bytes
    """Chosen by the client; the right to renew and release."""
    name: str
    """Of the client, for logs and status."""
    lease_ms: int


@dataclass(slots=True)
class WitnessState:
    """Durable state; the file has it before an answer tells a client of it."""

    identity: bytes
    """Chosen at the first start, so that a client notices another witness, or one that has lost its state."""
    numbers: dict[str, int] = field(default_factory=dict)
    holders: dict[str, Holder] = field(default_factory=dict)
    """The last holder of each lock that was not released; its lease may have ended."""

    def encode(self) -> bytes:
        """The bytes of the file."""
        holders = {key: [each.token.hex(), each.name, each.lease_ms] for key, each in self.holders.items()}
        value = {"identity": self.identity.hex(), "numbers": self.numbers, "holders": holders}
        text = json.dumps(value, sort_keys=True).encode()
        return _HEAD.pack(_MAGIC, _FORMAT, len(text), zlib.crc32(text)) + text


def decode_state(data: bytes, path: str) -> WitnessState:
    """The state in the bytes of a file.

    Raises:
        JournalCorrupt: they are damaged.
        StoreVersionUnsupported: a newer witness wrote them.
    """
    if len(data) < _HEAD.size or data[: len(_MAGIC)] != _MAGIC:
        raise _damaged("this is no state of a witness", path, 0)
    _, version, length, checksum = _HEAD.unpack_from(data)
    if version != _FORMAT:
        raise StoreVersionUnsupported(f"{path}: format {version} of the state of a witness; this one writes {_FORMAT}")
    text = data[_HEAD.size :]
    if len(text) != length:
        raise _damaged(f"{len(text)} bytes instead of {length}", path, _HEAD.size)
    if zlib.crc32(text) != checksum:
        raise _damaged("the checksum is wrong", path, _HEAD.size)
    try:
        value: Any = json.loads(text)
        holders = {
            str(key): Holder(bytes.fromhex(token), str(name), int(lease_ms))
            for key, (token, name, lease_ms) in value["holders"].items()
        }
        numbers = {str(key): int(number) for key, number in value["numbers"].items()}
        return WitnessState(bytes.fromhex(value["identity"]), numbers, holders)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(f"unexpected contents: {error!r}", path, _HEAD.size) from error


def _damaged(text: str, path: str, offset: int) -> JournalCorrupt:
    hint = "no lock is granted with it; restore the file, or stop all its clients and remove it"
    return JournalCorrupt(text, file=path, offset=offset, hint=hint)
