"""The members of the cluster: one entry per node id, shared by a primary and its backup.

Source: artemis-core s. 8.1, artemis-ha s. 3.7, 7.3. Event ids are wall-clock milliseconds of the node that an entry
describes: a change that another node notices counts the event id on by one. An update counts when it is newer than the
entry; a removal is remembered, so that older news does not revive the entry. The two nodes of a pair have clocks of
their own, so one that became active without having heard of the other may announce an older id: what a node says of
itself counts, with an id that is newer for all others, and it takes over that id.

An active node protects its own entry: an update with another connector, or a removal, is rejected with the warning
of Artemis, because it means that two nodes are active under one id.

Not here: how it is exchanged (``cluster.membership.membership``, ``protocols.core``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from understudy.cluster.membership.client_endpoints import NodeEndpoints
from understudy.cluster.membership.node_names import NodeNames
from understudy.cluster.membership.session_moves import SessionMoves
from understudy.cluster.membership.ungrouped_pairs import UngroupedPairs
from understudy.dataclass import dataclass
from understudy.limits import CLUSTER_NODES_MAX, NODE_ID_CHARACTERS_MAX
from understudy.wire.core.transport import TransportConfiguration

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Member:
    """One pair of servers in the form in which clients learn it."""

    node_id: str
    event_id: int
    """Wall-clock milliseconds of the latest update."""
    primary: TransportConfiguration | None = None
    """Connector of the active node."""
    backup: TransportConfiguration | None = None
    """Connector of the passive node."""
    backup_group: str | None = None
    scale_down_group: str | None = None


Changed = Callable[[Member], None]
"""Called with the new state of a member."""
Removed = Callable[[str, int], None]
"""Called with the node id and the event id of a removed member."""


class Topology:
    """The known members; listeners are called for every change."""

    def __init__(
        self,
        ungrouped: UngroupedPairs | None = None,
        names: NodeNames | None = None,
        endpoints: NodeEndpoints | None = None,
    ) -> None:
        """Args:
        ungrouped: Other replicated pairs without a group-name; None: they are not noted.
        names: Names of the nodes; None: this node states none.
        endpoints: Places for clients of other protocols; None: this node has none.
        """
        self.ungrouped = ungrouped or UngroupedPairs()
        self.names = names or NodeNames()
        self.endpoints = endpoints or NodeEndpoints()
        self.moves = SessionMoves()
        """Messages about sessions that move between the nodes."""
        self._members: dict[str, Member] = {}
        self._removed: dict[str, Member] = {}
        """Members as they were, with the event ids of their removals, oldest removal first."""
        self._announcers: dict[str, object] = {}
        """The connection on which each backup was announced last, by node id."""
        self._listeners: list[tuple[Changed, Removed]] = []
        self._own_id: str | None = None
        """While this node is active."""
        self.replaced: TransportConfiguration | None = None
        """Connector of the other node of the pair, if that one was active before this node."""
        self.nodes_seen = 0
        """Highest number of members at the same time since the start of the node (artemis-ha s. 3.3)."""

    def members(self) -> list[Member]:
        """All members, in the order in which they were added."""
        return list(self._members.values())

    def member(self, node_id: str) -> Member | None:
        """The member of a node id, or None."""
        return self._members.get(node_id)

    def lists(self, connector: TransportConfiguration) -> bool:
        """Whether a member has the connector, as its active or passive node."""
        return any(
            connector.same_place(each) for member in self._members.values() for each in (member.primary, member.backup)
        )

    def listen(self, changed: Changed, removed: Removed) -> Callable[[], None]:
        """Call ``changed`` with every changed member and ``removed`` with every removed one.

        Returns:
            A call that ends that.
        """
        listener = (changed, removed)
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    # --- this node -------------------------------------------------------------------------------

    def set_primary(
        self, node_id: str, connector: TransportConfiguration, event_id: int, scale_down_group: str | None = None
    ) -> None:
        """Set the connector of this node, which is active, and protect its entry until ``clear``.

        Args:
            connector: Connector by which clients and other nodes reach it.
            event_id: The present time.
            scale_down_group: Scale-down group of this node; None: unchanged.
        """
        self._own_id = node_id
        earlier = self._members.get(node_id) or self._removed.get(node_id)
        if earlier is not None and earlier.primary is not None and not connector.same_place(earlier.primary):
            self.replaced = earlier.primary
        known = self._members.get(node_id) or Member(node_id, 0)
        # an active node is not a backup at the same time
        backup = None if connector.same_place(known.backup) else known.backup
        group = scale_down_group or known.scale_down_group
        event_id = max(event_id, known.event_id + 1)
        self._put(replace(known, event_id=event_id, primary=connector, backup=backup, scale_down_group=group))

    def clear(self) -> None:
        """Remove all members and removals, when the node stops being active. Listeners are not called."""
        self._own_id = self.replaced = None
        self._members.clear()
        self._removed.clear()
        self._announcers.clear()

    # --- news --------------------------------------------------------------------------------------

    def set_backup(self, node_id: str, connector: TransportConfiguration | None, group: str | None = None) -> None:
        """Set the connector of the passive node of ``node_id``; None: it has none any more.

        Raises:
            RemoteProtocolError: the connector has no port number.
        """
        _check(connector)
        known = self._members.get(node_id) or Member(node_id, 0)
        if connector is not None and connector.same_place(known.primary):
            return
        if connector is None and known.primary is None:
            self.remove(node_id)
            return
        self._put(replace(known, event_id=known.event_id + 1, backup=connector, backup_group=group))

    def announce_backup(self, node_id: str, connector: TransportConfiguration, group: str | None, by: object) -> None:
        """Called when the passive node of ``node_id`` has announced itself on the connection ``by``. Raises as
        ``set_backup``."""
        self.set_backup(node_id, connector, group)
        if node_id in self._members:
            self._announcers[node_id] = by

    def withdraw_backup(self, node_id: str, connector: TransportConfiguration, by: object) -> bool:
        """The connection ``by``, on which the connector was announced, is lost; whether the backup is lost with it.

        A host that has lost its power announces its node again on another connection, long before the end of the
        former one is noticed.
        """
        if self._announcers.get(node_id) is not by:
            return False
        del self._announcers[node_id]
        member = self._members.get(node_id)
        if member is None or member.backup != connector:
            return False
        self.set_backup(node_id, None)
        return True

    def update(self, news: Member, *, first_hand: bool = False) -> bool:
        """Take a description of another node, if it is newer than the known one; connectors that it does not have are
        kept.

        Args:
            news: The description.
            first_hand: Whether it comes from the described node itself, so a removal does not count against it.

        Returns:
            Whether the entry changed.

        Raises:
            RemoteProtocolError: a connector has no port number.
        """
        _check(news.primary)
        _check(news.backup)
        if news.node_id == self._own_id:
            return self._update_own(news, first_hand)
        known = self._members.get(news.node_id)
        if known is None:
            # at equal ids the removal wins: members that repeat both to each other would not end
            removed = self._removed.get(news.node_id)
            if not first_hand and removed is not None and news.event_id <= removed.event_id:
                return False
            return self._put(news)
        if known.primary is None and news.primary is not None:
            # the topology knew only the backup of the node, which the described node may not know
            backup = news.backup or (None if news.primary.same_place(known.backup) else known.backup)
            return self._put(replace(news, event_id=max(news.event_id, known.event_id) + 1, backup=backup))
        if news.event_id <= known.event_id:
            if not first_hand or news.primary is None or news.primary.same_place(known.primary):
                return False
            # the clock of this node of the pair is earlier than that of the one before
            news = replace(news, event_id=known.event_id + 1)
        primary = news.primary or known.primary
        backup = news.backup or known.backup
        if backup is not None and backup.same_place(primary):
            backup = None
        return self._put(replace(news, primary=primary, backup=backup))

    def _update_own(self, news: Member, first_hand: bool) -> bool:
        own = self._members[news.node_id]
        assert own.primary is not None
        if news.primary is not None and not own.primary.same_place(news.primary):
            # older news that another node gives describes the time before the activation of this node
            if first_hand or news.event_id > own.event_id:
                log.warning(
                    "there is a possible split brain: another node is active under the id of this node;"
                    " the topology update is ignored",
                    extra={"id": "AMQ222294", "node_id": news.node_id, "connector": news.primary.to_url()},
                )
            return False
        if news.event_id <= own.event_id:
            return False
        if news.backup is None or own.primary.same_place(news.backup):
            # other members have seen the higher event id, so changes of this node need a higher one
            return self._put(replace(own, event_id=news.event_id))
        return self._put(replace(own, event_id=news.event_id, backup=news.backup, backup_group=news.backup_group))

    def remove(self, node_id: str, event_id: int | None = None) -> bool:
        """Remove a member from the topology.

        Args:
            node_id: Node id of the member. That of this node is rejected while it is active.
            event_id: Id of the removal event; ignored if older than the entry. None: newer than the entry.

        Returns:
            Whether it was removed.
        """
        if node_id == self._own_id:
            log.info("removal of the own node ignored", extra={"id": "AMQ224135", "node_id": node_id})
            return False
        known = self._members.get(node_id)
        if known is None or (event_id is not None and event_id < known.event_id):
            return False
        event_id = known.event_id + 1 if event_id is None else event_id
        del self._members[node_id]
        self._announcers.pop(node_id, None)
        self._removed.pop(node_id, None)
        self._removed[node_id] = replace(known, event_id=event_id)
        if len(self._removed) > CLUSTER_NODES_MAX:
            del self._removed[next(iter(self._removed))]
        for _, removed in list(self._listeners):
            removed(node_id, event_id)
        return True

    def _put(self, member: Member) -> bool:
        if member.node_id not in self._members and (
            len(self._members) >= CLUSTER_NODES_MAX or len(member.node_id) > NODE_ID_CHARACTERS_MAX
        ):
            log.warning(
                "a node of the cluster is ignored: too many nodes, or its id is too long",
                extra={"nodes": len(self._members), "node_id": member.node_id[:NODE_ID_CHARACTERS_MAX]},
            )
            return False
        self._members[member.node_id] = member
        self._removed.pop(member.node_id, None)
        self.nodes_seen = max(self.nodes_seen, len(self._members))
        for changed, _ in list(self._listeners):
            changed(member)
        return True


def _check(connector: TransportConfiguration | None) -> None:
    """Read the port, which raises RemoteProtocolError unless it is a number: the connector will be dialled."""
    if connector is not None:
        connector.port  # noqa: B018  # read for its error
