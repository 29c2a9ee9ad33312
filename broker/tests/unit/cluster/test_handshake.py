"""The proof of the cluster password between the real two sides, and a stranger who passes frames on or changes them."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from support.cluster_links import CLUSTER_CHANNEL, PASSWORD, PLACE, frames_of, hello_of, sealed_frame
from support.core import CoreNode
from support.membership import Entropy
from support.node_links import Change, Link, credentials, with_hello
from understudy.cluster.membership.credentials import ClusterCredentials
from understudy.errors import ClusterSecurityError
from understudy.ports import Security
from understudy.wire.core import packets as p
from understudy.wire.core.codec import FrameDecoder, encode
from understudy.wire.core.transport import TransportConfiguration
from understudy.wire.sealed import Sealer

OTHER_PLACE = "192.0.2.200:61616"


# --- who is linked ---------------------------------------------------------------------------------


def test_two_nodes_with_the_same_password_are_linked_and_their_bytes_sealed() -> None:
    link = Link().settle()
    assert link.linked
    assert link.near.sealer is not None
    assert link.far.sealer is not None
    link.peer.send(p.SubscribeTopologyV2(True, 136))
    link.peer.send(p.CheckForFailover("x"), 1)
    link.settle()
    assert any(isinstance(each, p.CheckForFailoverReply) for each in link.received)


def test_the_dialling_node_proves_first_so_that_an_answer_is_worth_no_guess() -> None:
    link = Link()
    link.to_acceptor()
    frames = FrameDecoder("client").receive_data(b"".join(link.far.out))
    (answer,) = [frame.packet for frame in frames if not isinstance(frame.packet, p.Ping)]
    assert answer == p.ClusterNonce(answer.nonce, True)  # type: ignore[attr-defined]
    stranger = link.node.client()
    stranger.send(hello_of(link.node.core.cluster.credentials), CLUSTER_CHANNEL)  # type: ignore[arg-type]
    with pytest.raises(ClusterSecurityError):
        stranger.send(p.ClusterProof(b"x" * 32), CLUSTER_CHANNEL)
    answers = stranger.received()
    assert [type(each) for each in answers] == [p.ClusterNonce, p.ExceptionResponse], "no proof of the accepting node"


@pytest.mark.parametrize("wrong", ["dialler", "acceptor"])
def test_another_password_is_an_error_on_both_sides(wrong: str) -> None:
    link = Link(**{wrong: credentials("another password of this test")}).settle()  # type: ignore[arg-type]
    assert not link.proved
    assert "does not know the cluster password" in str(link.error)
    assert "does not know the cluster password" in link.lost


def test_an_accepting_node_that_does_not_know_the_password_is_noticed() -> None:
    """A stranger who answers each packet as an accepting node does, without the key."""
    link = Link()
    link.near.out.clear()
    link.peer.receive_data(encode(p.ClusterNonce(b"n" * 32, True), CLUSTER_CHANNEL))
    link.peer.receive_data(encode(p.ClusterAccept(b"x" * 32), CLUSTER_CHANNEL))
    assert not link.proved
    assert "does not know the cluster password" in link.lost


# --- the public default password -------------------------------------------------------------------

LOOPBACK = {"target": "127.0.0.1:61616", "dialled": "127.0.0.1:61616", "arrived": "127.0.0.1:61616"}


def test_the_public_password_links_members_on_loopback() -> None:
    both = {side: credentials(public=True) for side in ("dialler", "acceptor")}
    link = Link(**LOOPBACK, dialled_from="127.0.0.1:5000", **both).settle()  # type: ignore[arg-type]
    assert link.linked


def test_with_the_public_password_a_peer_elsewhere_is_not_dialled() -> None:
    link = Link(dialler=credentials(public=True), acceptor=credentials()).settle()
    assert not link.proved
    assert "core/cluster-password of this node is the default" in link.lost
    assert link.peer.refusal == link.lost, "it is logged as a refusal, once a minute"
    assert link.near.closed


def test_with_the_public_password_a_hello_from_elsewhere_is_refused() -> None:
    """The dialling node has the same password and does not know that it is public, as a changed one would not."""
    link = Link(dialler=credentials(), acceptor=credentials(public=True)).settle()
    assert not link.linked
    for text in (str(link.error), link.lost):
        assert "core/cluster-password of this node is the default" in text
        assert "192.0.2.1" in text
    assert not link.handler.proved


# --- a stranger who was dialled passes the frames on -----------------------------------------------


def test_a_connection_that_is_meant_for_another_node_is_refused_on_both_sides() -> None:
    link = Link(target=OTHER_PLACE, dialled=OTHER_PLACE, acceptor=credentials(PASSWORD, "b.example:61616")).settle()
    assert not link.proved
    assert not link.handler.proved
    for text in (str(link.error), link.lost):
        assert OTHER_PLACE in text
        assert "b.example:61616" in text
        assert PLACE in text
        assert "connector-ref" in text


def test_the_name_of_another_end_in_its_own_hello_makes_the_proof_wrong() -> None:
    """A stranger writes the accepting node's own end into the frame that it passes on."""
    link = Link(target=OTHER_PLACE, dialled=OTHER_PLACE)
    link.to_acceptor(lambda data: with_hello(data, place=PLACE, address=PLACE))
    link.settle()
    assert not link.proved
    assert not link.handler.proved
    assert "changed on the way" in str(link.error)


@pytest.mark.parametrize(
    "fields",
    [
        {"verified": True},
        {"instance": b"j" * 16},
        {"nonce": b"j" * 32},
        {"server": "another"},
        {"node_id": "another"},
        {"address": "192.0.2.9:9"},
        {"place": "192.0.2.9:9"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_every_field_of_the_hello_is_covered_by_the_proof(fields: dict[str, Any]) -> None:
    link = Link(acceptor=credentials(PASSWORD, PLACE), acceptor_security=Security.TLS)
    link.to_acceptor(lambda data: with_hello(data, **fields))
    link.settle()
    assert not link.handler.proved


@pytest.mark.parametrize("answer", [p.ClusterNonce(b"j" * 32, True), p.ClusterNonce(b"n" * 32, False)])
def test_the_answer_is_covered_by_the_proof(answer: p.ClusterNonce) -> None:
    link = Link(dialler_security=Security.TLS_VERIFIED)
    link.to_acceptor()
    link.to_dialler(lambda data: encode(answer, CLUSTER_CHANNEL))
    link.settle()
    assert not link.handler.proved
    assert not link.proved


def test_a_node_refuses_its_own_hello_also_where_the_addresses_coincide() -> None:
    own = credentials(PASSWORD, PLACE)
    link = Link(dialler=own, acceptor=own).settle()
    assert not link.linked
    assert "this node itself" in str(link.error)
    assert "this node itself" in link.lost


def test_a_node_id_that_is_meant_is_checked() -> None:
    assert not Link(node_id="another").settle().linked
    link = Link()
    assert Link(node_id=link.node.services.node_id).settle().linked


def test_a_hello_comes_once() -> None:
    node = CoreNode(credentials=credentials())
    client = node.client()
    hello = hello_of(node.core.cluster.credentials)  # type: ignore[arg-type]
    client.send(hello, CLUSTER_CHANNEL)
    with pytest.raises(ClusterSecurityError):
        client.send(hello, CLUSTER_CHANNEL)


# --- sealed or not ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dialler", "acceptor", "sealed"),
    [
        (Security.NONE, Security.NONE, True),
        (Security.TLS, Security.TLS, True),  # a certificate for another name was taken
        (Security.TLS_VERIFIED, Security.TLS, False),
        (Security.TLS_VERIFIED, Security.NONE, True),  # TLS ended before the accepting node
        (Security.NONE, Security.TLS, True),
    ],
)
def test_bytes_are_sealed_unless_tls_verified_the_name(dialler: Security, acceptor: Security, sealed: bool) -> None:
    link = Link(dialler_security=dialler, acceptor_security=acceptor).settle()
    assert link.linked
    assert (link.near.sealer is not None) is sealed
    assert (link.far.sealer is not None) is sealed


def test_an_accepting_node_cannot_leave_out_the_codes_that_the_dialling_node_needs() -> None:
    link = Link()
    link.to_acceptor()
    link.to_dialler(lambda data: encode(p.ClusterNonce(b"n" * 32, False), CLUSTER_CHANNEL))
    assert "does not seal" in link.lost


def _flip(data: bytes) -> bytes:
    return data[:-1] + bytes((data[-1] ^ 1,)) if data else data


@pytest.mark.parametrize("change", [_flip, lambda data: data + data, lambda data: data[30:]])
def test_changed_bytes_after_the_proof_end_the_connection(change: Change) -> None:
    link = Link().settle()
    link.peer.send(p.NodeAnnounce("n", connector=TransportConfiguration("c", parameters={"host": "h", "port": "1"})))
    link.to_acceptor(change)
    assert isinstance(link.error, ClusterSecurityError)
    assert "192.0.2.1:5000" in str(link.error), "the peer"
    assert link.node.topology.members() == []
    link = Link().settle()
    link.handler.send(p.ClusterTopologyV4(False, "n", 1), 0)
    link.to_dialler(change)
    assert "of the sealed connection" in link.lost
    assert link.received == []


def test_a_frame_that_a_stranger_adds_after_the_proof_does_nothing() -> None:
    link = Link().settle()
    link.near.out.append(encode(p.CreateSession("s" * 40, 10, 136, None, None), 1) * 20)
    link.to_acceptor()
    assert isinstance(link.error, ClusterSecurityError)
    assert link.handler.sessions == {}


def test_a_session_without_login_needs_protected_bytes() -> None:
    """An Artemis that has sent the password as plain text gives it in each session, too."""
    plain = TransportConfiguration("artemis", parameters={"host": "h", "port": "1"})
    node = CoreNode(credentials=ClusterCredentials("cluster", PASSWORD, Entropy(), [plain]))
    client = node.client()
    assert client.ask(p.ClusterConnect("cluster", PASSWORD), p.ClusterConnectReply, CLUSTER_CHANNEL).authorized
    channel = client.handler._cluster
    assert channel.user_of(None, None) is None
    assert channel.user_of("cluster", PASSWORD) == "cluster"
    with pytest.raises(ClusterSecurityError):
        client.send(p.ReplicaRegistration(1, "b", None, False, plain), 2)


# --- releases before 0.2.0 -------------------------------------------------------------------------


def test_a_dialling_node_of_an_older_release_gets_the_release_that_it_needs() -> None:
    node = CoreNode(credentials=credentials())
    old = node.client()
    with pytest.raises(ClusterSecurityError, match=r"before 0\.2\.0"):
        old.send(p.ClusterHello("cluster", b"n" * 32), CLUSTER_CHANNEL)
    answer = old.received_one(p.ExceptionResponse)
    assert answer.error_code == 212
    assert "0.2.0 and later" in str(answer.message)


def test_an_accepting_node_of_an_older_release_gets_the_release_that_it_needs() -> None:
    """The accepting node logs the cluster user of a hello that is not its own; that field has the release."""
    link = Link()
    link.near.out.clear()
    link.peer.receive_data(encode(p.ClusterChallenge(b"n" * 32, b"p" * 32), CLUSTER_CHANNEL))
    assert "0.2.0 and later" in link.lost
    frames = frames_of(FrameDecoder("server"), b"".join(link.near.out))
    (hello,) = [frame.packet for frame in frames]
    assert isinstance(hello, p.ClusterHello)
    assert "0.2.0" in hello.user
    assert not any(isinstance(frame.packet, p.ClusterProof) for frame in frames)


# --- input of other kinds --------------------------------------------------------------------------


def test_a_node_without_a_cluster_password_refuses_other_nodes() -> None:
    client = CoreNode().client()
    with pytest.raises(ClusterSecurityError):
        client.send(hello_of(credentials()), CLUSTER_CHANNEL)
    assert client.received_one(p.ExceptionResponse).error_code == 212


@pytest.mark.parametrize(
    "fields", [{"user": "other"}, {"nonce": b"short"}, {"instance": b"short"}], ids=["user", "nonce", "instance"]
)
def test_a_hello_that_does_not_fit_is_refused(fields: dict[str, Any]) -> None:
    client = CoreNode(credentials=credentials()).client()
    with pytest.raises(ClusterSecurityError):
        client.send(hello_of(credentials(), **fields), CLUSTER_CHANNEL)
    assert client.received_one(p.ExceptionResponse).error_code == 212


def test_sealed_frames_of_a_node_can_be_in_one_read_with_its_proof() -> None:
    node = CoreNode(credentials=credentials())
    client = node.client()
    made = node.core.cluster.credentials
    assert made is not None
    hello = hello_of(made)
    handshake = made.handshake(hello, client.ask(hello, p.ClusterNonce, CLUSTER_CHANNEL))
    sealed = sealed_frame(Sealer(handshake.dialler_key()), p.CheckForFailover(None), 1)
    proof = encode(p.ClusterProof(handshake.dialler_proof()), CLUSTER_CHANNEL)
    assert client.handler.receive_data(proof + sealed)
    client.handler.receive_data(b"")
    assert client.received_one(p.CheckForFailoverReply).ok


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
