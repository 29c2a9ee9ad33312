"""The other side of a connection between nodes, for tests that speak for it.

The output of the tested node is sealed by its connection, which is a fake one here: it keeps the bytes as they are, and
notes that they would be sealed. Input is sealed as by the other node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from understudy.cluster.membership.credentials import INSTANCE_BYTES, NONCE_BYTES, ClusterCredentials
from understudy.ports import OutputSealer, Security
from understudy.wire.core import packets as p
from understudy.wire.core.codec import Frame, FrameDecoder, encode
from understudy.wire.sealed import Sealer

CLUSTER_CHANNEL = 3
PASSWORD = "a password of this test"
#: ``local`` of a connection of ``SealableEnd``.
PLACE = "192.0.2.100:61616"


class SealableEnd:
    """The parts of ``ports.SealableConnection`` that concern links between nodes."""

    local = PLACE
    peer = "192.0.2.1:5000"
    security = Security.NONE
    sealer: OutputSealer | None = None
    upgrade_without_name = False

    def seal(self, sealer: OutputSealer) -> None:
        self.sealer = sealer


def frames_of(decoder: FrameDecoder, data: bytes) -> list[Frame]:
    """All frames, also those after the last one before sealed bytes: the bytes of a fake connection are not sealed."""
    frames = decoder.receive_data(data)
    while decoder.backlog:
        frames += decoder.receive_data(b"")
    return frames


def sealed_frame(sealer: Sealer | None, packet: p.Packet, channel_id: int) -> bytes:
    """A frame as it is on the wire."""
    frame = encode(packet, channel_id)
    return frame if sealer is None else b"".join(map(bytes, sealer.seal([frame])))


def hello_of(credentials: ClusterCredentials, **fields: Any) -> p.ClusterHello:
    """The first packet of another node of the same cluster, meant for ``PLACE``."""
    options = {"user": credentials.user, "nonce": bytes(NONCE_BYTES), "instance": b"i" * INSTANCE_BYTES}
    return p.ClusterHello(**{**options, "place": PLACE, "address": PLACE, **fields})  # type: ignore[arg-type]


class Ask(Protocol):
    """Gives the tested node a packet, and returns its only answer of a type."""

    def __call__(self, packet: p.Packet, kind: type[Any], channel_id: int) -> Any: ...


def prove_to(credentials: ClusterCredentials, ask: Ask, **fields: Any) -> Sealer | None:
    """Prove the password as a node that dials. Returns the sealer of its further packets, if they are sealed."""
    hello = hello_of(credentials, **fields)
    answer = ask(hello, p.ClusterNonce, CLUSTER_CHANNEL)
    handshake = credentials.handshake(hello, answer)
    accept = ask(p.ClusterProof(handshake.dialler_proof()), p.ClusterAccept, CLUSTER_CHANNEL)
    assert accept.proof == handshake.acceptor_proof()
    return Sealer(handshake.dialler_key()) if answer.sealed else None


def accept_proof(
    credentials: ClusterCredentials,
    sent: Callable[[], Sequence[p.Packet]],
    answer: Callable[[p.Packet], None],
    *,
    sealed: bool = True,
) -> Sealer | None:
    """Take the proof of the tested node as a node that was dialled. Returns the sealer of its further packets.

    Args:
        sent: Packets of the tested node.
        answer: Gives it a packet.
        sealed: Whether the bytes after the proofs are sealed.
    """
    hello = next(each for each in reversed(sent()) if isinstance(each, p.ClusterHello))
    nonce = p.ClusterNonce(b"n" * NONCE_BYTES, sealed)
    handshake = credentials.handshake(hello, nonce)
    answer(nonce)
    proof = sent()[-1]
    assert isinstance(proof, p.ClusterProof)
    assert proof.proof == handshake.dialler_proof()
    answer(p.ClusterAccept(handshake.acceptor_proof()))
    return Sealer(handshake.acceptor_key()) if sealed else None
