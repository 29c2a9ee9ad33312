# SPDX-License-Identifier: Apache-2.0
"""Question to a witness from a host of a pair: does it answer, does it have the same secret, does it grant locks.

The handshake and the request for its state are those of docs/operate/lock-managers.md ("Protocol of the witness"). A
host needs no release for it, so that it is asked before anything is installed or stopped.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

from ansible_collections.understudy.broker.plugins.module_utils.reaching import why_silent

MAGIC = b"UWIT"
VERSION = 1
NONCE_BYTES = 32
PROOF_BYTES = 32
CODE_BYTES = 16
FRAME_BYTES_MAX = 1 << 20
NAME = b"preflight of a deployment"
HELLO, PROOF, WELCOME, REFUSED, STATUS, TEXT = 1, 2, 3, 4, 23, 36
_LENGTH = struct.Struct(">I")
_HELLO = struct.Struct(f">B4sBB16s{NONCE_BYTES}s")
_REQUEST = struct.Struct(">BI16sqq")
_ANSWER = struct.Struct(">BIq")


class Refusal(Exception):
    """An answer that no later attempt changes: another secret, another identity, no witness, no member of a group."""


@dataclass(frozen=True)
class Seen:
    """One witness as this host sees it."""

    place: str
    answers: bool = False
    """Whether the witness has proved the secret and grants locks, now or soon after its start."""
    refused: str = ""
    """Reason why the witness is of no use until an operator changes something; empty otherwise."""
    silent: str = ""
    """Why there was no answer; empty if there was one."""
    identity: str = ""
    version: str = ""
    configuration: int = 0
    """Number of the configuration of its group; 0 for a single witness."""

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def place_of(text: str, port: int) -> tuple[str, int]:
    """Host and port of ``host:port``, ``[address]:port`` or ``host``, which has the given port.

    Raises:
        ValueError: it is none of these.
    """
    given = text.strip()
    host, colon, number = given.rpartition(":")
    if not colon or given.endswith("]"):
        host, number = given, str(port)
    if not host.strip("[]") or not number.isdecimal() or not 0 < int(number) < 1 << 16:
        raise ValueError(f"{text!r} is no host:port")
    return host.strip("[]"), int(number)


def spelled(place: tuple[str, int]) -> str:
    """The place as inventories have it, with an address of IPv6 in brackets."""
    host, port = place
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _Stream:
    """Frames over a connected socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, body: bytes) -> None:
        self._connection.sendall(_LENGTH.pack(len(body)) + body)

    def receive(self) -> bytes:
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if not 1 <= length <= FRAME_BYTES_MAX:
            raise Refusal(f"it is no witness: its frame has {length} bytes")
        return self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._connection.recv(count - len(data))
            if not more:
                raise ConnectionResetError("it closed the connection")
            data += more
        return data


def ask(place: tuple[str, int], secret: bytes, identity: str, *, of_group: bool, timeout_s: float) -> Seen:
    """The witness at a place.

    Args:
        place: host and port.
        secret: shared with it, without white space at its ends.
        identity: that it must have, in hexadecimal digits; empty: any.
        of_group: whether it has to be a member of a group.
        timeout_s: seconds for the connection and for each answer.
    """
    shown = spelled(place)
    try:
        with socket.create_connection(place, timeout_s) as connection:
            found = _greet(_Stream(connection), secret, identity)
    except Refusal as refusal:
        return Seen(shown, refused=str(refusal))
    except OSError as error:
        return Seen(shown, silent=why_silent(error, timeout_s))
    configuration = int(str(found.get("configuration") or 0))
    problem = ""
    if of_group and not configuration:
        problem = "it is no member of a group of witnesses yet; run the playbook witness"
    elif configuration and not of_group:
        problem = "it is a member of a group of witnesses; name all of them as 'members'"
    return Seen(
        shown,
        answers=not problem,
        refused=problem,
        identity=str(found.get("identity", "")),
        version=str(found.get("version", "")),
        configuration=configuration,
    )


def _greet(stream: _Stream, secret: bytes, identity: str) -> dict[str, object]:
    """The handshake, and the state of the witness."""
    key = hashlib.sha256(b"understudy witness\0" + secret).digest()
    hello = stream.receive()
    if len(hello) != _HELLO.size or hello[0] != HELLO or hello[1:5] != MAGIC:
        raise Refusal("it is no witness")
    _kind, _magic, low, high, found, _nonce = _HELLO.unpack(hello)
    if not low <= VERSION <= high:
        raise Refusal(f"it speaks versions {low} to {high} of its protocol, and this host {VERSION}")
    if identity and found.hex() != identity.lower():
        raise Refusal(
            f"it has the id {found.hex()}, and 'id' is {identity}: it is another witness, or has lost its state"
        )
    chosen = bytes((VERSION,)) + os.urandom(NONCE_BYTES)
    transcript = hello + chosen + NAME
    stream.send(bytes((PROOF,)) + chosen + hmac.digest(key, b"client" + transcript, "sha256") + NAME)
    answer = stream.receive()
    if answer[0] == REFUSED:
        raise Refusal(answer[1:].decode(errors="replace"))
    expected = bytes((WELCOME,)) + hmac.digest(key, b"server" + transcript, "sha256")
    if not hmac.compare_digest(answer, expected):
        raise Refusal("it does not know the secret")
    session = hmac.digest(key, b"session" + transcript, "sha256")
    body = _REQUEST.pack(STATUS, 1, bytes(16), 0, 0)
    stream.send(body + _code(session, b"client", body))
    sealed = stream.receive()
    body, code = sealed[:-CODE_BYTES], sealed[-CODE_BYTES:]
    if not hmac.compare_digest(code, _code(session, b"server", body)) or body[:1] != bytes((TEXT,)):
        raise Refusal("its answer was changed on the way")
    state = json.loads(body[_ANSWER.size :])
    return state if isinstance(state, dict) else {}


def _code(session: bytes, direction: bytes, body: bytes) -> bytes:
    """Code of the first frame of a direction after the handshake."""
    return hmac.digest(session, direction + bytes(8) + body, "sha256")[:CODE_BYTES]


def connect(place: tuple[str, int], timeout_s: float) -> Seen:
    """A server of another protocol, of which only the connection is tried."""
    shown = spelled(place)
    try:
        socket.create_connection(place, timeout_s).close()
    except OSError as error:
        return Seen(shown, silent=why_silent(error, timeout_s))
    return Seen(shown, answers=True)


def ask_all(
    places: Sequence[tuple[str, int]], secret: bytes, identity: str, *, of_group: bool, timeout_s: float
) -> list[Seen]:
    """The witnesses at all places, asked at the same time."""
    with ThreadPoolExecutor(max_workers=max(1, len(places))) as workers:
        return list(
            workers.map(lambda each: ask(each, secret, identity, of_group=of_group, timeout_s=timeout_s), places)
        )


def usable(seen: Sequence[Seen], *, of_group: bool) -> bool:
    """Whether a pair can activate with them: a majority of a group answers, or one address of a single witness."""
    answering = sum(each.answers for each in seen)
    return 2 * answering > len(seen) if of_group else answering > 0
