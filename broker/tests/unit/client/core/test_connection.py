"""A connection against hand-made answers: greeting, liveness, failover, restoring, the end."""

from __future__ import annotations

import pytest

from support.client import NODE, Drive, Outcome, transport
from understudy.client.core.connection.failover import State
from understudy.client.core.connection.listeners import FailoverEvent, FailureCode
from understudy.client.core.session.channel import SessionOptions
from understudy.errors import (
    AuthenticationFailed,
    BrokerError,
    CallTimedOut,
    ConnectionLost,
    FailoverTimedOut,
    IncompatibleVersion,
    ObjectClosed,
    SessionRejected,
    Unreachable,
)
from understudy.wire.core.codec import encode
from understudy.wire.core.packets import (
    CheckForFailover,
    CheckForFailoverReply,
    ClusterTopologyV2,
    ClusterTopologyV4,
    CreateSession,
    CreateSessionResponse,
    CreateSessionV2,
    DisconnectReason,
    DisconnectV3,
    ExceptionResponse,
    Ping,
    ReattachSession,
    ReattachSessionResponse,
    SubscribeTopologyV2,
)
from understudy.wire.core.transport import TransportConfiguration

LOST = ConnectionLost("pulled")


def test_greeting() -> None:
    drive = Drive()
    drive.core.connect(drive.connected)
    assert drive.dialled == "a:1"
    drive.core.transport_up(drive.link.dials[-1][1])
    data = drive.core.data_to_send()
    assert data == b"ARTEMIS" + encode(Ping(60_000), 0) + encode(SubscribeTopologyV2(False, 136), 0)
    drive.topology(last=False)
    assert not drive.connected.settled
    drive.topology()
    assert drive.connected.settled
    assert drive.core.node_id == NODE, "a node without connectors is the one that answered"
    assert drive.core.data_to_send() == b""


def test_no_connector_answers() -> None:
    drive = Drive("(tcp://a:1,tcp://b:1)")
    drive.core.connect(drive.connected)
    drive.refuse(LOST)
    assert drive.dialled == "b:1"
    drive.refuse(LOST)
    assert isinstance(drive.connected.error, Unreachable)
    assert drive.core.state is State.CLOSED


def test_retries_after_the_interval() -> None:
    drive = Drive("tcp://a:1?initialConnectAttempts=2&retryInterval=300")
    drive.core.connect(drive.connected)
    drive.refuse(LOST)
    drive.tick(299)
    assert len(drive.link.dials) == 1
    drive.tick(1)
    assert len(drive.link.dials) == 2


def test_a_silent_peer_is_given_up_after_the_call_timeout() -> None:
    drive = Drive("(tcp://a:1,tcp://b:1)?callTimeout=1000")
    drive.core.connect(drive.connected)
    drive.up()
    drive.tick(1000)
    assert drive.dialled == "b:1"
    assert drive.link.hang_ups == 1


def test_a_slow_dial_is_given_up_after_its_own_timeout() -> None:
    drive = Drive("(tcp://a:1?connect-timeout-millis=50,tcp://b:1)")
    drive.core.connect(drive.connected)
    drive.tick(50)
    assert drive.dialled == "b:1"


def test_what_an_abandoned_dial_reports_is_ignored() -> None:
    drive = Drive("(tcp://a:1?connect-timeout-millis=50,tcp://b:1)")
    drive.core.connect(drive.connected)
    old = drive.link.dials[-1][1]
    drive.tick(50)
    drive.core.transport_lost(old, LOST)
    drive.core.transport_up(old)
    assert drive.core.state is State.DIALLING
    assert len(drive.link.dials) == 2


def test_dials_beside_each_other() -> None:
    """The first that is answered is used, the others are cancelled."""
    drive = Drive("(tcp://a:1,tcp://b:1,tcp://c:1)")
    drive.core.connect(drive.connected)
    drive.tick(249)
    assert len(drive.link.dials) == 1
    drive.tick(1)
    drive.tick(250)
    assert [str(connector) for connector, _ in drive.link.dials] == ["a:1", "b:1", "c:1"]
    attempts = [attempt for _, attempt in drive.link.dials]
    drive.core.transport_up(attempts[1])
    assert (str(drive.core.connector), drive.link.cancelled) == ("b:1", [attempts[0], attempts[2]])
    drive.core.transport_up(attempts[0])
    drive.core.transport_lost(attempts[2], LOST)
    assert drive.core.state is State.GREETING


def test_a_vanished_host_does_not_keep_the_client_from_its_backup() -> None:
    """The dial to a hangs for its connect timeout, 10 s; b is dialled again after each retry interval."""
    drive = Drive("(tcp://a:1,tcp://b:1)?reconnectAttempts=-1&retryInterval=500")
    drive.connect()
    drive.clock.now_ms += 5000
    drive.refuse(LOST)
    for _ in range(8):
        assert drive.dialled == "b:1"
        refused = drive.link.dials[-1][1]
        drive.core.transport_lost(refused, LOST)
        drive.tick(250)
        drive.tick(500)
    drive.up()
    assert (str(drive.core.connector), drive.core.state) == ("b:1", State.GREETING)
    assert [str(connector) for connector, _ in drive.link.dials].count("a:1") == 2, "the first connection and one dial"


def test_closing_drops_every_dial() -> None:
    drive = Drive("(tcp://a:1,tcp://b:1)")
    drive.core.connect(drive.connected)
    drive.tick(250)
    drive.core.close()
    drive.core.transport_up(drive.link.dials[0][1])
    assert drive.core.state is State.CLOSED
    assert drive.tick(20_000) is None


def test_junk_ends_the_connection() -> None:
    drive = Drive("tcp://a:1")
    drive.core.connect(drive.connected)
    drive.up()
    drive.core.receive_data(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert isinstance(drive.connected.error, Unreachable)
    assert "broke the protocol" in str(drive.connected.error)
    drive.core.receive_data(b"more")


def test_an_old_server_is_refused() -> None:
    drive = Drive("tcp://a:1")
    drive.core.connect(drive.connected)
    drive.up()
    drive.answer(0, ClusterTopologyV4(False, NODE, 1, last=True, server_version=129))
    assert isinstance(drive.connected.error, IncompatibleVersion)


def test_a_lower_server_version_is_used() -> None:
    drive = Drive()
    drive.core.connect(drive.connected)
    drive.up()
    drive.answer(0, ClusterTopologyV4(False, NODE, 1, last=True, server_version=132))
    outcome = Outcome()
    drive.core.sessions.open(SessionOptions(), outcome)
    assert drive.sent_one(CreateSession).version == 132


def test_session_creation() -> None:
    drive = Drive("tcp://a:1?minLargeMessageSize=5000&confirmationWindowSize=77")
    drive.connect()
    outcome = Outcome()
    drive.core.sessions.open(SessionOptions(), outcome)
    request = drive.sent_one(CreateSession)
    assert (request.session_channel_id, request.user, request.password, request.version) == (10, "u", "p", 136)
    assert (request.min_large_message_size, request.confirmation_window) == (5000, 77)
    assert (request.auto_commit_sends, request.auto_commit_acks, request.xa) == (True, True, False)
    drive.answer(1, CreateSessionResponse(136))
    assert outcome.value.channel_id == 10
    second = Outcome()
    drive.core.sessions.open(SessionOptions(), second)
    assert drive.sent_one(CreateSession).session_channel_id == 11


def test_client_id_goes_with_the_newer_packet() -> None:
    drive = Drive("tcp://a:1?clientID=me")
    drive.connect()
    drive.core.sessions.open(SessionOptions(), Outcome())
    assert drive.sent_one(CreateSessionV2).client_id == "me"


def test_bad_login() -> None:
    drive = Drive()
    drive.connect()
    outcome = Outcome()
    drive.core.sessions.open(SessionOptions(), outcome)
    drive.answer(1, ExceptionResponse(105, "no such user"))
    assert isinstance(outcome.error, AuthenticationFailed)


def test_version_is_lowered_until_the_server_takes_it() -> None:
    drive = Drive()
    drive.connect()
    outcome = Outcome()
    drive.core.sessions.open(SessionOptions(), outcome)
    offered = []
    for _ in range(7):
        offered.append(drive.sent_one(CreateSession).version)
        drive.answer(1, ExceptionResponse(108, "incompatible"))
    assert offered == [136, 135, 134, 133, 132, 131, 130]
    assert isinstance(outcome.error, IncompatibleVersion)


def test_a_starting_node_is_asked_again_for_a_while() -> None:
    drive = Drive("tcp://a:1?callTimeout=25&reconnectAttempts=-1")
    drive.connect()
    outcome = Outcome()
    drive.core.sessions.open(SessionOptions(), outcome)
    for _ in range(3):
        drive.sent_one(CreateSession)
        drive.answer(1, ExceptionResponse(112, "not started"))
        drive.tick(10)
    drive.sent_one(CreateSession)
    drive.answer(1, ExceptionResponse(112, "not started"))
    assert isinstance(outcome.error, SessionRejected)


def test_pings_and_the_connection_ttl() -> None:
    drive = Drive("tcp://a:1?clientFailureCheckPeriod=1000&connectionTTL=2500&reconnectAttempts=-1")
    drive.connect()
    assert drive.tick(999) is not None
    assert drive.sent() == []
    drive.tick(1)
    assert drive.sent() == [(0, Ping(2500))]
    drive.answer(0, Ping(2500))
    drive.tick(2500)
    assert not drive.core.failing_over
    drive.tick(1)
    assert drive.core.failing_over


HA = "tcp://a:1?ha=true&reconnectAttempts=-1"


def test_a_client_that_never_gives_up_fails_over_after_the_silence_timeout() -> None:
    drive = Drive(HA)
    drive.connect()
    for _ in range(8):
        drive.tick(1_250)
        assert drive.sent() == [(0, Ping(60_000))]
        drive.answer(0, Ping(60_000))
    for _ in range(4):
        assert drive.tick(1_250) is not None
        assert not drive.core.failing_over
    drive.tick(1)
    assert drive.core.failing_over


@pytest.mark.parametrize("url", [f"{HA}&silenceTimeout=-1", HA.replace("-1", "3"), HA.replace("ha=true", "ha=false")])
def test_other_clients_wait_for_the_connection_ttl(url: str) -> None:
    drive = Drive(url)
    drive.connect()
    for _ in range(29):
        drive.tick(1_000)
    assert drive.sent() == []
    for _ in range(31):
        drive.tick(1_000)
    assert not drive.core.failing_over
    drive.tick(1)
    assert drive.core.failing_over


def test_time_in_which_the_client_was_stopped_is_no_silence_of_the_broker() -> None:
    drive = Drive(HA)
    drive.connect()
    drive.tick(50_000)
    assert not drive.core.failing_over
    for _ in range(4):
        drive.tick(1_250)
    assert not drive.core.failing_over
    drive.tick(1)
    assert drive.core.failing_over


def test_no_pings_when_switched_off() -> None:
    drive = Drive("tcp://a:1?clientFailureCheckPeriod=-1&connectionTTL=-1")
    drive.connect()
    assert drive.tick(10_000_000) is None
    assert drive.sent() == []


def test_failover_to_the_backup() -> None:
    drive = Drive("tcp://a:1?reconnectAttempts=-1&ha=true")
    drive.connect(primary=transport("a", 1), backup=transport("b", 2))
    session = drive.session()
    heard: list[tuple[str, bool, FailureCode]] = []
    events: list[FailoverEvent] = []

    def listen(error: BrokerError, failed_over: bool, code: FailureCode) -> None:
        heard.append((str(error), failed_over, code))

    drive.core.listeners.of_failures.append(listen)
    drive.core.listeners.of_failovers.append(events.append)
    old_name = session.channel.name
    drive.clock.now_ms += 5000
    drive.refuse(LOST)
    assert drive.dialled == "b:2"
    drive.up()
    packets = [packet for _, packet in drive.sent()]
    assert CheckForFailover(NODE) in packets
    drive.answer(1, CheckForFailoverReply(True))
    assert drive.core.state is State.GREETING, "the topology is still missing"
    drive.topology(primary=transport("b", 2))
    assert drive.sent_one(ReattachSession).name == old_name
    drive.answer(1, ExceptionResponse(0, "boom"))
    assert drive.dialled == "a:1"
    drive.refuse(LOST)
    assert drive.core.state is State.WAITING, "one session that cannot be restored: the attempt is repeated"
    drive.tick(2000)
    drive.fail_over()
    assert drive.core.failovers == 1
    assert session.channel.name != old_name
    assert heard == [("pulled", True, FailureCode.FAILOVER)]
    assert events == [FailoverEvent.FAILURE_DETECTED, FailoverEvent.FAILOVER_COMPLETED]


@pytest.mark.parametrize("announced", ["when the connection is made", "later"])
def test_a_url_without_a_word_about_failover_means_it_as_soon_as_a_backup_is_known(announced: str) -> None:
    drive = Drive("tcp://a:1")
    pair = {"primary": transport("a", 1), "backup": transport("b", 2)}
    if announced == "later":
        drive.connect(primary=transport("a", 1))
        drive.topology(event_id=2, **pair)
    else:
        drive.connect(**pair)
    assert any("b:2 is the backup of a:1" in line for line in drive.link.lines)
    drive.refuse(ConnectionLost("gone"))
    assert drive.core.failing_over
    assert drive.dialled == "b:2"
    drive.fail_over()
    assert drive.core.failovers == 1


def test_a_known_backup_shortens_the_time_after_which_silence_is_a_loss() -> None:
    drive = Drive("tcp://a:1")
    drive.connect(primary=transport("a", 1))
    drive.tick(5001)
    assert not drive.core.failing_over
    drive.topology(event_id=2, primary=transport("a", 1), backup=transport("b", 2))
    for _ in range(5):
        drive.tick(1250)
    assert drive.core.failing_over


@pytest.mark.parametrize(
    ("url", "backup"),
    [
        ("tcp://a:1", None),
        ("tcp://a:1?ha=false", transport("b", 2)),
        ("tcp://a:1?reconnectAttempts=0", transport("b", 2)),
    ],
)
def test_a_connection_ends_with_its_transport_without_a_backup_or_if_the_url_says_so(
    url: str, backup: TransportConfiguration | None
) -> None:
    drive = Drive(url)
    drive.connect(primary=transport("a", 1), backup=backup)
    drive.refuse(ConnectionLost("gone"))
    assert isinstance(drive.core.closed, ConnectionLost)


def test_a_node_that_does_not_carry_on_ours_is_left() -> None:
    drive = Drive("(tcp://a:1,tcp://b:1)?reconnectAttempts=-1")
    drive.connect()
    drive.clock.now_ms += 5000
    drive.refuse(LOST)
    drive.up()
    drive.sent()
    drive.answer(1, CheckForFailoverReply(False))
    assert drive.dialled == "a:1"


def test_sessions_are_restored_in_order_and_new_ones_after_them() -> None:
    drive = Drive()
    drive.connect()
    first, second = drive.session(), drive.session()
    outcome = Outcome()
    drive.core.sessions.open(SessionOptions(), outcome)
    drive.sent()
    drive.clock.now_ms += 5000
    drive.refuse(LOST)
    drive.up()
    drive.sent()
    drive.answer(1, CheckForFailoverReply(True))
    drive.topology()
    for session in (first, second):
        assert drive.sent_one(ReattachSession).name == session.channel.name
        drive.answer(1, ReattachSessionResponse(-1, False))
        assert drive.sent_one(CreateSession).session_channel_id == session.channel_id
        drive.answer(1, CreateSessionResponse(136))
    assert drive.sent_one(CreateSession).session_channel_id == 12
    drive.answer(1, CreateSessionResponse(136))
    assert outcome.value.channel_id == 12


def test_a_node_that_is_still_starting_is_asked_again_while_restoring() -> None:
    drive = Drive("tcp://a:1?reconnectAttempts=-1&callTimeout=1000")
    drive.connect()
    drive.session()
    drive.clock.now_ms += 5000
    drive.refuse(LOST)
    drive.up()
    drive.sent()
    drive.answer(1, CheckForFailoverReply(True))
    drive.topology()
    drive.answer(1, ReattachSessionResponse(-1, False))
    drive.sent()
    drive.answer(1, ExceptionResponse(112, "starting"))
    drive.tick(10)
    drive.sent_one(CreateSession)
    drive.answer(1, ExceptionResponse(112, "starting"))
    drive.tick(1000)
    assert drive.core.state is State.WAITING, "not without limit"


def test_a_retry_put_off_dies_with_its_transport() -> None:
    drive = Drive("tcp://a:1?reconnectAttempts=-1")
    drive.connect()
    drive.session()
    drive.clock.now_ms += 5000
    drive.refuse(LOST)
    drive.up()
    drive.sent()
    drive.answer(1, CheckForFailoverReply(True))
    drive.topology()
    drive.answer(1, ReattachSessionResponse(-1, False))
    drive.answer(1, ExceptionResponse(112, "starting"))
    drive.refuse(LOST)
    drive.tick(10)
    assert drive.core.data_to_send() == b""


@pytest.mark.parametrize("with_target", [False, True])
def test_disconnect_starts_a_failover(with_target: bool) -> None:
    drive = Drive("tcp://a:1?reconnectAttempts=-1")
    drive.connect(primary=transport("a", 1), backup=transport("b", 2))
    drive.clock.now_ms += 5000
    connector = transport("c", 3) if with_target else None
    drive.answer(0, DisconnectV3(NODE, DisconnectReason.SHUT_DOWN, None, connector))
    assert drive.core.failing_over
    assert drive.link.hang_ups == 1
    assert drive.dialled == ("c:3" if with_target else "b:2"), "remembered, though the node left the topology"
    if not with_target:
        drive.refuse(LOST)
        assert drive.dialled == "a:1", "the connector that failed comes last"


def test_node_down_counts_with_ha_alone() -> None:
    for ha, left in (("true", 1), ("false", 2)):
        drive = Drive(f"tcp://a:1?ha={ha}")
        drive.connect()
        drive.topology(node_id="other", primary=transport("o", 1), last=False)
        drive.answer(0, ClusterTopologyV2(True, "other", 2))
        assert len(drive.core.link.topology) == left


def test_the_end_of_all_attempts() -> None:
    drive = Drive("tcp://a:1?reconnectAttempts=1")
    drive.connect()
    session = drive.session()
    heard: list[bool] = []
    drive.core.listeners.of_failures.append(lambda error, failed_over, code: heard.append(failed_over))
    pending = Outcome()
    drive.core.sessions.open(SessionOptions(), pending)
    drive.clock.now_ms += 5000
    drive.refuse(LOST)
    drive.refuse(LOST)
    assert heard == [False]
    assert isinstance(session.closed, FailoverTimedOut)
    assert isinstance(pending.error, FailoverTimedOut)
    late = Outcome()
    drive.core.sessions.open(SessionOptions(), late)
    assert isinstance(late.error, FailoverTimedOut)


def test_close() -> None:
    drive = Drive()
    drive.connect()
    session = drive.session()
    heard: list[bool] = []
    drive.core.listeners.of_failures.append(lambda error, failed_over, code: heard.append(failed_over))
    drive.core.close()
    drive.core.close()
    assert isinstance(session.closed, ObjectClosed)
    assert heard == []
    assert drive.tick(100_000) is None


def test_close_with_a_session_put_off() -> None:
    drive = Drive()
    drive.connect()
    outcome = Outcome()
    drive.core.sessions.open(SessionOptions(), outcome)
    drive.answer(1, ExceptionResponse(112, "starting"))
    drive.core.close()
    assert isinstance(outcome.error, ObjectClosed), "no caller is left waiting"


def test_a_request_waits_for_the_failover_as_long_as_it_may() -> None:
    drive = Drive("tcp://a:1?reconnectAttempts=-1&callFailoverTimeout=1000&retryInterval=100000")
    drive.connect()
    drive.clock.now_ms += 5000
    drive.refuse(LOST)
    outcome = Outcome()
    drive.core.sessions.open(SessionOptions(), outcome)
    drive.tick(1000)
    assert isinstance(outcome.error, CallTimedOut)
    assert drive.core.state is State.DIALLING, "the connection goes on looking"


def test_one_warning_at_a_loss_and_one_when_it_is_served_again() -> None:
    drive = Drive()
    drive.connect()
    assert drive.link.warnings == []
    drive.tick(60_000)
    drive.refuse(ConnectionLost("pulled"))
    assert drive.link.warnings == ["connection to a:1 was lost: pulled; trying again"]
    drive.clock.now_ms += 250
    drive.fail_over()
    assert drive.link.warnings[1:] == ["served again by a:1 after 0.25 s without service"]


def test_a_search_for_a_broker_is_logged_with_growing_pauses() -> None:
    drive = Drive("tcp://a:1?initialConnectAttempts=-1&retryInterval=1000")
    drive.core.connect(Outcome())
    told = []
    for second in range(100):
        before = len(drive.link.warnings)
        drive.refuse(Unreachable("connection refused"))
        if len(drive.link.warnings) > before:
            told.append(second)
        drive.tick(1000)
    assert told == [5, 10, 20, 40, 80]
    assert drive.link.warnings[0] == "no broker at a:1 for 5 s: connection refused; trying again"


@pytest.mark.parametrize("up", [False, True])
@pytest.mark.parametrize(("words", "hint"), [
    ("TLS/SSL connection has been closed (EOF)", "does that port speak TLS"),
    ("[SSL: CERTIFICATE_VERIFY_FAILED] Hostname mismatch, certificate is not valid for 'a'", "sniHost"),
    ("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate in certificate chain", "trustStorePath"),
    ("[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca", "keyStorePath"),
    ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED]", "keyStorePath"),
])  # fmt: skip
def test_the_cause_of_a_refused_handshake_is_named(words: str, hint: str, up: bool) -> None:
    drive, outcome = Drive("tcp://a:1?sslEnabled=true"), Outcome()
    drive.core.connect(outcome)
    if up:
        drive.up()
    drive.refuse(Unreachable(f"a:1: {words}"))
    assert hint in str(outcome.error)


def test_a_port_with_tls_is_named_as_a_cause() -> None:
    drive, outcome = Drive("tcp://a:1"), Outcome()
    drive.core.connect(outcome)
    drive.up()
    drive.refuse(ConnectionLost("the connection to a:1 ended"))
    assert "sslEnabled=true asks for TLS" in str(outcome.error)


def test_a_refused_connection_says_that_a_passive_node_opens_no_port() -> None:
    drive = Drive("tcp://a:1")
    outcome = Outcome()
    drive.core.connect(outcome)
    drive.refuse(Unreachable("a:1: Connection refused"))
    assert "a passive node opens no port" in str(outcome.error)


@pytest.mark.parametrize(("url", "answer", "hint"), [
    ("tcp://a:1", b"HTTP/1.1 400 Bad Request\r\n", "is that the port of the management?"),
    ("tcp://a:1", b"AMQP\x00\x00\x09\x01", "amqp091://host:port"),
    ("amqp091://a:1", b"HTTP/1.1 400 Bad Request\r\n", "is that the port of the management?"),
])  # fmt: skip
def test_a_port_of_another_protocol_is_named(url: str, answer: bytes, hint: str) -> None:
    drive, outcome = Drive(url), Outcome()
    drive.core.connect(outcome)
    drive.up()
    drive.core.receive_data(answer)
    assert hint in str(outcome.error)
    assert "does it run?" not in str(outcome.error), "it answers"
