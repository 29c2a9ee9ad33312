"""Acceptor and connector: on loopback sockets with the loops of asyncio and uvloop and with a reader that is no loop
(``ports.Streams``), and on the simulated network.

The simulation runs these two classes on its own loop and network, so these cases show that scenarios and a real
node see the same connections.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from conformance.loops import READERS, Place, run, until
from support.epoll_streams import EpollStreams
from understudy.config.model import AcceptorConfiguration
from understudy.errors import RemoteProtocolError
from understudy.ports import Connection
from understudy.runtime.net.acceptor import Acceptor, StreamLayer
from understudy.runtime.net.connector import LoopDialer
from understudy.session.prefixes import AddressPrefixes
from understudy.wire.core.transport import TransportConfiguration
from understudy.wire.detect import Protocol

#: The first bytes of a client of CORE, as many as the detection of the protocol needs.
MAGIC = b"ARTEMIS\0"


@pytest.fixture(params=READERS)
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@dataclass
class Handler:
    """A ``ConnectionHandler`` that records its input."""

    connection: Connection
    prefixes: AddressPrefixes
    data: bytearray = field(default_factory=bytearray)
    lost: list[str] = field(default_factory=list)
    resumed: int = 0
    held_back = False
    held_up = False
    proved = True
    outlives_sessions = False

    def receive_data(self, data: bytes | memoryview) -> bool:
        self.data += data
        if self.data.endswith(b"invalid"):
            raise RemoteProtocolError("invalid bytes")
        return False

    def congested(self) -> bool:
        return False

    def resume_deliveries(self) -> None:
        self.held_back = False
        self.resumed += 1

    def check(self) -> None:
        """No timeouts."""

    def disconnect(self) -> None:
        self.connection.send(b"the node stops")

    def prevent_reattachment(self) -> None:
        """There is no state."""

    def connection_lost(self, reason: str) -> None:
        self.lost.append(reason)


@dataclass
class End:
    """A ``Link`` that records its calls."""

    connections: list[Connection] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)
    lost: list[str] = field(default_factory=list)

    def connected(self, connection: Connection) -> None:
        self.connections.append(connection)

    def receive_data(self, data: bytes) -> None:
        self.data += data

    def disconnected(self, reason: str) -> None:
        self.lost.append(reason)


class Sockets:
    """An acceptor, and a dialer on the same loop."""

    def __init__(self, place: Place, connections_allowed: int = 100) -> None:
        self.handlers: list[Handler] = []
        configuration = AcceptorConfiguration(
            "a", place.host, place.port, handshake_timeout_ms=10_000, connections_allowed=connections_allowed
        )
        self.acceptor = Acceptor(
            configuration, place.turn, {Protocol.CORE: self._handler}, 10_000, layer=StreamLayer(place.streams())
        )
        self._dialer = LoopDialer(place.loop, place.turn)
        self._connector = TransportConfiguration("a", parameters={"host": place.host, "port": place.port})

    def _handler(self, connection: Connection, prefixes: AddressPrefixes) -> Handler:
        self.handlers.append(Handler(connection, prefixes))
        return self.handlers[-1]

    def dial(self) -> End:
        """Begin to connect."""
        end = End()
        self._dialer.dial(self._connector, end)
        return end

    async def connect(self) -> tuple[End, Handler]:
        """A connection whose protocol has been detected: the dialled end, and the handler of the accepted one."""
        end, before = self.dial(), len(self.handlers)
        await until(lambda: bool(end.connections))
        end.connections[0].send(MAGIC)
        await until(lambda: len(self.handlers) > before)
        return end, self.handlers[-1]


def with_sockets(case: Callable[[Sockets], Awaitable[None]], **options: int) -> Callable[[Place], Awaitable[None]]:
    """A case with an acceptor that listens, and is closed after it."""

    async def main(place: Place) -> None:
        sockets = Sockets(place, **options)
        await sockets.acceptor.bind()
        await sockets.acceptor.open()
        await case(sockets)
        await sockets.acceptor.close()
        await until(lambda: not sockets.acceptor.connections)
        assert sockets.acceptor.budget.used == 0

    return main


def test_bytes_of_both_directions_arrive_in_order(kind: str, tmp_path: Path) -> None:
    async def case(sockets: Sockets) -> None:
        end, handler = await sockets.connect()
        question, answer = bytes(range(256)) * 1000, bytes(range(255, -1, -1)) * 1000
        for start in range(0, len(question), 1000):
            end.connections[0].send(question[start : start + 1000])
            handler.connection.send(answer[start : start + 1000])
        await until(lambda: len(handler.data) >= len(MAGIC + question) and len(end.data) >= len(answer))
        assert bytes(handler.data) == MAGIC + question
        assert bytes(end.data) == answer
        assert end.connections[0].outgoing_bytes() == handler.connection.outgoing_bytes() == 0
        assert end.lost == handler.lost == []

    run(kind, tmp_path, with_sockets(case))


def test_a_close_writes_earlier_output_and_is_reported_once(kind: str, tmp_path: Path) -> None:
    async def case(sockets: Sockets) -> None:
        end, handler = await sockets.connect()
        handler.connection.send(bytes(300_000))
        handler.connection.close()
        handler.connection.send(b"after the close")
        await until(lambda: bool(end.lost and handler.lost))
        assert bytes(end.data) == bytes(300_000)
        assert end.lost == ["closed by the peer"]
        assert handler.lost == ["closed"]
        end, handler = await sockets.connect()
        end.connections[0].send(b"the last request")
        end.connections[0].close()
        end.connections[0].send(b"after the close")
        await until(lambda: bool(end.lost and handler.lost))
        assert bytes(handler.data) == MAGIC + b"the last request"
        end.connections[0].close()
        end.connections[0].abort()
        handler.connection.abort()
        assert len(end.lost) == len(handler.lost) == 1

    run(kind, tmp_path, with_sockets(case))


def test_an_abort_ends_both_ends(kind: str, tmp_path: Path) -> None:
    async def case(sockets: Sockets) -> None:
        for dialled in (False, True):
            end, handler = await sockets.connect()
            connection = end.connections[0] if dialled else handler.connection
            connection.abort()
            assert not end.lost, "not within the call"
            assert not handler.lost, "not within the call"
            await until(lambda end=end, handler=handler: bool(end.lost and handler.lost))  # type: ignore[misc]
            assert len(end.lost) == len(handler.lost) == 1

    run(kind, tmp_path, with_sockets(case))


def test_invalid_input_ends_its_connection_and_no_other(kind: str, tmp_path: Path) -> None:
    async def case(sockets: Sockets) -> None:
        other, other_handler = await sockets.connect()
        end, handler = await sockets.connect()
        handler.connection.send(b"the reason")
        end.connections[0].send(b"invalid")
        await until(lambda: bool(end.lost and handler.lost))
        assert bytes(end.data) == b"the reason"
        other.connections[0].send(b"still here")
        await until(lambda: bytes(other_handler.data) == MAGIC + b"still here")
        assert other.lost == other_handler.lost == []

    run(kind, tmp_path, with_sockets(case))


def test_bytes_of_many_connections_that_come_together_reach_each_handler(kind: str, tmp_path: Path) -> None:
    """One of them is invalid, so its connection ends between the deliveries of the others."""

    async def case(sockets: Sockets) -> None:
        pairs = [await sockets.connect() for _ in range(6)]
        for number, (end, _) in enumerate(pairs):
            end.connections[0].send(b"invalid" if number == 2 else bytes([number]) * 1000)
        for end, _ in pairs:
            end.connections[0].flush()
        others = [handler for number, (_, handler) in enumerate(pairs) if number != 2]
        await until(
            lambda: all(len(handler.data) == len(MAGIC) + 1000 for handler in others) and bool(pairs[2][0].lost)
        )
        assert [handler.data[-1] for handler in others] == [0, 1, 3, 4, 5]
        assert [len(handler.lost) for _, handler in pairs] == [0, 0, 1, 0, 0, 0]
        if isinstance(sockets.acceptor.streams, EpollStreams):
            assert max(sockets.acceptor.streams.deliveries) > 1

    run(kind, tmp_path, with_sockets(case))


@pytest.mark.parametrize(
    ("first", "answer"), [(b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 Bad Request\r\n"), (b"no protocol", b"")]
)
def test_a_client_of_a_protocol_that_is_not_served_is_answered_and_closed(
    kind: str, tmp_path: Path, first: bytes, answer: bytes
) -> None:
    async def case(sockets: Sockets) -> None:
        end = sockets.dial()
        await until(lambda: bool(end.connections))
        end.connections[0].send(first)
        await until(lambda: bool(end.lost))
        assert end.data[: len(answer)] == answer
        assert bool(end.data) == bool(answer)
        assert sockets.handlers == []

    run(kind, tmp_path, with_sockets(case))


def test_the_names_of_both_ends_have_their_ports(kind: str, tmp_path: Path) -> None:
    async def case(sockets: Sockets) -> None:
        end, handler = await sockets.connect()
        configuration = sockets.acceptor.configuration
        assert end.connections[0].peer.rpartition(":")[2] == str(configuration.port)
        host, _, port = handler.connection.peer.rpartition(":")
        assert host
        assert int(port) != configuration.port

    run(kind, tmp_path, with_sockets(case))


def test_deliveries_that_wait_for_the_socket_resume_when_it_was_read(kind: str, tmp_path: Path) -> None:
    async def case(sockets: Sockets) -> None:
        end, handler = await sockets.connect()
        handler.held_back = True
        handler.connection.send(bytes(12_000_000))
        await until(lambda: handler.resumed > 0)
        assert handler.connection.outgoing_bytes() < 12_000_000
        await until(lambda: len(end.data) == 12_000_000)

    run(kind, tmp_path, with_sockets(case))


def test_a_full_acceptor_refuses_a_further_connection(kind: str, tmp_path: Path) -> None:
    async def case(sockets: Sockets) -> None:
        first, first_handler = await sockets.connect()
        second = sockets.dial()
        await until(lambda: bool(second.lost))
        assert first.lost == first_handler.lost == []
        first.connections[0].close()
        await until(lambda: bool(first_handler.lost))
        third, _ = await sockets.connect()
        assert third.lost == []

    run(kind, tmp_path, with_sockets(case, connections_allowed=1))


def test_a_closed_acceptor_informs_its_clients_and_refuses(kind: str, tmp_path: Path) -> None:
    async def case(place: Place) -> None:
        sockets = Sockets(place)
        refused = sockets.dial()
        await until(lambda: bool(refused.lost))
        assert refused.connections == [], "nothing listens yet"
        await sockets.acceptor.bind()
        await sockets.acceptor.open()
        end, handler = await sockets.connect()
        await sockets.acceptor.close()
        await until(lambda: bool(end.lost and handler.lost))
        assert bytes(end.data) == b"the node stops"
        later = sockets.dial()
        await until(lambda: bool(later.lost))
        assert later.connections == []
        assert len(later.lost) == len(refused.lost) == 1
        assert later.lost[0].startswith(f"tcp://{place.host}:{place.port}: ")

    run(kind, tmp_path, case)
