"""A bridge between two post offices on simulated disks: the CORE connection to the target is moved by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from support.routing import World
from understudy.cluster.bridges.bridge import Bridge, BridgeParts
from understudy.cluster.bridges.conversion import Conversion
from understudy.cluster.bridges.target import TargetAccess
from understudy.cluster.membership.credentials import ClusterCredentials
from understudy.config.bridge import BridgeConfiguration
from understudy.errors import BrokerError
from understudy.ports import Security
from understudy.wire.core import packets
from understudy.wire.core.codec import FrameDecoder, encode
from understudy.wire.core.codes import code_of
from understudy.wire.core.packets import header_of_message, message_of_header
from understudy.wire.core.peer import Link
from understudy.wire.core.transport import TransportConfiguration

NODE_ID = "01234567-89ab-cdef-0123-456789abcdef"


def connector(port: int) -> TransportConfiguration:
    return TransportConfiguration(f"c{port}", parameters={"host": "127.0.0.1", "port": str(port)})


class Entropy:
    def __init__(self) -> None:
        self.calls = 0

    def token(self, length_bytes: int) -> bytes:
        self.calls += 1
        return self.calls.to_bytes(2, "big") * (length_bytes // 2)


class Wire:
    """One connection to the target, as the target sees it; implements ``ports.Connection``.

    Packets wait in both directions until ``take`` and ``give``, so that a test can cut the connection in between.
    """

    peer = "target:1"
    local = "target:1"
    security = Security.NONE
    certificate_subject = None

    def __init__(self, target: TransportConfiguration, link: Link, broker: FakeTarget) -> None:
        self.target = target
        self.link = link
        self.broker = broker
        self.received: list[packets.Packet] = []
        """All packets from the bridge that were taken."""
        self.closed = False
        self.unsent_bytes = 0
        self._decoder = FrameDecoder(role="server")
        self._incoming: list[bytes] = []
        self._outgoing: list[bytes] = []
        self._header = b""
        self._body = bytearray()

    # -- ports.Connection
    def send(self, data: bytes) -> None:
        if not self.closed:
            self._incoming.append(data)

    def outgoing_bytes(self) -> int:
        return self.unsent_bytes

    def close(self) -> None:
        self.closed = True

    abort = close

    # -- moved by the test
    def open(self) -> Wire:
        self.link.connected(self)
        return self

    def cut(self) -> None:
        """The connection is lost, with everything that is under way on it."""
        self.closed = True
        self.link.disconnected("cut")

    def take(self, count: int = -1) -> int:
        """The target gets the bytes that were sent, or the first ``count`` writes. Returns their number."""
        taken, self._incoming = (self._incoming, []) if count < 0 else (self._incoming[:count], self._incoming[count:])
        for data in taken:
            for frame in self._decoder.receive_data(data):
                self.received.append(frame.packet)
                self._carry_out(frame.channel_id, frame.packet)
        return len(taken)

    def give(self) -> int:
        """The bridge gets what the target answered. Returns the number of packets."""
        answers, self._outgoing = self._outgoing, []
        for answer in answers:
            if not self.closed:
                self.link.receive_data(answer)
        return len(answers)

    def give_credit(self) -> None:
        """The bridge gets credit and nothing else."""
        credit = [each for each in self._outgoing if each[4] == packets.ProducerCredits.TYPE]
        self._outgoing = [each for each in self._outgoing if each[4] != packets.ProducerCredits.TYPE]
        for answer in credit:
            self.link.receive_data(answer)

    def answer(self, packet: packets.Packet, channel_id: int) -> None:
        self._outgoing.append(encode(packet, channel_id, self._decoder.version))

    def of(self, kind: type[packets.Packet]) -> list[Any]:
        """Packets of a type that the target has got."""
        return [packet for packet in self.received if isinstance(packet, kind)]

    def _carry_out(self, channel_id: int, packet: packets.Packet) -> None:
        broker = self.broker
        if isinstance(packet, packets.ClusterHello):
            # as a broker without cluster credentials, or with others
            self.answer(packets.ClusterConnectReply(False), channel_id)
        elif isinstance(packet, packets.CreateSession):
            if packet.version > broker.version_max:
                self.answer(packets.ExceptionResponse(broker.incompatible, "version"), channel_id)
                return
            self._decoder.version = packet.version
            self.answer(packets.CreateSessionResponse(packet.version), channel_id)
        elif isinstance(packet, packets.BindingQuery):
            self.answer(packets.BindingQueryResponseV5(broker.has_address), channel_id)
        elif isinstance(packet, packets.ProducerRequestCredits):
            if broker.grants_credit:
                self.answer(packets.ProducerCredits(packet.credits, packet.address), channel_id)
        elif isinstance(packet, packets.SessionSend):
            self._accept(packet.message, packet.correlation_id)
        elif isinstance(packet, packets.SessionSendLarge):
            self._header, self._body = packet.header, bytearray()
        elif isinstance(packet, packets.SessionSendContinuation):
            self._body += packet.body
            if not packet.continues:
                message = message_of_header(self._header, bytes(self._body))
                self._accept(message, packet.correlation_id)

    def _accept(self, message: Any, correlation_id: int) -> None:
        def done(error: BrokerError | None) -> None:
            if error is None:
                self.answer(packets.NullResponse(correlation_id), 10)
            else:
                self.answer(packets.ExceptionResponse(code_of(error), str(error), correlation_id), 10)

        self.broker.sent.append(message)
        self.broker.session.sends.send(message, done)


class FakeTarget:
    """A broker at the other end: its sessions are channel 10 of each connection. Implements ``Dialer``."""

    incompatible = 108

    def __init__(self, settings: dict[str, dict[str, object]] | None = None) -> None:
        self.world = World(settings)
        self.world.queue("t")
        self.session = self.world.session()
        self.wires: list[Wire] = []
        self.sent: list[Any] = []
        """Messages as they came, those that are dropped as duplicates too."""
        self.version_max = 136
        self.has_address = True
        self.grants_credit = True

    def dial(self, target: TransportConfiguration, link: Link) -> None:
        self.wires.append(Wire(target, link, self))

    def bodies(self) -> list[bytes]:
        """Bodies in the queue ``t``, in order."""
        queue = self.world.office.directory.queues["t"]
        found = []
        for _, reference in queue.browse((9, -1)):
            message = queue.read_waiting(reference)
            assert message is not None
            found.append(message.body)
        return found


@dataclass
class Listener:
    calls: list[str] = field(default_factory=list)

    def bridge_started(self, name: str) -> None:
        self.calls.append(f"started {name}")

    def bridge_stopped(self, name: str) -> None:
        self.calls.append(f"stopped {name}")


class Bridged:
    """A bridge from queue ``q`` of ``source`` to address ``t`` of ``target``."""

    def __init__(
        self,
        *,
        ports: tuple[int, ...] = (1,),
        queue: bool = True,
        settings: dict[str, dict[str, object]] | None = None,
        target_settings: dict[str, dict[str, object]] | None = None,
        credentials: ClusterCredentials | None = None,
        may_be_anonymous: bool = False,
        **options: Any,
    ) -> None:
        self.source = World(settings)
        self.credentials = credentials
        self.may_be_anonymous = may_be_anonymous
        if queue:
            self.source.queue("q")
        self.producer = self.source.session()
        self.target = FakeTarget(target_settings)
        self.listener = Listener()
        self.ports = ports
        self.configuration = BridgeConfiguration("b", "q", **{"forwarding_address": "t", **options})
        self.bridge = self.make()

    def make(self) -> Bridge:
        """A bridge of the present source: also of its next activation."""
        clock = self.source.clock
        access = TargetAccess(self.target, clock, clock, Entropy(), self.credentials)
        find = self.source.office.directory.queues.get
        parts = BridgeParts(
            access, self.source.services(), NODE_ID, find, self.listener, may_be_anonymous=self.may_be_anonymous
        )
        conversion = Conversion(self.configuration, NODE_ID)
        return Bridge("b", self.configuration, lambda: [connector(port) for port in self.ports], parts, conversion)

    @property
    def wire(self) -> Wire:
        """The newest connection."""
        return self.target.wires[-1]

    def connect(self) -> Wire:
        """Start the bridge and let it connect."""
        self.bridge.start()
        self.wire.open()
        self.settle()
        return self.wire

    def ship(self) -> None:
        """Let the target get the messages, with the credit that they need; its confirmations wait."""
        self.source.sync()
        while self.wire.take():
            self.wire.give_credit()
        self.target.world.sync()

    def settle(self) -> None:
        """Carry packets, deliveries and syncs until nothing is left."""
        self.source.sync()
        moved = 1
        while moved:
            wire = self.wire
            moved = wire.take()
            self.target.world.sync()
            moved += wire.give()
            # the next turn of the loop
            self.source.clock.advance(0)
            self.source.sync()

    def waiting(self) -> int:
        """Messages of the source queue, those under way included."""
        return self.source.office.directory.queues["q"].message_count


__all__ = ["Bridged", "FakeTarget", "Listener", "Wire", "connector", "header_of_message"]
