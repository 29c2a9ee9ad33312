"""Proof of the cluster credentials on a dialled connection (ADR 0005): both sides prove that they know the password.

Source: artemis-core s. 9.1. Not here: the accepting side (``protocols.core.cluster_channel``).
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
