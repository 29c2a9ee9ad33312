"""Mutual proof of the cluster password without sending it (ADR 0005).

The dialling side sends ClusterHello(user, nonce). The other side answers ClusterChallenge(nonce,
proof), which proves first that it knows the password; the dialling side checks that and answers
ClusterProof. Each proof covers both nonces and the direction, so it cannot be replayed or reflected.

An Artemis broker knows no such proof. The password is sent to connectors that the configuration names as members of
that kind, and taken from other nodes only if there are any (``artemis-members``).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from understudy.errors import ClusterSecurityError
from understudy.ports import Entropy
from understudy.wire.core.transport import TransportConfiguration

NONCE_BYTES = 32


class ClusterCredentials:
    """The configured cluster user and password."""

    def __init__(
        self, user: str, password: str, entropy: Entropy, plain: Sequence[TransportConfiguration] = ()
    ) -> None:
        """Args:
        user: cluster-user.
        password: cluster-password.
        entropy: For nonces.
        plain: Connectors of members that are Artemis brokers.
        """
        self.user = user
        self._password = password if plain else None
        self._plain = tuple(plain)
        self._key = hashlib.sha256(f"{user}\0{password}".encode()).digest()
        self._entropy = entropy

    def plain_for(self, target: TransportConfiguration) -> str | None:
        """The password as it is sent to a member that is an Artemis broker; None: it is not sent there."""
        return self._password if any(map(target.same_place, self._plain)) else None

    def login_at(self, target: TransportConfiguration) -> tuple[str | None, str | None]:
        """User and password of a session at another member; None: the proof on the connection suffices."""
        password = self.plain_for(target)
        return (None, None) if password is None else (self.user, password)

    def accepts_plain(self, user: str | None, password: str | None) -> bool:
        """Whether these are user and password, from a member that is an Artemis broker."""
        if self._password is None or user is None or password is None:
            return False
        given = hashlib.sha256(f"{user}\0{password}".encode("utf-8", "surrogatepass")).digest()
        return hmac.compare_digest(given, self._key)

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
