"""The AMQP 0-9-1 protocol of one active node: what its connections share, and the factory of their handlers."""

from __future__ import annotations

from functools import partial

from understudy.cluster.membership.client_endpoints import EndpointDialer
from understudy.cluster.membership.services import ClusterServices
from understudy.cluster.membership.topology import Topology
from understudy.protocols.amqp091.connection import Amqp091Connection
from understudy.protocols.amqp091.host_notices import HostNotices
from understudy.protocols.amqp091.known_hosts import KnownHosts
from understudy.protocols.amqp091.link import Amqp091Services, ReplyReceiver
from understudy.protocols.amqp091.moves.members import Members
from understudy.protocols.amqp091.moves.mover import SessionMover
from understudy.protocols.amqp091.sessions import ClientSessions
from understudy.protocols.handlers import AcceptorOptions, HandlerFactory
from understudy.protocols.services import ProtocolServices
from understudy.wire.detect import Protocol


class Amqp091Protocol:
    """AMQP 0-9-1 of one node, an entry of the table of protocols."""

    wire = Protocol.AMQP091

    def __init__(self, shared: ProtocolServices, cluster: ClusterServices) -> None:
        """Tell the bindings of amq.qpid of the members of the first cluster network.

        Args:
            shared: Services of all protocols.
            cluster: Topologies of the node.
        """
        self._shared = shared
        self._replies: dict[str, ReplyReceiver] = {}
        self._sessions = ClientSessions(shared.sessions.post_office)
        members = Members(shared.node_id, cluster.networks, shared.clock)
        self._mover = SessionMover(self._sessions, members, shared.clock, shared.entropy)
        self._known: dict[Topology, KnownHosts] = {}
        office = shared.sessions.post_office
        hosts = self._known_hosts(cluster.of(None))
        self._notices = HostNotices(hosts, office, shared.clock, office.timers, shared.epoch)

    def _known_hosts(self, cluster: ClusterServices) -> KnownHosts:
        known = self._known.get(cluster.topology)
        if known is None:
            shared = self._shared
            dialer = None if cluster.dialer is None else EndpointDialer(cluster.dialer)
            known = self._known[cluster.topology] = KnownHosts(
                shared.node_id, cluster.topology, dialer, shared.sessions.post_office.timers, shared.entropy
            )
        return known

    def handler(self, cluster: ClusterServices, options: AcceptorOptions) -> HandlerFactory:
        """Makes the handlers of the connections of an acceptor.

        Args:
            cluster: Clients of the acceptor learn of the members of its network.
            options: Parameters of the acceptor.
        """
        known = self._known_hosts(cluster) if options.amqp091.known_hosts else None
        services = Amqp091Services(self._shared, options, self._replies, self._sessions, known, self._mover)
        return partial(Amqp091Connection, services)

    def close(self) -> None:
        """End the checks of other nodes, and the sessions that wait for their clients."""
        self._mover.close()
        self._sessions.close()
        self._notices.close()
        while self._known:
            self._known.popitem()[1].close()
