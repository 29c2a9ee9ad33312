"""The other members of the cluster, as a session that moves needs them (ADR 0199)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from understudy.cluster.membership.membership import Membership
from understudy.cluster.membership.network import ClusterNetwork
from understudy.cluster.membership.session_moves import Receiver, SessionMove, packet_of
from understudy.cluster.membership.topology import Member
from understudy.limits import AMQP091_MEMBER_MISSING_MS, CLUSTER_NODES_MAX
from understudy.ports import Clock


class Members:
    """The members that a node reaches, and those that it has lost."""

    def __init__(self, node_id: str, networks: Iterable[ClusterNetwork], clock: Clock) -> None:
        """Use the links of an active node.

        Args:
            node_id: The one that its pair has in the cluster.
            networks: Networks of its cluster connections.
            clock: Measures for how long a member is missing.
        """
        self.node_id = node_id
        self._networks = list(networks)
        self._clock = clock
        self._since_ms = clock.monotonic_ms()
        self._sought: dict[str, int] = {}
        """Monotonic times since which members were not reached, the earliest first; they may be reached now."""
        self._ends: list[Callable[[], None]] = []

    def listen(self, receiver: Receiver) -> None:
        """Give the messages of all members to a receiver, until ``close``."""
        for each in self._networks:
            each.topology.moves.receive_with(receiver)
            self._ends.append(each.topology.listen(self._changed, self._removed))

    def close(self) -> None:
        """Receive nothing more."""
        for end in self._ends:
            end()
        for each in self._networks:
            each.topology.moves.receive_with(None)

    def reached(self) -> list[str]:
        """Node ids of the active members that can be asked now: no Artemis."""
        links = (link for each in self._memberships() for link in each.links.values())
        found = (link.node_id for link in links if link.joined and not link.is_plain)
        return [*dict.fromkeys(each for each in found if each is not None and each != self.node_id)]

    def send(self, node_id: str, move: SessionMove) -> None:
        """Send a message to a member; without effect while it cannot be reached."""
        for each in self._memberships():
            for link in each.links.values():
                if link.node_id == node_id and link.joined:
                    link.send(packet_of(move))
                    return

    def missing(self) -> bool:
        """Whether a member is not reached that is active as far as this node knows, or was lost shortly before; or, if
        this node became active shortly before, one of its static connectors. The other node of the own pair has no
        other sessions.
        """
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._since_ms < AMQP091_MEMBER_MISSING_MS:
            for each in self._networks:
                statics, own = each.membership.static_links(), each.topology.replaced
                if any(link is not None and not link.joined and not link.target.same_place(own) for link in statics):
                    return True
        if any(self._is_dialled(each) for network in self._networks for each in network.topology.members()):
            return True
        reached = self.reached()
        sought = (since_ms for node_id, since_ms in self._sought.items() if node_id not in reached)
        return any(now_ms - since_ms < AMQP091_MEMBER_MISSING_MS for since_ms in sought)

    def _is_dialled(self, member: Member) -> bool:
        """Whether the link to an active member is being made."""
        if member.primary is None or member.node_id == self.node_id:
            return False
        links = (link for each in self._memberships() for link in each.links.values())
        return any(not link.joined and link.target.same_place(member.primary) for link in links)

    def _memberships(self) -> Iterable[Membership]:
        return (each.membership for each in self._networks)

    def _changed(self, member: Member) -> None:
        if member.node_id in self.reached():
            self._sought.pop(member.node_id, None)
        elif member.primary is not None and member.node_id != self.node_id:
            self._sought.setdefault(member.node_id, self._clock.monotonic_ms())

    def _removed(self, node_id: str, event_id: int) -> None:
        self._sought.pop(node_id, None)
        self._sought[node_id] = self._clock.monotonic_ms()
        if len(self._sought) > CLUSTER_NODES_MAX:
            del self._sought[next(iter(self._sought))]
