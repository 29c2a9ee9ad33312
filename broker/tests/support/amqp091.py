"""The server's half of AMQP 0-9-1, driven method by method: no socket, no loop, no disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar, cast

from support.certificates import make
from support.core import CoreNode, FakeConnection
from understudy.protocols.amqp091.connection import Amqp091Connection
from understudy.protocols.amqp091.link import Amqp091Services
from understudy.protocols.amqp091.messages import MessageCarrier
from understudy.protocols.amqp091.sessions import ClientSessions
from understudy.protocols.handlers import AcceptorOptions
from understudy.tls.certificates import subject_of
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.frames import PROTOCOL_HEADER, FrameDecoder, FrameType, content_frames, method_frame
from understudy.wire.amqp091.layout import Method, decode_method
from understudy.wire.amqp091.properties import BasicProperties, decode_header, decode_properties, encode_properties

M = TypeVar("M", bound=Method)
PLAIN = b"\0u\0p"


class Received(NamedTuple):
    """A method that came on a channel, with its content."""

    channel: int
    method: Method
    properties: BasicProperties | None = None
    body: bytes = b""


class AmqpNode(CoreNode):
    """A node that serves AMQP 0-9-1 beside CORE."""

    def __init__(self, options: AcceptorOptions | None = None, **fields: Any) -> None:
        super().__init__(**fields)
        self.world.office.routing.exchanges.carrier = MessageCarrier()
        sessions = ClientSessions(self.world.office)
        self.amqp = Amqp091Services(self.services, options or AcceptorOptions(), {}, sessions)

    def settle(self) -> None:
        """The disk keeps up with everything: requests that waited are carried out, and later ones."""
        context = self.world.store.context
        while True:
            self.sync()
            self.world.clock.advance(0)
            self.world.turn()
            if context.durable >= context.appended:
                return

    def amqp_client(self, **options: Any) -> AmqpClient:
        """A client that has not sent anything."""
        return AmqpClient(self, **options)

    def channel(self, number: int = 1, **options: Any) -> AmqpClient:
        """A client with an open connection and an open channel."""
        client = self.amqp_client(**options)
        client.open()
        client.ask(m.ChannelOpen(), m.ChannelOpenOk, number)
        return client


class AmqpClient:
    """One connection of a client."""

    def __init__(
        self,
        node: AmqpNode,
        peer: str = "10.0.0.1:5000",
        virtual_host: str = "/",
        certificate: str | None = None,
        frame_max: int | None = None,
    ) -> None:
        self.node = node
        self._frame_max = frame_max
        self.connection = FakeConnection(peer)
        if certificate is not None:
            self.connection.certificate_subject = subject_of(make(certificate).der)
        self.handler = Amqp091Connection(node.amqp, cast(Any, self.connection))
        self._virtual_host = virtual_host
        self._decoder = FrameDecoder(1 << 24)
        self._content: list[Any] = []

    def send_bytes(self, data: bytes) -> None:
        """Bytes of a client, and the turn that follows."""
        while self.handler.receive_data(data):
            data = b""
        self.node.world.turn()

    def send(self, method: Method, channel: int = 1) -> None:
        """A method without a content."""
        self.send_bytes(method_frame(method, channel))

    def publish(
        self,
        routing_key: str,
        body: bytes = b"body",
        exchange: str = "",
        *,
        mandatory: bool = False,
        channel: int = 1,
        **properties: Any,
    ) -> None:
        """A publish with its content."""
        encoded = encode_properties(BasicProperties(**properties))
        method = m.BasicPublish(0, exchange, routing_key, mandatory)
        self.send_bytes(content_frames(method, encoded, body, channel, 4096))

    def received(self) -> list[Received]:
        """Everything since the last call."""
        data, self.connection.sent = b"".join(self.connection.sent), []
        self._decoder.receive(data)
        found: list[Received] = []
        while (frame := self._decoder.next()) is not None:
            if frame.type == FrameType.METHOD:
                method = decode_method(frame.payload)
                if not method.has_content:
                    found.append(Received(frame.channel, method))
                else:
                    self._content = [frame.channel, method]
            elif frame.type == FrameType.HEADER:
                size_bytes, encoded = decode_header(frame.payload)
                self._content += [size_bytes, decode_properties(encoded), b""]
            elif frame.type == FrameType.BODY:
                self._content[4] += frame.payload
            if len(self._content) == 5 and len(self._content[4]) == self._content[2]:
                channel, method, _, properties, body = self._content
                found.append(Received(channel, method, properties, body))
                self._content = []
        return found

    def ask(self, method: Method, kind: type[M], channel: int = 1) -> M:
        """Send a request. Returns its answer, the only one."""
        self.send(method, channel)
        (answer,) = self.received()
        assert isinstance(answer.method, kind), answer
        return answer.method

    def ask_any(self, method: Method, channel: int = 1) -> Received:
        """Send a request. Returns the one method that comes."""
        self.send(method, channel)
        (answer,) = self.received()
        return answer

    def only(self, kind: type[M]) -> tuple[M, Received]:
        """The one method that came since the last call."""
        (found,) = self.received()
        assert isinstance(found.method, kind), found
        return found.method, found

    def code(self, method: Method, channel: int = 1) -> int:
        """The code with which a request closes its channel."""
        closed = self.ask(method, m.ChannelClose, channel)
        assert (closed.failing_class, closed.failing_method) == (method.class_id, method.method_id)
        self.send(m.ChannelCloseOk(), channel)
        self.ask(m.ChannelOpen(), m.ChannelOpenOk, channel)
        return closed.reply_code

    def open(
        self,
        mechanism: str = "PLAIN",
        response: bytes = PLAIN,
        heartbeat: int = 0,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """The whole handshake; ``properties``: further ones of the client."""
        self.send_bytes(PROTOCOL_HEADER)
        self.only(m.ConnectionStart)
        capabilities: dict[str, Any] = {"capabilities": {"consumer_cancel_notify": True, "connection.blocked": True}}
        capabilities |= properties or {}
        tune = self.ask(m.ConnectionStartOk(capabilities, mechanism, response, "en_US"), m.ConnectionTune, 0)
        self.send(m.ConnectionTuneOk(tune.channel_max, self._frame_max or tune.frame_max, heartbeat), 0)
        self.ask(m.ConnectionOpen(self._virtual_host), m.ConnectionOpenOk, 0)

    def lose(self) -> None:
        """The socket is closed."""
        self.handler.connection_lost("cut")
        self.node.world.turn()


def declared(client: AmqpClient, queue: str = "q", **options: Any) -> None:
    client.ask(m.QueueDeclare(0, queue, **options), m.QueueDeclareOk)


def got(client: AmqpClient, queue: str = "q") -> Any:
    """The next message of a queue, with an acknowledgement; None: there is none."""
    client.send(m.BasicGet(0, queue, no_ack=True))
    (found,) = client.received()
    return None if isinstance(found.method, m.BasicGetEmpty) else found


def bodies(client: AmqpClient, queue: str = "q") -> list[bytes]:
    found = []
    while (message := got(client, queue)) is not None:
        found.append(message.body)
    return found
