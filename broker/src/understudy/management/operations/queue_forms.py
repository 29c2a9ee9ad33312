"""``createQueue`` and ``updateQueue`` with one parameter per attribute, in the forms of the versions of Artemis.

Not here: the forms with JSON and the short ones (``broker_routing``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from understudy.management.operations.invocation import Control
from understudy.management.operations.routing import change, create, describe_queue, routing_type_of
from understudy.management.operations.table import Operation, Parameter, flag, integer, long, operation, text
from understudy.routing.addresses.configuration import QueueConfiguration

#: Fields by the names of the parameters.
_CREATED: Final[dict[str, Parameter]] = {
    "address": text("address", nullable=True),
    "routing_type": text("routingType", nullable=True),
    "name": text("name"),
    "filter": text("filter", nullable=True),
    "durable": flag("durable"),
    "max_consumers": integer("maxConsumers"),
    "purge_on_no_consumers": flag("purgeOnNoConsumers"),
    "exclusive": flag("exclusive"),
    "group_rebalance": flag("groupRebalance"),
    "group_buckets": integer("groupBuckets"),
    "group_first_key": text("groupFirstKey", nullable=True),
    "last_value": flag("lastValue"),
    "last_value_key": text("lastValueKey", nullable=True),
    "non_destructive": flag("nonDestructive"),
    "consumers_before_dispatch": integer("consumersBeforeDispatch"),
    "delay_before_dispatch": long("delayBeforeDispatch"),
    "auto_delete": flag("autoDelete"),
    "auto_delete_delay": long("autoDeleteDelay"),
    "auto_delete_message_count": long("autoDeleteMessageCount"),
    "auto_create_address": flag("autoCreateAddress"),
    "ring_size": long("ringSize"),
}
_CHANGED: Final[dict[str, Parameter]] = {
    "name": text("name"),
    "routing_type": text("routingType", nullable=True),
    "filter": text("filter", nullable=True),
    "max_consumers": integer("maxConsumers", nullable=True),
    "purge_on_no_consumers": flag("purgeOnNoConsumers", nullable=True),
    "exclusive": flag("exclusive", nullable=True),
    "group_rebalance": flag("groupRebalance", nullable=True),
    "group_buckets": integer("groupBuckets", nullable=True),
    "group_first_key": text("groupFirstKey", nullable=True),
    "non_destructive": flag("nonDestructive", nullable=True),
    "consumers_before_dispatch": integer("consumersBeforeDispatch", nullable=True),
    "delay_before_dispatch": long("delayBeforeDispatch", nullable=True),
    "user": text("user", nullable=True),
    "ring_size": long("ringSize", nullable=True),
}
_AUTO_DELETE: Final = ("auto_delete", "auto_delete_delay", "auto_delete_message_count")
_SHORT: Final = ("name", "routing_type", "max_consumers", "purge_on_no_consumers")


def _without(names: dict[str, Parameter], *left_out: str) -> tuple[str, ...]:
    return tuple(name for name in names if name not in left_out)


def _creating(names: tuple[str, ...]) -> Callable[..., str]:
    def create_queue(control: Control, *values: object) -> str:
        """Create a queue. Raises what ``Directory.create_queue`` raises, and ManagementError."""
        given = dict(zip(names, values, strict=True))
        may_create = bool(given.pop("auto_create_address"))
        routing_type = given["routing_type"]
        given["routing_type"] = routing_type_of(routing_type) if isinstance(routing_type, str) else None
        given["address"] = given["address"] or given["name"]
        return create(control, QueueConfiguration(**given), may_create)  # type: ignore[arg-type]  # by the table

    return create_queue


def _changing(names: tuple[str, ...]) -> Callable[..., str]:
    def update_queue(control: Control, *values: object) -> str:
        """Null keeps an attribute. Raises QueueNotFound, UnexpectedRoutingType, InvalidQueueConfiguration."""
        given = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        # ``user`` is informational and cannot be updated
        given.pop("user", None)
        routing_type = given.get("routing_type")
        if isinstance(routing_type, str):
            given["routing_type"] = routing_type_of(routing_type)
        queue = control.node.services.sessions.post_office.directory.queue(str(given.pop("name")))
        change(control, queue, given)
        return describe_queue(queue)

    return update_queue


def _created(doc: str, *names: str) -> Operation:
    return operation("createQueue", _creating(names), doc, *(_CREATED[name] for name in names))


def _changed(doc: str, *names: str) -> Operation:
    return operation("updateQueue", _changing(names), doc, *(_CHANGED[name] for name in names))


OPERATIONS: Final[tuple[Operation, ...]] = (
    _created("Create a queue with all attributes.", *_CREATED),
    _created("The same without a ring size.", *_without(_CREATED, "ring_size")),
    _created("The same without ring size and group-first key.", *_without(_CREATED, "ring_size", "group_first_key")),
    _created("The same without auto-delete.", *_without(_CREATED, "ring_size", "group_first_key", *_AUTO_DELETE)),
    _changed("Change a queue; returns its description.", *_SHORT),
    _changed("The same.", *_SHORT, "exclusive"),
    _changed("The same; the user is not changed.", *_SHORT, "exclusive", "user"),
    _changed("The same.", *_without(_CHANGED, "ring_size", "group_first_key")),
    _changed("The same.", *_without(_CHANGED, "ring_size")),
    _changed("The same.", *_CHANGED),
)
