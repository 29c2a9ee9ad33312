"""Names of virtual hosts, exchanges and queues, and the arguments of queue.declare and exchange.declare.

A virtual host other than the default one is a prefix: the queue ``q`` of the host ``v`` has the name ``v/q`` here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from understudy.kernel.names import AMQP091_REPLIES
from understudy.limits import AMQP091_LIFETIME_MS_MAX
from understudy.routing.addresses.configuration import FQQN_SEPARATOR, QueueConfiguration
from understudy.routing.exchanges.exchange import PREDECLARED, ExchangeConfiguration
from understudy.routing.exchanges.queue_arguments import DROP_HEAD, OVERFLOWS, QueueArguments
from understudy.terms import RoutingType
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode
from understudy.wire.amqp091.methods import ExchangeDeclare, QueueDeclare
from understudy.wire.amqp091.tables import SHORT_TEXT_BYTES_MAX, Table, encode_table, join_fields, raw_fields

DEFAULT_HOST: Final = "/"
#: Beginning of names that clients may not give to queues and exchanges.
RESERVED: Final = "amq."
#: Name of the queue from which a client gets replies without declaring one.
REPLIES: Final = AMQP091_REPLIES
_NUMBER_MAX: Final = (1 << 63) - 1
#: Arguments with numbers, by the name of the value in ``QueueArguments``, with the least and the greatest one.
_NUMBERS: Final[Mapping[str, tuple[str, int, int]]] = {
    "x-expires": ("expires_ms", 1, AMQP091_LIFETIME_MS_MAX),
    "x-message-ttl": ("message_ttl_ms", 0, AMQP091_LIFETIME_MS_MAX),
    "x-max-length": ("max_length", 0, _NUMBER_MAX),
    "x-max-length-bytes": ("max_length_bytes", 0, _NUMBER_MAX),
    "x-delivery-limit": ("delivery_limit", 0, (1 << 32) - 1),
}
#: Arguments that change nothing here, with the least and the greatest number that RabbitMQ takes.
_IGNORED_NUMBERS: Final[Mapping[str, tuple[int, int]]] = {
    "x-queue-version": (1, 2),
    "x-max-in-memory-length": (0, _NUMBER_MAX),
    "x-max-in-memory-bytes": (0, _NUMBER_MAX),
    "x-quorum-initial-group-size": (1, _NUMBER_MAX),
}
#: Arguments that change nothing here, with the texts that RabbitMQ takes.
_IGNORED_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "x-queue-mode": ("default", "lazy"),
    "x-queue-leader-locator": ("client-local", "balanced", "least-leaders", "random"),
}
#: Arguments of queue.declare by the name of the value in ``QueueArguments``.
_ARGUMENTS: Final[Mapping[str, str]] = {
    **{name: argument for argument, (name, _, _) in _NUMBERS.items()},
    "overflow": "x-overflow",
    "dead_letter_exchange": "x-dead-letter-exchange",
    "dead_letter_routing_key": "x-dead-letter-routing-key",
    "max_priority": "x-max-priority",
    "single_active_consumer": "x-single-active-consumer",
    "queue_type": "x-queue-type",
}


def refused(text: str) -> Amqp091Error:
    """The error of a request that is not possible as it is."""
    return Amqp091Error(ReplyCode.PRECONDITION_FAILED, text)


def host_prefix(name: str, allowed: tuple[str, ...]) -> str:
    """The prefix of names of a virtual host.

    Args:
        name: Name as connection.open has it.
        allowed: Virtual hosts of the acceptor beside the default one.

    Raises:
        Amqp091Error: NOT_ALLOWED: there is no such virtual host.
    """
    if name in (DEFAULT_HOST, ""):
        return ""
    if name not in allowed:
        raise Amqp091Error(ReplyCode.NOT_ALLOWED, f"there is no virtual host {name!r}")
    return f"{name.strip('/')}/"


def host_name(prefix: str) -> str:
    """The name of the virtual host of a prefix."""
    return prefix.strip("/") or DEFAULT_HOST


def plain(name: str) -> str:
    """A name of a client without line ends."""
    return name.replace("\r", "").replace("\n", "")


def check_new(name: str) -> None:
    """Check the name of a queue or exchange that is made.

    Raises:
        Amqp091Error: ACCESS_REFUSED: it is reserved. PRECONDITION_FAILED: it would mean something else here.
    """
    if name.startswith(RESERVED):
        raise Amqp091Error(ReplyCode.ACCESS_REFUSED, f"names that begin with {RESERVED!r} are reserved")
    if FQQN_SEPARATOR in name:
        raise refused(f"a name with {FQQN_SEPARATOR!r} would name an address and a queue")
    if name.startswith(("$", "activemq.")):
        raise refused("names that begin with '$' or 'activemq.' are names of the broker")


def check_exchange(name: str) -> None:
    """Check the name of an exchange, without the prefix of the virtual host.

    Raises:
        Amqp091Error: NOT_FOUND: it would be a predeclared exchange of another virtual host.
    """
    if "/" in name and is_predeclared(name.rpartition("/")[2]):
        # such exchanges are made when they are asked for, and clients could ask for any number of them
        raise Amqp091Error(ReplyCode.NOT_FOUND, f"no exchange {name!r}: a predeclared one has no '/' in its name")


def queue_configuration(method: QueueDeclare, name: str, host: str) -> QueueConfiguration:
    """The queue that is declared.

    Args:
        method: The request.
        name: Name of the queue, which the broker may have chosen, without the prefix.
        host: Prefix of the virtual host.

    Raises:
        Amqp091Error: PRECONDITION_FAILED: an argument that cannot be used. NOT_IMPLEMENTED: a stream.
    """
    arguments = queue_arguments(method.arguments, host, auto_delete=method.auto_delete)
    return QueueConfiguration(
        name=host + name,
        address=host + name,
        routing_type=RoutingType.ANYCAST,
        durable=method.durable and not method.exclusive,
        temporary=method.exclusive,
        exclusive=arguments.single_active_consumer,
        group_rebalance=False,
        last_value=False,
        non_destructive=False,
        purge_on_no_consumers=False,
        max_consumers=-1,
        ring_size=-1,
        auto_delete=False,
        arguments=arguments,
    )


def queue_arguments(table: Table, host: str, *, auto_delete: bool) -> QueueArguments:
    """The arguments of queue.declare; those that are not known are ignored. Raises as ``queue_configuration``."""
    _check_ignored(table)
    values: dict[str, object] = {"host": host, "auto_delete": auto_delete}
    for argument, (name, least, most) in _NUMBERS.items():
        if argument in table:
            values[name] = _number(argument, table[argument], least, most)
    if "x-max-priority" in table:
        values["max_priority"] = min(_number("x-max-priority", table["x-max-priority"], 0, 255), 9) or None
    for argument, name in (
        ("x-dead-letter-exchange", "dead_letter_exchange"),
        ("x-dead-letter-routing-key", "dead_letter_routing_key"),
    ):
        if argument in table:
            values[name] = _short_text(argument, table[argument])
    if "dead_letter_routing_key" in values and "dead_letter_exchange" not in values:
        raise refused("x-dead-letter-routing-key without x-dead-letter-exchange")
    values["overflow"] = _choice(table, "x-overflow", OVERFLOWS, DROP_HEAD)
    if "x-single-active-consumer" in table:
        if not isinstance(table["x-single-active-consumer"], bool):
            raise refused("x-single-active-consumer is neither true nor false")
        values["single_active_consumer"] = table["x-single-active-consumer"]
    if table.get("x-queue-type") == "stream":
        raise Amqp091Error(ReplyCode.NOT_IMPLEMENTED, "queues of the type stream are not served")
    values["queue_type"] = _choice(table, "x-queue-type", ("classic", "quorum"), "classic")
    return QueueArguments(**values)  # type: ignore[arg-type]  # each value was checked above


def _check_ignored(table: Table) -> None:
    """Refuse what RabbitMQ refuses in arguments that change nothing here. Raises as ``queue_configuration``."""
    for argument, (least, most) in _IGNORED_NUMBERS.items():
        if argument in table:
            _number(argument, table[argument], least, most)
    for argument, choices in _IGNORED_CHOICES.items():
        _choice(table, argument, choices, choices[0])


def x_arguments(arguments: QueueArguments) -> dict[str, object]:
    """The arguments of queue.declare that make these values, without those that are defaults."""
    return {_ARGUMENTS[name]: value for name, value in arguments.as_values().items() if name in _ARGUMENTS}


def _short_text(argument: str, value: object) -> str:
    """The name of an exchange or a routing key in an argument, which fits into a short string as all of them do."""
    if not isinstance(value, str):
        raise refused(f"{argument} is no text")
    if len(value.encode()) > SHORT_TEXT_BYTES_MAX:
        raise refused(f"{argument} has {len(value.encode())} bytes, limit {SHORT_TEXT_BYTES_MAX}")
    return value


def _number(argument: str, value: object, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise refused(f"{argument} is no number from {least} to {most}")
    return value


def _choice(table: Table, argument: str, choices: tuple[str, ...], default: str) -> str:
    value = table.get(argument, default)
    if value not in choices:
        raise refused(f"{argument} is not one of {', '.join(choices)}")
    return str(value)


def exchange_configuration(method: ExchangeDeclare, host: str) -> ExchangeConfiguration:
    """The exchange that is declared. Raises Amqp091Error: PRECONDITION_FAILED: an argument that cannot be used."""
    alternate = method.arguments.get("alternate-exchange")
    if alternate is not None:
        alternate = _short_text("alternate-exchange", alternate)
    return ExchangeConfiguration(
        name=host + plain(method.exchange),
        type=method.type,
        durable=method.durable,
        auto_delete=method.auto_delete,
        internal=method.internal,
        alternate=None if alternate is None else host + alternate,
    )


def binding_arguments(table: Table) -> bytes:
    """The arguments of a binding as they identify it; empty without arguments."""
    return join_fields(dict(sorted(raw_fields(encode_table(table))))) if table else b""


def is_predeclared(name: str) -> bool:
    """Whether every virtual host has an exchange of this name."""
    return name in PREDECLARED
