"""Connections: TCP over loopback on the loops of asyncio and uvloop, and the simulated network.

The shells use ``asyncio.Protocol`` and ``Transport``; acceptors and clients of the broker rely on the behaviour shown
here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from conformance.loops import LOOPS, Place, run, until


@pytest.fixture(params=LOOPS)
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


class End(asyncio.Protocol):
    """One end of a connection, which records its events."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.data = bytearray()
        self.error: Exception | None = None
        self.transport = cast(asyncio.Transport, None)
        self.keeps_open = False
        """Answer an end of the other side's bytes by keeping the own side open."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.data += data
        if self.events[-1] != "data":
            self.events.append("data")

    def eof_received(self) -> bool:
        self.events.append("eof")
        return self.keeps_open

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")
        self.error = exc

    @property
    def lost(self) -> bool:
        """Whether the connection has ended."""
        return self.events[-1:] == ["lost"]


class Pair:
    """A server, and a connection to it with both ends."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.accepted: list[End] = []
        self.server: Any = None

    def _accept(self) -> End:
        self.accepted.append(End())
        return self.accepted[-1]

    async def listen(self) -> None:
        """Begin to listen."""
        self.server = await self.place.loop.create_server(self._accept, self.place.host, self.place.port)

    async def connect(self) -> tuple[End, End]:
        """The client's end and the server's."""
        before = len(self.accepted)
        _, near = await self.place.loop.create_connection(End, self.place.host, self.place.port)
        await until(lambda: len(self.accepted) > before and "made" in self.accepted[-1].events)
        return near, self.accepted[-1]


def with_pair(case: Callable[[Pair, End, End], Any]) -> Callable[[Place], Any]:
    """A case with one connection; both ends and the server are closed after it."""

    async def main(place: Place) -> None:
        pair = Pair(place)
        await pair.listen()
        near, far = await pair.connect()
        await case(pair, near, far)
        for end in (near, *pair.accepted):
            end.transport.abort()
        await until(lambda: near.lost and all(end.lost for end in pair.accepted))
        pair.server.close()
        await pair.server.wait_closed()

    return main


def test_bytes_arrive_in_order_and_the_end_after_them(kind: str, tmp_path: Path) -> None:
    async def case(pair: Pair, near: End, far: End) -> None:
        sent = bytes(range(256)) * 2000
        for start in range(0, len(sent), 1000):
            near.transport.write(sent[start : start + 1000])
        near.transport.close()
        near.transport.write(b"after the close")
        await until(lambda: far.lost and near.lost)
        assert bytes(far.data) == sent, "everything that was written before the close"
        assert far.events == ["made", "data", "eof", "lost"]
        assert far.error is None
        assert near.error is None
        assert near.transport.is_closing()

    run(kind, tmp_path, with_pair(case))


def test_both_directions_are_independent(kind: str, tmp_path: Path) -> None:
    async def case(pair: Pair, near: End, far: End) -> None:
        far.keeps_open = True
        near.transport.write(b"question")
        near.transport.write_eof()
        await until(lambda: "eof" in far.events)
        assert bytes(far.data) == b"question"
        far.transport.write(b"answer")
        far.transport.close()
        await until(lambda: near.lost and far.lost)
        assert bytes(near.data) == b"answer"
        assert near.error is far.error is None

    run(kind, tmp_path, with_pair(case))


def test_a_closed_end_closes_the_other(kind: str, tmp_path: Path) -> None:
    """``eof_received`` that returns False closes the own side as well."""

    async def case(pair: Pair, near: End, far: End) -> None:
        far.transport.close()
        await until(lambda: near.lost and far.lost)
        assert near.events == ["made", "eof", "lost"]
        assert near.error is None

    run(kind, tmp_path, with_pair(case))


def test_an_abort_drops_unsent_data_and_ends_both(kind: str, tmp_path: Path) -> None:
    async def case(pair: Pair, near: End, far: End) -> None:
        far.transport.pause_reading()
        near.transport.write(bytes(20_000_000))
        assert near.events == ["made", "pause"]
        near.transport.abort()
        assert "lost" not in near.events, "not within the call"
        near.transport.write(b"dropped")
        await until(lambda: near.lost)
        assert near.error is None
        far.transport.resume_reading()
        await until(lambda: far.lost)
        assert len(far.data) < 20_000_000
        near.transport.abort()
        near.transport.close()
        await asyncio.sleep(0.01)
        assert near.events.count("lost") == far.events.count("lost") == 1

    run(kind, tmp_path, with_pair(case))


def test_a_reader_that_pauses_stops_the_writer(kind: str, tmp_path: Path) -> None:
    async def case(pair: Pair, near: End, far: End) -> None:
        far.transport.pause_reading()
        total = 0
        while "pause" not in near.events:
            near.transport.write(bytes(256 * 1024))
            total += 256 * 1024
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        held = near.transport.get_write_buffer_size()
        assert held > 0
        assert far.data == b"", "nothing is given to an end that does not read"
        near.transport.write(b"more")
        assert near.transport.get_write_buffer_size() == held + 4, "a paused writer may still write"
        far.transport.resume_reading()
        await until(lambda: len(far.data) == total + 4)
        assert near.events == ["made", "pause", "resume"]
        assert near.transport.get_write_buffer_size() == 0

    run(kind, tmp_path, with_pair(case))


def test_the_limits_of_the_write_buffer(kind: str, tmp_path: Path) -> None:
    """A writer with a high-water mark of 0 is paused until the kernel has taken every byte."""

    async def case(pair: Pair, near: End, far: End) -> None:
        near.transport.set_write_buffer_limits(high=0)
        far.transport.pause_reading()
        while "pause" not in near.events:
            near.transport.write(bytes(64 * 1024))
            await asyncio.sleep(0)
        assert near.transport.get_write_buffer_size() > 0
        far.transport.resume_reading()
        await until(lambda: "resume" in near.events)
        assert near.transport.get_write_buffer_size() == 0

    run(kind, tmp_path, with_pair(case))


def test_a_write_to_an_end_that_is_gone_is_an_error(kind: str, tmp_path: Path) -> None:
    async def case(pair: Pair, near: End, far: End) -> None:
        near.keeps_open = True
        far.transport.abort()
        await until(lambda: far.lost)
        await until(lambda: near.lost or "eof" in near.events)

        def written() -> bool:
            if not near.lost:
                near.transport.write(b"anyone?")
            return near.lost

        await until(written)
        assert near.error is None or isinstance(near.error, ConnectionError)

    run(kind, tmp_path, with_pair(case))


def test_no_transport_is_used_after_the_connection_was_lost(kind: str, tmp_path: Path) -> None:
    """The strictest loop decides: the loop of asyncio ignores such a write, uvloop refuses it, and so the simulation
    does, where a protocol that forgets to drop its transport is found.
    """

    async def case(pair: Pair, near: End, far: End) -> None:
        near.transport.close()
        await until(lambda: near.lost)
        if kind == "asyncio":
            near.transport.write(b"x")
        else:
            with pytest.raises(RuntimeError):
                near.transport.write(b"x")

    run(kind, tmp_path, with_pair(case))


def test_the_names_of_both_ends_agree(kind: str, tmp_path: Path) -> None:
    async def case(pair: Pair, near: End, far: End) -> None:
        assert near.transport.get_extra_info("peername")[1] == pair.place.port
        assert far.transport.get_extra_info("peername") == near.transport.get_extra_info("sockname")

    run(kind, tmp_path, with_pair(case))


def test_a_port_at_which_nothing_listens_refuses(kind: str, tmp_path: Path) -> None:
    async def case(place: Place) -> None:
        with pytest.raises(ConnectionRefusedError):
            await place.loop.create_connection(End, place.host, place.port)
        pair = Pair(place)
        await pair.listen()
        near, far = await pair.connect()
        with pytest.raises(OSError, match="in use"):
            await place.loop.create_server(End, place.host, place.port)
        pair.server.close()
        with pytest.raises(ConnectionRefusedError):
            await place.loop.create_connection(End, place.host, place.port)
        near.transport.write(b"still here")
        await until(lambda: bytes(far.data) == b"still here")
        near.transport.close()
        await until(lambda: near.lost and far.lost)
        await pair.server.wait_closed()

    run(kind, tmp_path, case)
