"""Sessions of clients whose password is still being checked: waiting, continued and refused requests."""

from __future__ import annotations

import itertools

import pytest

from support.core import NAME, Client, CoreNode
from understudy import limits
from understudy.config.model import SecuritySettingConfiguration
from understudy.errors import RemoteProtocolError
from understudy.protocols.login import FAILURES_OF_PROVED_MAX
from understudy.security.authentication import Authenticator
from understudy.security.authorization import RoleSecurity
from understudy.security.login_guard import FAILURES_OF_USER_MAX
from understudy.security.password_hashes import HashParameters, PasswordHash
from understudy.security.settings import SecuritySettings
from understudy.terms import Permission
from understudy.wire.core import packets
from understudy.wire.core.codec import encode
from understudy.wire.core.codes import ErrorCode

CHEAP = HashParameters(n=2, r=1, p=1)


class CountingEntropy:
    def __init__(self) -> None:
        self._calls = itertools.count(1)

    def token(self, length_bytes: int) -> bytes:
        return next(self._calls).to_bytes(length_bytes, "big")


def secured() -> CoreNode:
    """A node with the users ann and ben, which may do everything."""
    node = CoreNode()
    entropy = CountingEntropy()
    users = {user: PasswordHash.make(user, entropy, CHEAP) for user in ("ann", "ben")}
    everything = {permission: frozenset({"all"}) for permission in Permission}
    policy = RoleSecurity(
        Authenticator(users, dict.fromkeys(users, frozenset({"all"})), entropy, node.world.clock),
        SecuritySettings([SecuritySettingConfiguration("#", everything)]),
    )
    secured_node = CoreNode(world=node.world, security=policy)
    secured_node.world.queue()
    return secured_node


def create(user: str = "ann", password: str | None = None, channel_id: int = 10, **options: object) -> packets.Packet:
    fields: dict[str, object] = {
        "name": f"{NAME}{channel_id}",
        "session_channel_id": channel_id,
        "version": 136,
        "user": user,
        "password": user if password is None else password,
        **options,
    }
    return packets.CreateSession(**fields)  # type: ignore[arg-type]


def kinds(client: Client) -> list[type]:
    return [type(packet) for packet in client.received()]


def test_the_answer_waits_for_the_check_and_pings_do_not() -> None:
    node = secured()
    client = node.client()
    client.send(create(), 1)
    client.send(packets.Ping(60_000), 0)
    assert kinds(client) == [packets.Ping]
    node.worker.work()
    assert kinds(client) == [packets.CreateSessionResponse]
    client.send_message("a")
    assert kinds(client) == [packets.NullResponse]


def test_frames_after_a_login_are_handled_in_order_after_it() -> None:
    node = secured()
    client = node.client()
    client.send(create(), 1)
    client.send_message("first", 7)
    client.send(create("ben", channel_id=11), 1)
    client.send_message("second", 8)
    client.send(packets.QueueQuery("q"), 11)
    assert client.received() == []
    node.worker.work(1)
    assert kinds(client) == [packets.CreateSessionResponse, packets.NullResponse, packets.NullResponse], (
        "the first session goes on while the second is checked"
    )
    node.worker.work()
    assert kinds(client) == [packets.CreateSessionResponse, packets.QueueQueryResponseV3]
    (queue,) = node.world.office.queues()
    assert queue.message_count == 2


def test_wrong_passwords_from_its_address_keep_no_second_session_out() -> None:
    """On a connection that has logged in; not when the wrong passwords come from that connection."""
    node = secured()
    client, stranger = node.client(), node.client("10.0.0.1:6000")
    client.send(create(), 1)
    node.worker.work()
    for attempt in range(FAILURES_OF_USER_MAX):
        stranger.send(create(password=f"wrong {attempt}"), 1)
        node.worker.work()
    node.world.clock.advance(5_000)
    client.received()
    client.send(create(password="also wrong", channel_id=11), 1)
    node.worker.work()
    client.send(create(channel_id=11), 1)
    node.worker.work()
    assert kinds(client) == [packets.ExceptionResponse, packets.CreateSessionResponse]
    for attempt in range(FAILURES_OF_PROVED_MAX):
        client.send(create(password=f"also wrong {attempt}", channel_id=12), 1)
        node.worker.work()
    client.received()
    client.send(create(password="not looked at", channel_id=12), 1)
    refusal = client.received_one(packets.ExceptionResponse)
    assert "too many failed logins" in (refusal.message or "")


def test_other_sessions_of_the_connection_continue() -> None:
    node = secured()
    client = node.client()
    client.send(create(), 1)
    node.worker.work()
    client.received()
    client.send(create("ben", channel_id=11), 1)
    client.send_message("a")
    assert kinds(client) == [packets.NullResponse]


def test_a_wrong_password_is_refused_and_may_be_corrected() -> None:
    node = secured()
    client = node.client()
    client.send(create(password="wrong"), 1)
    client.send_message("lost")
    node.worker.work()
    (refusal,) = client.received()
    assert isinstance(refusal, packets.ExceptionResponse)
    assert refusal.error_code == ErrorCode.SECURITY_EXCEPTION
    client.send(create(), 1)
    node.worker.work()
    assert kinds(client) == [packets.CreateSessionResponse]
    (queue,) = node.world.office.queues()
    assert queue.message_count == 0, "packets after the refused login had no session"


def test_a_client_that_leaves_meanwhile_gets_no_session() -> None:
    node = secured()
    client = node.client()
    client.send(create(), 1)
    client.lose()
    node.worker.work()
    assert node.services.connections.session_count == 0
    assert client.received() == []


def test_a_node_that_stops_meanwhile_takes_no_session() -> None:
    node = secured()
    client = node.client()
    client.send(create(), 1)
    node.services.connections.accepting = False
    node.worker.work()
    (refusal,) = client.received()
    assert isinstance(refusal, packets.ExceptionResponse)
    assert refusal.error_code == ErrorCode.SESSION_CREATION_REJECTED


def test_a_long_check_is_no_reason_to_drop_the_client() -> None:
    node = secured()
    client = node.client()
    client.send(create(), 1)
    node.world.clock.advance(limits.LOGIN_TIMEOUT_MS + 1)
    client.handler.check()
    node.worker.work()
    client.handler.check()


def test_a_socket_is_not_read_while_too_many_bytes_wait_for_its_login() -> None:
    node = secured()
    client = node.client()
    client.send(create(), 1)
    assert not client.handler.congested()
    client.send_message("x" * (limits.LOGIN_HELD_BYTES_PAUSE // 2), 1)
    client.send_message("x" * (limits.LOGIN_HELD_BYTES_PAUSE // 2), 2)
    assert client.handler.congested()
    node.worker.work()
    assert not client.handler.congested()
    assert kinds(client) == [packets.CreateSessionResponse, packets.NullResponse, packets.NullResponse]


def test_a_protocol_error_after_a_login_ends_the_connection_when_it_is_handled() -> None:
    node = secured()
    client = node.client()
    client.send(create(), 1)
    client.handler.receive_data(encode(packets.SessionClose(), 1))
    assert not client.connection.closed
    node.worker.work()
    assert client.connection.closed
    client.lose()
    assert node.services.connections.session_count == 0


@pytest.mark.parametrize("version", [122, 128])
def test_clients_that_lay_messages_out_otherwise_are_refused_not_misread(version: int) -> None:
    node = CoreNode()
    client = node.client()
    client.send(create(version=version), 1)
    (refusal,) = client.received()
    assert isinstance(refusal, packets.ExceptionResponse)
    assert refusal.error_code == ErrorCode.INCOMPATIBLE_CLIENT_SERVER_VERSIONS


@pytest.mark.parametrize("version", range(129, 137))
def test_every_version_of_the_same_layout_is_served(version: int) -> None:
    node = CoreNode()
    client = node.client()
    client.send(create(version=version), 1)
    assert client.received() == [packets.CreateSessionResponse(136)]


def test_a_client_that_never_pings_is_dropped_after_the_default_ttl() -> None:
    node = CoreNode()
    client = node.client()
    client.create_session()
    client.handler.check()
    node.world.clock.advance(60_000)
    client.handler.check()
    node.world.clock.advance(1)
    with pytest.raises(RemoteProtocolError, match="connection-ttl"):
        client.handler.check()
