"""The announcement link, both ends moved by hand: the acceptor's side is the real channel handler's peer."""

from __future__ import annotations

import pytest

from understudy.cluster.announcer import CLUSTER_CHANNEL, BackupAnnouncer, Event, State
from understudy.cluster.credentials import NONCE_BYTES, ClusterCredentials
from understudy.cluster.topology import Member, Topology
from understudy.errors import ClusterSecurityError, MachineError
from understudy.limits import FRAME_BYTES_BEFORE_LOGIN_MAX
from understudy.machine import ILLEGAL
from understudy.testing.manual_time import ManualTime
from understudy.wire.core import packets
from understudy.wire.core.codec import FrameDecoder, encode
from understudy.wire.core.peer import Link
from understudy.wire.core.transport import TransportConfiguration


class CountingEntropy:
    def __init__(self) -> None:
        self.calls = 0

    def token(self, length_bytes: int) -> bytes:
        self.calls += 1
        return bytes([self.calls]) * length_bytes


def connector(port: int) -> TransportConfiguration:
    return TransportConfiguration(f"c{port}", parameters={"host": "127.0.0.1", "port": str(port)})


class Wire:
    """One dialled connection; implements ``ports.Connection`` and decodes what was sent on it."""

    peer = "peer:1"

    def __init__(self, target: TransportConfiguration, link: Link) -> None:
        self.target = target
        self.link = link
        self.sent = b""
        self.closed = False

    def send(self, data: bytes) -> None:
        self.sent += data

    def outgoing_bytes(self) -> int:
        return 0

    def close(self) -> None:
        self.closed = True

    abort = close

    def packets(self) -> list[packets.Packet]:
        return [frame.packet for frame in FrameDecoder(role="server").receive_data(self.sent)]

    def answer(self, packet: packets.Packet) -> None:
        self.link.receive_data(encode(packet, CLUSTER_CHANNEL))


class Dialer:
    def __init__(self) -> None:
        self.wires: list[Wire] = []

    def dial(self, connector: TransportConfiguration, link: Link) -> None:
        self.wires.append(Wire(connector, link))


@pytest.fixture
def time() -> ManualTime:
    return ManualTime()


def make(time: ManualTime, *ports: int) -> tuple[BackupAnnouncer, Dialer, ClusterCredentials]:
    dialer = Dialer()
    credentials = ClusterCredentials("u", "secret", CountingEntropy())
    announcer = BackupAnnouncer(
        own=connector(2),
        candidates=[connector(port) for port in ports],
        credentials=credentials,
        dialer=dialer,
        clock=time,
        timers=time,
    )
    return announcer, dialer, credentials


def prove(wire: Wire, credentials: ClusterCredentials) -> None:
    wire.link.connected(wire)
    hello = next(packet for packet in wire.packets() if isinstance(packet, packets.ClusterHello))
    nonce = b"n" * NONCE_BYTES
    wire.answer(packets.ClusterChallenge(nonce, credentials.acceptor_proof(hello.nonce, nonce)))
    proof = wire.packets()[-1]
    assert isinstance(proof, packets.ClusterProof)
    credentials.verify(credentials.dialler_proof(hello.nonce, nonce), proof.proof, "test")
    wire.answer(packets.ClusterConnectReply(True))


def test_announces_after_mutual_proof(time: ManualTime) -> None:
    announcer, dialer, credentials = make(time, 1)
    announcer.start("node")
    prove(dialer.wires[0], credentials)
    announcement = dialer.wires[0].packets()[-1]
    assert isinstance(announcement, packets.NodeAnnounce)
    assert (announcement.node_id, announcement.backup, announcement.connector) == ("node", True, connector(2))
    assert announcer.state is State.ANNOUNCED
    assert announcer.connected_to == connector(1)
    assert b"secret" not in dialer.wires[0].sent


def test_an_acceptor_without_the_password_learns_nothing(time: ManualTime) -> None:
    announcer, dialer, _ = make(time, 1)
    announcer.start("node")
    wire = dialer.wires[0]
    wire.link.connected(wire)
    wire.answer(packets.ClusterChallenge(b"n" * NONCE_BYTES, b"p" * 32))
    assert announcer.state is State.WAITING
    assert wire.closed
    assert not any(isinstance(packet, packets.ClusterProof) for packet in wire.packets())


def test_refused_credentials_are_tried_again_later(time: ManualTime) -> None:
    announcer, dialer, _ = make(time, 1)
    announcer.start("node")
    dialer.wires[0].link.connected(dialer.wires[0])
    dialer.wires[0].answer(packets.ClusterConnectReply(False))
    assert announcer.state is State.WAITING
    time.advance(500)
    assert len(dialer.wires) == 2


def test_candidates_are_tried_in_turn_without_the_own_connector(time: ManualTime) -> None:
    announcer, dialer, _ = make(time, 1, 2, 3)
    announcer.start("node")
    for _ in range(3):
        dialer.wires[-1].link.disconnected("refused")
        time.advance(500)
    assert [wire.target.port for wire in dialer.wires] == [1, 3, 1, 3]


def test_a_lost_link_is_made_anew_and_pings_keep_it(time: ManualTime) -> None:
    announcer, dialer, credentials = make(time, 1)
    announcer.start("node")
    prove(dialer.wires[0], credentials)
    before = len(dialer.wires[0].packets())
    time.advance(25_000)
    assert len(dialer.wires[0].packets()) == before + 2
    dialer.wires[0].link.disconnected("gone")
    assert announcer.connected_to is None
    time.advance(500)
    prove(dialer.wires[1], credentials)
    assert announcer.state is State.ANNOUNCED


def test_stop_hangs_up_and_an_old_connection_is_deaf(time: ManualTime) -> None:
    announcer, dialer, credentials = make(time, 1)
    announcer.start("node")
    announcer.stop()
    wire = dialer.wires[0]
    wire.link.connected(wire)
    assert wire.closed
    wire.link.disconnected("late")
    wire.link.receive_data(b"\0")
    assert announcer.state is State.IDLE
    announcer.start("node")
    prove(dialer.wires[1], credentials)


def test_a_stopping_active_node_ends_the_announcement(time: ManualTime) -> None:
    announcer, dialer, credentials = make(time, 1)
    announcer.start("node")
    prove(dialer.wires[0], credentials)
    dialer.wires[0].answer(packets.DisconnectV3("node", 2, None, None))
    assert announcer.state is State.WAITING


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_every_pair_is_a_transition_or_a_written_refusal(time: ManualTime, state: State, event: Event) -> None:
    announcer, _, _ = make(time, 1)
    announcer._state = state
    if BackupAnnouncer.TABLE[state, event] is ILLEGAL:
        with pytest.raises(MachineError):
            announcer.fire(event)
        assert announcer.state is state


def test_proofs_are_bound_to_direction_nonces_and_password() -> None:
    ours = ClusterCredentials("u", "secret", CountingEntropy())
    other = ClusterCredentials("u", "other", CountingEntropy())
    one, two = ours.nonce(), ours.nonce()
    proofs = {
        ours.acceptor_proof(one, two),
        ours.dialler_proof(one, two),
        ours.acceptor_proof(two, one),
        other.acceptor_proof(one, two),
    }
    assert len(proofs) == 4
    with pytest.raises(ClusterSecurityError):
        ours.verify(ours.acceptor_proof(one, two), other.acceptor_proof(one, two), "peer")
    with pytest.raises(ClusterSecurityError):
        ours.acceptor_proof(b"short", two)


def test_topology_tells_listeners_and_keeps_one_entry_per_node() -> None:
    topology = Topology()
    heard: list[Member] = []
    end = topology.listen(heard.append)
    topology.set_primary("n", connector(1), 100)
    topology.set_backup("n", connector(2), 90)
    assert topology.member("n") == Member("n", 101, connector(1), connector(2))
    assert [member.event_id for member in heard] == [100, 101], "events only rise"
    topology.set_primary("n", connector(2), 200)
    assert topology.member("n") == Member("n", 200, connector(2), None), "who serves does not stand by"
    end()
    topology.set_backup("n", None, 300)
    assert len(heard) == 3
    topology.clear()
    assert topology.members() == []


def test_a_peer_that_has_proved_nothing_announces_no_large_frame(time: ManualTime) -> None:
    announcer, dialer, _ = make(time, 1)
    announcer.start("node")
    wire = dialer.wires[0]
    wire.link.connected(wire)
    wire.link.receive_data((FRAME_BYTES_BEFORE_LOGIN_MAX + 1).to_bytes(4))
    assert announcer.state is State.WAITING
    assert wire.closed
