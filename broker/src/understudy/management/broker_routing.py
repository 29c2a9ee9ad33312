"""Operations of ``broker`` on addresses and queues: make, change, delete, list.

Texts and formats of the answers are those that the Artemis command line shows. Operators need no
further permission on the address: the manage permission, and the edit permission where it is
asked for, are theirs to make and delete what they want.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Final

from understudy.config.model import RoutingType
from understudy.errors import AddressNotFound, ManagementError
from understudy.management.invocation import Control
from understudy.management.listing import page_of, to_json
from understudy.management.operations import Operation, flag, integer, operation, text
from understudy.management.rows import address_row, queue_row
from understudy.routing.address import Address
from understudy.routing.changes import change_queue, change_routing_types
from understudy.routing.configuration import QueueConfiguration
from understudy.routing.directory import Directory
from understudy.routing.queue import Queue

#: Names in the JSON of a queue configuration that are not the field's own with dashes.
_JSON_NAMES: Final = {"filter": "filter-string"}
#: What an operator cannot ask for.
_NOT_ASKED: Final = frozenset({"internal", "configuration_managed", "paused", "temporary", "auto_created"})
#: What the Java client's configuration has besides, and what it may say: it would change nothing here.
_WITHOUT_EFFECT: Final = frozenset({"id", "user", "fqqn", "transient", "consumer-priority"})
_TEXTS: Final = frozenset({"name", "address", "filter", "last_value_key", "group_first_key"})
_FLAGS: Final = frozenset(
    {"durable", "purge_on_no_consumers", "exclusive", "last_value", "non_destructive", "group_rebalance",
     "group_rebalance_pause_dispatch", "auto_delete", "enabled"}
)  # fmt: skip


def _directory(control: Control) -> Directory:
    return control.node.services.post_office.directory


def routing_type_of(name: str) -> RoutingType:
    try:
        return RoutingType[name.strip().upper()]
    except KeyError as error:
        raise ManagementError(f"unknown routing type {name!r}: ANYCAST or MULTICAST") from error


def _routing_types(names: str) -> set[RoutingType]:
    return {routing_type_of(name) for name in names.split(",") if name.strip()}


# -- addresses ----------------------------------------------------------------------------------------


def describe_address(address: Address) -> str:
    """``Address [name=a, routingTypes={ANYCAST}, autoCreated=false]``."""
    types = ",".join(kind.name for kind in sorted(address.routing_types))
    return f"Address [name={address.name}, routingTypes={{{types}}}, autoCreated={_yes(address.auto_created)}]"


def _yes(value: object) -> str:
    return "true" if value else "false"


def _address(control: Control, name: str) -> Address:
    address = _directory(control).addresses.get(name)
    if address is None:
        raise AddressNotFound(f"no address {name!r}")
    return address


def create_address(control: Control, name: str, routing_types: str | None) -> str:
    """Raises AddressExists, ManagementError, InvalidQueueConfiguration, DiskFull."""
    return describe_address(_directory(control).create_address(name, _routing_types(routing_types or "")))


def update_address(control: Control, name: str, routing_types: str | None) -> str:
    """Raises AddressNotFound, UnexpectedRoutingType, ManagementError."""
    address = _address(control, name)
    if routing_types is not None:
        change_routing_types(control.node.services.post_office, address, _routing_types(routing_types))
    return describe_address(address)


def delete_address(control: Control, name: str, force: bool = False) -> None:
    """Raises AddressNotFound, AddressHasBindings."""
    _directory(control).delete_address(name, force=force)


def address_info(control: Control, name: str) -> str:
    return describe_address(_address(control, name))


def list_bindings(control: Control, name: str) -> str:
    address = _directory(control).addresses.get(name)
    queues = [] if address is None else [binding.queue for binding in address.bindings.values()]
    diverts = () if address is None else address.diverts
    found = [f"LocalQueueBinding [address={name}, queue={describe_queue(queue)}]" for queue in queues]
    return ",".join([*found, *(f"DivertBinding [address={name}, divert={divert.name}]" for divert in diverts)])


def list_addresses(control: Control, separator: str) -> str:
    return separator.join(sorted(_directory(control).addresses, key=str.lower))


def page_of_addresses(control: Control, options: str | None, page: int, page_size: int) -> str:
    rows = [
        address_row(address, control.node.global_max_size_bytes) for address in _directory(control).addresses.values()
    ]
    return page_of(rows, options, page, page_size, rows[0] if rows else ("name",))


# -- queues -------------------------------------------------------------------------------------------


def describe_queue(queue: Queue) -> str:
    """``Queue [name=q, address=a, routingType=ANYCAST, …]``; ``autoCreateAddress`` is there twice in Artemis, too,
    and says whether the queue was made on demand.
    """
    row = queue_row(queue)
    parts = [f"name={queue.name}", f"address={queue.address.name}", f"routingType={queue.routing_type.name}"]
    if queue.filter is not None:
        parts.append(f"filter={queue.filter.text}")
    parts.append(f"durable={_yes(queue.durable)}")
    if row["maxConsumers"] != -1:
        parts.append(f"maxConsumers={row['maxConsumers']}")
    parts += [
        f"purgeOnNoConsumers={_yes(row['purgeOnNoConsumers'])}",
        f"autoCreateAddress={_yes(row['autoCreated'])}",
        f"exclusive={_yes(row['exclusive'])}",
        f"lastValue={_yes(row['lastValue'])}",
        f"lastValueKey={row['lastValueKey'] or 'null'}",
        f"nonDestructive={_yes(queue.configuration.non_destructive)}",
        f"consumersBeforeDispatch={row['consumersBeforeDispatch']}",
        f"delayBeforeDispatch={row['delayBeforeDispatch']}",
        f"autoCreateAddress={_yes(row['autoCreated'])}",
    ]
    return f"Queue [{', '.join(parts)}]"


def create(control: Control, configuration: QueueConfiguration, may_create_address: bool | None) -> str:
    return describe_queue(_directory(control).create_queue(configuration, may_create_address=may_create_address))


def create_queue(
    control: Control,
    address: str | None,
    routing_type: str | None,
    name: str,
    selector: str | None,
    durable: bool,
    max_consumers: int,
    purge_on_no_consumers: bool,
    auto_create_address: bool,
) -> str:
    """Raises what ``Directory.create_queue`` raises, and ManagementError."""
    configuration = QueueConfiguration(
        name=name,
        address=address or name,
        routing_type=None if routing_type is None else routing_type_of(routing_type),
        filter=selector,
        durable=durable,
        max_consumers=max_consumers,
        purge_on_no_consumers=purge_on_no_consumers,
    )
    return create(control, configuration, auto_create_address)


def create_plain_queue(
    control: Control,
    address: str | None,
    name: str,
    *,
    selector: str | None = None,
    durable: bool = True,
    routing_type: str | None = None,
) -> None:
    """The short forms. Raises as ``create_queue``."""
    configuration = QueueConfiguration(
        name=name,
        address=address or name,
        routing_type=None if routing_type is None else routing_type_of(routing_type),
        filter=selector,
        durable=durable,
    )
    create(control, configuration, None)


def _plain(*names: str) -> Callable[..., None]:
    """A short form whose last parameters have these names."""

    def create(control: Control, address: str | None, name: str, *values: Any) -> None:
        create_plain_queue(control, address, name, **dict(zip(names, values, strict=True)))

    return create


def create_queue_from_json(control: Control, text_of_it: str, ignore_if_exists: bool = False) -> str:
    """Raises as ``create_queue``; returns the configuration that came of it."""
    given = parse_queue_configuration(text_of_it)
    may_create = given.pop("auto_create_address", None)
    if "name" not in given:
        raise ManagementError("the queue configuration has no name")
    directory = _directory(control)
    existing = directory.find_queue(given["name"])
    if existing is None or not ignore_if_exists:
        existing = directory.create_queue(QueueConfiguration(**given), may_create_address=may_create)
    return queue_configuration_json(existing)


def update_queue_from_json(control: Control, text_of_it: str) -> str:
    """Raises QueueNotFound, InvalidQueueConfiguration, ManagementError."""
    given = parse_queue_configuration(text_of_it)
    given.pop("auto_create_address", None)
    queue = _directory(control).queue(given.pop("name", ""))
    change(control, queue, given)
    return queue_configuration_json(queue)


def change(control: Control, queue: Queue, given: dict[str, Any]) -> None:
    if given.get("address") in ("", queue.address.name):
        del given["address"]
    change_queue(control.node.services.post_office, queue, replace(queue.configuration, **given))


def destroy_queue(
    control: Control, name: str, remove_consumers: bool = False, auto_delete_address: bool = False
) -> None:
    """An address goes with its last queue if it came with one, whatever its settings say: it is asked for.
    One that is to outlive its queues for a while is left to the sweep.

    Raises:
        QueueNotFound, QueueInUse
    """
    directory = _directory(control)
    address = directory.queue(name).address
    directory.delete_queue(name, disconnect=remove_consumers)
    unbound = not address.bindings and directory.addresses.get(address.name) is address
    if auto_delete_address and unbound and address.auto_created and not address.settings.auto_delete_addresses_delay:
        directory.delete_address(address.name)


def page_of_queues(control: Control, options: str | None, page: int, page_size: int) -> str:
    rows = [queue_row(queue) for queue in _directory(control).queues.values()]
    return page_of(rows, options, page, page_size, rows[0] if rows else ("name",))


def queue_names(control: Control, routing_type: str | None = None) -> list[str]:
    wanted = (routing_type or "").strip().upper()
    return [queue.name for queue in _directory(control).queues.values() if wanted in ("", queue.routing_type.name)]


# -- queue configurations as JSON ---------------------------------------------------------------------


def parse_queue_configuration(text_of_it: str) -> dict[str, Any]:
    """Fields of a ``QueueConfiguration``, and ``auto_create_address`` if it was given.

    Raises:
        ManagementError: no JSON object, an unknown name, or a value of a wrong type.
    """
    try:
        given = json.loads(text_of_it)
    except (ValueError, RecursionError) as error:
        raise ManagementError(f"the queue configuration is no JSON: {error}") from error
    if not isinstance(given, dict):
        raise ManagementError("the queue configuration is no JSON object")
    names = {_json_name(field.name): field.name for field in fields(QueueConfiguration)}
    result: dict[str, Any] = {}
    for key, value in given.items():
        if key in _WITHOUT_EFFECT and (key in ("id", "user", "fqqn") or value in (None, False)):
            continue
        name = "auto_create_address" if key == "auto-create-address" else names.get(key)
        if name is None or (name in _NOT_ASKED and value not in (None, False)):
            raise ManagementError(f"queue configuration: {key!r} cannot be given")
        if value is not None and name not in _NOT_ASKED:
            result[name] = _typed(key, name, value)
    return result


def _json_name(field: str) -> str:
    return _JSON_NAMES.get(field, field.replace("_", "-"))


def _typed(key: str, name: str, value: object) -> object:
    if name == "routing_type":
        return routing_type_of(str(value))
    # the Java client writes some numbers and flags as texts
    if name in _FLAGS or name == "auto_create_address":
        found = {"true": True, "false": False}.get(str(value).lower())
        if found is None:
            raise ManagementError(f"queue configuration: {key!r} is no flag")
        return found
    if name in _TEXTS:
        if not isinstance(value, str):
            raise ManagementError(f"queue configuration: {key!r} is no text")
        return value
    try:
        return int(str(value))
    except ValueError as error:
        raise ManagementError(f"queue configuration: {key!r} is no number") from error


def queue_configuration_json(queue: Queue) -> str:
    """What a queue is, as ``parse_queue_configuration`` reads it."""
    full = queue.configuration
    found: dict[str, object] = {"id": queue.queue_id, "auto-create-address": True, "transient": False, "fqqn": False}
    for field in fields(QueueConfiguration):
        value = getattr(full, field.name)
        if value is not None and value != "" and field.name != "paused":
            found[_json_name(field.name)] = value.name if isinstance(value, RoutingType) else value
    return to_json(found)


_NAME: Final = text("name")
_ADDRESS: Final = text("address", nullable=True)
_FILTER: Final = text("filter", nullable=True)
_DURABLE: Final = flag("durable")
_ROUTING: Final = text("routingType")
_OPTIONS: Final = (text("options", nullable=True), integer("pageNumber"), integer("pageSize"))

OPERATIONS: Final[tuple[Operation, ...]] = (
    operation("createAddress", create_address, "Make an address.", _NAME, text("routingTypes", nullable=True)),
    operation("updateAddress", update_address, "Give it these routing types and no others.",
              _NAME, text("routingTypes", nullable=True)),
    operation("deleteAddress", delete_address, "Delete an address that has no queues.", _NAME),
    operation("deleteAddress", delete_address, "With its queues, if force.", _NAME, flag("force")),
    operation("getAddressInfo", address_info, "An address as text.", text("address")),
    operation("listBindingsForAddress", list_bindings, "Its queues and diverts as text.", text("address")),
    operation("listAddresses", list_addresses, "Names of all addresses in one text.", text("separator")),
    operation("listAddresses", page_of_addresses, "A page of addresses (options below).", *_OPTIONS),
    operation("getAddressNames", lambda c: list(_directory(c).addresses), "Names of all addresses."),
    operation("getAddressCount", lambda c: len(_directory(c).addresses), "How many there are."),
    operation("createQueue", create_queue, "Make a queue; its description.", _ADDRESS,
              text("routingType", nullable=True), _NAME, _FILTER, _DURABLE, integer("maxConsumers"),
              flag("purgeOnNoConsumers"), flag("autoCreateAddress")),
    operation("createQueue", create_queue_from_json, "Make a queue from JSON; what came of it.",
              text("queueConfiguration")),
    operation("createQueue", create_queue_from_json, "The same; one that exists is as good.",
              text("queueConfiguration"), flag("ignoreIfExists")),
    operation("createQueue", create_plain_queue, "A durable queue.", _ADDRESS, _NAME),
    operation("createQueue", _plain("durable"), "A queue.", _ADDRESS, _NAME, _DURABLE),
    operation("createQueue", _plain("routing_type"), "A durable queue of a routing type.", _ADDRESS, _NAME, _ROUTING),
    operation("createQueue", _plain("durable", "routing_type"), "A queue of a routing type.",
              _ADDRESS, _NAME, _DURABLE, _ROUTING),
    operation("createQueue", _plain("selector", "durable"), "A queue with a selector.",
              _ADDRESS, _NAME, _FILTER, _DURABLE),
    operation("createQueue", _plain("selector", "durable", "routing_type"), "A queue with both.",
              _ADDRESS, _NAME, _FILTER, _DURABLE, _ROUTING),
    operation("updateQueue", update_queue_from_json, "Change what the JSON names; what came of it.",
              text("queueConfiguration")),
    operation("destroyQueue", destroy_queue, "Delete a queue that has no consumers.", _NAME),
    operation("destroyQueue", destroy_queue, "Disconnect its consumers first, if wanted.",
              _NAME, flag("removeConsumers")),
    operation("destroyQueue", destroy_queue, "And its address, if that came with a queue and has no other.",
              _NAME, flag("removeConsumers"), flag("autoDeleteAddress")),
    operation("listQueues", page_of_queues, "A page of queues (options below).", *_OPTIONS),
    operation("getQueueNames", queue_names, "Names of all queues."),
    operation("getQueueNames", queue_names, "Of those with a routing type.", text("routingType", nullable=True)),
    operation("getQueueCount", lambda c: len(_directory(c).queues), "How many there are."),
)  # fmt: skip
