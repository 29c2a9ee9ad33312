"""Frames between a witness and its clients (docs/operate/lock-managers.md, "Protocol of the witness").

A frame is its length (four bytes, big-endian) and its body; the first byte of the body is the type. The witness sends
HELLO, the client PROOF, the witness WELCOME or REFUSED. The proofs cover both nonces, so they cannot be replayed, and
the secret is never sent. After WELCOME each body is followed by a code of 16 bytes over the direction, the number of
the frame and the body, so that frames cannot be changed, repeated or left out on the way.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from enum import IntEnum
from typing import Final, NoReturn

from understudy.dataclass import dataclass
from understudy.errors import ClusterSecurityError, IncompatibleVersion, LimitExceeded, RemoteProtocolError
from understudy.limits import (
    WITNESS_FRAME_BYTES_BEFORE_LOGIN_MAX,
    WITNESS_FRAME_BYTES_MAX,
    WITNESS_NAME_BYTES_MAX,
)

MAGIC: Final = b"UWIT"
#: Versions of the protocol that this module speaks.
VERSION_MIN: Final = 1
VERSION_MAX: Final = 1
NONCE_BYTES: Final = 32
IDENTITY_BYTES: Final = 16
TOKEN_BYTES: Final = 16
NO_TOKEN: Final = bytes(TOKEN_BYTES)
_PROOF_BYTES: Final = 32
_CODE_BYTES: Final = 16
_LENGTH: Final = struct.Struct(">I")
_HELLO: Final = struct.Struct(f">B4sBB{IDENTITY_BYTES}s{NONCE_BYTES}s")
_PROOF: Final = struct.Struct(f">BB{NONCE_BYTES}s{_PROOF_BYTES}s")
_WELCOME: Final = struct.Struct(f">B{_PROOF_BYTES}s")
_REQUEST: Final = struct.Struct(f">BI{TOKEN_BYTES}sqq")
_ANSWER: Final = struct.Struct(">BIq")


class Kind(IntEnum):
    """Types of the frames between a node and a witness."""

    HELLO = 1
    PROOF = 2
    WELCOME = 3
    REFUSED = 4
    """Text: why; the connection is closed after it."""
    ACQUIRE = 16
    """Lock ``id`` for ``token``; ``first`` is the length of the lease in milliseconds."""
    RENEW = 17
    """ACQUIRE for the present holder only. ``second`` of both: whether the witness is one of a group."""
    RELEASE = 18
    GET = 19
    SET = 20
    """Number ``id`` becomes ``first``."""
    SWAP = 21
    """Number ``id`` becomes ``second`` if it is ``first``."""
    PING = 22
    STATUS = 23
    READ = 24
    """Read the register ``id`` of a group."""
    PREPARE = 25
    """Take no ballot for register ``id`` of a group below that of ``first`` and ``token``."""
    ACCEPT = 26
    """Set register ``id`` of a group to ``second`` with the ballot of ``first`` and ``token``."""
    EXPORT = 27
    """Registers from the place ``first`` on, in the order of their ids."""
    IMPORT = 28
    """Register ``id`` was ``second`` with the ballot of ``first`` and ``token``; before FORM only."""
    FORM = 29
    """The configuration of the group ``token`` becomes ``second`` if it is ``first``; 0: no member of a group."""
    YES = 32
    """``value``: number of the configuration of the group, and count of the changes of the state (``Standing``)."""
    NO = 33
    """Refusal; the content is a text with the reason."""
    NUMBER = 34
    ERROR = 35
    """Text: why the request cannot be carried out."""
    TEXT = 36
    """Answer whose content is JSON."""


REQUESTS: Final = frozenset(kind for kind in Kind if Kind.ACQUIRE <= kind < Kind.YES)
#: ``second`` of ACQUIRE and RENEW of a client for which this witness is one of a group.
OF_GROUP: Final = -1
ANSWERS: Final = frozenset((Kind.YES, Kind.NO, Kind.NUMBER, Kind.ERROR, Kind.TEXT))


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a client that has proved the secret."""

    kind: Kind
    number: int
    """Number of the request, chosen by the client; the answer has the same number."""
    id: str = ""
    token: bytes = NO_TOKEN
    first: int = 0
    second: int = 0

    def encode(self) -> bytes:
        """Encode the body of the request's frame."""
        return _REQUEST.pack(self.kind, self.number, self.token, self.first, self.second) + self.id.encode()


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request."""

    kind: Kind
    number: int
    value: int = 0
    text: str = ""

    def encode(self) -> bytes:
        """Encode the body of the answer's frame."""
        return _ANSWER.pack(self.kind, self.number, self.value) + self.text.encode()


#: Bits of ``Standing.value`` for the count of changes.
_CHANGES_BITS: Final = 40


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a witness, as each answer YES tells it."""

    configuration: int
    """Configuration number of the group; 0: the witness is no member of a group."""
    changes: int
    """Changes of its state since its first start, those on the disk; 0: a witness of an earlier version."""

    @property
    def value(self) -> int:
        """The standing as the number in ``Answer.value``."""
        return self.configuration << _CHANGES_BITS | self.changes

    @classmethod
    def of(cls, value: int) -> Standing:
        """The standing in an ``Answer.value``."""
        return cls(value >> _CHANGES_BITS, value & ((1 << _CHANGES_BITS) - 1))


@dataclass(frozen=True, slots=True)
class Hello:
    """First frame, sent by the witness."""

    version_min: int
    version_max: int
    identity: bytes
    nonce: bytes

    def encode(self) -> bytes:
        """Encode the body of the frame."""
        return _HELLO.pack(Kind.HELLO, MAGIC, self.version_min, self.version_max, self.identity, self.nonce)

    @classmethod
    def decode(cls, body: bytes) -> Hello:
        """Raises RemoteProtocolError: the peer is no witness. IncompatibleVersion: it speaks no common version."""
        if len(body) != _HELLO.size or body[0] != Kind.HELLO or body[1:5] != MAGIC:
            raise RemoteProtocolError("the peer is no witness: its first frame is no HELLO")
        _, _, low, high, identity, nonce = _HELLO.unpack(body)
        if low > VERSION_MAX or high < VERSION_MIN:
            raise IncompatibleVersion(
                f"the witness speaks versions {low} to {high} of its protocol, this side {VERSION_MIN} to {VERSION_MAX}"
            )
        return cls(low, high, identity, nonce)


class Secret:
    """The secret shared by a witness and its clients."""

    def __init__(self, secret: bytes) -> None:
        self._key = hashlib.sha256(b"understudy witness\0" + secret).digest()

    def proof(self, direction: bytes, transcript: bytes) -> bytes:
        """Proof that one side of the handshake knows the secret."""
        return hmac.digest(self._key, direction + transcript, "sha256")

    def frames(self, transcript: bytes, *, client: bool) -> Frames:
        """Codec of the frames after the handshake."""
        key = self.proof(b"session", transcript)
        return Frames(key, b"client" if client else b"server", b"server" if client else b"client")


def encode_proof(secret: Secret, hello: bytes, version: int, nonce: bytes, name: str) -> tuple[bytes, bytes]:
    """The body of PROOF, and the transcript of the handshake. ``name`` of the client is for logs and status."""
    text = name.encode()[:WITNESS_NAME_BYTES_MAX]
    transcript = hello + bytes((version,)) + nonce + text
    return _PROOF.pack(Kind.PROOF, version, nonce, secret.proof(b"client", transcript)) + text, transcript


def check_proof(secret: Secret, hello: bytes, body: bytes) -> tuple[str, bytes]:
    """Name of the client, and the transcript.

    Raises:
        RemoteProtocolError: the frame is no PROOF.
        IncompatibleVersion: the client chose a version that was not offered.
        ClusterSecurityError: the client does not know the secret.
    """
    if len(body) < _PROOF.size or body[0] != Kind.PROOF or len(body) > _PROOF.size + WITNESS_NAME_BYTES_MAX:
        raise RemoteProtocolError("the client's first frame is no PROOF")
    _, version, nonce, proof = _PROOF.unpack_from(body)
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise IncompatibleVersion(f"version {version} of the protocol of the witness was not offered")
    text = body[_PROOF.size :]
    transcript = hello + bytes((version,)) + nonce + text
    if not hmac.compare_digest(secret.proof(b"client", transcript), proof):
        raise ClusterSecurityError("the client does not know the secret of the witness")
    return text.decode(errors="replace"), transcript


def encode_welcome(secret: Secret, transcript: bytes) -> bytes:
    """The body of WELCOME."""
    return _WELCOME.pack(Kind.WELCOME, secret.proof(b"server", transcript))


def encode_refusal(text: str) -> bytes:
    """The body of REFUSED."""
    return bytes((Kind.REFUSED,)) + text.encode()[:400]


def check_welcome(secret: Secret, transcript: bytes, body: bytes) -> None:
    """Raises ClusterSecurityError: the witness refuses, or does not know the secret."""
    if body[:1] == bytes((Kind.REFUSED,)):
        raise ClusterSecurityError(f"the witness refuses: {body[1:].decode(errors='replace')}")
    if len(body) != _WELCOME.size or body[0] != Kind.WELCOME:
        raise RemoteProtocolError("the witness answers the proof with an unknown frame")
    if not hmac.compare_digest(secret.proof(b"server", transcript), body[1:]):
        raise ClusterSecurityError("the witness does not know the secret")


def frame(body: bytes) -> bytes:
    """A frame of the handshake."""
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Cuts received bytes into bodies of frames."""

    def __init__(self) -> None:
        self._data = bytearray()
        self.limit_bytes = WITNESS_FRAME_BYTES_BEFORE_LOGIN_MAX

    def add(self, data: bytes) -> None:
        """Take received bytes."""
        self._data += data

    def next(self) -> bytes | None:
        """The next body; None if it has not come whole.

        Raises:
            LimitExceeded: it is too long.
        """
        if len(self._data) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._data)
        if not 1 <= length <= self.limit_bytes:
            raise LimitExceeded(f"frame of {length} bytes, {self.limit_bytes} allowed")
        end = _LENGTH.size + length
        if len(self._data) < end:
            return None
        body = bytes(self._data[_LENGTH.size : end])
        del self._data[:end]
        return body


class Frames:
    """Codec of the frames of both directions after the handshake."""

    def __init__(self, key: bytes, sends: bytes, receives: bytes) -> None:
        self._key = key
        self._sends = sends
        self._receives = receives
        self._sent = 0
        self._received = 0

    def encode(self, body: bytes) -> bytes:
        """Encode a frame together with its authentication code."""
        code = self._code(self._sends, self._sent, body)
        self._sent += 1
        return _LENGTH.pack(len(body) + _CODE_BYTES) + body + code

    def open(self, sealed: bytes) -> bytes:
        """The body of a received frame.

        Raises:
            ClusterSecurityError: its code is wrong.
        """
        body, code = sealed[:-_CODE_BYTES], sealed[-_CODE_BYTES:]
        if not body or not hmac.compare_digest(self._code(self._receives, self._received, body), code):
            raise ClusterSecurityError("a frame was changed on the way")
        self._received += 1
        return body

    def _code(self, direction: bytes, number: int, body: bytes) -> bytes:
        return hmac.digest(self._key, direction + number.to_bytes(8, "big") + body, "sha256")[:_CODE_BYTES]


def decode_request(body: bytes) -> Request:
    """Raises RemoteProtocolError: the body is no request."""
    if len(body) < _REQUEST.size or len(body) > _REQUEST.size + WITNESS_NAME_BYTES_MAX or body[0] not in REQUESTS:
        _unknown(body)
    kind, number, token, first, second = _REQUEST.unpack_from(body)
    try:
        identifier = body[_REQUEST.size :].decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("an id is no UTF-8") from error
    return Request(Kind(kind), number, identifier, token, first, second)


def decode_answer(body: bytes) -> Answer:
    """Raises RemoteProtocolError: the body is no answer."""
    if len(body) < _ANSWER.size or body[0] not in ANSWERS:
        _unknown(body)
    kind, number, value = _ANSWER.unpack_from(body)
    return Answer(Kind(kind), number, value, body[_ANSWER.size :].decode(errors="replace"))


def _unknown(body: bytes) -> NoReturn:
    raise RemoteProtocolError(f"unexpected frame of type {body[0] if body else 'none'} with {len(body)} bytes")


def frame_limit() -> int:
    """Longest frame after the handshake, with its code. Bytes."""
    return WITNESS_FRAME_BYTES_MAX
