"""TCP as the simulation plays it: streams between hosts that can slow down, part and go dark.

``SimNetwork(loop)`` makes ``loop.create_server`` and ``loop.create_connection`` work for plain
``asyncio.Protocol`` objects. A connection is two pipes. Each keeps the order of its bytes, as TCP
does, and everything else is drawn from the seed: latency, where the stream is cut into
``data_received`` calls, how much a pipe holds before the writer has to wait.

Effects of a fault at the other end:

- a process is **killed**: its kernel closes the sockets. Data already passed to the kernel arrives
  whole or cut short, then an end of stream or a reset.
- a host **loses power**: silence. Once the host is up again its kernel answers the old connections
  with resets, but only to a peer that sends; one that only listens stays half-open.
- two hosts are **parted** (``part``, one way or both): bytes and acknowledgements wait, nothing is
  lost; after ``heal`` they are retransmitted. A writer that got nothing through for
  ``sim_tcp.RETRANSMISSION_GIVE_UP_S`` loses the connection with a timeout.
- a process is **paused**: its kernel goes on accepting and buffering; the process notices nothing.

Not simulated: TLS, UDP, half-closed listeners' backlog, loss of acknowledged bytes.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import math
from collections.abc import Callable
from typing import Any, Final

from understudy.dataclass import dataclass
from understudy.testing.sim.loop import Death, SimLoop, SimProcess, with_strand
from understudy.testing.sim.tcp import Pipe, SimTransport

#: As Linux with tcp_syn_retries = 6. Seconds.
CONNECT_GIVE_UP_S: Final = 127.0
#: First port given to a client's end.
_EPHEMERAL_PORT: Final = 40_000

_IGNORED_OPTIONS = frozenset(
    [
        "family",
        "proto",
        "flags",
        "backlog",
        "reuse_address",
        "reuse_port",
        "local_addr",
        "happy_eyeballs_delay",
        "interleave",
        "start_serving",
        "ssl_handshake_timeout",
        "ssl_shutdown_timeout",
        "server_hostname",
        "all_errors",
        "keep_alive",
    ]
)


@dataclass(slots=True)
class Conditions:
    """Parameters of the network; may be replaced during a run."""

    latency_min_s: float = 0.0001
    latency_max_s: float = 0.001
    spike_chance: float = 0.01
    """Share of segments that take up to ``spike_max_s`` more."""
    spike_max_s: float = 0.05
    split_chance: float = 0.1
    """Share of reads that get only part of the bytes that have arrived."""
    arrivals_every_s: float = 0.0
    """Bytes arrive only at multiples of this time, so that those of several connections are read before the same turn
    of a loop; 0: at any time."""


class _ListeningSocket:
    """An element of ``server.sockets``."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def getsockname(self) -> tuple[str, int]:
        return self._address


class SimServer(asyncio.AbstractServer):
    """A listening port in the simulation."""

    def __init__(
        self,
        network: SimNetwork,
        factory: Callable[[], asyncio.Protocol],
        address: tuple[str, int],
        process: SimProcess | None,
    ) -> None:
        self.factory = factory
        self.process = process
        self.context = contextvars.copy_context()
        self._network = network
        self._address = address
        self._serving = False
        self._closed = False

    @property
    def sockets(self) -> tuple[_ListeningSocket, ...]:
        """One object with the address of the server, in the place of a socket; none once the server is closed."""
        return () if self._closed else (_ListeningSocket(self._address),)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the simulation."""
        return self._network.loop

    def is_serving(self) -> bool:
        """Whether connections are accepted."""
        return self._serving

    async def start_serving(self) -> None:
        """Accept from now on."""
        self._serving = not self._closed

    async def serve_forever(self) -> None:
        """Accept connections until the call is cancelled."""
        await self.start_serving()
        await self._network.loop.create_future()

    def serve(self) -> None:
        """Accept from now on."""
        self._serving = True

    def close(self) -> None:
        """Stop accepting, called by the process that owns it."""
        if self.process is not None:
            self.process.check_alive()
        self.stop()

    def stop(self) -> None:
        """Free the port; any process may call this."""
        self._serving = False
        if not self._closed:
            self._closed = True
            self._network.release(self._address)

    async def wait_closed(self) -> None:
        """Wait for one turn of the loop."""
        await asyncio.sleep(0)


#: Host of whatever runs outside every process.
WORLD: Final = "world"
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_ANY = frozenset({None, "", "0.0.0.0", "::"})


class SimNetwork:
    """The hosts and connections of one simulation."""

    def __init__(self, loop: SimLoop, conditions: Conditions | None = None) -> None:
        self.loop = loop
        self.rng = loop.random("network")
        self.conditions = conditions or Conditions()
        self._servers: dict[tuple[str, int], SimServer] = {}
        self._taken: set[tuple[str, int]] = set()
        """Ports of each host at which another program listens."""
        self._hosts: dict[str, None] = {}
        self._dark: set[str] = set()
        self._blocked: set[tuple[str, str]] = set()
        self._pipes: dict[Pipe, None] = {}
        self._ends: dict[SimProcess, dict[SimTransport, None]] = {}
        self._connections = 0
        loop.network = self

    # --- faults --------------------------------------------------------------------------------

    def part(self, one: str, other: str, *, both_ways: bool = True) -> None:
        """Let nothing through from host ``one`` to ``other`` (and back)."""
        self._blocked.add((one, other))
        if both_ways:
            self._blocked.add((other, one))
        self.loop.record(f"network parted {one} {'<->' if both_ways else '->'} {other}")

    def heal(self, one: str | None = None, other: str | None = None) -> None:
        """Free the paths between two hosts, all paths of one, or all."""
        if one is None:
            self._blocked.clear()
        else:
            self._blocked = {
                pair for pair in self._blocked if one not in pair or (other is not None and other not in pair)
            }
        self.loop.record(f"network healed {one or '*'} {other or '*'}")
        self._paths_changed()

    def reset(self, host: str, other: str | None = None) -> None:
        """Reset every connection of a host, or those with one other host, at both ends; bytes on their way are lost."""
        self.loop.record(f"network reset {host}" if other is None else f"network reset {host} {other}")
        hosts = [(pipe, (pipe.source.host, pipe.target.host)) for pipe in self._pipes]
        for pipe in [pipe for pipe, ends in hosts if host in ends and (other is None or other in ends)]:
            pipe.drop()
            pipe.target.reset_arrived(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def take_port(self, host: str, port: int) -> None:
        """Let another program of a host have a port: no process can listen there any more. A server that listens there
        already goes on.
        """
        self.loop.record(f"port {host}:{port} is taken")
        self._taken.add((host, port))

    def free_port(self, host: str, port: int) -> None:
        """End the program that has a port."""
        self._taken.discard((host, port))

    def power_off(self, host: str) -> None:
        """Cut the power of a host: every process on it dies, peers hear nothing any more."""
        self._go_dark(host)
        for process in self.loop.processes_on(host):
            process.kill(Death.POWER_LOST)

    def power_on(self, host: str) -> None:
        """Boot it; harmless when it is up. Old connections now meet a kernel that knows nothing of them."""
        if host in self._dark:
            self._dark.discard(host)
            self._paths_changed()

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing gets from ``source`` to ``target``."""
        return target in self._dark or (source, target) in self._blocked

    def delay(self) -> float:
        """Time in s that one trip of a packet takes."""
        conditions, draw = self.conditions, self.rng.random
        shortest_s = conditions.latency_min_s
        seconds = shortest_s + (conditions.latency_max_s - shortest_s) * draw()
        if draw() < conditions.spike_chance:
            seconds += conditions.spike_max_s * draw()
        return seconds

    def arrival_s(self) -> float:
        """When bytes arrive that are sent now."""
        arrival = self.loop.time() + self.delay()
        every = self.conditions.arrivals_every_s
        return math.ceil(arrival / every) * every if every else arrival

    def splits_read(self) -> bool:
        """Whether the next read of an end gets only part of the bytes that have arrived."""
        return self.rng.random() < self.conditions.split_chance

    def _go_dark(self, host: str) -> None:
        self._dark.add(host)
        for pipe in list(self._pipes):
            if pipe.source.host == host:
                pipe.source.lose_kernel()

    def _paths_changed(self) -> None:
        for pipe in list(self._pipes):
            pipe.path_changed()

    # --- called by the loop -----------------------------------------------------------------------

    def listen(
        self, factory: Callable[[], asyncio.Protocol], host: str | None, port: int | None, **options: Any
    ) -> SimServer:
        """Listen on the current process's host.

        Raises:
            OSError: the port is taken, or the address is another host's.
        """
        _check_options(options)
        process = self.loop.current_process()
        home = self._home(process)
        if host not in _ANY and host not in _LOCAL and host != home:
            raise OSError(errno.EADDRNOTAVAIL, f"cannot bind {host!r} on host {home!r}")
        if not port:
            port = next(number for number in range(20_000, 60_000) if (home, number) not in self._servers)
        if (home, port) in self._servers or (home, port) in self._taken:
            raise OSError(errno.EADDRINUSE, f"address already in use: {home}:{port}")
        server = SimServer(self, factory, (home, port), process)
        self._servers[home, port] = server
        if options.get("start_serving", True):
            server.serve()
        self._attend(process)
        return server

    async def connect(
        self, factory: Callable[[], asyncio.Protocol], host: str | None, port: int | None, **options: Any
    ) -> tuple[SimTransport, asyncio.Protocol]:
        """Connect to a host and port.

        Raises:
            ConnectionRefusedError: the host is up and no process listens there.
            TimeoutError: no answer for ``CONNECT_GIVE_UP_S``.
            OSError: no host of that name was ever seen.
        """
        _check_options(options)
        if host is None or port is None:
            raise ValueError("host and port are needed")
        process = self.loop.current_process()
        home = self._home(process)
        target = home if host in _LOCAL else host
        if target not in self._hosts:
            raise OSError(errno.EHOSTUNREACH, f"no host {host!r}")
        await self._reach(home, target, f"{host}:{port}")
        server = self._servers.get((target, port))
        if server is None or not server.is_serving():
            await asyncio.sleep(self.delay())
            self.loop.record(f"refused {home} -> {target}:{port}")
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed ('{host}', {port})")
        near = self._join(process, home, server, (target, port))
        try:
            await asyncio.sleep(self.delay())
            protocol = factory()
            begun: asyncio.Future[None] = self.loop.create_future()
            self.loop.call_soon(near.begin, protocol, begun, context=near._context)
            await begun
        except BaseException:
            if process is None or process.alive:
                near.abort()
            raise
        return near, protocol

    def _join(self, process: SimProcess | None, home: str, server: SimServer, address: tuple[str, int]) -> SimTransport:
        self._connections += 1
        label = f"c{self._connections}"
        client_name = (home, _EPHEMERAL_PORT + self._connections)
        near_context = with_strand(contextvars.copy_context(), self.loop)
        far_context = with_strand(server.context.copy(), self.loop)
        near = SimTransport(self, label, home, process, near_context, {"sockname": client_name, "peername": address})
        far = SimTransport(
            self, label, address[0], server.process, far_context, {"sockname": address, "peername": client_name}
        )
        near.outgoing = far.incoming = Pipe(self, f"{label} {home}>{far.host}", near, far)
        far.outgoing = near.incoming = Pipe(self, f"{label} {home}<{far.host}", far, near)
        self._pipes[near.outgoing] = self._pipes[far.outgoing] = None
        for end in (near, far):
            self._attend(end.process)
            if end.process is not None:
                self._ends[end.process][end] = None
        self.loop.record(f"connected {label} {home} -> {address[0]}:{address[1]}")
        self.loop.call_soon(far.accept, server.factory, context=far_context)
        return near

    async def _reach(self, home: str, target: str, name: str) -> None:
        """A first packet there; repeated like a SYN until the path is free both ways."""
        waited, retry = 0.0, 1.0
        await asyncio.sleep(self.delay())
        while self.is_cut(home, target) or self.is_cut(target, home):
            if waited >= CONNECT_GIVE_UP_S:
                raise TimeoutError(errno.ETIMEDOUT, f"Connect call failed, no answer from {name}")
            await asyncio.sleep(retry)
            waited += retry
            retry *= 2

    # --- bookkeeping -------------------------------------------------------------------------------

    def add_host(self, host: str) -> None:
        """Make a name known: connecting to it is refused or met by silence, not an unknown host."""
        self._hosts[host] = None

    def release(self, address: tuple[str, int]) -> None:
        """Called when a server stopped listening."""
        self._servers.pop(address, None)

    def forget(self, end: SimTransport) -> None:
        """An end closed; the pipes go when both have."""
        if end.process is not None and end.process.alive:
            self._ends[end.process].pop(end, None)
        if not end.incoming.source.has_socket:
            # bytes that the later end still sends have no receiver; those of the earlier end were read or dropped
            for pipe in (end.incoming, end.outgoing):
                if not pipe.target.has_socket:
                    pipe.drop()
                self._pipes.pop(pipe, None)

    def _home(self, process: SimProcess | None) -> str:
        return process.host if process is not None else WORLD

    def _attend(self, process: SimProcess | None) -> None:
        """Hear of the process's death, once; from here on its host is known."""
        self._hosts[self._home(process)] = None
        if process is not None and process not in self._ends:
            self._ends[process] = {}
            process.on_death(lambda death: self._process_died(process, death))

    def _process_died(self, process: SimProcess, death: Death) -> None:
        if death is Death.POWER_LOST:
            self._go_dark(process.host)
        for server in [server for server in self._servers.values() if server.process is process]:
            server.stop()
        for end in list(self._ends.pop(process)):
            end.die(death)


def _check_options(options: dict[str, Any]) -> None:
    for name, value in options.items():
        if name not in _IGNORED_OPTIONS and value is not None:
            raise NotImplementedError(f"{name}={value!r} is not simulated")
