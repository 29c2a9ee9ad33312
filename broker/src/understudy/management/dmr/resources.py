"""The resource types of the management CLI, each with the elements of broker.xml that its attributes are.

The table is the only place that knows both names; a test compares it with ``config.schema.schema``. Names of EAP 7 and
their later ones are aliases of each other. Not here: reading (``tree``) and changing (``operations``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from understudy.config.profiles.schema import SETTINGS
from understudy.config.schema.grammar import Element, Kind
from understudy.management.dmr.kinds import Attribute, Effect, ResourceType, Type

SUBSYSTEM: Final = ("subsystem", "messaging-activemq")
"""The first step of every address of a broker."""
DEFAULT_SERVER: Final = "default"
"""The name of the server that is ``core`` in broker.xml."""


_B, _I, _L, _S = Type.BOOLEAN, Type.INT, Type.LONG, Type.STRING


def _plain(kind: Type, *names: str) -> Iterator[Attribute]:
    """Attributes with the name of their element."""
    return (Attribute(name, kind, name) for name in names)


_SCALE_DOWN: Final = (
    Attribute("scale-down", _B, "scale-down/enabled"),
    Attribute("scale-down-cluster-name", _S, unserved="messages go to members of the first cluster-connection"),
    Attribute("scale-down-group-name", _S, "scale-down/group-name"),
    Attribute("scale-down-discovery-group", _S, "scale-down/discovery-group-ref/@discovery-group-name"),
    Attribute("scale-down-connectors", Type.LIST, "scale-down/connectors/connector-ref"),
    Attribute("scale-down-commit-interval", _I, "scale-down/commit-interval"),
)
_CLUSTER_AND_GROUP: Final = tuple(_plain(_S, "cluster-name", "group-name"))
_SYNC_TIMEOUT: Final = Attribute("initial-replication-sync-timeout", _L, "initial-replication-sync-timeout")
_ALLOW_FAILBACK: Final = Attribute("allow-failback", _B, "allow-failback", ("allow-fail-back",))
_RESTART_BACKUP: Final = Attribute("restart-backup", _B, "restart-backup")
_ON_SHUTDOWN: Final = Attribute("failover-on-server-shutdown", _B, "failover-on-shutdown", ("failover-on-shutdown",))
_COLOCATED: Final = (
    Attribute("request-backup", _B, "request-backup"),
    *_plain(_I, "backup-request-retries", "max-backups", "backup-port-offset"),
    *_plain(_L, "backup-request-retry-interval"),
    Attribute("excluded-connectors", Type.LIST, "excludes/connector-ref"),
)

HA_POLICIES: Final = (
    ResourceType(
        "ha-policy",
        "live-only",
        "ha-policy/primary-only",
        "A server without a partner.",
        _SCALE_DOWN,
        ("primary-only",),
        alternatives=True,
    ),
    ResourceType(
        "ha-policy",
        "replication-master",
        "ha-policy/replication/primary",
        "The server of a replicated pair that is active by choice.",
        (
            Attribute(
                "check-for-live-server",
                _B,
                "check-for-active-server",
                ("check-for-active-server",),
            ),
            *_CLUSTER_AND_GROUP,
            _SYNC_TIMEOUT,
            Attribute("synchronized-with-backup", _B, runtime=True),
        ),
        ("replication-primary",),
        alternatives=True,
    ),
    ResourceType(
        "ha-policy",
        "replication-slave",
        "ha-policy/replication/backup",
        "The server of a replicated pair that holds a copy.",
        (
            _ALLOW_FAILBACK,
            *_CLUSTER_AND_GROUP,
            _SYNC_TIMEOUT,
            Attribute(
                "max-saved-replicated-journal-size",
                _I,
                "max-saved-replicated-journals-size",
                ("max-saved-replicated-journals-size",),
            ),
            _RESTART_BACKUP,
            Attribute("synchronized-with-live", _B, runtime=True),
        ),
        ("replication-secondary", "replication-backup"),
        alternatives=True,
    ),
    ResourceType(
        "ha-policy",
        "shared-store-master",
        "ha-policy/shared-store/primary",
        "The server of a pair with one store that is active by choice.",
        (_ON_SHUTDOWN,),
        ("shared-store-primary",),
        alternatives=True,
    ),
    ResourceType(
        "ha-policy",
        "shared-store-slave",
        "ha-policy/shared-store/backup",
        "The server of a pair that waits for the lock of the store.",
        (_ALLOW_FAILBACK, _ON_SHUTDOWN, _RESTART_BACKUP),
        ("shared-store-secondary", "shared-store-backup"),
        alternatives=True,
    ),
    *(
        ResourceType(
            "ha-policy",
            f"{kind}-colocated",
            f"ha-policy/{kind}/colocated",
            "A server whose process hosts backups of other members.",
            _COLOCATED,
            alternatives=True,
        )
        for kind in ("replication", "shared-store")
    ),
)


def _configuration(policy: ResourceType) -> tuple[str, ResourceType]:
    """The policy as a part of a colocated one, with the name of that."""
    kind, role = policy.element.split("/")[1:]
    name, other = ("master", "primary") if role == "primary" else ("slave", "secondary")
    attributes = tuple(each for each in policy.attributes if not each.runtime)
    doc = "The server itself." if role == "primary" else "The backups that the process hosts."
    element = f"ha-policy/{kind}/colocated/{role}"
    aliases = tuple(dict.fromkeys((other, role)))
    return f"{kind}-colocated", ResourceType("configuration", name, element, doc, attributes, aliases)


CONFIGURATIONS: Final = tuple(
    _configuration(each) for each in HA_POLICIES if each.element.rpartition("/")[2] in ("primary", "backup")
)
"""The types of resources below a colocated policy, each with the name of the policy."""

_PATHS: Final = tuple(
    ResourceType(
        "path",
        name,
        name,
        f"The {name} of the store.",
        (Attribute("path", _S), Attribute("relative-to", _S, "@relative-to")),
        fixed=True,
    )
    for name in ("bindings-directory", "journal-directory", "large-messages-directory", "paging-directory")
)

_CLUSTER_CONNECTION: Final = ResourceType(
    "cluster-connection",
    None,
    "cluster-connections/cluster-connection",
    "A cluster that the server is a member of.",
    (
        Attribute("cluster-connection-address", _S, "address", ("address",)),
        Attribute("connector-name", _S, "connector-ref", ("connector-ref",), required=True),
        Attribute("static-connectors", Type.LIST, "static-connectors/connector-ref"),
        Attribute("discovery-group", _S, "discovery-group-ref/@discovery-group-name", ("discovery-group-name",)),
        Attribute("allow-direct-connections-only", _B, "static-connectors/@allow-direct-connections-only"),
        Attribute("message-load-balancing-type", _S, "message-load-balancing"),
        Attribute("retry-interval-multiplier", Type.DECIMAL, "retry-interval-multiplier"),
        *_plain(
            _I,
            "max-hops",
            "reconnect-attempts",
            "initial-connect-attempts",
            "notification-attempts",
            "producer-window-size",
            "confirmation-window-size",
            "min-large-message-size",
        ),
        *_plain(
            _L,
            "retry-interval",
            "max-retry-interval",
            "call-timeout",
            "call-failover-timeout",
            "check-period",
            "connection-ttl",
            "notification-interval",
        ),
        *_plain(_B, "use-duplicate-detection"),
    ),
)

_GROUP: Final = (
    Attribute("jgroups-cluster", _S, "jgroups-channel", ("jgroups-channel",)),
    *_plain(_S, "jgroups-file", "group-address", "local-bind-address"),
    *_plain(_I, "group-port", "local-bind-port"),
    *_plain(_S, "socket-binding"),
)
_BROADCAST_GROUP: Final = ResourceType(
    "broadcast-group",
    None,
    "broadcast-groups/broadcast-group",
    "A group of members to which the server makes itself known.",
    (
        Attribute("connectors", Type.LIST, "connector-ref"),
        *_plain(_L, "broadcast-period"),
        *_GROUP,
    ),
)
_DISCOVERY_GROUP: Final = ResourceType(
    "discovery-group",
    None,
    "discovery-groups/discovery-group",
    "A group of members that the server finds.",
    (*_plain(_L, "refresh-timeout", "initial-wait-timeout"), *_GROUP),
)


_SOCKET_BINDING: Final = Attribute("socket-binding", _S, "@socket-binding")


def _transport(kind: str, doc: str, mark: str) -> ResourceType:
    return ResourceType(
        f"remote-{kind}",
        None,
        f"{kind}s/{kind}",
        doc,
        (Attribute("url", _S, url=True), _SOCKET_BINDING),
        type_aliases=(kind,),
        mark=f"!{mark}",
        one_of=("url", "socket-binding"),
    )


_HTTP: Final = (
    ResourceType(
        "http-acceptor",
        None,
        "acceptors/acceptor",
        "A port that takes HTTP upgrades beside plain connections.",
        (Attribute("http-listener", _S, "@http-listener", required=True), Attribute("parameters", _S, url=True)),
        mark="http-listener",
    ),
    ResourceType(
        "http-connector",
        None,
        "connectors/connector",
        "The address of a server whose connections begin with an HTTP upgrade.",
        (
            replace(_SOCKET_BINDING, required=True),
            Attribute("endpoint", _S, "@endpoint", required=True),
            Attribute("server-name", _S, "@server-name"),
            Attribute("parameters", _S, url=True),
        ),
        mark="endpoint",
    ),
)


def _setting(row: Element) -> Attribute:
    """An attribute of a connection factory."""
    kinds = {Kind.BOOLEAN: _B, Kind.INTEGER: _I, Kind.LONG: _L, Kind.DECIMAL: Type.DECIMAL, Kind.TEXT: _S}
    return Attribute(row.name, kinds[row.kind], row.name)


CONNECTION_FACTORY: Final = ResourceType(
    "connection-factory",
    None,
    "connection-factories/connection-factory",
    "Settings of clients, which the operations client-url and jndi-properties give to them.",
    (
        Attribute("connectors", Type.LIST, "connector-ref"),
        Attribute("entries", Type.LIST, "entry"),
        *map(_setting, SETTINGS),
    ),
    effect=Effect.LIVE,
)
"""The type of connection factories."""


_ADDRESS_SETTING: Final = ResourceType(
    "address-setting",
    None,
    "address-settings/address-setting",
    "Settings of the addresses that match the name.",
    (
        *_plain(_S, "dead-letter-address", "expiry-address", "address-full-policy"),
        Attribute("last-value-queue", _B, "default-last-value-queue", ("default-last-value-queue",)),
        *_plain(_L, "expiry-delay", "redelivery-delay", "max-redelivery-delay", "redistribution-delay"),
        *_plain(_L, "max-size-bytes", "page-size-bytes", "slow-consumer-threshold"),
        Attribute("redelivery-multiplier", Type.DECIMAL, "redelivery-delay-multiplier"),
        *_plain(_I, "max-delivery-attempts", "message-counter-history-day-limit"),
        *_plain(_S, "slow-consumer-policy"),
        *_plain(_L, "slow-consumer-check-period"),
        *_plain(_B, "send-to-dla-on-no-route", "auto-create-queues", "auto-delete-queues"),
        *_plain(_B, "auto-create-addresses", "auto-delete-addresses"),
    ),
    key="match",
    effect=Effect.LIVE,
)

SERVER: Final = ResourceType(
    "server",
    None,
    "",
    "A broker of the process.",
    (
        *_plain(_B, "security-enabled", "persist-id-cache", "wild-card-routing-enabled"),
        *_plain(_S, "cluster-user", "management-address", "management-notification-address"),
        Attribute("cluster-password", _S, "cluster-password", secret=True),
        *_plain(_L, "connection-ttl-override", "message-expiry-scan-period"),
        *_plain(_L, "transaction-timeout", "transaction-timeout-scan-period", "journal-file-size"),
        *_plain(_I, "id-cache-size", "journal-min-files", "journal-compact-min-files"),
        Attribute("journal-compact-percentage", _I, "journal-compact-percentage"),
        Attribute("global-max-disk-usage", _I, "max-disk-usage", ("max-disk-usage",)),
        Attribute("disk-scan-period", _I, "disk-scan-period"),
        Attribute("global-max-memory-size", _L, "global-max-size", ("global-max-size",)),
    ),
)
"""The resource of a server itself."""

RESOURCES: Final = (
    *HA_POLICIES,
    *_PATHS,
    _CLUSTER_CONNECTION,
    _BROADCAST_GROUP,
    _DISCOVERY_GROUP,
    _transport("acceptor", "An address on which the server listens.", "http-listener"),
    _transport("connector", "The address at which a server is reached.", "endpoint"),
    *_HTTP,
    CONNECTION_FACTORY,
    _ADDRESS_SETTING,
)
"""The types of resources below a server."""

INTERFACE: Final = ResourceType(
    "interface",
    None,
    "interface",
    "A named address of the host.",
    (Attribute("inet-address", _S, "@inet-address", required=True),),
    top=True,
)
"""The type of the resources ``interface=NAME``."""

SOCKET_BINDING_GROUP: Final = ResourceType(
    "socket-binding-group",
    None,
    "socket-binding-group",
    "Named ports.",
    (
        Attribute("default-interface", _S, "@default-interface"),
        Attribute("port-offset", _I, "@port-offset"),
    ),
    top=True,
)
"""The type of the resources ``socket-binding-group=NAME``."""

SOCKET_BINDINGS: Final = (
    ResourceType(
        "socket-binding",
        None,
        "socket-binding-group/socket-binding",
        "A port of the host, or a multicast group.",
        (
            Attribute("port", _I, "@port"),
            Attribute("interface", _S, "@interface"),
            Attribute("fixed-port", _B, "@fixed-port"),
            Attribute("multicast-address", _S, "@multicast-address"),
            Attribute("multicast-port", _I, "@multicast-port"),
        ),
        top=True,
    ),
    ResourceType(
        "remote-destination-outbound-socket-binding",
        None,
        "socket-binding-group/outbound-socket-binding",
        "The address of another host.",
        (
            Attribute("host", _S, "@host", required=True),
            Attribute("port", _I, "@port", required=True),
        ),
        top=True,
    ),
)
"""The types of the resources below a group of socket bindings."""

NAMED_PATH: Final = ResourceType(
    "path",
    None,
    "path",
    "A named directory, where the directories of stores may start.",
    (Attribute("path", _S, "@path", required=True), Attribute("relative-to", _S, "@relative-to")),
    top=True,
)
"""The type of the resources ``path=NAME`` beside the subsystem."""

ALL: Final = (
    SERVER,
    *RESOURCES,
    *(kind for _, kind in CONFIGURATIONS),
    INTERFACE,
    SOCKET_BINDING_GROUP,
    *SOCKET_BINDINGS,
    NAMED_PATH,
)
"""Every type of resources."""


def resource_type(kind: str, name: str, among: Iterable[ResourceType] = RESOURCES) -> ResourceType | None:
    """The type of the resource of a step; None: there is none.

    Args:
        kind: Type of the step.
        name: Name of the step.
        among: The types that there are at its place: below a server, if nothing else is given.
    """
    for each in among:
        if kind in (each.type, *each.type_aliases) and (each.name is None or name in (each.name, *each.aliases)):
            return each
    return None
