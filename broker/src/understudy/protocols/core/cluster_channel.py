"""Channels 3 and 2 of a connection: authentication of another node, its announcement, the votes that it requests, and
its replication.

Source: artemis-core s. 9.1, artemis-ha s. 2.2, 3.3, 7.3. Not here: the dialling side
(``cluster.membership.member_link``), and the credentials (``cluster.membership.credentials``).
"""

from __future__ import annotations

import logging
from typing import Final

from understudy.cluster.membership.backup_host import Requester
from understudy.cluster.membership.handshake import DiallerProof
from understudy.cluster.membership.session_moves import packet_of
from understudy.cluster.membership.topology import Member
from understudy.errors import BrokerError
from understudy.protocols.core.link import CoreLink
from understudy.protocols.core.moved_stores import keep
from understudy.protocols.core.replication_channel import ReplicationChannel
from understudy.store.log.format_version import FORMAT_VERSION_FIRST
from understudy.wire.core import packets, packets_replication
from understudy.wire.core.codes import code_of
from understudy.wire.core.transport import TransportConfiguration

log = logging.getLogger(__name__)

CLUSTER_CHANNEL: Final = 3
REPLICATION_CHANNEL: Final = packets_replication.REPLICATION_CHANNEL


class ClusterChannel:
    """The cluster channel of one connection."""

    def __init__(self, owner: CoreLink) -> None:
        self._owner = owner
        self._proof = DiallerProof(
            owner.services.cluster.credentials,
            owner.connection,
            owner.decoder,
            lambda packet: owner.send(packet, CLUSTER_CHANNEL),
            owner.services.shared.node_id,
        )
        self._asking: TransportConfiguration | None = None
        """Connector that the other node has announced."""
        self._announced: packets.NodeAnnounce | None = None
        """The backup that was announced on the connection."""
        self._reads = FORMAT_VERSION_FIRST
        """Newest format version of a log that the other node reads."""
        self._requester: Requester | None = None
        """The active node that was announced on the connection, which may ask for a backup."""
        self._replicated: str | None = None
        """Node id of the replicated pair whose active node is at the other end; None: it has said nothing of one."""
        self._replication: ReplicationChannel | None = None
        """Handler of the replication channel; None until a packet arrives on it."""

    @property
    def has_replica(self) -> bool:
        """Whether a backup has registered as the replica of this node."""
        return self._replication is not None and self._replication.registered

    def user_of(self, user: str | None, password: str | None) -> str | None:
        """The cluster user, if a session with this login is one of another broker; None: of a client.

        Another broker has proved the cluster password on this connection, whose bytes are protected, and gives no
        login; or it is an Artemis.
        """
        credentials = self._owner.services.cluster.credentials
        if credentials is None:
            return None
        proved = self._proof.proved and user is None and password is None
        accepted = proved or credentials.accepts_plain(user, password, self._owner.connection.peer)
        return credentials.user if accepted else None

    def receive_replication(self, packet: packets.Packet) -> None:
        """A packet on channel 2. Raises as ``ReplicationChannel.receive``."""
        if self._replication is None:
            self._replication = ReplicationChannel(self._owner)
        self._replication.receive(packet, authorized=self._proof.proved)

    def receive(self, packet: packets.Packet) -> None:
        """Raises ClusterSecurityError for anything out of order or unproven."""
        if isinstance(packet, packets.NodeAnnounce) and self._proof.authorized:
            self._announce(packet)
        elif type(packet) is packets.QuorumVote and self._proof.authorized:
            self._vote(packet)
        elif isinstance(packet, packets.BackupRequest) and self._proof.authorized:
            self._owner.send(packets.BackupResponse(self._host_backup(packet)), CLUSTER_CHANNEL)
        elif isinstance(packet, packets.ScaleDownAnnouncement) and self._proof.authorized:
            self._scaled_down(packet)
        elif isinstance(packet, packets.DuplicateIds) and self._proof.authorized:
            self._learn_duplicate_ids(packet)
        elif isinstance(packet, packets.StoreMoved) and self._proof.authorized:
            self._keep_moved(packet)
        else:
            self._proof.receive(packet, self._owner.cluster_authorized)

    def _announce(self, packet: packets.NodeAnnounce) -> None:
        """Raises RemoteProtocolError for a connector that cannot be dialled."""
        topology, connector = self._owner.services.cluster.topology, packet.connector
        if connector is None:
            return
        self._asking = connector
        self._owner.services.cluster.votes.announced(packet)
        if not packet.backup:
            self._owner.services.cluster.scaled_down.serves_again(packet.node_id)
            self._requester = Requester(packet.node_id, connector, packet.backup_group_name)
            member = Member(
                packet.node_id,
                packet.current_event_id,
                connector,
                packet.backup_connector,
                packet.backup_group_name,
                packet.scale_down_group_name,
            )
            topology.update(member, first_hand=True)
            self._name_pair(packet, connector)
            return
        self._announced = packet
        self._follows(packet.node_id, connector.to_url())
        topology.announce_backup(packet.node_id, connector, packet.backup_group_name, self)
        log.info("backup announced", extra={"connector": connector.to_url(), "node_id": packet.node_id})

    def _name_pair(self, packet: packets.NodeAnnounce, connector: TransportConfiguration) -> None:
        """The active node of a replicated pair has said its group-name, or that it has none."""
        if packet.node_id == self._replicated:
            services = self._owner.services
            own_id, group = services.shared.node_id, packet.backup_group_name
            services.cluster.topology.ungrouped.announced(packet.node_id, own_id, connector.to_url(), group)

    def _follows(self, node_id: str, backup: str) -> None:
        """Called when a backup has announced itself."""
        services = self._owner.services
        if node_id != services.shared.node_id:
            return
        formats = services.cluster.formats
        formats.follows(self, f"the backup {backup}", self._reads)
        refusal = formats.refusal(self._reads)
        if refusal is not None:
            log.error("the announced backup cannot take over", extra={"connector": backup, "reason": refusal})

    def _vote(self, packet: packets.QuorumVote) -> None:
        if isinstance(packet.vote, packets.StoreFormat):
            self._reads = packet.vote.version
            return
        if isinstance(packet.vote, packets.NodeName):
            self._exchange_names(packet.vote)
            return
        if isinstance(packet.vote, packets.ClientEndpoints):
            self._exchange_endpoints(packet.vote)
            return
        if isinstance(packet.vote, packets.SessionMove):
            moves = self._owner.services.cluster.topology.moves
            moves.receive(packet.vote, lambda move: self._owner.send(packet_of(move), CLUSTER_CHANNEL))
            return
        if isinstance(packet.vote, packets.PairState):
            self._replicated = packet.vote.node_id
            self._owner.services.cluster.votes.pair_state(packet.vote)
            return
        if isinstance(packet.vote, packets.BackupVote):
            self._owner.send(packets.QuorumVoteReply(packet.handler, self._can_host(packet.vote)), CLUSTER_CHANNEL)
            return
        if not isinstance(packet.vote, packets.FailoverVote):
            # Artemis does not answer either: the other node waits for its time limit
            log.warning("vote of an unknown kind", extra={"handler": packet.handler})
            return
        services = self._owner.services
        now_ms = services.shared.clock.monotonic_ms()
        vote = services.cluster.votes.answer(services.cluster.topology, packet.vote, self._asking, now_ms)
        log.info("vote", extra={"node_id": vote.node_id, "agreed": vote.agreed, "connector": vote.connector})
        self._owner.send(packets.QuorumVoteReply(packet.handler, vote), CLUSTER_CHANNEL)

    def _exchange_names(self, stated: packets.NodeName) -> None:
        """Keep the name of the other node, and state that of this one."""
        names = self._owner.services.cluster.topology.names
        names.learn(stated.place, stated.name)
        if names.own:
            # no reply: the other node would take it for the answer to a vote that it requested
            answer = packets.QuorumVote(packets.NODE_NAME, packets.NodeName(names.own, ""))
            self._owner.send(answer, CLUSTER_CHANNEL)

    def _exchange_endpoints(self, stated: packets.ClientEndpoints) -> None:
        """Keep the places for clients of the other node, and state those of this one, which is active."""
        services = self._owner.services
        endpoints = services.cluster.topology.endpoints
        endpoints.learn(self, stated)
        answer = endpoints.statement(services.shared.node_id, active=True)
        self._owner.send(packets.QuorumVote(packets.CLIENT_ENDPOINTS, answer), CLUSTER_CHANNEL)

    def _can_host(self, vote: packets.BackupVote) -> packets.BackupVote:
        """Whether this node can host a backup of the other one (artemis-ha s. 5)."""
        services, requester = self._owner.services, self._requester
        backups = services.cluster.backups
        if backups is None:
            return packets.BackupVote(0, services.shared.node_id, available=False)
        return backups.vote(vote.node_id if requester is None else requester.node_id)

    def _host_backup(self, packet: packets.BackupRequest) -> bool:
        """Whether this node hosts a backup of the other one now."""
        backups, requester = self._owner.services.cluster.backups, self._requester
        if backups is None or requester is None:
            log.warning("request for a backup refused", extra={"peer": self._owner.connection.peer})
            return False
        return backups.host(requester, packet) is None

    def _scaled_down(self, packet: packets.ScaleDownAnnouncement) -> None:
        """Note that a node has moved its messages to this node, or to the node that sends the packet."""
        services = self._owner.services
        own_id, scaled_down = services.shared.node_id, services.cluster.scaled_down
        if packet.target_node_id == own_id:
            scaled_down.add(packet.scaled_down_node_id, own_id)
        else:
            scaled_down.add_elsewhere(packet.scaled_down_node_id, packet.target_node_id)

    def _learn_duplicate_ids(self, packet: packets.DuplicateIds) -> None:
        """Duplicate ids of a node that is scaled down: its producers may send the messages again, here.

        Raises:
            LimitExceeded: there are too many addresses, or an id is too long.
        """
        office = self._owner.services.shared.sessions.post_office
        office.learn_duplicate_ids(packet.address, packet.ids, self._duplicate_ids_stored)

    def _keep_moved(self, packet: packets.StoreMoved) -> None:
        """All messages of the store of another node are here: keep the record of it, and answer when it is durable."""
        store = self._owner.services.shared.sessions.post_office.store
        try:
            sequence = keep(store, packet)
        except BrokerError as error:
            log.error("the record of a node that was scaled down here is not kept", extra={"error": str(error)})
            self._owner.send(packets.ExceptionResponse(code_of(error), str(error), None), CLUSTER_CHANNEL)
            return
        store.context.when_durable(sequence, lambda: self._owner.send(packets.NullResponse(), CLUSTER_CHANNEL))

    def _duplicate_ids_stored(self, error: BrokerError | None) -> None:
        self._owner.send(packets.NullResponse(), CLUSTER_CHANNEL)

    def close(self, reason: str) -> None:
        """Called when the connection was lost, and with it the backup announced on it, or the replica."""
        if self._replication is not None:
            self._replication.connection_lost(reason)
        self._owner.services.cluster.formats.left(self)
        self._owner.services.cluster.topology.endpoints.forget(self)
        announced, self._announced = self._announced, None
        if announced is None or announced.connector is None:
            return
        if self._owner.services.cluster.topology.withdraw_backup(announced.node_id, announced.connector, self):
            fields = {"connector": announced.connector.to_url(), "peer": self._owner.connection.peer}
            if self._owner.services.shared.connections.accepting:
                log.warning("backup disconnected", extra=fields)
            else:
                log.info("the other node of the pair has disconnected while this one stops serving", extra=fields)
