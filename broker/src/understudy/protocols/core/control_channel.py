"""Channel 0 of a connection: pings, the version of the client, and the subscription to topology changes.

Source: artemis-core s. 3.2 (versions), s. 7.2 (ping), s. 8.1 (topology).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from understudy.cluster.membership.topology import Member
from understudy.errors import RemoteProtocolError, UnsupportedPacket
from understudy.protocols.core.link import CoreLink
from understudy.protocols.liveness import Liveness
from understudy.wire.core import packets
from understudy.wire.core.transport import TransportConfiguration

CONTROL_CHANNEL: Final = 0
#: The version that the server announces and the oldest client version that it accepts (artemis-core s. 3.2).
SERVER_VERSION: Final = 136
OLDEST_CLIENT_VERSION: Final = 121


class ControlChannel:
    """The control channel of one connection."""

    def __init__(self, owner: CoreLink) -> None:
        self._owner = owner
        shared = owner.services.shared
        self.liveness = Liveness(shared.clock, shared.connection_ttl_override_ms)
        """Timeouts of the connection; a ping chooses its TTL."""
        self._version_known = False
        self._unsubscribe: Callable[[], None] | None = None
        """Ends the subscription to topology changes; None if the client has not subscribed."""

    def receive(self, packet: packets.Packet) -> None:
        """Handle a packet. Raises RemoteProtocolError, UnsupportedPacket."""
        if isinstance(packet, packets.Ping):
            self.liveness.choose(packet.connection_ttl_ms)
            self._owner.send(packet, CONTROL_CHANNEL)
        elif isinstance(packet, packets.SubscribeTopologyV2):
            self.learn_version(packet.client_version)
            self._subscribe()
        elif isinstance(packet, packets.SubscribeTopology):
            self._subscribe()
        else:
            raise UnsupportedPacket(f"{type(packet).__name__} on channel 0")

    def learn_version(self, client_version: int) -> None:
        """The first version that a client sends holds for the connection (artemis-core s. 3.2).

        Raises:
            RemoteProtocolError: the version is too old.
        """
        if self._version_known:
            return
        if client_version < OLDEST_CLIENT_VERSION:
            raise RemoteProtocolError(f"client version {client_version}, oldest is {OLDEST_CLIENT_VERSION}")
        self._version_known = True
        self._owner.decoder.version = min(client_version, SERVER_VERSION)

    def _subscribe(self) -> None:
        if self._unsubscribe is not None:
            # the subscribed client gets every change already
            return
        services = self._owner.services
        members = services.cluster.topology.members() or [Member(services.shared.node_id, 0)]
        for position, member in enumerate(members, start=1):
            self._send_member(member, last=position == len(members))
        self._unsubscribe = services.cluster.topology.listen(
            lambda member: self._send_member(member, last=False), self._send_removal
        )

    def _send_member(self, member: Member, *, last: bool) -> None:
        newest = packets.ClusterTopologyV4(
            exit=False,
            node_id=member.node_id,
            unique_event_id=member.event_id,
            primary=self._told(member),
            backup=member.backup,
            last=last,
            backup_group_name=member.backup_group,
            scale_down_group_name=member.scale_down_group,
            server_version=SERVER_VERSION,
        )
        update = packets.topology_packet(newest, self._owner.decoder.version)
        self._owner.send(update, CONTROL_CHANNEL)

    def _told(self, member: Member) -> TransportConfiguration | None:
        """The connector of a member, as the client compares it with its own.

        A stock client never finds itself at a connector with an HTTP upgrade if its own one names no server, so it
        would take no backup (ADR 0179). This node also takes connections without an upgrade at the same port.
        """
        owner = self._owner
        if member.primary is None or member.node_id != owner.services.shared.node_id:
            return member.primary
        # nodes tell the connector on, so they get it as it is
        unnamed = owner.connection.upgrade_without_name and not owner.is_node
        return member.primary.without_upgrade() if unnamed else member.primary

    def _send_removal(self, node_id: str, event_id: int) -> None:
        newest = packets.ClusterTopologyV4(True, node_id, event_id, None, None, False, None, None, SERVER_VERSION)
        update = packets.topology_packet(newest, self._owner.decoder.version)
        self._owner.send(update, CONTROL_CHANNEL)

    def farewell(self, *, has_sessions: bool) -> packets.Packet:
        """The DISCONNECT packet of a stopping server, in the form for the version of the client (artemis-core s. 7.2).

        ``has_sessions``: the packet asks the client to fail over; otherwise it says that the server stops.
        """
        shared, version = self._owner.services.shared, self._owner.decoder.version
        kind, critical = packets.DisconnectReason, shared.connections.critical_stop
        if has_sessions:
            reason = kind.SCALE_DOWN_ON_CRITICAL_ERROR if critical else kind.SCALE_DOWN
        else:
            reason = kind.SHUT_DOWN_ON_CRITICAL_ERROR if critical else kind.SHUT_DOWN
        target = shared.connections.scale_down_target
        if version >= 131:
            return packets.DisconnectV3(node_id=shared.node_id, reason=reason, target_node_id=target, connector=None)
        if version >= 125:
            return packets.DisconnectV2(node_id=shared.node_id, scale_down_node_id=target)
        return packets.Disconnect(node_id=shared.node_id)

    def close(self) -> None:
        """End the subscription to the topology."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
