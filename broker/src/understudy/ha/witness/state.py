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
from understudy.ha.witness.registers import Register

STATE_FILE: Final = "witness.state"
#: Largest file that is read. Bytes.
STATE_BYTES_MAX: Final = 16 * 1024 * 1024
_MAGIC: Final = b"UWITNESS"
_FORMAT: Final = 1
#: Format of a member of a group, which an earlier version must not serve as a single witness.
_GROUP_FORMAT: Final = 2
_HEAD: Final = struct.Struct(">8sHII")


@dataclass(frozen=True, slots=True)
class Holder:
    """A granted lock with its holder."""

    token: bytes
    """Chosen by the client; the right to renew and release."""
    name: str
    """Name of the client, for logs and status."""
    lease_ms: int


@dataclass(slots=True)
class WitnessState:
    """Durable state; the file has it before an answer tells a client of it."""

    identity: bytes
    """Chosen at the first start, so that a client notices another witness, or one that has lost its state."""
    numbers: dict[str, int] = field(default_factory=dict)
    holders: dict[str, Holder] = field(default_factory=dict)
    """The last holder of each lock that was not released; its lease may have ended."""
    changes: int = 0
    """Changes since the first start."""
    configuration: int = 0
    """Number of the configuration of the group; 0: it is no member of a group."""
    group: bytes = b""
    """Random id of the group."""
    joined: bool = False
    """Whether the witness has joined a group that existed, and has granted no lock since."""
    registers: dict[str, Register] = field(default_factory=dict)
    """Numbers of the group."""

    def __len__(self) -> int:
        """Number of lock ids."""
        return len(self.numbers.keys() | self.holders.keys() | self.registers.keys())

    def knows(self, key: str) -> bool:
        """Whether an id has an entry."""
        return key in self.numbers or key in self.holders or key in self.registers

    def encode(self) -> bytes:
        """The bytes of the file."""
        holders = {key: [each.token.hex(), each.name, each.lease_ms] for key, each in self.holders.items()}
        value = {
            "identity": self.identity.hex(),
            "numbers": self.numbers,
            "holders": holders,
            "changes": self.changes,
        }
        if self.configuration or self.registers:
            value["configuration"], value["joined"] = self.configuration, self.joined
            value["group"] = self.group.hex()
            value["registers"] = {key: each.as_json() for key, each in self.registers.items()}
        text = json.dumps(value, sort_keys=True).encode()
        version = _GROUP_FORMAT if self.configuration or self.registers else _FORMAT
        return _HEAD.pack(_MAGIC, version, len(text), zlib.crc32(text)) + text


def decode_state(data: bytes, path: str) -> WitnessState:
    """The state in the bytes of a file.

    Raises:
        JournalCorrupt: they are damaged.
        StoreVersionUnsupported: a newer witness wrote them.
    """
    if len(data) < _HEAD.size or data[: len(_MAGIC)] != _MAGIC:
        raise _damaged("this is no state of a witness", path, 0)
    _, version, length, checksum = _HEAD.unpack_from(data)
    if version not in (_FORMAT, _GROUP_FORMAT):
        text = f"{path}: format {version} of the state of a witness; this one reads up to {_GROUP_FORMAT}"
        raise StoreVersionUnsupported(text)
    body = data[_HEAD.size :]
    if len(body) != length:
        raise _damaged(f"{len(body)} bytes instead of {length}", path, _HEAD.size)
    if zlib.crc32(body) != checksum:
        raise _damaged("the checksum is wrong", path, _HEAD.size)
    try:
        value: Any = json.loads(body)
        holders = {
            str(key): Holder(bytes.fromhex(token), str(name), int(lease_ms))
            for key, (token, name, lease_ms) in value["holders"].items()
        }
        numbers = {str(key): int(number) for key, number in value["numbers"].items()}
        registers = {str(key): Register.from_json(each) for key, each in value.get("registers", {}).items()}
        return WitnessState(
            bytes.fromhex(value["identity"]),
            numbers,
            holders,
            int(value.get("changes", 0)),
            int(value.get("configuration", 0)),
            bytes.fromhex(value.get("group", "")),
            bool(value.get("joined", False)),
            registers,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(f"unexpected contents: {error!r}", path, _HEAD.size) from error


def _damaged(text: str, path: str, offset: int) -> JournalCorrupt:
    hint = "no lock is granted with it; restore the file, or stop all its clients and remove it"
    return JournalCorrupt(text, file=path, offset=offset, hint=hint)
