"""A node's part in its cluster as management shows it: members, links, bridges, discovery and broadcast groups.

Addresses are shown as ``tcp://host:port``: other parameters of a connector may hold passwords, and those of a
discovered one are texts of any sender.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from understudy.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """One node id of the topology."""

    node_id: str
    own: bool
    """Whether it is that of this node."""
    primary: str | None
    """Address of the active node."""
    backup: str | None
    """Address of the passive node."""
    backup_group: str | None


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """One connection of this node to another one."""

    to: str
    node_id: str | None
    state: str
    """State of the machine (docs/machines/member-link.md)."""
    failures: int
    """Failed attempts since the last connection."""


@dataclass(frozen=True, slots=True)
class UnreachedFacts:
    """A member that advertises an address to which this node has not been able to connect so far."""

    node_id: str
    address: str
    failures: int
    error: str


@dataclass(frozen=True, slots=True)
class EntryFacts:
    """One node that was heard."""

    node_id: str
    connectors: Sequence[str]
    """Addresses; the last one is used."""
    source: str
    """Address of the sender, or name of the file."""
    age_ms: int
    """Time since its last broadcast."""


@dataclass(frozen=True, slots=True)
class DiscoveryFacts:
    """One discovery group."""

    name: str
    at: str
    """How broadcasts travel."""
    state: str
    """State of the machine (docs/machines/group.md)."""
    error: str | None
    """Why it cannot listen."""
    entries: Sequence[EntryFacts]
    outcomes: Mapping[str, int]
    """Datagrams by result."""
    duplicates: int
    """Broadcasts of a node id by another broadcaster than before."""


@dataclass(frozen=True, slots=True)
class BroadcastFacts:
    """One broadcast group."""

    name: str
    at: str
    """How broadcasts travel."""
    state: str
    """State of the machine (docs/machines/broadcaster.md)."""
    connectors: Sequence[str]
    period_ms: int
    sent: int
    failed: int
    error: str | None
    """Why the last broadcast could not be sent."""


@dataclass(frozen=True, slots=True)
class BridgeFacts:
    """One core bridge."""

    name: str
    queue: str
    """Queue that it consumes."""
    forwarding_address: str | None
    """Address at the target; None: that of each message."""
    state: str
    """State of the machine (docs/machines/bridge.md)."""
    connected: bool
    """Whether it has a session at the target."""
    target: str | None
    """Connector in use, or tried last; None: none was tried."""
    waiting: int
    """Messages in the queue."""
    unconfirmed: int
    """Messages that were sent and that the target has not confirmed."""
    forwarded: int
    """Messages sent since the activation; one that is sent again counts again."""
    acknowledged: int
    """Messages that the target has confirmed since the activation."""
    lost_connections: int
    """Connections to the target that were lost since the activation."""
    refused: int
    """Messages that the target has refused since the activation; one that is refused again counts again."""
    error: str | None
    """Why the latest connection ended or could not be made, or why a message was refused."""


@dataclass(frozen=True, slots=True)
class RemoteQueueFacts:
    """A queue of another member, to which messages may go."""

    queue: str
    address: str
    node_id: str
    """Node id of the member that has the queue."""
    distance: int
    """Hops; 1: a direct neighbour has it."""
    connected: bool
    """Whether it is reported at present; otherwise its messages wait."""
    consumers: int
    filter: str | None
    through: str
    """Store-and-forward queue."""


@dataclass(frozen=True, slots=True)
class RedistributionFacts:
    """A queue of this node whose messages move to consumers of other members."""

    queue: str
    state: str
    """State of the machine (docs/machines/redistribution.md)."""
    moved: int
    """Messages since the activation."""


@dataclass(frozen=True, slots=True)
class GroupingFacts:
    """The grouping handler of a node; its counters are since the activation."""

    name: str
    type: str
    """LOCAL or REMOTE."""
    groups: int
    """Message groups that have a queue, as far as this node knows."""
    waiting: int
    """Sessions of which a message waits for a decision."""
    proposals: int
    """Sent by a REMOTE handler, received by the LOCAL one."""
    freed: int
    """Groups that have lost their queue."""
    ungrouped: int
    """Messages that were routed without their group, because no decision was made."""


@dataclass(frozen=True, slots=True)
class HostedFacts:
    """A colocated backup that this process hosts."""

    server: str
    """Name of the server."""
    node_id: str
    """Node id of its primary."""
    state: str
    """State like that of a node; ``stopped`` if it has failed."""
    acceptors: Sequence[str]
    """Addresses once it is active."""


@dataclass(frozen=True, slots=True)
class ColocatedFacts:
    """The colocated backups of a node."""

    request: str | None
    """State of the machine (docs/machines/requests.md); None without request-backup."""
    host: str | None
    """Node id of the member that hosts the backup of this node, as it said."""
    hosted: Sequence[HostedFacts]


@dataclass(frozen=True, slots=True)
class ClusterConnectionFacts:
    """One cluster connection of an active node."""

    name: str
    address: str
    """Prefixes of its addresses; empty: all."""
    message_load_balancing: str
    max_hops: int
    nodes: Sequence[str]
    """Node ids to which its messages go."""
    remote_queues: int
    """Queues of other nodes that it knows."""
    waiting: int
    """Messages in its store-and-forward queues."""
    forwarded: int
    """Messages that its bridges have sent since the activation."""
    acknowledged: int
    """Messages that other nodes have confirmed since the activation."""
    connector: str | None = None
    """The connector by which the others reach this node."""
    members: Sequence[MemberFacts] = ()
    """Nodes of its topology, this one included."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The cluster as this node sees it."""

    state: str | None = None
    """State of the membership (docs/machines/membership.md); None without a cluster-connection."""
    members: Sequence[MemberFacts] = ()
    links: Sequence[LinkFacts] = ()
    discovery: Sequence[DiscoveryFacts] = ()
    broadcasts: Sequence[BroadcastFacts] = ()
    bridges: Sequence[BridgeFacts] = ()
    """The bridges of an active node, and those that empty its store-and-forward queues."""
    remote_queues: Sequence[RemoteQueueFacts] = ()
    redistribution: Sequence[RedistributionFacts] = ()
    grouping: GroupingFacts | None = None
    """None without a grouping handler."""
    colocated: ColocatedFacts | None = None
    """None without a colocated policy."""
    unreached: Sequence[UnreachedFacts] = ()
    connections: Sequence[ClusterConnectionFacts] = ()
    ungrouped_pairs: Sequence[str] = ()
    """Node ids of other replicated pairs that have no group-name, as this one has none (ADR 0119)."""


def cluster_json(facts: ClusterFacts) -> dict[str, object]:
    """GET /api/v1/cluster."""
    return asdict(facts)
