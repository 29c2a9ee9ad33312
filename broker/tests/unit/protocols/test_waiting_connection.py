"""Connections to a node that waits: its last replica is heard after the proof of the password (ADR 0064)."""

from __future__ import annotations

import pytest

from support.cluster_links import PASSWORD, SealableEnd, frames_of, hello_of, prove_to, sealed_frame
from support.replica_links import registration
from understudy.cluster.membership.credentials import ClusterCredentials
from understudy.errors import BrokerError, ClusterSecurityError, RemoteProtocolError
from understudy.limits import FRAME_BYTES_BEFORE_LOGIN_MAX, LOGIN_TIMEOUT_MS
from understudy.protocols.core.cluster_channel import CLUSTER_CHANNEL, REPLICATION_CHANNEL
from understudy.protocols.core.waiting_connection import WaitingConnection
from understudy.testing.manual_time import ManualTime
from understudy.wire.core import packets
from understudy.wire.core.codec import FrameDecoder
from understudy.wire.core.packets_replication import ReplicaProblem
from understudy.wire.sealed import Sealer

PING = packets.Ping(60_000)
OF_CLIENTS = [
    packets.CreateSession("s", 10, 136, None, None),
    packets.SubscribeTopologyV2(False, 129),
    registration(node_id="node"),
]


class _Entropy:
    def token(self, length_bytes: int) -> bytes:
        return bytes(length_bytes)


class Peer(SealableEnd):
    """The other side of a connection, and its outgoing half here. Implements ``ports.Connection``."""

    peer = "192.0.2.1:5000"
    certificate_subject = None
    upgrade_without_name = False

    def __init__(self) -> None:
        self.closed = False
        self.heard: list[packets.ReplicaRegistration] = []
        self.time = ManualTime()
        self.credentials = ClusterCredentials("cluster", PASSWORD, _Entropy())
        self._decoder = FrameDecoder(role="client", limit_bytes=FRAME_BYTES_BEFORE_LOGIN_MAX)
        self._answers: list[packets.Packet] = []
        self._sealer: Sealer | None = None
        self.handler = WaitingConnection(self, self.credentials, self._hear, self.time)

    def _hear(self, packet: packets.ReplicaRegistration) -> tuple[ReplicaProblem, str]:
        self.heard.append(packet)
        return ReplicaProblem.ACTIVATES, "not yet"

    def send(self, data: bytes) -> None:
        assert not self.closed
        self._answers += [frame.packet for frame in frames_of(self._decoder, data)]

    def flush(self) -> None: ...

    def outgoing_bytes(self) -> int:
        return 0

    def close(self) -> None:
        self.closed = True

    abort = close

    def say(self, packet: packets.Packet, channel_id: int) -> list[packets.Packet]:
        """The answers to a packet."""
        self._answers = []
        self.handler.receive_data(sealed_frame(self._sealer, packet, channel_id))
        return self._answers

    def prove(self) -> None:
        self.say(PING, 0)
        self._sealer = prove_to(self.credentials, self._ask)

    def _ask(self, packet: packets.Packet, kind: type[packets.Packet], channel_id: int) -> packets.Packet:
        (answer,) = self.say(packet, channel_id)
        assert isinstance(answer, kind)
        return answer


def test_a_registration_after_the_proof_is_heard_refused_for_now_and_the_connection_closed() -> None:
    peer = Peer()
    peer.prove()
    packet = registration(node_id="node")
    packet.copied_at = 4
    answers = peer.say(packet, REPLICATION_CHANNEL)
    assert answers == [packets.ReplicaAnswer(ReplicaProblem.ACTIVATES, "not yet")]
    assert peer.heard == [packet]
    assert peer.closed
    assert peer.say(packet, REPLICATION_CHANNEL) == []
    assert peer.heard == [packet]


@pytest.mark.parametrize("packet", OF_CLIENTS, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("channel_id", [0, 1, REPLICATION_CHANNEL])
def test_any_other_first_packet_closes_the_connection(packet: packets.Packet, channel_id: int) -> None:
    peer = Peer()
    assert peer.say(packets.Ping(60_000), 0) == []
    assert not peer.closed
    assert peer.say(packet, channel_id) == []
    assert peer.closed
    assert peer.heard == []


def test_a_client_that_asks_whether_this_node_took_over_gets_no_before_the_connection_is_closed() -> None:
    peer = Peer()
    peer.say(packets.Ping(60_000), 0)
    assert peer.say(packets.CheckForFailover("node"), 1) == [packets.CheckForFailoverReply(False)]
    assert peer.closed


@pytest.mark.parametrize("packet", OF_CLIENTS[:2], ids=lambda each: type(each).__name__)
def test_a_proved_peer_may_only_register(packet: packets.Packet) -> None:
    peer = Peer()
    peer.prove()
    assert peer.say(packet, 1) == []
    assert peer.closed


@pytest.mark.parametrize("proof", [bytes(32), b"", b"x" * 256], ids=["zeros", "nothing", "long"])
def test_a_wrong_proof_ends_the_connection(proof: bytes) -> None:
    peer = Peer()
    peer.say(hello_of(peer.credentials), CLUSTER_CHANNEL)
    with pytest.raises(ClusterSecurityError):
        peer.say(packets.ClusterProof(proof), CLUSTER_CHANNEL)
    peer.say(registration(node_id="node"), REPLICATION_CHANNEL)
    assert peer.heard == []


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", (FRAME_BYTES_BEFORE_LOGIN_MAX + 1).to_bytes(4, "big"), bytes(64)]
)
def test_bytes_that_are_no_frame_within_the_limit_are_an_error(data: bytes) -> None:
    with pytest.raises(BrokerError):
        Peer().handler.receive_data(data)


def test_a_peer_that_does_not_register_in_time_is_an_error() -> None:
    peer = Peer()
    peer.prove()
    peer.time.advance(LOGIN_TIMEOUT_MS - 1)
    peer.handler.check()
    peer.time.advance(1)
    with pytest.raises(RemoteProtocolError, match="no registration"):
        peer.handler.check()
