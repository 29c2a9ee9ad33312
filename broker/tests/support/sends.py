"""Messages as they come together from one client."""

from __future__ import annotations

from collections.abc import Sequence

from understudy.kernel import Sends
from understudy.kernel.core import split_sends
from understudy.message import Message
from understudy.wire.core.codec import encode_send


def sends_of(
    messages: Sequence[Message], correlation_ids: Sequence[int] | None = None, *, requires_response: bool = True
) -> Sends:
    """The messages as one read of a socket brings them.

    Args:
        messages: At least one.
        correlation_ids: One per message; by default 0, 1, 2 ...
        requires_response: Whether the client waits for each.
    """
    ids = range(len(messages)) if correlation_ids is None else correlation_ids
    data = b"".join(
        encode_send(message, 10, requires_response, correlation_id)
        for message, correlation_id in zip(messages, ids, strict=True)
    )
    sends = split_sends(data, 0, len(data), len(messages))
    assert sends is not None
    assert sends.count == len(messages)
    return sends
