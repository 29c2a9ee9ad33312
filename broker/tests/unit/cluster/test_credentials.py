"""The cluster password: to whom it is sent as plain text, and from whom it is taken."""

from __future__ import annotations

import pytest

from support.cluster_links import PASSWORD, SealableEnd
from understudy.cluster.credentials import ClusterCredentials
from understudy.cluster.handshake import DiallerProof
from understudy.errors import ClusterSecurityError
from understudy.wire.core import packets
from understudy.wire.core.codec import FrameDecoder
from understudy.wire.core.transport import TransportConfiguration


class _Entropy:
    def token(self, length_bytes: int) -> bytes:
        return bytes(length_bytes)


def connector(port: int, name: str = "c") -> TransportConfiguration:
    return TransportConfiguration(name, parameters={"host": "127.0.0.1", "port": str(port)})


def credentials(*artemis: int) -> ClusterCredentials:
    return ClusterCredentials("cluster", PASSWORD, _Entropy(), [connector(port) for port in artemis])


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
    assert made.accepts_plain(user, password) is accepted
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
