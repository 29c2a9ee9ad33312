"""The non-blocking socket of one connection: bytes not yet written, and reading of bytes received."""

from __future__ import annotations

import select
import socket
import ssl
from typing import Final

_READ_BYTES: Final = 64 * 1024
#: The socket has nothing, or takes nothing, now. TLS says which of the two it waits for.
_NOT_NOW: Final = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Wire:
    """One non-blocking socket, plain or TLS."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._unsent: memoryview | None = None
        self._tls = isinstance(connection, ssl.SSLSocket)

    @property
    def descriptor(self) -> int:
        """Descriptor for polling; -1 when closed."""
        return self._socket.fileno()

    @property
    def events(self) -> int:
        """Events to poll for."""
        return select.POLLIN if self._unsent is None else select.POLLIN | select.POLLOUT

    @property
    def writable(self) -> bool:
        """Whether everything was written so far."""
        return self._unsent is None

    @property
    def pending(self) -> bool:
        """Whether bytes have been decrypted and not read; polling does not show them."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def write(self, data: bytes = b"") -> None:
        """Write the remaining bytes and these, as far as the socket accepts them.

        Raises:
            OSError: the connection is lost.
        """
        unsent = self._unsent
        if unsent is None:
            unsent = memoryview(data)
        elif data:
            unsent = memoryview(b"".join((unsent, data)))
        try:
            sent = self._socket.send(unsent) if unsent else 0
        except _NOT_NOW:
            sent = 0
        self._unsent = unsent[sent:] if sent < len(unsent) else None

    def read(self) -> bytes | None:
        """Bytes that have arrived; empty at the end of the stream, None if there are none now.

        Raises:
            OSError: the connection is lost.
        """
        try:
            return self._socket.recv(_READ_BYTES)
        except _NOT_NOW:
            return None

    def drained_by(self, data: bytes) -> bool:
        """Whether a read that returned these bytes has taken everything that polling would show again."""
        return len(data) < _READ_BYTES and not self._tls

    def hang_up(self) -> None:
        """End the connection at once, also for a thread that polls it."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the socket was not connected any more
        self._socket.close()

    def drop(self) -> None:
        """Close this process's descriptor only: after a fork the connection belongs to the other process."""
        self._socket.close()
