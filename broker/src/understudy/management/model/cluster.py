"""A node's part in its cluster as management shows it: members, links, bridges, discovery and broadcast groups.

Addresses are shown as ``tcp://host:port``: other parameters of a connector may hold passwords, and those of a
discovered one are texts of any sender.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from understudy.management.model.figure import Item, Natural, figure
from understudy.management.model.links import Bridge
from understudy.management.model.node import NodeState


class Member(Item, frozen=True):
    """One node id of the cluster's topology."""

    node_id: Annotated[str, figure("Node id of the member.")]
    own: Annotated[bool, figure("Whether the node id is that of this node.")]
    primary: Annotated[str | None, figure("Address of the active node.")]
    backup: Annotated[str | None, figure("Address of the passive node.")]
    backup_group: Annotated[str | None, figure("Group of the pair.")]


class Link(Item, frozen=True):
    """One connection of this node to another one."""

    to: Annotated[str, figure("Address of the other node.")]
    node_id: Annotated[str | None, figure("Node id of the other node; null if unknown.")]
    state: Annotated[str, figure("State of the machine (docs/build/machines/member-link.md).")]
    failures: Annotated[Natural, figure("Failed attempts since the last connection.")]


class Unreached(Item, frozen=True):
    """A member that advertises an address to which this node has not been able to connect so far."""

    node_id: Annotated[str, figure("Node id of the member.")]
    address: Annotated[str, figure("Advertised address.")]
    failures: Annotated[Natural, figure("Failed attempts.")]
    error: Annotated[str, figure("Why the last attempt failed.")]


class Entry(Item, frozen=True):
    """One node whose broadcasts were received."""

    node_id: Annotated[str, figure("Node id that was heard.")]
    connectors: Annotated[list[str], figure("Addresses; the last one is used.")]
    source: Annotated[str, figure("Address of the sender, or name of the file.")]
    age_ms: Annotated[Natural, figure("Time since the last broadcast of the node.", "ms")]


class Discovery(Item, frozen=True):
    """State of one discovery group."""

    name: Annotated[str, figure("Name of the group.")]
    at: Annotated[str, figure("How broadcasts travel.")]
    state: Annotated[str, figure("State of the machine (docs/build/machines/group.md).")]
    error: Annotated[str | None, figure("Why the group cannot listen.")]
    entries: Annotated[list[Entry], figure("Nodes that were heard.")]
    outcomes: Annotated[dict[str, int], figure("Datagrams by result.")]
    duplicates: Annotated[
        Natural,
        figure("Broadcasts of a node id by another broadcaster than before.", total="understudy_discovery_duplicates"),
    ]


class Broadcast(Item, frozen=True):
    """State of one broadcast group."""

    name: Annotated[str, figure("Name of the group.")]
    at: Annotated[str, figure("How broadcasts travel.")]
    state: Annotated[str, figure("State of the machine (docs/build/machines/broadcaster.md).")]
    connectors: Annotated[list[str], figure("Addresses of the connectors that are broadcast.")]
    period_ms: Annotated[Natural, figure("Period of the broadcasts.", "ms")]
    sent: Annotated[Natural, figure("Broadcasts sent.")]
    failed: Annotated[Natural, figure("Broadcasts that could not be sent.")]
    error: Annotated[str | None, figure("Why the last broadcast could not be sent.")]


class RemoteQueue(Item, frozen=True):
    """Queue of another member, to which messages may be sent."""

    queue: Annotated[str, figure("Name of the queue.")]
    address: Annotated[str, figure("Address of the queue.")]
    node_id: Annotated[str, figure("Node id of the member that has the queue.")]
    distance: Annotated[Natural, figure("Hops; 1: a direct neighbour has it.")]
    connected: Annotated[bool, figure("Whether the queue is reported at present; otherwise its messages wait.")]
    consumers: Annotated[Natural, figure("Consumers of the queue at the other member.")]
    filter: Annotated[str | None, figure("Selector of the queue; null: all messages.")]
    through: Annotated[str, figure("Store-and-forward queue.")]


class Redistribution(Item, frozen=True):
    """A queue of this node whose messages move to consumers of other members."""

    queue: Annotated[str, figure("Name of the queue.")]
    state: Annotated[str, figure("State of the machine (docs/build/machines/redistribution.md).")]
    moved: Annotated[Natural, figure("Messages moved since the activation.", "messages")]


class Grouping(Item, frozen=True):
    """The grouping handler of a node; its counters are since the activation."""

    name: Annotated[str, figure("Name of the handler.")]
    type: Annotated[str, figure("LOCAL or REMOTE.")]
    groups: Annotated[Natural, figure("Message groups that have a queue.", metric="understudy_group_bindings")]
    waiting: Annotated[
        Natural, figure("Sessions that wait for a decision.", metric="understudy_group_sessions_waiting")
    ]
    proposals: Annotated[
        Natural, figure("Proposals sent, or received by the LOCAL handler.", total="understudy_group_proposals")
    ]
    freed: Annotated[
        Natural, figure("Message groups that have lost their queue.", total="understudy_group_bindings_freed")
    ]
    ungrouped: Annotated[
        Natural,
        figure(
            "Messages routed without their group, for want of a decision.", total="understudy_group_messages_ungrouped"
        ),
    ]


class Hosted(Item, frozen=True):
    """A colocated backup that this process hosts."""

    server: Annotated[str, figure("Name of the server.")]
    node_id: Annotated[str, figure("Node id of its primary.")]
    state: Annotated[NodeState, figure("State like that of a node; ``stopped`` if it has failed.")]
    acceptors: Annotated[list[str], figure("Addresses of the server once it is active.")]


class Colocated(Item, frozen=True):
    """The colocated backups of a node."""

    request: Annotated[
        str | None, figure("State of the machine (docs/build/machines/requests.md); null without request-backup.")
    ]
    host: Annotated[str | None, figure("Node id of the member that hosts the backup of this node, as it said.")]
    hosted: Annotated[list[Hosted], figure("Backups that this process hosts.")]


class ClusterConnection(Item, frozen=True):
    """State of one cluster connection of an active node."""

    name: Annotated[str, figure("Name of the cluster connection.")]
    address: Annotated[str, figure("Prefixes of its addresses; empty: all.")]
    message_load_balancing: Annotated[str, figure("Which members get messages.")]
    max_hops: Annotated[Natural, figure("How many nodes away queues may be.")]
    nodes: Annotated[list[str], figure("Node ids of the members that get messages.")]
    remote_queues: Annotated[
        Natural,
        figure(
            "Queues of other members that a cluster connection knows.",
            metric="understudy_cluster_connection_remote_queues",
        ),
    ]
    waiting: Annotated[
        Natural,
        figure(
            "Messages for other members in the store-and-forward queues of a cluster connection.",
            "messages",
            metric="understudy_cluster_connection_waiting",
        ),
    ]
    forwarded: Annotated[Natural, figure("Messages that the bridges have sent since the activation.", "messages")]
    acknowledged: Annotated[
        Natural,
        figure(
            "Messages that other members have confirmed.",
            "messages",
            total="understudy_cluster_connection_acknowledged",
        ),
    ]
    connector: Annotated[str | None, figure("The connector by which the others reach this node.")] = None
    members: Annotated[list[Member], figure("Nodes of the topology, this one included.")] = field(default_factory=list)


class Cluster(Item, frozen=True):
    """The cluster as this node sees it."""

    state: Annotated[
        str | None,
        figure("State of the membership (docs/build/machines/membership.md); null without a cluster-connection."),
    ] = None
    members: Annotated[list[Member], figure("Node ids of the topology.")] = field(default_factory=list)
    links: Annotated[list[Link], figure("Connections of this node to others.")] = field(default_factory=list)
    discovery: Annotated[list[Discovery], figure("Discovery groups.")] = field(default_factory=list)
    broadcasts: Annotated[list[Broadcast], figure("Broadcast groups.")] = field(default_factory=list)
    bridges: Annotated[
        list[Bridge], figure("The bridges of an active node, and those that empty its store-and-forward queues.")
    ] = field(default_factory=list)
    remote_queues: Annotated[list[RemoteQueue], figure("Known queues of other members.")] = field(default_factory=list)
    redistribution: Annotated[list[Redistribution], figure("Queues whose messages move to other members.")] = field(
        default_factory=list
    )
    grouping: Annotated[Grouping | None, figure("None without a grouping handler.")] = None
    colocated: Annotated[Colocated | None, figure("None without a colocated policy.")] = None
    unreached: Annotated[list[Unreached], figure("Members whose advertised address was never reached.")] = field(
        default_factory=list
    )
    connections: Annotated[list[ClusterConnection], figure("Cluster connections of an active node.")] = field(
        default_factory=list
    )
    ungrouped_pairs: Annotated[
        list[str],
        figure("Node ids of other replicated pairs that have no group-name, as this one has none (ADR 0119)."),
    ] = field(default_factory=list)
