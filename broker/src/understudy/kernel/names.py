"""Property names that decide how the broker treats a message.

Kept below ``message`` and ``properties``, because the kernel looks for them in encoded property blocks.
"""

from __future__ import annotations

from typing import Final

ROUTING_TYPE: Final = "_AMQ_ROUTING_TYPE"
DUPLICATE_ID: Final = "_AMQ_DUPL_ID"
SCHEDULED_DELIVERY: Final = "_AMQ_SCHED_DELIVERY"
#: Set by a core bridge: node id and message id of the broker that forwards the message.
BRIDGE_DUPLICATE_ID: Final = "_AMQ_BRIDGE_DUP"
#: Set by a node of the cluster: ids of the queues that are meant, 8 bytes each.
ROUTE_TO: Final = "_AMQ_ROUTE_TO"
#: Set by a node that is scaled down, within a transaction: ids of the queues in which the transaction acknowledges it.
ACK_ROUTE_TO: Final = "_AMQ_ACK_ROUTE_TO"
#: Set by a node that is scaled down: ids of the queues that are meant, at a third node.
SCALE_DOWN_TO: Final = "_AMQ_SCALEDOWN_TO"
GROUP_ID: Final = "_AMQ_GROUP_ID"
#: Property with the sequence of a message in its group; -1 closes the group.
GROUP_SEQUENCE: Final = "_AMQ_GROUP_SEQUENCE"

#: Beginnings of the property names that only a broker writes: the origin of a message and its time, its sender, and the
#: queues of a cluster it goes to. What a client writes under them is removed when the message enters (ADR 0025).
RESERVED_PREFIXES: Final = (
    "_AMQ_ORIG_",
    "_AMQ_ACTUAL_EXPIRY",
    "_AMQ_INGRESS_TIMESTAMP",
    "_AMQ_VALIDATED_USER",
    ROUTE_TO,
    ACK_ROUTE_TO,
    SCALE_DOWN_TO,
    "_hornetq.forced.delivery.seq",
)

#: Properties of a message of AMQP 0-9-1: its encoded property list, and the exchange and the routing key with which it
#: was published, without the prefix of the virtual host.
AMQP091_PROPERTY_LIST: Final = "_UND_AMQP091"
AMQP091_EXCHANGE: Final = "amqp_exchange"
AMQP091_ROUTING_KEY: Final = "amqp_routing_key"
#: Properties that are set from fields of its property list.
CORRELATION_ID: Final = "JMSCorrelationID"
REPLY_TO: Final = "JMSReplyTo"
JMS_TYPE: Final = "JMSType"
#: Beginnings of names of its headers that do not become properties: they have a meaning for the broker or for JMS.
AMQP091_KEPT_APART: Final = ("_AMQ", "_UND_", "_hornetq", "JMS", "amqp_")
#: The address that a publisher names to get replies without a queue.
AMQP091_REPLIES: Final = "amq.rabbitmq.reply-to"
