"""The functions of the kernel on any bytes: the native one and its Python twin must agree (ADR 0034)."""

from __future__ import annotations

from fuzz.target import Target
from support.kernels import NATIVE, both
from understudy.kernel import records
from understudy.store.records import RecordType
from understudy.store.segment import frame

_SEED = 0x1234_5678
_ORIGIN = 4096
#: Message id, tx id, address id, expiration, scheduled, priority, flags, bytes of the duplicate id, queues, queue id.
_MESSAGE = bytes.fromhex(
    "0100000000000000 0000000000000000 0200000000000000 0000000000000000 0000000000000000"
    "04000000 01000000 0700000000000000"
)
_ACKNOWLEDGE = bytes.fromhex("0700000000000000 0000000000000000 02000000 00000000 0100000000000000 0900000000000000")


def _scan(data: bytes) -> None:
    """The first byte says whether crcs and sequences are checked."""
    arguments = (data[1:], 0, _ORIGIN, _SEED if data[:1] > b"\x7f" else None, 0)
    if NATIVE is None:
        records.scan(*arguments)
    else:
        both(records.scan, *arguments)


def _seeds() -> list[bytes]:
    steps = [
        (RecordType.MESSAGE_ADD, _MESSAGE + b"a body"),
        (RecordType.ACKNOWLEDGE, _ACKNOWLEDGE),
        (RecordType.MESSAGE_ADD, b"\2" + _MESSAGE[1:]),
        (RecordType.TX_COMMIT, bytes(8)),
    ]
    log = b"".join(
        part
        for number, (kind, payload) in enumerate(steps, 1)
        for part in frame(kind, 0, number, _ORIGIN, _SEED, payload)
    )
    return [b"\xff" + log, b"\0" + log, b"\0" + log[:90], b"\0" + log + bytes(40)]


KERNEL = (Target("kernel-scan", _scan, (), _seeds, memory_floor_bytes=1 << 20),)
