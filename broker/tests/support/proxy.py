"""A TCP proxy on loopback whose connections can be cut, so that both ends see a reset, and recorded."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Recording:
    """Bytes that went over one connection."""

    to_server: bytearray = field(default_factory=bytearray)
    to_client: bytearray = field(default_factory=bytearray)


class Proxy:
    """Forwards every connection to one port of this host."""

    def __init__(self, target_port: int, *, record: bool = False) -> None:
        self._target_port = target_port
        self._record = record
        self.recordings: list[Recording] = []
        """Recording of every connection so far; empty without ``record``."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.accepted = 0
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._accepting = True
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def cut(self) -> int:
        """Reset every connection; how many there were."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    # linger 0: a reset instead of an orderly end
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
        return len(pairs)

    def stop_accepting(self) -> None:
        """Leave further connections in the backlog of the listener: the kernel accepts them and nothing answers."""
        self._accepting = False
        with socket.create_connection(("127.0.0.1", self.port)):
            self._acceptor.join()

    def take_unanswered(self, request: bytes, timeout_s: float) -> socket.socket:
        """A connection of the backlog that has sent these bytes. Only after ``stop_accepting``."""
        self._listener.settimeout(timeout_s)
        taken, _ = self._listener.accept()
        taken.settimeout(timeout_s)
        received = b""
        while request not in received:
            data = taken.recv(65536)
            assert data, f"the connection ended after {received!r}"
            received += data
        return taken

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self._accepting:
                client.close()
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target_port))
            except OSError:
                # the server does not listen now; a later connection may reach it
                client.close()
                continue
            self.accepted += 1
            with self._lock:
                self._pairs.append((client, server))
            recording = Recording()
            if self._record:
                self.recordings.append(recording)
            for source, target, log in (
                (client, server, recording.to_server),
                (server, client, recording.to_client),
            ):
                kept = log if self._record else None
                threading.Thread(target=_pump, args=(source, target, kept), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket, recorded: bytearray | None) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            if recorded is not None:
                recorded += data
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def proxy_to(port: int, *, record: bool = False) -> Iterator[Proxy]:
    proxy = Proxy(port, record=record)
    try:
        yield proxy
    finally:
        proxy.close()
