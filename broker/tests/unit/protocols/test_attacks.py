"""Peers that want more than they may: before a login, without credentials, past the permissions.

Goal: each class of attack of docs/operate/security.md that a peer can try packet by packet fails, and leaves
the node as it was. Method: the server's half of the protocol over the routing tests' world, with the
role security of a real configuration.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pytest

from fuzz.targets_wire import sample_packets
from support.cluster_links import PASSWORD, hello_of
from support.core import NODE, CoreNode
from support.routing import manual_time, text
from understudy.cluster.membership.credentials import ClusterCredentials
from understudy.config.model import SecuritySettingConfiguration
from understudy.errors import BrokerError, ClusterSecurityError, LimitExceeded, NotAuthorized, RemoteProtocolError
from understudy.limits import (
    FRAME_BYTES_BEFORE_LOGIN_MAX,
    FRAME_BYTES_MAX,
    FRAME_COST,
    FRAMES_BEFORE_LOGIN_MAX,
    LOGIN_TIMEOUT_MS,
    OUTGOING_BYTES_BEFORE_LOGIN_MAX,
    TURN_COST_MAX,
)
from understudy.security.authentication import Authenticator, Principal
from understudy.security.authorization import RoleSecurity
from understudy.security.settings import SecuritySettings
from understudy.terms import Permission, RoutingType
from understudy.wire.core import packets as p
from understudy.wire.core.codec import encode
from understudy.wire.core.codes import code_of
from understudy.wire.core.transport import TransportConfiguration

#: Requests allowed before login: the topology, and the login itself.
OPEN_TO_STRANGERS = {
    (0, p.Ping), (0, p.SubscribeTopology), (0, p.SubscribeTopologyV2), (1, p.CheckForFailover),
    (1, p.CreateSession), (1, p.CreateSessionV2), (1, p.ReattachSession), (3, p.ClusterHello),
}  # fmt: skip


class Entropy:
    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def token(self, length_bytes: int) -> bytes:
        return next(self._numbers).to_bytes(length_bytes, "big")


class RefusesAllLogins(RoleSecurity):
    """Security is on and there are no users."""

    def __init__(self) -> None:
        super().__init__(Authenticator({}, {}, Entropy(), manual_time()), SecuritySettings())


def everything_of(node: CoreNode) -> tuple[Any, ...]:
    directory = node.world.office.directory
    return (
        sorted(directory.addresses),
        sorted(directory.queues),
        [queue.message_count for queue in directory.queues.values()],
        node.topology.members(),
        node.store.last_sequence,
    )


@pytest.mark.parametrize("channel_id", [0, 1, 2, 3, 9, 10, 11, 1 << 40, -1])
@pytest.mark.parametrize("packet", sample_packets(), ids=lambda packet: type(packet).__name__)
def test_a_stranger_changes_nothing(packet: p.Packet, channel_id: int) -> None:
    """Every packet on every kind of channel before a login: it creates nothing and learns nothing."""
    node = CoreNode(security=RefusesAllLogins())
    node.world.queue("orders")
    node.world.session().sends.send(text("precious", "orders"))
    before = everything_of(node)
    stranger = node.client("10.6.6.6:1")
    with contextlib.suppress(RemoteProtocolError, ClusterSecurityError):
        stranger.send(packet, channel_id)
    node.worker.work()
    answers = stranger.received()
    assert everything_of(node) == before
    assert not stranger.handler.proved
    assert not stranger.handler.sessions
    if (channel_id, type(packet)) not in OPEN_TO_STRANGERS:
        assert [answer for answer in answers if not isinstance(answer, p.ClusterConnectReply)] == []
    for answer in answers:
        assert not isinstance(answer, (p.CreateSessionResponse, p.QueueQueryResponse, p.ReceiveMessage)), answer
        if isinstance(answer, p.ReattachSessionResponse):
            assert not answer.reattached
        if isinstance(answer, p.ClusterConnectReply):
            assert not answer.authorized


@pytest.mark.parametrize("length", [0xFFFFFFFF, 0x7FFFFFFF, 0x80000000, FRAME_BYTES_BEFORE_LOGIN_MAX - 3, 0, 8])
def test_a_frame_length_is_judged_before_anything_is_kept(length: int) -> None:
    node = CoreNode(security=RefusesAllLogins())
    stranger = node.client()
    with pytest.raises(RemoteProtocolError):
        stranger.handler.receive_data(length.to_bytes(4))
    assert stranger.handler.decoder.pending_bytes == 0


def test_large_frames_are_refused_before_login() -> None:
    node = CoreNode()
    client = node.client()
    frame = encode(p.SessionSend(text("x" * FRAME_BYTES_BEFORE_LOGIN_MAX, "q"), True, 1, 1), 10)
    client.create_session()
    assert client.handler.decoder.frame_limit_bytes == FRAME_BYTES_MAX
    client.handler.receive_data(frame)
    with pytest.raises(LimitExceeded):
        node.client("10.6.6.6:1").handler.receive_data(frame)


def test_a_connection_that_only_trickles_is_dropped_in_time() -> None:
    """One byte a second, and a PING now and then: neither extends the time to log in."""
    node = CoreNode()
    stranger = node.client()
    frame = encode(p.Ping(600_000), 0)
    for second in range(LOGIN_TIMEOUT_MS // 1000):
        stranger.handler.receive_data(frame[second % len(frame)].to_bytes())
        node.world.clock.advance(1000)
        stranger.handler.check()
    node.world.clock.advance(1000)
    with pytest.raises(RemoteProtocolError, match="no login"):
        stranger.handler.check()


def test_a_subscription_is_no_proof_of_identity() -> None:
    """A client that subscribes to the topology and pings has the same time to log in as any other."""
    node = CoreNode()
    stranger = node.client()
    stranger.send(p.SubscribeTopologyV2(False, 136), 0)
    node.world.clock.advance(LOGIN_TIMEOUT_MS)
    stranger.send(p.Ping(600_000), 0)
    stranger.handler.check()
    node.world.clock.advance(1)
    with pytest.raises(RemoteProtocolError, match="no login"):
        stranger.handler.check()


def test_one_connection_has_one_subscription() -> None:
    node = CoreNode()
    stranger = node.client()
    for packet in (p.SubscribeTopologyV2(False, 136), p.SubscribeTopology(False), p.SubscribeTopologyV2(True, 136)):
        stranger.send(packet, 0)
    assert len(stranger.received()) == 1
    node.topology.set_primary(NODE, TransportConfiguration("other", parameters={"host": "h"}), 5)
    assert len(stranger.received()) == 1
    stranger.lose()
    assert not node.topology._listeners


def receive_all(client: Any, data: bytes) -> None:
    """Give input to the handler of a client as the socket does: bytes that a turn leaves over are for later turns."""
    client.handler.receive_data(data)
    while client.handler.decoder.backlog:
        client.handler.receive_data(b"")


@pytest.mark.parametrize("channel_id", [0, 4, 10], ids=["control", "unused", "session"])
def test_frames_before_a_login_are_counted(channel_id: int) -> None:
    node = CoreNode()
    stranger = node.client()
    frame = encode(p.Ping(60_000), channel_id)
    receive_all(stranger, frame * (FRAMES_BEFORE_LOGIN_MAX - 100))
    stranger.create_session()
    receive_all(stranger, encode(p.Ping(60_000), 0) * 200)
    other = node.client()
    with pytest.raises(LimitExceeded, match="before a login"):
        receive_all(other, frame * (FRAMES_BEFORE_LOGIN_MAX + 1))


def test_a_stranger_that_does_not_read_is_dropped() -> None:
    node = CoreNode()
    stranger = node.client()
    stranger.send(p.Ping(60_000), 0)
    stranger.connection.outgoing = OUTGOING_BYTES_BEFORE_LOGIN_MAX + 1
    stranger.send(p.Ping(60_000), 0)
    assert stranger.connection.aborted
    client = node.client()
    client.create_session()
    client.connection.outgoing = OUTGOING_BYTES_BEFORE_LOGIN_MAX + 1
    client.send(p.Ping(60_000), 0)
    assert not client.connection.aborted


@pytest.mark.parametrize("sends", [False, True], ids=["pings", "sends"])
def test_one_read_is_carried_out_in_bounded_parts(sends: bool) -> None:
    """Packets of one read take several turns of the loop; none is lost or reordered."""
    node = CoreNode()
    queue = node.world.queue("q")
    client = node.client()
    client.create_session(window=-1)
    count = 3 * TURN_COST_MAX
    if sends:
        frames = [encode(p.SessionSend(text(str(number), "q"), True, number, 1), 10) for number in range(count)]
    else:
        frames = [encode(p.Ping(number), 0) for number in range(count)]
    client.handler.receive_data(b"".join(frames) + frames[0][:5])
    turns = [len(client.received())]
    while client.handler.decoder.backlog:
        client.handler.receive_data(b"")
        turns.append(len(client.received()))
    assert sum(turns) == count
    assert max(turns) <= (TURN_COST_MAX if sends else TURN_COST_MAX // FRAME_COST)
    assert client.handler.decoder.pending_bytes == 5
    if sends:
        assert queue.message_count == count


#: Packets that only other nodes send.
FROM_NODES = (
    p.NodeAnnounce, p.BackupRegistration, p.BackupRequest, p.QuorumVote, p.QuorumVoteReply, p.ScaleDownAnnouncement,
    p.DuplicateIds,
    p.ClusterTopology, p.ClusterTopologyV2, p.ClusterTopologyV3, p.ClusterTopologyV4, p.ReplicaRegistration,
    p.ReplicationCopy, p.ReplicationOperations, p.ClusterConnect,
)  # fmt: skip


# --- cluster links ---------------------------------------------------------------------------------


@pytest.mark.parametrize("channel_id", [0, 1, 3, 10])
@pytest.mark.parametrize("before", ["nothing", "login", "hello"])
@pytest.mark.parametrize(
    "packet", [each for each in sample_packets() if isinstance(each, FROM_NODES)], ids=lambda each: type(each).__name__
)
def test_cluster_packets_need_the_cluster_credentials(packet: p.Packet, before: str, channel_id: int) -> None:
    """No topology announcement, registration, vote or replicated byte of a peer without the cluster password."""
    node = CoreNode(credentials=ClusterCredentials("cluster", PASSWORD, Entropy()))
    if isinstance(packet, p.NodeAnnounce):
        packet.node_id = NODE
    stranger = node.client("10.6.6.6:1")
    if before == "login":
        stranger.create_session(channel_id=12)
    elif before == "hello":
        stranger.send(hello_of(node.core.cluster.credentials), 3)
        stranger.received()
    topology, written = node.topology.members(), node.store.last_sequence
    try:
        stranger.send(packet, channel_id)
    except BrokerError:
        pass
    assert node.topology.members() == topology
    assert node.store.last_sequence == written


@pytest.mark.parametrize("proof", [bytes(32), b"", b"x" * 256], ids=["zeros", "nothing", "long"])
def test_a_proof_is_checked_and_good_for_one_challenge(proof: bytes) -> None:
    credentials = ClusterCredentials("cluster", PASSWORD, Entropy())
    node = CoreNode(credentials=credentials)
    stranger = node.client()
    hello = hello_of(credentials)
    challenge = stranger.ask(hello, p.ClusterNonce, 3)
    handshake = credentials.handshake(hello, challenge)
    with pytest.raises(BrokerError):
        stranger.send(p.ClusterProof(proof), 3)
    # the right answer to the old challenge is worth nothing any more, and neither is our own proof sent back
    for late in (handshake.dialler_proof(), handshake.acceptor_proof()):
        with pytest.raises(BrokerError):
            stranger.send(p.ClusterProof(late), 3)
    assert not stranger.handler.proved


def test_a_session_without_login_needs_the_proof_of_the_cluster_password() -> None:
    """A bridge of another broker has every permission, after its proof and without a user only."""
    credentials = ClusterCredentials("cluster", PASSWORD, Entropy())
    node = CoreNode(credentials=credentials, security=RefusesAllLogins())
    node.world.queue("q")
    bridge = node.client()
    request = p.CreateSession("s", 10, 136, None, None)
    bridge.send(request, 1)
    refused = bridge.received()
    assert not any(isinstance(each, p.CreateSessionResponse) for each in refused)
    bridge.prove(credentials)
    bridge.ask(request, p.CreateSessionResponse, 1)
    bridge.send_message("from a bridge")
    node.sync()
    assert any(isinstance(each, p.NullResponse) for each in bridge.received())
    assert node.world.office.directory.queues["q"].message_count == 1


# --- permissions -----------------------------------------------------------------------------------

USERS = {
    "sender": {"orders": {Permission.SEND}},
    "consumer": {"orders": {Permission.CONSUME}},
    "browser": {"orders": {Permission.BROWSE}},
    "maker": {"orders": {Permission.CREATE_DURABLE_QUEUE, Permission.CREATE_NON_DURABLE_QUEUE}},
    "all": {"#": set(Permission)},
    "temporary": {"#": {
        Permission.CREATE_NON_DURABLE_QUEUE, Permission.DELETE_NON_DURABLE_QUEUE, Permission.CONSUME, Permission.SEND,
        Permission.CREATE_ADDRESS, Permission.CREATE_DURABLE_QUEUE,
    }},
    "powerless": {},
}  # fmt: skip


#: Of users whose name differs from their role.
ROLES = {"other": "temporary"}


class Secured(CoreNode):
    """A node with a user of each kind; the user depends on the name given at the login."""

    def __init__(self) -> None:
        matches = sorted({match for grants in USERS.values() for match in grants})
        settings = [
            SecuritySettingConfiguration(
                match,
                {
                    permission: frozenset(
                        user
                        for user, grants in USERS.items()
                        if permission in grants.get(match, set()) | grants.get("#", set())
                    )
                    for permission in Permission
                },
            )
            for match in matches
        ]
        super().__init__(security=_ByName(Authenticator({}, {}, Entropy(), manual_time()), SecuritySettings(settings)))
        self.world.queue("orders")
        self.world.queue("secret")

    def user(self, name: str, peer: str = "10.0.0.1:1") -> Any:
        client = self.client(peer)
        client.create_session(name=f"{name}-{peer}-".ljust(40, "0"), user=name)
        return client


class _ByName(RoleSecurity):
    """Passwords are not what this is about."""

    def begin(self, user: str | None, password: str | None, certificate: object = None) -> Principal:
        name = user or ""
        return Principal(name, frozenset({ROLES.get(name, name)}))


def refused(client: Any, packet: p.Packet) -> bool:
    """Whether a request was answered by "you may not"."""
    answer = client.ask(packet, p.ExceptionResponse)
    return bool(answer.error_code == 105)


def test_the_code_of_a_refusal() -> None:
    assert code_of(NotAuthorized()) == 105


def test_creating_a_queue_is_no_way_to_change_its_address() -> None:
    """CVE-2025-27427: a queue of another routing type changes the address, which takes createAddress."""
    node = Secured()
    maker = node.user("maker")
    queue = p.CreateQueueV2("orders", "mine", None, True, False, True, routing_type=0)
    assert refused(maker, queue)
    assert node.world.office.directory.addresses["orders"].routing_types == {RoutingType.ANYCAST}
    queue.routing_type = 1
    maker.ask(queue, p.NullResponse)


@pytest.mark.parametrize("name", ["secret", "nothing.of.that.name"])
@pytest.mark.parametrize("kind", [p.QueueQuery, p.BindingQuery, p.DeleteQueue, "consume", "browse"])
def test_a_user_without_permissions_learns_nothing(kind: Any, name: str) -> None:
    """CVE-2026-57221: what exists and what does not are refused alike."""
    client = Secured().user("powerless")
    if kind == "consume":
        packet: p.Packet = p.CreateConsumer(1, name, None, False, True, 0)
    elif kind == "browse":
        packet = p.CreateConsumer(1, name, None, True, True, 0)
    else:
        packet = kind(name)
    answer = client.ask(packet, p.ExceptionResponse)
    assert answer.error_code == 105
    assert answer.message == f"user 'powerless' has no permission on {name!r}"


def test_a_hidden_queue_of_a_known_address_stays_hidden_by_its_full_name() -> None:
    node = Secured()
    sender = node.user("sender")
    assert refused(sender, p.QueueQuery("secret::secret"))
    # the address is one it knows, the queue is one of another address: as if it were not there
    assert not sender.ask(p.QueueQuery("orders::secret"), p.QueueQueryResponseV3).exists


def test_a_full_name_reaches_only_queues_of_its_address() -> None:
    """Permission to send to ``orders`` and a name like ``orders::secret``: nothing gets into ``secret``."""
    node = Secured()
    sender = node.user("sender")
    for address in ("orders::secret", "secret::orders", "secret", "::secret", "orders::", "secret::secret"):
        sender.send(p.SessionSend(text("smuggled", address), True, 5, 1))
    assert node.world.office.directory.queues["secret"].message_count == 0
    node.user("consumer").ask(p.CreateConsumer(1, "orders::secret", None, False, True, 0), p.ExceptionResponse)


def test_the_permission_of_each_message_of_a_run_is_checked() -> None:
    """Messages of one read are routed together, but each one is checked."""
    node = Secured()
    sender = node.user("sender")
    addresses = ("orders", "secret", "orders", "orders::secret", "secret::secret", "orders")
    for asked in (True, False):
        sends = (encode(p.SessionSend(text("x", name), asked, 5, 1), 10) for name in addresses)
        sender.handler.receive_data(b"".join(sends))
        node.world.turn()
    assert node.world.office.directory.queues["secret"].message_count == 0
    assert node.world.office.directory.queues["orders"].message_count == 6


def test_each_permission_gives_only_itself() -> None:
    node = Secured()
    browse = p.CreateConsumer(1, "orders", None, True, True, 0)
    consume = p.CreateConsumer(2, "orders", None, False, True, 0)
    send = p.SessionSend(text("x", "orders"), True, 5, 1)
    for user, allowed in (("sender", send), ("consumer", consume), ("browser", browse)):
        client = node.user(user)
        for packet in (browse, consume, send, p.DeleteQueue("orders")):
            client.send(packet)
            answers = client.received()
            failed = any(isinstance(answer, p.ExceptionResponse) and answer.error_code == 105 for answer in answers)
            assert failed is (packet is not allowed), (user, packet, answers)
    assert "orders" in node.world.office.directory.queues


def test_a_shared_queue_request_without_permission_discloses_nothing() -> None:
    """Another answer for the name of a queue with another filter would disclose that the queue exists."""
    node = Secured()
    for filter_text in (None, "a = 1"):
        assert refused(node.user("sender"), p.CreateSharedQueue("orders", "orders", filter_text, True, True))
        assert refused(node.user("sender"), p.CreateSharedQueue("secret", "secret", filter_text, True, True))


# --- temporary queues -------------------------------------------------------------------------------


def with_temporary_queue(node: Secured) -> Any:
    owner = node.user("temporary", "10.0.0.1:1")
    owner.ask(p.CreateQueueV2("reply.1", "reply.1", None, False, True, True, routing_type=1), p.NullResponse)
    return owner


def test_a_temporary_queue_is_its_makers() -> None:
    """CVE-2026-54475: another user neither consumes from it nor deletes it, whatever its roles are."""
    node = Secured()
    with_temporary_queue(node)
    other = node.client("10.0.0.2:1")
    other.create_session(name="other".ljust(40, "0"), user="other")
    assert refused(other, p.CreateConsumer(1, "reply.1", None, False, True, 0))
    assert refused(other, p.DeleteQueue("reply.1"))
    # replies go there, of course
    other.ask(p.SessionSend(text("reply", "reply.1"), True, 5, 1), p.NullResponse)


def test_the_end_of_a_connection_deletes_its_own_temporary_queues_only() -> None:
    """Another client deletes the queue and makes a durable one of the name: it must outlive the first's connection."""
    node = Secured()
    owner = with_temporary_queue(node)
    second = node.user("temporary", "10.0.0.1:2")
    second.ask(p.DeleteQueue("reply.1"), p.NullResponse)
    second.ask(p.CreateQueueV2("reply.1", "reply.1", None, True, False, True, routing_type=1), p.NullResponse)
    second.ask(p.SessionSend(text("kept", "reply.1"), True, 5, 1), p.NullResponse)
    owner.lose()
    assert node.world.office.directory.queues["reply.1"].message_count == 1


# --- values that no enumeration has -----------------------------------------------------------------


@pytest.mark.parametrize("number", [2, 123, -2, -128])
def test_a_routing_type_that_does_not_exist_is_a_refusal(number: int) -> None:
    """Found by fuzzing: it used to leave the session as a ValueError."""
    node = CoreNode()
    client = node.client()
    client.create_session()
    client.ask(p.CreateAddress("a", (1, number), True, False), p.ExceptionResponse)
    client.ask(p.CreateQueueV2("a", "a", None, True, False, True, routing_type=number), p.ExceptionResponse)
    assert "a" not in node.world.office.directory.addresses


def test_a_connection_closed_by_an_internal_error_keeps_no_session() -> None:
    node = CoreNode()
    client = node.client()
    client.create_session()
    client.handler.prevent_reattachment()
    client.lose()
    assert node.reattachments.detached_count == 0
