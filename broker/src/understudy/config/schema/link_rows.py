"""Schema rows of federations, broker connections and connection routers: known, not served yet.

Names are Artemis' own (artemis-configuration.xsd); they are here so that a file using them gets
a warning, and a mistake in them the same precise error as everywhere else.
"""

from __future__ import annotations

from typing import Final

from understudy.config.schema.grammar import INT_MAX, Attribute, Element, Kind, container, named, not_yet, row

BOOLEAN, INTEGER, LONG, TEXT, MS, CHOICE = (
    Kind.BOOLEAN,
    Kind.INTEGER,
    Kind.LONG,
    Kind.TEXT,
    Kind.MILLISECONDS,
    Kind.CHOICE,
)

_NAME: Final = named("Name.")
_PROPERTY: Final = container(
    "property",
    "Parameter.",
    attributes=(named("Name.", "key"), Attribute("value", TEXT, "Value.", required=True)),
    repeated=True,
)
_STATIC: Final = container(
    "static-connectors",
    "Brokers given by name.",
    row("connector-ref", TEXT, None, "Name of a connector.", required=True, repeated=True),
)
_DISCOVERY_REF: Final = container(
    "discovery-group-ref", "Brokers found by discovery.", attributes=(named("Its group.", "discovery-group-name"),)
)
_POLICY_REF: Final = container("policy", "A policy by name.", attributes=(named("Its name.", "ref"),), repeated=True)
_ADJUST: Final = Attribute("priority-adjustment", INTEGER, "Added to the priority.", minimum=-INT_MAX, maximum=INT_MAX)
_CLASS_NAME: Final = row("transformer-class-name", TEXT, None, "Class that changes messages.")


def _transformer(*attributes: Attribute, repeated: bool = False) -> Element:
    return container(
        "transformer",
        "Class that changes messages.",
        row("class-name", TEXT, None, "Its name.", required=True),
        _PROPERTY,
        attributes=attributes,
        repeated=repeated,
    )


def _matches(*attributes: Attribute) -> tuple[Element, Element]:
    return (
        container("include", "Entries that are included.", attributes=attributes, repeated=True),
        container("exclude", "Entries that are excluded.", attributes=attributes, repeated=True),
    )


_ADDRESS_MATCH: Final = _matches(named("Address or wildcard.", "address-match"))
_QUEUE_MATCH: Final = _matches(named("Queue or wildcard.", "queue-match"), named("Its address.", "address-match"))
_QUEUE_POLICY_ATTRIBUTES: Final = (
    _NAME,
    _ADJUST,
    Attribute("include-federated", BOOLEAN, "Count federated consumers too."),
)
_ADDRESS_POLICY_ATTRIBUTES: Final = (
    _NAME,
    Attribute("auto-delete", BOOLEAN, "Remove remote queues again."),
    Attribute("auto-delete-delay", MS, "How long after."),
    Attribute("auto-delete-message-count", LONG, "With how many messages at most."),
    Attribute("max-hops", INTEGER, "How far messages travel.", maximum=INT_MAX),
    Attribute("enable-divert-bindings", BOOLEAN, "Count diverts as demand."),
)
_TRANSFORMER_REF: Final = Attribute("transformer-ref", TEXT, "A transformer by name.")


def _stream(name: str, doc: str, *more: Element) -> Element:
    return container(
        name,
        doc,
        row("ha", BOOLEAN, "false", "Follow a failover of the other side."),
        row("circuit-breaker-timeout", MS, "30000", "Wait after repeated failures."),
        row("share-connection", BOOLEAN, "false", "One connection for both directions."),
        row("connection-ttl", MS, "60000", "Silence after which it may be dropped."),
        row("call-timeout", MS, "30000", "Longest wait for an answer."),
        row("retry-interval", MS, "500", "Wait before connecting again."),
        row("retry-interval-multiplier", Kind.DECIMAL, "1", "Growth of that wait."),
        row("max-retry-interval", MS, "2000", "Longest such wait."),
        row("initial-connect-attempts", INTEGER, "-1", "First attempts; -1 is no limit."),
        row("reconnect-attempts", INTEGER, "-1", "Later attempts; -1 is no limit."),
        row("check-period", MS, "30000", "How often the other side is checked."),
        row("call-failover-timeout", MS, "-1", "Longest wait for an answer in a failover."),
        _STATIC,
        _DISCOVERY_REF,
        _POLICY_REF,
        *more,
        attributes=(
            _NAME,
            _ADJUST,
            Attribute("user", TEXT, "User there."),
            Attribute("password", TEXT, "Password there."),
        ),
        repeated=True,
    )


_FEDERATIONS: Final = container(
    "federations",
    "Messages shared with other brokers.",
    container(
        "federation",
        "One federation.",
        _stream("upstream", "A broker messages come from."),
        _stream(
            "downstream",
            "A broker messages go to.",
            row("upstream-connector-ref", TEXT, None, "Connector by which it reaches this one.", required=True),
        ),
        container("policy-set", "Policies under one name.", _POLICY_REF, attributes=(_NAME,), repeated=True),
        container(
            "queue-policy",
            "Which queues.",
            *_QUEUE_MATCH,
            attributes=(*_QUEUE_POLICY_ATTRIBUTES, _TRANSFORMER_REF),
            repeated=True,
        ),
        container(
            "address-policy",
            "Which addresses.",
            *_ADDRESS_MATCH,
            attributes=(*_ADDRESS_POLICY_ATTRIBUTES, _TRANSFORMER_REF),
            repeated=True,
        ),
        _transformer(_NAME, repeated=True),
        attributes=(
            _NAME,
            Attribute("user", TEXT, "User there."),
            Attribute("password", TEXT, "Password there."),
        ),
        repeated=True,
    ),
)


def _amqp_queue_policy(name: str) -> Element:
    return container(
        name,
        "Which queues.",
        *_QUEUE_MATCH,
        _PROPERTY,
        _CLASS_NAME,
        _transformer(),
        attributes=_QUEUE_POLICY_ATTRIBUTES,
        repeated=True,
    )


def _amqp_address_policy(name: str) -> Element:
    return container(
        name,
        "Which addresses.",
        *_ADDRESS_MATCH,
        _PROPERTY,
        _CLASS_NAME,
        _transformer(),
        attributes=_ADDRESS_POLICY_ATTRIBUTES,
        repeated=True,
    )


def _amqp_bridge(name: str, matches: tuple[Element, Element], *attributes: Attribute) -> Element:
    return container(
        name,
        "The queue that is bridged.",
        *matches,
        _PROPERTY,
        _CLASS_NAME,
        _transformer(),
        attributes=(
            _NAME,
            Attribute("priority", INTEGER, "Priority of its link.", maximum=INT_MAX),
            Attribute("filter", TEXT, "Only matching messages."),
            Attribute("remote-address", TEXT, "Address there."),
            Attribute("remote-address-prefix", TEXT, "Prefix of the address there."),
            Attribute("remote-address-suffix", TEXT, "Suffix of the address there."),
            Attribute("remote-terminus-capabilities", TEXT, "Capabilities of the link."),
            *attributes,
        ),
        repeated=True,
    )


_BRIDGE_ADDRESS_ATTRIBUTES: Final = (
    Attribute("enable-divert-bindings", BOOLEAN, "Count diverts as demand."),
    Attribute("use-durable-subscriptions", BOOLEAN, "Use durable subscriptions."),
)


def _address_match(name: str, doc: str) -> Element:
    return container(
        name,
        doc,
        attributes=(
            Attribute("address-match", TEXT, "Address or wildcard."),
            Attribute("queue-name", TEXT, "Exact queue."),
        ),
        repeated=True,
    )


_BROKER_CONNECTIONS: Final = container(
    "broker-connections",
    "AMQP connections this broker makes.",
    container(
        "amqp-connection",
        "One connection.",
        _address_match("sender", "Messages sent there."),
        _address_match("receiver", "Messages fetched from there."),
        _address_match("peer", "A router on the other side."),
        container(
            "mirror",
            "Everything is repeated there.",
            _PROPERTY,
            attributes=(
                Attribute("message-acknowledgements", BOOLEAN, "Acknowledgements too.", "true"),
                Attribute("queue-creation", BOOLEAN, "Creation of queues too.", "true"),
                Attribute("queue-removal", BOOLEAN, "Removal of queues too.", "true"),
                Attribute("durable", BOOLEAN, "Store waiting messages.", "true"),
                Attribute("sync", BOOLEAN, "Clients wait for the mirror.", "false"),
                Attribute("address-filter", TEXT, "Which addresses."),
            ),
            repeated=True,
        ),
        container(
            "federation",
            "Messages shared over it.",
            _amqp_queue_policy("local-queue-policy"),
            _amqp_address_policy("local-address-policy"),
            _amqp_queue_policy("remote-queue-policy"),
            _amqp_address_policy("remote-address-policy"),
            _PROPERTY,
            attributes=(Attribute("name", TEXT, "Name."),),
            repeated=True,
        ),
        container(
            "bridge",
            "Messages forwarded over it.",
            _amqp_bridge("bridge-from-address", _ADDRESS_MATCH, *_BRIDGE_ADDRESS_ATTRIBUTES),
            _amqp_bridge("bridge-to-address", _ADDRESS_MATCH, *_BRIDGE_ADDRESS_ATTRIBUTES),
            _amqp_bridge("bridge-from-queue", _QUEUE_MATCH, _ADJUST),
            _amqp_bridge("bridge-to-queue", _QUEUE_MATCH, _ADJUST),
            _PROPERTY,
            attributes=(Attribute("name", TEXT, "Name."),),
            repeated=True,
        ),
        attributes=(
            _NAME,
            named("Where to.", "uri"),
            Attribute("auto-start", BOOLEAN, "Connect at the start.", "true"),
            Attribute("reconnect-attempts", INTEGER, "Attempts; -1 is no limit.", "-1", maximum=INT_MAX),
            Attribute("retry-interval", MS, "Wait before connecting again.", "5000"),
            Attribute("user", TEXT, "User there."),
            Attribute("password", TEXT, "Password there."),
        ),
        repeated=True,
    ),
)

_CONNECTION_ROUTERS: Final = container(
    "connection-routers",
    "Clients sent to the broker that is theirs.",
    container(
        "connection-router",
        "One router.",
        row(
            "key-type",
            CHOICE,
            None,
            "What tells clients apart.",
            choices=("CLIENT_ID", "SNI_HOST", "SOURCE_IP", "USER_NAME", "ROLE_NAME"),
        ),
        row("key-filter", TEXT, None, "Which part of it."),
        row("local-target-filter", TEXT, None, "Which of them stay here."),
        container(
            "cache",
            "Decisions remembered.",
            row("persisted", BOOLEAN, "false", "Over a restart."),
            row("timeout", MS, "-1", "How long; -1 means no limit."),
        ),
        container("policy", "How a target is chosen.", _PROPERTY, attributes=(_NAME,)),
        container(
            "pool",
            "The targets.",
            row("username", TEXT, None, "User there."),
            row("password", TEXT, None, "Password there."),
            row("check-period", MS, "5000", "How often a target is checked."),
            row("quorum-size", LONG, "1", "Targets that must be ready."),
            row("quorum-timeout", MS, "3000", "Longest wait for them."),
            row("local-target-enabled", BOOLEAN, "false", "This broker is a target too."),
            row("cluster-connection", TEXT, None, "Targets are the members of this cluster."),
            _STATIC,
            _DISCOVERY_REF,
        ),
        container("key-transformer", "Class that changes keys.", _PROPERTY, attributes=(_NAME,)),
        attributes=(_NAME,),
        repeated=True,
    ),
)

LINK_ROWS: Final[tuple[Element, ...]] = not_yet(_FEDERATIONS, _BROKER_CONNECTIONS, _CONNECTION_ROUTERS)
"""Connections to other brokers that this version knows but does not make."""
