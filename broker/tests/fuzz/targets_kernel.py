"""The functions of the kernel on any bytes: the native one and its Python twin must agree (ADR 0034)."""

from __future__ import annotations

from fuzz.captures import streams
from fuzz.target import Target
from fuzz.targets_wire import sample_message
from support.kernel_views import expected_messages, view_of_sends
from support.kernels import NATIVE, both
from understudy.kernel import frames, records
from understudy.message import DUPLICATE_ID, GROUP_ID, ROUTING_TYPE
from understudy.properties import BYTE, Properties
from understudy.store.log.records import RecordType
from understudy.store.log.segment import frame
from understudy.wire.core.codec import encode_send

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


def _scan_seeds() -> list[bytes]:
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


_LIMIT_BYTES = 1 << 20
_COUNT_MAX = 256


def _sends(data: bytes) -> None:
    """The first byte is where the first frame begins, the rest is the input. Rows are compared with the messages
    that ``Message.decode`` finds there, too.
    """
    if not data:
        return
    start, data = data[0], data[1:]
    sends = frames.split_sends(data, start, _LIMIT_BYTES, _COUNT_MAX)
    expected = expected_messages(data, start, _LIMIT_BYTES, _COUNT_MAX)
    if sends is None:
        assert not expected
    else:
        assert [sends.encoded(row) for row in range(sends.count)] == [message.encoded for message, _, _ in expected]
        for row, (message, requires_response, correlation_id) in enumerate(expected):
            seen = sends.address(row), sends.durable(row), sends.priority(row), sends.correlation_ids[row]
            assert seen == (message.address, message.durable, message.priority, correlation_id)
            assert sends.requires_response is requires_response
    if NATIVE is not None:
        native = NATIVE.split_sends(data, start, _LIMIT_BYTES, _COUNT_MAX)
        assert view_of_sends(native) == view_of_sends(sends)


def _sends_seeds() -> list[bytes]:
    marked = Properties({DUPLICATE_ID: "id \ud800", GROUP_ID: "group", "_AMQ_ORIG_ADDRESS": "a"})
    marked.set_typed(ROUTING_TYPE, BYTE, 1)
    rich, special = sample_message(), sample_message(properties=marked)
    runs = [encode_send(rich, 10, True, 1) * 3, encode_send(special, 10, True, 2) * 2 + encode_send(rich, 11, True, 3)]
    captured = [stream[offset - 4 :] for stream in streams("to-server") if (offset := stream.find(b"\x47")) >= 4]
    return [bytes((0,)) + each for each in (*runs, *captured)]


KERNEL = (
    Target("kernel-scan", _scan, (), _scan_seeds, memory_floor_bytes=1 << 20),
    Target("kernel-sends", _sends, (), _sends_seeds, memory_per_byte=256, weight=2),
)
