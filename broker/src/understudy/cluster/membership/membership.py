"""The part of a node in its cluster: links to the other members, announcements, the topology they tell, and votes.

Source: artemis-ha s. 2.2, 2.3, 3.3, 7.1 to 7.3. A node keeps a link to each active node that it knows: those of its
static connectors, those that were discovered, and those of the topology. Every link subscribes to the topology of the
other node. An active node announces itself on its links; a passive one announces itself as the backup of its node id,
or only listens.

A member whose link is lost is removed from the topology, so that votes are answered correctly; its link goes on
trying. A removal that another member reports is ignored while the own link to that node is open.

An observer is called when a link has reached an active node, and when it is lost: it makes the bridge that messages
take (``cluster.balancing.flows``).

Not here: the connections (``cluster.membership.member_link``), the side that is dialled
(``protocols.core.cluster_channel``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import field
from enum import Enum, auto
from functools import partial
from typing import Protocol, TypeVar

from understudy.cluster.membership.credentials import ClusterCredentials
from understudy.cluster.membership.member_link import LinkSettings, MemberLink
from understudy.cluster.membership.topology import Member, Topology
from understudy.cluster.membership.unreached import UnreachedMembers
from understudy.dataclass import dataclass
from understudy.limits import CLUSTER_NODES_MAX
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import Clock, Timer, Timers
from understudy.store.log.format_version import FORMAT_VERSION
from understudy.wire.core import packets
from understudy.wire.core.peer import CONTROL_CHANNEL, Dialer
from understudy.wire.core.transport import TransportConfiguration

log = logging.getLogger(__name__)

_Place = tuple[str, int, str]
_Vote = TypeVar("_Vote", packets.FailoverVote, packets.BackupVote)


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    """Settings of a cluster-connection; the defaults are its own (artemis-ha s. 7.2)."""

    link: LinkSettings = field(default_factory=LinkSettings)
    initial_connect_attempts: int = -1
    """Limit for a static connector that never answered, while no other member is connected; -1: no limit."""
    reconnect_attempts: int = -1
    """Limit for a member that was connected; -1: no limit."""
    topology_scanner_attempts: int = 30
    """Limit for a static connector that never answered, while another member is connected; -1: no limit."""
    notification_interval_ms: int = 1_000
    notification_attempts: int = 2
    """Repeated announcements after joining."""
    direct_connections_only: bool = False
    """Whether only static connectors are dialled (allow-direct-connections-only)."""
    group: str | None = None
    """group-name of the replication."""
    statics: tuple[TransportConfiguration, ...] = ()
    """Static connectors; that of this node is left out."""
    shares_connector: bool = False
    """The server that hosts this node has the same connector: it is a member like any other."""


class LinkObserver(Protocol):
    """Uses the links of a node to other active nodes."""

    def link_identified(self, link: MemberLink) -> None:
        """The node at the other end has said under which id it is active; perhaps once more."""

    def link_received(self, link: MemberLink, packet: packets.Packet) -> None:
        """A packet that does not concern the topology. Raises BrokerError: the connection is closed."""

    def link_lost(self, link: MemberLink) -> None:
        """The connection ended, or could not be made; perhaps once more."""


class State(Enum):
    """Parts of a node in the cluster."""

    ABSENT = auto()
    WATCHING = auto()
    """The node is passive and learns the topology without announcing itself."""
    ANNOUNCING = auto()
    """The node is passive and announces itself as backup of its node id."""
    JOINED = auto()
    """The node is active and a member of the cluster."""


class Event(Enum):
    """Events of the membership of a node."""

    WATCH = auto()
    ANNOUNCE = auto()
    JOIN = auto()
    LEAVE = auto()


class Membership(Machine[State, Event]):
    """Membership of one node in the cluster. Implements ``member_link.LinkOwner``."""

    STATES = State
    EVENTS = Event
    INITIAL = State.ABSENT

    def __init__(
        self,
        topology: Topology,
        own: TransportConfiguration,
        settings: MembershipSettings,
        credentials: ClusterCredentials,
        dialer: Dialer,
        clock: Clock,
        timers: Timers,
    ) -> None:
        """No connection is made before the first call.

        Args:
            topology: Topology of the node; takes the reports of other members.
            own: Connector by which the others reach this node.
            settings: Settings of the cluster-connection.
            dialer: Opens connections.
            clock: Used for event ids and silence.
        """
        super().__init__()
        self.node_id = ""
        self.links: dict[_Place, MemberLink] = {}
        """Links by host, port and name of the server there."""
        self.on_twin: Callable[[TransportConfiguration, bool], None] | None = None
        """Called with the connector of a node that is active under the id of this one, and whether this is younger."""
        self.pair_state: Callable[[], packets.PairState | None] = lambda: None
        """State of the replicated pair while this node is active; None: it has no replicated pair."""
        self.unreached = UnreachedMembers()
        self._observer: LinkObserver | None = None
        self._topology = topology
        self._own = own
        self._statics = [each for each in settings.statics if settings.shares_connector or not each.same_place(own)]
        self._discovered: list[TransportConfiguration] = []
        self._settings = settings
        self._credentials = credentials
        self._dialer = dialer
        self._clock = clock
        self._timers = timers
        self._given_up: set[_Place] = set()
        """Candidates that are not tried again while another member is connected."""
        self._twins: dict[_Place, int] = {}
        """Event ids of nodes that are active under the id of this one, until it is known which is the younger."""
        self._unlisten: Callable[[], None] | None = None
        self._timer: Timer | None = None
        self._updating = False

    # --- for the node ----------------------------------------------------------------------------

    def watch(self, node_id: str) -> None:
        """Passive: learn the topology from the members. ``node_id``: of the own pair, empty until it is known."""
        self.node_id = node_id
        self.fire(Event.WATCH)

    def announce(self, node_id: str) -> None:
        """Passive: announce this node as the backup of ``node_id`` to every member that it reaches."""
        self.node_id = node_id
        self.fire(Event.ANNOUNCE)

    def join(self, node_id: str) -> None:
        """Active: announce this node, whose entry is in the topology already, to every member; again when its replica
        has come into sync."""
        self.node_id = node_id
        self.fire(Event.JOIN)

    def observe(self, observer: LinkObserver | None) -> None:
        """Call the observer from the next ``join`` on with the links to other active nodes, also those that are there
        already; None: no observer.
        """
        self._observer = observer

    def tell_scaled_down(self, node_id: str) -> None:
        """Announce to the other members that this node has the messages of ``node_id``."""
        for link in self.links.values():
            link.send(packets.ScaleDownAnnouncement(self.node_id, node_id))

    def leave(self) -> None:
        """Close all links; the topology stays as it is."""
        self.fire(Event.LEAVE)

    def set_discovered(self, connectors: Sequence[TransportConfiguration]) -> None:
        """Connectors at which nodes were discovered, instead of those of the last call.

        They are dialled like static ones. A connector that is no longer among them is not dialled any more, unless it
        was connected or is in the topology.
        """
        before = {_place(each) for each in self._discovered}
        self._discovered = [each for each in connectors if not self._leads_here(each)][:CLUSTER_NODES_MAX]
        now = {_place(each) for each in self._discovered}
        # a node that is heard again is tried again
        self._given_up -= now - before
        for place in before - now:
            link = self.links.get(place)
            if link is not None and not link.ever_joined and not self._is_candidate(link.target):
                self._end_link(place)
        self._update_links()

    def _candidates(self) -> list[TransportConfiguration]:
        """Connectors of nodes whose node ids are not known."""
        return [*self._statics, *self._discovered]

    def _is_candidate(self, connector: TransportConfiguration) -> bool:
        return any(map(connector.same_place, self._candidates()))

    @property
    def announced_to(self) -> TransportConfiguration | None:
        """The active node that knows this passive one as its backup, or None."""
        if self.state is not State.ANNOUNCING:
            return None
        joined = [link for link in self.links.values() if link.joined and link.node_id in (None, self.node_id)]
        joined.sort(key=lambda link: link.node_id is None)
        return joined[0].target if joined else None

    def static_links(self) -> list[MemberLink | None]:
        """The links to the static connectors; None for one that is not dialled."""
        return [self.links.get(_place(each)) for each in self._statics]

    # --- votes -----------------------------------------------------------------------------------

    def put_vote(
        self,
        vote: packets.FailoverVote,
        cast: Callable[[packets.FailoverVote | None], None],
        all_cast: Callable[[], None],
    ) -> Callable[[], None]:
        """Ask the active node of every other node id (artemis-ha s. 3.3).

        Args:
            vote: The request.
            cast: Called with each answer; None: the node is unreachable.
            all_cast: Called once after the last ``cast``, perhaps before the return.

        Returns:
            A call that ends the request; nothing is called after it.
        """
        log.info("votes requested", extra={"nodes": len(self._others()), "node_id": vote.node_id})
        return self._put(packets.QuorumVote(packets.PRIMARY_FAILOVER_VOTE, vote), packets.FailoverVote, cast, all_cast)

    def ask_for_hosts(
        self, cast: Callable[[packets.BackupVote | None], None], all_cast: Callable[[], None]
    ) -> Callable[[], None]:
        """Ask every other active node whether it can host a backup of this one (artemis-ha s. 5).

        Args and return value as of ``put_vote``.
        """
        vote = packets.BackupVote(node_id=self.node_id)
        return self._put(packets.QuorumVote(packets.BACKUP_VOTE, vote), packets.BackupVote, cast, all_cast)

    def request_backup(
        self, host: str, request: packets.BackupRequest, answered: Callable[[bool], None]
    ) -> Callable[[], None]:
        """Ask an active node to host a backup of this one.

        Args:
            answered: Called once, perhaps before the return: whether the node hosts it.

        Returns:
            A call that ends the request; ``answered`` is not called after it.
        """
        link = self._link_to(self._topology.member(host))
        if link is None:
            answered(False)
            return lambda: None

        def reply(packet: packets.Packet | None) -> None:
            answered(isinstance(packet, packets.BackupResponse) and packet.started)

        return link.ask(request, packets.BackupResponse, reply)

    def _others(self) -> list[Member]:
        return [each for each in self._topology.members() if each.node_id != self.node_id]

    def _link_to(self, member: Member | None) -> MemberLink | None:
        return None if member is None or member.primary is None else self.links.get(_place(member.primary))

    def _put(
        self,
        request: packets.QuorumVote,
        kind: type[_Vote],
        cast: Callable[[_Vote | None], None],
        all_cast: Callable[[], None],
    ) -> Callable[[], None]:
        asked = self._others()
        missing, ended = len(asked), False
        cancels: list[Callable[[], None]] = []

        def answered(packet: packets.Packet | None) -> None:
            nonlocal missing
            if ended:
                return
            missing -= 1
            vote = packet.vote if isinstance(packet, packets.QuorumVoteReply) else None
            cast(vote if isinstance(vote, kind) else None)
            if missing == 0 and not ended:
                all_cast()

        def cancel() -> None:
            nonlocal ended
            ended = True
            for each in cancels:
                each()

        if not asked:
            all_cast()
        for member in asked:
            link = self._link_to(member)
            if link is None or (kind is packets.BackupVote and link.is_plain):
                answered(None)
            else:
                cancels.append(link.ask(request, packets.QuorumVoteReply, answered))
        return cancel

    # --- LinkOwner -------------------------------------------------------------------------------

    def link_joined(self, link: MemberLink) -> None:
        """Announce this node and subscribe to the topology, in this order (artemis-core s. 9.1)."""
        self.unreached.reached(link)
        self._topology.names.joined(link, self._own)
        self._announce_on(link)
        link.send(packets.SubscribeTopologyV2(cluster_connection=True), CONTROL_CHANNEL)

    def link_received(self, link: MemberLink, packet: packets.Packet) -> None:
        """Take an update of the topology, or the name of the other node; other packets are for the observer."""
        if not isinstance(packet, packets.ClusterTopologyV2):
            parts = (self._topology.names, self._topology.endpoints, self._topology.moves)
            taken = any(each.take(link, packet) for each in parts)
            if not taken and self._observer is not None:
                self._observer.link_received(link, packet)
            return
        if packet.exit:
            self._removal_reported(link, packet)
            return
        scale_down = packet.scale_down_group_name if isinstance(packet, packets.ClusterTopologyV3) else None
        backup, group = packet.backup, packet.backup_group_name
        news = Member(packet.node_id, packet.unique_event_id, packet.primary, backup, group, scale_down)
        first_hand = link.target.same_place(packet.primary)
        if first_hand:
            link.node_id = packet.node_id
            self.unreached.reached(link)
            self._check_twin(link, packet)
            if self._observer is not None and packet.node_id != self.node_id:
                self._observer.link_identified(link)
        self._topology.update(news, first_hand=first_hand)

    def _check_twin(self, link: MemberLink, packet: packets.ClusterTopologyV2) -> None:
        """Check a node that claims to be active under the node id of this node (``packet.node_id``)."""
        if packet.node_id != self.node_id or self.state is not State.JOINED or link.target.same_place(self._own):
            return
        waiting = _place(link.target) in self._twins
        self._twins[_place(link.target)] = packet.unique_event_id
        if not waiting:
            # both nodes may still raise their event ids by the announcements after their start
            attempts = self._settings.notification_attempts + 1
            delay_ms = attempts * self._settings.notification_interval_ms
            self._timers.call_later(delay_ms, partial(self._judge_twin, link))

    def _judge_twin(self, link: MemberLink) -> None:
        event_id = self._twins.pop(_place(link.target), None)
        own = self._topology.member(self.node_id)
        if event_id is None or own is None or self.state is not State.JOINED or not link.joined:
            return
        younger = (own.event_id, _place(self._own)) > (event_id, _place(link.target))
        log.error(
            "another node is active under the node id of this one",
            extra={"id": "AMQ222294", "node_id": self.node_id, "at": link.target.to_url(), "younger": younger},
        )
        if self.on_twin is not None:
            self.on_twin(link.target, younger)

    def _removal_reported(self, link: MemberLink, packet: packets.ClusterTopologyV2) -> None:
        for other in self.links.values():
            if other is not link and other.node_id == packet.node_id and other.joined:
                # the other member has lost its link to this node, this node has not lost the other way
                return
        self._topology.remove(packet.node_id, packet.unique_event_id)

    def link_lost(self, link: MemberLink, *, joined: bool, dismissed: bool) -> None:
        """Remove the member; stop after the configured attempts, or if the node said that it stops."""
        self._topology.endpoints.forget(link)
        self._topology.names.lost(link, stopped=joined and dismissed)
        if self._observer is not None:
            self._observer.link_lost(link)
        for member in self._topology.members():
            if link.target.same_place(member.primary):
                fields = {"node_id": member.node_id, "at": link.target.to_url(), "stopped": dismissed}
                log.warning("member of the cluster lost", extra=fields)
                self._topology.remove(member.node_id)
        self.unreached.failed(link)
        link.rest(self._topology.replaced, node_is_active=self.state is State.JOINED)
        if joined and not any(each.joined for each in self.links.values()):
            # no member is left that would report the others: look for all of them again
            self._given_up.clear()
        static = self._is_candidate(link.target)
        if dismissed and not static:
            self._end_link(_place(link.target))
        elif self._exhausted(link, static):
            log.warning("attempts to connect are exhausted", extra={"to": link.target.to_url()})
            self._given_up.add(_place(link.target))
            self._end_link(_place(link.target))
        self._update_links()

    def _exhausted(self, link: MemberLink, static: bool) -> bool:
        settings = self._settings
        if self.state is not State.JOINED:
            return False
        if link.ever_joined:
            # A static connector of a node that stopped is tried as at the start (Artemis: ServerLocatorImpl). The loss
            # of the connection was no attempt.
            anew = static and link.stopped
            limit = settings.initial_connect_attempts if anew else settings.reconnect_attempts
            return 0 <= limit < link.failures
        if static and any(each.joined for each in self.links.values()):
            limit = settings.topology_scanner_attempts
        else:
            limit = settings.initial_connect_attempts
        return 0 <= limit <= link.failures

    # --- links -------------------------------------------------------------------------------------

    def _update_links(self) -> None:
        """Make the links that the topology and the static connectors ask for, and end those that were replaced."""
        if self._updating or self.state is State.ABSENT:
            return
        self._updating = True
        try:
            wanted = self._wanted()
            for place, link in list(self.links.items()):
                if place not in wanted and self._replaced(link):
                    self._end_link(place)
            for place, (connector, node_id) in wanted.items():
                link = self.links.get(place) or self._make_link(place, connector)
                link.node_id = node_id or link.node_id
                link.start()
        finally:
            self._updating = False

    def _leads_here(self, connector: TransportConfiguration) -> bool:
        return connector.same_place(self._own) and not self._settings.shares_connector

    def _wanted(self) -> dict[_Place, tuple[TransportConfiguration, str | None]]:
        wanted: dict[_Place, tuple[TransportConfiguration, str | None]] = {}
        for each in self._candidates():
            if not self._topology.lists(each) and _place(each) not in self._given_up:
                wanted[_place(each)] = (each, None)
        for member in self._topology.members():
            if member.primary is None or self._leads_here(member.primary):
                continue
            if not self._settings.direct_connections_only or self._is_candidate(member.primary):
                wanted[_place(member.primary)] = (member.primary, member.node_id)
        return wanted

    def _replaced(self, link: MemberLink) -> bool:
        """Whether another node is active in the place of the other side, or the other side is passive."""
        if link.node_id is not None:
            member = self._topology.member(link.node_id)
            if member is not None and member.primary is not None and not link.target.same_place(member.primary):
                return True
        return not link.joined and self._topology.lists(link.target)

    def _make_link(self, place: _Place, connector: TransportConfiguration) -> MemberLink:
        link = MemberLink(
            self, connector, self._settings.link, self._credentials, self._dialer, self._clock, self._timers
        )
        self.links[place] = link
        return link

    def _end_link(self, place: _Place) -> None:
        link = self.links.pop(place)
        link.stop()
        self._topology.endpoints.forget(link)
        if self._observer is not None:
            self._observer.link_lost(link)

    # --- announcements -----------------------------------------------------------------------------

    def _announce_on(self, link: MemberLink) -> None:
        self._topology.endpoints.state(link, self.node_id, active=self.state is State.JOINED)
        if self.state is State.ANNOUNCING:
            announcement = packets.NodeAnnounce(
                node_id=self.node_id,
                backup_group_name=self._settings.group,
                backup=True,
                current_event_id=self._clock.wall_ms(),
                connector=self._own,
            )
            # first: what a node reads that follows without this is not known
            link.send(packets.QuorumVote(packets.STORE_FORMAT, packets.StoreFormat(FORMAT_VERSION)))
            log.info("backup announced", extra={"to": link.target.to_url(), "id": "AMQ221031"})
        elif self.state is State.JOINED:
            own = self._topology.member(self.node_id) or Member(self.node_id, self._clock.wall_ms(), self._own)
            state = self.pair_state()
            if state is not None:
                # set first, as the following calls count for this sequence
                link.send(packets.QuorumVote(packets.PAIR_STATE, state))
            announcement = packets.NodeAnnounce(
                node_id=self.node_id,
                backup_group_name=own.backup_group or self._settings.group,
                backup=False,
                current_event_id=own.event_id,
                connector=self._own,
                backup_connector=own.backup if state is None or state.in_sync else None,
                scale_down_group_name=own.scale_down_group,
            )
        else:
            return
        link.send(announcement)

    def _announce_again(self, left: int) -> None:
        """Repeat the announcement: two nodes that start together may have missed it."""
        self._topology.set_primary(self.node_id, self._own, self._clock.wall_ms())
        self._announce_on_all()
        self._later(left - 1)

    def _later(self, left: int) -> None:
        self._timer = None
        if left > 0:
            interval_ms = self._settings.notification_interval_ms
            self._timer = self._timers.call_later(interval_ms, partial(self._announce_again, left))

    def _announce_on_all(self) -> None:
        for link in list(self.links.values()):
            self._announce_on(link)

    # --- actions ---------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._unlisten = self._topology.listen(
            lambda member: self._update_links(), lambda node_id, event_id: self._update_links()
        )
        self._update_links()

    def _begin_active(self) -> None:
        self._begin()
        self._later(self._settings.notification_attempts)

    def _change_part(self) -> None:
        self._announce_on_all()

    def _become_active(self) -> None:
        self._announce_on_all()
        self._update_links()
        self._later(self._settings.notification_attempts)
        if self._observer is not None:
            # only now the node id is that of the present data: a backup without a group-name may have been a replica of
            # the node at the other end before, and have its node id until here
            for link in list(self.links.values()):
                if link.joined and link.node_id not in (None, self.node_id):
                    self._observer.link_identified(link)

    def _end(self) -> None:
        if self._unlisten is not None:
            self._unlisten()
            self._unlisten = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for place in list(self.links):
            self._end_link(place)
        self._given_up.clear()
        self.unreached.by_node.clear()
        self._twins.clear()

    # The table comes last: it names the functions above.
    TABLE = table(
        State,
        Event,
        {
            (State.ABSENT, Event.WATCH): To(State.WATCHING, _begin),
            (State.ABSENT, Event.ANNOUNCE): To(State.ANNOUNCING, _begin),
            (State.ABSENT, Event.JOIN): To(State.JOINED, _begin_active),
            (State.ABSENT, Event.LEAVE): IGNORED,
            (State.WATCHING, Event.WATCH): To(State.WATCHING, _announce_on_all),
            (State.WATCHING, Event.ANNOUNCE): To(State.ANNOUNCING, _change_part),
            (State.WATCHING, Event.JOIN): To(State.JOINED, _become_active),
            (State.WATCHING, Event.LEAVE): To(State.ABSENT, _end),
            # the other members keep the announcement until the link ends: a node that is not in sync has to leave
            (State.ANNOUNCING, Event.WATCH): ILLEGAL,
            (State.ANNOUNCING, Event.ANNOUNCE): IGNORED,
            (State.ANNOUNCING, Event.JOIN): To(State.JOINED, _become_active),
            (State.ANNOUNCING, Event.LEAVE): To(State.ABSENT, _end),
            (State.JOINED, Event.WATCH): ILLEGAL,
            (State.JOINED, Event.ANNOUNCE): ILLEGAL,
            (State.JOINED, Event.JOIN): To(State.JOINED, _announce_on_all),
            (State.JOINED, Event.LEAVE): To(State.ABSENT, _end),
        },
        otherwise={},
    )


def _place(connector: TransportConfiguration) -> _Place:
    return connector.host, connector.port, connector.server_name
