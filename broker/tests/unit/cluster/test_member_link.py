"""The link to another member, with the other side and the time moved by hand."""

from __future__ import annotations

import pytest

from support.cluster_links import PASSWORD, SealableEnd, accept_proof, frames_of, sealed_frame
from understudy.cluster.membership.credentials import NONCE_BYTES, ClusterCredentials
from understudy.cluster.membership.member_link import CLUSTER_CHANNEL, Event, LinkSettings, MemberLink, State
from understudy.errors import MachineError
from understudy.limits import FRAME_BYTES_BEFORE_LOGIN_MAX
from understudy.machine import ILLEGAL
from understudy.testing.manual_time import ManualTime
from understudy.wire.core import packets
from understudy.wire.core.codec import FrameDecoder
from understudy.wire.core.peer import Link, PeerOptions
from understudy.wire.core.transport import TransportConfiguration
from understudy.wire.sealed import Sealer


class CountingEntropy:
    def __init__(self) -> None:
        self.calls = 0

    def token(self, length_bytes: int) -> bytes:
        self.calls += 1
        return bytes([self.calls]) * length_bytes


def connector(port: int) -> TransportConfiguration:
    return TransportConfiguration(f"c{port}", parameters={"host": "127.0.0.1", "port": str(port)})


class Wire(SealableEnd):
    """One dialled connection; implements ``ports.Connection`` and decodes the sent bytes."""

    peer = "peer:1"
    certificate_subject = None
    upgrade_without_name = False

    def __init__(self, target: TransportConfiguration, link: Link) -> None:
        self.target = target
        self.link = link
        self.sent = b""
        self.closed = False
        self.sealer_of_answers: Sealer | None = None

    def send(self, data: bytes) -> None:
        self.sent += data

    def outgoing_bytes(self) -> int:
        return 0

    def close(self) -> None:
        self.closed = True

    abort = close

    def packets(self) -> list[packets.Packet]:
        return [frame.packet for frame in frames_of(FrameDecoder(role="server"), self.sent)]

    def answer(self, packet: packets.Packet) -> None:
        self.link.receive_data(sealed_frame(self.sealer_of_answers, packet, CLUSTER_CHANNEL))


class Dialer:
    def __init__(self) -> None:
        self.wires: list[Wire] = []

    def dial(self, connector: TransportConfiguration, link: Link) -> None:
        self.wires.append(Wire(connector, link))


@pytest.fixture
def time() -> ManualTime:
    return ManualTime()


class Owner:
    """Records the calls of a link; implements ``LinkOwner``."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def link_joined(self, link: MemberLink) -> None:
        self.calls.append("joined")
        link.send(packets.SubscribeTopologyV2(True), 0)

    def link_received(self, link: MemberLink, packet: packets.Packet) -> None:
        self.calls.append(packet)

    def link_lost(self, link: MemberLink, *, joined: bool, dismissed: bool) -> None:
        self.calls.append((joined, dismissed, link.failures))


def make(time: ManualTime, settings: LinkSettings | None = None) -> tuple[MemberLink, Dialer, ClusterCredentials]:
    dialer = Dialer()
    credentials = ClusterCredentials("u", PASSWORD, CountingEntropy())
    link = MemberLink(Owner(), connector(1), settings or LinkSettings(), credentials, dialer, time, time)
    return link, dialer, credentials


def calls(link: MemberLink) -> list[object]:
    assert isinstance(link._owner, Owner)
    return link._owner.calls


def prove(wire: Wire, credentials: ClusterCredentials) -> None:
    wire.link.connected(wire)
    wire.sealer_of_answers = accept_proof(credentials, wire.packets, wire.answer)
    assert wire.sealer is not None


@pytest.mark.parameter("cluster-user", "cluster-password")
def test_the_link_joins_after_mutual_proof(time: ManualTime) -> None:
    link, dialer, credentials = make(time)
    link.start()
    prove(dialer.wires[0], credentials)
    assert isinstance(dialer.wires[0].packets()[-1], packets.SubscribeTopologyV2)
    assert link.joined
    assert calls(link) == ["joined"]
    assert PASSWORD.encode() not in dialer.wires[0].sent


def test_an_acceptor_without_the_password_gets_no_connection(time: ManualTime) -> None:
    link, dialer, _ = make(time)
    link.start()
    wire = dialer.wires[0]
    wire.link.connected(wire)
    wire.answer(packets.ClusterNonce(b"n" * NONCE_BYTES, True))
    wire.answer(packets.ClusterAccept(b"p" * 32))
    assert link.state is State.WAITING
    assert wire.closed
    assert calls(link) == [(False, False, 1)]
    assert PASSWORD.encode() not in wire.sent


def test_refused_credentials_are_tried_again_later(time: ManualTime) -> None:
    link, dialer, _ = make(time)
    link.start()
    dialer.wires[0].link.connected(dialer.wires[0])
    dialer.wires[0].answer(packets.ClusterConnectReply(False))
    assert link.state is State.WAITING
    time.advance(500)
    assert len(dialer.wires) == 2


@pytest.mark.parametrize(
    ("active", "reached", "own", "dials"),
    [(True, False, False, 5), (True, True, False, 20), (True, True, True, 5), (False, False, False, 20)],
)
def test_an_active_node_dials_a_place_seldom_where_it_never_reached_a_node_or_took_the_place_of_one(
    time: ManualTime, active: bool, reached: bool, own: bool, dials: int
) -> None:
    """A node that starts there finds the active one itself; a passive node, and a lost member, are looked for often."""
    link, dialer, _ = make(time, LinkSettings(retry_interval_ms=500, max_retry_interval_ms=2_000))
    link.start()
    link.ever_joined = reached

    def fail() -> None:
        wire = dialer.wires[-1]
        wire.link.disconnected("refused")
        link.rest(link.target if own else None, node_is_active=active)

    for _ in range(20):
        fail()
        before = len(dialer.wires)
        time.advance(500)
        assert len(dialer.wires) == before + 1
    first = len(dialer.wires)
    for _ in range(20):
        if dialer.wires[-1].link is not None and link.state is State.CONNECTING:
            fail()
        time.advance(500)
    assert len(dialer.wires) - first == dials


def test_a_refusal_that_stays_the_same_is_logged_once_a_minute(
    time: ManualTime, caplog: pytest.LogCaptureFixture
) -> None:
    link, dialer, _ = make(time, LinkSettings(retry_interval_ms=500))
    link.start()
    for second in range(130):
        wire = dialer.wires[-1]
        wire.link.connected(wire)
        wire.answer(packets.ClusterConnectReply(False))
        time.advance(500)
        wire = dialer.wires[-1]
        wire.link.disconnected("reset by the peer")
        time.advance(500)
        assert second or len(caplog.records) == 1
    refusals = [each for each in caplog.records if each.message == "connection to another node refused"]
    assert len(refusals) == 3
    assert "refused the cluster credentials" in str(vars(refusals[0])["error"])


def test_a_lost_link_is_made_anew_and_pings_keep_it(time: ManualTime) -> None:
    link, dialer, credentials = make(time)
    link.start()
    prove(dialer.wires[0], credentials)
    before = len(dialer.wires[0].packets())
    time.advance(30_000)
    assert len(dialer.wires[0].packets()) == before + 1
    dialer.wires[0].link.disconnected("gone")
    assert calls(link) == ["joined", (True, False, 1)]
    time.advance(500)
    prove(dialer.wires[1], credentials)
    assert link.joined


@pytest.mark.parameter("cluster-connection/connection-ttl", "cluster-connection/check-period")
def test_a_silent_member_is_lost_after_the_connection_ttl(time: ManualTime) -> None:
    link, dialer, credentials = make(
        time, LinkSettings(peer=PeerOptions(connection_ttl_ms=9_000, check_period_ms=4_000))
    )
    link.start()
    prove(dialer.wires[0], credentials)
    time.advance(9_000)
    assert link.joined
    time.advance(1)
    assert not link.joined


@pytest.mark.parametrize("options", [PeerOptions(-1, 30_000), PeerOptions(60_000, -1), PeerOptions(-1, -1)])
def test_silence_without_a_limit_keeps_the_link(time: ManualTime, options: PeerOptions) -> None:
    link, dialer, credentials = make(time, LinkSettings(peer=options))
    link.start()
    prove(dialer.wires[0], credentials)
    time.advance(1_000_000)
    assert link.joined


@pytest.mark.parametrize("authenticated", [False, True])
@pytest.mark.parameter("cluster-connection/call-timeout")
def test_a_request_without_response_ends_the_connection_after_call_timeout(
    time: ManualTime, authenticated: bool
) -> None:
    link, dialer, credentials = make(time, LinkSettings(peer=PeerOptions(call_timeout_ms=2_000)))
    votes: list[object] = []
    link.start()
    if authenticated:
        prove(dialer.wires[0], credentials)
        link.ask(vote(), packets.QuorumVoteReply, votes.append)
    else:
        dialer.wires[0].link.connected(dialer.wires[0])
    time.advance(1_999)
    assert link.state is not State.WAITING
    time.advance(1)
    assert link.state is State.WAITING
    assert votes == [None] * authenticated


def vote() -> packets.QuorumVote:
    return packets.QuorumVote(packets.PRIMARY_FAILOVER_VOTE, packets.FailoverVote(False, "pair"))


@pytest.mark.parameter(
    "cluster-connection/retry-interval",
    "cluster-connection/retry-interval-multiplier",
    "cluster-connection/max-retry-interval",
)
def test_the_interval_between_attempts_grows_to_its_limit(time: ManualTime) -> None:
    link, dialer, _ = make(time, LinkSettings(100, 2.0, 500))
    link.start()
    for wait_ms in (100, 200, 400, 500, 500):
        dialer.wires[-1].link.disconnected("refused")
        dials = len(dialer.wires)
        time.advance(wait_ms - 1)
        assert len(dialer.wires) == dials
        time.advance(1)
        assert len(dialer.wires) == dials + 1


@pytest.mark.parametrize(("settings", "failures", "wait_ms"), [
    (LinkSettings(500, 1.0, 2_000), 9, 500), (LinkSettings(5_000, 1.0, 2_000), 1, 2_000),
    (LinkSettings(500, 1e300, 2_000), 9, 2_000), (LinkSettings(500, 0.0, 2_000), 5, 500), (LinkSettings(0), 3, 0),
])  # fmt: skip
def test_interval_of_unusual_settings(settings: LinkSettings, failures: int, wait_ms: int) -> None:
    assert settings.retry_ms(failures) == wait_ms


def test_a_vote_is_answered_by_its_response(time: ManualTime) -> None:
    link, dialer, credentials = make(time)
    link.start()
    prove(dialer.wires[0], credentials)
    votes: list[object] = []
    link.ask(vote(), packets.QuorumVoteReply, votes.append)
    link.ask(vote(), packets.QuorumVoteReply, votes.append)()
    answer = packets.QuorumVoteReply(packets.PRIMARY_FAILOVER_VOTE, packets.FailoverVote(True, "pair", None))
    for _ in range(2):
        dialer.wires[0].answer(answer)
    assert votes == [answer], "the second request was cancelled"


def test_a_vote_waits_for_the_connection_or_its_failure(time: ManualTime) -> None:
    link, dialer, credentials = make(time)
    link.start()
    votes: list[object] = []
    link.ask(vote(), packets.QuorumVoteReply, votes.append)
    dialer.wires[0].link.disconnected("refused")
    assert votes == [None]
    link.ask(vote(), packets.QuorumVoteReply, votes.append)
    assert len(dialer.wires) == 2, "it connects at once"
    prove(dialer.wires[1], credentials)
    assert isinstance(dialer.wires[1].packets()[-1], packets.QuorumVote)
    dialer.wires[1].link.disconnected("lost")
    assert votes == [None, None]


def test_a_packet_before_the_proof_is_not_passed_on(time: ManualTime) -> None:
    link, dialer, _ = make(time)
    link.start()
    dialer.wires[0].link.connected(dialer.wires[0])
    dialer.wires[0].answer(packets.ClusterTopologyV4(False, "n", 5, connector(1), None, True))
    assert calls(link) == []


def test_stop_hangs_up_and_an_old_connection_is_deaf(time: ManualTime) -> None:
    link, dialer, credentials = make(time)
    link.start()
    link.stop()
    wire = dialer.wires[0]
    wire.link.connected(wire)
    assert wire.closed
    wire.link.disconnected("late")
    wire.link.receive_data(b"\0")
    assert link.state is State.IDLE
    link.start()
    prove(dialer.wires[1], credentials)


def test_a_stopping_node_dismisses_the_link(time: ManualTime) -> None:
    link, dialer, credentials = make(time)
    link.start()
    prove(dialer.wires[0], credentials)
    dialer.wires[0].answer(packets.DisconnectV3("node", 2, None, None))
    assert link.state is State.WAITING
    assert calls(link) == ["joined", (True, True, 1)]


def test_a_stranger_does_not_dismiss_the_link(time: ManualTime) -> None:
    """A stranger at the address of a node that is down says that it stops: the link is tried on."""
    link, dialer, _ = make(time)
    link.start()
    wire = dialer.wires[0]
    wire.link.connected(wire)
    wire.answer(packets.DisconnectV3("node", 2, None, None))
    assert link.state is State.WAITING
    assert calls(link) == [(False, False, 1)]
    assert not link.stopped


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_every_pair_is_a_transition_or_a_written_refusal(time: ManualTime, state: State, event: Event) -> None:
    link, _, _ = make(time)
    link._state = state
    if MemberLink.TABLE[state, event] is ILLEGAL:
        with pytest.raises(MachineError):
            link.fire(event)
        assert link.state is state


def test_a_peer_that_has_proved_nothing_announces_no_large_frame(time: ManualTime) -> None:
    link, dialer, _ = make(time)
    link.start()
    wire = dialer.wires[0]
    wire.link.connected(wire)
    wire.link.receive_data((FRAME_BYTES_BEFORE_LOGIN_MAX + 1).to_bytes(4))
    assert link.state is State.WAITING
    assert wire.closed
