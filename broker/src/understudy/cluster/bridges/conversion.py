"""A message as a bridge sends it: address, routing type, the bridge's duplicate id, and added properties.

Source: manual, "Core Bridges"; the duplicate id is that of Artemis, so that brokers of both kinds recognise it.
"""

from __future__ import annotations

import struct
from typing import Final, Protocol

from understudy.config.bridge import BridgeConfiguration
from understudy.dataclass import dataclass
from understudy.message import BRIDGE_DUPLICATE_ID, ROUTE_TO, ROUTING_TYPE, TRANSFER, Message, Transfer
from understudy.properties import BYTE, INT
from understudy.routing.transit import set_deliveries
from understudy.terms import RoutingType

_I64: Final = struct.Struct(">q")
_GIVEN_TYPES: Final = {"ANYCAST": RoutingType.ANYCAST, "MULTICAST": RoutingType.MULTICAST}


@dataclass(frozen=True, slots=True)
class ForwardForm:
    """Changes of a bridge that ``kernel.forward_messages`` makes in runs of messages."""

    address: bytes | None
    """Address to which the messages go, in UTF-16; None: to their own addresses."""
    ids_name: bytes
    """Name of the property with the ids of the queues that are meant, in UTF-16; empty: none are meant."""
    node_id: bytes
    """Node id in the duplicate ids; empty: messages get no duplicate id."""


class Converts(Protocol):
    """The changes that one bridge makes in its messages."""

    @property
    def form(self) -> ForwardForm | None:
        """The changes of ``convert`` for runs of messages; None: only ``convert`` makes them."""
        ...

    def convert(self, message: Message, message_id: int, deliveries: int = 0) -> Message:
        """The message to send.

        Args:
            message: Message as the queue has it.
            message_id: Id of the message here; with the node id it is the same whenever the message is sent.
            deliveries: How often it was delivered to others before.

        Raises:
            BrokerError: it cannot be sent; the bridge ends its connection.
        """
        ...


class Conversion:
    """The changes of a configured bridge. Implements ``Converts``."""

    def __init__(self, configuration: BridgeConfiguration, node_id: str) -> None:
        """Args:
        node_id: Node id of this node, a UUID; a backup that takes over has the same id.
        """
        self._node_id = bytes.fromhex(node_id.replace("-", "")) if configuration.use_duplicate_detection else None
        self._address = configuration.forwarding_address
        self._strips = configuration.routing_type == "STRIP"
        self._routing_type = _GIVEN_TYPES.get(configuration.routing_type)
        self._added = dict(configuration.transformer_properties)
        self.form: ForwardForm | None = None
        """Changes that the kernel makes in a batch; see ``Converts``."""
        changes = self._strips or self._routing_type is not None or bool(self._added)
        if not changes and self._node_id is not None:
            address = None if self._address is None else self._address.encode("utf-16-le", "surrogatepass")
            self.form = ForwardForm(address, b"", self._node_id)

    def convert(self, message: Message, message_id: int, deliveries: int = 0) -> Message:
        properties = message.properties.copy()
        if properties.may_be_reserved:
            # a copy of the message went to other nodes of a cluster
            for name in [each for each in properties if each.startswith(ROUTE_TO)]:
                del properties[name]
        if self._node_id is not None:
            properties[BRIDGE_DUPLICATE_ID] = self._node_id + _I64.pack(message_id)
        else:
            properties.set_typed(TRANSFER, INT, int(Transfer.KEEPS_ORIGIN | Transfer.FORWARDED))
        set_deliveries(properties, deliveries)
        if self._strips:
            properties.pop(ROUTING_TYPE, None)
        elif self._routing_type is not None:
            properties.set_typed(ROUTING_TYPE, BYTE, int(self._routing_type))
        for name, value in self._added.items():
            properties[name] = value
        return message.replace(address=self._address, properties=properties, message_id=message.message_id)
