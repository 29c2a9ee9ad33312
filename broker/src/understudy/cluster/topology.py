"""The members of the cluster: one entry per node id, shared by a primary and its backup.

Source: artemis-core s. 8.1, artemis-ha s. 7.3. Event ids are wall-clock milliseconds: an update counts
when it is newer than what is known, or supplies a connector that was missing.

Not here: how it is exchanged (``cluster.announcer``, ``protocols.core``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from understudy.wire.core.transport import TransportConfiguration


@dataclass(frozen=True, slots=True)
class Member:
    """One pair of servers as announced to clients."""

    node_id: str
    event_id: int
    """Wall-clock milliseconds of the latest update."""
    primary: TransportConfiguration | None = None
    """Connector of the active node."""
    backup: TransportConfiguration | None = None
    """Connector of the passive node."""
    backup_group: str | None = None
    scale_down_group: str | None = None


class Topology:
    """The known members; listeners are called for every change."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._listeners: list[Callable[[Member], None]] = []

    def members(self) -> list[Member]:
        """All members, in the order in which they were added."""
        return list(self._members.values())

    def member(self, node_id: str) -> Member | None:
        """The member of a node id, or None."""
        return self._members.get(node_id)

    def listen(self, listener: Callable[[Member], None]) -> Callable[[], None]:
        """Call ``listener`` with every changed member; the returned call ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def set_primary(self, node_id: str, connector: TransportConfiguration, event_id: int) -> None:
        """Set the connector of the active node of ``node_id``."""
        known = self._members.get(node_id) or Member(node_id, 0)
        # an active node is not a backup at the same time
        backup = None if known.backup == connector else known.backup
        self._put(replace(known, event_id=max(event_id, known.event_id + 1), primary=connector, backup=backup))

    def set_backup(
        self, node_id: str, connector: TransportConfiguration | None, event_id: int, group: str | None = None
    ) -> None:
        """Set the connector of the passive node of ``node_id``; None: it has none any more."""
        known = self._members.get(node_id) or Member(node_id, 0)
        self._put(replace(known, event_id=max(event_id, known.event_id + 1), backup=connector, backup_group=group))

    def clear(self) -> None:
        """Remove all members, when the node stops being active."""
        self._members.clear()

    def _put(self, member: Member) -> None:
        self._members[member.node_id] = member
        for listener in list(self._listeners):
            listener(member)
