"""Proof of the cluster credentials (ADR 0005): both sides of a connection prove that they know the password.

Source: artemis-core s. 9.1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from understudy.cluster.credentials import ClusterCredentials
from understudy.errors import ClusterSecurityError
from understudy.wire.core import packets
from understudy.wire.core.peer import CorePeer

CLUSTER_CHANNEL: Final = 3


def prove(peer: CorePeer, credentials: ClusterCredentials, proved: Callable[[], None]) -> None:
    """Exchange the proofs, then call ``proved``. A wrong answer closes the connection.

    Args:
        peer: Just opened.
        credentials: Of this node.
        proved: Called when the other node has accepted the proof of this one.
    """
    password = credentials.plain_for(peer.target)
    if password is not None:
        plain = packets.ClusterConnect(credentials.user, password)
        peer.request(plain, CLUSTER_CHANNEL, (packets.ClusterConnectReply,), partial(_answered, proved))
        return
    nonce = credentials.nonce()
    hello = packets.ClusterHello(credentials.user, nonce)
    expected = (packets.ClusterChallenge, packets.ClusterConnectReply)
    peer.request(hello, CLUSTER_CHANNEL, expected, partial(_challenged, peer, credentials, nonce, proved))


def _challenged(
    peer: CorePeer,
    credentials: ClusterCredentials,
    nonce: bytes,
    proved: Callable[[], None],
    answer: packets.Packet,
) -> None:
    if not isinstance(answer, packets.ClusterChallenge):
        raise ClusterSecurityError("the other node refused the cluster credentials")
    expected = credentials.acceptor_proof(nonce, answer.nonce)
    credentials.verify(expected, answer.proof, peer.target.to_url())
    proof = packets.ClusterProof(credentials.dialler_proof(nonce, answer.nonce))
    peer.request(proof, CLUSTER_CHANNEL, (packets.ClusterConnectReply,), partial(_answered, proved))


def _answered(proved: Callable[[], None], answer: packets.Packet) -> None:
    if not isinstance(answer, packets.ClusterConnectReply) or not answer.authorized:
        raise ClusterSecurityError("the other node refused the cluster credentials")
    proved()


class DiallerProof:
    """The accepting side of one connection."""

    def __init__(
        self, credentials: ClusterCredentials | None, peer: str, send: Callable[[packets.Packet], None]
    ) -> None:
        """Args:
        credentials: Of this node; None: every other node is refused.
        peer: ``host:port`` of the other side, for errors.
        send: Sends an answer on the cluster channel.
        """
        self._credentials = credentials
        self._peer = peer
        self._send = send
        self._dialler_nonce = b""
        self._own_nonce = b""
        self.authorized = False
        """Whether the other side has proved that it knows the password."""

    def receive(self, packet: packets.Packet, authorized: Callable[[], None]) -> None:
        """Answer a packet of the other side.

        Args:
            packet: On the cluster channel.
            authorized: Called when the proof is right, before the answer.

        Raises:
            ClusterSecurityError: the proof is wrong, or the packet is out of order.
        """
        credentials, peer = self._credentials, self._peer
        if isinstance(packet, packets.ClusterHello):
            if credentials is None or packet.user != credentials.user:
                self._send(packets.ClusterConnectReply(False))
                raise ClusterSecurityError(f"{peer}: cluster user {packet.user!r} is not ours")
            self._dialler_nonce, self._own_nonce = packet.nonce, credentials.nonce()
            proof = credentials.acceptor_proof(self._dialler_nonce, self._own_nonce)
            self._send(packets.ClusterChallenge(self._own_nonce, proof))
        elif isinstance(packet, packets.ClusterProof) and credentials is not None and self._own_nonce:
            expected = credentials.dialler_proof(self._dialler_nonce, self._own_nonce)
            self._own_nonce = b""
            credentials.verify(expected, packet.proof, peer)
            self.authorized = True
            authorized()
            self._send(packets.ClusterConnectReply(True))
        elif isinstance(packet, packets.ClusterConnect):
            if credentials is not None and credentials.accepts_plain(packet.cluster_user, packet.cluster_password):
                self.authorized = True
                authorized()
                self._send(packets.ClusterConnectReply(True))
                return
            # otherwise a plain password is neither requested nor accepted: see cluster.credentials
            self._send(packets.ClusterConnectReply(False))
            raise ClusterSecurityError(f"{peer} sent a plain cluster password")
        else:
            raise ClusterSecurityError(f"{peer}: {type(packet).__name__} before the credentials were proved")
