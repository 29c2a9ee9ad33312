"""Streams of an asyncio loop: listening sockets, and one protocol of asyncio for each accepted socket (ADR 0167).

The loop reads one socket at a time, so each delivery has one connection. All sockets of an acceptor are read to the
same memory, one after the other. The simulation is a loop, too, and runs this module over its network.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Generic, TypeVar, cast

from understudy.limits import OUTGOING_BYTES_PAUSE, READ_BYTES_BEFORE_LOGIN_MAX, READ_BYTES_MAX
from understudy.ports import AcceptedConnection, ListeningPlace, StreamAcceptor
from understudy.runtime.base.addresses import address_text
from understudy.runtime.net.listening import allow_listening, bound_sockets
from understudy.runtime.process.descriptors import Descriptors

A = TypeVar("A", bound=AcceptedConnection)


class LoopStreams:
    """Streams of the running loop. Implements ``ports.Streams``."""

    def __init__(self, descriptors: Descriptors | None = None) -> None:
        """Begin without an address.

        Args:
            descriptors: Descriptors of the process; the listening sockets get the highest numbers. None: any numbers.
        """
        self._descriptors = descriptors
        self._servers: list[tuple[socket.socket | None, asyncio.Server]] = []
        """Listening servers of asyncio, each with its socket, or None if the loop has made the socket."""

    @property
    def ports(self) -> list[int]:
        """Numbers of the ports that are taken."""
        return [each.getsockname()[1] for _, server in self._servers for each in server.sockets]

    async def bind(self, place: ListeningPlace, acceptor: StreamAcceptor[A]) -> None:
        loop, view = asyncio.get_running_loop(), memoryview(bytearray(READ_BYTES_MAX))

        def make() -> LoopStream[A]:
            return LoopStream(acceptor, view)

        if self._descriptors is None:
            made = await loop.create_server(make, place.host, place.port, backlog=place.backlog, start_serving=False)
            self._servers.append((None, made))
            return
        for bound in await bound_sockets(place, self._descriptors.listener_floor(place.connections_max)):
            made = await loop.create_server(make, sock=bound, backlog=place.backlog, start_serving=False)
            self._servers.append((bound, made))

    async def serve(self) -> None:
        for bound, server in tuple(self._servers):
            if bound is not None:
                allow_listening(bound)
            await server.start_serving()

    def check(self) -> None:
        if self._descriptors is not None:
            self._descriptors.refill()

    def stop(self) -> None:
        while self._servers:
            self._servers.pop()[1].close()


class LoopStream(asyncio.BufferedProtocol, Generic[A]):
    """Protocol of asyncio for one accepted socket; the stream of its connection is the transport."""

    def __init__(self, acceptor: StreamAcceptor[A], view: memoryview) -> None:
        """
        Args:
            view: Where the socket is read to; it may be shared with other sockets of the loop.
        """
        self._acceptor = acceptor
        self._view = view
        self._connection: A | None = None
        """Connection over the socket; None before it is made, if it is refused, and after it is lost."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast(asyncio.Transport, transport)
        stream.set_write_buffer_limits(high=OUTGOING_BYTES_PAUSE // 2)
        peer, local = address_text(stream, "peername"), address_text(stream, "sockname")
        self._connection = self._acceptor.accept(stream, peer, local)

    def get_buffer(self, sizehint: int) -> memoryview:
        connection = self._connection
        handler = None if connection is None else connection.handler
        return self._view if handler is not None and handler.proved else self._view[:READ_BYTES_BEFORE_LOGIN_MAX]

    def buffer_updated(self, nbytes: int) -> None:
        connection = self._connection
        if connection is not None:
            self._acceptor.receive(((connection, self._view[:nbytes]),))

    def resume_writing(self) -> None:
        if self._connection is not None:
            self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        # without this reference, the connection is freed by its reference count at once
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.connection_lost(str(exc) if exc else "closed")
