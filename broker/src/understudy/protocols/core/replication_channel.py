"""Channel 2 of a connection: the replica of this node, after it has proved the cluster credentials (ADR 0057).

Not here: what a replica gets (``replication.active_link``), and the dialling side (``replication.replica_link``).
"""

from __future__ import annotations

from typing import Final

from understudy.errors import ClusterSecurityError, RemoteProtocolError
from understudy.protocols.core.link import CoreLink
from understudy.protocols.core.moved_stores import answer_for
from understudy.wire.core import packets
from understudy.wire.core.packets_replication import REPLICATION_CHANNEL, ReplicaProblem

#: First packet on the channel, once per connection.
_FIRST: Final = packets.ReplicaRegistration


class ReplicationChannel:
    """The replication channel of one connection. Implements ``cluster.membership.replicas.ReplicaChannel``."""

    def __init__(self, owner: CoreLink) -> None:
        self._owner = owner
        self.registered = False
        """Whether a backup has registered: the connection outlives the sessions of a node that stops."""

    def receive(self, packet: packets.Packet, *, authorized: bool) -> None:
        """Pass a packet on.

        Args:
            authorized: Whether it has proved the cluster credentials.

        Raises:
            ClusterSecurityError: it has not.
            RemoteProtocolError: the packet is out of order.
        """
        replicas = self._owner.services.cluster.replicas
        if not authorized:
            raise ClusterSecurityError(f"{self.peer}: {type(packet).__name__} before the credentials were proved")
        if self._answer_of_moved(packet):
            return
        if replicas is None:
            self.send(packets.ReplicaAnswer(ReplicaProblem.NOT_CONFIGURED, "this node is not configured to replicate"))
        elif isinstance(packet, _FIRST):
            if self.registered:
                raise RemoteProtocolError(f"{self.peer} registered twice")
            self.registered = True
            replicas.register(packet, self)
        elif self.registered:
            replicas.received(self, packet)
        else:
            raise RemoteProtocolError(f"{self.peer}: {type(packet).__name__} before a registration")

    def _answer_of_moved(self, packet: packets.Packet) -> bool:
        """Whether the packet was answered: it is the registration of a node whose messages have moved here."""
        if not isinstance(packet, _FIRST) or packet.node_id in (None, self._owner.services.shared.node_id):
            return False
        answer = answer_for(self._owner.services.shared.sessions.post_office.store, packet.node_id)
        if answer is not None:
            self.send(answer)
        return answer is not None

    def connection_lost(self, reason: str) -> None:
        """Called when the socket was closed."""
        replicas = self._owner.services.cluster.replicas
        if self.registered and replicas is not None:
            replicas.connection_lost(self, reason)

    # --- ReplicaChannel --------------------------------------------------------------------------------

    @property
    def peer(self) -> str:
        return self._owner.connection.peer

    def silent_ms(self) -> int:
        return self._owner.silent_ms()

    def send(self, packet: packets.Packet) -> None:
        self._owner.send(packet, REPLICATION_CHANNEL)

    def flush(self) -> None:
        self._owner.connection.flush()

    def close(self) -> None:
        self._owner.connection.close()
