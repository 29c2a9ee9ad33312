"""Operations of ``broker`` that create, change, delete and list addresses, queues and exchanges.

Texts and formats of the answers are those that the Artemis command line displays. Operators need no
permissions on the address: the permission ``manage``, and ``edit`` if it is required, allow them to
create and delete any address or queue.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import fields, replace
from typing import Any, Final

from understudy.errors import AddressNotFound, ManagementError
from understudy.management.doors import artemis
from understudy.management.doors.listing import PageRequest, page_of
from understudy.management.json_text import parse_json, to_json
from understudy.management.operations import exchanges
from understudy.management.operations.invocation import Control
from understudy.management.operations.table import Operation, flag, integer, operation, text
from understudy.management.snapshot.routing import QUEUE, address_rows, queue_rows
from understudy.protocols.amqp091.names import host_name, x_arguments
from understudy.routing.addresses.address import Address
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.addresses.directory import Directory
from understudy.routing.addresses.updates import change_queue, change_routing_types
from understudy.routing.queues.queue import Queue
from understudy.terms import RoutingType

#: JSON names of a queue configuration that are not derived from the name of the field.
_JSON_NAMES: Final = {"filter": "filter-string"}
#: Fields that an operator cannot set.
_NOT_ASKED: Final = frozenset({"internal", "configuration_managed", "paused", "temporary"})
#: Additional fields of the Java client's configuration, with the values that are accepted and have no effect.
_WITHOUT_EFFECT: Final = frozenset({"id", "user", "fqqn", "transient", "consumer-priority"})
#: JSON names that are no fields of a queue configuration.
_FURTHER: Final = {"auto-create-address": "auto_create_address", "virtual-host": "virtual_host"}
_TEXTS: Final = frozenset({"name", "address", "filter", "last_value_key", "group_first_key", "virtual_host"})
_FLAGS: Final = frozenset(
    {"durable", "purge_on_no_consumers", "exclusive", "last_value", "non_destructive", "group_rebalance",
     "group_rebalance_pause_dispatch", "auto_created", "auto_delete", "enabled"}
)  # fmt: skip


Steps = Generator[None, None, str]
"""A text that is made in slices."""


def _directory(control: Control) -> Directory:
    return control.node.services.sessions.post_office.directory


def routing_type_of(name: str) -> RoutingType:
    """The routing type of a name. Raises ManagementError."""
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
    """Create an address. Raises AddressExists, ManagementError, InvalidQueueConfiguration, DiskFull."""
    return describe_address(_directory(control).create_address(name, _routing_types(routing_types or "")))


def update_address(control: Control, name: str, routing_types: str | None) -> str:
    """Change the routing types of an address. Raises AddressNotFound, UnexpectedRoutingType, ManagementError."""
    address = _address(control, name)
    if routing_types is not None:
        change_routing_types(control.node.services.sessions.post_office, address, _routing_types(routing_types))
    return describe_address(address)


def delete_address(control: Control, name: str, force: bool = False) -> None:
    """Delete an address. Raises AddressNotFound, AddressHasBindings."""
    _directory(control).delete_address(name, force=force)


def address_info(control: Control, name: str) -> str:
    """An address as text. Raises AddressNotFound."""
    return describe_address(_address(control, name))


def list_bindings(control: Control, name: str) -> str:
    """The queues and diverts of an address as text. Raises AddressNotFound."""
    address = _directory(control).addresses.get(name)
    queues = [] if address is None else [binding.queue for binding in address.bindings.values()]
    diverts = () if address is None else address.diverts
    found = [f"LocalQueueBinding [address={name}, queue={describe_queue(queue)}]" for queue in queues]
    return ",".join([*found, *(f"DivertBinding [address={name}, divert={divert.name}]" for divert in diverts)])


def list_addresses(control: Control, separator: str) -> str:
    """Names of all addresses in one text."""
    return separator.join(sorted(_directory(control).addresses, key=str.lower))


def page_of_addresses(control: Control, options: str | None, page: int, page_size: int) -> Steps:
    """A page of the rows of addresses, as JSON."""
    return page_of(address_rows(control.node), artemis.ADDRESSES, PageRequest(options, page, page_size))


# -- queues -------------------------------------------------------------------------------------------


def describe_queue(queue: Queue) -> str:
    """``Queue [name=q, address=a, routingType=ANYCAST, …]``. ``autoCreateAddress`` appears twice, as in Artemis,
    and says whether the queue was auto-created.
    """
    row = {name: column.form(QUEUE[column.field](queue)) for name, column in artemis.QUEUES.items() if column.field}
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
    """Create a queue; returns its description. Raises as ``Directory.create_queue``."""
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
    """Create a queue. Raises what ``Directory.create_queue`` raises, and ManagementError."""
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
    """Create a queue with the short forms of the operation. Raises as ``create_queue``."""
    configuration = QueueConfiguration(
        name=name,
        address=address or name,
        routing_type=None if routing_type is None else routing_type_of(routing_type),
        filter=selector,
        durable=durable,
    )
    create(control, configuration, None)


def _plain(*names: str) -> Callable[..., None]:
    """The short form of ``createQueue`` whose last parameters have these names."""

    def create(control: Control, address: str | None, name: str, *values: Any) -> None:
        create_plain_queue(control, address, name, **dict(zip(names, values, strict=True)))

    return create


def create_queue_from_json(control: Control, text_of_it: str, ignore_if_exists: bool = False) -> str:
    """Create a queue from JSON; returns its configuration as JSON. Raises as ``create_queue``."""
    given = parse_queue_configuration(text_of_it)
    may_create = given.pop("auto_create_address", None)
    if "name" not in given:
        raise ManagementError("the queue configuration has no name")
    directory = _directory(control)
    existing = directory.find_queue(given["name"])
    if existing is None or not ignore_if_exists:
        existing = directory.create_queue(exchanges.with_arguments(given), may_create_address=may_create)
    return queue_configuration_json(existing)


def update_queue_from_json(control: Control, text_of_it: str) -> str:
    """Change the given fields of a queue. Raises QueueNotFound, InvalidQueueConfiguration, ManagementError."""
    given = parse_queue_configuration(text_of_it)
    for at_creation in ("auto_create_address", "auto_created"):
        given.pop(at_creation, None)
    queue = _directory(control).queue(given.pop("name", ""))
    if "arguments" in given or "virtual_host" in given:
        given["arguments"] = exchanges.queue_arguments(given)
    change(control, queue, given)
    return queue_configuration_json(queue)


def change(control: Control, queue: Queue, given: dict[str, Any]) -> None:
    """Change fields of the configuration of a queue."""
    if given.get("address") in ("", queue.address.name):
        del given["address"]
    change_queue(control.node.services.sessions.post_office, queue, replace(queue.configuration, **given))


def destroy_queue(
    control: Control, name: str, remove_consumers: bool = False, auto_delete_address: bool = False
) -> None:
    """Delete a queue. An auto-created address is deleted with its last queue, regardless of its settings, since the
    operator requests it; an address with a delay for its deletion is left to the periodic scan.

    Raises:
        QueueNotFound, QueueInUse
    """
    directory = _directory(control)
    address = directory.address_of(directory.queue(name))
    directory.delete_queue(name, disconnect=remove_consumers)
    unbound = not address.bindings and directory.addresses.get(address.name) is address
    if auto_delete_address and unbound and address.auto_created and not address.settings.auto_delete_addresses_delay:
        directory.delete_address(address.name)


def page_of_queues(control: Control, options: str | None, page: int, page_size: int) -> Steps:
    """A page of the rows of queues, as JSON."""
    return page_of(queue_rows(control.node), artemis.QUEUES, PageRequest(options, page, page_size))


def queue_names(control: Control, routing_type: str | None = None) -> list[str]:
    """Names of all queues, or of those with a routing type."""
    wanted = (routing_type or "").strip().upper()
    return [queue.name for queue in _directory(control).queues.values() if wanted in ("", queue.routing_type.name)]


# -- queue configurations as JSON ---------------------------------------------------------------------


def parse_queue_configuration(text_of_it: str) -> dict[str, Any]:
    """Fields of a ``QueueConfiguration``, and ``auto_create_address`` if present.

    Raises:
        ManagementError: not a JSON object, an unknown name, or a value of the wrong type.
    """
    try:
        given = parse_json(text_of_it)
    except ValueError as error:
        raise ManagementError(f"the queue configuration cannot be used: {error}") from error
    if not isinstance(given, dict):
        raise ManagementError("the queue configuration is not a JSON object")
    names = {_json_name(field.name): field.name for field in fields(QueueConfiguration)}
    result: dict[str, Any] = {}
    for key, value in given.items():
        if key in _WITHOUT_EFFECT and (key in ("id", "user", "fqqn") or value in (None, False)):
            continue
        name = _FURTHER.get(key) or names.get(key)
        if name is None or (name in _NOT_ASKED and value not in (None, False)):
            raise ManagementError(f"queue configuration: {key!r} is not supported")
        if value is not None and name not in _NOT_ASKED:
            result[name] = _typed(key, name, value)
    return result


def _json_name(field: str) -> str:
    return _JSON_NAMES.get(field, field.replace("_", "-"))


def _typed(key: str, name: str, value: object) -> object:
    if name == "routing_type":
        return routing_type_of(str(value))
    # the Java client writes some numbers and flags as strings
    if name in _FLAGS or name == "auto_create_address":
        found = {"true": True, "false": False}.get(str(value).lower())
        if found is None:
            raise ManagementError(f"queue configuration: {key!r} is not a boolean")
        return found
    if name in _TEXTS:
        if not isinstance(value, str):
            raise ManagementError(f"queue configuration: {key!r} is not a string")
        return value
    if name == "arguments":
        if not isinstance(value, dict):
            raise ManagementError(f"queue configuration: {key!r} is not an object")
        return value
    try:
        return int(str(value))
    except ValueError as error:
        raise ManagementError(f"queue configuration: {key!r} is not a number") from error


def queue_configuration_json(queue: Queue) -> str:
    """The configuration of a queue, as read by ``parse_queue_configuration``."""
    full = queue.configuration
    found: dict[str, object] = {"id": queue.queue_id, "auto-create-address": True, "transient": False, "fqqn": False}
    for field in fields(QueueConfiguration):
        value = getattr(full, field.name)
        if value is not None and value != "" and field.name not in ("paused", "arguments"):
            found[_json_name(field.name)] = value.name if isinstance(value, RoutingType) else value
    if full.arguments is not None:
        found |= {"arguments": x_arguments(full.arguments), "virtual-host": host_name(full.arguments.host)}
    return to_json(found)


_NAME: Final = text("name")
_ADDRESS: Final = text("address", nullable=True)
_FILTER: Final = text("filter", nullable=True)
_DURABLE: Final = flag("durable")
_ROUTING: Final = text("routingType")
_OPTIONS: Final = (text("options", nullable=True), integer("pageNumber"), integer("pageSize"))

OPERATIONS: Final[tuple[Operation, ...]] = (
    operation("createAddress", create_address, "Create an address.", _NAME, text("routingTypes", nullable=True)),
    operation("updateAddress", update_address, "Replace the routing types of an address.",
              _NAME, text("routingTypes", nullable=True)),
    operation("deleteAddress", delete_address, "Delete an address that has no queues.", _NAME),
    operation("deleteAddress", delete_address, "The same; force deletes its queues, too.", _NAME, flag("force")),
    operation("getAddressInfo", address_info, "An address as text.", text("address")),
    operation("listBindingsForAddress", list_bindings, "Its queues and diverts as text.", text("address")),
    operation("listAddresses", list_addresses, "Names of all addresses in one text.", text("separator")),
    operation("listAddresses", page_of_addresses, "A page of addresses (options below).", *_OPTIONS),
    operation("getAddressNames", lambda c: list(_directory(c).addresses), "Names of all addresses.", returns=list[str]),
    operation("getAddressCount", lambda c: len(_directory(c).addresses), "Number of addresses.", returns=int),
    operation("createQueue", create_queue, "Create a queue; returns its description.", _ADDRESS,
              text("routingType", nullable=True), _NAME, _FILTER, _DURABLE, integer("maxConsumers"),
              flag("purgeOnNoConsumers"), flag("autoCreateAddress")),
    operation("createQueue", create_queue_from_json, "Create a queue from JSON; returns its configuration.",
              text("queueConfiguration")),
    operation("createQueue", create_queue_from_json, "The same; ignoreIfExists accepts an existing queue.",
              text("queueConfiguration"), flag("ignoreIfExists")),
    operation("createQueue", create_plain_queue, "Create a durable queue.", _ADDRESS, _NAME),
    operation("createQueue", _plain("durable"), "Create a queue.", _ADDRESS, _NAME, _DURABLE),
    operation("createQueue", _plain("routing_type"), "Create a durable queue.", _ADDRESS, _NAME, _ROUTING),
    operation("createQueue", _plain("durable", "routing_type"), "Create a queue of a routing type.",
              _ADDRESS, _NAME, _DURABLE, _ROUTING),
    operation("createQueue", _plain("selector", "durable"), "Create a queue with a selector.",
              _ADDRESS, _NAME, _FILTER, _DURABLE),
    operation("createQueue", _plain("selector", "durable", "routing_type"), "Create a queue with both.",
              _ADDRESS, _NAME, _FILTER, _DURABLE, _ROUTING),
    operation("updateQueue", update_queue_from_json, "Change the fields in the JSON; returns the configuration.",
              text("queueConfiguration")),
    operation("destroyQueue", destroy_queue, "Delete a queue that has no consumers.", _NAME),
    operation("destroyQueue", destroy_queue, "The same; removeConsumers disconnects consumers first.",
              _NAME, flag("removeConsumers")),
    operation("destroyQueue", destroy_queue, "The same; also an auto-created address without further queues.",
              _NAME, flag("removeConsumers"), flag("autoDeleteAddress")),
    operation("listQueues", page_of_queues, "A page of queues (options below).", *_OPTIONS),
    operation("getQueueNames", queue_names, "Names of all queues."),
    operation("getQueueNames", queue_names, "Of a routing type.", text("routingType", nullable=True)),
    operation("getQueueCount", lambda c: len(_directory(c).queues), "Number of queues.", returns=int),
    *exchanges.OPERATIONS,
)  # fmt: skip
