"""The carriers of broadcasts on the loop of a node: sockets and files (ADR 0061). Not here: the datagrams."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final

from understudy.cluster.discovery.carriers import (
    AnnouncementDirectory,
    Carrier,
    Endpoint,
    MemberList,
    Multicast,
    Receive,
)
from understudy.cluster.discovery.sockets import (
    DATAGRAM_BYTES,
    AnnouncementReader,
    member_places,
    member_socket,
    multicast_listener,
    multicast_sender,
    remove_announcement,
    write_announcement,
)
from understudy.errors import BrokerError
from understudy.limits import BROADCAST_PAUSE_MS, BROADCASTS_PER_PAUSE_MAX
from understudy.runtime.base.turn import Turn
from understudy.runtime.base.worker import ThreadWorker
from understudy.wire.core.broadcast import from_channel, to_channel

log = logging.getLogger(__name__)

#: Interval in ms at which a directory of announcements is read.
DIRECTORY_PERIOD_MS: Final = 1_000
#: Interval in ms at which the names of a list of hosts are resolved.
RESOLVE_PERIOD_MS: Final = 30_000


class DatagramReader:
    """Reads a socket on a loop; a flood of datagrams is read at a limited rate, the system drops the rest."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        turn: Turn,
        sock: socket.socket,
        receive: Callable[[bytes, tuple[str, int]], None],
    ) -> None:
        self._loop = loop
        self._turn = turn
        self._socket = sock
        self._receive = receive
        self._read_in_window = 0
        self._window: asyncio.TimerHandle | None = None
        loop.add_reader(sock.fileno(), self._readable)

    def _readable(self) -> None:
        if self._window is None:
            self._read_in_window = 0
            self._window = self._loop.call_later(BROADCAST_PAUSE_MS / 1000, self._window_over)
        while self._read_in_window < BROADCASTS_PER_PAUSE_MAX:
            try:
                data, address = self._socket.recvfrom(DATAGRAM_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                # for example the report that a host of the member list does not listen
                log.debug("discovery: cannot receive", extra={"error": str(error)})
                self._read_in_window += 1
                continue
            self._read_in_window += 1
            self._turn.completed(self._take, data, (str(address[0]), int(address[1])))
        self._loop.remove_reader(self._socket.fileno())

    def _take(self, data: bytes, address: tuple[str, int]) -> None:
        try:
            self._receive(data, address)
        except BrokerError as error:
            # a datagram of any sender never ends the node
            log.warning("discovery: datagram dropped", extra={"from": address[0], "error": str(error)})

    def _window_over(self) -> None:
        self._window = None
        if self._read_in_window >= BROADCASTS_PER_PAUSE_MAX:
            self._loop.add_reader(self._socket.fileno(), self._readable)
        self._read_in_window = 0

    def close(self) -> None:
        """Close the socket of the reader."""
        if self._window is not None:
            self._window.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()


class MulticastEndpoint:
    """Implements ``carriers.Endpoint`` by multicast."""

    def __init__(self, carrier: Multicast, loop: asyncio.AbstractEventLoop, turn: Turn) -> None:
        self._carrier = carrier
        self._loop = loop
        self._turn = turn
        self._reader: DatagramReader | None = None
        self._sender: socket.socket | None = None

    def listen(self, receive: Receive) -> None:
        channel = self._carrier.channel

        def received(data: bytes, address: tuple[str, int]) -> None:
            datagram = data if channel is None else from_channel(channel, data)
            if datagram is not None:
                receive(datagram, address[0])

        self._reader = DatagramReader(self._loop, self._turn, multicast_listener(self._carrier), received)

    def open_sender(self) -> None:
        if self._sender is None:
            self._sender = multicast_sender(self._carrier)

    def send(self, datagram: bytes, name: str) -> None:
        if self._sender is not None:
            channel = self._carrier.channel
            data = datagram if channel is None else to_channel(channel, datagram)
            self._sender.sendto(data, (self._carrier.address, self._carrier.port))

    def close_sender(self) -> None:
        if self._sender is not None:
            self._sender.close()
            self._sender = None

    def close(self) -> None:
        self.close_sender()
        if self._reader is not None:
            self._reader.close()
            self._reader = None


class MemberEndpoint:
    """Implements ``carriers.Endpoint`` by datagrams to each host of a list.

    A datagram without content is a request of a client: it gets the last broadcast of this node.
    """

    def __init__(self, carrier: MemberList, loop: asyncio.AbstractEventLoop, turn: Turn) -> None:
        self._carrier = carrier
        self._loop = loop
        self._turn = turn
        self._socket: socket.socket | None = None
        self._reader: DatagramReader | None = None
        self._receive: Receive | None = None
        self._last: bytes | None = None
        """The last broadcast of this node, with its header."""
        self._places: list[tuple[str, int]] = []
        self._resolved_s = 0.0
        self._resolving: asyncio.Task[None] | None = None
        self._sending = False

    def _open(self) -> None:
        if self._socket is None:
            self._socket = member_socket(self._carrier)
            self._reader = DatagramReader(self._loop, self._turn, self._socket, self._received)
            self._resolve()

    def _received(self, data: bytes, address: tuple[str, int]) -> None:
        datagram = from_channel(self._carrier.channel, data)
        if datagram is None:
            return
        if datagram and self._receive is not None:
            self._receive(datagram, address[0])
        elif not datagram and self._last is not None:
            self._send_to(self._last, address)

    def listen(self, receive: Receive) -> None:
        self._open()
        self._receive = receive

    def open_sender(self) -> None:
        self._open()
        self._sending = True

    def send(self, datagram: bytes, name: str) -> None:
        self._last = to_channel(self._carrier.channel, datagram)
        for place in self._places:
            self._send_to(self._last, place)
        if self._loop.time() - self._resolved_s >= RESOLVE_PERIOD_MS / 1000:
            self._resolve()

    def _send_to(self, data: bytes, place: tuple[str, int]) -> None:
        if self._socket is not None:
            try:
                self._socket.sendto(data, place)
            except OSError as error:
                log.debug("discovery: cannot send", extra={"to": f"{place[0]}:{place[1]}", "error": str(error)})

    def _resolve(self) -> None:
        """Look up the names of the hosts, without waiting for it; the former addresses are used until then."""
        if self._resolving is None or self._resolving.done():
            self._resolved_s = self._loop.time()
            self._resolving = self._loop.create_task(self._look_up())

    async def _look_up(self) -> None:
        assert self._socket is not None
        family, found = self._socket.family, list[tuple[str, int]]()
        for host, port in member_places(self._carrier):
            try:
                addresses = await self._loop.getaddrinfo(host, port, family=family, type=socket.SOCK_DGRAM)
            except OSError as error:
                log.warning("a host of initial_hosts has no address", extra={"host": host, "error": str(error)})
                continue
            found.append((str(addresses[0][4][0]), port))
        self._places = found
        if self._last is not None:
            # the first broadcast had no address to go to
            for place in found:
                self._send_to(self._last, place)

    def close_sender(self) -> None:
        self._sending = False
        self._last = None
        if self._receive is None:
            self._close()

    def close(self) -> None:
        self._receive = None
        if not self._sending:
            self._close()

    def _close(self) -> None:
        if self._resolving is not None:
            self._resolving.cancel()
        if self._reader is not None:
            self._reader.close()
        self._reader = self._socket = None


class DirectoryEndpoint:
    """Implements ``carriers.Endpoint`` by files; they are read and written on a thread."""

    def __init__(self, carrier: AnnouncementDirectory, loop: asyncio.AbstractEventLoop, turn: Turn) -> None:
        self._carrier = carrier
        self._loop = loop
        self._turn = turn
        self._worker: ThreadWorker | None = None
        self._reader = AnnouncementReader(carrier)
        self._receive: Receive | None = None
        self._sending = False
        self._names: set[str] = set()
        """Names whose files were written."""
        self._found: list[tuple[bytes, str]] = []
        self._busy = False
        """A file is being written."""
        self._error: str | None = None

    def _open(self) -> ThreadWorker:
        if self._worker is None:
            # one thread, so that a file is removed after it was written
            self._worker = ThreadWorker(self._loop, self._turn, threads=1)
        return self._worker

    def listen(self, receive: Receive) -> None:
        self._receive = receive
        self._read()

    def _read(self) -> None:
        if self._receive is not None:
            self._open().run(self._read_files, self._was_read)

    def _read_files(self) -> None:
        self._found = self._reader.read()

    def _was_read(self, error: BaseException | None) -> None:
        self._report(error)
        found, self._found = self._found, []
        for data, name in found:
            datagram = from_channel(self._carrier.channel, data)
            if datagram is not None and self._receive is not None:
                self._receive(datagram, name)
        if self._receive is not None:
            self._turn.call_later(DIRECTORY_PERIOD_MS, self._read)

    def open_sender(self) -> None:
        self._open()
        self._sending = True

    def send(self, datagram: bytes, name: str) -> None:
        """See ``Endpoint``. Failures are logged: they are known only after the call."""
        if self._busy or self._worker is None:
            return
        data, carrier = to_channel(self._carrier.channel, datagram), self._carrier
        self._names.add(name)
        self._busy = True
        self._worker.run(lambda: write_announcement(carrier, name, data), self._was_written)

    def _was_written(self, error: BaseException | None) -> None:
        self._busy = False
        self._report(error)

    def _report(self, error: BaseException | None) -> None:
        text = None if error is None else str(error)
        if text is not None and text != self._error:
            log.warning("directory of announcements", extra={"at": self._carrier.path, "error": text})
        self._error = text

    def close_sender(self) -> None:
        self._sending = False
        carrier, names = self._carrier, list(self._names)
        self._names.clear()

        def remove() -> None:
            for each in names:
                remove_announcement(carrier, each)

        if self._worker is not None and names:
            self._worker.run(remove, self._report)
        if self._receive is None:
            self._close()

    def close(self) -> None:
        self._receive = None
        if not self._sending:
            self._close()

    def _close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def make_endpoint(carrier: Carrier, loop: asyncio.AbstractEventLoop, turn: Turn) -> Endpoint:
    """The access of a node to a carrier; nothing is opened yet."""
    if isinstance(carrier, Multicast):
        return MulticastEndpoint(carrier, loop, turn)
    if isinstance(carrier, MemberList):
        return MemberEndpoint(carrier, loop, turn)
    return DirectoryEndpoint(carrier, loop, turn)
