"""A reader of accepted sockets that is no event loop: it reads all sockets that have bytes, then delivers them at once.

The loop says only that the epoll object has events. A native reader would have a thread in its place.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Iterable
from typing import Any, Final

from understudy.limits import READ_BYTES_BEFORE_LOGIN_MAX, READ_BYTES_MAX
from understudy.ports import ListeningPlace, StreamAcceptor
from understudy.runtime.net.listening import allow_listening, bound_sockets

_ENDS: Final = select.EPOLLHUP | select.EPOLLERR


class EpollStreams:
    """Streams of one epoll object. Implements ``ports.Streams``."""

    def __init__(self) -> None:
        self.deliveries: list[int] = []
        """Number of connections in each delivery."""
        self._epoll = select.epoll()
        self._listening: dict[int, tuple[socket.socket, int]] = {}
        """Bound sockets and their backlogs."""
        self._streams: dict[int, EpollStream] = {}
        self._acceptor: Any = None
        self._loop: Any = None

    async def bind(self, place: ListeningPlace, acceptor: StreamAcceptor[Any]) -> None:
        self._acceptor, self._loop = acceptor, asyncio.get_running_loop()
        for bound in await bound_sockets(place):
            self._listening[bound.fileno()] = bound, place.backlog

    async def serve(self) -> None:
        for number, (bound, backlog) in self._listening.items():
            allow_listening(bound)
            bound.listen(backlog)
            self._epoll.register(number, select.EPOLLIN)
        self._loop.add_reader(self._epoll.fileno(), self._poll)

    def check(self) -> None:
        """Nothing ages."""

    def stop(self) -> None:
        while self._listening:
            self._listening.popitem()[1][0].close()

    def watch(self, stream: EpollStream, events: int) -> None:
        """Watch a stream for these events only; 0: for none."""
        number = stream.socket.fileno()
        if self._streams.pop(number, None) is not None:
            self._epoll.unregister(number)
        if events:
            self._streams[number] = stream
            self._epoll.register(number, events)

    def later(self, call: Any, *args: object) -> None:
        """Call in the next iteration of the loop."""
        self._loop.call_soon(call, *args)

    def _poll(self) -> None:
        arrivals = []
        for number, events in self._epoll.poll(0):
            if number in self._listening:
                self._accept(self._listening[number][0])
            elif (stream := self._streams.get(number)) is not None:
                if events & select.EPOLLOUT:
                    stream.write_kept()
                if events & (select.EPOLLIN | _ENDS) and (data := stream.read()):
                    arrivals.append((stream.connection, memoryview(data)))
        if arrivals:
            self.deliveries.append(len(arrivals))
            self._acceptor.receive(arrivals)
            for _, view in arrivals:
                # the next read would overwrite it
                view[:] = bytes(len(view))

    def _accept(self, listening: socket.socket) -> None:
        try:
            made, peer = listening.accept()
        except BlockingIOError:
            return
        made.setblocking(False)
        stream = EpollStream(self, made)
        stream.connection = self._acceptor.accept(
            stream, *(f"{host}:{port}" for host, port in (peer[:2], made.getsockname()[:2]))
        )
        stream.watch()


class EpollStream:
    """One accepted socket. Implements ``ports.Stream``."""

    def __init__(self, streams: EpollStreams, made: socket.socket) -> None:
        self.socket = made
        self.connection: Any = None
        self._streams = streams
        self._kept = bytearray()
        """Bytes that the kernel has not taken yet."""
        self._reading = True
        self._closing = False

    def watch(self) -> None:
        """Tell the epoll object which events matter now."""
        if self.socket.fileno() >= 0:
            reading = select.EPOLLIN if self._reading and not self._closing else 0
            self._streams.watch(self, reading | (select.EPOLLOUT if self._kept else 0))

    def read(self) -> bytearray:
        """Received bytes; none when there are none, or the stream has ended."""
        handler = None if self.connection is None else self.connection.handler
        long = handler is not None and handler.proved
        buffer = bytearray(READ_BYTES_MAX if long else READ_BYTES_BEFORE_LOGIN_MAX)
        try:
            count = self.socket.recv_into(buffer)
        except BlockingIOError:
            return bytearray()
        except OSError as error:
            self._end(str(error))
            return bytearray()
        if not count:
            self.close()
        return buffer[:count]

    def write_kept(self) -> None:
        """Give kept bytes to the kernel."""
        try:
            del self._kept[: self.socket.send(self._kept)]
        except BlockingIOError:
            return
        except OSError as error:
            self._end(str(error))
            return
        self.watch()
        if not self._kept and self._closing:
            self._end("closed")
        elif not self._kept and self.connection is not None:
            self.connection.resume_writing()

    def writelines(self, pieces: Iterable[bytes | memoryview], /) -> None:
        if self._closing:
            return
        self._kept += b"".join(pieces)
        try:
            del self._kept[: self.socket.send(self._kept)]
        except BlockingIOError:
            pass
        except OSError as error:
            self._end(str(error))
        self.watch()

    def get_write_buffer_size(self) -> int:
        return len(self._kept)

    def pause_reading(self) -> None:
        self._reading = False
        self.watch()

    def resume_reading(self) -> None:
        self._reading = True
        self.watch()

    def close(self) -> None:
        self._closing = True
        self.watch()
        if not self._kept:
            self._end("closed")

    def abort(self) -> None:
        self._end("closed")

    def _end(self, reason: str) -> None:
        if self.socket.fileno() >= 0:
            self._closing = True
            self._kept.clear()
            self._streams.watch(self, 0)
            self.socket.close()
            if self.connection is not None:
                self._streams.later(self.connection.connection_lost, reason)
