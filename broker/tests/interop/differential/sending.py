"""The packets of one send: one, or those of a large message in pieces.

Not here: whether it is sent (``runner``).
"""

from __future__ import annotations

import zlib

from interop.differential import steps
from understudy.message import LARGE_COMPRESSED, Message, MessageType
from understudy.properties import BOOLEAN, LONG, Properties
from understudy.wire.core import packets
from understudy.wire.core.packets_session import header_of_message

#: A time that stays ahead, and one that is over: epoch milliseconds.
FAR_MS = 4_000_000_000_000
PAST_MS = 1_000_000_000_000
_PRODUCER = 1


def body_of(step: steps.Send) -> bytes:
    """Body of a send: the text of the step, repeated up to the size of the step, and compressed if the step says so."""
    text = step.body.encode()
    body = (
        (text + b"|" + (text[::-1] + b".") * (step.size // (len(text) + 1)))[: step.size]
        if step.size or step.large
        else text
    )
    return zlib.compress(body) if step.compressed else body


def packets_of(step: steps.Send, address: str, correlation_id: int) -> list[packets.Packet]:
    """The packets of a send in order; only the last one may request a response."""
    properties = Properties()
    for key, (tag, value) in step.properties:
        properties.set_typed(key, tag, value)  # type: ignore[arg-type]
    if step.scheduled:
        properties.set_typed("_AMQ_SCHED_DELIVERY", LONG, FAR_MS if step.scheduled == "far" else PAST_MS)
    if step.compressed:
        properties.set_typed(LARGE_COMPRESSED, BOOLEAN, True)
    body = body_of(step)
    message = Message(
        b"" if step.large else body,
        address=address,
        type=MessageType.BYTES,
        durable=step.durable,
        priority=step.priority,
        expiration={"": 0, "far": FAR_MS, "past": PAST_MS}[step.expires],
        timestamp=PAST_MS,
        properties=properties,
    )
    if not step.large:
        return [packets.SessionSend(message, step.answered, correlation_id, _PRODUCER)]
    pieces: list[packets.Packet] = []
    for size in step.large:
        pieces.append(packets.SessionSendContinuation(body[:size], True, sender_id=_PRODUCER))
        body = body[size:]
    if not step.unfinished:
        # exclusions.SIZE_UNKNOWN
        last = packets.SessionSendContinuation(body, False, step.size, step.answered, correlation_id, _PRODUCER)
        pieces.append(last)
    return [packets.SessionSendLarge(header_of_message(message)), *pieces]
