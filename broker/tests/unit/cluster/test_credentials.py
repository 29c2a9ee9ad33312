"""The cluster password: to whom it is sent as plain text, and from whom it is taken."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from support.cluster_links import PASSWORD, SealableEnd
from understudy.cluster.membership.credentials import ClusterCredentials
from understudy.cluster.membership.handshake import DiallerProof
from understudy.errors import ClusterSecurityError
from understudy.wire.core import packets
from understudy.wire.core.codec import FrameDecoder
from understudy.wire.core.transport import TransportConfiguration


class _Entropy:
    def token(self, length_bytes: int) -> bytes:
        return bytes(length_bytes)


def connector(port: int, name: str = "c") -> TransportConfiguration:
    return TransportConfiguration(name, parameters={"host": "127.0.0.1", "port": str(port)})


def credentials(*artemis: int, public: bool = False) -> ClusterCredentials:
    plain = [connector(port) for port in artemis]
    return ClusterCredentials("cluster", PASSWORD, _Entropy(), plain, public=public)


@pytest.mark.parameter("cluster-connection/artemis-members/connector-ref")
def test_the_password_is_sent_only_to_the_named_connectors() -> None:
    made = credentials(61616)
    assert made.plain_for(connector(61616, "announced under another name")) == PASSWORD
    assert made.login_at(connector(61616)) == ("cluster", PASSWORD)
    assert made.plain_for(connector(61617)) is None
    assert made.login_at(connector(61617)) == (None, None)
    assert credentials().plain_for(connector(61616)) is None


@pytest.mark.parametrize(
    ("artemis", "user", "password", "accepted"),
    [
        ((61616,), "cluster", PASSWORD, True),
        ((61616,), "cluster", "another", False),
        ((61616,), "other", PASSWORD, False),
        ((61616,), "cluster", None, False),
        ((61616,), None, None, False),
        ((61616,), "cluster", "\ud800", False),
        ((), "cluster", PASSWORD, False),
    ],
)
def test_a_plain_password_is_taken_only_with_artemis_members(
    artemis: tuple[int, ...], user: str | None, password: str | None, accepted: bool
) -> None:
    made = credentials(*artemis)
    assert made.accepts_plain(user, password, SealableEnd.peer) is accepted
    sent: list[packets.Packet] = []
    proof = DiallerProof(made, SealableEnd(), FrameDecoder("server"), sent.append)  # type: ignore[arg-type]
    packet = packets.ClusterConnect(user or "", password or "")
    if accepted:
        proof.receive(packet, lambda: None)
        assert proof.authorized
        assert not proof.proved, "nothing protects the bytes of the connection"
    else:
        with pytest.raises(ClusterSecurityError):
            proof.receive(packet, lambda: None)
        assert not proof.authorized
    (answer,) = sent
    assert isinstance(answer, packets.ClusterConnectReply)
    assert answer.authorized is accepted


@pytest.mark.parametrize(
    ("peer", "refused"),
    [
        ("127.0.0.1:5000", False),
        ("127.9.8.7:5000", False),
        ("[::1]:5000", False),
        ("::1:5000", False),
        ("[::ffff:127.0.0.1]:5000", False),
        ("192.0.2.1:5000", True),
        ("[::ffff:192.0.2.1]:5000", True),
        ("[fe80::1%eth0]:5000", True),
        ("0.0.0.0:5000", True),
        ("localhost:5000", True),
        ("", True),
    ],
)
def test_the_public_password_links_loopback_addresses_only(peer: str, refused: bool) -> None:
    assert bool(credentials(61616, public=True).refusal(peer)) is refused
    assert credentials(61616).refusal(peer) == "", "a password of its own is good at every address"
    assert credentials(61616, public=True).accepts_plain("cluster", PASSWORD, peer) is not refused


def test_the_refusal_is_one_text_for_all_ports_of_a_peer() -> None:
    """Equal reasons are logged once a minute."""
    made = credentials(public=True)
    assert made.refusal("192.0.2.1:5000") == made.refusal("192.0.2.1:5001")
    assert "core/cluster-password" in made.refusal("192.0.2.1:5000")


@pytest.mark.parametrize("peer", ["192.0.2.1:5000", "127.0.0.1:5000"])
def test_the_plain_public_password_is_taken_on_loopback_only(peer: str) -> None:
    connection = SealableEnd()
    connection.peer = peer
    made = credentials(61616, public=True)
    proof = DiallerProof(made, connection, FrameDecoder("server"), lambda packet: None)  # type: ignore[arg-type]
    loopback = peer.startswith("127.")
    with nullcontext() if loopback else pytest.raises(ClusterSecurityError):
        proof.receive(packets.ClusterConnect("cluster", PASSWORD), lambda: None)
    assert proof.authorized is loopback
