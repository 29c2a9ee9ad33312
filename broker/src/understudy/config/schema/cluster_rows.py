"""Schema rows of connectors, acceptors, cluster connections, high availability and features that are not implemented
yet.

Names and defaults are Artemis' own (artemis-configuration.xsd; artemis-ha s. 1 and 7.2);
where the code and the documents differ the documents win, as noted on the row. The one-line
meanings are ours.
"""

from __future__ import annotations

from typing import Final

from understudy.config.schema.address_rows import FILTER
from understudy.config.schema.grammar import (
    INT_MAX,
    Attribute,
    Element,
    Kind,
    container,
    named,
    no_effect,
    not_yet,
    refused,
)

BOOLEAN, INTEGER, LONG, TEXT = Kind.BOOLEAN, Kind.INTEGER, Kind.LONG, Kind.TEXT
MS, BYTES, CHOICE, DECIMAL = Kind.MILLISECONDS, Kind.BYTES, Kind.CHOICE, Kind.DECIMAL

_CONNECTOR_REF: Final = Element("connector-ref", TEXT, "Name of a connector.", repeated=True)
_CONNECTORS: Final = Element("connector-ref", TEXT, "Name of a connector.", required=True, repeated=True)
_DISCOVERY_REF: Final = container(
    "discovery-group-ref", "Members found by discovery.", attributes=(named("Its group.", "discovery-group-name"),)
)
_PROPERTY: Final = container(
    "property",
    "Parameter of a plugin.",
    attributes=(named("Name.", "key"), Attribute("value", TEXT, "Value.", required=True)),
    repeated=True,
)
_TRANSFORMER: Final = container(
    "transformer", "Class that changes messages.", Element("class-name", TEXT, "Its name."), _PROPERTY
)
_STATIC: Final = container("static-connectors", "Members given by name.", _CONNECTORS)


def _client_rows(retry_interval: str) -> tuple[Element, ...]:
    """How a broker behaves as the client of another one."""
    return (
        Element("check-period", MS, "How often the other side is checked for silence; -1 is never.", "30000"),
        Element("connection-ttl", MS, "Silence after which the other side may drop the connection.", "60000"),
        Element("min-large-message-size", BYTES, "Size from which a message travels in chunks.", "100K"),
        Element("retry-interval", MS, "Wait before connecting again.", retry_interval, minimum=0),
        Element("retry-interval-multiplier", DECIMAL, "Growth of that wait from one attempt to the next.", "1"),
        Element("max-retry-interval", MS, "Longest such wait.", "2000"),
        Element("initial-connect-attempts", INTEGER, "First connection attempts; -1 is no limit.", "-1"),
        Element("reconnect-attempts", INTEGER, "Later connection attempts; -1 is no limit.", "-1"),
        Element("use-duplicate-detection", BOOLEAN, "Mark forwarded messages so that none arrives twice.", "true"),
    )


CLUSTER_CONNECTIONS: Final = container(
    "cluster-connections",
    "How this node takes part in clusters.",
    container(
        "cluster-connection",
        "One cluster.",
        Element("connector-ref", TEXT, "The connector by which the others reach this node.", required=True),
        *_client_rows("500"),
        Element("call-timeout", MS, "Longest wait for an answer.", "30000"),
        Element("notification-interval", MS, "Wait between announcements after joining.", "1000"),
        Element("notification-attempts", INTEGER, "Announcements after joining.", "2"),
        Element("topology-scanner-attempts", INTEGER, "Looks for missing members; 0 is none, -1 no end.", "30"),
        Element("address", TEXT, "Prefixes of the addresses that are balanced, !prefix excludes; empty is all.", ""),
        Element(
            "message-load-balancing",
            CHOICE,
            "Which members get messages.",
            "ON_DEMAND",
            choices=("OFF", "STRICT", "ON_DEMAND", "OFF_WITH_REDISTRIBUTION"),
        ),
        Element("forward-when-no-consumers", BOOLEAN, "Old form: true is STRICT, false is ON_DEMAND."),
        Element("max-hops", INTEGER, "How many nodes away queues may be; 0: no messages travel.", "1", minimum=0),
        # 003 says 1,048,576; the code of Artemis has had 10 MiB since 2.0, and members of both kinds meet in clusters
        Element(
            "confirmation-window-size",
            BYTES,
            "Bytes that another member has not confirmed. The default is that of Artemis's code, its manual says 1M.",
            "10M",
        ),
        Element("producer-window-size", BYTES, "Bytes sent before credits are required; -1 is no limit.", "1M"),
        Element("client-id", TEXT, "How the bridges of this node call themselves to the others."),
        *no_effect(
            "a request between nodes ends with its connection and is made again on the next one",
            Element("call-failover-timeout", MS, "Longest wait for an answer during a failover; -1 is no limit.", "-1"),
        ),
        container(
            "static-connectors",
            "Members given by name; without one, and without a discovery group, messages go to no member.",
            _CONNECTOR_REF,
            attributes=(
                Attribute(
                    "allow-direct-connections-only",
                    BOOLEAN,
                    "Only the listed members.",
                    "false",
                ),
            ),
        ),
        container(
            "artemis-members",
            "Members that are Artemis brokers: the cluster password is sent to them, and taken, as plain text."
            " Not in Artemis.",
            _CONNECTORS,
        ),
        _DISCOVERY_REF,
        *no_effect(
            "Artemis does not read it either; the element scale-down of the HA policy has connectors",
            Element("scale-down-connector", TEXT, "Connector for scaling down."),
        ),
        attributes=(
            named("Name of the cluster connection."),
            Attribute("uri", TEXT, "Options as a URI."),
        ),
        repeated=True,
    ),
    *not_yet(
        container(
            "cluster-connection-uri",
            "One cluster, all in a URI.",
            attributes=(named("Its name."), named("The URI.", "address")),
            repeated=True,
        )
    ),
)

_SCALE_DOWN: Final = container(
    "scale-down",
    "Move all messages to another member: of a single node when it stops cleanly, of a backup when it takes over.",
    Element("enabled", BOOLEAN, "Whether it does; otherwise the node only takes over from others.", "true"),
    Element("group-name", TEXT, "Only members of this group."),
    _DISCOVERY_REF,
    container("connectors", "Members given by name; without them any member.", _CONNECTORS),
    Element(
        "commit-interval",
        INTEGER,
        "Messages that are removed here in one transaction; -1: as the other node confirms them.",
        "-1",
        minimum=-1,
    ),
)
_FAILBACK_DELAY: Final = no_effect(
    "Artemis has long ignored it too", Element("failback-delay", MS, "Wait before a failback.", "5000")
)
_ON_SHUTDOWN: Final = Element(
    "failover-on-shutdown",
    BOOLEAN,
    "A clean stop of the active server lets the other one take over.",
    "false",
    aliases=("failover-on-server-shutdown",),
)
_ALLOW_FAILBACK: Final = Element(
    "allow-failback",
    BOOLEAN,
    "The active backup yields when its primary comes back.",
    "true",
    aliases=("allow-fail-back",),
)
_RESTART_BACKUP: Final = Element("restart-backup", BOOLEAN, "After yielding it goes on as a backup.", "true")

_SHARED_PRIMARY: Final = container(
    "primary",
    "The server that is active by choice.",
    _ON_SHUTDOWN,
    Element("wait-for-activation", BOOLEAN, "Report started only once active.", "true"),
    *_FAILBACK_DELAY,
    aliases=("master",),
)
_SHARED_BACKUP: Final = container(
    "backup",
    "The server that waits for the store's lock.",
    _ALLOW_FAILBACK,
    _ON_SHUTDOWN,
    _RESTART_BACKUP,
    _SCALE_DOWN,
    *_FAILBACK_DELAY,
    aliases=("slave",),
)


def _colocated(primary: Element, backup: Element) -> Element:
    return container(
        "colocated",
        "A primary that hosts backups of others.",
        Element("request-backup", BOOLEAN, "Ask another member to host a backup of this one.", "false"),
        Element("backup-request-retries", INTEGER, "How often it asks again; -1 is no limit.", "-1"),
        Element("backup-request-retry-interval", MS, "Wait between two requests.", "5000", minimum=1),
        Element(
            "max-backups",
            INTEGER,
            "Backups hosted here for others; each has a share of the memory.",
            "1",
            minimum=0,
            maximum=64,
        ),
        Element(
            "backup-port-offset",
            INTEGER,
            "Added to the ports of the first hosted backup, twice to those of the second, and so on.",
            "100",
            minimum=0,
            maximum=65535,
        ),
        container("excludes", "Connectors that a hosted backup takes unchanged: those of other nodes.", _CONNECTORS),
        primary,
        backup,
    )


LOCK_MANAGER: Final = container(
    "manager",
    "The lock manager that decides which node is active.",
    Element("class-name", TEXT, "Its class or built-in name."),
    container("properties", "Its parameters.", _PROPERTY),
)
_REPLICATION_ROWS: Final = (
    Element("group-name", TEXT, "Only servers of the same group pair."),
    Element("cluster-name", TEXT, "The cluster connection to replicate over; the first by default."),
    Element(
        "max-saved-replicated-journals-size",
        INTEGER,
        "Old copies of the data kept; 0 deletes them, -1 keeps all.",
        "2",
        aliases=("max-saved-replicated-journal-size",),
    ),
    Element("initial-replication-sync-timeout", MS, "Longest wait for the replica to have everything.", "30000"),
    Element("vote-on-replication-failure", BOOLEAN, "Vote before going on without the replica.", "false"),
    Element("quorum-size", INTEGER, "Voters needed; -1 is the size of the cluster.", "-1"),
    Element("vote-retries", INTEGER, "How often a lost vote is repeated.", "12"),
    Element("vote-retry-wait", MS, "Wait between two votes.", "5000", aliases=("vote-retries-wait",)),
    Element("quorum-vote-wait", Kind.SECONDS, "Longest wait for the answers of a vote.", "30"),
    Element(
        "retry-replication-wait",
        MS,
        "Wait before asking again for a primary to replicate; shorter at first.",
        "2000",
    ),
    Element(
        "replica-silence",
        MS,
        "Silence of the other node of a pair after which the connection of the replica counts as lost; -1: only the"
        " connection-ttl of the cluster connection counts. Not in Artemis.",
        "4000",
    ),
    Element(
        "durability-contract",
        CHOICE,
        "What a confirmation waits for while a replica is in sync: the local disk only, also the memory of the replica,"
        " or also its disk. Not in Artemis.",
        "replica-disk",
        choices=("local", "replica-memory", "replica-disk"),
    ),
    LOCK_MANAGER,
)
_REPLICATION_PRIMARY: Final = container(
    "primary",
    "The server that is replicated.",
    *_REPLICATION_ROWS,
    Element(
        "check-for-active-server",
        BOOLEAN,
        "Look for a server active with our node id before becoming active.",
        "false",
        aliases=("check-for-live-server",),
    ),
    Element("coordination-id", TEXT, "Identity that peers share."),
    aliases=("master",),
)
_REPLICATION_BACKUP: Final = container(
    "backup",
    "The server that holds a copy.",
    *_REPLICATION_ROWS,
    _ALLOW_FAILBACK,
    _RESTART_BACKUP,
    _SCALE_DOWN,
    *_FAILBACK_DELAY,
    aliases=("slave",),
)

HA_POLICY: Final = container(
    "ha-policy",
    "Role of this server in a pair; primary-only without a partner.",
    container("primary-only", "No partner.", _SCALE_DOWN, aliases=("live-only",)),
    container(
        "shared-store",
        "Primary and backup use one store, one at a time.",
        _SHARED_PRIMARY,
        _SHARED_BACKUP,
        _colocated(_SHARED_PRIMARY, _SHARED_BACKUP),
    ),
    container(
        "replication",
        "The backup holds a copy of the primary's store.",
        LOCK_MANAGER,
        _REPLICATION_PRIMARY,
        _REPLICATION_BACKUP,
        _colocated(_REPLICATION_PRIMARY, _REPLICATION_BACKUP),
    ),
)

OLD_HA_ROWS: Final = (
    Element("backup", BOOLEAN, "Old form of ha-policy: true is a backup, false a primary."),
    Element("shared-store", BOOLEAN, "Old form of ha-policy: false is replication; true by default."),
    Element("failover-on-shutdown", BOOLEAN, "Old form of the element in ha-policy."),
    Element("allow-failback", BOOLEAN, "Old form of the element in ha-policy."),
    Element("check-for-live-server", BOOLEAN, "Old form of check-for-active-server in ha-policy."),
    Element("backup-group-name", TEXT, "Old form of group-name in ha-policy."),
    Element("max-saved-replicated-journals-size", INTEGER, "Old form of the element in ha-policy."),
    Element("replication-clustername", TEXT, "Old form of cluster-name in ha-policy."),
    Element("scale-down-clustername", TEXT, "Old form of scale-down in ha-policy: to members of this cluster."),
)
"""High availability as broker.xml said it before the element ``ha-policy`` (002, "Configuration")."""

WILDCARD_ADDRESSES: Final = container(
    "wildcard-addresses",
    "How wildcards are written.",
    Element(
        "routing-enabled",
        BOOLEAN,
        "Queues on a wildcard address get what matches it.",
        "true",
        aliases=("enabled",),
    ),
    Element("delimiter", TEXT, "Between two words.", "."),
    Element("any-words", TEXT, "Stands for any number of words, none too.", "#"),
    Element("single-word", TEXT, "Stands for one word.", "*"),
)

_UDP: Final = (
    Element("local-bind-address", TEXT, "Local address of the datagram socket."),
    Element(
        "local-bind-port",
        INTEGER,
        "Local port of the sender; -1 is any, from 3000 to 4000 with a local address.",
        "-1",
        maximum=65535,
    ),
    Element("group-address", TEXT, "Multicast address."),
    Element("group-port", INTEGER, "Multicast port.", minimum=1, maximum=65535),
    Element("jgroups-file", TEXT, "File with a JGroups stack (docs/operate/clustering.md), relative to etc."),
    Element(
        "jgroups-channel",
        TEXT,
        "Name of the JGroups cluster. Without jgroups-file its datagrams go to the multicast group of the socket"
        " binding jgroups-udp, else to 230.0.0.4:45688.",
    ),
    Element("socket-binding", TEXT, "Socket binding with the multicast address, in place of the three elements."),
)
_DISCOVERY: Final = (
    container(
        "broadcast-groups",
        "Where this node makes itself known.",
        container(
            "broadcast-group",
            "One group.",
            *_UDP,
            Element("broadcast-period", MS, "Wait between two broadcasts.", "2000", minimum=1),
            _CONNECTOR_REF,
            attributes=(named("Name."),),
            repeated=True,
        ),
    ),
    container(
        "discovery-groups",
        "Where this node listens for others.",
        container(
            "discovery-group",
            "One group.",
            *_UDP,
            Element("refresh-timeout", MS, "Silence after which a member is forgotten.", "10000", minimum=1),
            Element(
                "initial-wait-timeout", MS, "Silence after the start that is logged as a warning.", "10000", minimum=1
            ),
            attributes=(named("Name."),),
            repeated=True,
        ),
    ),
)
_ROUTING_CHOICES: Final = ("ANYCAST", "MULTICAST", "STRIP", "PASS")
_DIVERTS: Final = container(
    "diverts",
    "Messages copied or moved from one address to others.",
    container(
        "divert",
        "One divert.",
        Element("transformer-class-name", TEXT, "Class that changes messages; as class-name of transformer."),
        _TRANSFORMER,
        Element("exclusive", BOOLEAN, "Move instead of copy.", "false"),
        Element("routing-name", TEXT, "Name of its binding; of diverts that share it one gets a message, in turn."),
        Element("address", TEXT, "From here; may be a wildcard.", required=True),
        Element("forwarding-address", TEXT, "To there, or to several, separated by commas.", required=True),
        FILTER,
        Element("routing-type", CHOICE, "Routing type given to the messages.", "STRIP", choices=_ROUTING_CHOICES),
        attributes=(named("Name."),),
        repeated=True,
    ),
)
_BRIDGES: Final = (
    container(
        "bridges",
        "Queues forwarded to another broker.",
        container(
            "bridge",
            "One bridge.",
            Element("queue-name", TEXT, "The queue.", required=True),
            Element("forwarding-address", TEXT, "Address there; the same by default."),
            Element("ha", BOOLEAN, "Follow a failover of the other side.", "false"),
            FILTER,
            Element("transformer-class-name", TEXT, "Class that changes messages; as class-name of transformer."),
            _TRANSFORMER,
            *_client_rows("2000"),
            *no_effect(
                "Artemis ignores it too",
                Element("failover-on-server-shutdown", BOOLEAN, "Without meaning in Artemis.", "false"),
            ),
            Element(
                "confirmation-window-size", BYTES, "Most bytes that the target has not confirmed; -1 is 64 MiB.", "1M"
            ),
            Element("producer-window-size", BYTES, "Credit asked of the target; -1 is none needed.", "1M"),
            Element("user", TEXT, "User there; without it both sides prove the cluster password."),
            Element("password", TEXT, "Password there; may be masked."),
            Element("reconnect-attempts-same-node", INTEGER, "Attempts at one node before trying another.", "10"),
            Element("routing-type", CHOICE, "Routing type given to the messages.", "PASS", choices=_ROUTING_CHOICES),
            Element("concurrency", INTEGER, "Number of bridges, which get an index after their name.", "1"),
            Element("pending-ack-timeout", MS, "Longest wait for answers when stopping.", "60000"),
            Element("client-id", TEXT, "How the bridge calls itself."),
            _STATIC,
            _DISCOVERY_REF,
            attributes=(named("Name."),),
            repeated=True,
        ),
    ),
    container(
        "grouping-handler",
        "Which queue of which member gets the messages of a message group.",
        Element("type", CHOICE, "One LOCAL in a cluster, which decides.", required=True, choices=("LOCAL", "REMOTE")),
        Element("address", TEXT, "Address by which its notifications pass the address of the cluster-connection.", ""),
        Element(
            "timeout", MS, "Longest wait for a decision, at each of ten proposals.", "5000", minimum=1, maximum=INT_MAX
        ),
        Element("group-timeout", MS, "Idle time after which a group is free again; -1: never.", "-1"),
        Element("reaper-period", MS, "How often the LOCAL handler looks for idle groups.", "30000", minimum=1),
        attributes=(named("Name."),),
    ),
)

_STORE: Final = container(
    "store",
    "What kind of store holds the data; files are the only kind.",
    container("file-store", "Files."),
    *refused(
        "the data would go to files instead of the database",
        container(
            "database-store",
            "Tables of a database.",
            *(
                Element(name, TEXT, doc)
                for name, doc in (
                    ("jdbc-driver-class-name", "Driver."),
                    ("jdbc-connection-url", "URL."),
                    ("jdbc-user", "User."),
                    ("jdbc-password", "Password."),
                    ("data-source-class-name", "Data source."),
                    ("message-table-name", "Table of messages."),
                    ("bindings-table-name", "Table of addresses and queues."),
                    ("large-message-table-name", "Table of large messages."),
                    ("page-store-table-name", "Table of pages."),
                    ("node-manager-store-table-name", "Table of locks."),
                    ("jdbc-journal-sync-period", "Time between two syncs."),
                )
            ),
            Element("jdbc-network-timeout", MS, "Longest wait for the database.", "20000"),
            Element("jdbc-lock-renew-period", MS, "How often the lock is renewed.", "4000"),
            Element("jdbc-lock-expiration", MS, "How long a lock holds without renewal.", "20000"),
            Element("jdbc-allowed-time-diff", MS, "Allowed difference of clocks.", "250"),
            Element("jdbc-max-page-size-bytes", BYTES, "Size of a page.", "100K"),
            container(
                "data-source-properties",
                "Parameters of the data source.",
                container(
                    "data-source-property",
                    "One parameter.",
                    attributes=(named("Name.", "key"), Attribute("value", TEXT, "Value.", required=True)),
                    repeated=True,
                ),
            ),
        ),
    ),
)

_METRICS: Final = container(
    "metrics",
    "Which groups of metrics are published.",
    *(
        Element(name, BOOLEAN, doc, "true" if name == "jvm-memory" else "false")
        for name, doc in (
            ("jvm-memory", "Memory."),
            ("jvm-threads", "Threads."),
            ("jvm-gc", "Garbage collection."),
            ("netty-pool", "Network buffers."),
            ("file-descriptors", "Open files."),
            ("processor", "Processor."),
            ("uptime", "Time since the start."),
            ("logging", "Log events."),
            ("security-caches", "Caches of logins and permissions."),
            ("executor-services", "Thread pools."),
        )
    ),
    container("plugin", "Java class.", _PROPERTY, attributes=(named("Its name.", "class-name"),)),
)
_PLUGINS: Final = (
    *no_effect(
        "Java classes cannot be loaded here",
        container(
            "broker-plugins",
            "Classes called at events.",
            container(
                "broker-plugin",
                "One class.",
                _PROPERTY,
                attributes=(named("Its name.", "class-name"),),
                repeated=True,
            ),
        ),
        container(
            "metrics-plugin", "Class that publishes metrics.", _PROPERTY, attributes=(named("Its name.", "class-name"),)
        ),
        container(
            "connector-services",
            "Classes that connect to other systems.",
            container(
                "connector-service",
                "One class.",
                Element("factory-class", TEXT, "Its name.", required=True),
                container(
                    "param",
                    "Parameter.",
                    attributes=(named("Name.", "key"), Attribute("value", TEXT, "Value.", required=True)),
                    repeated=True,
                ),
                attributes=(Attribute("name", TEXT, "Name."),),
                repeated=True,
            ),
        ),
    ),
    *no_effect("metrics are at /metrics of the management server, all of them", _METRICS),
)
_LIMITS: Final = container(
    "resource-limit-settings",
    "Limits of one user.",
    container(
        "resource-limit-setting",
        "Limits of one user.",
        Element("max-sessions", INTEGER, "Sessions; -1 is no limit.", "-1", aliases=("max-connections",)),
        Element("max-queues", INTEGER, "Queues made by the user; -1 is no limit.", "-1"),
        attributes=(named("User name.", "match"),),
        repeated=True,
    ),
)

OTHER_ROWS: Final[tuple[Element, ...]] = (*_DISCOVERY, _DIVERTS, *_BRIDGES, _STORE, *_PLUGINS, _LIMITS)
"""Elements with a structure of their own that this version knows but does not serve."""
