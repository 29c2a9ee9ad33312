"""Records of addresses and queues in the log: made from what exists, and read at the activation.

Not here: their bytes (``store.records``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, get_type_hints

from understudy.errors import StoreError
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.exchanges.queue_arguments import QueueArguments
from understudy.store.log.records import AddressRecord, QueueRecord
from understudy.terms import RoutingType

#: Attributes of a queue that its record keeps in ``settings``, None left out.
KEPT_ATTRIBUTES: Final = (
    "auto_created",
    "max_consumers",
    "purge_on_no_consumers",
    "exclusive",
    "last_value",
    "last_value_key",
    "non_destructive",
    "consumers_before_dispatch",
    "delay_before_dispatch",
    "ring_size",
    "enabled",
    "group_rebalance",
    "group_rebalance_pause_dispatch",
    "group_buckets",
    "group_first_key",
    "auto_delete",
    "auto_delete_delay",
    "auto_delete_message_count",
    "paused",
    "configuration_managed",
)


def address_record(
    address_id: int,
    name: str,
    routing_types: Iterable[RoutingType],
    auto_created: bool,
    internal: bool,
    diverts: Sequence[Mapping[str, object]] = (),
    *,
    paused: bool = False,
) -> AddressRecord:
    """The record of an address in the log."""
    settings: dict[str, object] = {"internal": True} if internal else {}
    if paused:
        settings["paused"] = True
    if diverts:
        settings["diverts"] = list(diverts)
    return AddressRecord(
        address_id,
        name,
        tuple(sorted(int(routing_type) for routing_type in routing_types)),
        auto_created,
        settings,
    )


def queue_record(queue_id: int, address_id: int, full: QueueConfiguration) -> QueueRecord:
    """The record of a queue in the log."""
    kept: dict[str, object] = {}
    for name in KEPT_ATTRIBUTES:
        value = getattr(full, name)
        if value is not None:
            kept[name] = value
    if full.internal:
        kept["internal"] = True
    if full.user:
        kept["user"] = full.user
    if full.arguments is not None:
        kept[_ARGUMENTS] = full.arguments.as_values()
    return QueueRecord(queue_id, address_id, full.name, int(full.routing_type or 0), full.filter, full.durable, kept)


#: Name of the arguments of AMQP 0-9-1 in the settings of a record.
_ARGUMENTS: Final = "amqp091"
_TYPES: Final = get_type_hints(QueueConfiguration)
_KEPT_TYPES: Final = {name: _TYPES[name] for name in (*KEPT_ATTRIBUTES, "internal", "user")}
_IS_FLAG: Final = {name: isinstance(True, hint) and not isinstance(2, hint) for name, hint in _KEPT_TYPES.items()}


def queue_configuration(record: QueueRecord, address: str) -> QueueConfiguration:
    """The configuration of a queue in its record: values that it leaves open are not taken from the present settings.
    Unknown attributes of newer versions are left aside.

    Raises:
        StoreError: a known one is not as expected.
    """
    kept = {name: record.settings[name] for name in _KEPT_TYPES if name in record.settings}
    for name, value in kept.items():
        # a flag is no number, although Python has it as one
        if not isinstance(value, _KEPT_TYPES[name]) or (isinstance(value, bool) and not _IS_FLAG[name]):
            raise StoreError(f"queue {record.name!r} in the log has {name} {value!r}")
    arguments = None
    if _ARGUMENTS in record.settings:
        try:
            arguments = QueueArguments.of_values(record.settings[_ARGUMENTS])
        except ValueError as error:
            raise StoreError(f"queue {record.name!r} in the log: {error}") from error
    return QueueConfiguration(
        name=record.name,
        address=address,
        routing_type=RoutingType(record.routing_type),
        filter=record.filter,
        durable=record.durable,
        arguments=arguments,
        **kept,  # type: ignore[arg-type]  # written by queue_record with the field's own types
    )
