"""The places at which clients of protocols other than CORE reach the nodes of a cluster (ADR 0194).

Each side of a link between two nodes states its own places once the cluster password is proved; what a connection has
stated ends with it. Connectors of the topology are for clients of CORE only, and their form cannot be changed.

Not here: whether a place leads to its node (``protocols.amqp091.endpoint_checks``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from understudy.cluster.membership.member_link import MemberLink
from understudy.config.model import AcceptorConfiguration
from understudy.config.sockets.bindings import ANY_ADDRESS
from understudy.limits import CLIENT_ENDPOINTS_MAX, CLUSTER_NODES_MAX
from understudy.wire.core import packets
from understudy.wire.core.packets import ClientEndpoint
from understudy.wire.core.peer import Dialer, Link
from understudy.wire.core.transport import TransportConfiguration
from understudy.wire.detect import Protocol

__all__ = ["ClientEndpoint", "EndpointDialer", "NodeEndpoints", "own_endpoints"]

log = logging.getLogger(__name__)


def own_endpoints(
    acceptors: Sequence[AcceptorConfiguration], connections: Collection[str | None], host: str
) -> tuple[ClientEndpoint, ...]:
    """The places at which clients of other protocols than CORE reach this node, for the members of one network.

    Args:
        acceptors: Acceptors of the node. One with a port that the system chooses is left out.
        connections: Cluster connections of the network; None stands for acceptors that name none.
        host: Host of the own connector, for acceptors that listen on all addresses.
    """
    return tuple(
        ClientEndpoint(protocol, each.tls is not None, host if each.host in ANY_ADDRESS else each.host, each.port)
        for each in acceptors
        if each.amqp091.known_hosts and each.port and each.cluster_connection in connections
        for protocol in each.protocols
        if protocol == Protocol.AMQP091.name
    )[:CLIENT_ENDPOINTS_MAX]


class EndpointDialer:
    """Connects to the places of other nodes as their clients do."""

    def __init__(self, dialer: Dialer) -> None:
        """``dialer``: makes connections of the cluster network."""
        self._dialer = dialer

    def dial(self, endpoint: ClientEndpoint, link: Link) -> None:
        """Connect to a place and report to ``link``."""
        parameters: dict[str, bool | int | str] = {"host": endpoint.host, "port": endpoint.port}
        if endpoint.tls:
            parameters["sslEnabled"] = True
        self._dialer.dial(TransportConfiguration(endpoint.protocol, parameters=parameters), link)


class NodeEndpoints:
    """The places of this node, and those that others have stated."""

    def __init__(self, own: tuple[ClientEndpoint, ...] = ()) -> None:
        """``own``: places of this node, as its configuration has them."""
        self.own = own
        self._stated: dict[object, packets.ClientEndpoints] = {}
        """Statements by the connection on which they came, the newest one last."""
        self._listeners: list[Callable[[], None]] = []

    def listen(self, changed: Callable[[], None]) -> None:
        """Make a call whenever a statement comes, changes or ends, until ``unlisten``."""
        self._listeners.append(changed)

    def unlisten(self, changed: Callable[[], None]) -> None:
        """End the calls of ``listen``."""
        self._listeners.remove(changed)

    # --- statements --------------------------------------------------------------------------------

    def state(self, link: MemberLink, node_id: str, *, active: bool) -> None:
        """State the places of this node on a link. An Artemis gets no statement: it knows none of this kind."""
        if link.joined and not link.is_plain:
            link.send(packets.QuorumVote(packets.CLIENT_ENDPOINTS, self.statement(node_id, active=active)))

    def statement(self, node_id: str, *, active: bool) -> packets.ClientEndpoints:
        """The statement of this node."""
        return packets.ClientEndpoints(node_id, active, self.own)

    def take(self, link: MemberLink, packet: packets.Packet) -> bool:
        """Keep the statement of the accepting node of a link. Returns False for a packet of another kind."""
        if type(packet) is not packets.QuorumVote or not isinstance(packet.vote, packets.ClientEndpoints):
            return False
        self.learn(link, packet.vote)
        return True

    def learn(self, connection: object, stated: packets.ClientEndpoints) -> None:
        """Keep a statement until its connection ends.

        Args:
            connection: On which it came.
            stated: The statement; it takes the place of an earlier one.
        """
        if self._stated.get(connection) == stated:
            return
        self._stated.pop(connection, None)
        # each node has a link of its own, and is reached by one
        if len(self._stated) >= 4 * CLUSTER_NODES_MAX:
            log.warning("client endpoints of a node are ignored: too many nodes", extra={"nodes": len(self._stated)})
            return
        self._stated[connection] = stated
        self._changed()

    def forget(self, connection: object) -> None:
        """Drop the statement of a connection that has ended."""
        if self._stated.pop(connection, None) is not None:
            self._changed()

    def _changed(self) -> None:
        for changed in list(self._listeners):
            changed()

    # --- answers -----------------------------------------------------------------------------------

    def active(self, protocol: str) -> Mapping[str, tuple[ClientEndpoint, ...]]:
        """Places of the active nodes by their node ids.

        Args:
            protocol: Name as in the acceptor parameter ``protocols``.
        """
        return {each.node_id: _of(each, protocol) for each in self._stated.values() if each.active and each.node_id}

    def passive(self, node_id: str, protocol: str) -> tuple[ClientEndpoint, ...]:
        """Places of the passive node of a pair; the newest statement counts."""
        found: tuple[ClientEndpoint, ...] = ()
        for each in self._stated.values():
            if not each.active and each.node_id == node_id:
                found = _of(each, protocol)
        return found


def _of(stated: packets.ClientEndpoints, protocol: str) -> tuple[ClientEndpoint, ...]:
    return tuple(each for each in stated.endpoints if each.protocol == protocol)
