"""The nodes that were heard in a discovery group.

Rules of Artemis (artemis-ha s. 7.1): one entry per node id, replaced by the next broadcast of the node id, removed
after the refresh timeout; of several connectors the last one is used. A node id that two broadcasters use gives the
warning AMQ212034.

Datagrams are not authenticated. An entry is an address to connect to and nothing more; the number of entries is
limited, in total and per sending address.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from enum import StrEnum

from understudy.dataclass import dataclass
from understudy.errors import ProtocolError
from understudy.limits import BROADCAST_NODES_MAX, BROADCAST_NODES_PER_SOURCE_MAX
from understudy.wire.core.broadcast import Broadcast, is_usable
from understudy.wire.core.transport import TransportConfiguration

log = logging.getLogger(__name__)

_SAME_NODE_ID = (
    "more than one server on the network broadcasts the same node id; once after the restart of a server this can be"
    " ignored, if it is repeated two servers are active with one node id"
)


Warn = Callable[[str, Mapping[str, object]], None]
"""Called with a line for the operator and its values."""


def log_warning(text: str, values: Mapping[str, object]) -> None:
    """Write a line to the log."""
    log.warning(text, extra=dict(values))


class Outcome(StrEnum):
    """Result of a datagram."""

    ADDED = "added"
    """The datagram added an entry for a node."""
    CHANGED = "changed"
    """The datagram changed the connector or the broadcaster of an entry."""
    REFRESHED = "refreshed"
    OWN = "own"
    """A broadcast of this node."""
    UNUSABLE = "unusable"
    """None of the connectors in the datagram leads to a host and a port."""
    DAMAGED = "damaged"
    """The datagram is no broadcast."""
    REJECTED = "rejected"
    """The group has too many entries to add another one."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One node that broadcasts were received from."""

    node_id: str
    broadcaster_id: str
    connectors: tuple[TransportConfiguration, ...]
    """Connectors that lead to a host and a port, at least one."""
    heard_ms: int
    """Monotonic time of the last broadcast."""
    source: str
    """Address of the node that sent the datagram."""

    @property
    def connector(self) -> TransportConfiguration:
        """The connector to be used: the last one, as in Artemis."""
        return self.connectors[-1]


class Entries:
    """Entries of one discovery group."""

    def __init__(
        self,
        group: str,
        refresh_timeout_ms: int,
        is_own: Callable[[str], bool] = lambda broadcaster_id: False,
        warn: Warn = log_warning,
    ) -> None:
        """Args:
        refresh_timeout_ms: Silence after which an entry is removed.
        is_own: Whether a broadcaster id is one of this node.
        warn: Called with warnings.
        """
        self._group = group
        self._refresh_timeout_ms = refresh_timeout_ms
        self._is_own = is_own
        self._warn = warn
        self._entries: dict[str, Entry] = {}
        self._warned: dict[str, int] = {}
        """Monotonic time of the last warning about a node id of the entries."""
        self.own_node_id: str | None = None
        """Node id of this node while it is active: no other broadcaster may use it."""
        self.outcomes: Counter[Outcome] = Counter()
        """Number of datagrams for each outcome."""
        self.duplicates = 0
        """Broadcasts of a node id by another broadcaster than before."""

    def receive(self, data: bytes, source: str, now_ms: int) -> Outcome:
        """Take a datagram of the group.

        Args:
            source: Address of its sender; empty: not known.
            now_ms: Present monotonic time.
        """
        outcome = self._receive(data, source, now_ms)
        self.outcomes[outcome] += 1
        return outcome

    def _receive(self, data: bytes, source: str, now_ms: int) -> Outcome:
        try:
            broadcast = Broadcast.decode(data)
        except ProtocolError as error:
            if not self.outcomes[Outcome.DAMAGED]:
                values = {"group": self._group, "from": source, "error": str(error)}
                self._warn("datagram that is no broadcast of connectors; further ones are only counted", values)
            return Outcome.DAMAGED
        if self._is_own(broadcast.broadcaster_id):
            return Outcome.OWN
        connectors = tuple(filter(is_usable, broadcast.connectors))
        if not connectors:
            return Outcome.UNUSABLE
        node_id = broadcast.node_id
        known = self._entries.get(node_id)
        if known is None and self._full(source):
            if not self.outcomes[Outcome.REJECTED]:
                self._warn(
                    "too many nodes are broadcast; further ones are ignored",
                    {"group": self._group, "from": source, "nodes": len(self._entries)},
                )
            return Outcome.REJECTED
        replaced = known is not None and known.broadcaster_id != broadcast.broadcaster_id
        if replaced or node_id == self.own_node_id:
            self._duplicate(node_id, now_ms)
        entry = Entry(node_id, broadcast.broadcaster_id, connectors, now_ms, source)
        self._entries[node_id] = entry
        if known is None:
            return Outcome.ADDED
        return Outcome.REFRESHED if not replaced and known.connector == entry.connector else Outcome.CHANGED

    def _full(self, source: str) -> bool:
        if len(self._entries) >= BROADCAST_NODES_MAX:
            return True
        return (
            bool(source)
            and sum(each.source == source for each in self._entries.values()) >= BROADCAST_NODES_PER_SOURCE_MAX
        )

    def _duplicate(self, node_id: str, now_ms: int) -> None:
        """Count and log that two broadcasters use a node id; logged once per refresh timeout."""
        self.duplicates += 1
        warned_ms = self._warned.get(node_id)
        if warned_ms is None or warned_ms + self._refresh_timeout_ms <= now_ms:
            self._warned[node_id] = now_ms
            self._warn(_SAME_NODE_ID, {"id": "AMQ212034", "group": self._group, "node_id": node_id})

    def expire(self, now_ms: int) -> bool:
        """Remove the entries that were not heard within the refresh timeout; whether there were any."""
        oldest_ms = now_ms - self._refresh_timeout_ms
        expired = [key for key, entry in self._entries.items() if entry.heard_ms <= oldest_ms]
        for node_id in expired:
            del self._entries[node_id]
        for node_id in [key for key, warned_ms in self._warned.items() if warned_ms <= oldest_ms]:
            del self._warned[node_id]
        return bool(expired)

    def next_expiry_ms(self) -> int | None:
        """Monotonic time at which the next entry is removed; None without entries."""
        if not self._entries:
            return None
        return min(each.heard_ms for each in self._entries.values()) + self._refresh_timeout_ms

    def clear(self) -> None:
        """Remove all entries; the counts remain."""
        self._entries.clear()
        self._warned.clear()

    def all(self) -> list[Entry]:
        """The entries, in the order in which they were added."""
        return list(self._entries.values())
