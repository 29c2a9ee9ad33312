"""Both ends of a conversation, fed by a peer that says anything in any order.

The server's half runs over the routing tests' world, before and after a login; the client's half and
the link of a standing-by node over hand-driven surroundings. Here it is states that are looked for
rather than lengths: whatever comes, only documented errors leave, and turns of the loop go on.
"""

from __future__ import annotations

from functools import cache

from fuzz.captures import streams
from fuzz.target import Target
from fuzz.targets_wire import sample_frames, sample_message
from support.client import NODE, Drive, FakeEntropy, Outcome
from support.cluster_links import PASSWORD, SealableEnd, hello_of
from support.core import CoreNode
from understudy.cluster.membership.credentials import NONCE_BYTES, ClusterCredentials
from understudy.cluster.membership.membership import Membership, MembershipSettings
from understudy.cluster.membership.topology import Topology
from understudy.errors import BrokerError, ClusterSecurityError
from understudy.ports import Connection
from understudy.testing.manual_time import ManualTime
from understudy.wire.core import packets as p
from understudy.wire.core.codec import FrameDecoder, encode
from understudy.wire.core.peer import Link
from understudy.wire.core.transport import TransportConfiguration
from understudy.wire.sealed import Opener, Sealer

_LOGGED_IN, _TRANSACTED, _XA, _WINDOW, _PRE_ACKNOWLEDGE, _CREDENTIALS = (1 << bit for bit in range(6))


def _server(data: bytes) -> None:
    """The first byte says what the peer has done already."""
    if not data:
        return
    flags = data[0]
    credentials = ClusterCredentials("cluster", PASSWORD, FakeEntropy()) if flags & _CREDENTIALS else None
    node = CoreNode(credentials=credentials)
    client = node.client()
    if flags & _LOGGED_IN:
        client.create_session(
            window=100 if flags & _WINDOW else -1,
            auto_commit_sends=not flags & _TRANSACTED,
            auto_commit_acks=not flags & _TRANSACTED,
            xa=bool(flags & _XA),
        )
        client.send_message("one")
        client.consume()
        client.received()
    try:
        client.handler.receive_data(data[1:])
    finally:
        # packets before the breach are carried out, and the rest of the node goes on
        node.world.turn()
        client.handler.check()
        FrameDecoder("client").receive_data(b"".join(client.connection.sent))
        client.lose()
        node.world.turn()
        _still_serves(node)


def _still_serves(node: CoreNode) -> None:
    """Whatever a peer did, another one is served."""
    honest = node.client("10.0.0.2:1")
    honest.create_session("honest", window=-1)
    honest.send(p.CreateQueueV2("of the honest", "of the honest", None, True, False, True, routing_type=1))
    honest.send_message("after", address="of the honest")
    honest.consume(queue="of the honest")
    assert any(isinstance(packet, p.ReceiveMessage) for packet in honest.received()), "nothing is delivered any more"


@cache
def session_script() -> tuple[p.Packet, ...]:
    """Everything a session is asked for, in an order that makes sense."""
    return (
        p.CreateAddress("orders", (0, 1), True, False),
        p.CreateQueueV2("orders", "orders", None, True, False, True),
        p.CreateProducer(1, "orders"),
        p.ProducerRequestCredits(1000, "orders"),
        p.SessionSend(sample_message(), True, 1, 1),
        p.SessionSend(sample_message(address="orders::orders"), True, 2, 1),
        p.CreateConsumer(5, "orders", "long = -1", False, True, 4),
        p.CreateConsumer(6, "orders", None, True, True, 4),
        p.FlowToken(5, 100_000),
        p.FlowToken(6, -1),
        p.SessionStart(),
        p.ForceConsumerDelivery(5, 1),
        p.Acknowledge(5, 3, True),
        p.IndividualAcknowledge(5, 3, True),
        p.Expired(5, 3),
        p.QueueQuery("orders"),
        p.BindingQuery("orders"),
        p.AddMetadataV2("k", "v", True),
        p.UniqueAddMetadata("jms-client-id", "v", True),
        p.Rollback(True),
        p.Commit(9),
        p.ConsumerClose(5),
        p.DeleteQueue("orders"),
        p.SessionStop(),
        p.SessionClose(),
    )


def _server_seeds() -> list[bytes]:
    seeds = [b"\0" + stream for stream in streams("to-server")]
    script = [encode(packet, 10) for packet in session_script()]
    for flags in (0, _LOGGED_IN, _LOGGED_IN | _TRANSACTED, _LOGGED_IN | _WINDOW, _LOGGED_IN | _XA):
        seeds.append(bytes((flags,)) + b"".join(script))
        seeds += [bytes((flags,)) + b"".join(script[start : start + 6]) for start in range(0, len(script), 3)]
    for asked in (True, False):
        sends = b"".join(
            encode(p.SessionSend(sample_message(address=address), asked, number, 1), 10)
            for number, address in enumerate(("orders", "orders", "q::q", "q", "orders"))
        )
        seeds += [bytes((flags,)) + sends for flags in (_LOGGED_IN, _LOGGED_IN | _TRANSACTED, _LOGGED_IN | _WINDOW)]
    hello = hello_of(ClusterCredentials("cluster", PASSWORD, FakeEntropy()))
    for channel in (0, 1, 3):
        seeds.append(bytes((_CREDENTIALS,)) + encode(hello, channel) + encode(p.ClusterProof(bytes(32)), channel))
    reattach = encode(p.ReattachSession("0a0b0c0d-0000-1111-2222-333344445555", 1), 1)
    seeds.append(bytes((_LOGGED_IN | _WINDOW,)) + reattach)
    seeds += [bytes((_LOGGED_IN,)) + frame for frame in sample_frames()]
    return seeds


def _client(data: bytes) -> None:
    """The first byte says how far the client has come: dialled, connected, with a session and a consumer."""
    if not data:
        return
    drive = Drive()
    if data[0] & 1:
        drive.connect()
    else:
        drive.core.connect(drive.connected)
        drive.up()
    if data[0] & 2 and data[0] & 1:
        session = drive.session()
        session.consumers.open("orders", Outcome())
        drive.sent()
    drive.core.receive_data(data[1:])
    drive.sent()
    drive.tick(1_000)


def _client_seeds() -> list[bytes]:
    seeds = [bytes((state,)) + stream for stream in streams("to-client") for state in (0, 3)]
    return seeds + [bytes((state,)) + frame for frame in sample_frames() for state in (0, 3)]


class _Wire(SealableEnd):
    """``ports.Connection`` that goes nowhere."""

    peer = "10.0.0.9:1"
    certificate_subject = None
    upgrade_without_name = False

    def send(self, data: bytes) -> None:
        pass

    def outgoing_bytes(self) -> int:
        return 0

    def close(self) -> None:
        pass

    abort = close


class _Dialer:
    link: Link

    def dial(self, connector: TransportConfiguration, link: Link) -> None:
        self.link = link


def _member(data: bytes) -> None:
    """A node that stands by, and a peer that claims to be the active one."""
    time, dialer = ManualTime(), _Dialer()
    membership = Membership(
        Topology(),
        TransportConfiguration("own", parameters={"host": "h", "port": "2"}),
        MembershipSettings(statics=(TransportConfiguration("other", parameters={"host": "h", "port": "1"}),)),
        ClusterCredentials("cluster", PASSWORD, FakeEntropy()),
        dialer,
        time,
        time,
    )
    membership.announce(NODE)
    connection: Connection = _Wire()
    dialer.link.connected(connection)
    dialer.link.receive_data(data)
    time.advance(10)


def _member_seeds() -> list[bytes]:
    challenge = encode(p.ClusterNonce(bytes(NONCE_BYTES), True), 3)
    old = encode(p.ClusterChallenge(bytes(NONCE_BYTES), bytes(32)), 3)
    return [challenge + encode(p.ClusterAccept(bytes(32)), 3), old, encode(p.ClusterConnectReply(False), 3)]


_SEALED_KEY = bytes(range(32))
_SEALED_PLAIN = b"".join(encode(p.CheckForFailover(str(number)), 1) for number in range(40))


def _sealed(data: bytes) -> None:
    """Input of a sealed connection in reads of a size that the first byte gives: no byte of another sender passes."""
    if not data:
        return
    opener, opened = Opener(_SEALED_KEY, "peer"), b""
    size, stream = data[0] + 1, data[1:]
    for begin in range(0, len(stream), size):
        opened += bytes(opener.receive(stream[begin : begin + size]))
    assert _SEALED_PLAIN.startswith(opened)


def _sealed_seeds() -> list[bytes]:
    sealer = Sealer(_SEALED_KEY)
    parts = [_SEALED_PLAIN[begin : begin + 300] for begin in range(0, len(_SEALED_PLAIN), 300)]
    stream = b"".join(bytes(each) for part in parts for each in sealer.seal([part]))
    return [bytes((size,)) + stream for size in (0, 6, 255)] + [b"\xff" + bytes(40), b"\xff" + stream[:100]]


CONVERSATIONS = (
    Target("sealed-runs", _sealed, (ClusterSecurityError,), _sealed_seeds, steps_per_byte=400),
    Target(
        "server-conversation",
        _server,
        (BrokerError,),
        _server_seeds,
        memory_per_byte=1024,
        memory_floor_bytes=4 << 20,
        input_bytes_max=2048,
        weight=10,
    ),
    Target(
        "client-conversation", _client, (), _client_seeds, memory_per_byte=1024, memory_floor_bytes=4 << 20, weight=4
    ),
    Target("member-conversation", _member, (), _member_seeds, memory_floor_bytes=1 << 20),
)
