"""One connected client session and the broker's side of its channel, played by hand."""

from __future__ import annotations

from typing import Any

from support.client import Drive, Outcome
from understudy.client.core.consumer.state import ConsumerSettings, ConsumerState, ReceivedMessage
from understudy.client.core.consumer.taken import AcknowledgeMode
from understudy.client.core.session.state import SessionState
from understudy.errors import ConnectionLost
from understudy.message import DUPLICATE_ID, Message
from understudy.wire.core.codec import encode_receive
from understudy.wire.core.packets import CreateConsumer, Packet, QueueQueryResponseV3, SessionSend

LOST = ConnectionLost("pulled")


class PacketDriver:
    """One connected session, and its channel."""

    def __init__(self, mode: AcknowledgeMode = AcknowledgeMode.AUTO, *, url: str = "") -> None:
        self.drive = Drive(f"tcp://a:1?reconnectAttempts=-1&producerWindowSize=-1{url}")
        self.drive.connect()
        self.session: SessionState = self.drive.session(mode)

    def sent(self) -> list[Packet]:
        return [packet for channel_id, packet in self.drive.sent() if channel_id == self.session.channel_id]

    def answer(self, packet: Packet) -> None:
        self.drive.answer(self.session.channel_id, packet)

    def consumer(self, queue: str = "q", **fields: Any) -> ConsumerState:
        outcome = Outcome()
        self.session.consumers.open(queue, outcome, ConsumerSettings(**fields))
        assert isinstance(self.sent()[-1], CreateConsumer)
        self.answer(QueueQueryResponseV3(True, True, name=queue, address=queue))
        self.sent()
        found: ConsumerState = outcome.value
        return found

    def deliver(self, consumer: ConsumerState, message_id: int, delivery_count: int = 1) -> None:
        message = Message(b"x", address="q", message_id=message_id)
        frame = encode_receive(message, self.session.channel_id, consumer.consumer_id, delivery_count)
        self.drive.core.receive_data(frame)

    def take(self, consumer: ConsumerState, message_id: int) -> ReceivedMessage:
        self.deliver(consumer, message_id)
        received = consumer.take()
        assert received is not None
        return received

    def send(self, body: bytes = b"m", *, duplicate_id: bool = True, durable: bool = True) -> Outcome:
        if not self.session.producers:
            self.session.open_producer("q", 100)
        producer = next(iter(self.session.producers.values()))
        outcome = Outcome()
        properties = {DUPLICATE_ID: body.decode()} if duplicate_id else None
        message = Message(body, address="q", properties=properties, durable=durable)
        self.session.send(producer, message, outcome)
        return outcome

    def lose(self) -> None:
        self.drive.clock.now_ms += 10_000
        self.drive.refuse(LOST)

    def recover(self, **how: Any) -> list[Packet]:
        return [packet for _, packet in self.drive.fail_over(**how)]


def sends_of(packets: list[Packet]) -> list[tuple[bytes, int]]:
    return [(each.message.body, each.correlation_id) for each in packets if isinstance(each, SessionSend)]
