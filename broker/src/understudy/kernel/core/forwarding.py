"""The frames by which a bridge sends messages.

Layouts: SESS_SEND as in ``kernel.core.frames``, properties as in ``kernel.changes``.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from understudy.kernel.changes import BRIDGE_NAME, ROUTE_NAME, block_of, entries_of, with_entries

_I32 = Struct(">i")
_ID = Struct(">q")
_SEND_HEAD = Struct(">ibq")
_SEND_TAIL = Struct(">bqi")
_SESS_SEND: Final = 71
#: Bytes of a SESS_SEND frame beside its message.
_SEND_OVERHEAD_BYTES: Final = 26
_BYTES: Final = 4
#: Bytes of the ids in ``_AMQ_BRIDGE_DUP``.
_NODE_ID_BYTES: Final = 16


def _entry(name: bytes, value: bytes) -> bytes:
    """A property of type bytes."""
    return b"".join((_I32.pack(len(name)), name, bytes((_BYTES,)), _I32.pack(len(value)), value))


def forward_messages(
    messages: Sequence[bytes],
    message_ids: Sequence[int],
    address: bytes | None,
    ids_name: bytes,
    node_id: bytes,
    body_bytes_max: int,
    channel_id: int,
    correlation_id: int,
) -> tuple[bytes, int, bytes]:
    """The SESS_SEND frames by which a bridge sends messages, each of which wants a response.

    Args:
        messages: Encoded.
        message_ids: Message ids of the broker, one for each.
        address: Where they go, in UTF-16; None: to their own.
        ids_name: Name of the property with the ids of the queues that are meant, in UTF-16: ``_AMQ_ROUTE_TO`` gets
            its value. Empty: no queues are meant. All other properties whose names begin with ``_AMQ_ROUTE_TO`` are
            left out.
        node_id: 16 bytes of the ``_AMQ_BRIDGE_DUP`` that each gets with its id; empty: none does.
        body_bytes_max: Longest body.
        channel_id: Channel of the session.
        correlation_id: Correlation id of the first one; each further one has the next.

    Returns:
        The frames; how many: those before the first message that has a longer body, another address than the first one,
        or a ``_AMQ_BRIDGE_DUP`` already, lacks the ids, or is malformed; and the address of the first message, in
        UTF-16, empty if there is none.

    Raises:
        ValueError: There are not as many ids as messages, or ``node_id`` has another length.
    """
    if len(messages) != len(message_ids) or len(node_id) not in (0, _NODE_ID_BYTES):
        raise ValueError(f"{len(messages)} messages, {len(message_ids)} ids, a node id of {len(node_id)} bytes")
    parts: list[bytes] = []
    count = 0
    target = b""
    for message, message_id in zip(messages, message_ids, strict=True):
        stop = len(message)
        block = block_of(message, 0, stop)
        if block < 0 or _I32.unpack_from(message, 0)[0] - 13 > body_bytes_max:
            break
        kept: list[bytes] = []
        ids: bytes | None = None if ids_name else b""
        marked = malformed = False
        for entry in entries_of(message, block, stop):
            if entry is None:
                malformed = True
                break
            begin, name, name_end, tag, value, end = entry
            raw = message[name:name_end]
            if raw.startswith(ROUTE_NAME):
                if ids_name and raw == ids_name:
                    ids = message[value:end] if tag == _BYTES else None
            else:
                marked = marked or raw == BRIDGE_NAME
                kept.append(message[begin:end])
        own = _address_of(message)
        if malformed or marked or ids is None or (count and own != target):
            break
        target = own
        added = [_entry(ROUTE_NAME, ids)] if ids_name else []
        if node_id:
            added.append(_entry(BRIDGE_NAME, node_id + _ID.pack(message_id)))
        encoded = with_entries(message, 0, block, kept, added)
        if address is not None:
            encoded = _addressed(encoded, address)
        head = _SEND_HEAD.pack(len(encoded) + _SEND_OVERHEAD_BYTES - 4, _SESS_SEND, channel_id)
        parts += (head, encoded, _SEND_TAIL.pack(-1, correlation_id + count, -1))
        count += 1
    return b"".join(parts), count, target


def _address_of(message: bytes) -> bytes:
    """The address of a message, in UTF-16; empty: it has none."""
    flag = _I32.unpack_from(message, 0)[0] - 1
    if not message[flag]:
        return b""
    return message[flag + 5 : flag + 5 + _I32.unpack_from(message, flag + 1)[0]]


def _addressed(message: bytes, address: bytes) -> bytes:
    """Copy of the message with another address."""
    flag = _I32.unpack_from(message, 0)[0] - 1
    rest = flag + 1
    if message[flag]:
        rest += 4 + _I32.unpack_from(message, rest)[0]
    return b"".join((message[:flag], b"\1", _I32.pack(len(address)), address, message[rest:]))
