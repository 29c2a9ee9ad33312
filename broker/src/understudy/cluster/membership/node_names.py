"""The names of the other nodes, and whether a node that has gone was stopped, for log lines and management (ADR 0173).

An active node is known by the address of its connector. Each side of a link between two nodes states its name once the
cluster password is proved. A node of an earlier release, or an Artemis, states none.
"""

from __future__ import annotations

from typing import Final

from understudy.cluster.membership.link_ends import place_of, place_of_socket
from understudy.cluster.membership.member_link import MemberLink
from understudy.limits import CLUSTER_NODES_MAX
from understudy.wire.core import packets
from understudy.wire.core.transport import TransportConfiguration

#: Longer names are cut: they are only shown.
_CHARACTERS_MAX: Final = 100


class NodeNames:
    """The names of the nodes by ``host:port`` of their connectors, and the way in which nodes have gone."""

    def __init__(self, own: str = "") -> None:
        """``own``: name of this node; empty: it states none."""
        self.own = own
        self._names: dict[str, str] = {}
        self._stopped: set[str] = set()
        """Places of nodes that said that they stop, until they are reached again."""

    def learn(self, place: str, name: str) -> None:
        """Keep the name that the node at a place has stated; of too many places the oldest one is forgotten."""
        key = place_of_socket(place)
        self._names.pop(key, None)
        if key and name:
            self._names[key] = name[:_CHARACTERS_MAX]
        while len(self._names) > CLUSTER_NODES_MAX:
            del self._names[next(iter(self._names))]

    def joined(self, link: MemberLink, own: TransportConfiguration) -> None:
        """State the name of this node, whose connector is ``own``, on a new link. An Artemis gets none."""
        self._stopped.discard(_place(link.target))
        if self.own and not link.is_plain:
            link.send(packets.QuorumVote(packets.NODE_NAME, packets.NodeName(self.own, _place(own))))

    def take(self, link: MemberLink, packet: packets.Packet) -> bool:
        """Keep the name that the accepting node of a link has stated. Returns False for a packet of another kind."""
        if type(packet) is not packets.QuorumVote or not isinstance(packet.vote, packets.NodeName):
            return False
        self.learn(_place(link.target), packet.vote.name)
        return True

    def lost(self, link: MemberLink, *, stopped: bool) -> None:
        """Note the end of a link; ``stopped``: the other node said that it stops."""
        if stopped and len(self._stopped) < CLUSTER_NODES_MAX:
            self._stopped.add(_place(link.target))

    def of(self, place: str) -> str | None:
        """Name of the node at a place, or None."""
        return self._names.get(place_of_socket(place))

    def shown(self, place: str) -> str:
        """Name and place of a node, or only its place if the name is not known."""
        name = self.of(place)
        return place if name is None else f"{name} ({place})"

    def has_stopped(self, place: str) -> bool:
        """Whether the node at a place has said that it stops, and was not reached since."""
        return place_of_socket(place) in self._stopped


def _place(connector: TransportConfiguration) -> str:
    return place_of(connector.host, connector.port)
