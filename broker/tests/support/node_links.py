"""A dialling and an accepting node with the real proof between them, whose bytes a test moves and changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from support.cluster_links import PASSWORD, PLACE
from support.core import CoreNode
from support.membership import Entropy
from understudy.cluster.membership.credentials import ClusterCredentials
from understudy.cluster.membership.handshake import prove
from understudy.cluster.membership.link_ends import OwnEnds
from understudy.errors import BrokerError
from understudy.ports import OutputSealer, Security
from understudy.protocols.core.connection import CoreConnection
from understudy.testing.manual_time import ManualTime
from understudy.wire.core import packets as p
from understudy.wire.core.codec import MAGIC, FrameDecoder, encode
from understudy.wire.core.peer import CorePeer
from understudy.wire.core.transport import TransportConfiguration


class End:
    """One side of a connection, which keeps its output. Implements ``ports.SealableConnection``."""

    certificate_subject = None
    upgrade_without_name = False

    def __init__(self, peer: str, local: str, security: Security) -> None:
        self.peer = peer
        self.local = local
        self.security = security
        self.out: list[bytes] = []
        self.sealer: OutputSealer | None = None
        self.closed = False

    def seal(self, sealer: OutputSealer) -> None:
        self.sealer = sealer

    def send(self, data: bytes) -> None:
        self.out.append(data if self.sealer is None else b"".join(map(bytes, self.sealer.seal([data]))))

    def flush(self) -> None: ...

    def outgoing_bytes(self) -> int:
        return 0

    def close(self) -> None:
        self.closed = True

    abort = close


Change = Callable[[bytes], bytes]


class Link:
    """A dialling node and an accepting one; ``dialled`` and ``arrived`` differ where a stranger passes the bytes on."""

    def __init__(
        self,
        *,
        target: str = PLACE,
        dialled: str = PLACE,
        arrived: str = PLACE,
        dialled_from: str = "192.0.2.1:5000",
        dialler_security: Security = Security.NONE,
        acceptor_security: Security = Security.NONE,
        dialler: ClusterCredentials | None = None,
        acceptor: ClusterCredentials | None = None,
        node_id: str = "",
    ) -> None:
        self.time = ManualTime()
        self.dialler = dialler or credentials()
        self.node = CoreNode(credentials=acceptor or credentials())
        host, _, port = target.rpartition(":")
        connector = TransportConfiguration("c", parameters={"host": host, "port": port})
        self.near = End(dialled, dialled_from, dialler_security)
        self.far = End(dialled_from, arrived, acceptor_security)
        self.handler = CoreConnection(self.node.core, self.far)
        self.peer = CorePeer(self, connector, self.time, self.time)
        self.node_id = node_id
        self.proved = False
        self.received: list[p.Packet] = []
        self.lost = ""
        self.error: BrokerError | None = None
        """Why the accepting node ends the connection."""
        self.peer.connected(self.near)

    def peer_opened(self, peer: CorePeer) -> None:
        prove(peer, self.dialler, self._prove, self.node_id)

    def _prove(self) -> None:
        self.proved = True

    def peer_received(self, peer: CorePeer, channel_id: int, packet: p.Packet) -> None:
        self.received.append(packet)

    def peer_lost(self, peer: CorePeer, reason: str) -> None:
        self.lost = reason

    def to_acceptor(self, change: Change = bytes) -> bool:
        out, self.near.out = b"".join(self.near.out), []
        data = change(out.removeprefix(MAGIC))
        if not data or self.error is not None:
            return False
        try:
            backlogged = self.handler.receive_data(data)
            while backlogged:
                backlogged = self.handler.receive_data(b"")
        except BrokerError as error:
            self.error = error
        return True

    def to_dialler(self, change: Change = bytes) -> bool:
        out, self.far.out = b"".join(self.far.out), []
        data = change(out)
        if data:
            self.peer.receive_data(data)
        return bool(data)

    def settle(self) -> Link:
        while self.to_acceptor() | self.to_dialler():
            pass
        return self

    @property
    def linked(self) -> bool:
        return self.proved and self.handler.proved and self.error is None and not self.lost


def credentials(password: str = PASSWORD, *own: str, user: str = "cluster", public: bool = False) -> ClusterCredentials:
    ends = OwnEnds(frozenset((each, "") for each in own))
    return ClusterCredentials(user, password, Entropy(), own_ends=ends, public=public)


def with_hello(data: bytes, **fields: Any) -> bytes:
    """The frames with other fields of the hello."""
    return b"".join(
        encode(replace(packet, **fields) if isinstance(packet, p.ClusterHello) else packet, channel_id)
        for channel_id, packet, _ in _frames(data)
    )


def _frames(data: bytes) -> Iterator[Any]:
    yield from FrameDecoder("client").receive_data(data)
