"""Nodes of one cluster: the real dialling side and the real cluster channel, over a network in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from support.cluster_links import PASSWORD
from support.core import CoreNode
from understudy.cluster.membership.backup_host import Requester
from understudy.cluster.membership.credentials import ClusterCredentials
from understudy.cluster.membership.membership import Membership, MembershipSettings
from understudy.ports import OutputSealer, Security
from understudy.protocols.core.connection import CoreConnection
from understudy.testing.manual_time import ManualTime
from understudy.wire.core import packets
from understudy.wire.core.codec import MAGIC
from understudy.wire.core.peer import Link
from understudy.wire.core.transport import TransportConfiguration


class Entropy:
    """Values that no other object of the class gives."""

    made = 0

    def __init__(self) -> None:
        Entropy.made += 1
        self.calls = Entropy.made << 32

    def token(self, length_bytes: int) -> bytes:
        self.calls += 1
        return self.calls.to_bytes(length_bytes)


def connector(host: str) -> TransportConfiguration:
    return TransportConfiguration(f"to-{host}", parameters={"host": host, "port": "61616"})


class Network:
    """Hosts and the connections between them; bytes travel when ``settle`` is called."""

    def __init__(self) -> None:
        self.time = ManualTime()
        self.nodes: dict[str, Node] = {}
        self.cuts: set[frozenset[str]] = set()
        self.queue: deque[Callable[[], None]] = deque()
        self.pipes: list[Pipe] = []
        self.dials: list[tuple[str, str]] = []

    def node(
        self, host: str, *statics: str, settings: MembershipSettings | None = None, password: str = PASSWORD
    ) -> Node:
        self.nodes[host] = Node(self, host, statics, settings or MembershipSettings(), password)
        return self.nodes[host]

    def settle(self) -> None:
        while self.queue:
            self.queue.popleft()()

    def run(self, duration_ms: int) -> None:
        for _ in range(0, duration_ms, 100):
            self.settle()
            self.time.advance(100)
        self.settle()

    def cut(self, one: str, other: str) -> None:
        self.cuts.add(frozenset((one, other)))
        for pipe in list(self.pipes):
            if {pipe.dialler, pipe.acceptor} == {one, other}:
                pipe.end()
        self.settle()


class Pipe:
    """One established connection."""

    def __init__(self, network: Network, dialler: str, acceptor: Node, link: Link) -> None:
        self.network = network
        self.dialler = dialler
        self.acceptor = acceptor.host
        self.link = link
        self.near = End(self, f"{acceptor.host}:61616", f"{dialler}:5000")
        self.far = End(self, f"{dialler}:5000", f"{acceptor.host}:61616")
        self.handler = CoreConnection(acceptor.core.core, self.far)
        self.open = True
        self.near.receive = self._to_acceptor
        self.far.receive = link.receive_data
        network.pipes.append(self)
        link.connected(self.near)

    def _to_acceptor(self, data: bytes) -> None:
        data = data.removeprefix(MAGIC)
        try:
            if data:
                self.handler.receive_data(data)
        except Exception:
            # after the answer that says why, as an acceptor does
            self.network.queue.append(self.end)

    def end(self) -> None:
        if self.open:
            self.open = False
            self.network.pipes.remove(self)
            self.handler.connection_lost("closed")
            self.link.disconnected("closed")


class End:
    """One side of a connection; implements ``ports.Connection``."""

    receive: Callable[[bytes], None]
    certificate_subject = None
    upgrade_without_name = False
    security = Security.NONE

    def __init__(self, pipe: Pipe, peer: str, local: str) -> None:
        self.pipe = pipe
        self.peer = peer
        self.local = local
        self._sealer: OutputSealer | None = None

    def seal(self, sealer: OutputSealer) -> None:
        self._sealer = sealer

    def send(self, data: bytes) -> None:
        if self._sealer is not None:
            data = b"".join(map(bytes, self._sealer.seal([data])))
        self.pipe.network.queue.append(lambda: self.receive(data) if self.pipe.open else None)

    def outgoing_bytes(self) -> int:
        return 0

    def close(self) -> None:
        self.pipe.network.queue.append(self.pipe.end)

    abort = close


class BackupPlaces:
    """Hosts the backups of all that ask, if its places are not used up. Implements ``BackupHost``."""

    def __init__(self, name: str) -> None:
        self.name = name.upper()
        self.places = 1
        self.hosted: list[tuple[str, str, packets.BackupRequest]] = []

    def vote(self, asking: str | None) -> packets.BackupVote:
        assert asking is not None, "the asking node is known from its announcement"
        return packets.BackupVote(len(self.hosted), self.name, available=len(self.hosted) < self.places)

    def host(self, requester: Requester, request: packets.BackupRequest) -> str | None:
        if len(self.hosted) == self.places:
            return "full"
        self.hosted.append((requester.node_id, requester.connector.host, request))
        return None


class Node:
    """One node: its membership, and the side of it that is dialled. Implements ``Dialer``."""

    def __init__(
        self, network: Network, host: str, statics: tuple[str, ...], settings: MembershipSettings, password: str
    ) -> None:
        self.network = network
        self.host = host
        self.listening = False
        credentials = ClusterCredentials("cluster", password, Entropy())
        self.host_of_backups = BackupPlaces(host)
        self.core = CoreNode(credentials=credentials, backups=self.host_of_backups)
        self.topology = self.core.topology
        settings = replace(settings, statics=tuple(connector(each) for each in statics))
        self.membership = Membership(
            self.topology, connector(host), settings, credentials, self, network.time, network.time
        )

    def dial(self, target: TransportConfiguration, link: Link) -> None:
        network, other = self.network, self.network.nodes.get(target.host)
        network.dials.append((self.host, target.host))
        if other is None or not other.listening or frozenset((self.host, target.host)) in network.cuts:
            network.queue.append(lambda: link.disconnected("refused"))
        else:
            network.queue.append(lambda: self._connect(other, link))

    def _connect(self, other: Node, link: Link) -> None:
        Pipe(self.network, self.host, other, link)

    def activate(self, node_id: str) -> Node:
        self.membership.leave()
        self.topology.set_primary(node_id, connector(self.host), self.network.time.wall_ms())
        self.listening = True
        self.membership.join(node_id)
        return self

    def stand_by(self, node_id: str) -> Node:
        self.membership.announce(node_id)
        return self

    def die(self) -> None:
        """The process is gone: no packet says so."""
        self.listening = False
        self.membership.leave()
        for pipe in list(self.network.pipes):
            if pipe.acceptor == self.host:
                pipe.end()

    def stop(self) -> None:
        """Stop cleanly: DISCONNECT to every connection."""
        self.listening = False
        self.membership.leave()
        for pipe in list(self.network.pipes):
            if pipe.acceptor == self.host:
                pipe.far.send(_disconnect())
                self.network.queue.append(pipe.end)
        self.topology.clear()

    def joined_to(self) -> set[str]:
        return {link.target.host for link in self.membership.links.values() if link.joined}

    def sees(self) -> dict[str, tuple[str | None, str | None]]:
        return {
            each.node_id: (each.primary and each.primary.host, each.backup and each.backup.host)
            for each in self.topology.members()
        }


def _disconnect() -> bytes:
    from understudy.wire.core.codec import encode

    return encode(packets.DisconnectV3("n", packets.DisconnectReason.SHUT_DOWN, None, None), 0)


def three() -> tuple[Network, Node, Node, Node]:
    """Three active nodes that each know one other."""
    network = Network()
    nodes = [network.node(host, known).activate(host.upper()) for host, known in (("a", "b"), ("b", "c"), ("c", "a"))]
    network.run(1_000)
    return network, nodes[0], nodes[1], nodes[2]
