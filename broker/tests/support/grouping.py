"""Grouping handlers over the routing tests' world, and another member that only a test plays."""

from __future__ import annotations

from typing import Any

from support.routing import World
from understudy.cluster.balancing.group_notices import GroupNotice, read_group_notice
from understudy.cluster.balancing.groups import GroupParts, Groups, LocalGroups, RemoteGroups
from understudy.cluster.balancing.notices import TYPE
from understudy.cluster.balancing.remote_bindings import RemoteBindings
from understudy.config.grouping import GroupingConfiguration, GroupingType
from understudy.properties import Properties, PropertyValue
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.queues.queue import Queue
from understudy.routing.remote import RemoteBinding
from understudy.terms import MessageLoadBalancing, RoutingType

HERE = "00000000-2222-3333-4444-555555555555"
THERE = "11111111-2222-3333-4444-555555555555"


class GroupingNode:
    """A node with a grouping handler; implements ``GroupNotifications``."""

    def __init__(
        self, kind: str, *, node_id: str = HERE, world: World | None = None, max_hops: int = 1, **settings: Any
    ) -> None:
        self.world = world or World(automatic=False)
        office = self.world.office
        self.published: list[GroupNotice] = []
        self.bindings = RemoteBindings(office.directory, lambda address: MessageLoadBalancing.STRICT)
        handler = GroupingConfiguration("groups", GroupingType(kind), **settings)
        parts = GroupParts(
            office.directory,
            office.store,
            self.world.clock,
            self.world.clock,
            self,
            self.bindings.by_name,
            node_id,
            max_hops,
        )
        self.groups: Groups = LocalGroups(handler, parts) if kind == "LOCAL" else RemoteGroups(handler, parts)
        self.bindings.decisions = self.groups
        self.bindings.listeners.append(self.groups)
        self.decided: list[str] = []
        """Names of the asks that may go on, in the order in which they were called."""

    def group_noticed(self, kind: str, properties: dict[str, PropertyValue]) -> None:
        found = read_group_notice(Properties({TYPE: kind, **properties}))
        assert found is not None
        self.published.append(found)

    def heard(self, kind: str, key: str, queue: str | None, alternative: str | None = None, distance: int = 0) -> None:
        """A notification of the other member."""
        self.groups.heard(GroupNotice(kind, key, queue, alternative, distance), THERE)

    def ask(self, key: str, *queues: str, name: str = "") -> bool:
        """Whether a message of a group may go on; otherwise it waits. The first queue is proposed."""
        waits = self.groups.ask(key, queues, lambda: queues[0])
        if waits is not None:
            waits.when_decided(lambda: self.decided.append(name or key))
        return waits is None

    def remote(self, name: str = "q", remote_id: int = 11) -> RemoteBinding:
        """A queue of the other member, known from now on."""
        directory = self.world.office.directory
        flow: Queue | None = directory.queues.get(f"sf.{THERE}")
        if flow is None:
            flow = directory.create_queue(
                QueueConfiguration(f"sf.{THERE}", f"sf.{THERE}", RoutingType.MULTICAST, internal=True),
                may_create_address=True,
            )
        binding = RemoteBinding(
            name + THERE,
            name,
            name,
            remote_id=remote_id,
            binding_id=1_000 + remote_id,
            distance=1,
            queue=flow,
            filter=None,
        )
        assert self.bindings.add(binding)
        return binding

    def sync(self) -> None:
        self.world.store.sync()
