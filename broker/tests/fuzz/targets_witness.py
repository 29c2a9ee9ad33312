"""Input of the witness and of its clients: bytes before the proof, bodies of frames after it, and the state file."""

from __future__ import annotations

from collections.abc import Callable

from fuzz.target import Target
from understudy.errors import JournalCorrupt, StoreVersionUnsupported
from understudy.ha.witness.frames import (
    Answer,
    Hello,
    Kind,
    Request,
    Secret,
    encode_proof,
    encode_refusal,
    frame,
)
from understudy.ha.witness.link import WitnessLink, WitnessLinkOwner
from understudy.ha.witness.options import WitnessClientOptions
from understudy.ha.witness.service import Witness
from understudy.ha.witness.session import WitnessSession
from understudy.ha.witness.state import Holder, WitnessState, decode_state
from understudy.testing.manual_time import ManualTime

_SECRET = b"a secret of the fuzz targets"
_NONCE = b"n" * 32


class _Socket:
    """The outgoing half of a connection, which keeps nothing."""

    peer = "fuzz:1"

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.sent.append(data)

    def outgoing_bytes(self) -> int:
        return 0

    def close(self) -> None:
        """Do nothing: there is no connection that could be closed."""

    abort = close


class _Entropy:
    def token(self, length_bytes: int) -> bytes:
        return _NONCE[:length_bytes]


def _session() -> tuple[WitnessSession, _Socket]:
    def save(data: bytes, done: Callable[[BaseException | None], None]) -> None:
        done(None)

    time, socket = ManualTime(), _Socket()
    witness = Witness(WitnessState(b"i" * 16), time, save, lambda error: None, 10_000)
    time.advance(10_000)
    return WitnessSession(witness, Secret(_SECRET), socket, _Entropy(), time, lambda session: None), socket


def _proof(socket: _Socket) -> tuple[bytes, bytes]:
    return encode_proof(Secret(_SECRET), socket.sent[0][4:], 1, _NONCE, "client")


def _before_proof(data: bytes) -> None:
    session, _ = _session()
    session.receive_data(data)
    session.lost()


def _requests(data: bytes) -> None:
    """Bodies of 48 bytes each, of a client that has proved the secret."""
    session, socket = _session()
    proof, transcript = _proof(socket)
    session.receive_data(frame(proof))
    frames = Secret(_SECRET).frames(transcript, client=True)
    for start in range(0, len(data), 48):
        session.receive_data(frames.encode(data[start : start + 48]))
    session.lost()


class _Owner(WitnessLinkOwner):
    def link_welcomed(self, link: WitnessLink) -> None:
        """Nothing is sent."""

    def link_answered(self, link: WitnessLink, answer: Answer) -> None:
        """Nothing is done with it."""

    def link_lost(self, link: WitnessLink, reason: str) -> None:
        """Nothing is tried again."""


def _client(data: bytes) -> None:
    options = WitnessClientOptions([("h", 1)], _SECRET, "client")
    link = WitnessLink(_Owner(), options, None, _Entropy().token, "h:1")
    link.connected(_Socket())
    link.receive_data(data)
    link.disconnected("end")


def _state(data: bytes) -> None:
    decode_state(data, "witness.state")


def _request_seeds() -> list[bytes]:
    kinds = (Kind.ACQUIRE, Kind.RENEW, Kind.RELEASE, Kind.GET, Kind.SET, Kind.SWAP, Kind.PING, Kind.STATUS)
    bodies = [Request(kind, 1, "id-of-a-no", b"t" * 16, 6_000, 7).encode() for kind in kinds]
    return [*bodies, b"".join(body.ljust(48, b"x") for body in bodies), b""]


def _client_seeds() -> list[bytes]:
    hello = frame(Hello(1, 1, b"i" * 16, _NONCE).encode())
    return [hello, hello + frame(encode_refusal("no")), frame(Hello(2, 3, b"i" * 16, _NONCE).encode()), b""]


def _state_seeds() -> list[bytes]:
    state = WitnessState(b"i" * 16, {"n": -4, "m": 7}, {"n": Holder(b"t" * 16, "client", 6_000)})
    return [state.encode(), WitnessState(b"i" * 16).encode(), b""]


WITNESS = (
    Target("witness-proof", _before_proof, (), lambda: [frame(_proof(_session()[1])[0]), b"", bytes(600)]),
    Target("witness-requests", _requests, (), _request_seeds, memory_per_byte=1024, steps_per_byte=400),
    Target("witness-client", _client, (), _client_seeds),
    Target(
        "witness-state", _state, (JournalCorrupt, StoreVersionUnsupported), _state_seeds,
        memory_per_byte=1024, steps_per_byte=400,
    ),
)  # fmt: skip
