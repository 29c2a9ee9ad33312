"""``CorePeer``: handshake, pings, responses in order, disconnect; the other side is played by hand."""

from __future__ import annotations

import pytest

from support.cluster_links import SealableEnd
from understudy.errors import BrokerError, ClusterSecurityError, RemoteProtocolError
from understudy.machine import ILLEGAL
from understudy.testing.manual_time import ManualTime
from understudy.wire.core import packets, peer
from understudy.wire.core.codec import MAGIC, FrameDecoder, encode
from understudy.wire.core.codes import ErrorCode
from understudy.wire.core.peer import REFUSAL_REPEATED_MS, CorePeer, Event, PeerOptions, RefusalLog, State
from understudy.wire.core.transport import TransportConfiguration

CHANNEL = 3
CONNECTION_TTL_MS = PeerOptions().connection_ttl_ms
PING_PERIOD_MS = PeerOptions().check_period_ms
REPLY = packets.ClusterConnectReply(True)


class Socket(SealableEnd):
    """``ports.Connection``."""

    peer = "other:1"
    certificate_subject = None
    upgrade_without_name = False

    def __init__(self) -> None:
        self.sent = b""
        self.closed = False

    def send(self, data: bytes) -> None:
        assert not self.closed
        self.sent += data

    def outgoing_bytes(self) -> int:
        return 0

    def close(self) -> None:
        self.closed = True

    abort = close


class PeerHarness:
    """A peer, its owner and the other side of its connection."""

    def __init__(self, options: PeerOptions | None = None) -> None:
        self.time = ManualTime()
        self.connection = Socket()
        self.calls: list[object] = []
        self.error: BrokerError | None = None
        target = TransportConfiguration("c", parameters={"host": "127.0.0.1", "port": "1"})
        self.peer = CorePeer(self, target, self.time, self.time, options or PeerOptions())

    # --- PeerOwner

    def peer_opened(self, peer: CorePeer) -> None:
        self.calls.append("opened")

    def peer_received(self, peer: CorePeer, channel_id: int, packet: packets.Packet) -> None:
        self.calls.append((channel_id, packet))
        if self.error is not None:
            raise self.error

    def peer_lost(self, peer: CorePeer, reason: str) -> None:
        self.calls.append(reason)

    # ---

    def open(self) -> PeerHarness:
        self.peer.connected(self.connection)
        self.calls.clear()
        return self

    def packets(self) -> list[packets.Packet]:
        return [frame.packet for frame in FrameDecoder(role="server").receive_data(self.connection.sent)]

    def answer(self, packet: packets.Packet, channel_id: int = CHANNEL) -> None:
        self.peer.receive_data(encode(packet, channel_id))

    def request(self, answers: list[packets.Packet]) -> None:
        self.peer.request(packets.ClusterProof(b"p" * 32), CHANNEL, (packets.ClusterConnectReply,), answers.append)


def test_the_magic_and_a_ping_come_first() -> None:
    rig = PeerHarness()
    rig.peer.connected(rig.connection)
    assert rig.connection.sent.startswith(MAGIC)
    assert rig.packets() == [packets.Ping(CONNECTION_TTL_MS)]
    assert rig.calls == ["opened"]


def test_pings_continue_while_the_other_side_answers() -> None:
    rig = PeerHarness().open()
    for _ in range(10):
        rig.time.advance(PING_PERIOD_MS)
        rig.answer(packets.Ping(CONNECTION_TTL_MS), 0)
    assert len(rig.packets()) == 11
    assert rig.calls == []


def test_a_silent_side_is_lost_after_the_connection_ttl() -> None:
    rig = PeerHarness().open()
    rig.time.advance(CONNECTION_TTL_MS + 2 * PING_PERIOD_MS)
    assert rig.connection.closed
    (reason,) = rig.calls
    assert "nothing received" in str(reason)


def test_a_side_that_is_silent_for_the_second_limit_is_lost_and_told_of_the_ttl_only() -> None:
    rig = PeerHarness(PeerOptions(check_period_ms=-1, silence_ms=4_000)).open()
    for _ in range(5):
        rig.time.advance(1_000)
        rig.answer(packets.Ping(CONNECTION_TTL_MS), 0)
    assert rig.packets() == [packets.Ping(CONNECTION_TTL_MS)] * 6
    rig.time.advance(4_000)
    assert rig.calls == []
    rig.time.advance(1)
    assert rig.calls == ["nothing received for 4001 ms"]


def test_time_in_which_this_side_was_stopped_is_no_silence_of_the_other_one() -> None:
    rig = PeerHarness(PeerOptions(silence_ms=4_000)).open()
    rig.time.advance(500)
    rig.time.stop_process(60_000)
    rig.time.advance(3_999)
    assert rig.calls == []
    rig.time.advance(2)
    assert rig.calls == ["nothing received for 4001 ms"]


def test_responses_belong_to_requests_in_their_order() -> None:
    rig, first, second = PeerHarness().open(), [], []
    rig.request(first)
    rig.request(second)
    other = packets.ClusterChallenge(b"n" * 32, b"p" * 32)
    rig.answer(other)
    rig.answer(REPLY)
    assert (first, second) == ([REPLY], [])
    rig.answer(packets.ClusterConnectReply(False))
    assert second == [packets.ClusterConnectReply(False)]
    assert rig.calls == [(CHANNEL, other)], "no response to these requests"


def test_an_exception_instead_of_a_response_closes_the_connection() -> None:
    rig, answers = PeerHarness().open(), []
    rig.request(answers)
    rig.answer(packets.ExceptionResponse(ErrorCode.SECURITY_EXCEPTION, "no", None))
    assert (rig.connection.closed, answers, rig.calls) == (True, [], ["no"])


def test_requests_without_a_response_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "REQUESTS_MAX", 1)
    rig = PeerHarness().open()
    rig.request([])
    with pytest.raises(RemoteProtocolError):
        rig.request([])


def test_an_error_of_the_owner_or_of_the_bytes_closes_the_connection() -> None:
    rig = PeerHarness().open()
    rig.error = ClusterSecurityError("out of order")
    rig.answer(REPLY)
    assert rig.connection.closed
    assert rig.calls[1:] == ["out of order"]
    broken = PeerHarness().open()
    broken.peer.receive_data(b"\xff" * 20)
    assert broken.connection.closed
    assert len(broken.calls) == 1


@pytest.mark.parametrize(
    "packet",
    [packets.Disconnect("n"), packets.DisconnectV2("n", None), packets.DisconnectV3("n", 2, None, None)],
)
def test_a_disconnect_ends_it(packet: packets.Packet) -> None:
    rig = PeerHarness().open()
    rig.answer(packet, 0)
    assert (rig.connection.closed, len(rig.calls)) == (True, 1)


def test_after_close_the_owner_is_not_called() -> None:
    rig = PeerHarness().open()
    rig.peer.close()
    rig.answer(REPLY)
    rig.peer.disconnected("late")
    rig.peer.send(REPLY)
    rig.time.advance(10 * CONNECTION_TTL_MS)
    assert (rig.connection.closed, rig.calls) == (True, [])
    early = PeerHarness()
    early.peer.close()
    early.peer.connected(early.connection)
    assert (early.connection.closed, early.connection.sent, early.calls) == (True, b"", [])


def test_a_failed_dial_is_reported_once() -> None:
    rig = PeerHarness()
    rig.peer.disconnected("refused")
    rig.peer.disconnected("again")
    assert rig.calls == ["refused"]


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_only_a_second_connection_is_illegal(state: State, event: Event) -> None:
    illegal = CorePeer.TABLE[state, event] is ILLEGAL
    assert illegal == (event is Event.CONNECT and state is not State.DIALLING)


def test_reasons_of_refusals_are_logged_by_target_and_again_when_they_change(caplog: pytest.LogCaptureFixture) -> None:
    rig = PeerHarness()
    log = RefusalLog(rig.time)
    log.note(rig.peer)
    assert not caplog.records, "it was not refused"
    for reason in ("first", "first", "second", "second"):
        rig.peer.refusal = reason
        log.note(rig.peer)
    assert [vars(each)["error"] for each in caplog.records] == ["first", "second"]
    rig.time.advance(REFUSAL_REPEATED_MS)
    log.note(rig.peer)
    assert len(caplog.records) == 3
