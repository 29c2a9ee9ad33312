"""Properties that only a broker writes, in messages of clients: which of them stay, and the validated user.

Such properties of an ordinary client are removed, so consumers may trust them. A message that a bridge forwards, or
that a tool sends from an export or an archive, is no new message: it has the property ``_AMQ_ORIG_TRANSFER`` or the
duplicate id of a bridge, and keeps the properties of its origin (ADR 0025, ADR 0123). A retry returns a message to its
origin, so the origin stays only if the sender has permission to send there itself, or to manage the address of the
message. A sender with the latter permission may also set the user and the time of arrival.

The validated user is the property ``_AMQ_VALIDATED_USER`` (JMS: ``JMSXUserID``): populate-validated-user and
reject-empty-validated-user. A user is validated by a login that was checked; without security-enabled no user is.
"""

from __future__ import annotations

from collections.abc import Callable

from understudy.dataclass import dataclass
from understudy.errors import IllegalState
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
        message: Message with its address, without a prefix.
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


@dataclass(frozen=True, slots=True)
class ValidatedUsers:
    """Settings for the user of each message."""

    populate: bool = False
    """Write the name into every message (populate-validated-user)."""
    reject_empty: bool = False
    """Whether messages without a validated user are refused (reject-empty-validated-user)."""

    def __bool__(self) -> bool:
        return self.populate or self.reject_empty

    def apply(self, message: Message, user: str | None) -> Message:
        """The message of a client as it is routed.

        Args:
            message: Without properties that the client may not set.
            user: Validated user of its session; None without one.

        Raises:
            IllegalState: it has no validated user and such messages are rejected.
        """
        if VALIDATED_USER in message.properties:
            # of a message that was sent to another broker, or here earlier
            return message
        if self.populate and user:
            return message.with_validated_user(user)
        if self.reject_empty:
            raise IllegalState("a message without a validated user is rejected (reject-empty-validated-user)")
        return message
