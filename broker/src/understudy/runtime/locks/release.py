"""Releases the locks of a node as soon as its process has ended, so that no lease has to run out first.

A node whose lock manager is a witness or ZooKeeper has a second process that reads from a pipe. The kernel closes the
other end of the pipe when the last thread of the node has ended, whatever ended it: from then on the node cannot
confirm anything. Only then the second process releases the locks. It does nothing while the node is stopped (SIGSTOP),
hangs in a system call, or has lost its network; then the lease decides, as it does if the second process was killed
too or does not reach the service (ADR 0055).

``LockReleaser`` is the side of the node; the second process runs ``main``.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from understudy.dataclass import dataclass
from understudy.errors import BrokerError
from understudy.ha.witness.frames import Answer, Kind, Request
from understudy.ha.witness.link import WitnessLink
from understudy.tls.certificates import DistinguishedName

log = logging.getLogger(__name__)

#: Longest wait for a connection and for an answer.
ANSWER_S: Final = 1.0
#: Pause before all addresses are tried again.
AGAIN_S: Final = 0.1
#: Attempts end after this time: a supervisor that stops a node waits for this process as well.
ATTEMPTS_S: Final = 3.0


class LockReleaser:
    """Process of its own that releases the locks of a node. It ends when the node has ended."""

    def __init__(self, **service: object) -> None:
        """Start the process that releases the locks.

        Args:
            service: The service and how to reach it, see ``HeldLocks``; nothing: ``tell`` follows.
        """
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            assert self._process.stdin is not None
            os.set_blocking(self._process.stdin.fileno(), False)
        except OSError as error:
            self._give_up(error)
        if service:
            self.tell(**service)

    @property
    def pid(self) -> int | None:
        """Process id; None if the process could not be started."""
        return None if self._process is None else self._process.pid

    def tell(self, **facts: object) -> None:
        """Give locks to the process to release, see ``HeldLocks``. Never blocks; without the process it does
        nothing."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        try:
            os.write(self._process.stdin.fileno(), json.dumps(facts).encode() + b"\n")
        except OSError as error:
            self._give_up(error)

    def node_ends(self) -> None:
        """Release now, as if the process of the node had ended; for tests."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()

    def granted(self, lock_id: str, token: bytes) -> None:
        """Called when a lock of a witness has been granted."""
        self.tell(id=lock_id, token=token.hex())

    def granted_by(self, member: int, lock_id: str, token: bytes) -> None:
        """Called when a lock has been granted by a member of a group of witnesses."""
        self.tell(member=member, id=lock_id, token=token.hex())

    def session_begun(self, session: int, password: bytes) -> None:
        """Called when a session of ZooKeeper has begun."""
        self.tell(session=session, password=password.hex())

    def _give_up(self, error: OSError) -> None:
        log.warning(
            "after a crash of this node its locks are free only when their leases have ended",
            extra={"error": str(error)},
        )
        self._process = None


class HeldLocks:
    """Locks of the node and how to reach their service, from the lines of its pipe: one JSON object each."""

    def __init__(self) -> None:
        """Nothing is to be released."""
        self.addresses: list[tuple[str, int]] = []
        self.lease_ms = 0
        """Time in ms after which the locks are released without a request."""
        self.secret = b""
        self.name = ""
        self.identity: bytes | None = None
        self.tokens: dict[str, bytes] = {}
        """Tokens of the locks of a witness, by id."""
        self.session: tuple[int, bytes] | None = None
        """Id and password of a session of ZooKeeper."""
        self.members: dict[int, HeldLocks] = {}
        """Locks of the members of a group of witnesses, by their number."""
        self.tls: tuple[str, str, str] | None = None
        """Files of a connection to ZooKeeper with TLS: authorities, own certificate and its key, both may be empty."""

    def take(self, line: bytes) -> None:
        """Take one line from the process that holds the locks."""
        facts: dict[str, Any] = json.loads(line)
        member = facts.pop("member", None)
        if member is not None:
            self.members.setdefault(member, HeldLocks()).take(json.dumps(facts).encode())
            return
        if "addresses" in facts:
            self.addresses = [(host, port) for host, port in facts["addresses"]]
            self.lease_ms = facts["lease_ms"]
            self.secret, self.name = bytes.fromhex(facts.get("secret", "")), facts.get("name", "")
            self.identity = bytes.fromhex(facts["identity"]) if facts.get("identity") else None
            self.tls = tuple(facts["tls"]) if facts.get("tls") else None
        if "token" in facts:
            self.tokens[facts["id"]] = bytes.fromhex(facts["token"])
        if "session" in facts:
            self.session = (facts["session"], bytes.fromhex(facts["password"]))


@dataclass
class _Socket:
    """The outgoing half of a socket. Implements ``ports.Connection``."""

    socket: socket.socket
    peer: str
    certificate_subject: DistinguishedName | None = None

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def flush(self) -> None:
        return

    def outgoing_bytes(self) -> int:
        return 0

    def close(self) -> None:
        self.socket.close()

    def abort(self) -> None:
        self.socket.close()


class _WitnessRelease:
    """Releases all tokens over one connection. Implements ``ha.witness.link.WitnessLinkOwner``."""

    def __init__(self, tokens: dict[str, bytes]) -> None:
        self._tokens = tokens
        self._open: set[int] = set()
        self.done = False
        self.lost = ""

    def link_welcomed(self, link: WitnessLink) -> None:
        """Send all requests to the witness, which has proved the secret."""
        self._open = set(range(len(self._tokens)))
        for number, (lock_id, token) in enumerate(self._tokens.items()):
            link.send(Request(Kind.RELEASE, number, lock_id, token))

    def link_answered(self, link: WitnessLink, answer: Answer) -> None:
        """Do nothing: it is of no importance here whether the lock was held."""
        self._open.discard(answer.number)
        self.done = not self._open

    def link_lost(self, link: WitnessLink, reason: str) -> None:
        """Called when the attempt has failed."""
        self.lost = reason


def release_at_witness(held: HeldLocks, address: tuple[str, int]) -> None:
    """Release the tokens. Raises OSError, BrokerError: they may still be held."""
    with socket.create_connection(address, ANSWER_S) as connection:
        owner = _WitnessRelease(held.tokens)
        link = WitnessLink(owner, held, held.identity, os.urandom, f"{address[0]}:{address[1]}")
        link.connected(_Socket(connection, link.address))
        while not owner.done:
            data = connection.recv(65536)
            if not data or owner.lost:
                raise ConnectionError(owner.lost or "closed")
            link.receive_data(data)


#: ConnectRequest: protocol version, last transaction seen, timeout, session, password.
_CONNECT: Final = struct.Struct(">iqiqi")
#: Layout of the answer to a connect request: protocol version, timeout, session.
_CONNECTED: Final = struct.Struct(">iiq")
_CLOSE_SESSION: Final = struct.Struct(">ii").pack(1, -11)


def close_session(held: HeldLocks, address: tuple[str, int]) -> None:
    """End a session of ZooKeeper, which removes its ephemeral nodes. Raises OSError: it may still live."""
    assert held.session is not None
    session, password = held.session
    with _connected(held, address) as connection:
        _send(connection, _CONNECT.pack(0, 0, held.lease_ms, session, len(password)) + password + b"\0")
        _, _, found = _CONNECTED.unpack_from(_receive(connection))
        if found == session:
            _send(connection, _CLOSE_SESSION)
            _receive(connection)


def _connected(held: HeldLocks, address: tuple[str, int]) -> socket.socket:
    """A connection with the TLS of the lock manager: the server's certificate and host name are verified."""
    connection = socket.create_connection(address, ANSWER_S)
    if held.tls is None:
        return connection
    authorities, certificate, key = held.tls
    try:
        context = ssl.create_default_context(cafile=authorities)
        if certificate:
            context.load_cert_chain(certificate, key or None)
        return context.wrap_socket(connection, server_hostname=address[0])
    except OSError:
        connection.close()
        raise


def _send(connection: socket.socket, body: bytes) -> None:
    connection.sendall(struct.pack(">i", len(body)) + body)


def _receive(connection: socket.socket) -> bytes:
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        more = connection.recv(65536)
        if not more:
            raise ConnectionError("closed")
        data += more
    return data[4:]


def release(held: HeldLocks) -> None:
    """Release everything; returns when it is done, at the latest after ``ATTEMPTS_S`` or when the leases have ended."""
    left = [held, *held.members.values()]
    end_s = time.monotonic() + min(max(each.lease_ms for each in left) / 1000, ATTEMPTS_S)
    while True:
        left = [each for each in left if not _released(each.addresses, _tasks(each))]
        if not left or time.monotonic() >= end_s:
            return
        time.sleep(AGAIN_S)


def _tasks(held: HeldLocks) -> list[Callable[[tuple[str, int]], None]]:
    tasks: list[Callable[[tuple[str, int]], None]] = []
    if held.tokens:
        tasks.append(lambda address: release_at_witness(held, address))
    if held.session is not None:
        tasks.append(lambda address: close_session(held, address))
    return tasks


def _released(addresses: Sequence[tuple[str, int]], tasks: Sequence[Callable[[tuple[str, int]], None]]) -> bool:
    return all(any(_succeeds(task, address) for address in addresses) for task in tasks)


def _succeeds(task: Callable[[tuple[str, int]], None], address: tuple[str, int]) -> bool:
    try:
        task(address)
    except (OSError, BrokerError, struct.error):
        return False
    return True


def main() -> None:
    """Read lines until the node ends, then release its locks."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # a supervisor may send these to all processes of a node whose main process has ended
        signal.signal(number, signal.SIG_IGN)
    held = HeldLocks()
    for line in sys.stdin.buffer:
        if line.endswith(b"\n"):
            held.take(line)
    release(held)


if __name__ == "__main__":
    main()
