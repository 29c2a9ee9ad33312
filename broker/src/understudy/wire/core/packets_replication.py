"""Packets of our own by which a backup gets a copy of the store of the active node, on channel 2 (ADR 0057).

The backup sends ``ReplicaRegistration`` after both sides have proved the cluster credentials on channel 3. Artemis
ships records of its journal, which Understudy neither sends nor reads; an Understudy pair ships operations on files, so
that the copies are equal byte by byte. Bodies::

    -110  ReplicaRegistration  i32 protocol, str name, str? group, b8 wants failback, tc connector
                               [, str? node id [, i64 copied at [, i32 format version
                               [, str? had node, i64 had epoch, i64 had sequence]]]]
    -111  ReplicaAnswer        i32 problem, str text, i32 protocol, str? node id, i64 epoch
    -112  ReplicationCopy      i32 n, n bytes
    -113  ReplicationOperations  i64 index, i8 directory, b8 more, i32 n, n bytes [, b8 report receipt]
    -114  ReplicationProgress  i64 received, i64 durable
    -115  ReplicationStopping  b8 fail over
    -116  ReplicationPromiseRequest  i64 number, i64 activation sequence, i64 duration in ms
    -117  ReplicationPromise   i64 number, b8 given, str reason of a refusal
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar, Final

from understudy.dataclass import dataclass
from understudy.wire.core.layout import (
    I8,
    I32,
    I64,
    Connector,
    Flag,
    Packet,
    SizedBytes,
    Text,
    TextOrNull,
)

REPLICATION_CHANNEL: Final = 2
#: Newest and oldest version of the packets and of their content that this node speaks. A replica offers its newest, the
#: answer names the newest that both speak.
REPLICATION_PROTOCOL: Final = 4
REPLICATION_PROTOCOL_MIN: Final = 1
#: First version that has the message ``CommonFiles`` in the copy.
COMMON_FILES_PROTOCOL: Final = 2
#: First version in which a copy is checked, and in which each node may ask the other one for bytes of a file.
CHECKED_FILES_PROTOCOL: Final = 3
#: First version that has the promise of the replica (ADR 0116).
PROMISE_PROTOCOL: Final = 3
#: First version that has the message ``EpochHistory`` in the copy.
EPOCH_HISTORY_PROTOCOL: Final = 4
#: Bytes of operations in one packet; longer ones are sent in several.
OPERATIONS_BYTES_MAX: Final = 1024 * 1024


class ReplicaProblem(IntEnum):
    """Answers to a registration."""

    NONE = 0
    """The registration is accepted."""
    NOT_ACTIVE = 1
    """The node does not serve, or is about to stop."""
    ALREADY_REPLICATING = 2
    """The node has a replica: try another node, or later (artemis-ha s. 3.10). 3.10)."""
    OTHER_GROUP = 3
    """The elements ``group-name`` of the two nodes differ."""
    PROTOCOL = 4
    """The nodes have no version of the protocol in common."""
    NOT_CONFIGURED = 5
    """The node is no primary or backup of a replicated pair."""
    OTHER_NODE = 6
    """The node has another node id than the data of the backup."""
    ACTIVATES = 7
    """The node was the last active one, which the registration has proved: it activates soon (ADR 0064)."""
    OTHER_PAIR = 8
    """The backup is configured as primary, and so is the node (ADR 0119)."""
    PUT_BACK = 9
    """The node has lost records that it had synced, which the registration has proved: it stops (ADR 0118)."""
    MOVED = 10
    """The node is not the active one of the pair, whose last replica has moved all messages here: the answer has the
    record of it (ADR 0126)."""


@dataclass(slots=True)
class ReplicaRegistration(Packet):
    """A backup requests a copy of the store and everything that follows."""

    TYPE: ClassVar[int] = -110
    GROUPS: ClassVar[tuple[str, ...]] = ("node_id", "copied_at", "format_version", "had_node", "copy_of")
    protocol: I32
    """Newest version that the backup speaks."""
    name: Text
    """Name of the backup, for logs and errors."""
    group: TextOrNull
    """Element ``group-name`` of the backup."""
    wants_failback: Flag
    """Whether the backup is the primary of the pair, and asks to become active when it is in sync."""
    connector: Connector
    """Connector for the topology: clients reach the backup by it once it is active."""
    node_id: TextOrNull = None
    """Node id of the data of the backup, or of the configured primary that it is: it becomes the replica of that node
    only; None: of any node (ADR 0119)."""
    copied_at: I64 = -1
    """Sequence above which a node that waits did not take over; -1: it says nothing (ADR 0064, 0067, 0202)."""
    format_version: I32 = 1
    """Newest format version of the log that the backup reads; earlier versions of Understudy do not say it."""
    had_node: TextOrNull = None
    """Node id of the store whose complete copy the backup has; None: it says nothing. The copy proves that its writer
    had synced everything up to the position that follows (ADR 0118)."""
    had_epoch: I64 = 0
    had_sequence: I64 = 0
    copy_of: TextOrNull = None
    """Node id of the data that ``copied_at`` is about; None, from earlier versions: ``node_id``."""


@dataclass(slots=True)
class ReplicaAnswer(Packet):
    """The answer of the active node to a registration."""

    TYPE: ClassVar[int] = -111
    GROUPS: ClassVar[tuple[str, ...]] = ("moved_sequence", "sequence")
    problem: I32
    """Reason of a refusal, a ``ReplicaProblem``."""
    text: Text
    """Reason of a refusal."""
    protocol: I32 = REPLICATION_PROTOCOL
    """Version of the packets that both sides use after this answer."""
    node_id: TextOrNull = None
    """Node id of the store of the active node."""
    epoch: I64 = 0
    """Epoch of the activation of the answering node."""
    moved_sequence: I64 = -1
    """MOVED: activation sequence of the data that has moved; -1 otherwise. The fields that follow are those of
    ``StoreMoved``."""
    moved_copied_at: I64 = -1
    moved_place: Text = ""
    moved_epoch: I64 = 0
    moved_log_sequence: I64 = 0
    moved_common: I64 = 0
    moved_last_batch: SizedBytes = b""
    sequence: I64 = -1
    """Activation sequence of the answering node; -1: an earlier version does not say it."""


@dataclass(slots=True)
class ReplicationCopy(Packet):
    """One message of the copy of the files (``store.replication.copy_messages``), in either direction; also while the
    replica is in sync, for bytes that one node asks of the other.
    """

    TYPE: ClassVar[int] = -112
    data: SizedBytes


@dataclass(slots=True)
class ReplicationOperations(Packet):
    """Operations of one submission to a log writer, encoded by ``store.replication.operation_codec``."""

    TYPE: ClassVar[int] = -113
    GROUPS: ClassVar[tuple[str, ...]] = ("report_receipt",)
    index: I64
    """Index of the submission; the first after the copy has 1."""
    directory: I8
    """Directory of the operations, a ``store.replication.copy_messages.Directory``."""
    more: Flag
    """The next packet continues the same submission."""
    data: SizedBytes
    report_receipt: Flag = True
    """Whether the backup reports that it has the submission in memory; else it reports only the durable submissions."""


@dataclass(slots=True)
class ReplicationProgress(Packet):
    """Progress of the backup."""

    TYPE: ClassVar[int] = -114
    received: I64
    """Index of the last submission that it has in memory."""
    durable: I64
    """Index of the last submission that it has executed durably."""


@dataclass(slots=True)
class ReplicationStopping(Packet):
    """The active node stops cleanly. Source: STOP_CALLED and FAIL_OVER, artemis-ha s. 3.2."""

    TYPE: ClassVar[int] = -115
    fail_over: Flag
    """False: it begins to stop, and more operations follow. True: nothing follows, the backup is to activate."""


@dataclass(slots=True)
class ReplicationPromiseRequest(Packet):
    """The active node cannot prove its lock in time: it requests that its replica does not take over for a while."""

    TYPE: ClassVar[int] = -116
    number: I64
    """Number of the request; the answer has the same number."""
    sequence: I64
    """Activation sequence of the active node."""
    duration_ms: I64
    """Length of the promise, from its receipt on."""


@dataclass(slots=True)
class ReplicationPromise(Packet):
    """The answer of the replica to a ``ReplicationPromiseRequest``."""

    TYPE: ClassVar[int] = -117
    number: I64
    """Number of the request."""
    given: Flag
    """Whether the replica requests neither the lock nor the permission before the end of the promise."""
    reason: Text
    """Reason of a refusal."""
