"""Operations of ``broker`` on exchanges of AMQP 0-9-1 and their bindings, and queues with arguments of AMQP 0-9-1.

Names have the prefix of their virtual host, as names of queues have it. Operators need no permissions on the names: the
permission ``manage``, and ``edit`` if it is required, allow all changes. Artemis has no exchanges.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any, Final

from understudy.errors import LocalProtocolError, ManagementError
from understudy.management.operations.invocation import Control
from understudy.management.operations.table import Operation, flag, mapping, operation, text
from understudy.management.snapshot.exchanges import binding_id, exchange_binding_rows, exchanges_of
from understudy.management.snapshot.rows import STEP_ROWS
from understudy.protocols.amqp091 import names
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.exchanges.exchange import ExchangeBinding, ExchangeConfiguration
from understudy.routing.exchanges.queue_arguments import QueueArguments
from understudy.wire.amqp091.codes import Amqp091Error
from understudy.wire.amqp091.methods import QueueDeclare

QUEUE: Final = "queue"
EXCHANGE: Final = "exchange"


def create_exchange(
    control: Control, name: str, kind: str, durable: bool, auto_delete: bool, internal: bool, alternate: str | None
) -> None:
    """Make an exchange; one that exists must be the same.

    Raises:
        ManagementError: the name cannot be used.
        ExchangeMismatch: an unknown type, or the exchange exists with other properties.
        LimitExceeded, InvalidQueueConfiguration, StoreFormatHeld, DiskFull
    """
    if not name.rpartition("/")[2]:
        raise ManagementError(
            f"exchange {name!r}: the default exchange of a virtual host is always there; give the exchange a name"
        )
    exchanges = exchanges_of(control.node)
    if exchanges.find(name) is None:
        try:
            names.check_new(name)
            names.check_new(name.rpartition("/")[2])
        except Amqp091Error as error:
            raise ManagementError(f"exchange {name!r}: {error}") from error
    exchanges.declare(
        ExchangeConfiguration(
            name=name,
            type=kind,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            alternate=alternate or None,
        )
    )


def delete_exchange(control: Control, name: str, if_unused: bool) -> None:
    """Delete an exchange with its bindings. Raises ExchangeNotFound, ExchangeInUse, ManagementError, DiskFull."""
    exchanges = exchanges_of(control.node)
    if exchanges.get(name).predeclared:
        raise ManagementError(f"exchange {name!r} cannot be deleted: every virtual host has it")
    exchanges.delete(name, if_unused=if_unused)


def create_binding(
    control: Control,
    source: str,
    destination: str,
    destination_type: str,
    routing_key: str,
    arguments: Mapping[str, object] | None,
) -> str:
    """Bind a queue or an exchange to an exchange; a binding that exists stays as it is. Returns the id of the binding.

    Raises:
        ManagementError: the default exchange cannot be bound, or a value cannot be used.
        ExchangeNotFound, QueueNotFound, ExchangeMismatch, LimitExceeded, StoreFormatHeld, DiskFull
    """
    if destination_type not in (QUEUE, EXCHANGE):
        raise ManagementError(f"a binding leads to a {QUEUE} or an {EXCHANGE}, not to {destination_type!r}")
    to_exchange = destination_type == EXCHANGE
    exchanges = exchanges_of(control.node)
    for each in (source, destination) if to_exchange else (source,):
        if exchanges.get(each).is_default:
            raise ManagementError("the default exchange cannot be bound: it leads to every queue by its name")
    try:
        table = names.binding_arguments(arguments or {})
    except LocalProtocolError as error:
        raise ManagementError(f"the arguments of a binding cannot be used: {error}") from error
    binding = ExchangeBinding(source, destination, to_exchange, routing_key, table)
    exchanges.bind(binding)
    return binding_id(binding)


def delete_binding(control: Control, identifier: str) -> Generator[None, None, None]:
    """Remove the binding of an id, in slices. Raises ManagementError: there is none. DiskFull."""
    for number, binding in enumerate(exchange_binding_rows(control.node).sources):
        if number and not number % STEP_ROWS:
            yield
        if binding_id(binding) == identifier:
            exchanges_of(control.node).unbind(binding)
            return
    raise ManagementError(f"no binding of an exchange has the id {identifier!r}")


# -- queues ---------------------------------------------------------------------------------------------


def with_arguments(given: dict[str, Any]) -> QueueConfiguration:
    """The configuration of a new queue.

    Args:
        given: Fields of a ``QueueConfiguration``. ``arguments`` is an object with arguments of queue.declare, and
            ``virtual_host`` a name; with one of them the queue is as a client of AMQP 0-9-1 would declare it.

    Raises:
        ManagementError: an argument that cannot be used.
    """
    if "arguments" not in given and "virtual_host" not in given:
        return QueueConfiguration(**given)
    name = given["name"]
    arguments = queue_arguments(given)
    host = arguments.host
    declared = QueueDeclare(0, name.removeprefix(host), durable=True, auto_delete=arguments.auto_delete)
    base = names.queue_configuration(declared, name.removeprefix(host), host)
    fixed = {"name": name, "arguments": arguments, "exclusive": arguments.single_active_consumer}
    return replace(base, **{**given, **fixed})


def queue_arguments(given: dict[str, Any]) -> QueueArguments:
    """The arguments of a queue; takes those fields out of the given ones that say them. Raises ManagementError."""
    table, host = given.pop("arguments", {}), given.pop("virtual_host", names.DEFAULT_HOST)
    auto_delete = bool(given.pop("auto_delete", False))
    try:
        return names.queue_arguments(table, names.host_prefix(host, (host,)), auto_delete=auto_delete)
    except Amqp091Error as error:
        raise ManagementError(f"queue configuration: {error}") from error


_NAME: Final = text("name")

OPERATIONS: Final[tuple[Operation, ...]] = (
    operation(
        "createExchange",
        create_exchange,
        "Create an exchange of AMQP 0-9-1: direct, fanout, topic or headers.",
        _NAME,
        text("type"),
        flag("durable"),
        flag("autoDelete"),
        flag("internal"),
        text("alternateExchange", nullable=True),
    ),
    operation(
        "deleteExchange",
        delete_exchange,
        "Delete an exchange with its bindings; with ifUnused only one without bindings.",
        _NAME,
        flag("ifUnused"),
    ),
    operation(
        "createExchangeBinding",
        create_binding,
        "Bind a queue or an exchange (destinationType) to an exchange; returns the id of the binding.",
        text("source"),
        text("destination"),
        text("destinationType"),
        text("routingKey"),
        mapping("arguments"),
    ),
    operation("deleteExchangeBinding", delete_binding, "Remove the binding of an id.", text("id")),
    operation(
        "getExchangeNames", lambda c: list(exchanges_of(c.node).by_name), "Names of all exchanges.", returns=list[str]
    ),
)
