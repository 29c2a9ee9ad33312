"""Packets that set up, watch and end connections and sessions (artemis-core s. 4.1), and the two answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum
from typing import ClassVar

from understudy.dataclass import dataclass
from understudy.wire.core.layout import (
    I8,
    I32,
    I64,
    ConnectorOrNull,
    Flag,
    NameOrNull,
    OptionalFlag,
    OptionalI64,
    Packet,
    Text,
    TextOrNull,
)


class DisconnectReason(IntEnum):
    """Reason why a server ends a connection."""

    NONE = -1
    REDIRECT = 0
    REDIRECT_ON_CRITICAL_ERROR = 1
    SCALE_DOWN = 2
    SCALE_DOWN_ON_CRITICAL_ERROR = 3
    SHUT_DOWN = 4
    SHUT_DOWN_ON_CRITICAL_ERROR = 5


class _UncountedPacket(Packet):
    """A packet without a command id (artemis-core s. 7.1)."""

    __slots__ = ()

    @property
    def counts_as_command(self) -> bool:
        return False


@dataclass(slots=True)
class Ping(_UncountedPacket):
    """Sign of life; the server echoes it."""

    TYPE: ClassVar[int] = 10
    connection_ttl_ms: I64
    """Milliseconds of silence after which the connection is dead, -1 for never."""


@dataclass(slots=True)
class Disconnect(_UncountedPacket):
    """The server closes the connection; for peers before 125."""

    TYPE: ClassVar[int] = 11
    node_id: NameOrNull = None


@dataclass(slots=True)
class DisconnectV2(_UncountedPacket):
    """The server closes the connection; for peers of 125 to 130."""

    TYPE: ClassVar[int] = 124
    node_id: NameOrNull = None
    scale_down_node_id: NameOrNull = None


@dataclass(slots=True)
class DisconnectV3(_UncountedPacket):
    """The server closes the connection; for peers from 131 on."""

    TYPE: ClassVar[int] = -19
    node_id: NameOrNull = None
    reason: I8 = DisconnectReason.NONE
    """A ``DisconnectReason``; other values are kept unchanged."""
    target_node_id: NameOrNull = None
    """Node that has the messages after a scale-down."""
    connector: ConnectorOrNull = None
    """Target of a redirect."""


@dataclass(slots=True)
class DisconnectConsumer(Packet):
    """The server closed a consumer because its queue was deleted or a delivery failed."""

    TYPE: ClassVar[int] = 12
    consumer_id: I64


@dataclass(slots=True)
class DisconnectConsumerKill(_UncountedPacket):
    """The connection of a slow consumer will be closed. Current clients ignore it (artemis-core s. 4.1)."""

    TYPE: ClassVar[int] = 13
    node_id: NameOrNull = None


@dataclass(slots=True)
class ExceptionResponse(Packet):
    """Negative response to a request."""

    TYPE: ClassVar[int] = 20
    GROUPS: ClassVar[tuple[str, ...]] = ("correlation_id",)
    SINCE: ClassVar[Mapping[str, int]] = {"correlation_id": 130}
    error_code: I32
    """Error code, a ``codes.ErrorCode``."""
    message: TextOrNull = None
    correlation_id: OptionalI64 = None
    """Id of the request; None if the request has no field for one; then it is not sent."""


@dataclass(slots=True)
class NullResponse(Packet):
    """Positive response to a request."""

    TYPE: ClassVar[int] = 21
    GROUPS: ClassVar[tuple[str, ...]] = ("correlation_id",)
    SINCE: ClassVar[Mapping[str, int]] = {"correlation_id": 130}
    correlation_id: I64 = -1
    """Id of the request, -1 when that has no field for one."""


@dataclass(slots=True)
class PacketsConfirmed(_UncountedPacket):
    """All commands up to an id were received and need not be kept for a reattachment."""

    TYPE: ClassVar[int] = 22
    command_id: I32


@dataclass(slots=True)
class CreateSession(_UncountedPacket):
    """Open a session on a channel of the client's choice."""

    TYPE: ClassVar[int] = 30
    name: Text
    session_channel_id: I64
    version: I32
    user: TextOrNull = None
    password: TextOrNull = field(default=None, repr=False)
    min_large_message_size: I32 = 102_400
    """Size in bytes from which messages are sent as large messages."""
    xa: Flag = False
    auto_commit_sends: Flag = True
    auto_commit_acks: Flag = True
    confirmation_window: I32 = -1
    """Size of the confirmation window in bytes; -1 for none, without reattachment."""
    pre_acknowledge: Flag = False
    default_address: TextOrNull = None


@dataclass(slots=True)
class CreateSessionV2(CreateSession):
    """Request for a session with a client id, for channel versions from 131 on."""

    TYPE: ClassVar[int] = -18
    client_id: TextOrNull = None


@dataclass(slots=True)
class CreateSessionResponse(_UncountedPacket):
    """The session exists. Artemis' packet ends after the version, and its clients read no further (ADR 0058)."""

    TYPE: ClassVar[int] = 31
    GROUPS: ClassVar[tuple[str, ...]] = ("epoch", "takes_settlements")
    server_version: I32
    epoch: OptionalI64 = None
    """Epoch in which the node serves; None if the broker states none."""
    takes_settlements: OptionalFlag = None
    """Whether the node takes ``Settle``; None if the broker states nothing."""


@dataclass(slots=True)
class ReattachSession(_UncountedPacket):
    """Move a session to this connection."""

    TYPE: ClassVar[int] = 32
    name: Text
    last_confirmed_command_id: I32 = -1


@dataclass(slots=True)
class ReattachSessionResponse(_UncountedPacket):
    """Whether the session moved."""

    TYPE: ClassVar[int] = 33
    last_confirmed_command_id: I32 = -1
    reattached: Flag = False


@dataclass(slots=True)
class CheckForFailover(Packet):
    """Asks whether this node has taken over from another."""

    TYPE: ClassVar[int] = -4
    node_id: TextOrNull = None


@dataclass(slots=True)
class CheckForFailoverReply(Packet):
    """Answer of a broker to ``CheckForFailover``."""

    TYPE: ClassVar[int] = -5
    ok: Flag


@dataclass(slots=True)
class SubscribeTopology(Packet):
    """Ask for topology, the form of old peers."""

    TYPE: ClassVar[int] = 112
    cluster_connection: Flag = False


@dataclass(slots=True)
class SubscribeTopologyV2(Packet):
    """Ask for topology; every client does so first."""

    TYPE: ClassVar[int] = 113
    cluster_connection: Flag = False
    client_version: I32 = 136
