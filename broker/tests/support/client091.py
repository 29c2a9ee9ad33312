"""The broker's half of AMQP 0-9-1 for the pure client, played method by method."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from support.client import FakeEntropy, FakeLink, Outcome
from understudy.client.core.connection.state import ClientState
from understudy.client.core.consumer.state import ConsumerState
from understudy.client.core.consumer.taken import AcknowledgeMode
from understudy.client.core.session.channel import SessionOptions
from understudy.client.core.session.sends import ProducerState
from understudy.client.core.session.state import SessionState
from understudy.client.core.url.parsing import parse_url
from understudy.errors import ConnectionLost
from understudy.message import Message
from understudy.testing.manual_time import ManualTime
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.frames import (
    HEARTBEAT,
    PROTOCOL_HEADER,
    FrameDecoder,
    FrameType,
    content_frames,
    method_frame,
)
from understudy.wire.amqp091.layout import Method, decode_method
from understudy.wire.amqp091.properties import BasicProperties, decode_header, decode_properties, encode_properties
from understudy.wire.amqp091.tables import encode_table

M = TypeVar("M", bound=Method)
NODE = "11111111-2222-3333-4444-555555555555"
URL = "amqp091://u:p@a:1?reconnectAttempts=-1&ha=true"


class Sent(NamedTuple):
    """A method that the client has sent, with its content."""

    channel: int
    method: Method
    properties: BasicProperties | None = None
    body: bytes = b""


class Drive091:
    """A ``ClientState`` that speaks AMQP 0-9-1, and the broker at the other end of whatever it dialled last."""

    def __init__(self, url: str = URL, *, keeps_sessions: bool = True, known_hosts: str = "") -> None:
        """Args:
        url: URL of the client.
        keeps_sessions: Whether the broker announces that it resumes sessions.
        known_hosts: List of connection.open-ok.
        """
        self.clock = ManualTime(monotonic_ms=1_000_000)
        self.link = FakeLink()
        self.core = ClientState(parse_url(url), self.link, self.clock, FakeEntropy())
        self.keeps_sessions = keeps_sessions
        self.known_hosts = known_hosts
        self.node_id = NODE
        self.start_ok: m.ConnectionStartOk | None = None
        self.heartbeats = 0
        self._decoder = FrameDecoder(1 << 20)
        self._content: list[Any] = []

    # the broker

    def up(self) -> None:
        """The last dial succeeds; the client has sent its protocol header."""
        self._decoder, self._content = FrameDecoder(1 << 20), []
        self.core.transport_up(self.link.dials[-1][1])
        data = self.core.data_to_send()
        assert data.startswith(PROTOCOL_HEADER)
        self._decoder.receive(data[len(PROTOCOL_HEADER) :])

    def lose(self) -> None:
        """The transport is lost."""
        self.core.transport_lost(self.link.dials[-1][1], ConnectionLost("pulled"))

    def answer(self, method: Method, channel: int = 0) -> None:
        """The broker sends a method."""
        self.core.receive_data(method_frame(method, channel))
        self._flush()

    def deliver(self, method: Method, body: bytes, channel: int = 2, **properties: Any) -> None:
        """The broker sends a method with a content."""
        encoded = encode_properties(BasicProperties(**properties))
        self.core.receive_data(content_frames(method, encoded, body, channel, 4096))
        self._flush()

    def _flush(self) -> None:
        """End the turn of the client: it writes its output, and takes the answers that its codec makes itself."""
        for _ in range(20):
            self._decoder.receive(self.core.data_to_send())

    def sent(self) -> list[Sent]:
        """Everything that the client has sent since the last call."""
        self._flush()
        found: list[Sent] = []
        while (frame := self._decoder.next()) is not None:
            if frame.type == FrameType.HEARTBEAT:
                self.heartbeats += 1
            elif frame.type == FrameType.METHOD:
                method = decode_method(frame.payload)
                if method.has_content:
                    self._content = [frame.channel, method]
                else:
                    found.append(Sent(frame.channel, method))
            elif frame.type == FrameType.HEADER:
                size_bytes, encoded = decode_header(frame.payload)
                self._content += [size_bytes, decode_properties(encoded), b""]
            else:
                self._content[4] += frame.payload
            if len(self._content) == 5 and len(self._content[4]) == self._content[2]:
                channel, method, _, properties, body = self._content
                found.append(Sent(channel, method, properties, body))
                self._content = []
        return found

    def sent_one(self, kind: type[M]) -> M:
        """The only method that the client has sent since the last call."""
        (found,) = self.sent()
        assert isinstance(found.method, kind), found
        return found.method

    def methods(self) -> list[Method]:
        """The methods that the client has sent on channels of sessions since the last call."""
        return [each.method for each in self.sent() if each.channel > 1]

    def greet(self) -> None:
        """The handshake on a new transport, and the channel for declarations."""
        capabilities = {"qpid.session": True} if self.keeps_sessions else {}
        properties = {"qpid.cluster.node": self.node_id, "capabilities": capabilities}
        self.answer(m.ConnectionStart(0, 9, properties, b"AMQPLAIN PLAIN"))
        self.start_ok = self.sent_one(m.ConnectionStartOk)
        self.answer(m.ConnectionTune(2047, 131_072, 60))
        tune_ok, opened = self.sent()
        assert isinstance(tune_ok.method, m.ConnectionTuneOk)
        assert opened.method == m.ConnectionOpen("/")
        self.answer(m.ConnectionOpenOk(self.known_hosts))

    def connect(self) -> None:
        """The first connection, up to the end."""
        connected = Outcome()
        self.core.connect(connected)
        self.up()
        self.greet()
        assert connected.settled
        assert connected.error is None
        assert self.sent() == [Sent(1, m.ChannelOpen())]
        self.answer(m.ChannelOpenOk(), 1)

    def again(self) -> None:
        """A further transport, up to the first request about a session."""
        self.up()
        self.greet()

    # the client

    def session(self, mode: AcknowledgeMode = AcknowledgeMode.AUTO, channel: int = 2) -> SessionState:
        """A new session."""
        outcome = Outcome()
        self.core.sessions.open(SessionOptions(mode), outcome)
        assert self.sent() == [Sent(channel, m.ChannelOpen())]
        self.answer(m.ChannelOpenOk(), channel)
        transacted = mode is AcknowledgeMode.TRANSACTED
        assert self.sent() == [Sent(channel, m.TxSelect() if transacted else m.ConfirmSelect())]
        self.answer(m.TxSelectOk() if transacted else m.ConfirmSelectOk(), channel)
        session: SessionState = outcome.value
        assert self.sent() == []
        return session

    def consumer(self, session: SessionState, queue: str = "q") -> ConsumerState:
        """A consumer that is begun at the broker, under the tag ``c0.1`` if it is the first one."""
        outcome = Outcome()
        session.consumers.open(queue, outcome)
        assert self.sent() == [Sent(1, m.QueueDeclare(0, queue, passive=True))]
        self.answer(m.QueueDeclareOk(queue, 0, 0), 1)
        assert [type(each) for each in self.methods()] == [m.BasicQos, m.BasicConsume]
        self.answer(m.BasicQosOk(), 2)
        consumer: ConsumerState = outcome.value
        return consumer

    def producer(self, session: SessionState) -> ProducerState:
        """A producer whose messages are sent again after a failover."""
        return session.open_producer("q", 500, repeats=True)

    def send(self, session: SessionState, producer: ProducerState, body: bytes, *, durable: bool = True) -> Outcome:
        """Send a message."""
        outcome = Outcome()
        session.send(producer, Message(body, address="q", durable=durable), outcome)
        return outcome


def status(**channel: Any) -> m.ChannelOpenOk:
    """The answer to a channel that is resumed."""
    table = {"channel": {"resumed": True, "mode": "confirm", "consumers": [], **channel}}
    return m.ChannelOpenOk(encode_table(table))


__all__ = ["HEARTBEAT", "NODE", "URL", "Drive091", "Sent", "status"]
