"""Bridges, diverts and acceptors."""

from __future__ import annotations

from typing import Annotated, Literal

from understudy.management.model.figure import Item, Natural, figure


class Bridge(Item, frozen=True):
    """A core bridge, with its counters since the activation."""

    name: Annotated[str, figure("Name of the bridge.")]
    queue: Annotated[str, figure("Queue that the bridge consumes.")]
    forwarding_address: Annotated[str | None, figure("Address at the target; null: that of each message.")]
    state: Annotated[str, figure("State of the machine (docs/build/machines/bridge.md).")]
    connected: Annotated[
        bool, figure("Whether the bridge has a session at its target.", metric="understudy_bridge_connected")
    ]
    target: Annotated[str | None, figure("Connector in use, or tried last; null: none was tried.")]
    waiting: Annotated[Natural, figure("Messages in the queue.", "messages")]
    unconfirmed: Annotated[
        Natural,
        figure("Messages sent that the target has not confirmed.", "messages", metric="understudy_bridge_unconfirmed"),
    ]
    forwarded: Annotated[
        Natural,
        figure(
            "Messages sent; one that is sent again counts again.",
            "messages",
            total="understudy_bridge_messages_forwarded",
        ),
    ]
    acknowledged: Annotated[
        Natural,
        figure("Messages that the target has confirmed.", "messages", total="understudy_bridge_messages_acknowledged"),
    ]
    lost_connections: Annotated[
        Natural, figure("Connections to the target that were lost.", total="understudy_bridge_connections_lost")
    ]
    refused: Annotated[
        Natural,
        figure(
            "Messages that the target has refused; one that is refused again counts again.",
            "messages",
            total="understudy_bridge_messages_refused",
        ),
    ]
    error: Annotated[
        str | None,
        figure("Why the latest connection ended or could not be made, or why a message was refused."),
    ]


class Divert(Item, frozen=True, kw_only=True):
    """A divert with its settings."""

    name: Annotated[str, figure("Name of the divert.")]
    address: Annotated[str, figure("Address of the messages.")]
    forwarding_address: Annotated[str, figure("Addresses that get them, separated by commas.")]
    routing_name: Annotated[str, figure("Of several diverts with one routing name one is used.")]
    filter: Annotated[str | None, figure("Selector of the messages; null: all.")]
    exclusive: Annotated[bool, figure("Whether messages are moved, not copied.")]
    routing_type: Annotated[Literal["ANYCAST", "MULTICAST", "STRIP", "PASS"], figure("Routing type of the copies.")]


class Certificate(Item, frozen=True):
    """The certificate of an acceptor with TLS."""

    subject: Annotated[str, figure("Subject of the certificate.")]
    sha256: Annotated[str, figure("Fingerprint, hexadecimal.")]
    not_after_ms: Annotated[
        Natural,
        figure(
            "End of validity of the certificate of an acceptor; the metric in seconds since 1970 UTC.",
            "ms since 1970",
            metric="understudy_acceptor_certificate_expiry_seconds",
        ),
    ]
    days_until_expiration: Annotated[int, figure("Whole days; negative if the validity is over.", "days")]


class Acceptor(Item, frozen=True):
    """An acceptor, which listens while the node is active."""

    name: Annotated[str, figure("Name of the acceptor.")]
    url: Annotated[str, figure("URL as configured, without secrets.")]
    certificate: Annotated[Certificate | None, figure("Certificate; null: the acceptor has no TLS.")] = None
    received_bytes: Annotated[
        Natural,
        figure(
            "Bytes received from clients and other nodes since the activation, as they are on the network.",
            "bytes",
            total="understudy_acceptor_received_bytes",
        ),
    ] = 0
    sent_bytes: Annotated[
        Natural,
        figure(
            "Bytes sent to clients and other nodes since the activation, as they are on the network.",
            "bytes",
            total="understudy_acceptor_sent_bytes",
        ),
    ] = 0
