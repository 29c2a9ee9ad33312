"""Packets between brokers on channel 3, and topology updates for clients and brokers (artemis-core s. 8.1, 9.1).

Seven types are our own, for connections between two Understudy nodes. ``ClusterConnect`` sends the
cluster password to any server that accepts the connection. Instead, the dialling node begins with
``ClusterHello``: the cluster user, a fresh nonce, and the end that it means to reach. The other node answers
``ClusterNonce``, its own fresh nonce, from which nothing can be learned. The dialling node proves that it knows the
password (``ClusterProof``), and then the other one (``ClusterAccept``); each proof covers everything that was said
before. After its proof the bytes of each side are sealed (``wire.sealed``) unless TLS makes that unnecessary.
``cluster.membership.handshake`` defines the proofs. Their bodies::

    -100  ClusterHello      str user, i32 n, n bytes nonce, i32 n, n bytes instance, bool verified,
                            str place, str address, str server, str node id
    -104  ClusterNonce      i32 n, n bytes nonce, bool sealed
    -102  ClusterProof      i32 n, n bytes proof
    -105  ClusterAccept     i32 n, n bytes proof

Releases before 0.2 end ``ClusterHello`` with the nonce, and answer it with ``ClusterChallenge``, which has a proof of
its own kind. Both are known so that the log can say which release is too old::

    -101  ClusterChallenge  i32 n, n bytes nonce, i32 m, m bytes proof

Another one follows them when a node is scaled down to another Understudy node::

    -103  DuplicateIds      str address, i32 count, count times: i32 n, n bytes id

A replica that took over and was scaled down then leaves a record (ADR 0126)::

    -106  StoreMoved        str node id, i64 activation sequence, i64 sequence of the copy, str place,
                            i64 epoch, i64 sequence of the log, i64 common sequence,
                            i32 n, n bytes last batch

Artemis uses the types 10 to 127 and -1 to -22, so -100 and below are free; brokers of Artemis never
receive them, because a node that is configured to connect to one uses ``ClusterConnect``.

Type -16 (federation downstream connect) is not documented and therefore not supported.
"""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum
from typing import ClassVar, Final

from understudy.dataclass import dataclass
from understudy.errors import LocalProtocolError, RemoteProtocolError
from understudy.limits import CLIENT_ENDPOINTS_MAX, NODE_ID_CHARACTERS_MAX
from understudy.wire.buffer import Reader, Writer
from understudy.wire.core.layout import (
    I32,
    I64,
    Connector,
    ConnectorOrNull,
    Flag,
    Name,
    NameOrNull,
    OptionalSecret,
    Packet,
    Secret,
    SizedBytes,
    SizedTexts,
    Text,
    TextOrNull,
    layout_of,
)

#: Handler names of the vote on a primary's failure, from 136 on and before.
PRIMARY_FAILOVER_VOTE: Final = "PrimaryFailoverQuorumVote"
#: Handler of the news that an active node of a replicated pair sends to voters: no vote, and not in Artemis. Nodes that
#: do not know a handler ignore it.
PAIR_STATE: Final = "UnderstudyPairState"
#: Handler of the statement of a backup before it announces itself.
STORE_FORMAT: Final = "UnderstudyStoreFormat"
#: Handler of the statement of a name: the dialling node sends it first, and a node that knows it answers with its own.
NODE_NAME: Final = "UnderstudyNodeName"
#: Handler of the statement where clients of other protocols reach a node; answered as ``NODE_NAME``.
CLIENT_ENDPOINTS: Final = "UnderstudyClientEndpoints"
#: Handler of the messages by which a session of AMQP 0-9-1 moves to another node (ADR 0199).
SESSION_MOVE: Final = "UnderstudySessionMove"
LIVE_FAILOVER_VOTE: Final = "LiveFailoverQuorumVote"
#: Handler of the question which nodes can host a backup (artemis-ha s. 5).
BACKUP_VOTE: Final = "RequestBackupQuorumVote"


class _TopologyPacket(Packet):
    """A topology packet whose fields in ``MEMBER_FIELDS`` are present only if the node is up."""

    __slots__ = ()

    MEMBER_FIELDS: ClassVar[frozenset[str]] = frozenset(("primary", "backup", "last"))

    def write_body(self, writer: Writer, version: int) -> None:
        left_node = getattr(self, "exit")  # noqa: B009  # declared by the subclasses
        for entry in layout_of(type(self)):
            if not (left_node and entry.name in self.MEMBER_FIELDS):
                entry.encoding.write(writer, getattr(self, entry.name))

    @classmethod
    def read_body(cls, reader: Reader, version: int) -> _TopologyPacket:
        values: dict[str, object] = {}
        for entry in layout_of(cls):
            if not (values.get("exit") and entry.name in cls.MEMBER_FIELDS):
                values[entry.name] = entry.encoding.read(reader)
        return cls(**values)


@dataclass(slots=True)
class ClusterTopology(_TopologyPacket):
    """A node started or stopped, for peers before 122."""

    TYPE: ClassVar[int] = 110
    exit: Flag
    """Whether the node has stopped; if so the connectors are not sent."""
    node_id: Text
    primary: ConnectorOrNull = None
    backup: ConnectorOrNull = None
    last: Flag = False
    """Whether this member is the last one in the answer to a subscription."""


@dataclass(slots=True)
class ClusterTopologyV2(_TopologyPacket):
    """A member of the cluster for channel versions 122 to 124, and a stopped member in all later versions."""

    TYPE: ClassVar[int] = 114
    exit: Flag
    node_id: Text
    unique_event_id: I64 = 0
    """Wall-clock milliseconds; order of the events of a node."""
    primary: ConnectorOrNull = None
    backup: ConnectorOrNull = None
    last: Flag = False
    backup_group_name: TextOrNull = None


@dataclass(slots=True)
class ClusterTopologyV3(ClusterTopologyV2):
    """A member of the cluster for channel versions 125 to 130."""

    TYPE: ClassVar[int] = 122
    scale_down_group_name: TextOrNull = None


@dataclass(slots=True)
class ClusterTopologyV4(ClusterTopologyV3):
    """A member of the cluster for channel versions from 131 on."""

    TYPE: ClassVar[int] = -17
    server_version: I32 = 136


@dataclass(slots=True)
class ClusterConnect(Packet):
    """First packet on the cluster channel of an Artemis broker."""

    TYPE: ClassVar[int] = 125
    cluster_user: Text
    cluster_password: Text = field(repr=False)


@dataclass(slots=True)
class ClusterConnectReply(Packet):
    TYPE: ClassVar[int] = 126
    authorized: Flag


@dataclass(slots=True)
class NodeAnnounce(Packet):
    """A broker announces its node id and connectors."""

    TYPE: ClassVar[int] = 111
    node_id: Text
    """Id of the store; a backup sends that of its primary."""
    backup_group_name: TextOrNull = None
    backup: Flag = False
    current_event_id: I64 = 0
    connector: ConnectorOrNull = None
    """Connector of the announcing node."""
    backup_connector: ConnectorOrNull = None
    scale_down_group_name: TextOrNull = None


@dataclass(slots=True)
class BackupRegistration(Packet):
    """A replication backup requests replication."""

    TYPE: ClassVar[int] = 115
    user: Text
    password: Text = field(repr=False)
    wants_failback: Flag
    connector: Connector


@dataclass(slots=True)
class BackupRegistrationFailed(Packet):
    TYPE: ClassVar[int] = 116
    problem: I32
    """0 exception, 1 authentication, 2 already replicating."""


@dataclass(slots=True)
class BackupRequest(Packet):
    """Asks another node to start a colocated backup."""

    TYPE: ClassVar[int] = 127
    backup_size: I32
    journal_directory: TextOrNull = None
    bindings_directory: TextOrNull = None
    large_messages_directory: TextOrNull = None
    paging_directory: TextOrNull = None
    node_id: NameOrNull = None


@dataclass(slots=True)
class BackupResponse(Packet):
    TYPE: ClassVar[int] = -1
    started: Flag


@dataclass(frozen=True, slots=True)
class FailoverVote:
    """Vote on whether a node is still running; as a reply, the decision."""

    agreed: bool
    """Request: the requesting node wants to stay active. Reply: the decision."""
    node_id: str
    connector: str | None = None


@dataclass(frozen=True, slots=True)
class PairState:
    """State of an active node of a replicated pair, for voters (ADR 0067)."""

    node_id: str
    sequence: int
    """Activation sequence of the data of the asked node."""
    in_sync: bool
    """Whether the replica of the asked node is in sync and may take over."""


@dataclass(frozen=True, slots=True)
class StoreFormat:
    """The format version that the backup reads which announces itself next on the connection (ADR 0088)."""

    version: int
    """Newest format version of the log."""


@dataclass(frozen=True, slots=True)
class NodeName:
    """The name of the sending node, for log lines and management (ADR 0173)."""

    name: str
    place: str
    """``host:port`` of its connector; empty in the answer to the node that dialled this connector."""


@dataclass(frozen=True, slots=True)
class ClientEndpoint:
    """A place at which clients of one protocol reach a node."""

    protocol: str
    """Name as in the acceptor parameter ``protocols``."""
    tls: bool
    host: str
    """Host name or address; an IPv6 address without brackets."""
    port: int


@dataclass(frozen=True, slots=True)
class ClientEndpoints:
    """The places at which clients of protocols other than CORE reach the sending node (ADR 0194)."""

    node_id: str
    """Node id of its pair; empty if a passive node does not know it yet."""
    active: bool
    """Whether the node is active; its clients are served only then."""
    endpoints: tuple[ClientEndpoint, ...]


class MoveStep(IntEnum):
    """Steps by which a session of AMQP 0-9-1 moves from one node, its home, to another (ADR 0199)."""

    ASK = 1
    """The other node asks whether the home has the session of a user."""
    ABSENT = 2
    """The home has no such session of that user."""
    BUSY = 3
    """The home has it and cannot give it now."""
    STATE = 4
    """The home gives its state, and has recorded to which node."""
    STORED = 5
    """The state is durable at the other node, which does not use it yet."""
    ENDED = 6
    """The session has ended at the home: the other node has it."""
    KEPT = 7
    """The home has not given the session with this token."""
    INQUIRE = 8
    """The home asks what became of the state that it gave."""
    DROPPED = 9
    """The other node has not stored the state, and will not."""


@dataclass(frozen=True, slots=True)
class SessionMove:
    """A message about a session of AMQP 0-9-1 that moves (ADR 0199)."""

    step: int
    """A ``MoveStep``."""
    token: str
    """Random; distinguishes the question to one home from all others."""
    node_id: str
    """Node id of the sender."""
    uuid: str
    """UUID of the session. It is a secret: no log line or error has it."""
    data: bytes = b""
    """JSON; its fields depend on the step."""


@dataclass(frozen=True, slots=True)
class BackupVote:
    """Whether a node can host a backup (artemis-ha s. 5)."""

    backups: int = -1
    """Number of backups that the answering node hosts; -1 in a request."""
    node_id: str | None = None
    """Node id of the answering node. In a request, that of the asking one; Artemis names none there."""
    available: bool = False
    """Whether the answering node can host one more, or hosts one of the asking node."""


@dataclass(slots=True)
class QuorumVote(Packet):
    """Request for the vote of another node."""

    TYPE: ClassVar[int] = -2
    handler: str
    vote: FailoverVote | PairState | StoreFormat | NodeName | ClientEndpoints | SessionMove | BackupVote | bytes
    """Bytes for other handlers, whose votes are not documented."""

    def write_body(self, writer: Writer, version: int) -> None:
        """Append the body; the vote in the form of its handler."""
        writer.simple_string(self.handler)
        if _KINDS.get(self.handler, bytes) is not type(self.vote):
            raise LocalProtocolError(f"{type(self).__name__}.vote: not a vote of handler {self.handler!r}")
        if isinstance(self.vote, bytes):
            writer.raw(self.vote)
            return
        if isinstance(self.vote, PairState):
            writer.string(self.vote.node_id)
            writer.i64(self.vote.sequence)
            writer.boolean(self.vote.in_sync)
            return
        if isinstance(self.vote, StoreFormat):
            writer.i32(self.vote.version)
            return
        if isinstance(self.vote, NodeName):
            writer.string(self.vote.name)
            writer.string(self.vote.place)
            return
        if isinstance(self.vote, ClientEndpoints):
            _write_endpoints(writer, self.vote)
            return
        if isinstance(self.vote, SessionMove):
            _write_move(writer, self.vote)
            return
        if isinstance(self.vote, BackupVote):
            writer.i32(self.vote.backups)
            writer.raw(b"\x00" if self.vote.node_id is None else b"\x01")
            if self.vote.node_id is not None:
                writer.string(self.vote.node_id)
            writer.boolean(self.vote.available)
            return
        writer.boolean(self.vote.agreed)
        writer.string(self.vote.node_id)
        writer.raw(b"\x00" if self.vote.connector is None else b"\x01")
        if self.vote.connector is not None:
            writer.string(self.vote.connector)

    @classmethod
    def read_body(cls, reader: Reader, version: int) -> QuorumVote:
        """Decode the body; the vote by the name of its handler."""
        handler = reader.simple_string()
        kind = _KINDS.get(handler, bytes)
        if kind is bytes:
            return cls(handler, reader.rest())
        if kind is PairState:
            return cls(handler, PairState(reader.string(), reader.i64(), reader.boolean()))
        if kind is StoreFormat:
            return cls(handler, StoreFormat(reader.i32()))
        if kind is NodeName:
            return cls(handler, NodeName(reader.string(), reader.string()))
        if kind is ClientEndpoints:
            return cls(handler, _read_endpoints(reader))
        if kind is SessionMove:
            return cls(handler, _read_move(reader))
        if kind is BackupVote:
            return cls(handler, BackupVote(reader.i32(), reader.nullable(reader.string), reader.boolean()))
        return cls(handler, FailoverVote(reader.boolean(), reader.string(), reader.nullable(reader.string)))


def _write_endpoints(writer: Writer, stated: ClientEndpoints) -> None:
    writer.string(stated.node_id)
    writer.boolean(stated.active)
    writer.i32(len(stated.endpoints))
    for each in stated.endpoints:
        writer.string(each.protocol)
        writer.boolean(each.tls)
        writer.string(each.host)
        writer.i32(each.port)


def _read_endpoints(reader: Reader) -> ClientEndpoints:
    """Raises RemoteProtocolError: more endpoints than a node may have, or one that cannot be dialled."""
    node_id, active, count = reader.string(), reader.boolean(), reader.i32()
    if not 0 <= count <= CLIENT_ENDPOINTS_MAX:
        raise RemoteProtocolError(f"{count} client endpoints, limit {CLIENT_ENDPOINTS_MAX}")
    endpoints = []
    for _ in range(count):
        endpoint = ClientEndpoint(reader.string(), reader.boolean(), reader.string(), reader.i32())
        if not endpoint.host.isprintable() or not 0 < len(endpoint.host) <= 255 or not 0 < endpoint.port < 65536:
            raise RemoteProtocolError(f"client endpoint at {endpoint.host[:255]!r}, port {endpoint.port}")
        endpoints.append(endpoint)
    return ClientEndpoints(node_id, active, tuple(endpoints))


def _write_move(writer: Writer, move: SessionMove) -> None:
    writer.i32(move.step)
    for each in (move.token, move.node_id, move.uuid):
        writer.string(each)
    writer.i32(len(move.data))
    writer.raw(move.data)


def _read_move(reader: Reader) -> SessionMove:
    """Raises RemoteProtocolError: texts that are too long, or data that has another length than it says."""
    step, token, node_id, uuid, length = reader.i32(), reader.string(), reader.string(), reader.string(), reader.i32()
    data = reader.rest()
    if len(data) != length or max(len(token), len(node_id), len(uuid)) > NODE_ID_CHARACTERS_MAX:
        raise RemoteProtocolError(f"a session that moves: {len(data)} bytes of data in place of {length}")
    return SessionMove(step, token, node_id, uuid, data)


_KINDS: Final[dict[str, type]] = {
    PRIMARY_FAILOVER_VOTE: FailoverVote,
    LIVE_FAILOVER_VOTE: FailoverVote,
    PAIR_STATE: PairState,
    STORE_FORMAT: StoreFormat,
    NODE_NAME: NodeName,
    CLIENT_ENDPOINTS: ClientEndpoints,
    SESSION_MOVE: SessionMove,
    BACKUP_VOTE: BackupVote,
}


@dataclass(slots=True)
class QuorumVoteReply(QuorumVote):
    """Vote of a node that was asked with ``QuorumVote``."""

    TYPE: ClassVar[int] = -3


@dataclass(slots=True)
class ScaleDownAnnouncement(Packet):
    """A node's messages moved to another."""

    TYPE: ClassVar[int] = -6
    target_node_id: Name
    scaled_down_node_id: Name


@dataclass(slots=True)
class ClusterHello(Packet):
    """Own packet: begins the handshake with another Understudy node."""

    TYPE: ClassVar[int] = -100
    GROUPS: ClassVar[tuple[str, ...]] = ("instance",)
    user: Text
    nonce: Secret
    """Random bytes made for this connection."""
    instance: OptionalSecret = None
    """Random bytes of the dialling node since its start, by which it knows its own packet; None from releases before
    0.2, which end the packet here."""
    verified: Flag = False
    """Whether TLS has verified that the other side has the dialled name."""
    place: Text = ""
    """``host:port`` of the connector that the dialling node means to reach."""
    address: Text = ""
    """``ip:port`` to which the socket of the dialling node is connected."""
    server: Text = ""
    """Name of the server that it means, if several servers share a port."""
    node_id: Text = ""
    """Node id of the node that the dialling node wants to reach; empty: any node."""


@dataclass(slots=True)
class ClusterChallenge(Packet):
    """Own packet of releases before 0.2: their answer to ``ClusterHello``."""

    TYPE: ClassVar[int] = -101
    nonce: Secret
    proof: Secret


@dataclass(slots=True)
class ClusterNonce(Packet):
    """Own packet: the answer to ``ClusterHello``."""

    TYPE: ClassVar[int] = -104
    nonce: Secret
    """Fresh random bytes of the accepting node."""
    sealed: Flag
    """Whether the bytes after the proofs are sealed."""


@dataclass(slots=True)
class ClusterProof(Packet):
    """Own packet: the proof of the dialling node, the last one before its bytes are sealed."""

    TYPE: ClassVar[int] = -102
    proof: Secret


@dataclass(slots=True)
class ClusterAccept(Packet):
    """Own packet: the proof of the accepting node, the last one before its bytes are sealed."""

    TYPE: ClassVar[int] = -105
    proof: Secret


@dataclass(slots=True)
class DuplicateIds(Packet):
    """Own packet: duplicate ids that an address of a node that is scaled down has seen; answered by NullResponse.

    Artemis sends them as text in a management request, in which ids that are no UTF-8 change.
    """

    TYPE: ClassVar[int] = -103
    address: Name
    ids: SizedTexts
    """Duplicate ids, the oldest first."""


@dataclass(slots=True)
class StoreMoved(Packet):
    """Own packet: a replica has moved all messages of its store here; answered by NullResponse when the record of it is
    stored, or by ExceptionResponse.
    """

    TYPE: ClassVar[int] = -106
    node_id: Name
    """Node id of the store."""
    sequence: I64
    """Activation sequence of the data that has moved."""
    copied_at: I64
    """Activation sequence of the active node of which it was the copy; -1: unknown."""
    place: Text
    """``host:port`` of the connector of the replica."""
    epoch: I64
    """Epoch of the end of its log, like the sequence that follows."""
    log_sequence: I64
    common: I64
    """Sequence up to which it is the log of the node that was active before; 0: unknown."""
    last_batch: SizedBytes
    """The batch that ends there (``store.replication.last_batch``); empty: unknown."""


def topology_packet(newest: ClusterTopologyV4, version: int) -> Packet:
    """The newest form of a topology packet that a peer of ``version`` knows (artemis-core s. 8.1)."""
    if version < 122:
        return ClusterTopology(newest.exit, newest.node_id, newest.primary, newest.backup, newest.last)
    common = (
        newest.exit, newest.node_id, newest.unique_event_id, newest.primary, newest.backup, newest.last,
        newest.backup_group_name,
    )  # fmt: skip
    if newest.exit or version < 125:
        return ClusterTopologyV2(*common)
    if version < 131:
        return ClusterTopologyV3(*common, newest.scale_down_group_name)
    return newest
