"""A connection to a node that waits: its last replica registers; all others are closed at once (ADR 0064).

A client goes on to its next connector at once: its first packet closes the connection. The stock client must get an
answer to CHECK_FOR_FAILOVER before that: without one it waits for its ``callTimeout``, also if the connection is closed
(2.44, ``ActiveMQClientProtocolManager.checkForFailover``). Limits of frames and time are those before a login.
Not here: what the registration proves (``ha.replication.standing``).
"""

from __future__ import annotations

from collections.abc import Callable

from understudy.cluster.membership.credentials import ClusterCredentials
from understudy.cluster.membership.handshake import DiallerProof
from understudy.errors import RemoteProtocolError
from understudy.limits import FRAME_BYTES_BEFORE_LOGIN_MAX, LOGIN_TIMEOUT_MS
from understudy.ports import Clock, SealableConnection
from understudy.protocols.core.cluster_channel import CLUSTER_CHANNEL, REPLICATION_CHANNEL
from understudy.protocols.core.connection import SESSION_SETUP_CHANNEL
from understudy.wire.core import packets
from understudy.wire.core.codec import FrameDecoder, encode
from understudy.wire.core.packets_replication import ReplicaProblem


class WaitingConnection:
    """Connection at an acceptor that waits for a replica. Implements ``ConnectionHandler``."""

    held_back = False
    held_up = False
    proved = False
    outlives_sessions = False

    def __init__(
        self,
        connection: SealableConnection,
        credentials: ClusterCredentials,
        heard: Callable[[packets.ReplicaRegistration], tuple[ReplicaProblem, str]],
        clock: Clock,
    ) -> None:
        """Args:
        heard: Takes a registration; returns why it is refused at the moment.
        """
        self._connection = connection
        self._heard = heard
        self._clock = clock
        self._until_ms = clock.monotonic_ms() + LOGIN_TIMEOUT_MS
        self._decoder = FrameDecoder(role="server", limit_bytes=FRAME_BYTES_BEFORE_LOGIN_MAX)
        self._proof = DiallerProof(
            credentials, connection, self._decoder, lambda packet: self._send(packet, CLUSTER_CHANNEL)
        )
        self._closed = False

    def receive_data(self, data: bytes | memoryview) -> bool:
        if not self._closed:
            for channel_id, packet, _ in self._decoder.receive_data(data):
                self._receive(packet, channel_id)
                if self._closed:
                    return False
        return bool(self._decoder.backlog) and not self._closed

    def _receive(self, packet: packets.Packet, channel_id: int) -> None:
        if isinstance(packet, packets.Ping):
            # nodes of this version send the packet first; it needs no answer
            return
        if channel_id == CLUSTER_CHANNEL and not self._proof.authorized:
            self._proof.receive(packet, lambda: None)
        elif isinstance(packet, packets.ReplicaRegistration) and self._proof.proved:
            self._send(packets.ReplicaAnswer(*self._heard(packet)), REPLICATION_CHANNEL)
            self.disconnect()
        else:
            if isinstance(packet, packets.CheckForFailover):
                self._send(packets.CheckForFailoverReply(False), SESSION_SETUP_CHANNEL)
            self.disconnect()

    def _send(self, packet: packets.Packet, channel_id: int) -> None:
        self._connection.send(encode(packet, channel_id))

    def congested(self) -> bool:
        return False

    def resume_deliveries(self) -> None:
        """Do nothing: no delivery waits for the socket."""

    def check(self) -> None:
        if self._clock.monotonic_ms() >= self._until_ms:
            raise RemoteProtocolError(f"no registration within {LOGIN_TIMEOUT_MS} ms")

    def disconnect(self) -> None:
        """Close the connection once the answer is written."""
        self._closed = True
        self._connection.close()

    def prevent_reattachment(self) -> None:
        """Do nothing: the connection has no session."""

    def connection_lost(self, reason: str) -> None:
        self._closed = True
        self._decoder.close()
