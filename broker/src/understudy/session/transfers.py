"""Properties that only a broker writes, in messages of clients: which of them stay (ADR 0025, ADR 0123).

An ordinary client's are removed. A message that a bridge forwards, or that a tool sends from an export or an archive,
is no new message: it says so (``_AMQ_ORIG_TRANSFER``, or the duplicate id of a bridge) and keeps where it came from.
Because a retry returns a message to its origin, the origin is kept only if the sender might send there itself, or may
manage the address that the message goes to. The latter may also say who sent the message, and when it came.
"""

from __future__ import annotations

from collections.abc import Callable

from understudy.message import (
    ACTUAL_EXPIRY,
    BRIDGE_DUPLICATE_ID,
    DELIVERIES,
    HOPS,
    INGRESS_TIMESTAMP,
    ORIGINAL_ADDRESS,
    ORIGINAL_MESSAGE_ID,
    ORIGINAL_QUEUE,
    ORIGINAL_ROUTING_TYPE,
    SENT_TO,
    TRANSFER,
    VALIDATED_USER,
    Message,
    Transfer,
)
from understudy.properties import RESERVED_PREFIXES
from understudy.routing.transit import transfer_of
from understudy.session.callback import SessionSecurity
from understudy.terms import Permission

_ORIGIN = frozenset((ORIGINAL_ADDRESS, ORIGINAL_QUEUE, ORIGINAL_MESSAGE_ID, ORIGINAL_ROUTING_TYPE, ACTUAL_EXPIRY))
_SENDER = frozenset((VALIDATED_USER, INGRESS_TIMESTAMP))
_TRANSIT = frozenset((TRANSFER, DELIVERIES, HOPS))


def admitted(message: Message, security: SessionSecurity, origin_removed: Callable[[Message], None]) -> Message:
    """The message of a client without the properties that the client may not set.

    Args:
        message: With its address, without a prefix.
        origin_removed: Called with a transfer whose origin is removed.
    """
    properties = message.properties
    if not properties.may_be_reserved:
        return message
    transfer = transfer_of(message)
    if not (transfer & Transfer.KEEPS_ORIGIN or BRIDGE_DUPLICATE_ID in properties):
        return _with_reserved(message, frozenset((TRANSFER,)) if transfer else frozenset())
    address, _, queue = (message.address or "").partition("::")
    manages = security.allows(Permission.MANAGE, address, queue or None)
    kept = _TRANSIT
    sent_to = properties.get(SENT_TO)
    if manages or (isinstance(sent_to, str) and security.allows(Permission.SEND, sent_to)):
        kept |= {SENT_TO}
    if manages:
        kept |= _ORIGIN | _SENDER
    elif _may_send_to_origin(message, security):
        kept |= _ORIGIN
    elif ORIGINAL_ADDRESS in properties:
        origin_removed(message)
    return _with_reserved(message, kept)


def _with_reserved(message: Message, kept: frozenset[str]) -> Message:
    """The message without the reserved properties that are not among these."""
    properties = message.properties
    removed = [name for name in properties if name.startswith(RESERVED_PREFIXES) and name not in kept]
    if not removed:
        return message
    left = properties.copy()
    for name in removed:
        del left[name]
    return message.with_properties(left)


def _may_send_to_origin(message: Message, security: SessionSecurity) -> bool:
    origin, queue = message.properties.get(ORIGINAL_ADDRESS), message.properties.get(ORIGINAL_QUEUE)
    if not isinstance(origin, str):
        # a message that says only when it expired returns nowhere
        return origin is None and queue is None
    return security.allows(Permission.SEND, origin, queue if isinstance(queue, str) else None)
