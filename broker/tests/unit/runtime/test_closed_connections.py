"""The memory of closed connections is freed by reference counts, without the collector of cycles.

The server lets the collector run seldom (``runtime.process.interpreter``), so a connection that ends in a reference
cycle keeps its half of a frame, its session metadata and its messages for a long time. Method: the acceptor's
connections over the server's half of the protocol, with sockets that do nothing; the collector is off.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

import pytest

from support.cluster_links import hello_of
from support.core import CoreNode, accepted, feed
from support.large import Node
from support.routing import text
from support.store import StoreHarness
from understudy.cluster.membership.credentials import ClusterCredentials
from understudy.config.model import AcceptorConfiguration, SecuritySettingConfiguration
from understudy.ids import Xid
from understudy.limits import DETACHED_SESSION_MS_MAX
from understudy.message import Message
from understudy.protocols.core.connection import CoreConnection
from understudy.runtime.base.environment import LoopTimers
from understudy.runtime.base.turn import Turn
from understudy.runtime.net.acceptor import Acceptor
from understudy.security.authentication import Authenticator
from understudy.security.authorization import RoleSecurity
from understudy.security.password_hashes import HashParameters, PasswordHash
from understudy.security.settings import SecuritySettings
from understudy.terms import Permission
from understudy.wire.core import packets as p
from understudy.wire.core.codec import encode
from understudy.wire.detect import Protocol

CHANNEL = 10
#: Objects of this package that may be there afterwards and were not before: caches, not connections.
SPARE_OBJECTS = 50
#: Caches, and the simulated disk.
NOT_COUNTED = ("understudy.routing.addresses.settings.", "understudy.testing.")


class Loop:
    """A loop that makes the calls of ``call_soon`` when the test asks for it."""

    def __init__(self) -> None:
        self.calls: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    def call_soon(self, call: Callable[..., object], *args: object) -> None:
        self.calls.append((call, args))

    def run(self) -> None:
        calls, self.calls = self.calls, []
        for call, args in calls:
            call(*args)


class Transport:
    """A socket that takes everything; what the server wrote last is in ``written``."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.written: list[bytes] = []

    def abort(self) -> None: ...

    close = pause_reading = resume_reading = abort

    def set_write_buffer_limits(self, high: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def writelines(self, out: list[bytes]) -> None:
        self.written = out

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return ("10.0.0.1", self._port)


class Entropy:
    def __init__(self) -> None:
        self._calls = itertools.count(1)

    def token(self, length_bytes: int) -> bytes:
        return next(self._calls).to_bytes(length_bytes, "big")


class Server:
    """A node with one acceptor, users ``ann`` (whose password is her name), and a real store on a simulated disk."""

    def __init__(self) -> None:
        entropy = Entropy()
        self.rig = StoreHarness(random.Random(1))
        self.node = Node(self.rig, "a")
        self.credentials = ClusterCredentials("cluster", "a password of this test", entropy)
        everything = {permission: frozenset({"all"}) for permission in Permission}
        users = {"ann": PasswordHash.make("ann", entropy, HashParameters(n=2, r=1, p=1))}
        policy = RoleSecurity(
            Authenticator(users, {"ann": frozenset({"all"})}, entropy, self.node.world.clock),
            SecuritySettings([SecuritySettingConfiguration("#", everything)]),
        )
        self.core = CoreNode(world=self.node.world, security=policy, credentials=self.credentials)
        self.loop = Loop()
        loop = cast(asyncio.AbstractEventLoop, self.loop)
        self.turn = Turn(loop, LoopTimers(loop))
        self.acceptor = Acceptor(
            AcceptorConfiguration("a", "h", 1, handshake_timeout_ms=0),
            self.turn,
            {Protocol.CORE: partial(CoreConnection, self.core.core)},
            2_000,
        )

    def settle(self) -> None:
        for _ in range(3):
            self.loop.run()
            self.core.worker.work()
            self.node.settle()
        while self.loop.calls:
            self.loop.run()


class Peer:
    """One connection as the socket sees it."""

    def __init__(self, server: Server, number: int) -> None:
        self._server = server
        self.credentials = server.credentials
        self.number = number
        self.transport = Transport(number)
        self.connection = accepted(server.acceptor, self.transport, f"10.0.0.1:{number}")
        feed(self.connection, b"ARTEMIS")

    def send(self, *sent: p.Packet, channel_id: int = CHANNEL) -> None:
        feed(self.connection, b"".join(encode(packet, channel_id) for packet in sent))
        self._server.settle()

    def log_in(self, *, password: str = "ann", window: int = -1, **options: bool) -> None:
        options = {"auto_commit_sends": True, "auto_commit_acks": True, "xa": False, **options}
        name = f"session-{self.number}".ljust(40, "-")
        self.send(
            p.CreateSession(
                name=name, session_channel_id=CHANNEL, version=136, user="ann", password=password,
                min_large_message_size=102_400, confirmation_window=window, pre_acknowledge=False,
                default_address=None, **options,
            ),
            channel_id=1,
        )  # fmt: skip

    def half_a_frame(self) -> None:
        feed(self.connection, encode(p.SessionSend(text("x" * 4_000, "q"), True, 1, 1), CHANNEL)[:3_000])

    def lose(self) -> None:
        self.connection.connection_lost("closed")
        self._server.settle()


def stranger(peer: Peer) -> None:
    """Subscribes, begins a cluster link and a frame."""
    peer.send(p.SubscribeTopologyV2(False, 136), channel_id=0)
    peer.send(hello_of(peer.credentials, address=f"10.0.0.1:{peer.number}"), channel_id=3)
    peer.half_a_frame()


def wrong_password(peer: Peer) -> None:
    peer.log_in(password=f"not hers {peer.number}")


def login_under_way(peer: Peer) -> None:
    """The connection is lost while the password is being checked and later frames wait."""
    password = f"guess {peer.number}"
    create = p.CreateSession("s" * 40, CHANNEL, 136, "ann", password, 1, False, True, True, -1, False, None)
    feed(peer.connection, encode(create, 1) + encode(p.QueueQuery("q"), CHANNEL))


def breach(peer: Peer) -> None:
    """A frame that is not of the protocol."""
    peer.log_in()
    feed(peer.connection, bytes(4))


def half_frame(peer: Peer) -> None:
    peer.log_in()
    peer.half_a_frame()


def metadata(peer: Peer) -> None:
    peer.log_in()
    peer.send(p.AddMetadataV2("key", "value" * 100, True))
    peer.send(p.UniqueAddMetadata("jms-client-id", f"client {peer.number}", True))


def consumers(peer: Peer) -> None:
    peer.log_in()
    queue = f"temporary.{peer.number % 10}"
    peer.send(
        p.CreateQueueV2(queue, queue, None, False, True, True, routing_type=1),
        p.CreateConsumer(1, queue, None, False, True, 0),
        p.CreateConsumer(2, queue, "a = 1", True, True, 0),
        p.FlowToken(1, -1),
        p.SessionStart(),
        p.CreateProducer(1, queue),
        p.ProducerRequestCredits(1_000, queue),
        p.SessionSend(text("one", queue), True, 5, 1),
        p.SessionSend(text("two", queue), True, 6, 1),
        p.ForceConsumerDelivery(1, 1),
    )
    assert peer.transport.written


def transaction(peer: Peer) -> None:
    """One that can only be rolled back: the error is kept."""
    peer.log_in(auto_commit_sends=False, auto_commit_acks=False)
    message = text("one", "q", properties={"_AMQ_DUPL_ID": f"same {peer.number}"}, durable=False)
    peer.send(p.SessionSend(message, False, 5, 1), p.SessionSend(message, False, 6, 1))
    peer.send(p.Acknowledge(7, 7, False))
    peer.send(p.Commit(1), p.SessionSend(message, False, 7, 1))


def xa(peer: Peer) -> None:
    peer.log_in(auto_commit_sends=False, auto_commit_acks=False, xa=True)
    xid = Xid(1, b"global", peer.number.to_bytes(4))
    peer.send(p.XaStart(xid))
    peer.send(p.SessionSend(text("one", "q", durable=False), True, 5, 1))
    peer.send(p.XaPrepare(xid), p.XaRollback(xid), p.XaEnd(xid, True), p.XaPrepare(xid), p.XaRollback(xid))


def confirmation_window(peer: Peer) -> None:
    """A session with a confirmation window, which waits for a client that does not come back."""
    peer.log_in(window=100_000)
    peer.send(p.QueueQuery("q"), p.AddMetadata("key", "value"))
    peer.half_a_frame()


def graceful_close(peer: Peer) -> None:
    peer.log_in(window=10)
    peer.send(p.QueueQuery("q"))
    peer.send(p.SessionClose())


def large_message(peer: Peer) -> None:
    """One that is sent, and one that is not finished."""
    peer.log_in()
    header = p.header_of_message(Message(b"", address="large", durable=False))
    for last in (True, False):
        peer.send(p.SessionSendLarge(header), p.SessionSendContinuation(b"x" * 1_000, True))
        if last:
            peer.send(p.SessionSendContinuation(b"x", False, 1_001, True, 3))


LIVES = [
    stranger, wrong_password, login_under_way, breach, half_frame, metadata, consumers, transaction, xa,
    confirmation_window, graceful_close, large_message,
]  # fmt: skip


@pytest.fixture
def collector_off(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    # a captured record would keep the error and all that its traceback refers to
    caplog.set_level(logging.CRITICAL, "understudy")
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def own_objects() -> Counter[str]:
    """Objects of this package, by class."""
    # by type first: nearly all objects are of a few types of the interpreter
    kinds = (
        (f"{kind.__module__}.{kind.__qualname__}", count)
        for kind, count in Counter(map(type, gc.get_objects())).items()
    )
    found = Counter[str]()
    for kind, count in kinds:
        if kind.startswith("understudy.") and not kind.startswith(NOT_COUNTED):
            found[kind] += count
    return found


def live(server: Server, numbers: range, lives: list[Callable[[Peer], None]]) -> None:
    for number in numbers:
        peer = Peer(server, number)
        lives[number % len(lives)](peer)
        peer.lose()
        server.node.world.clock.advance(1_000)
    server.node.world.clock.advance(DETACHED_SESSION_MS_MAX + 10_000)
    server.node.outlive()
    server.settle()


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__)
def test_a_closed_connection_leaves_no_object(life: Callable[[Peer], None], collector_off: None) -> None:
    """Each way in which a connection ends is tested alone, so that a failure names the remaining object."""
    server = Server()
    server.node.world.queue("q")
    live(server, range(1, 4), [life])
    before = own_objects()
    live(server, range(101, 131), [life])
    left = {kind: count for kind, count in (own_objects() - before).items() if count >= 15}
    assert left == {}


def test_a_thousand_closed_connections_leave_nothing(collector_off: None) -> None:
    server = Server()
    server.node.world.queue("q")
    live(server, range(1, 61), LIVES)
    before = own_objects()
    live(server, range(1_001, 2_001), LIVES)
    left = own_objects() - before
    assert left.total() <= SPARE_OBJECTS, left.most_common(10)
    assert not server.acceptor.connections
