"""Channel 3 of a connection: authentication of another node, and its announcement as backup.

Source: artemis-core s. 9.1, artemis-ha s. 2.2. Not here: the dialling side (``cluster.announcer``), and
the credentials (``cluster.credentials``).
"""

from __future__ import annotations

import logging
from typing import Final

from understudy.errors import ClusterSecurityError
from understudy.protocols.core.link import CoreLink
from understudy.wire.core import packets

log = logging.getLogger(__name__)

CLUSTER_CHANNEL: Final = 3


class ClusterChannel:
    """The cluster channel of one connection."""

    def __init__(self, owner: CoreLink) -> None:
        self._owner = owner
        self._dialler_nonce = b""
        self._own_nonce = b""
        self._authorized = False
        self._announced: packets.NodeAnnounce | None = None

    def receive(self, packet: packets.Packet) -> None:
        """Raises ClusterSecurityError for anything out of order or unproven."""
        services, owner = self._owner.services, self._owner
        credentials, peer = services.credentials, owner.connection.peer
        if isinstance(packet, packets.ClusterHello):
            if credentials is None or packet.user != credentials.user:
                owner.send(packets.ClusterConnectReply(False), CLUSTER_CHANNEL)
                raise ClusterSecurityError(f"{peer}: cluster user {packet.user!r} is not ours")
            self._dialler_nonce, self._own_nonce = packet.nonce, credentials.nonce()
            proof = credentials.acceptor_proof(self._dialler_nonce, self._own_nonce)
            owner.send(packets.ClusterChallenge(self._own_nonce, proof), CLUSTER_CHANNEL)
        elif isinstance(packet, packets.ClusterProof) and credentials is not None and self._own_nonce:
            expected = credentials.dialler_proof(self._dialler_nonce, self._own_nonce)
            self._own_nonce = b""
            credentials.verify(expected, packet.proof, peer)
            self._authorized = True
            owner.cluster_authorized()
            owner.send(packets.ClusterConnectReply(True), CLUSTER_CHANNEL)
        elif isinstance(packet, packets.NodeAnnounce) and self._authorized:
            self._announce(packet)
        elif isinstance(packet, packets.ClusterConnect):
            # a plain password is neither requested nor accepted: see cluster.credentials
            owner.send(packets.ClusterConnectReply(False), CLUSTER_CHANNEL)
            raise ClusterSecurityError(f"{peer} sent a plain cluster password")
        else:
            raise ClusterSecurityError(f"{peer}: {type(packet).__name__} before the credentials were proved")

    def _announce(self, packet: packets.NodeAnnounce) -> None:
        services = self._owner.services
        if not packet.backup or packet.connector is None:
            return
        if packet.node_id != services.shared.node_id:
            log.warning("backup of another node", extra={"node_id": packet.node_id, "ours": services.shared.node_id})
            return
        self._announced = packet
        services.topology.set_backup(
            packet.node_id, packet.connector, services.shared.clock.wall_ms(), packet.backup_group_name
        )
        log.info("backup announced", extra={"connector": packet.connector.to_url()})

    def close(self) -> None:
        """The connection was lost, and with it the backup announced on it."""
        announced, self._announced = self._announced, None
        if announced is None:
            return
        services = self._owner.services
        member = services.topology.member(announced.node_id)
        if member is not None and member.backup == announced.connector:
            services.topology.set_backup(announced.node_id, None, services.shared.clock.wall_ms())
            log.warning("backup disconnected", extra={"peer": self._owner.connection.peer})
