"""The collections of an active broker, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from understudy.management.model.figure import Item
from understudy.management.operations.invocation import ManagedNode
from understudy.management.snapshot.access import role_rows, setting_rows, user_rows
from understudy.management.snapshot.clients import (
    connection_rows,
    consumer_rows,
    producer_rows,
    session_rows,
    transaction_rows,
)
from understudy.management.snapshot.exchanges import channel_rows, exchange_binding_rows, exchange_rows
from understudy.management.snapshot.links import bridge_rows
from understudy.management.snapshot.routing import address_rows, binding_rows, divert_rows, queue_rows
from understudy.management.snapshot.rows import Rows

READERS: Final[Mapping[str, Callable[[ManagedNode], Rows[Any]]]] = {
    "queues": queue_rows,
    "addresses": address_rows,
    "bindings": binding_rows,
    "exchanges": exchange_rows,
    "exchange-bindings": exchange_binding_rows,
    "connections": connection_rows,
    "channels": channel_rows,
    "sessions": session_rows,
    "consumers": consumer_rows,
    "producers": producer_rows,
    "transactions": transaction_rows,
    "bridges": bridge_rows,
    "diverts": divert_rows,
    "users": user_rows,
    "roles": role_rows,
    "settings": setting_rows,
}
"""Reads the rows of a collection of an active broker, by the name of the collection."""


def rows_of(collection: str, kind: type[Item], node: ManagedNode | None) -> Rows[Any]:
    """The rows of a collection.

    Args:
        collection: Name of the collection.
        kind: Kind of its items.
        node: The active broker; None: the node is not active and has operations only.
    """
    if collection == "operations":
        # imported at the first use, because it imports 30 modules with the tables of all operations
        from understudy.management.operations.declared import declared

        return Rows.of_items(kind, declared())
    return Rows.of_items(kind, ()) if node is None else READERS[collection](node)
