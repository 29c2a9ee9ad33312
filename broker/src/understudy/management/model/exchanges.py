"""Exchanges of AMQP 0-9-1, their bindings, and channels of clients."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from understudy.management.model.figure import Item, Natural, figure


class Exchange(Item, frozen=True, kw_only=True):
    """An exchange with its counters since the activation. One that every virtual host has is listed once it is used."""

    name: Annotated[
        str, figure("Name of the exchange, after the prefix of its virtual host; empty: the default exchange.")
    ]
    type: Annotated[Literal["direct", "fanout", "topic", "headers"], figure("Type of the exchange.")]
    durable: Annotated[bool, figure("Whether the exchange survives a restart.")]
    auto_delete: Annotated[bool, figure("Whether the exchange is deleted with its last binding.")]
    internal: Annotated[bool, figure("Whether clients may not publish to the exchange.")]
    alternate: Annotated[
        str | None, figure("Exchange that gets messages for which no binding matches; null: there is none.")
    ]
    predeclared: Annotated[bool, figure("Whether every virtual host has the exchange, so that it cannot be deleted.")]
    binding_count: Annotated[
        Natural, figure("Bindings that lead from the exchange.", "bindings", metric="understudy_exchange_bindings")
    ]
    messages_in: Annotated[
        Natural,
        figure("Messages published to the exchange.", "messages", total="understudy_exchange_messages_in"),
    ]
    messages_unrouted: Annotated[
        Natural,
        figure(
            "Messages published to the exchange that no queue got.",
            "messages",
            total="understudy_exchange_messages_unrouted",
        ),
    ]


class ExchangeBinding(Item, frozen=True, kw_only=True):
    """A binding that leads from an exchange to a queue or another exchange."""

    id: Annotated[str, figure("Digest of all other values of the binding.")]
    source: Annotated[str, figure("Exchange whose messages the binding leads on.")]
    destination: Annotated[str, figure("Queue or exchange that gets the messages.")]
    destination_type: Annotated[Literal["queue", "exchange"], figure("Kind of the destination.")]
    routing_key: Annotated[str, figure("Routing key, or the pattern of a topic exchange.")]
    arguments: Annotated[
        dict[str, Any],
        figure(
            "Arguments, such as the headers that a headers exchange looks for; times, decimal numbers and bytes are "
            "shown as texts."
        ),
    ]
    durable: Annotated[bool, figure("Whether the binding survives a restart: both of its ends do.")]


class Channel(Item, frozen=True, kw_only=True):
    """An open channel of a client of AMQP 0-9-1."""

    connection: Annotated[str, figure("Id of the connection.")]
    number: Annotated[Natural, figure("Number of the channel in its connection.")]
    session: Annotated[str, figure("Alias of the session of the channel.")]
    user: Annotated[str, figure("User of the connection.")]
    virtual_host: Annotated[str, figure("Virtual host of the connection.")]
    remote_address: Annotated[str, figure("Address of the client.")]
    consumer_count: Annotated[Natural, figure("Consumers of the channel.", "consumers")]
    prefetch_count: Annotated[
        Natural | None,
        figure("Limit of unacknowledged deliveries of the whole channel; null: the client has set none.", "messages"),
    ]
    unacknowledged_count: Annotated[Natural, figure("Deliveries that are not acknowledged.", "messages")]
    confirms: Annotated[bool, figure("Whether publishes are confirmed (confirm.select).")]
    unconfirmed_count: Annotated[Natural, figure("Publishes that are not confirmed yet.", "messages")]
    transacted: Annotated[bool, figure("Whether publishes belong to transactions (tx.select).")]
