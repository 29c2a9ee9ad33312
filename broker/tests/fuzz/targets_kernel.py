"""The functions of the kernel on any bytes: the native one and its Python twin must agree (ADR 0034)."""

from __future__ import annotations

from fuzz.captures import streams
from fuzz.target import Target
from fuzz.targets_wire import sample_message
from support.kernel_views import expected_messages, view_of_sends
from support.kernels import NATIVE, both
from understudy.kernel import changes
from understudy.kernel.core import forwarding, frames
from understudy.kernel.log import records
from understudy.message import BRIDGE_DUPLICATE_ID, DUPLICATE_ID, GROUP_ID, ROUTING_TYPE
from understudy.properties import BYTE, Properties
from understudy.store.log.records import RecordType
from understudy.store.log.segment import frame
from understudy.wire.core.codec import encode_null_response, encode_send

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


def _forwarding(data: bytes) -> None:
    """The first byte selects the function; the rest is SESS_SEND frames, and a message that was read from a disk."""
    how, data = data[:1], data[1:]
    message = data[13:-13]
    address, node_id = (None, b"") if how < b"\x40" else (message[:8], bytes(16))
    arguments = ([message], [7], address, _ROUTE if how > b"\x80" else b"", node_id, 1 << 20, 10, 1)
    if NATIVE is None:
        forwarding.forward_messages(*arguments)
        frames.split_confirms(data, 0, 100)
        frames.split_commits(data, 0, 100)
    else:
        both(forwarding.forward_messages, *arguments)
        both(frames.split_confirms, data, 0, 100)
        both(frames.split_commits, data, 0, 100)
    sends = frames.split_sends(data, 0, _LIMIT_BYTES, _COUNT_MAX)
    encoded = [] if sends is None else [sends.encoded(row) for row in range(sends.count)]
    moving = ([*encoded, message], _ADDED if how > b"\x80" else b"", int(how > b"\x80"))
    moved = changes.moved_sends(*moving)
    if NATIVE is not None:
        assert view_of_sends(NATIVE.moved_sends(*moving)) == view_of_sends(moved)
    if sends is None:
        return
    found = changes.split_forwarded(sends, 0)
    picked = changes.pick_sends(sends, 0, 2, 5, _ADDED, 1)
    if NATIVE is not None:
        same = NATIVE.split_sends(data, 0, _LIMIT_BYTES, _COUNT_MAX)
        native = NATIVE.split_forwarded(same, 0)
        assert (native is None) is (found is None)
        if found is not None:
            assert (view_of_sends(native[0]), native[1]) == (view_of_sends(found[0]), found[1])
        again = NATIVE.pick_sends(same, 0, 2, 5, _ADDED, 1)
        assert view_of_sends(again) == view_of_sends(picked)


_ROUTE = "_AMQ_ROUTE_TOa".encode("utf-16-le")
_ADDED = Properties({"_AMQ_ROUTE_TOa": b"1"}).encode()[5:]


def _forwarding_seeds() -> list[bytes]:
    bridged = Properties({BRIDGE_DUPLICATE_ID: bytes(24), "_AMQ_ROUTE_TO": bytes(8), GROUP_ID: "group"})
    routed = Properties({"_AMQ_ROUTE_TOa": bytes(8), "n": 1})
    sends = [encode_send(sample_message(properties=each), 10, True, 2) for each in (bridged, routed)]
    confirmed = encode_null_response(10, 1) + encode_null_response(10, 2)
    return [how + each for each in (*sends, sends[0] * 3, confirmed) for how in (b"\0", b"\x50", b"\xff")]


KERNEL = (
    Target("kernel-scan", _scan, (), _scan_seeds, memory_floor_bytes=1 << 20),
    Target("kernel-sends", _sends, (), _sends_seeds, memory_per_byte=256, weight=2),
    Target("kernel-forwarding", _forwarding, (), _forwarding_seeds, memory_per_byte=256),
)
