"""The other nodes of the cluster at which a client of AMQP 0-9-1 may go on (ADR 0194).

The first entries are those of the passive node of the own pair: it takes over the queues of this node. It does not
accept connections before that, so its entries count as it states them on its link. The other entries are active nodes;
each was reached by this node at the stated place (``endpoint_checks``). They come in random order, so that the clients
of a node that ends go to different ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from understudy.cluster.membership.client_endpoints import ClientEndpoint, EndpointDialer
from understudy.cluster.membership.topology import Member, Topology
from understudy.ports import Entropy, Timers
from understudy.protocols.amqp091.endpoint_checks import EndpointChecks, Place
from understudy.wire.detect import Protocol

#: Most entries in a list.
_ENTRIES_MAX: Final = 10
#: Bytes of a short string, in which connection.open-ok has the list.
_TEXT_BYTES_MAX: Final = 255
#: Longer entries are left out: their length is one byte of UTF-8 in the messages of amq.qpid.
_ENTRY_BYTES_MAX: Final = 127


class KnownHosts:
    """Known hosts of the members of one cluster network, while this node is active."""

    def __init__(
        self, node_id: str, topology: Topology, dialer: EndpointDialer | None, timers: Timers, entropy: Entropy
    ) -> None:
        """Check the places of other nodes from now on.

        Args:
            node_id: Id under which this node is active.
            topology: Members of the cluster, with the places that they state.
            dialer: Connects to places; None without a cluster.
            timers: Begin the checks that come later.
            entropy: Used for the order of the entries.
        """
        self._node_id = node_id
        self._topology = topology
        self._entropy = entropy
        self._checks = EndpointChecks(dialer, timers, self._changed)
        self._listeners: list[Callable[[], None]] = []
        self._notified: tuple[str, ...] = ()
        """Sorted entries at the last call of the listeners."""
        self._closed = False
        topology.endpoints.listen(self._look)
        self._unlisten = topology.listen(self._member_changed, self._member_removed)
        self._look()

    def listen(self, changed: Callable[[], None]) -> None:
        """Make a call when the entries have changed."""
        self._listeners.append(changed)

    def entries(self, *, tls: bool) -> list[str]:
        """Entries ``host:port``, or ``amqps:host:port`` with TLS.

        Args:
            tls: Whether entries with TLS are listed, too.
        """
        first = self._topology.endpoints.passive(self._node_id, Protocol.AMQP091.name) if self._has_backup() else ()
        others = [each.endpoint for each in self._places() if self._checks.reached(each)]
        others.sort(key=lambda endpoint: self._entropy.token(8))
        entries = dict.fromkeys(entry_of(each) for each in (*first, *others) if tls or not each.tls)
        return [each for each in entries if len(each.encode()) <= _ENTRY_BYTES_MAX][:_ENTRIES_MAX]

    def text(self, *, tls: bool) -> str:
        """The entries with commas between them, as many as connection.open-ok can hold."""
        return joined(self.entries(tls=tls))

    def close(self) -> None:
        """End the checks and calls."""
        self._closed = True
        self._unlisten()
        self._topology.endpoints.unlisten(self._look)
        self._checks.close()

    def _has_backup(self) -> bool:
        own = self._topology.member(self._node_id)
        return own is not None and own.backup is not None

    def _places(self) -> list[Place]:
        found = []
        for node_id, endpoints in self._topology.endpoints.active(Protocol.AMQP091.name).items():
            member = self._topology.member(node_id)
            if node_id != self._node_id and member is not None and member.primary is not None:
                found += [Place(node_id, each) for each in endpoints]
        return found

    def _member_changed(self, member: Member) -> None:
        self._look()

    def _member_removed(self, node_id: str, event_id: int) -> None:
        self._look()

    def _look(self) -> None:
        if not self._closed:
            self._checks.check(self._places())
            self._changed()

    def _changed(self) -> None:
        entries = tuple(sorted(self.entries(tls=True)))
        if entries != self._notified:
            self._notified = entries
            for changed in list(self._listeners):
                changed()


def joined(entries: Iterable[str], before: str = "") -> str:
    """Entries with commas between them, after ``before``: as many whole ones as a short string can hold."""
    text, separator = before, ""
    for entry in entries:
        longer = f"{text}{separator}{entry}"
        if len(longer.encode()) <= _TEXT_BYTES_MAX:
            text, separator = longer, ","
    return text


def entry_of(endpoint: ClientEndpoint) -> str:
    """A place as an entry of the list; an IPv6 address gets brackets."""
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{'amqps:' if endpoint.tls else ''}{host}:{endpoint.port}"
