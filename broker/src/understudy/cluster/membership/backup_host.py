"""The port between the cluster channel of a connection and the backups that this node hosts (ADR 0073)."""

from __future__ import annotations

from typing import Protocol

from understudy.dataclass import dataclass
from understudy.wire.core import packets
from understudy.wire.core.transport import TransportConfiguration


@dataclass(frozen=True, slots=True)
class Requester:
    """A node that asks for a backup, as it has announced itself on its connection."""

    node_id: str
    connector: TransportConfiguration
    group: str | None
    """Element group-name of the requesting node's replication; None: it has none."""


class BackupHost(Protocol):
    """Hosts backups of other nodes; ``cluster.colocation.hosting`` implements it."""

    def vote(self, asking: str | None) -> packets.BackupVote:
        """Whether this node can host a backup of the asking node, whose node id may be unknown."""
        ...

    def host(self, requester: Requester, request: packets.BackupRequest) -> str | None:
        """Start a backup of the requesting node. None: this node hosts it, perhaps since before; else the reason why
        it does not.
        """
        ...
