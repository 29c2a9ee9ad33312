"""AMQP 0-9-1 from the client's side: each request, its answer, and the code with which a wrong one is refused."""

from __future__ import annotations

import pytest

from support.amqp091 import PLAIN, AmqpNode, bodies, declared, got
from support.core import CountingEntropy
from support.lost_fence import replace_node
from understudy import __version__
from understudy.errors import RemoteProtocolError
from understudy.limits import AMQP091_LIFETIME_MS_MAX
from understudy.protocols.handlers import AcceptorOptions
from understudy.security.authentication import Authenticator, OtherLogins, parse_certificate_users
from understudy.security.authorization import RoleSecurity
from understudy.security.password_hashes import HashParameters, PasswordHash
from understudy.security.settings import SecuritySettings
from understudy.terms import Amqp091Options
from understudy.testing.manual_time import ManualTime
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.frames import PROTOCOL_HEADER, FrameType, encode_frame, method_frame
from understudy.wire.amqp091.layout import Method

# --- connection ----------------------------------------------------------------------------------


def test_a_handshake_in_single_bytes() -> None:
    client = AmqpNode().amqp_client()
    client.send_bytes(PROTOCOL_HEADER)
    properties = client.only(m.ConnectionStart)[0].server_properties
    # the client of RabbitMQ for Java reads the version
    assert (properties["product"], properties["version"]) == ("Understudy", __version__)
    for byte in method_frame(m.ConnectionStartOk({}, "AMQPLAIN", b"\x05LOGINS\0\0\0\1u\x08PASSWORDS\0\0\0\1p", ""), 0):
        client.send_bytes(bytes((byte,)))
    assert client.only(m.ConnectionTune)[0] == m.ConnectionTune(2047, 131_072, 60)
    together = method_frame(m.ConnectionTuneOk(10, 4096, 0), 0) + method_frame(m.ConnectionOpen("/"), 0)
    client.send_bytes(together)
    assert client.only(m.ConnectionOpenOk)[0] == m.ConnectionOpenOk("")
    client.ask(m.ConnectionClose(200, ""), m.ConnectionCloseOk, 0)
    assert client.connection.closed


@pytest.mark.parametrize(
    "frames",
    [
        method_frame(m.ConnectionTuneOk(10, 4096, 0), 0),
        method_frame(m.ConnectionOpen("/"), 0),
        method_frame(m.ChannelOpen(), 1),
        method_frame(m.BasicPublish(0, "", "q"), 1),
        method_frame(m.ConnectionUpdateSecret(b"new", ""), 0),
        encode_frame(FrameType.HEADER, 0, b""),
        encode_frame(FrameType.METHOD, 0, bytes(8193)),
        b"\x01\0\0\0\0\0\0\0",
        method_frame(m.ConnectionStartOk({"x": [None] * 300}, "PLAIN", PLAIN, ""), 0),
    ],
)
def test_nothing_but_the_login_is_taken_before_it(frames: bytes) -> None:
    client = AmqpNode().amqp_client()
    client.send_bytes(PROTOCOL_HEADER)
    client.received()
    with pytest.raises(RemoteProtocolError):
        client.send_bytes(frames)
    assert client.received() == []


@pytest.mark.parametrize(
    ("mechanism", "response"), [("PLAIN", b"u\0p"), ("AMQPLAIN", b"\xff"), ("EXTERNAL", b""), ("ANONYMOUS", b"")]
)
def test_a_refused_login_says_no_more_than_that(mechanism: str, response: bytes) -> None:
    client = AmqpNode().amqp_client()
    client.send_bytes(PROTOCOL_HEADER)
    client.received()
    properties = {"capabilities": {"authentication_failure_close": True}}
    closed = client.ask(m.ConnectionStartOk(properties, mechanism, response, ""), m.ConnectionClose, 0)
    assert closed == m.ConnectionClose(403, "ACCESS_REFUSED - the login was refused")
    assert client.connection.closed


@pytest.mark.parametrize(("certificate", "offered"), [("CN=alice", True), ("CN=mallory", False), (None, False)])
def test_external_is_offered_to_a_certificate_of_a_user(certificate: str | None, offered: bool) -> None:
    certificates = parse_certificate_users("alice = CN=alice", users_file="u", roles="", roles_file="r")
    others = OtherLogins(None, certificates)
    policy = RoleSecurity(Authenticator({}, {}, CountingEntropy(), ManualTime(), others=others), SecuritySettings())
    client = AmqpNode(security=policy).amqp_client(certificate=certificate)
    client.send_bytes(PROTOCOL_HEADER)
    mechanisms = client.only(m.ConnectionStart)[0].mechanisms
    assert mechanisms == (b"PLAIN AMQPLAIN EXTERNAL" if offered else b"PLAIN AMQPLAIN")
    properties = {"capabilities": {"authentication_failure_close": True}}
    client.send(m.ConnectionStartOk(properties, "EXTERNAL", b"", ""), 0)
    client.only(m.ConnectionTune if offered else m.ConnectionClose)


@pytest.mark.parametrize(("channels", "frame_bytes"), [(2048, 4096), (1, 1), (1, 4095), (1, 131_073)])
def test_limits_above_the_offer_are_refused(channels: int, frame_bytes: int) -> None:
    client = AmqpNode().amqp_client()
    client.send_bytes(PROTOCOL_HEADER)
    client.send(m.ConnectionStartOk({}, "PLAIN", PLAIN, ""), 0)
    client.received()
    assert client.ask(m.ConnectionTuneOk(channels, frame_bytes, 0), m.ConnectionClose, 0).reply_code == 530


def test_a_client_without_limits_of_its_own_has_the_offered_ones() -> None:
    client = AmqpNode().amqp_client()
    client.send_bytes(PROTOCOL_HEADER)
    client.send(m.ConnectionStartOk({}, "PLAIN", PLAIN, ""), 0)
    client.received()
    client.send(m.ConnectionTuneOk(0, 0, 0), 0)
    client.ask(m.ConnectionOpen("/"), m.ConnectionOpenOk, 0)
    assert (client.handler.peer.channel_max, client.handler.peer.frame_max) == (2047, 131_072)


@pytest.mark.parametrize(
    ("mechanism", "response"), [("PLAIN", PLAIN), ("AMQPLAIN", b"\x05LOGINS\0\0\0\1u\x08PASSWORDS\0\0\0\1p")]
)
def test_a_client_without_an_initial_response_is_asked_for_one(mechanism: str, response: bytes) -> None:
    client = AmqpNode().amqp_client()
    client.send_bytes(PROTOCOL_HEADER)
    client.received()
    assert client.ask(m.ConnectionStartOk({}, mechanism, b"", ""), m.ConnectionSecure, 0) == m.ConnectionSecure(b"")
    client.ask(m.ConnectionSecureOk(response), m.ConnectionTune, 0)


@pytest.mark.parametrize("response", [b"", b"u", b"\0u\0p\0"])
def test_a_client_is_asked_once_for_its_response(response: bytes) -> None:
    client = AmqpNode().amqp_client()
    client.send_bytes(PROTOCOL_HEADER)
    client.received()
    properties = {"capabilities": {"authentication_failure_close": True}}
    client.ask(m.ConnectionStartOk(properties, "PLAIN", b"", ""), m.ConnectionSecure, 0)
    closed = client.ask(m.ConnectionSecureOk(response), m.ConnectionClose, 0)
    assert closed == m.ConnectionClose(403, "ACCESS_REFUSED - the login was refused")


def test_virtual_hosts_are_apart() -> None:
    node = AmqpNode(AcceptorOptions(amqp091=Amqp091Options(virtual_hosts=("v",))))
    one, other = node.channel(), node.channel(virtual_host="v")
    declared(one)
    declared(other)
    one.publish("q", b"default")
    other.publish("q", b"of v")
    assert bodies(one) == [b"default"]
    other.send(m.BasicGet(0, "q"))
    assert other.only(m.BasicGetOk)[1].method == m.BasicGetOk(1, False, "", "q", 0)
    client = node.amqp_client(virtual_host="unknown")
    with pytest.raises(AssertionError, match="530"):
        client.open()


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (encode_frame(FrameType.HEARTBEAT, 1, b""), 505),
        (encode_frame(9, 1, b""), 501),
        (encode_frame(FrameType.METHOD, 1, b"\0\x3c\0\x63"), 503),
        (encode_frame(FrameType.METHOD, 1, b"\0\x3c\0\x28\0"), 502),
        (encode_frame(FrameType.BODY, 1, b""), 505),
        (encode_frame(FrameType.BODY, 2, b""), 504),
        (method_frame(m.ChannelOpen(), 1), 504),
        (method_frame(m.TxSelect(), 2), 504),
        (method_frame(m.ConnectionOpen("/"), 0), 503),
        (method_frame(m.ConnectionStart(), 0), 503),
        (method_frame(m.BasicDeliver("t", 1, False, "", ""), 1), 503),
        (method_frame(m.BasicPublish(0, "", "q"), 1) + method_frame(m.TxSelect(), 1), 505),
        (method_frame(m.BasicQos(1, 0), 1), 540),
        (method_frame(m.ChannelFlow(False), 1), 540),
        (method_frame(m.BasicRecover(requeue=False), 1), 540),
        (b"\x01\0\x01\0\0\0\0\0", 501),
        (b"\x01\0\x01\xff\0\0\0\0", 501),
    ],
)
def test_breaches_of_the_protocol_end_the_connection(frame: bytes, code: int) -> None:
    client = AmqpNode().channel()
    client.send_bytes(frame)
    assert client.only(m.ConnectionClose)[0].reply_code == code
    client.send(m.ChannelOpen(), 5)
    assert client.received() == []
    client.send(m.ConnectionCloseOk(), 0)
    assert client.connection.closed


def test_a_new_secret_changes_nothing() -> None:
    client = AmqpNode().channel()
    client.ask(m.ConnectionUpdateSecret(b"new", "expired"), m.ConnectionUpdateSecretOk, 0)
    declared(client)


def test_channels_above_the_limit_are_refused_whatever_their_numbers() -> None:
    client = AmqpNode().amqp_client()
    client.send_bytes(PROTOCOL_HEADER)
    client.send(m.ConnectionStartOk({}, "PLAIN", PLAIN, ""), 0)
    client.send(m.ConnectionTuneOk(2, 4096, 0), 0)
    client.send(m.ConnectionOpen("/"), 0)
    client.received()
    client.ask(m.ChannelOpen(), m.ChannelOpenOk, 65_535)
    client.ask(m.ChannelOpen(), m.ChannelOpenOk, 7)
    assert client.ask(m.ChannelOpen(), m.ConnectionClose, 1).reply_code == 530


def test_closes_that_cross() -> None:
    client = AmqpNode().channel()
    client.send(m.QueueDeclare(0, "missing", passive=True))
    assert client.only(m.ChannelClose)[0].reply_code == 404
    client.publish("q")
    client.ask(m.ChannelClose(200, ""), m.ChannelCloseOk)
    client.send(m.ChannelCloseOk())
    client.ask(m.ChannelOpen(), m.ChannelOpenOk)
    client.send(m.ConnectionOpen("/"), 0)
    client.received()
    client.ask(m.ConnectionClose(200, ""), m.ConnectionCloseOk, 0)


def test_heartbeats_are_sent_and_awaited() -> None:
    node = AmqpNode()
    client = node.amqp_client()
    client.open(heartbeat=2)
    beat = encode_frame(FrameType.HEARTBEAT, 0, b"")
    for _ in range(6):
        node.world.clock.advance(1000)
        client.send_bytes(beat)
    assert not client.connection.closed
    assert b"".join(client.connection.sent).count(beat) >= 5
    node.world.clock.advance(5000)
    assert client.connection.aborted


def logged_in(node: AmqpNode, user: str, peer: str) -> m.Method:
    """Answer to the login of a user whose password is guest."""
    client = node.amqp_client(peer=peer)
    client.send_bytes(PROTOCOL_HEADER)
    client.received()
    capabilities = {"capabilities": {"authentication_failure_close": True}}
    client.send(m.ConnectionStartOk(capabilities, "PLAIN", f"\0{user}\0guest".encode(), "en_US"), 0)
    node.worker.work()
    (answer,) = client.received()
    return answer.method


@pytest.mark.parametrize(
    ("user", "peer", "admitted"),
    [
        ("guest", "10.0.0.1:5000", False),
        ("guest", "[2001:db8::1]:5000", False),
        ("guest", "127.0.0.1:5000", True),
        ("guest", "[::1]:5000", True),
        ("u", "10.0.0.1:5000", True),
    ],
)
def test_the_default_login_is_for_loopback_addresses(user: str, peer: str, admitted: bool) -> None:
    entropy = CountingEntropy()
    users = {name: PasswordHash.make("guest", entropy, HashParameters(n=2, r=1, p=1)) for name in ("guest", "u")}
    policy = RoleSecurity(Authenticator(users, {}, entropy, ManualTime()), SecuritySettings())
    answer = logged_in(AmqpNode(security=policy), user, peer)
    if admitted:
        assert isinstance(answer, m.ConnectionTune)
    else:
        assert isinstance(answer, m.ConnectionClose)
        assert answer.reply_code == 403


def test_a_node_that_checks_no_passwords_admits_the_default_login_from_everywhere() -> None:
    assert isinstance(logged_in(AmqpNode(), "guest", "10.0.0.1:5000"), m.ConnectionTune)


def test_channels_are_limited_by_the_acceptor() -> None:
    node = AmqpNode(AcceptorOptions(sessions_max=2))
    client = node.channel()
    client.ask(m.ChannelOpen(), m.ChannelOpenOk, 700)
    client.send(m.ChannelOpen(), 3)
    assert client.only(m.ConnectionClose)[0].reply_code == 530


@pytest.mark.parametrize("fetched", [False, True])
def test_deliveries_that_are_not_acknowledged_in_time_close_their_channel(fetched: bool) -> None:
    node = AmqpNode(AcceptorOptions(amqp091=Amqp091Options(acknowledgement_timeout_ms=30_000)))
    client, other = node.channel(), node.channel()
    client.ask(m.ChannelOpen(), m.ChannelOpenOk, 2)
    declared(client)

    def elapse(seconds: int) -> None:
        for _ in range(seconds):
            node.world.clock.advance(1000)
            client.handler.check()
            node.world.turn()

    if not fetched:
        client.ask(m.BasicConsume(0, "q", "t"), m.BasicConsumeOk)
    # each delivery has its own time
    for number in range(1, 5):
        other.publish("q", b"%d" % number)
        if fetched:
            client.send(m.BasicGet(0, "q"))
        (found,) = client.received()
        assert found.method.delivery_tag == number  # type: ignore[attr-defined]  # BasicDeliver, BasicGetOk
        elapse(20)
        if number < 4:
            client.send(m.BasicAck(number))
    assert client.received() == []
    elapse(9)
    assert client.received() == []
    elapse(3)
    closed, received = client.only(m.ChannelClose)
    assert (received.channel, closed.reply_code) == (1, 406)
    # the message is back, and the other channel is open
    assert got(other).method.redelivered
    client.ask(m.BasicQos(0, 1), m.BasicQosOk, 2)


def test_without_a_time_limit_deliveries_stay_outstanding() -> None:
    node = AmqpNode(AcceptorOptions(amqp091=Amqp091Options(acknowledgement_timeout_ms=0)))
    client = node.channel()
    declared(client)
    client.publish("q")
    client.send(m.BasicGet(0, "q"))
    client.only(m.BasicGetOk)
    for _ in range(10):
        node.world.clock.advance(3_600_000)
        client.handler.check()
    client.send(m.BasicAck(1))
    assert client.received() == []


def test_a_node_that_stops_says_so() -> None:
    client = AmqpNode().channel()
    client.handler.disconnect()
    assert client.only(m.ConnectionClose)[0].reply_code == 320


# --- exchanges and queues ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (m.QueueDeclare(0, "missing", passive=True), 404),
        (m.QueueDeclare(0, "amq.x"), 403),
        (m.QueueDeclare(0, "a::b"), 406),
        (m.QueueDeclare(0, "a.#"), 406),
        (m.QueueDeclare(0, "q", durable=True), 406),
        (m.QueueDeclare(0, "q", arguments={"x-message-ttl": 1}), 406),
        (m.QueueDeclare(0, "n", arguments={"x-message-ttl": "1"}), 406),
        (m.QueueDeclare(0, "n", arguments={"x-expires": 0}), 406),
        (m.QueueDeclare(0, "n", arguments={"x-expires": AMQP091_LIFETIME_MS_MAX + 1}), 406),
        (m.QueueDeclare(0, "n", arguments={"x-max-length": -1}), 406),
        (m.QueueDeclare(0, "n", arguments={"x-overflow": "what"}), 406),
        (m.QueueDeclare(0, "n", arguments={"x-dead-letter-routing-key": "k"}), 406),
        (m.QueueBind(0, "q", "missing", "k"), 404),
        (m.QueueBind(0, "missing", "amq.direct", "k"), 404),
        (m.QueueBind(0, "q", "", "k"), 403),
        (m.QueueBind(0, "q", "amq.headers", "", arguments={"x-match": "some"}), 406),
        (m.QueuePurge(0, "missing"), 404),
        (m.QueueDelete(0, "q", if_empty=True), 406),
        (m.BasicGet(0, "missing"), 404),
        (m.BasicGet(0, ""), 404),
        (m.BasicConsume(0, "missing", "t"), 404),
        (m.BasicConsume(0, "q", "t", arguments={"x-priority": "high"}), 406),
        (m.BasicAck(1), 406),
        (m.BasicAck(5, multiple=True), 406),
        (m.TxCommit(), 406),
        (m.ExchangeDeclare(0, "", "direct"), 403),
        (m.ExchangeDeclare(0, "", "direct", passive=True), 403),
        (m.ExchangeDeclare(0, "amq.x", "direct"), 403),
        (m.ExchangeDeclare(0, "amq.topic", "direct", durable=True), 406),
        (m.ExchangeDeclare(0, "x", "strange"), 406),
        (m.ExchangeDeclare(0, "missing", "", passive=True), 404),
        (m.ExchangeDelete(0, "amq.topic"), 403),
        (m.ExchangeBind(0, "missing", "amq.direct", ""), 404),
        (m.ExchangeBind(0, "amq.direct", "", ""), 403),
    ],
)
def test_requests_that_close_their_channel(request_: Method, code: int) -> None:
    client = AmqpNode().channel()
    client.ask(m.QueueDeclare(0, "q"), m.QueueDeclareOk)
    client.send(m.ChannelClose(200, ""))
    client.received()
    client.ask(m.ChannelOpen(), m.ChannelOpenOk)
    client.publish("q")
    assert client.code(request_) == code


@pytest.mark.parametrize(
    "request_",
    [
        m.QueueDeclare(0, "missing", passive=True),
        m.ExchangeDeclare(0, "missing", "", passive=True),
        m.BasicConsume(0, "missing", "t"),
        m.BasicGet(0, "missing"),
        m.BasicGet(0, "q"),
        m.QueueDeclare(0, "q", durable=True),
    ],
)
def test_a_node_that_was_replaced_denies_nothing(request_: Method) -> None:
    """The node that has taken over may have got the queue, or a message, meanwhile: the client asks it."""
    node = AmqpNode()
    client = node.channel()
    client.ask(m.QueueDeclare(0, "q"), m.QueueDeclareOk)
    replace_node(node.world.office)
    client.send(request_)
    assert client.received() == []
    assert client.connection.aborted or request_ == m.BasicGet(0, "q"), "that one waits for a proof of the lock"


def test_streams_are_not_implemented() -> None:
    client = AmqpNode().channel()
    client.send(m.QueueDeclare(0, "s", arguments={"x-queue-type": "stream"}))
    assert client.only(m.ConnectionClose)[0].reply_code == 540


@pytest.mark.parametrize(
    ("argument", "taken", "refused"),
    [
        ("x-queue-mode", "lazy", ("eager", 1)),
        ("x-queue-version", 2, (3, "2", True)),
        ("x-queue-leader-locator", "balanced", ("here", 1)),
        ("x-max-in-memory-length", 0, (-1, "1")),
    ],
)
def test_arguments_that_change_nothing_are_checked(argument: str, taken: object, refused: tuple[object, ...]) -> None:
    node = AmqpNode()
    for value in refused:
        assert node.channel().code(m.QueueDeclare(0, "q", arguments={argument: value})) == 406
    client = node.channel()
    for arguments in ({argument: taken}, {}):
        client.ask(m.QueueDeclare(0, "q", arguments=arguments), m.QueueDeclareOk)


def test_requests_without_an_answer() -> None:
    client = AmqpNode().channel()
    for request in (
        m.QueueDeclare(0, "q", no_wait=True),
        m.ExchangeDeclare(0, "x", "fanout", no_wait=True),
        m.QueueBind(0, "q", "x", "", no_wait=True),
        m.ExchangeBind(0, "x", "amq.fanout", "", no_wait=True),
        m.ConfirmSelect(no_wait=True),
    ):
        client.send(request)
    assert client.received() == []
    client.publish("", b"1", "amq.fanout")
    assert client.only(m.BasicAck)[0] == m.BasicAck(1)
    assert bodies(client) == [b"1"]


def test_an_exclusive_queue_belongs_to_its_connection() -> None:
    node = AmqpNode()
    owner, other = node.channel(), node.channel()
    declared(owner, exclusive=True)
    refused_arguments = m.QueueDeclare(0, "q", arguments={"x-message-ttl": -1})
    for request in (
        m.QueueDeclare(0, "q", passive=True), refused_arguments, m.BasicGet(0, "q"), m.QueueDelete(0, "q"),
    ):  # fmt: skip
        assert other.code(request) == 405
    owner.ask(m.ConnectionClose(200, ""), m.ConnectionCloseOk, 0)
    declared(other, exclusive=True)


def test_a_queue_is_declared_again_as_exclusive_as_it_is() -> None:
    client = AmqpNode().channel()
    declared(client, exclusive=True)
    declared(client, "shared")
    assert client.code(m.QueueDeclare(0, "q")) == 405
    assert client.code(m.QueueDeclare(0, "q", arguments={"x-message-ttl": -1})) == 405
    assert client.code(m.QueueDeclare(0, "shared", exclusive=True)) == 405
    declared(client, exclusive=True)


def test_a_binding_whose_ends_are_gone_is_not_missed() -> None:
    client = AmqpNode().channel()
    declared(client)
    client.ask(m.QueueUnbind(0, "q", "missing", "k"), m.QueueUnbindOk)
    client.ask(m.QueueUnbind(0, "missing", "amq.direct", "k"), m.QueueUnbindOk)
    client.ask(m.ExchangeUnbind(0, "missing", "amq.direct", "k"), m.ExchangeUnbindOk)


def test_auto_delete_of_queues_and_exchanges() -> None:
    node = AmqpNode()
    client = node.channel()
    declared(client, auto_delete=True)
    client.ask(m.ExchangeDeclare(0, "x", "direct", auto_delete=True), m.ExchangeDeclareOk)
    client.ask(m.QueueBind(0, "q", "x", "k"), m.QueueBindOk)
    client.send(m.BasicGet(0, "q"))
    client.only(m.BasicGetEmpty)
    client.ask(m.BasicConsume(0, "q", "t"), m.BasicConsumeOk)
    client.ask(m.BasicCancel("t"), m.BasicCancelOk)
    assert client.code(m.QueueDeclare(0, "q", passive=True)) == 404
    assert client.code(m.ExchangeDeclare(0, "x", "", passive=True)) == 404


def test_delete_of_an_auto_delete_queue_with_consumers() -> None:
    node = AmqpNode()
    client, other = node.channel(), node.channel()
    declared(client, auto_delete=True)
    client.ask(m.BasicConsume(0, "q", "t"), m.BasicConsumeOk)
    other.ask(m.BasicConsume(0, "q", "t"), m.BasicConsumeOk)
    assert node.channel().ask(m.QueueDelete(0, "q"), m.QueueDeleteOk).message_count == 0
    for each in (client, other):
        assert each.only(m.BasicCancel)[0].consumer_tag == "t"
        assert each.code(m.QueueDeclare(0, "q", passive=True)) == 404


def test_routing_by_every_type_of_exchange() -> None:
    client = AmqpNode().channel()
    for name, kind, key, arguments in (
        ("d", "direct", "k", {}),
        ("f", "fanout", "", {}),
        ("t", "topic", "a.*.#", {}),
        ("h", "headers", "", {"x-match": "any", "one": 1, "two": "2"}),
    ):
        declared(client, name)
        client.ask(m.ExchangeDeclare(0, f"x{name}", kind), m.ExchangeDeclareOk)
        client.ask(m.QueueBind(0, name, f"x{name}", key, arguments=arguments), m.QueueBindOk)
    declared(client, "alternate")
    client.ask(
        m.ExchangeDeclare(0, "xa", "direct", arguments={"alternate-exchange": "amq.fanout"}), m.ExchangeDeclareOk
    )
    client.ask(m.QueueBind(0, "alternate", "amq.fanout", ""), m.QueueBindOk)
    client.publish("k", b"d", "xd")
    client.publish("other", b"no", "xd")
    client.publish("anything", b"f", "xf")
    client.publish("a.b", b"t", "xt")
    client.publish("b.a", b"no", "xt")
    client.publish("", b"h", "xh", headers={"two": "2"})
    client.publish("", b"no", "xh", headers={"two": 2})
    client.publish("k", b"a", "xa")
    assert [bodies(client, name) for name in ("d", "f", "t", "h", "alternate")] == [
        [b"d"], [b"f"], [b"t"], [b"h"], [b"a"],
    ]  # fmt: skip
    client.publish("d", b"cc", headers={"CC": ["f"], "BCC": ["t"]})
    assert [bodies(client, name) for name in ("d", "f")] == [[b"cc"], [b"cc"]]
    assert got(client, "t").properties.headers == {"CC": ["f"]}
