"""Connections that are accepted and dropped: the acceptor's counts, and a peer that meets a bug of ours."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.core import accepted, feed
from understudy import limits
from understudy.config.model import AcceptorConfiguration
from understudy.runtime.base.environment import LoopTimers
from understudy.runtime.base.turn import Turn
from understudy.runtime.net import acceptor as module
from understudy.runtime.net.acceptor import Acceptor, ServerConnection
from understudy.runtime.net.streams import LoopStream
from understudy.wire.core.codec import FrameDecoder, encode
from understudy.wire.core.packets import Ping
from understudy.wire.detect import Protocol


class Transport:
    def __init__(self) -> None:
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True

    reading = True

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return ("10.0.0.1", 5)


class Handler:
    """A ``ConnectionHandler`` that has a bug."""

    held_back = False
    outlives_sessions = False
    held_up = False
    proved = False
    prevented = False
    lost = ""

    def receive_data(self, data: bytes) -> bool:
        raise IndexError("a bug of ours")

    def prevent_reattachment(self) -> None:
        self.prevented = True

    def congested(self) -> bool:
        return False

    def connection_lost(self, reason: str) -> None:
        self.lost = reason


class Loop:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def call_soon(self, call: Any) -> None:
        self.calls.append(call)

    def turn(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


def make(handlers: list[Handler], **options: Any) -> Acceptor:
    configuration = AcceptorConfiguration("a", "h", 1, handshake_timeout_ms=0, **options)

    def handler(connection: Any, prefixes: Any) -> Any:
        handlers.append(Handler())
        return handlers[-1]

    loop = cast(asyncio.AbstractEventLoop, Loop())
    return Acceptor(
        configuration,
        Turn(loop, LoopTimers(loop)),
        {Protocol.CORE: handler},
        2_000,
    )


def connect(acceptor: Acceptor) -> tuple[ServerConnection, Transport]:
    transport = Transport()
    return accepted(acceptor, transport), transport


def read_by_loop(acceptor: Acceptor, view: memoryview) -> tuple[LoopStream[ServerConnection], ServerConnection]:
    """A connection whose socket a loop reads to ``view``."""
    stream = LoopStream(acceptor, view)
    stream.connection_made(cast(asyncio.BaseTransport, Transport()))
    return stream, next(reversed(acceptor.connections))


def test_an_internal_error_ends_the_connection_and_sessions_of_its_peer(caplog: pytest.LogCaptureFixture) -> None:
    handlers: list[Handler] = []
    acceptor = make(handlers)
    connection, transport = connect(acceptor)
    with caplog.at_level(logging.ERROR):
        feed(connection, b"ARTEMIS" + bytes(13))
    assert transport.aborted
    assert handlers[0].prevented
    assert "internal error" in caplog.text
    connection.connection_lost("closed")
    assert handlers[0].lost
    assert not acceptor.connections


def test_the_oldest_connection_without_login_is_evicted() -> None:
    handlers: list[Handler] = []
    acceptor = make(handlers, connections_allowed=3)
    known, silent, second = connect(acceptor), connect(acceptor), connect(acceptor)
    known[0].handler = cast(Any, Handler())
    handlers.append(cast(Handler, known[0].handler))
    handlers[0].proved = True
    late = connect(acceptor)
    assert [entry[1].aborted for entry in (known, silent, second, late)] == [False, True, False, False]
    assert len(acceptor.connections) == 3


def test_no_connection_that_has_logged_in_is_dropped() -> None:
    acceptor = make([], connections_allowed=2)
    for _ in range(2):
        connection, _ = connect(acceptor)
        connection.handler = cast(Any, Handler())
        cast(Handler, connection.handler).proved = True
    assert connect(acceptor)[1].aborted
    assert len(acceptor.connections) == 2


def test_connections_without_login_have_their_own_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECTIONS_BEFORE_LOGIN_MAX", 5)
    acceptor = make([])
    transports = [connect(acceptor)[1] for _ in range(12)]
    assert [transport.aborted for transport in transports] == [True] * 7 + [False] * 5


def test_many_connections_are_checked_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    later: list[tuple[float, Any, tuple[Any, ...]]] = []
    loop = SimpleNamespace(call_later=lambda delay_s, call, *args: later.append((delay_s, call, args)))
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    handlers: list[Handler] = []
    acceptor = make(handlers)
    checked: list[int] = []
    for number in range(250):
        connection, _ = connect(acceptor)
        monkeypatch.setattr(connection, "check", lambda number=number: checked.append(number))
    acceptor._check()
    counts = []
    while True:
        counts.append(len(checked))
        delay_s, call, args = later.pop()
        if delay_s > 1:
            break
        call(*args)
    assert counts == [100, 200, 250]
    assert checked == list(range(250))
    assert call == acceptor._check


class Flooded(Handler):
    """Has more input than one turn takes."""

    def __init__(self, name: str, log: list[str], parts: int) -> None:
        self._name, self._log, self._parts = name, log, parts
        self.is_congested = False

    @property
    def held_up(self) -> bool:  # type: ignore[override]
        return self.is_congested

    def receive_data(self, data: bytes) -> bool:
        if data or self._parts > 0:
            self._log.append(self._name)
            self._parts -= 1
        return self._parts > 0

    def congested(self) -> bool:
        return self.is_congested


def test_connections_with_much_input_take_turns() -> None:
    """A connection that has sent much is not read meanwhile, and others have theirs between its parts."""
    acceptor, log = make([]), []
    peers = []
    for name in ("flood", "other"):
        connection, transport = connect(acceptor)
        connection.handler = cast(Any, Flooded(name, log, 3 if name == "flood" else 1))
        peers.append((connection, transport))
    loop = cast(Loop, acceptor.turn._loop)
    (flooding, flood_socket), (other, other_socket) = peers
    feed(flooding, b"much")
    assert not flood_socket.reading
    feed(other, b"little")
    assert other_socket.reading
    loop.turn()
    assert not flood_socket.reading
    loop.turn()
    assert flood_socket.reading
    loop.turn()
    assert log == ["flood", "other", "flood", "flood"]


def test_input_left_over_waits_for_the_disk_too() -> None:
    acceptor, log = make([]), []
    connection, transport = connect(acceptor)
    handler = Flooded("flood", log, 2)
    connection.handler = cast(Any, handler)
    feed(connection, b"much")
    handler.is_congested = True
    loop = cast(Loop, acceptor.turn._loop)
    for _ in range(4):
        loop.turn()
        acceptor.turn.request()
    assert log == ["flood", "flood"], "requests before the congestion, and none after it"
    assert not transport.reading
    handler._parts = 1
    handler.is_congested = False
    loop.turn()
    assert log == ["flood"] * 3
    assert transport.reading


def test_a_connection_lost_with_input_left_over_takes_no_more_turns() -> None:
    acceptor, log = make([]), []
    connection, _ = connect(acceptor)
    connection.handler = cast(Any, Flooded("flood", log, 3))
    feed(connection, b"much")
    connection.connection_lost("closed")
    cast(Loop, acceptor.turn._loop).turn()
    assert log == ["flood"]


class Reading(Handler):
    """Keeps the received objects without a copy, so that a reused buffer would show."""

    def __init__(self) -> None:
        self.given: list[bytes | memoryview] = []

    def receive_data(self, data: bytes | memoryview) -> bool:  # type: ignore[override]
        self.given.append(data)
        return False


def test_a_read_is_short_before_login_and_long_afterwards() -> None:
    acceptor = make([])
    stream, connection = read_by_loop(acceptor, memoryview(bytearray(limits.READ_BYTES_MAX)))
    assert len(stream.get_buffer(-1)) == limits.READ_BYTES_BEFORE_LOGIN_MAX
    handler = Reading()
    connection.handler = cast(Any, handler)
    assert len(stream.get_buffer(-1)) == limits.READ_BYTES_BEFORE_LOGIN_MAX
    handler.proved = True
    assert len(stream.get_buffer(-1)) == limits.READ_BYTES_MAX


def test_connections_of_an_acceptor_read_to_the_same_memory() -> None:
    acceptor, view = make([]), memoryview(bytearray(limits.READ_BYTES_MAX))
    peers = [read_by_loop(acceptor, view) for _ in range(2)]
    handlers = [Reading(), Reading()]
    for number, ((stream, connection), handler) in enumerate(zip(peers, handlers, strict=True)):
        connection.handler = cast(Any, handler)
        stream.get_buffer(-1)[:5] = b"input"
        stream.buffer_updated(5 - number)
        assert [bytes(each) for each in handler.given] == [b"input"[: 5 - number]]
    assert peers[0][0].get_buffer(-1).obj is peers[1][0].get_buffer(-1).obj is view.obj


def test_a_delivery_of_several_connections_reaches_each_handler() -> None:
    """A reader that is no loop delivers all input of a turn in one call; an error ends its own connection only."""
    acceptor = make([])
    peers = [connect(acceptor) for _ in range(3)]
    handlers = [Reading(), Handler(), Reading()]
    for (connection, _), handler in zip(peers, handlers, strict=True):
        connection.handler = cast(Any, handler)
    acceptor.receive([(connection, memoryview(b"input")) for connection, _ in peers])
    assert [bytes(each) for index in (0, 2) for each in cast(Reading, handlers[index]).given] == [b"input"] * 2
    assert [transport.aborted for _, transport in peers] == [False, True, False]
    assert len(cast(Loop, acceptor.turn._loop).calls) == 1, "one turn for all of them"


class Decoding(Handler):
    """Decodes frames of CORE as a connection does that has logged in."""

    proved = True

    def __init__(self) -> None:
        self.decoder = FrameDecoder("server", limits.FRAME_BYTES_MAX)
        self.decoder.turn_cost_max = limits.TURN_COST_MAX
        self.decoded = 0
        self.waiting_bytes = 0
        """Bytes received and not decoded."""
        self.waiting_bytes_max = 0

    def receive_data(self, data: bytes | memoryview) -> bool:
        self.waiting_bytes += len(data)
        frames = self.decoder.receive_data(data)
        self.decoded += len(frames)
        self.waiting_bytes -= sum(frame.size_bytes for frame in frames)
        self.waiting_bytes_max = max(self.waiting_bytes_max, self.waiting_bytes)
        return bool(self.decoder.backlog)


def test_undecoded_input_after_the_login_is_limited_to_one_read() -> None:
    """A client that sends small frames without a pause: its socket is not read before the last read was decoded."""
    acceptor = make([])
    connection, transport = connect(acceptor)
    handler = Decoding()
    connection.handler = cast(Any, handler)
    loop = cast(Loop, acceptor.turn._loop)
    ping = encode(Ping(60_000), 0)
    flood = ping * (2 * limits.READ_BYTES_MAX // len(ping))
    position = reads = turns = 0
    while reads < 3:
        if transport.reading:
            piece = flood[position : position + limits.READ_BYTES_MAX]
            feed(connection, piece)
            # the next read continues within a frame if this one ended there
            position = (position + len(piece)) % len(ping)
            reads += 1
        loop.turn()
        turns += 1
        assert handler.waiting_bytes <= limits.READ_BYTES_MAX
    assert limits.READ_BYTES_MAX // 2 < handler.waiting_bytes_max <= limits.READ_BYTES_MAX
    assert turns > 10 * reads, "a read of small frames takes many turns"
    while handler.decoder.backlog:
        loop.turn()
    assert handler.decoded == 3 * limits.READ_BYTES_MAX // len(ping)
    assert transport.reading
