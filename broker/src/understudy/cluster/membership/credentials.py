"""The cluster user and password, the key made of them, and the proofs and keys of a connection (ADR 0005, ADR 0111).

The key is made by scrypt, so that a recorded handshake is worth few guesses. Proofs and the keys of a sealed connection
are computed from it and from the transcript: all fields of both packets before the proofs.

An Artemis broker knows no such proof. The password is sent to connectors that the configuration names as members of
that kind, and taken from other nodes only if there are any (``artemis-members``).

The default password is public and proves nothing: with it a node links over loopback addresses only (ADR 0139).

Not here: the exchange of packets (``cluster.membership.handshake``).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from understudy.cluster.membership.link_ends import OwnEnds, is_loopback
from understudy.errors import ClusterSecurityError
from understudy.limits import CLUSTER_PASSWORD_CHARACTERS_MIN
from understudy.ports import Entropy
from understudy.wire.core import packets
from understudy.wire.core.transport import TransportConfiguration
from understudy.wire.sealed import KEY_BYTES, Sealer

NONCE_BYTES: Final = 32
INSTANCE_BYTES: Final = 16
#: Cost of the key: 32 MiB and some 0.1 s, once for each start of a node.
_SCRYPT_N: Final = 2**15
_SCRYPT_R: Final = 8
_SCRYPT_BYTES_MAX: Final = 64 * 1024 * 1024
_SALT: Final = b"understudy cluster password\0"


@lru_cache(maxsize=8)
def _derive(user: str, password: str) -> bytes:
    """The key of a cluster. Kept for the further nodes of the process."""
    salt = hashlib.sha256(_SALT + user.encode("utf-8", "surrogatepass")).digest()
    secret = password.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(secret, salt=salt, n=_SCRYPT_N, r=_SCRYPT_R, p=1, maxmem=_SCRYPT_BYTES_MAX, dklen=32)


class ClusterCredentials:
    """The configured cluster user and password, and the ends of this node."""

    def __init__(
        self,
        user: str,
        password: str,
        entropy: Entropy,
        plain: Sequence[TransportConfiguration] = (),
        own_ends: OwnEnds | None = None,
        *,
        public: bool = False,
    ) -> None:
        """Args:
        user: cluster-user.
        password: cluster-password.
        plain: Connectors of members that are Artemis brokers.
        own_ends: Where other nodes reach this one; None: at the address of the socket only.
        public: Whether the password is the default, which everyone knows.
        """
        self.user = user
        self.instance = entropy.token(INSTANCE_BYTES)
        """Random bytes of this node since its start, by which it knows its own packets."""
        self.own_ends = own_ends or OwnEnds()
        self._password = password
        self._public = public
        self._plain = tuple(plain)
        self._entropy = entropy

    def derive_key(self) -> None:
        """Compute the key, and load the cipher of sealed bytes: some 0.1 s; callable from any thread. Without it the
        first proof does so.
        """
        _derive(self.user, self._password)
        Sealer(bytes(KEY_BYTES))

    def plain_for(self, target: TransportConfiguration) -> str | None:
        """The password as it is sent to a member that is an Artemis broker; None: it is not sent there."""
        return self._password if any(map(target.same_place, self._plain)) else None

    def login_at(self, target: TransportConfiguration) -> tuple[str | None, str | None]:
        """User and password of a session at another member; None: the proof on the connection suffices."""
        password = self.plain_for(target)
        return (None, None) if password is None else (self.user, password)

    def refusal(self, peer: str) -> str:
        """Reason why this node does not link with another one at this address; empty: it may.

        Args:
            peer: ``host:port`` of the other side of the socket.
        """
        if not self._public or is_loopback(peer):
            return ""
        # without the port, which differs at each attempt: equal reasons are logged once a minute
        host = peer.rpartition(":")[0] or "an unknown address"
        return (
            "core/cluster-password of this node is the default, which is public: it links over loopback addresses only,"
            f" and {host} is not one (set a password of at least {CLUSTER_PASSWORD_CHARACTERS_MIN} characters, the same"
            " on all nodes)"
        )

    def accepts_plain(self, user: str | None, password: str | None, peer: str) -> bool:
        """Whether user and password are those of the cluster, sent by a member that is an Artemis broker.

        Args:
            peer: ``host:port`` of the other side of the socket.
        """
        if not self._plain or user is None or password is None or self.refusal(peer):
            return False
        return hmac.compare_digest(_digest(user, password), _digest(self.user, self._password))

    def nonce(self) -> bytes:
        """A fresh random value for one handshake."""
        return self._entropy.token(NONCE_BYTES)

    def handshake(self, hello: packets.ClusterHello, answer: packets.ClusterNonce) -> Handshake:
        """Proofs and keys of one connection.

        Raises:
            ClusterSecurityError: a random value has another size.
        """
        if not is_whole(hello) or len(answer.nonce) != NONCE_BYTES:
            raise ClusterSecurityError(f"cluster handshake with a nonce that is not {NONCE_BYTES} bytes")
        return Handshake(_derive(self.user, self._password), _transcript(hello, answer))


class Handshake:
    """Proofs and keys of one connection, from the key of the cluster and the packets before the proofs."""

    def __init__(self, key: bytes, transcript: bytes) -> None:
        """Args:
        transcript: All fields of both packets.
        """
        self._key = key
        self._transcript = transcript

    def dialler_proof(self) -> bytes:
        """Proof of the dialling side, which comes first."""
        return self._code(b"proof of the dialler")

    def acceptor_proof(self) -> bytes:
        """Proof of the accepting side."""
        return self._code(b"proof of the acceptor")

    def dialler_key(self) -> bytes:
        """Key of the sealed bytes of the dialling side."""
        return self._code(b"bytes of the dialler")

    def acceptor_key(self) -> bytes:
        """Key of the sealed bytes of the accepting side."""
        return self._code(b"bytes of the acceptor")

    def _code(self, purpose: bytes) -> bytes:
        return hmac.digest(self._key, purpose + b"\0" + self._transcript, "sha256")


def is_whole(hello: packets.ClusterHello) -> bool:
    """Whether the random values of the packet have their sizes."""
    return len(hello.nonce) == NONCE_BYTES and len(hello.instance or b"") == INSTANCE_BYTES


def verify(expected: bytes, given: bytes, peer: str) -> None:
    """Raises ClusterSecurityError when a proof is wrong."""
    if not hmac.compare_digest(expected, given):
        text = f"{peer} does not know the cluster password, or its packets were changed on the way"
        raise ClusterSecurityError(text, hint="cluster-user and cluster-password must be the same on all nodes")


def _digest(user: str, password: str) -> bytes:
    return hashlib.sha256(f"{user}\0{password}".encode("utf-8", "surrogatepass")).digest()


def _transcript(hello: packets.ClusterHello, answer: packets.ClusterNonce) -> bytes:
    fields = (
        *(hello.user, hello.nonce, hello.instance or b"", "verified" if hello.verified else ""),
        *(hello.place, hello.address, hello.server, hello.node_id),
        *(answer.nonce, "sealed" if answer.sealed else ""),
    )
    parts = [each if isinstance(each, bytes) else each.encode("utf-8", "surrogatepass") for each in fields]
    return b"".join(len(each).to_bytes(4, "big") + each for each in parts)
