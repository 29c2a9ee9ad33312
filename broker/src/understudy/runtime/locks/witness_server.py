"""The process of a witness: its state file, its listening sockets and its connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, cast

from understudy.errors import BrokerError, ConfigError, DiskFailed, StoreError
from understudy.ha.locks.replaced_file import read_file, replace_file
from understudy.ha.witness.frames import IDENTITY_BYTES, Secret
from understudy.ha.witness.service import Witness
from understudy.ha.witness.session import WitnessSession
from understudy.ha.witness.state import STATE_BYTES_MAX, STATE_FILE, WitnessState, decode_state
from understudy.limits import WITNESS_CONNECTIONS_MAX
from understudy.ports import Clock, Disk, Entropy, FileLock, Timers, Worker

log = logging.getLogger(__name__)

LOCK_FILE: Final = "witness.lock"


class WitnessPorts(NamedTuple):
    """Access of a witness to its machine."""

    disk: Disk
    file_lock: Callable[[str], FileLock]
    clock: Clock
    """Clock with the time since boot."""
    timers: Timers
    entropy: Entropy
    worker: Worker
    """Worker that writes the state of the witness."""


class WitnessServer:
    """A witness on the running loop."""

    def __init__(
        self,
        directory: str,
        secret: bytes,
        lease_max_ms: int,
        ports: WitnessPorts,
    ) -> None:
        """Reads the state; a new directory gets a new identity.

        Args:
            directory: Directory of the state file; it exists.
            secret: Shared with the clients.
            lease_max_ms: Longest lease that is granted.

        Raises:
            JournalCorrupt: the state file is damaged.
            StoreError: another witness uses the directory, or a newer one has written the state.
            DiskFailed: the state cannot be read or written.
        """
        self._ports = ports
        self._directory = directory
        self._secret = Secret(secret)
        self._lock = ports.file_lock(f"{directory}/{LOCK_FILE}")
        if not self._lock.try_acquire():
            raise StoreError(f"{directory}: another witness uses this directory")
        self.failure: BrokerError | None = None
        """The error because of which the witness ends."""
        self._ended = asyncio.Event()
        self._servers: list[asyncio.AbstractServer] = []
        self._sessions: set[WitnessSession] = set()
        self._open: set[WitnessConnection] = set()
        path = f"{directory}/{STATE_FILE}"
        data = read_file(ports.disk, path, STATE_BYTES_MAX)
        if data is None:
            state = WitnessState(ports.entropy.token(IDENTITY_BYTES))
            replace_file(ports.disk, directory, STATE_FILE, state.encode())
        else:
            state = decode_state(data, path)
        self.witness = Witness(state, ports.clock, self._save, self.fail, lease_max_ms)

    def _save(self, data: bytes, done: Callable[[BaseException | None], None]) -> None:
        self._ports.worker.run(partial(replace_file, self._ports.disk, self._directory, STATE_FILE, data), done)

    async def listen(self, host: str, port: int) -> None:
        """Accept connections at an address. Raises ConfigError: it cannot be used."""
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(lambda: WitnessConnection(self), host, port)
        except OSError as error:
            raise ConfigError(f"cannot listen at {host}:{port}: {error.strerror or error}") from error
        self._servers.append(server)
        log.info("witness listens", extra={"address": f"{host}:{port}", "identity": self.witness.identity.hex()})

    @property
    def ports(self) -> list[int]:
        """Ports that are listened on."""
        sockets = (each for server in self._servers for each in cast(asyncio.Server, server).sockets)
        return [socket.getsockname()[1] for socket in sockets]

    def session(self, connection: WitnessConnection) -> WitnessSession | None:
        """The session of a new connection; None: there are too many."""
        if len(self._open) >= WITNESS_CONNECTIONS_MAX:
            log.warning("connection refused: too many", extra={"peer": connection.peer})
            return None
        session = WitnessSession(
            self.witness, self._secret, connection, self._ports.entropy, self._ports.timers, self._sessions.discard
        )
        self._sessions.add(session)
        self._open.add(connection)
        return session

    def closed(self, connection: WitnessConnection) -> None:
        """Called when a connection has ended."""
        self._open.discard(connection)

    def status(self) -> dict[str, object]:
        """Status of the witness, with its connections."""
        clients = sorted(session.client for session in self._sessions if session.client)
        return {**self.witness.status(), "clients": clients, "connections": len(self._open)}

    def fail(self, error: BrokerError) -> None:
        """End the witness because of an error."""
        log.error("witness failed", extra={"code": error.code, "error": str(error)})
        self.failure = self.failure or error
        for connection in list(self._open):
            connection.abort()
        self._ended.set()

    def stop(self) -> None:
        """End the witness; the recorded holders keep their locks over a restart."""
        self._ended.set()

    async def run(self) -> BrokerError | None:
        """Wait for the end; the error if there was one."""
        await self._ended.wait()
        for server in self._servers:
            server.close()
        for connection in list(self._open):
            connection.close()
        self._ports.worker.close()
        try:
            self._lock.release()
        except DiskFailed as error:
            self.failure = self.failure or error
        return self.failure


class WitnessConnection(asyncio.Protocol):
    """One accepted socket of a witness. Implements ``ports.Connection``."""

    def __init__(self, server: WitnessServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._session: WitnessSession | None = None
        self._peer = "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio: begin the session."""
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername")
        self._peer = f"{name[0]}:{name[1]}" if name else "?"
        self._session = self._server.session(self)
        if self._session is None:
            self.abort()

    def data_received(self, data: bytes) -> None:
        """Called by asyncio: pass the bytes to the session."""
        if self._session is not None:
            self._session.receive_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio: end the session."""
        self._transport = None
        self._server.closed(self)
        if self._session is not None:
            self._session.lost()

    certificate_subject = None

    @property
    def peer(self) -> str:
        return self._peer

    def send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def flush(self) -> None:
        """``send`` has written everything."""

    def outgoing_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
