"""One divert: whether it takes a message, and the copy that it makes of it (manual, "Diverting and Splitting Message
Flows").

Not here: which diverts apply to a message (``lifecycle.diverts``).
"""

from __future__ import annotations

from typing import Final

from understudy.errors import LimitExceeded
from understudy.limits import FORWARDING_ADDRESSES_MAX
from understudy.message import (
    DELIVERIES,
    ORIGINAL_ADDRESS,
    ORIGINAL_MESSAGE_ID,
    ORIGINAL_QUEUE,
    ORIGINAL_ROUTING_TYPE,
    ROUTING_TYPE,
    Message,
)
from understudy.properties import BYTE
from understudy.routing.addresses.configuration import check_name
from understudy.routing.filter import parse_filter
from understudy.terms import DivertDefinition, DivertRouting, RoutingType

_GIVEN_TYPES: Final = {
    DivertRouting.ANYCAST: RoutingType.ANYCAST,
    DivertRouting.MULTICAST: RoutingType.MULTICAST,
}


class Divert:
    """One divert of an address."""

    __slots__ = ("configuration", "filter", "forwarding_addresses", "messages_diverted", "name", "stored")

    def __init__(self, configuration: DivertDefinition) -> None:
        """Raises InvalidQueueConfiguration, InvalidSelector, LimitExceeded."""
        check_name(configuration.name, "divert")
        check_name(configuration.address, "address")
        self.configuration = configuration
        self.name = configuration.name
        self.forwarding_addresses = tuple(
            dict.fromkeys(each.strip() for each in configuration.forwarding_address.split(","))
        )
        if len(self.forwarding_addresses) > FORWARDING_ADDRESSES_MAX:
            raise LimitExceeded(
                f"divert {self.name!r} has {len(self.forwarding_addresses)} addresses, limit {FORWARDING_ADDRESSES_MAX}"
            )
        for each in self.forwarding_addresses:
            check_name(each, "forwarding address")
        self.filter = parse_filter(configuration.filter)
        self.messages_diverted = 0
        self.stored = False
        """Whether the log has it; those of the configuration are made by every activation."""

    @property
    def routing_name(self) -> str:
        """Name under which the divert is bound; diverts with the same one take turns."""
        return self.configuration.routing_name or self.name

    def takes(self, message: Message) -> bool:
        """Whether the filter of the divert lets the message through."""
        return self.filter is None or self.filter.matches(message)

    def copy(self, message: Message, source: str, target: str, message_id: int) -> Message:
        """Copy of the message for a forwarding address."""
        properties = message.properties.copy()
        routing_type = properties.get(ROUTING_TYPE)
        if not self.configuration.exclusive:
            # a copy was never delivered
            properties.pop(DELIVERIES, None)
        properties[ORIGINAL_ADDRESS] = source
        properties[ORIGINAL_QUEUE] = self.name
        properties[ORIGINAL_MESSAGE_ID] = message.message_id
        if isinstance(routing_type, int):
            properties.set_typed(ORIGINAL_ROUTING_TYPE, BYTE, routing_type)
        routing = self.configuration.routing_type
        if routing is DivertRouting.STRIP:
            properties.pop(ROUTING_TYPE, None)
        elif routing is not DivertRouting.PASS:
            properties.set_typed(ROUTING_TYPE, BYTE, int(_GIVEN_TYPES[routing]))
        for name, value in self.configuration.transformer_properties.items():
            properties[name] = value
        return message.replace(address=target, properties=properties, message_id=message_id)
