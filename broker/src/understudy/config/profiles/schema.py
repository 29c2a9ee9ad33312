"""Schema rows of the element ``connection-factories``.

Names and defaults are those of the resource ``connection-factory`` of WildFly; ``parameter_of`` gives the parameter of
the client URL that each of them is.
"""

from __future__ import annotations

from typing import Final

from understudy.config.schema.grammar import Element, Kind, container, named, row

BOOLEAN, INTEGER, LONG, TEXT = Kind.BOOLEAN, Kind.INTEGER, Kind.LONG, Kind.TEXT

SETTINGS: Final[tuple[Element, ...]] = (
    row("ha", BOOLEAN, "false", "Whether clients follow the topology of the cluster, and fail over to a backup."),
    row("reconnect-attempts", INTEGER, "0", "Attempts to connect again after a connection is lost; -1: no limit."),
    row("initial-connect-attempts", INTEGER, "1", "Attempts of the first connection; -1: no limit."),
    row("retry-interval", LONG, "2000", "Wait before a further attempt, in ms.", minimum=1),
    row("retry-interval-multiplier", Kind.DECIMAL, "1", "Growth of that wait from one attempt to the next."),
    row("max-retry-interval", LONG, "2000", "Longest such wait, in ms.", minimum=1),
    row("call-timeout", LONG, "30000", "Longest wait for an answer, in ms.", minimum=1),
    row("call-failover-timeout", LONG, "-1", "Longest wait for an answer during a failover, in ms; -1: no limit."),
    row("connection-ttl", LONG, "60000", "Silence after which the broker drops the connection, in ms."),
    row("client-failure-check-period", LONG, "30000", "Silence after which the client drops it, in ms."),
    row("block-on-acknowledge", BOOLEAN, "false", "Whether an acknowledgement waits for the broker."),
    row("block-on-durable-send", BOOLEAN, "true", "Whether the send of a durable message waits for the broker."),
    row("block-on-non-durable-send", BOOLEAN, "false", "Whether the send of another message does."),
    row("confirmation-window-size", INTEGER, "-1", "Bytes kept for a reattachment; -1: none."),
    row("consumer-window-size", INTEGER, "1048576", "Bytes of messages that a consumer has in advance."),
    row("consumer-max-rate", INTEGER, "-1", "Messages per second of a consumer; -1: no limit."),
    row("producer-window-size", INTEGER, "65536", "Bytes that are sent before credits are required."),
    row("producer-max-rate", INTEGER, "-1", "Messages per second of a producer; -1: no limit."),
    row("min-large-message-size", INTEGER, "102400", "Size from which a message travels in chunks.", minimum=1),
    row("client-id", TEXT, None, "Client id of the connections."),
    row("group-id", TEXT, None, "Message group of all messages."),
    row("dups-ok-batch-size", INTEGER, "1048576", "Bytes of lazy acknowledgements."),
    row("transaction-batch-size", INTEGER, "1048576", "Bytes of acknowledgements of a transaction."),
)
"""The elements that are parameters of the client URL."""

CONNECTION_FACTORIES: Final = container(
    "connection-factories",
    "Named settings of clients; the broker gives them the client URL. Not in Artemis.",
    container(
        "connection-factory",
        "One of them.",
        row("connector-ref", TEXT, None, "Name of a connector by which clients reach the cluster.", repeated=True),
        row("entry", TEXT, None, "Name in JNDI.", repeated=True),
        *SETTINGS,
        attributes=(named("Name."),),
        repeated=True,
    ),
)

#: Parameters of the client URL whose name is not that of the element without dashes.
_PARAMETERS: Final = {
    "connection-ttl": "connectionTTL",
    "client-id": "clientID",
    "group-id": "groupID",
    "dups-ok-batch-size": "dupsOKBatchSize",
}


def parameter_of(element: str) -> str:
    """The parameter of the client URL that an element is."""
    head, *rest = element.split("-")
    return _PARAMETERS.get(element) or head + "".join(part.capitalize() for part in rest)
