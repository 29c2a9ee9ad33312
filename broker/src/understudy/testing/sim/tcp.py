"""One simulated TCP connection: two pipes that keep the order of their bytes, and its two ends.

``sim_network`` makes connections and tells them when paths change; see there for what a fault
looks like. The seed decides latency, where the stream is cut into ``data_received`` calls, how
much a pipe holds before its writer has to wait, and what of a dead process's bytes still arrives.

Each pipe works in a context of no process (the kernels'); each end calls its protocol in the
context of the process that made it, so a dead or paused process notices nothing.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import random
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Any, Final, Protocol, cast

from understudy.testing.sim.loop import Death, SimLoop, SimProcess, with_strand

#: As Linux with tcp_retries2 = 15. Seconds.
RETRANSMISSION_GIVE_UP_S: Final = 924.0
#: Number of bytes that one ``data_received`` gets at most, as with asyncio.
READ_BYTES_MAX: Final = 256 * 1024
#: Longest wait for a retransmission after the path is free again. Seconds.
RETRANSMISSION_DELAY_S: Final = 1.0


class Network(Protocol):
    """The network as connections see it; ``sim_network.SimNetwork`` implements it."""

    loop: SimLoop
    rng: random.Random

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing gets from ``source`` to ``target``."""
        ...

    def delay(self) -> float:
        """Time in s that one trip takes."""
        ...

    def arrival_s(self) -> float:
        """When bytes arrive that are sent now. Virtual time."""
        ...

    def splits_read(self) -> bool:
        """Whether the next read gets only part of the bytes that have arrived."""
        ...

    def forget(self, end: SimTransport) -> None:
        """Forget an end of a connection that was closed."""
        ...


class Mark(Enum):
    """An element of a pipe other than bytes."""

    END = auto()
    RESET = auto()


class Pipe:
    """One direction of a connection: the buffers of both kernels and the network between them."""

    __slots__ = (
        "_context",
        "_give_up_timer",
        "_network",
        "_timer",
        "arrived",
        "capacity",
        "ended",
        "flight",
        "flight_bytes",
        "held_bytes",
        "label",
        "last_arrival",
        "source",
        "stalled_since",
        "target",
    )

    def __init__(self, network: Network, label: str, source: SimTransport, target: SimTransport) -> None:
        self._network = network
        self._context = with_strand(contextvars.Context(), network.loop)
        self._timer: asyncio.TimerHandle | None = None
        self._give_up_timer: asyncio.TimerHandle | None = None
        self.label = label
        self.source = source
        self.target = target
        self.capacity = network.rng.choice((8, 64, 512)) * 1024
        self.flight: deque[tuple[float, bytes | Mark]] = deque()
        self.flight_bytes = 0
        self.arrived = bytearray()
        self.held_bytes = 0
        """Read by the target, but the acknowledgement cannot get back."""
        self.ended = False
        """The end of the stream has arrived."""
        self.last_arrival = 0.0
        self.stalled_since: float | None = None

    def room(self) -> int:
        """Bytes the kernels still take."""
        return self.capacity - self.flight_bytes - len(self.arrived) - self.held_bytes

    def send(self, item: bytes | Mark) -> None:
        """Put bytes or a mark on the wire, after everything sent before."""
        arrival = max(self.last_arrival, self._network.arrival_s())
        self.last_arrival = arrival
        self.flight.append((arrival, item))
        if isinstance(item, bytes):
            self.flight_bytes += len(item)
        self._arm()

    def cut_short(self) -> None:
        """The source has ended: a random part of the bytes in flight never arrives."""
        keep = self._network.rng.randint(0, len(self.flight))
        while len(self.flight) > keep:
            _, item = self.flight.pop()
            if isinstance(item, bytes):
                self.flight_bytes -= len(item)

    def _arm(self) -> None:
        if self._timer is None and self.flight and self.stalled_since is None:
            self._timer = self._network.loop.call_at(self.flight[0][0], self._arrive, context=self._context)

    def _arrive(self) -> None:
        self._timer = None
        network = self._network
        if network.is_cut(self.source.host, self.target.host):
            self.stalled_since = network.loop.time()
            self._give_up_timer = network.loop.call_later(
                RETRANSMISSION_GIVE_UP_S, self._give_up, context=self._context
            )
            return
        now = network.loop.time()
        while self.flight and self.flight[0][0] <= now:
            if not self.target.has_socket:
                self._refuse()
                return
            _, item = self.flight.popleft()
            if isinstance(item, bytes):
                self.flight_bytes -= len(item)
                self.arrived += item
            elif item is Mark.END:
                self.ended = True
            else:
                self.target.reset_arrived(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
        self.target.wake()
        self._arm()

    def _refuse(self) -> None:
        """The target has no socket any more: its kernel answers with a reset."""
        refused = any(item is not Mark.RESET for _, item in self.flight)
        self.drop()
        if refused and not self._network.is_cut(self.target.host, self.source.host):
            error = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
            self._network.loop.call_later(
                self._network.delay(), self.source.reset_arrived, error, context=self._context
            )

    def _give_up(self) -> None:
        self._give_up_timer = None
        self.drop()
        self.source.reset_arrived(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))

    def drop(self) -> None:
        """Drop the bytes in flight."""
        self.flight.clear()
        self.flight_bytes = 0
        for timer in (self._timer, self._give_up_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._give_up_timer = None

    def path_changed(self) -> None:
        """A partition healed or a host came back: go on if the path is free."""
        network = self._network
        if self.held_bytes and not network.is_cut(self.target.host, self.source.host):
            self.held_bytes = 0
            self.source.pump_later()
        if self.stalled_since is None or network.is_cut(self.source.host, self.target.host):
            return
        if self._give_up_timer is not None:
            self._give_up_timer.cancel()
            self._give_up_timer = None
        now = network.loop.time()
        delay = network.rng.uniform(0.0, min(RETRANSMISSION_DELAY_S, now - self.stalled_since))
        self.stalled_since = None
        if not self.source.has_kernel:
            self.drop()  # retransmission needs a sender
            return
        self.flight = deque((max(arrival, now + delay), item) for arrival, item in self.flight)
        self.last_arrival = max(self.last_arrival, now + delay)
        self._arm()

    def take(self, length: int) -> bytes:
        """The target reads; the source learns of the free space one trip later."""
        data = bytes(self.arrived[:length])
        del self.arrived[:length]
        if self._network.is_cut(self.target.host, self.source.host):
            self.held_bytes += length
        else:
            self.source.pump_later()
        return data


class SimTransport(asyncio.Transport):
    """One end of a simulated connection; behaves as asyncio's selector transport."""

    def __init__(
        self,
        network: Network,
        label: str,
        host: str,
        process: SimProcess | None,
        context: contextvars.Context,
        names: dict[str, tuple[str, int]],
    ) -> None:
        super().__init__(extra=names)
        self.label = label
        self.process = process
        self.host = host
        self.has_socket = True
        """The kernel still has this end; without it the peer gets resets."""
        self.has_kernel = True
        """The host has been up since the connection was made, so it can retransmit."""
        self.incoming: Pipe
        self.outgoing: Pipe
        self._network = network
        self._context = context
        self._protocol: asyncio.BaseProtocol | None = None
        self._begun = False
        self._buffer: deque[bytes] = deque()
        self._buffer_bytes = 0
        self._low_water, self._high_water = 16 * 1024, 64 * 1024
        self._writing_paused = False
        self._reading_paused = False
        self._closing = False
        self._lost = False
        self._end_written = False
        self._end_seen = False
        self._reset: OSError | None = None
        self._wake_scheduled = False
        self._pump_scheduled = False

    # --- transport -----------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self._check_alive()
        if self._end_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._lost and not self.has_socket:
            # as strict as uvloop: a protocol forgets its transport in connection_lost
            raise RuntimeError("write after connection_lost")
        if self._lost or self._closing or not data:
            return
        if self._reset is not None:
            self.wake()
            return
        self._buffer.append(bytes(data))
        self._buffer_bytes += len(data)
        if len(self._buffer) == 1:
            self._fill_pipe()
        if self._buffer_bytes > self._high_water and not self._writing_paused:
            self._writing_paused = True
            if self._protocol is not None:
                self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._check_alive()
        if self._closing or self._end_written:
            return
        self._end_written = True
        if not self._buffer:
            self.outgoing.send(Mark.END)

    def get_write_buffer_size(self) -> int:
        return self._buffer_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_water, self._high_water

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = 64 * 1024 if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._low_water, self._high_water = low, high

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return not self._closing and not self._reading_paused

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        if self._reading_paused and not self._closing:
            self._reading_paused = False
            self.wake()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast(asyncio.BaseProtocol, self._protocol)

    def close(self) -> None:
        self._check_alive()
        if self._closing:
            return
        self._closing = True
        if not self._buffer:
            self._lose(None)

    def abort(self) -> None:
        self._check_alive()
        self._force_close(None)

    # --- run by the application's side, in its context ----------------------------------------

    def begin(self, protocol: asyncio.Protocol, begun: asyncio.Future[None] | None = None) -> None:
        """Give the connection to its protocol."""
        self._protocol = protocol
        self._begun = True
        protocol.connection_made(self)
        if begun is not None and not begun.done():
            begun.set_result(None)
        self.wake()

    def accept(self, factory: Callable[[], asyncio.Protocol]) -> None:
        """Begin with a new protocol, on the server's side."""
        self.begin(factory())

    def _deliver(self) -> None:
        self._wake_scheduled = False
        if self._closing and self._reset is not None:
            self._force_close(self._reset)
            return
        if not self._begun or self._closing or (self._reading_paused and not (self._reset and self._buffer)):
            return
        pipe = self.incoming
        if pipe.arrived and not self._reading_paused:
            self._deliver_bytes(pipe)
        elif self._reset is not None:
            self._force_close(self._reset)
        elif pipe.ended and not self._end_seen:
            self._end_seen = True
            if not self._guarded("eof_received"):
                self.close()

    def _deliver_bytes(self, pipe: Pipe) -> None:
        network = self._network
        length = min(len(pipe.arrived), READ_BYTES_MAX)
        buffer: memoryview | None = None
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            given = self._guarded("get_buffer", READ_BYTES_MAX)
            if not isinstance(given, memoryview):
                return
            buffer = given
            length = min(length, len(buffer))
        if length > 1 and network.splits_read():
            length = network.rng.randint(1, length)
        data = pipe.take(length)
        network.loop.record(f"{pipe.label} {length} {zlib.crc32(data):08x}")
        if buffer is None:
            self._guarded("data_received", data)
        else:
            buffer[:length] = data
            self._guarded("buffer_updated", length)
            # the next read overwrites it
            buffer[:length] = bytes(length)
        if pipe.arrived or pipe.ended or self._reset is not None:
            self.wake(network.delay() if network.rng.random() < 0.5 else 0.0)

    def _guarded(self, method: str, *arguments: bytes | int) -> object:
        """Call the protocol; an exception ends the connection and is reported, as asyncio does."""
        try:
            return getattr(self._protocol, method)(*arguments)
        except Exception as error:
            message = f"Fatal error: protocol.{method}() call failed."
            self._network.loop.call_exception_handler(
                {"message": message, "exception": error, "transport": self, "protocol": self._protocol}
            )
            self._force_close(error)
            return True

    def _pump(self) -> None:
        self._pump_scheduled = False
        if self._lost:
            return
        self._fill_pipe()
        if self._writing_paused and self._buffer_bytes <= self._low_water:
            self._writing_paused = False
            if self._protocol is not None:
                self._protocol.resume_writing()

    def _fill_pipe(self) -> None:
        while self._buffer and (room := self.outgoing.room()) > 0:
            data = self._buffer.popleft()
            if len(data) > room:
                self._buffer.appendleft(data[room:])
                data = data[:room]
            self._buffer_bytes -= len(data)
            self.outgoing.send(data)
        if self._buffer:
            return
        if self._closing:
            self._lose(None)
        elif self._end_written:
            self.outgoing.send(Mark.END)

    def _force_close(self, error: BaseException | None) -> None:
        if self._lost:
            return
        self._buffer.clear()
        self._buffer_bytes = 0
        self._closing = True
        self._lose(error)

    def _lose(self, error: BaseException | None) -> None:
        if self._lost:
            return
        self._lost = True
        self._network.loop.call_soon(self._call_connection_lost, error, context=self._context)

    def _call_connection_lost(self, error: BaseException | None) -> None:
        try:
            if self._begun and self._protocol is not None:
                self._protocol.connection_lost(cast("Exception | None", error))
        finally:
            self.close_socket()

    def _check_alive(self) -> None:
        if self.process is not None:
            self.process.check_alive()

    # --- run by the kernel's side ---------------------------------------------------------------

    def wake(self, delay_s: float = 0.0) -> None:
        """Let the application read."""
        if self._wake_scheduled or not self.has_socket:
            return
        self._wake_scheduled = True
        loop = self._network.loop
        if delay_s:
            loop.call_later(delay_s, self._deliver, context=self._context)
        else:
            loop.call_soon(self._deliver, context=self._context)

    def pump_later(self) -> None:
        """Room may be free: let the application's buffer flow on."""
        if self._buffer and not self._pump_scheduled:
            self._pump_scheduled = True
            self._network.loop.call_later(self._network.delay(), self._pump, context=self._context)

    def reset_arrived(self, error: OSError) -> None:
        """The peer's kernel, or ours after a timeout, gave the connection up."""
        if not self.has_socket or self._reset is not None:
            return
        self._reset = error
        if self._network.rng.random() < 0.5:
            self.incoming.arrived.clear()
        self.wake()

    def close_socket(self) -> None:
        """Give the kernel's end back: a graceful end, or a reset when bytes were left unread."""
        if not self.has_socket:
            return
        self.has_socket = False
        if self._reset is None:
            if self.incoming.arrived:
                self.outgoing.send(Mark.RESET)
            elif not self._end_written:
                self.outgoing.send(Mark.END)
        self._network.forget(self)

    def lose_kernel(self) -> None:
        """The host loses its power: it sends nothing more, and part of the bytes in flight arrives."""
        if self.has_kernel:
            self.has_kernel = False
            self.outgoing.cut_short()

    def die(self, death: Death) -> None:
        """The process is gone; what follows depends on whether its kernel is."""
        if not self.has_socket:
            return
        self._buffer.clear()
        self._buffer_bytes = 0
        self._closing = self._lost = True
        if death is Death.POWER_LOST:
            self.has_socket = False
            self._network.forget(self)
        elif self.incoming.arrived or self._network.rng.random() < 0.5:
            self.has_socket = False
            self.outgoing.cut_short()
            self.outgoing.send(Mark.RESET)
            self._network.forget(self)
        else:
            self.close_socket()
