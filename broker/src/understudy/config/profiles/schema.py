"""Schema rows of the element ``connection-factories``.

Names and defaults are those of the resource ``connection-factory`` of WildFly; ``parameter_of`` gives the parameter of
the client URL that each of them is.
"""

from __future__ import annotations

from typing import Final

from understudy.config.schema.grammar import Element, Kind, container, named

BOOLEAN, INTEGER, LONG, TEXT = Kind.BOOLEAN, Kind.INTEGER, Kind.LONG, Kind.TEXT

SETTINGS: Final[tuple[Element, ...]] = (
    Element("ha", BOOLEAN, "Whether clients follow the topology of the cluster, and fail over to a backup.", "false"),
    Element("reconnect-attempts", INTEGER, "Attempts to connect again after a connection is lost; -1: no limit.", "0"),
    Element("initial-connect-attempts", INTEGER, "Attempts of the first connection; -1: no limit.", "1"),
    Element("retry-interval", LONG, "Wait before a further attempt, in ms.", "2000", minimum=1),
    Element("retry-interval-multiplier", Kind.DECIMAL, "Growth of that wait from one attempt to the next.", "1"),
    Element("max-retry-interval", LONG, "Longest such wait, in ms.", "2000", minimum=1),
    Element("call-timeout", LONG, "Longest wait for an answer, in ms.", "30000", minimum=1),
    Element("call-failover-timeout", LONG, "Longest wait for an answer during a failover, in ms; -1: no limit.", "-1"),
    Element("connection-ttl", LONG, "Silence after which the broker drops the connection, in ms.", "60000"),
    Element("client-failure-check-period", LONG, "Silence after which the client drops it, in ms.", "30000"),
    Element("block-on-acknowledge", BOOLEAN, "Whether an acknowledgement waits for the broker.", "false"),
    Element("block-on-durable-send", BOOLEAN, "Whether the send of a durable message waits for the broker.", "true"),
    Element("block-on-non-durable-send", BOOLEAN, "Whether the send of another message does.", "false"),
    Element("confirmation-window-size", INTEGER, "Bytes kept for a reattachment; -1: none.", "-1"),
    Element("consumer-window-size", INTEGER, "Bytes of messages that a consumer has in advance.", "1048576"),
    Element("consumer-max-rate", INTEGER, "Messages per second of a consumer; -1: no limit.", "-1"),
    Element("producer-window-size", INTEGER, "Bytes that are sent before credits are required.", "65536"),
    Element("producer-max-rate", INTEGER, "Messages per second of a producer; -1: no limit.", "-1"),
    Element("min-large-message-size", INTEGER, "Size from which a message travels in chunks.", "102400", minimum=1),
    Element("client-id", TEXT, "Client id of the connections."),
    Element("group-id", TEXT, "Message group of all messages."),
    Element("dups-ok-batch-size", INTEGER, "Bytes of lazy acknowledgements.", "1048576"),
    Element("transaction-batch-size", INTEGER, "Bytes of acknowledgements of a transaction.", "1048576"),
)
"""The elements that are parameters of the client URL."""

CONNECTION_FACTORIES: Final = container(
    "connection-factories",
    "Named settings of clients; the broker gives them the client URL. Not in Artemis.",
    container(
        "connection-factory",
        "One of them.",
        Element("connector-ref", TEXT, "Name of a connector by which clients reach the cluster.", repeated=True),
        Element("entry", TEXT, "Name in JNDI.", repeated=True),
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
