"""Mutual proof of the cluster password without sending it (ADR 0005).

The dialling side sends ClusterHello(user, nonce). The other side answers ClusterChallenge(nonce,
proof), which proves first that it knows the password; the dialling side checks that and answers
ClusterProof. Each proof covers both nonces and the direction, so it cannot be replayed or reflected.
"""

from __future__ import annotations

import hashlib
import hmac

from understudy.errors import ClusterSecurityError
from understudy.ports import Entropy

NONCE_BYTES = 32


class ClusterCredentials:
    """The configured cluster user and password."""

    def __init__(self, user: str, password: str, entropy: Entropy) -> None:
        self.user = user
        self._key = hashlib.sha256(f"{user}\0{password}".encode()).digest()
        self._entropy = entropy

    def nonce(self) -> bytes:
        """A fresh random value for one handshake."""
        return self._entropy.token(NONCE_BYTES)

    def acceptor_proof(self, dialler_nonce: bytes, acceptor_nonce: bytes) -> bytes:
        """Proof of the accepting side, sent in ClusterChallenge."""
        return self._proof(b"acceptor", dialler_nonce, acceptor_nonce)

    def dialler_proof(self, dialler_nonce: bytes, acceptor_nonce: bytes) -> bytes:
        """Proof of the dialling side, sent in ClusterProof."""
        return self._proof(b"dialler", dialler_nonce, acceptor_nonce)

    def verify(self, expected: bytes, given: bytes, peer: str) -> None:
        """Raises ClusterSecurityError when the proof is wrong."""
        if not hmac.compare_digest(expected, given):
            raise ClusterSecurityError(f"{peer} does not know the cluster password")

    def _proof(self, direction: bytes, dialler_nonce: bytes, acceptor_nonce: bytes) -> bytes:
        if len(dialler_nonce) != NONCE_BYTES or len(acceptor_nonce) != NONCE_BYTES:
            raise ClusterSecurityError(f"cluster handshake with a nonce that is not {NONCE_BYTES} bytes")
        return hmac.digest(self._key, direction + dialler_nonce + acceptor_nonce, "sha256")
