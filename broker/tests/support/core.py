"""The server's half of the CORE protocol, driven packet by packet: no socket, no loop, no disk."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar, cast

from support.cluster_links import SealableEnd, frames_of, prove_to, sealed_frame
from support.routing import World, text
from support.unit_store import UnitStore
from understudy.cluster.membership.backup_host import BackupHost
from understudy.cluster.membership.credentials import ClusterCredentials
from understudy.cluster.membership.scaled_down import ScaledDownNodes
from understudy.cluster.membership.services import ClusterServices
from understudy.cluster.membership.topology import Topology
from understudy.message import Message
from understudy.ports import Stream
from understudy.protocols.access import Access, LoginWorkers
from understudy.protocols.core.connection import CoreConnection
from understudy.protocols.core.reattachment import Reattachments
from understudy.protocols.core.services import CoreServices
from understudy.protocols.core.session import CoreSession
from understudy.protocols.services import ProtocolServices
from understudy.runtime.net.acceptor import Acceptor, ServerConnection
from understudy.security.authorization import NoSecurity, SecurityPolicy
from understudy.session.services import NO_VALIDATED_USERS
from understudy.tls.certificates import DistinguishedName
from understudy.wire.core import packets
from understudy.wire.core.codec import FrameDecoder
from understudy.wire.sealed import Sealer

P = TypeVar("P", bound=packets.Packet)
NODE = "11111111-2222-3333-4444-555555555555"
NAME = "0a0b0c0d-0000-1111-2222-333344445555"
WINDOW = 100_000


class CountingEntropy:
    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def token(self, length_bytes: int) -> bytes:
        return next(self._numbers).to_bytes(length_bytes, "big")


class LazyWorker:
    """``ports.Worker``: works when the test says so, like a thread that is late."""

    def __init__(self) -> None:
        self.jobs: deque[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = deque()

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        self.jobs.append((work, done))

    def work(self, jobs: int = 1_000_000) -> int:
        """Do that many pieces of work, and those that follow from them. Returns how many there were."""
        count = 0
        while self.jobs and count < jobs:
            work, done = self.jobs.popleft()
            work()
            done(None)
            count += 1
        return count

    def close(self) -> None:
        self.jobs.clear()


class FakeConnection(SealableEnd):
    """``ports.Connection``; remembers the sent bytes and whether it was closed."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.certificate_subject: DistinguishedName | None = None
        self.sent: list[bytes] = []
        self.closed = False
        self.aborted = False
        self.outgoing = 0
        """Value of ``outgoing_bytes``."""

    def send(self, data: bytes) -> None:
        self.sent.append(data)

    def outgoing_bytes(self) -> int:
        return self.outgoing

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True


class Client:
    """One client connection to the world's node."""

    def __init__(self, node: CoreNode, peer: str) -> None:
        self.connection = FakeConnection(peer)
        self.handler = CoreConnection(node.core, self.connection)
        self._node = node
        self._decoder = FrameDecoder("client")
        self._sealer: Sealer | None = None

    def send(self, packet: packets.Packet, channel_id: int = 10) -> None:
        self.handler.receive_data(sealed_frame(self._sealer, packet, channel_id))
        self._node.world.turn()

    def prove(self, credentials: ClusterCredentials, **fields: Any) -> None:
        """Prove the cluster password as another node; ``fields`` of its first packet."""
        self._sealer = prove_to(credentials, self.ask, **fields)

    def received(self) -> list[packets.Packet]:
        """Everything since the last call."""
        data, self.connection.sent = b"".join(self.connection.sent), []
        return [frame.packet for frame in frames_of(self._decoder, data)]

    def received_sized(self) -> list[tuple[packets.Packet, int]]:
        """The same with the size of each frame."""
        data, self.connection.sent = b"".join(self.connection.sent), []
        return [(frame.packet, frame.size_bytes) for frame in self._decoder.receive_data(data)]

    def received_one(self, kind: type[P]) -> P:
        found = [packet for packet in self.received() if isinstance(packet, kind)]
        assert len(found) == 1, found
        return found[0]

    def ask(self, packet: packets.Packet, kind: type[P], channel_id: int = 10) -> P:
        self.send(packet, channel_id)
        return self.received_one(kind)

    def create_session(self, name: str = NAME, channel_id: int = 10, window: int = WINDOW, **options: Any) -> None:
        options = {"auto_commit_sends": True, "auto_commit_acks": True, "xa": False, **options}
        create = packets.CreateSession(
            name=name,
            session_channel_id=channel_id,
            version=136,
            user=options.pop("user", "u"),
            password="p",
            min_large_message_size=102_400,
            confirmation_window=window,
            pre_acknowledge=False,
            default_address=None,
            **options,
        )
        self.ask(create, packets.CreateSessionResponse, 1)

    def reattach(self, name: str = NAME, last_received: int = -1) -> list[packets.Packet]:
        """Everything that came, the answer included."""
        self.send(packets.ReattachSession(name, last_received), 1)
        return self.received()

    def send_message(self, body: str, correlation_id: int = 1, address: str = "q", **options: Any) -> None:
        self.send(packets.SessionSend(message(body, address, **options), True, correlation_id, 1))

    def consume(self, consumer_id: int = 0, queue: str = "q", credit_bytes: int = -1) -> None:
        self.send(packets.CreateConsumer(consumer_id, queue, None, False, False, 0))
        self.send(packets.FlowToken(consumer_id, credit_bytes))
        self.send(packets.SessionStart())

    def lose(self) -> None:
        self.handler.connection_lost("cut")
        self._node.world.turn()


class CoreNode:
    """A node's services over the routing tests' world."""

    def __init__(
        self,
        *,
        automatic: bool = True,
        world: World | None = None,
        security: SecurityPolicy | None = None,
        credentials: ClusterCredentials | None = None,
        scaled_down: ScaledDownNodes | None = None,
        backups: BackupHost | None = None,
        **services: Any,
    ) -> None:
        self.world = world or World(automatic=automatic)
        clock = self.world.clock
        policy = security or NoSecurity()
        self.worker = LazyWorker()
        self.services = ProtocolServices(
            node_id=NODE,
            clock=clock,
            entropy=CountingEntropy(),
            sessions=self.world.services(validated_users=services.pop("validated_users", NO_VALIDATED_USERS)),
            access=Access(policy, clock, LoginWorkers(self.worker)),
            **services,
        )
        self.topology = Topology()
        self.reattachments: Reattachments[CoreSession] = Reattachments(clock, clock)
        cluster = ClusterServices(
            self.topology, credentials, scaled_down=scaled_down or ScaledDownNodes(), backups=backups
        )
        self.core = CoreServices(self.services, cluster, self.reattachments)

    @property
    def store(self) -> UnitStore:
        return self.world.store

    def client(self, peer: str = "10.0.0.1:5000") -> Client:
        return Client(self, peer)

    def sync(self) -> None:
        self.world.sync()


def message(body: str, address: str = "q", **options: Any) -> Message:
    """Message with a text as its body, encoded as a client encodes it."""
    return text(body, address, **options)


def accepted(acceptor: Acceptor, transport: object, ends: str = "10.0.0.1:5") -> ServerConnection:
    """The connection that an acceptor makes of a stream, both ends of which have one name."""
    stream = cast(Stream, transport)
    connection = acceptor.accept(stream, ends, ends)
    return ServerConnection(acceptor, stream, ends, ends) if connection is None else connection


def feed(connection: ServerConnection, data: bytes) -> None:
    """Give an accepted connection input, as its reader does."""
    buffer = bytearray(data)
    connection._acceptor.receive(((connection, memoryview(buffer)),))
    # the next read overwrites it
    buffer[:] = bytes(len(buffer))
