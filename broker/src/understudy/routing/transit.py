"""Properties that a message has only on its way between brokers, and from a tool to a broker (ADR 0123).

``_AMQ_ORIG_DELIVERIES`` is how often the message was delivered before it left its queue, so that a message that fails
again and again reaches ``max-delivery-attempts`` wherever it is. ``_AMQ_ORIG_TRANSFER`` says that it is a message of
another queue and not a new one (``message.Transfer``). A queue that consumers read from gets the message without them.
A store-and-forward queue keeps the former for the member that the message goes to.

``_AMQ_ORIG_SENT_TO`` is the address of a message that a tool puts back into one queue, for which it is sent to
``address::queue``.

Not here: whose messages may have them (``session.broker_properties``).
"""

from __future__ import annotations

from typing import Final

from understudy.message import DELIVERIES, SENT_TO, TRANSFER, Message, Transfer
from understudy.properties import INT, Properties

_INT_MAX: Final = (1 << 31) - 1
_FLAGS: Final = Transfer.KEEPS_ORIGIN | Transfer.NEEDS_QUEUE | Transfer.FORWARDED


def set_deliveries(properties: Properties, deliveries: int) -> None:
    """Say how often a message that leaves its queue was delivered there; nothing is said of one that never was."""
    if deliveries > 0:
        properties.set_typed(DELIVERIES, INT, min(deliveries, _INT_MAX))


def deliveries_of(message: Message) -> int:
    """How often a message was delivered before it came here; 0: never, or nothing is known."""
    value = message.properties.get(DELIVERIES)
    return max(value, 0) if isinstance(value, int) else 0


def arrived(message: Message, *, keeps_deliveries: bool) -> Message:
    """The message as its queues get it. ``keeps_deliveries``: they are read by a bridge to another member only."""
    properties = message.properties
    if not properties.may_be_reserved:
        return message
    kept = properties.copy()
    sent_to = kept.pop(SENT_TO, None)
    kept.pop(TRANSFER, None)
    if not keeps_deliveries:
        kept.pop(DELIVERIES, None)
    if len(kept) == len(properties):
        return message
    if isinstance(sent_to, str):
        return message.replace(address=sent_to, properties=kept, message_id=message.message_id)
    return message.with_properties(kept)


def transfer_of(message: Message) -> Transfer:
    """The value of ``_AMQ_ORIG_TRANSFER``; of a message without it no flag is set."""
    properties = message.properties
    value = properties.get(TRANSFER) if properties.may_be_reserved else None
    return Transfer(value & _FLAGS) if isinstance(value, int) else Transfer(0)
