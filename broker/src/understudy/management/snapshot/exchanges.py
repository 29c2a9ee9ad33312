"""Exchanges of AMQP 0-9-1, their bindings, and channels of clients, of an active broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Final

from understudy.limits import AMQP091_UNACKNOWLEDGED_MAX
from understudy.management.model import exchanges as model
from understudy.management.operations.invocation import ManagedNode
from understudy.management.snapshot.rows import Rows
from understudy.protocols.amqp091.channel import Amqp091Channel
from understudy.protocols.amqp091.connection import Amqp091Connection
from understudy.protocols.amqp091.names import host_name
from understudy.routing.exchanges.exchange import Exchange, ExchangeBinding
from understudy.routing.exchanges.exchanges import Exchanges, binding_key
from understudy.wire.amqp091.tables import Decimal, Timestamp

EXCHANGE: Final[Mapping[str, Callable[[Exchange], object]]] = {
    "name": lambda exchange: exchange.name,
    "type": lambda exchange: exchange.configuration.type,
    "durable": lambda exchange: exchange.durable,
    "auto_delete": lambda exchange: exchange.configuration.auto_delete,
    "internal": lambda exchange: exchange.configuration.internal,
    "alternate": lambda exchange: exchange.configuration.alternate,
    "predeclared": lambda exchange: exchange.predeclared,
    "binding_count": lambda exchange: len(exchange.bindings),
    "messages_in": lambda exchange: exchange.messages_in,
    "messages_unrouted": lambda exchange: exchange.messages_unrouted,
}

CHANNEL: Final[Mapping[str, Callable[[Amqp091Channel], object]]] = {
    "connection": lambda channel: channel.link.scope.connection_id,
    "number": lambda channel: channel.number,
    "session": lambda channel: channel.session.state.alias,
    "user": lambda channel: channel.link.peer.user,
    "virtual_host": lambda channel: host_name(channel.link.peer.host),
    "remote_address": lambda channel: channel.link.scope.remote_address,
    "consumer_count": lambda channel: len(channel.session.consumers.by_id),
    "prefetch_count": lambda channel: _limit(channel.deliveries.prefetch.limit),
    "unacknowledged_count": lambda channel: channel.deliveries.unacknowledged_count,
    "confirms": lambda channel: channel.publisher.confirms,
    "unconfirmed_count": lambda channel: channel.publisher.unconfirmed_count,
    "transacted": lambda channel: channel.publisher.transacted,
}


def _limit(count: int) -> int | None:
    """The limit that a client has set; None: that of the broker holds."""
    return None if count == AMQP091_UNACKNOWLEDGED_MAX else count


def exchanges_of(node: ManagedNode) -> Exchanges:
    """The exchanges of a node."""
    return node.services.sessions.post_office.routing.exchanges


def binding_id(binding: ExchangeBinding) -> str:
    """Digest of the values of a binding."""
    return sha256(binding_key(binding).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def exchange_rows(node: ManagedNode) -> Rows[model.Exchange]:
    """Rows of all exchanges."""
    by_name = exchanges_of(node).by_name
    return Rows(model.Exchange, list(by_name.values()), EXCHANGE, by_name.get)


def exchange_binding_rows(node: ManagedNode) -> Rows[model.ExchangeBinding]:
    """Rows of the bindings of all exchanges."""
    exchanges = exchanges_of(node)

    def arguments(binding: ExchangeBinding) -> dict[str, Any]:
        if not binding.arguments:
            return {}
        return {name: _plain(value) for name, value in exchanges.carrier.arguments(binding.arguments).items()}

    readers: Mapping[str, Callable[[ExchangeBinding], object]] = {
        "id": binding_id,
        "source": lambda binding: binding.source,
        "destination": lambda binding: binding.destination,
        "destination_type": lambda binding: "exchange" if binding.to_exchange else "queue",
        "routing_key": lambda binding: binding.key,
        "arguments": arguments,
        "durable": exchanges.is_durable,
    }
    found = [binding for exchange in exchanges.by_name.values() for binding in exchange.bindings]
    return Rows(model.ExchangeBinding, found, readers)


def _plain(value: object) -> object:
    """A value of a field table as JSON; the types that JSON does not have are texts."""
    if isinstance(value, Timestamp):
        return f"{value.seconds} s since 1970"
    if isinstance(value, Decimal):
        return f"{value.unscaled}e-{value.scale}"
    if isinstance(value, bytes):
        return f"bytes {value.hex()}"
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value


def channel_rows(node: ManagedNode) -> Rows[model.Channel]:
    """Rows of the open channels of all connections of AMQP 0-9-1."""
    found = [
        channel
        for connection in node.services.connections.connections
        if isinstance(connection, Amqp091Connection)
        for channel in connection.channels.values()
        if channel.open
    ]
    return Rows(model.Channel, found, CHANNEL)
