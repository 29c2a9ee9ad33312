"""Proof of the cluster password on a connection between two nodes, which then is sealed (ADR 0005, ADR 0111).

The dialling node sends ClusterHello with the end that it means to reach, the accepting node answers ClusterNonce, the
dialling node proves that it knows the password (ClusterProof), and then the accepting one (ClusterAccept). The proofs
cover both first packets. An accepting node refuses its own hello, and a hello that is meant for another end. After its
proof each side seals its bytes (``wire.sealed``), unless the dialling side has verified the name of the other one by
TLS, and the accepting side has TLS on this connection, too.

Source: artemis-core s. 9.1. Not here: proofs and keys (``cluster.membership.credentials``), and ends
(``cluster.membership.link_ends``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NoReturn

from understudy.cluster.membership.credentials import NONCE_BYTES, ClusterCredentials, Handshake, is_whole, verify
from understudy.cluster.membership.link_ends import place_of, place_of_socket
from understudy.errors import ClusterSecurityError
from understudy.ports import SealableConnection, Security
from understudy.wire.core import packets
from understudy.wire.core.codec import FrameDecoder
from understudy.wire.core.codes import ErrorCode
from understudy.wire.core.peer import CorePeer
from understudy.wire.sealed import Opener, Sealer

CLUSTER_CHANNEL: Final = 3
#: First release whose proof names its target.
_RELEASE: Final = "0.2.0"
_OLD_DIALLER: Final = (
    f"its proof of the cluster password is that of an Understudy before {_RELEASE}; this node links only with"
    f" {_RELEASE} and later: update the node that dials"
)
_OLD_ACCEPTOR: Final = (
    f"the other node is an Understudy before {_RELEASE}, whose proof of the cluster password can be passed on by a"
    f" stranger; this node links only with {_RELEASE} and later: update the node that was dialled"
)
#: Cluster user of a last packet to an older release, which logs it as that of a node with another user.
_TO_OLD_ACCEPTOR: Final = f"(node of release {_RELEASE}: it links only with nodes of {_RELEASE} and later)"


def prove(peer: CorePeer, credentials: ClusterCredentials, proved: Callable[[], None], node_id: str = "") -> None:
    """Exchange the proofs, then call ``proved``. A wrong answer closes the connection.

    Args:
        peer: Just opened.
        proved: Called when both nodes have accepted the proof of the other one.
        node_id: Id that the other node must have; empty: any.

    Raises:
        ClusterSecurityError: this node does not link with the address that was dialled.
    """
    target, refusal = peer.target, credentials.refusal(peer.address)
    if refusal:
        raise ClusterSecurityError(refusal)
    password = credentials.plain_for(target)
    if password is not None:
        plain = packets.ClusterConnect(credentials.user, password)
        peer.request(plain, CLUSTER_CHANNEL, (packets.ClusterConnectReply,), partial(_answered_plain, proved))
        return
    hello = packets.ClusterHello(
        credentials.user,
        credentials.nonce(),
        credentials.instance,
        peer.security is Security.TLS_VERIFIED,
        place_of(target.host, target.port),
        place_of_socket(peer.address),
        target.server_name,
        node_id,
    )
    expected = (packets.ClusterNonce, packets.ClusterChallenge, packets.ClusterConnectReply)
    peer.request(hello, CLUSTER_CHANNEL, expected, partial(_challenged, peer, credentials, hello, proved))


def _challenged(
    peer: CorePeer,
    credentials: ClusterCredentials,
    hello: packets.ClusterHello,
    proved: Callable[[], None],
    answer: packets.Packet,
) -> None:
    if isinstance(answer, packets.ClusterChallenge):
        peer.send(packets.ClusterHello(_TO_OLD_ACCEPTOR, hello.nonce), CLUSTER_CHANNEL)
        raise ClusterSecurityError(_OLD_ACCEPTOR)
    if not isinstance(answer, packets.ClusterNonce):
        raise ClusterSecurityError("the other node refused the cluster credentials")
    if not answer.sealed and not hello.verified:
        raise ClusterSecurityError("the other node does not seal a connection that needs it")
    handshake = credentials.handshake(hello, answer)
    proof = packets.ClusterProof(handshake.dialler_proof())
    accepted = partial(_accepted, peer, handshake, answer.sealed, proved)
    peer.request(proof, CLUSTER_CHANNEL, (packets.ClusterAccept,), accepted)
    if answer.sealed:
        peer.seal(Sealer(handshake.dialler_key()))


def _accepted(
    peer: CorePeer, handshake: Handshake, sealed: bool, proved: Callable[[], None], answer: packets.Packet
) -> None:
    assert isinstance(answer, packets.ClusterAccept)
    verify(handshake.acceptor_proof(), answer.proof, peer.target.to_url())
    if sealed:
        peer.open_with(Opener(handshake.acceptor_key(), peer.target.to_url()))
    proved()


def _answered_plain(proved: Callable[[], None], answer: packets.Packet) -> None:
    if not isinstance(answer, packets.ClusterConnectReply) or not answer.authorized:
        raise ClusterSecurityError("the other node refused the cluster credentials")
    proved()


def is_own(hello: packets.ClusterHello, credentials: ClusterCredentials) -> bool:
    """Whether a node has got its own packet."""
    return hello.instance == credentials.instance


class DiallerProof:
    """The accepting side of one connection."""

    def __init__(
        self,
        credentials: ClusterCredentials | None,
        connection: SealableConnection,
        decoder: FrameDecoder,
        send: Callable[[packets.Packet], None],
        node_id: str = "",
    ) -> None:
        """Args:
        credentials: Credentials of this node; None: every other node is refused.
        send: Sends an answer on the cluster channel.
        node_id: Node id of the store of this node; empty: not known.
        """
        self._credentials = credentials
        self._connection = connection
        self._decoder = decoder
        self._send = send
        self._node_id = node_id
        self._handshake: Handshake | None = None
        self._sealed = True
        self.authorized = False
        """Whether the other side has proved that it knows the password, or has sent it as an Artemis."""
        self.proved = False
        """Whether the acceptor has proved that it knows the password, on a connection that is sealed or has TLS."""

    def receive(self, packet: packets.Packet, authorized: Callable[[], None]) -> None:
        """Answer a packet of the other side.

        Args:
            packet: On the cluster channel.
            authorized: Called when the proof is right, before the answer.

        Raises:
            ClusterSecurityError: the proof is wrong, the connection is meant for another node, or the packet is out of
                order. The other side gets the reason.
        """
        if isinstance(packet, packets.ClusterHello):
            self._greet(packet)
        elif isinstance(packet, packets.ClusterProof) and self._handshake is not None:
            self._check(packet, self._handshake, authorized)
        elif isinstance(packet, packets.ClusterConnect):
            self._take_plain(packet, authorized)
        else:
            raise ClusterSecurityError(f"{type(packet).__name__} before the credentials were proved")

    def _greet(self, hello: packets.ClusterHello) -> None:
        credentials, connection = self._credentials, self._connection
        if self._handshake is not None or self.authorized:
            raise ClusterSecurityError("ClusterHello twice on one connection")
        if credentials is None:
            self._refuse("this node has no cluster password of its own, and takes no other node")
        public = credentials.refusal(connection.peer)
        if public:
            self._refuse(public)
        if hello.user != credentials.user:
            self._refuse(f"cluster user {hello.user[:100]!r} is not ours")
        if hello.instance is None:
            self._refuse(_OLD_DIALLER)
        if not is_whole(hello):
            self._refuse(f"cluster handshake with a nonce that is not {NONCE_BYTES} bytes")
        if is_own(hello, credentials):
            self._refuse(f"the dialling node is this node itself, which has reached itself as {hello.place[:100]}")
        refusal = credentials.own_ends.refusal(hello, connection.local, self._node_id)
        if refusal:
            self._refuse(refusal)
        self._sealed = not (hello.verified and connection.security is not Security.NONE)
        answer = packets.ClusterNonce(credentials.nonce(), self._sealed)
        self._handshake = credentials.handshake(hello, answer)
        self._send(answer)

    def _check(self, packet: packets.ClusterProof, handshake: Handshake, authorized: Callable[[], None]) -> None:
        self._handshake = None
        try:
            verify(handshake.dialler_proof(), packet.proof, "the dialling node")
        except ClusterSecurityError as error:
            self._refuse(str(error))
        self.authorized = self.proved = True
        if self._sealed:
            self._decoder.open_with(Opener(handshake.dialler_key(), self._connection.peer))
        authorized()
        self._send(packets.ClusterAccept(handshake.acceptor_proof()))
        if self._sealed:
            self._connection.seal(Sealer(handshake.acceptor_key()))

    def _take_plain(self, packet: packets.ClusterConnect, authorized: Callable[[], None]) -> None:
        credentials, peer = self._credentials, self._connection.peer
        if credentials is not None and credentials.accepts_plain(packet.cluster_user, packet.cluster_password, peer):
            self.authorized = True
            authorized()
            self._send(packets.ClusterConnectReply(True))
            return
        # otherwise a plain password is neither requested nor accepted: see cluster.credentials
        self._send(packets.ClusterConnectReply(False))
        raise ClusterSecurityError("the other node sent a plain cluster password")

    def _refuse(self, text: str) -> NoReturn:
        self._send(packets.ExceptionResponse(ErrorCode.CLUSTER_SECURITY_EXCEPTION, text))
        raise ClusterSecurityError(text)
