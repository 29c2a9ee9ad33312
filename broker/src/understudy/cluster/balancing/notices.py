"""Notifications by which nodes learn each other's queues, as sent and received: names and forms.

Source: artemis-core s. 9.3, 10.2.
"""

from __future__ import annotations

from typing import Final

from understudy.config.cluster_addresses import split_addresses
from understudy.config.model import ClusterConnectionConfiguration
from understudy.dataclass import dataclass
from understudy.errors import RemoteProtocolError
from understudy.limits import NAME_UNITS_MAX
from understudy.properties import Properties

TYPE: Final = "_AMQ_NotifType"
ADDRESS: Final = "_AMQ_Address"
CLUSTER_NAME: Final = "_AMQ_ClusterName"
ROUTING_NAME: Final = "_AMQ_RoutingName"
BINDING_ID: Final = "_AMQ_Binding_ID"
BINDING_TYPE: Final = "_AMQ_Binding_Type"
FILTER: Final = "_AMQ_FilterString"
DISTANCE: Final = "_AMQ_Distance"
RESET: Final = "_AMQ_RESET_QUEUE_DATA"
COMPLETE: Final = "_AMQ_RESET_QUEUE_DATA_COMPLETE"

#: Of grouping handlers (``group_notices``).
_GROUPS: Final = ("PROPOSAL", "PROPOSAL_RESPONSE", "UNPROPOSAL")
_TYPES: Final = ("BINDING_ADDED", "BINDING_REMOVED", "BINDING_UPDATED", "CONSUMER_CREATED", "CONSUMER_CLOSED")
_DIVERT: Final = 2


@dataclass(frozen=True, slots=True)
class Notice:
    """Notification about a queue of another node."""

    kind: str
    """BINDING_ADDED, BINDING_REMOVED, BINDING_UPDATED, CONSUMER_CREATED or CONSUMER_CLOSED."""
    cluster_name: str
    address: str = ""
    routing_name: str = ""
    binding_id: int = 0
    distance: int = 0
    filter: str | None = None
    """Filter of the queue, or of the consumer."""


def read_notice(properties: Properties) -> Notice | None:
    """The notification in the properties of a message; None: another kind.

    Raises:
        RemoteProtocolError: a property is missing or has another type.
    """
    kind = properties.get(TYPE)
    if kind not in _TYPES:
        return None
    name = _text(properties, CLUSTER_NAME)
    selector = properties.get(FILTER)
    if selector is not None and not isinstance(selector, str):
        raise RemoteProtocolError(f"{kind}: {FILTER} is no text")
    if kind != "BINDING_ADDED":
        return Notice(kind, name, filter=selector or None)
    return Notice(
        kind,
        name,
        _text(properties, ADDRESS),
        _text(properties, ROUTING_NAME),
        _number(properties, BINDING_ID),
        _number(properties, DISTANCE),
        selector or None,
    )


def _text(properties: Properties, name: str) -> str:
    value = properties.get(name)
    if not isinstance(value, str) or not value or len(value) > NAME_UNITS_MAX:
        raise RemoteProtocolError(f"{properties.get(TYPE)}: {name} is missing, empty or too long")
    return value


def _number(properties: Properties, name: str) -> int:
    value = properties.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise RemoteProtocolError(f"{properties.get(TYPE)}: {name} is missing or no number")
    return value


def selector_of(
    cluster: ClusterConnectionConfiguration, *, internal_prefix: str, management_address: str, notifications: str
) -> str:
    """The selector of the queue by which a node learns the queues of another one.

    Args:
        cluster: Cluster with ``max-hops`` and ``address``.
        internal_prefix: Internal prefix of store-and-forward queues.
        management_address: Management address of this node; that of the other one is taken to be the same.
        notifications: Address of notifications, likewise.
    """
    kinds = ", ".join(f"'{each}'" for each in (*_TYPES, *_GROUPS))
    rules = [
        f"({BINDING_TYPE} <> {_DIVERT} OR {BINDING_TYPE} IS NULL)",
        f"{TYPE} IN ({kinds})",
        f"{DISTANCE} < {cluster.max_hops}",
    ]
    included, excluded = split_addresses(cluster.address)
    if included:
        rules.append("(" + " OR ".join(f"{ADDRESS} LIKE '{_pattern(each)}'" for each in included) + ")")
    left_out = (*excluded, internal_prefix, management_address, notifications)
    rules += [f"{ADDRESS} NOT LIKE '{_pattern(each)}'" for each in left_out]
    return " AND ".join(rules)


def _pattern(prefix: str) -> str:
    return prefix.replace("'", "''") + "%"
