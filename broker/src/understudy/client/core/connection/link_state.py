"""The common state of the parts of one client connection: options and clocks, the node that serves, and the frames of
the present transport.

Sessions, their creation and their restoration take this object, and nothing above it. Not here: which connector is
dialled (``failover``), and the packets of channels 0 and 1 (``connection``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from understudy.client.core.connection.calls import Calls
from understudy.client.core.connection.codec import Arrival, Codec, CoreCodec, Decoder, Frame
from understudy.client.core.connection.dials import Link
from understudy.client.core.connection.pump import Pump
from understudy.client.core.connection.topology import Topology
from understudy.client.core.url.options import ClientOptions, Connector, ServingNode
from understudy.ids import uuid_text
from understudy.ports import Clock, Entropy
from understudy.wire.core.packets import VERSION, Packet

#: Oldest server version spoken: pipelined sends need correlation ids.
OLDEST_VERSION: Final = 130


class LinkState:
    """The transport of a connection without I/O, and the values that outlive it."""

    def __init__(self, options: ClientOptions, link: Link, clock: Clock, entropy: Entropy) -> None:
        self._out: list[bytes] = []
        self.codec: Codec = CoreCodec(self._out.append)
        """The protocol; CORE, if it is not replaced before the first transport."""
        self.on_arrivals: Callable[[Iterable[Arrival]], None] = lambda arrivals: None
        """Called with packets that the codec answers itself."""
        self.options = options
        self.clock = clock
        self.shell = link
        self.topology = Topology()
        """The nodes of the cluster, and which of them the connection is bound to."""
        self.connector: Connector | None = None
        """Connector of the transport that was opened last."""
        self.serving_node = ServingNode()
        """The node that made a session last, and its epoch."""
        self.decoder: Decoder | None = None
        """Decoder of the present transport; None while there is none."""
        self.now_ms = clock.monotonic_ms()
        """Monotonic time at the last arrival of bytes: cheap, and exact enough for time limits."""
        self.pump = Pump(self.want_flush)
        """Large messages on their way; the shell tells it whether the socket takes bytes."""
        self._entropy = entropy
        self._flush_wanted = False
        self._before_flush: list[Callable[[], None]] = []

    @property
    def version(self) -> int:
        """Channel version used for encoding: the lower of both sides'."""
        return self.codec.version

    @property
    def node_id(self) -> str | None:
        """Node id of the broker, the same of both nodes of a pair; None before the first topology."""
        return self.topology.own_node_id

    def token(self, length_bytes: int) -> bytes:
        """Random bytes."""
        return self._entropy.token(length_bytes)

    def new_name(self) -> str:
        """A random name for a session."""
        return uuid_text(self._entropy.token(16))

    def new_calls(self, send: Callable[[Packet], None]) -> Calls:
        """An empty list of calls of one channel, with the time limits of the options."""
        return Calls(
            send,
            self.clock,
            self.shell.wake_at,
            timeout_ms=self.options.call_timeout_ms,
            failover_timeout_ms=self.options.call_failover_timeout_ms,
        )

    def complaint(self, text: str) -> None:
        """Log an error that no caller waits for."""
        self.shell.log("client", text)

    # the transport

    def opened(self, connector: Connector, can_refuse: Callable[[int], bool]) -> None:
        """Called when a transport is open.

        Args:
            connector: Place that was dialled.
            can_refuse: Whether a frame beyond the limits on that channel is skipped instead of ending the connection.
        """
        self.connector = connector
        self.topology.complete = False
        self.decoder = self.codec.opened(connector, can_refuse)
        self.want_flush()

    def lost(self) -> None:
        """The transport is gone, and every frame that was not written."""
        self.decoder = None
        self.codec.lost()
        self._out.clear()
        self._before_flush.clear()
        self.pump.clear()

    # frames

    def transmit(self, frame: Frame) -> None:
        """Send a frame with the next flush."""
        self.codec.write(frame)
        if not self._flush_wanted:
            self._flush_wanted = True
            self.shell.wants_flush()

    def write(self, data: bytes) -> None:
        """Send bytes with the next flush."""
        self._out.append(data)
        self.want_flush()

    def send(self, channel_id: int, packet: Packet) -> None:
        """Send a packet on a channel with the next flush."""
        self.transmit(self.codec.encode(channel_id, packet))

    def want_flush(self) -> None:
        """Have the shell fetch ``data_to_send`` before this turn of the loop ends."""
        if not self._flush_wanted:
            self._flush_wanted = True
            self.shell.wants_flush()

    def before_flush(self, call: Callable[[], None]) -> None:
        """Call once, before the frames of the next flush are collected."""
        self._before_flush.append(call)
        self.want_flush()

    def data_to_send(self) -> bytes:
        """Everything to be written now."""
        self._flush_wanted = False
        if self._before_flush:
            calls, self._before_flush = self._before_flush, []
            for call in calls:
                call()
        self._flush_wanted = True
        again = self.pump.run()
        self._flush_wanted = False
        if again:
            self.want_flush()
        out = self._out
        if not out:
            return b""
        data = b"".join(out)
        out.clear()
        return data

    # the server

    def learn_version(self, server_version: int) -> None:
        """Use the server's version of the protocol if it is lower than the client's."""
        self.codec.learn_version(min(VERSION, server_version))

    def lower_version(self) -> bool:
        """Offer the next older version (artemis-core s. 3.2); whether there is one."""
        if self.version <= OLDEST_VERSION:
            return False
        self.learn_version(self.version - 1)
        return True

    def learn_epoch(self, epoch: int) -> None:
        """Note the server and the epoch in which it serves; 0 if it states none."""
        connector = self.connector
        address = f"{connector.host}:{connector.port}" if connector is not None else ""
        self.serving_node = ServingNode(address, self.node_id or "", epoch)
