"""The bridge of a store-and-forward queue: its settings, and its messages as they are sent, with the ids of the queues
that are meant.

Source: artemis-core s. 9.3.
"""

from __future__ import annotations

import struct
from typing import Final

from understudy.cluster.bridges.conversion import ForwardForm
from understudy.config.bridge import BridgeConfiguration, BridgeConnection, BridgeTarget
from understudy.config.model import ClusterConnectionConfiguration
from understudy.errors import IllegalState
from understudy.message import BRIDGE_DUPLICATE_ID, ROUTE_TO, Message
from understudy.routing.remote import without_routes

_I64: Final = struct.Struct(">q")


class ClusterConversion:
    """The changes that the bridge to one node makes in its messages. Implements
    ``cluster.bridges.conversion.Converts``.
    """

    def __init__(self, queue_name: str, node_id: str, *, use_duplicate_detection: bool) -> None:
        """Args:
        queue_name: Name of the store-and-forward queue.
        node_id: Node id of this node, a UUID.
        use_duplicate_detection: Whether the other node drops messages that it has.
        """
        self._ids = ROUTE_TO + queue_name
        self._node_id = bytes.fromhex(node_id.replace("-", "")) if use_duplicate_detection else None
        self.form: ForwardForm | None = ForwardForm(
            None, self._ids.encode("utf-16-le", "surrogatepass"), self._node_id or b""
        )
        """Changes that the kernel makes in a batch; see ``Converts``."""

    def convert(self, message: Message, message_id: int, deliveries: int = 0) -> Message:
        """The message to send; see ``cluster.bridges.conversion.Conversion``. Raises IllegalState: it names no queues.
        Only deliveries before it came to the store-and-forward queue count, which the message says itself.
        """
        ids = message.properties.get(self._ids)
        if not isinstance(ids, bytes):
            raise IllegalState(f"message {message_id} has no {self._ids}")
        properties = without_routes(message.properties)
        properties[ROUTE_TO] = ids
        if self._node_id is not None and BRIDGE_DUPLICATE_ID not in properties:
            # a queue that was kept for a node that was scaled down has the id of that node
            properties[BRIDGE_DUPLICATE_ID] = self._node_id + _I64.pack(message_id)
        return message.with_properties(properties)


def bridge_id(node_id: str, message_id: int) -> bytes:
    """The id by which a message of a node is recognised when it is sent again. ``node_id`` is a UUID."""
    return bytes.fromhex(node_id.replace("-", "")) + _I64.pack(message_id)


def bridge_configuration(name: str, cluster: ClusterConnectionConfiguration) -> BridgeConfiguration:
    """The settings of the bridge of the store-and-forward queue ``name``."""
    return BridgeConfiguration(
        name,
        name,
        BridgeTarget(client_id=cluster.client_id),
        BridgeConnection(
            cluster.check_period_ms,
            cluster.connection_ttl_ms,
            cluster.retry_interval_ms,
            cluster.retry_interval_multiplier,
            cluster.max_retry_interval_ms,
            cluster.initial_connect_attempts,
            cluster.reconnect_attempts,
        ),
        min_large_message_size_bytes=cluster.min_large_message_size_bytes,
        use_duplicate_detection=cluster.use_duplicate_detection,
        confirmation_window_size_bytes=cluster.confirmation_window_size_bytes,
        producer_window_size_bytes=cluster.producer_window_size_bytes,
    )
