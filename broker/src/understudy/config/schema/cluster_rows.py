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
    row,
)

BOOLEAN, INTEGER, LONG, TEXT = Kind.BOOLEAN, Kind.INTEGER, Kind.LONG, Kind.TEXT
MS, BYTES, CHOICE, DECIMAL = Kind.MILLISECONDS, Kind.BYTES, Kind.CHOICE, Kind.DECIMAL

_CONNECTOR_REF: Final = row("connector-ref", TEXT, None, "Name of a connector.", repeated=True)
_CONNECTORS: Final = row("connector-ref", TEXT, None, "Name of a connector.", required=True, repeated=True)
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
    "transformer", "Class that changes messages.", row("class-name", TEXT, None, "Its name."), _PROPERTY
)
_STATIC: Final = container("static-connectors", "Members given by name.", _CONNECTORS)


def _client_rows(retry_interval: str) -> tuple[Element, ...]:
    """How a broker behaves as the client of another one."""
    return (
        row("check-period", MS, "30000", "How often the other side is checked for silence; -1 is never."),
        row("connection-ttl", MS, "60000", "Silence after which the other side may drop the connection."),
        row("min-large-message-size", BYTES, "100K", "Size from which a message travels in chunks."),
        row("retry-interval", MS, retry_interval, "Wait before connecting again.", minimum=0),
        row("retry-interval-multiplier", DECIMAL, "1", "Growth of that wait from one attempt to the next."),
        row("max-retry-interval", MS, "2000", "Longest such wait."),
        row("initial-connect-attempts", INTEGER, "-1", "First connection attempts; -1 is no limit."),
        row("reconnect-attempts", INTEGER, "-1", "Later connection attempts; -1 is no limit."),
        row("use-duplicate-detection", BOOLEAN, "true", "Mark forwarded messages so that none arrives twice."),
    )


CLUSTER_CONNECTIONS: Final = container(
    "cluster-connections",
    "How this node takes part in clusters.",
    container(
        "cluster-connection",
        "One cluster.",
        row("connector-ref", TEXT, None, "The connector by which the others reach this node.", required=True),
        *_client_rows("500"),
        row("call-timeout", MS, "30000", "Longest wait for an answer."),
        row("notification-interval", MS, "1000", "Wait between announcements after joining."),
        row("notification-attempts", INTEGER, "2", "Announcements after joining."),
        row("topology-scanner-attempts", INTEGER, "30", "Looks for missing members; 0 is none, -1 no end."),
        row("address", TEXT, "", "Prefixes of the addresses that are balanced, !prefix excludes; empty is all."),
        row(
            "message-load-balancing",
            CHOICE,
            "ON_DEMAND",
            "Which members get messages.",
            choices=("OFF", "STRICT", "ON_DEMAND", "OFF_WITH_REDISTRIBUTION"),
        ),
        row("forward-when-no-consumers", BOOLEAN, None, "Old form: true is STRICT, false is ON_DEMAND."),
        row("max-hops", INTEGER, "1", "How many nodes away queues may be; 0: no messages travel.", minimum=0),
        # 003 says 1,048,576; the code of Artemis has had 10 MiB since 2.0, and members of both kinds meet in clusters
        row(
            "confirmation-window-size",
            BYTES,
            "10M",
            "Bytes that another member has not confirmed. The default is that of Artemis's code, its manual says 1M.",
        ),
        row("producer-window-size", BYTES, "1M", "Bytes sent before credits are required; -1 is no limit."),
        row("client-id", TEXT, None, "How the bridges of this node call themselves to the others."),
        *no_effect(
            "a request between nodes ends with its connection and is made again on the next one",
            row("call-failover-timeout", MS, "-1", "Longest wait for an answer during a failover; -1 is no limit."),
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
            row("scale-down-connector", TEXT, None, "Connector for scaling down."),
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
    row("enabled", BOOLEAN, "true", "Whether it does; otherwise the node only takes over from others."),
    row("group-name", TEXT, None, "Only members of this group."),
    _DISCOVERY_REF,
    container("connectors", "Members given by name; without them any member.", _CONNECTORS),
    row(
        "commit-interval",
        INTEGER,
        "-1",
        "Messages that are removed here in one transaction; -1: as the other node confirms them.",
        minimum=-1,
    ),
)
_FAILBACK_DELAY: Final = no_effect(
    "Artemis has long ignored it too", row("failback-delay", MS, "5000", "Wait before a failback.")
)
_ON_SHUTDOWN: Final = row(
    "failover-on-shutdown",
    BOOLEAN,
    "false",
    "A clean stop of the active server lets the other one take over.",
    aliases=("failover-on-server-shutdown",),
)
_ALLOW_FAILBACK: Final = row(
    "allow-failback",
    BOOLEAN,
    "true",
    "The active backup yields when its primary comes back.",
    aliases=("allow-fail-back",),
)
_RESTART_BACKUP: Final = row("restart-backup", BOOLEAN, "true", "After yielding it goes on as a backup.")

_SHARED_PRIMARY: Final = container(
    "primary",
    "The server that is active by choice.",
    _ON_SHUTDOWN,
    row("wait-for-activation", BOOLEAN, "true", "Report started only once active."),
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
        row("request-backup", BOOLEAN, "false", "Ask another member to host a backup of this one."),
        row("backup-request-retries", INTEGER, "-1", "How often it asks again; -1 is no limit."),
        row("backup-request-retry-interval", MS, "5000", "Wait between two requests.", minimum=1),
        row(
            "max-backups",
            INTEGER,
            "1",
            "Backups hosted here for others; each has a share of the memory.",
            minimum=0,
            maximum=64,
        ),
        row(
            "backup-port-offset",
            INTEGER,
            "100",
            "Added to the ports of the first hosted backup, twice to those of the second, and so on.",
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
    row("class-name", TEXT, None, "Its class or built-in name."),
    container("properties", "Its parameters.", _PROPERTY),
)
_REPLICATION_ROWS: Final = (
    row("group-name", TEXT, None, "Only servers of the same group pair."),
    row("cluster-name", TEXT, None, "The cluster connection to replicate over; the first by default."),
    row(
        "max-saved-replicated-journals-size",
        INTEGER,
        "2",
        "Old copies of the data kept; 0 deletes them, -1 keeps all.",
        aliases=("max-saved-replicated-journal-size",),
    ),
    row("initial-replication-sync-timeout", MS, "30000", "Longest wait for the replica to have everything."),
    row("vote-on-replication-failure", BOOLEAN, "false", "Vote before going on without the replica."),
    row("quorum-size", INTEGER, "-1", "Voters needed; -1 is the size of the cluster."),
    row("vote-retries", INTEGER, "12", "How often a lost vote is repeated."),
    row("vote-retry-wait", MS, "5000", "Wait between two votes.", aliases=("vote-retries-wait",)),
    row("quorum-vote-wait", Kind.SECONDS, "30", "Longest wait for the answers of a vote."),
    row(
        "retry-replication-wait",
        MS,
        "2000",
        "Wait before asking again for a primary to replicate; shorter at first.",
    ),
    row(
        "replica-silence",
        MS,
        "4000",
        "Silence of the other node of a pair after which the connection of the replica counts as lost; -1: only the"
        " connection-ttl of the cluster connection counts. Not in Artemis.",
    ),
    row(
        "durability-contract",
        CHOICE,
        "replica-disk",
        "What a confirmation waits for while a replica is in sync: the local disk only, also the memory of the replica,"
        " or also its disk. Not in Artemis.",
        choices=("local", "replica-memory", "replica-disk"),
    ),
    LOCK_MANAGER,
)
_REPLICATION_PRIMARY: Final = container(
    "primary",
    "The server that is replicated.",
    *_REPLICATION_ROWS,
    row(
        "check-for-active-server",
        BOOLEAN,
        "false",
        "Look for a server active with our node id before becoming active.",
        aliases=("check-for-live-server",),
    ),
    row("coordination-id", TEXT, None, "Identity that peers share."),
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
    row("backup", BOOLEAN, None, "Old form of ha-policy: true is a backup, false a primary."),
    row("shared-store", BOOLEAN, None, "Old form of ha-policy: false is replication; true by default."),
    row("failover-on-shutdown", BOOLEAN, None, "Old form of the element in ha-policy."),
    row("allow-failback", BOOLEAN, None, "Old form of the element in ha-policy."),
    row("check-for-live-server", BOOLEAN, None, "Old form of check-for-active-server in ha-policy."),
    row("backup-group-name", TEXT, None, "Old form of group-name in ha-policy."),
    row("max-saved-replicated-journals-size", INTEGER, None, "Old form of the element in ha-policy."),
    row("replication-clustername", TEXT, None, "Old form of cluster-name in ha-policy."),
    row("scale-down-clustername", TEXT, None, "Old form of scale-down in ha-policy: to members of this cluster."),
)
"""High availability as broker.xml said it before the element ``ha-policy`` (002, "Configuration")."""

WILDCARD_ADDRESSES: Final = container(
    "wildcard-addresses",
    "How wildcards are written.",
    row(
        "routing-enabled",
        BOOLEAN,
        "true",
        "Queues on a wildcard address get what matches it.",
        aliases=("enabled",),
    ),
    row("delimiter", TEXT, ".", "Between two words."),
    row("any-words", TEXT, "#", "Stands for any number of words, none too."),
    row("single-word", TEXT, "*", "Stands for one word."),
)

_UDP: Final = (
    row("local-bind-address", TEXT, None, "Local address of the datagram socket."),
    row(
        "local-bind-port",
        INTEGER,
        "-1",
        "Local port of the sender; -1 is any, from 3000 to 4000 with a local address.",
        maximum=65535,
    ),
    row("group-address", TEXT, None, "Multicast address."),
    row("group-port", INTEGER, None, "Multicast port.", minimum=1, maximum=65535),
    row("jgroups-file", TEXT, None, "File with a JGroups stack (docs/operate/clustering.md), relative to etc."),
    row(
        "jgroups-channel",
        TEXT,
        None,
        "Name of the JGroups cluster. Without jgroups-file its datagrams go to the multicast group of the socket"
        " binding jgroups-udp, else to 230.0.0.4:45688.",
    ),
    row("socket-binding", TEXT, None, "Socket binding with the multicast address, in place of the three elements."),
)
_DISCOVERY: Final = (
    container(
        "broadcast-groups",
        "Where this node makes itself known.",
        container(
            "broadcast-group",
            "One group.",
            *_UDP,
            row("broadcast-period", MS, "2000", "Wait between two broadcasts.", minimum=1),
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
            row("refresh-timeout", MS, "10000", "Silence after which a member is forgotten.", minimum=1),
            row("initial-wait-timeout", MS, "10000", "Silence after the start that is logged as a warning.", minimum=1),
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
        row("transformer-class-name", TEXT, None, "Class that changes messages; as class-name of transformer."),
        _TRANSFORMER,
        row("exclusive", BOOLEAN, "false", "Move instead of copy."),
        row("routing-name", TEXT, None, "Name of its binding; of diverts that share it one gets a message, in turn."),
        row("address", TEXT, None, "From here; may be a wildcard.", required=True),
        row("forwarding-address", TEXT, None, "To there, or to several, separated by commas.", required=True),
        FILTER,
        row("routing-type", CHOICE, "STRIP", "Routing type given to the messages.", choices=_ROUTING_CHOICES),
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
            row("queue-name", TEXT, None, "The queue.", required=True),
            row("forwarding-address", TEXT, None, "Address there; the same by default."),
            row("ha", BOOLEAN, "false", "Follow a failover of the other side."),
            FILTER,
            row("transformer-class-name", TEXT, None, "Class that changes messages; as class-name of transformer."),
            _TRANSFORMER,
            *_client_rows("2000"),
            *no_effect(
                "Artemis ignores it too",
                row("failover-on-server-shutdown", BOOLEAN, "false", "Without meaning in Artemis."),
            ),
            row("confirmation-window-size", BYTES, "1M", "Most bytes that the target has not confirmed; -1 is 64 MiB."),
            row("producer-window-size", BYTES, "1M", "Credit asked of the target; -1 is none needed."),
            row("user", TEXT, None, "User there; without it both sides prove the cluster password."),
            row("password", TEXT, None, "Password there; may be masked."),
            row("reconnect-attempts-same-node", INTEGER, "10", "Attempts at one node before trying another."),
            row("routing-type", CHOICE, "PASS", "Routing type given to the messages.", choices=_ROUTING_CHOICES),
            row("concurrency", INTEGER, "1", "Number of bridges, which get an index after their name."),
            row("pending-ack-timeout", MS, "60000", "Longest wait for answers when stopping."),
            row("client-id", TEXT, None, "How the bridge calls itself."),
            _STATIC,
            _DISCOVERY_REF,
            attributes=(named("Name."),),
            repeated=True,
        ),
    ),
    container(
        "grouping-handler",
        "Which queue of which member gets the messages of a message group.",
        row("type", CHOICE, None, "One LOCAL in a cluster, which decides.", required=True, choices=("LOCAL", "REMOTE")),
        row("address", TEXT, "", "Address by which its notifications pass the address of the cluster-connection."),
        row(
            "timeout", MS, "5000", "Longest wait for a decision, at each of ten proposals.", minimum=1, maximum=INT_MAX
        ),
        row("group-timeout", MS, "-1", "Idle time after which a group is free again; -1: never."),
        row("reaper-period", MS, "30000", "How often the LOCAL handler looks for idle groups.", minimum=1),
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
                row(name, TEXT, None, doc)
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
            row("jdbc-network-timeout", MS, "20000", "Longest wait for the database."),
            row("jdbc-lock-renew-period", MS, "4000", "How often the lock is renewed."),
            row("jdbc-lock-expiration", MS, "20000", "How long a lock holds without renewal."),
            row("jdbc-allowed-time-diff", MS, "250", "Allowed difference of clocks."),
            row("jdbc-max-page-size-bytes", BYTES, "100K", "Size of a page."),
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
        row(name, BOOLEAN, "true" if name == "jvm-memory" else "false", doc)
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
                row("factory-class", TEXT, None, "Its name.", required=True),
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
        row("max-sessions", INTEGER, "-1", "Sessions; -1 is no limit.", aliases=("max-connections",)),
        row("max-queues", INTEGER, "-1", "Queues made by the user; -1 is no limit."),
        attributes=(named("User name.", "match"),),
        repeated=True,
    ),
)

OTHER_ROWS: Final[tuple[Element, ...]] = (*_DISCOVERY, _DIVERTS, *_BRIDGES, _STORE, *_PLUGINS, _LIMITS)
"""Elements with a structure of their own that this version knows but does not serve."""
