"""The node itself: state, store, comparison of files, named readers."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import field

from understudy.management.model.figure import Item, Natural, figure
from understudy.management.model.links import Acceptor

NodeState = Literal["starting", "passive", "active", "stopping", "isolated", "stopped"]
#: Possible states of a node.
STATES: Final[tuple[NodeState, ...]] = ("starting", "passive", "active", "stopping", "isolated", "stopped")


class Durations(Item, frozen=True):
    """Durations, counted by upper bounds: a histogram."""

    bounds_ms: Annotated[list[float], figure("Upper bounds of all but the last count.", "ms")]
    counts: Annotated[
        list[Natural], figure("Durations up to each bound and above the one before; the last count is of longer ones.")
    ]
    total_ms: Annotated[float, figure("Sum of the durations.", "ms")]


class Kernel(Item, frozen=True):
    """The implementation of the hot path in use (ADR 0034)."""

    active: Annotated[Literal["native", "python"], figure("Implementation in use.")]
    reason: Annotated[str, figure("Version of the native module, or why it is not used.")]


class WithoutLockManager(Item, frozen=True):
    """An active node that serves on the promise of its replica, without its lock manager (ADR 0116)."""

    manager: Annotated[str, figure("Provider and address of the lock manager.")]
    for_ms: Annotated[Natural, figure("Time since the lock was lost.", "ms")]
    reason: Annotated[str, figure("Why the lock was lost.")]


class HighAvailability(Item, frozen=True, kw_only=True):
    """Part of the node in its pair."""

    policy: Annotated[Literal["shared-store", "replication", "primary-only"], figure("HA policy.")]
    role: Annotated[Literal["primary", "backup", "primary-only"], figure("Role as configured.")]
    state: Annotated[NodeState, figure("State of the node.")]
    machine_state: Annotated[str, figure("State of the machine of the node (docs/build/machines/node.md).")]
    waiting_because: Annotated[
        str | None,
        figure(
            "Why a passive node does not activate while no other node is active: the data of a replica may be old, or "
            "the primary of a shared store was stopped cleanly."
        ),
    ] = None
    backup_present: Annotated[
        bool | None,
        figure(
            "1 if an active node of a pair knows the other server: it is announced, or its copy is in sync. "
            "Null on other nodes.",
            metric="understudy_backup_present",
        ),
    ] = None
    lock_proof_age_ms: Annotated[
        Natural | None,
        figure(
            "Time since the last proof that an active node holds its lock; null without a lock.",
            "ms",
            metric="understudy_lock_proof_age_seconds",
        ),
    ] = None
    switches: Annotated[
        dict[str, Natural],
        figure(
            "Activations of this process in the place of another node, by kind: take-over of a backup, or failback.",
            total="understudy_failovers",
            label="kind",
        ),
    ] = field(default_factory=dict)
    without_lock_manager: Annotated[
        WithoutLockManager | None, figure("Set while an active node serves without its lock manager.")
    ] = None


class Protection(Item, frozen=True):
    """The node that takes over when another one fails, and the loss then (``management.protection``)."""

    protected: Annotated[
        bool,
        figure("1 if another node may take over, or this passive node may.", metric="understudy_protected"),
    ]
    successor: Annotated[
        str | None, figure("host:port of the node that takes over; null: none, this node, or an unknown one.")
    ]
    who: Annotated[str, figure("The node that takes over, as a clause.")]
    loss: Annotated[str, figure("Loss if the active node fails now, as a clause.")]
    advice: Annotated[str | None, figure("Action to take, as sentences; null: none.")]
    sentence: Annotated[str, figure("All of it in one text, as `understudy ha`, `status` and the log have it.")]


#: Of a node about which nothing is known.
_UNKNOWN: Final = Protection(False, None, "unknown", "unknown", None, "unknown")


class Promotion(Item, frozen=True):
    """A promotion of the data of a node by an administrator."""

    node_id: Annotated[str, figure("Node id of the data.")]
    before: Annotated[Natural | None, figure("Activation sequence of the data before; null: it had none.")]
    newest_known: Annotated[
        Natural | None, figure("Highest sequence known at that time; null: only the other node knows it.")
    ]
    sequence: Annotated[Natural, figure("Activation sequence of the data from then on.")]
    wall_ms: Annotated[Natural, figure("Time of the record.", "ms since 1970")] = 0


class EarlierData(Item, frozen=True):
    """The newest ``oldreplica.N``: data that another active node did not have (``store.replication.divergence``)."""

    directory: Annotated[str, figure("Directory of the data.")]
    epoch: Annotated[Natural, figure("Epoch of the first record that only this copy has.")]
    sequence: Annotated[Natural, figure("Sequence of this record.")]
    records: Annotated[Natural, figure("Records that only this copy has.")]
    messages: Annotated[Natural, figure("Messages added by these records.", "messages")]


class Peer(Item, frozen=True):
    """The other server of the pair, as far as this node knows it."""

    role: Annotated[str, figure("primary or backup.")]
    connector: Annotated[str, figure("host:port that the peer announces to clients.")]
    name: Annotated[str | None, figure("Name of the peer; null: it has not stated one.")] = None


class Step(Item, frozen=True):
    """A step of an activation that was begun."""

    name: Annotated[str, figure("Name of the step.")]
    took_ms: Annotated[Natural, figure("Time so far, if the step is under way.", "ms")]


class Activation(Item, frozen=True):
    """The progress of an activation."""

    step: Annotated[str | None, figure("Step that is done or undone; null if none is.")]
    undoing: Annotated[bool, figure("Whether the node is deactivated.")]
    took_ms: Annotated[Natural, figure("Time of all steps that were begun.", "ms")]
    steps: Annotated[
        list[Step],
        figure("Steps in the order in which they were begun; while the activation is undone: those not undone yet."),
    ]


class Following(Item, frozen=True):
    """The position up to which a passive node has read the log."""

    caught_up: Annotated[bool, figure("1 if all of the log is applied.", metric="understudy_follower_caught_up")]
    lag_bytes: Annotated[Natural, figure("Log bytes not applied yet.", "bytes", metric="understudy_follower_lag_bytes")]


class Store(Item, frozen=True):
    """State of the node's store."""

    directory: Annotated[str, figure("Directory of the log.")]
    segments: Annotated[Natural, figure("Segments of the journal.", metric="understudy_store_segments")]
    bytes: Annotated[
        Natural,
        figure("Bytes of the journal's segments, snapshots and kept files.", "bytes", metric="understudy_store_bytes"),
    ]
    full: Annotated[bool, figure("1 if the disk of the store is full.", metric="understudy_store_full")]
    durable_sequence: Annotated[
        Natural,
        figure(
            "Last synced log sequence; in a follower the last applied one.", metric="understudy_store_durable_sequence"
        ),
    ]
    live_bytes: Annotated[
        Natural | None,
        figure(
            "Bytes of the journal in use: at the last snapshot, and all younger records; null in a follower.",
            "bytes",
            metric="understudy_store_live_bytes",
        ),
    ] = None
    amplification: Annotated[
        float | None,
        figure("Ratio of stored to live bytes; null if unknown.", metric="understudy_store_amplification_ratio"),
    ] = None
    quarantined: Annotated[
        Natural | None, figure("Entries of the quarantine; null in a follower.", metric="understudy_quarantine_entries")
    ] = None
    waiting_for_other_node: Annotated[
        Natural,
        figure(
            "Damaged messages that wait for the copy of the other node.",
            "messages",
            metric="understudy_messages_waiting_for_other_node",
        ),
    ] = 0
    repaired: Annotated[
        Natural,
        figure(
            "Files and records replaced by those of the other node since the activation.",
            total="understudy_store_repaired",
        ),
    ] = 0
    set_aside: Annotated[
        Natural,
        figure("Messages and records quarantined since the activation.", total="understudy_messages_quarantined"),
    ] = 0
    kept_files: Annotated[
        Natural | None,
        figure(
            "Files of removed segments that are kept for later ones (journal-pool-files); null in a follower.",
            metric="understudy_store_kept_files",
        ),
    ] = None
    kept_bytes: Annotated[
        Natural | None,
        figure("Bytes of these files; null in a follower.", "bytes", metric="understudy_store_kept_bytes"),
    ] = None
    disk_free_bytes: Annotated[
        Natural | None,
        figure(
            "Free bytes of the file system of the log, without those reserved for root; null: not known yet.",
            "bytes",
            metric="understudy_disk_free_bytes",
        ),
    ] = None
    disk_size_bytes: Annotated[
        Natural | None,
        figure("Used and free bytes of that file system.", "bytes", metric="understudy_disk_size_bytes"),
    ] = None


class Scrub(Item, frozen=True):
    """The comparison of the files of the store with their checksums."""

    running: Annotated[bool, figure("1 while the files of the store are compared.", metric="understudy_scrub_running")]
    pass_bytes: Annotated[
        Natural, figure("Bytes read in this pass, or in the last one.", "bytes", metric="understudy_scrub_pass_bytes")
    ]
    unverified: Annotated[
        Natural,
        figure(
            "Bodies without a checksum in this pass: no record of the log names them.",
            metric="understudy_scrub_unverified_bodies",
        ),
    ]
    passes: Annotated[Natural, figure("Complete passes since the node began to serve or to be in sync.")]
    age_ms: Annotated[
        Natural | None,
        figure(
            "Time since the end of the last complete pass; null: there was none.",
            "ms",
            metric="understudy_scrub_age_seconds",
        ),
    ]
    damaged: Annotated[
        Natural,
        figure(
            "Files that did not fit their checksum when they were compared.", total="understudy_scrub_damaged_files"
        ),
    ]
    repaired: Annotated[Natural, figure("Of these, files that fit now.", total="understudy_scrub_repaired_files")]


class Position(Item, frozen=True):
    """A record of the log."""

    epoch: Annotated[Natural, figure("Epoch of the record; 0: its segment is not part of the log any more.")]
    sequence: Annotated[Natural, figure("Sequence of the record; 0: before the first one.")]


class Reader(Item, frozen=True):
    """A named reader of the log."""

    name: Annotated[str, figure("Name of the reader.")]
    epoch: Annotated[Natural, figure("Epoch of the last record that the reader has committed.")]
    sequence: Annotated[Natural, figure("Sequence of this record.")]
    max_bytes: Annotated[Natural, figure("Bytes of the log that may be held for the reader.", "bytes")]
    held_bytes: Annotated[
        Natural,
        figure(
            "Bytes of the log that may not be removed because of the reader.",
            "bytes",
            metric="understudy_reader_held_bytes",
        ),
    ]
    registered_ms: Annotated[Natural, figure("Time of the registration.", "ms since 1970")]
    committed_ms: Annotated[Natural, figure("Time of the last commit.", "ms since 1970")]
    dropped: Annotated[
        str | None, figure("Why the reader holds nothing any more; null: it holds the log from its position on.")
    ]


class Readers(Item, frozen=True):
    """The named readers of the log; without values on a node that is not active."""

    node_id: Annotated[str | None, figure("Node id of the store.")] = None
    confirmed: Annotated[
        Position | None,
        figure("Position up to which the log may be read without the risk that a failover takes records back."),
    ] = None
    earliest: Annotated[Position | None, figure("Position from which on no record is missing.")] = None
    readers: Annotated[list[Reader], figure("The readers.")] = field(default_factory=list)
    dropped_count: Annotated[
        Natural,
        figure(
            "Readers dropped since the activation because they held more than their limit.",
            total="understudy_readers_dropped",
        ),
    ] = 0


class Quarantine(Item, frozen=True):
    """Damaged messages and records of the store, the oldest first."""

    count: Annotated[Natural, figure("Entries of the quarantine.")]
    entries: Annotated[list[dict[str, Any]], figure("At most 1,000 entries, the oldest first.")]


class Readiness(Item, frozen=True):
    """Whether a node is ready."""

    ready: Annotated[bool, figure("Active, passive and caught up, or in line.", metric="understudy_ready")]
    state: Annotated[NodeState, figure("State of the node.")]
    reason: Annotated[str | None, figure("Why the node is not ready, or why it is although it follows no log.")] = None
    protected: Annotated[bool, figure("Whether another node may take over, or this passive node may.")] = False
    protection: Annotated[str, figure("The node that takes over, the loss then, and the action to take.")] = ""
    overrides: Annotated[Natural, figure("Changes of the management CLI that override broker.xml.")] = 0
    pending_count: Annotated[
        Natural, figure("Changed elements of the configuration that the node uses after a restart or a reload.")
    ] = 0


class Node(Item, frozen=True, kw_only=True):
    """A node in any state."""

    name: Annotated[str, figure("Element name of broker.xml.")]
    version: Annotated[str, figure("Version of Understudy.")]
    kernel: Annotated[Kernel, figure("Implementation of the hot path that the process uses.")]
    node_id: Annotated[str | None, figure("Node id; null until the store has been opened.")]
    pid: Annotated[Natural, figure("Process id.")]
    uptime_ms: Annotated[Natural, figure("Time since the process started.", "ms", metric="understudy_uptime_seconds")]
    epoch: Annotated[
        Natural | None,
        figure("Epoch of the store, incremented at every activation.", metric="understudy_epoch"),
    ]
    ha: Annotated[HighAvailability, figure("Part of the node in its pair.")]
    protection: Annotated[Protection, figure("The node that takes over from this one, and the loss then.")] = _UNKNOWN
    promotion: Annotated[Promotion | None, figure("Newest promotion of the data of this node.")] = None
    earlier_data: Annotated[EarlierData | None, figure("Earlier data of this node that was moved away.")] = None
    peer: Annotated[Peer | None, figure("The other server of the pair; null if unknown.")] = None
    activation: Annotated[
        Activation | None, figure("Steps of the activation; null while there is nothing to activate or undo.")
    ] = None
    following: Annotated[
        Following | None, figure("Progress of following; null unless the node is passive and follows.")
    ] = None
    acceptors: Annotated[list[Acceptor], figure("The configured acceptors.")] = field(default_factory=list)
    store: Annotated[Store | None, figure("The store; null until it is opened.")] = None
    scrub: Annotated[
        Scrub | None,
        figure("Comparison of files; null on a node that neither serves nor is a replica in sync."),
    ] = None
    connections: Annotated[Natural, figure("Client connections.", metric="understudy_connections")] = 0
    sessions: Annotated[Natural, figure("Client sessions.", metric="understudy_sessions")] = 0
    confirmations: Annotated[
        Natural, figure("Durable operations confirmed to clients.", total="understudy_confirmations")
    ] = 0
    message_memory_bytes: Annotated[
        Natural | None,
        figure(
            "Bytes of the message bodies in memory; null on a node that is not active.",
            "bytes",
            metric="understudy_message_memory_bytes",
        ),
    ] = None
    message_memory_limit_bytes: Annotated[
        Natural | None,
        figure(
            "Limit of these bytes (global-max-size); null: no limit, or not active.",
            "bytes",
            metric="understudy_message_memory_limit_bytes",
        ),
    ] = None
    dead_letters: Annotated[
        Natural | None,
        figure(
            "Messages in the queues of all dead letter addresses; null on a node that is not active.",
            "messages",
            metric="understudy_dead_letters",
        ),
    ] = None
    login_failures: Annotated[
        dict[str, Natural],
        figure(
            "Failed logins since the activation, by reason.",
            total="understudy_login_failures",
            label="reason",
        ),
    ] = field(default_factory=dict)
    stale_acknowledgements: Annotated[
        Natural,
        figure(
            "Acknowledgements of AMQP 0-9-1 that were ignored, because their deliveries were lost or settled before "
            "the client resumed its channel.",
            total="understudy_amqp091_stale_acknowledgements",
        ),
    ] = 0
    confirmation_times: Annotated[
        Durations | None,
        figure(
            "Times from the hand-over of a batch to the disk until its confirmations, those that wait for a replica "
            "included; null: not measured.",
            "ms",
            metric="understudy_confirmation_latency_seconds",
        ),
    ] = None
    sync_times: Annotated[
        Durations | None,
        figure(
            "Durations of the write of a batch with its sync; null: not measured.",
            "ms",
            metric="understudy_sync_latency_seconds",
        ),
    ] = None
    loop_lag: Annotated[
        Durations | None,
        figure(
            "Delays of a timer of the event loop, twice a second; null: not measured.",
            "ms",
            metric="understudy_loop_lag_seconds",
        ),
    ] = None
    trouble: Annotated[str | None, figure("Why the node is not ready although its state is.")] = None
    in_line: Annotated[
        str | None, figure("Why a passive node that follows no log is ready (ha.policy.Policy.in_line).")
    ] = None
    overrides: Annotated[
        Natural,
        figure("Changes of the management CLI that override broker.xml.", metric="understudy_configuration_overrides"),
    ] = 0
    pending: Annotated[
        list[str], figure("Changed elements of the configuration that the node uses after a restart or a reload.")
    ] = field(default_factory=list)
    pending_count: Annotated[
        Natural, figure("Number of these elements.", metric="understudy_configuration_changes_pending")
    ] = 0


class Server(Item, frozen=True):
    """One server that the broker.xml of the process names (ADR 0075)."""

    name: Annotated[str, figure("Name of the server.")]
    state: Annotated[NodeState, figure("State of the server.")]
    http_url: Annotated[str | None, figure("URL of its management; null: it has none.")]


def readiness(node: Node, *, protected: bool = False) -> Readiness:
    """Ready means active, passive and caught up with the log it follows, or in line (docs/operate/management-api.md).

    A backup is in line while another one holds the backup lock of the shared store, or is the replica of the active
    node: only that one follows the log, so there is nothing that it could do to become ready.

    Args:
        protected: Whether a node that is not protected is not ready.
    """
    ready, reason = _ready(node)
    found = node.protection
    if ready and protected and not found.protected:
        ready, reason = False, found.sentence
    return Readiness(ready, node.ha.state, reason, found.protected, found.sentence, node.overrides, node.pending_count)


def _ready(node: Node) -> tuple[bool, str | None]:
    """Whether the node is ready, and the reason."""
    state = node.ha.state
    if state not in ("active", "passive"):
        return False, f"the node is {state}"
    if node.trouble is not None:
        return False, node.trouble
    if state == "active":
        return True, None
    if node.following is None:
        return node.in_line is not None, node.in_line or "passive and not following"
    if not node.following.caught_up:
        return False, f"passive with a lag of {node.following.lag_bytes} bytes"
    return True, None
