"""A consumer's buffer, credits and acknowledgements (artemis-core s. 6.3, 6.4)."""

from __future__ import annotations

import random
import struct
import zlib

import pytest

from understudy.client.core.consumer import state as consumer_state
from understudy.client.core.consumer.body_stream import READ_AHEAD_BYTES, BodyStream
from understudy.client.core.consumer.state import LARGE_COMPRESSED, ConsumerOptions, ConsumerState
from understudy.client.core.consumer.taken import AcknowledgeMode
from understudy.client.core.session.channel import OpenWork
from understudy.errors import ConnectionLost, IllegalState, LimitExceeded, ObjectClosed, RemoteProtocolError
from understudy.message import FORCED_DELIVERY, Message
from understudy.wire.core.packets import (
    Acknowledge,
    Expired,
    FlowToken,
    ForceConsumerDelivery,
    Packet,
    QueueQueryResponseV3,
    header_of_message,
)


class Host:
    """The channel of a consumer, which records packets."""

    def __init__(self) -> None:
        self.packets: list[Packet] = []
        self.changed: list[ConsumerState] = []
        self.open_work = OpenWork()
        self.generation = 0
        self.now_ms = 1000

    def wall_ms(self) -> int:
        return self.now_ms

    def transmit_packet(self, packet: Packet) -> None:
        self.packets.append(packet)

    def take(self) -> list[Packet]:
        taken, self.packets = self.packets, []
        return taken


def make(
    window_bytes: int = 1000, mode: AcknowledgeMode = AcknowledgeMode.AUTO, *, browse_only: bool = False
) -> tuple[ConsumerState, Host]:
    host = Host()
    consumer = ConsumerState(
        host,
        7,
        "q",
        ConsumerOptions(mode, 500, browse_only=browse_only),
        window_bytes=window_bytes,
        acknowledges=host.changed.append,
    )
    consumer.start(QueueQueryResponseV3(True, name="q"))
    return consumer, host


def message(message_id: int, body: bytes = b"x", *, expiration: int = 0) -> Message:
    return Message(body, address="q", message_id=message_id, expiration=expiration)


def marker(sequence: int) -> Message:
    return Message(address="q", properties={FORCED_DELIVERY: sequence})


@pytest.mark.parametrize(("window", "first"), [(1000, [FlowToken(7, 1000)]), (-1, [FlowToken(7, -1)]), (0, [])])
def test_first_credits(window: int, first: list[Packet]) -> None:
    assert make(window)[1].packets == first


def test_credits_go_back_at_half_the_window() -> None:
    consumer, host = make()
    host.take()
    for message_id in (1, 2, 3):
        consumer.arrived(message(message_id), 1, 250)
    consumer.take()
    assert host.take() == []
    consumer.take()
    assert FlowToken(7, 500) in host.take()
    consumer.take()
    assert not [each for each in host.take() if isinstance(each, FlowToken)]


def test_window_zero_lets_one_message_come_for_each_wait() -> None:
    consumer, host = make(0)
    consumer.ask()
    consumer.ask()
    assert host.take() == [FlowToken(7, 1)], "asked once, however many wait"
    consumer.arrived(message(1), 1, 100)
    assert consumer.take() is not None
    consumer.ask()
    assert host.take() == [FlowToken(7, 100)], "the broker stands at -99; this makes it 1"
    consumer.receive_cancelled()
    assert host.take() == [FlowToken(7, 0)]
    consumer.receive_cancelled()
    assert host.take() == []


def test_auto_mode_acknowledges_the_one_before() -> None:
    consumer, host = make()
    for message_id in (1, 2):
        consumer.arrived(message(message_id), 1, 1)
    consumer.take()
    assert consumer.work.acknowledgement(7) is None, "still in the application's hands"
    consumer.take()
    assert host.changed == [consumer]
    assert consumer.work.acknowledgement(7) == Acknowledge(7, 1, False), "the second is in the application's hands"
    consumer.take()
    assert consumer.work.acknowledgement(7) == Acknowledge(7, 2, False)
    for message_id in (3, 4):
        consumer.arrived(message(message_id), 1, 1)
        consumer.take()
    consumer.take()
    assert consumer.work.acknowledgement(7) == Acknowledge(7, 4, False), "cumulative: one packet for both"
    assert consumer.work.acknowledgement(7, due_only=False) is None


def test_other_modes_acknowledge_when_told() -> None:
    consumer, host = make(mode=AcknowledgeMode.CLIENT)
    for message_id in (1, 2, 3):
        consumer.arrived(message(message_id), 1, 1)
    consumer.take()
    consumer.take()
    assert not host.open_work.given, "no transaction"
    assert consumer.work.acknowledgement(7) is None
    assert consumer.work.acknowledgement(7, due_only=False, requires_response=True) == Acknowledge(7, 2, True)


def test_transacted_mode_counts_the_work_and_acknowledges_in_batches() -> None:
    consumer, host = make(mode=AcknowledgeMode.TRANSACTED)
    for message_id in (1, 2):
        consumer.arrived(message(message_id), 1, 200)
        consumer.take()
    assert (host.open_work.given, consumer.work.taken_bytes) == (True, 400)


def test_dups_ok_acknowledges_in_batches_what_the_application_is_done_with() -> None:
    consumer, host = make(mode=AcknowledgeMode.DUPS_OK)
    for message_id in (1, 2, 3, 4):
        consumer.arrived(message(message_id), 1, 200)
    for _ in range(3):
        consumer.take()
    assert host.changed == [], "600 bytes are taken, but the last of them is in the application's hands"
    consumer.take()
    assert consumer.work.acknowledgement(7) == Acknowledge(7, 3, False)
    assert consumer.work.acknowledgement(7) is None
    assert consumer.work.acknowledgement(7, due_only=False) == Acknowledge(7, 4, False), "at the close"


def test_pre_acknowledge_acknowledges_nothing() -> None:
    consumer, host = make(mode=AcknowledgeMode.PRE_ACKNOWLEDGE)
    consumer.arrived(message(1), 1, 1)
    assert consumer.take() is not None
    consumer.take()
    assert host.changed == []
    assert consumer.work.acknowledgement(7, due_only=False) is None


def test_a_browser_acknowledges_nothing() -> None:
    consumer, host = make(browse_only=True)
    consumer.arrived(message(1, expiration=1), 1, 1)
    assert consumer.take() is not None, "and shows expired messages"
    consumer.take()
    assert consumer.work.acknowledgement(7, due_only=False) is None
    assert host.changed == []


def test_expired_messages_are_handed_to_expiry() -> None:
    consumer, host = make()
    host.take()
    consumer.arrived(message(1, expiration=1000), 1, 1)
    consumer.arrived(message(2, expiration=1001), 1, 1)
    received = consumer.take()
    assert received is not None
    assert received.message_id == 2
    assert host.take() == [Expired(7, 1)]


def test_force_is_answered_by_the_marker_with_its_number() -> None:
    consumer, host = make()
    changes: list[int] = []
    consumer.on_change = lambda: changes.append(1)
    host.take()
    sequence = consumer.force()
    assert host.take() == [ForceConsumerDelivery(7, sequence)]
    consumer.arrived(marker(sequence - 1), 0, 100)
    assert not consumer.drained(sequence), "a late answer to an earlier question"
    consumer.arrived(marker(sequence), 0, 100)
    assert consumer.drained(sequence)
    assert changes == [1]
    assert consumer.buffered == 0


def test_force_returns_the_credits_first() -> None:
    consumer, host = make()
    consumer.arrived(message(1), 1, 100)
    consumer.take()
    host.take()
    consumer.force()
    assert host.take() == [FlowToken(7, 100), ForceConsumerDelivery(7, 1)]


def test_lost_session_drops_everything_and_starts_over() -> None:
    consumer, host = make()
    for message_id in (1, 2):
        consumer.arrived(message(message_id), 1, 300)
    old = consumer.take()
    sequence = consumer.force()
    host.take()
    consumer.session_lost()
    host.generation = 1
    assert consumer.take() is None
    assert consumer.work.acknowledgement(7, due_only=False) is None
    consumer.force()
    assert host.take() == [], "nothing is said to a session that is not there"
    consumer.start(None, again=True)
    assert host.take() == [FlowToken(7, 1000), ForceConsumerDelivery(7, sequence + 1)]
    consumer.arrived(message(1), 2, 300)
    again = consumer.take()
    assert old is not None
    assert again is not None
    assert (old.generation, again.generation, again.redelivered) == (0, 1, True)


def test_window_zero_asks_again_after_a_failover() -> None:
    consumer, host = make(0)
    consumer.ask()
    host.take()
    consumer.session_lost()
    consumer.start(None, again=True)
    assert host.take() == [FlowToken(7, 1)]


def test_rollback_drops_the_buffer_and_returns_its_credits() -> None:
    consumer, host = make(mode=AcknowledgeMode.TRANSACTED)
    for message_id in (1, 2, 3):
        consumer.arrived(message(message_id), 1, 250)
    host.take()
    consumer.rolled_back()
    assert host.take() == [FlowToken(7, 500)]
    assert consumer.take() is None


def test_end_wakes_and_empties() -> None:
    consumer, _ = make()
    changes: list[int] = []
    consumer.arrived(message(1), 1, 1)
    consumer.on_change = lambda: changes.append(1)
    consumer.end(ObjectClosed("x"))
    consumer.end(ObjectClosed("y"))
    assert changes == [1]
    assert str(consumer.ended) == "x"
    assert consumer.take() is None


def large(consumer: ConsumerState, whole: Message, *, announced: int | None = None, pieces: int = 3) -> None:
    body = whole.body
    consumer.large_begins(header_of_message(whole), 1, len(body) if announced is None else announced, 50)
    step = len(body) // pieces + 1
    for start in range(0, len(body), step):
        consumer.large_continues(body[start : start + step], start + step < len(body), 60)


def test_large_messages_are_put_together() -> None:
    consumer, host = make()
    host.take()
    large(consumer, message(5, bytes(range(256)) * 10))
    received = consumer.take()
    assert received is not None
    assert received.body == bytes(range(256)) * 10
    assert received.message_id == 5
    consumer.force()
    given = sum(each.credits for each in host.take() if isinstance(each, FlowToken))
    assert given == 50 + 3 * 60, "every frame's credits went back"


def test_large_message_with_window_zero_does_not_stall() -> None:
    consumer, host = make(0)
    consumer.ask()
    host.take()
    whole = message(5, b"abcdef")
    consumer.large_begins(header_of_message(whole), 1, 6, 50)
    consumer.large_continues(b"abc", True, 60)
    assert host.take() == [FlowToken(7, 50), FlowToken(7, 60)], "the balance is 1 again after each piece"
    consumer.large_continues(b"def", False, 60)
    received = consumer.take()
    assert received is not None
    assert received.body == b"abcdef"
    consumer.ask()
    assert host.take() == [FlowToken(7, 60)]


def test_a_queue_is_not_empty_while_a_large_message_waits_for_credits() -> None:
    """A broker may answer a forced delivery in the middle of a body that ran out of credits."""
    consumer, _ = make()
    whole = message(5, b"abcdef")
    sequence = consumer.force()
    consumer.large_begins(header_of_message(whole), 1, 6, 50)
    consumer.arrived(marker(sequence), 0, 1)
    assert not consumer.drained(sequence)
    consumer.large_continues(b"abcdef", False, 60)
    assert consumer.drained(sequence)
    assert consumer.take() is not None


def test_compressed_large_messages_are_inflated() -> None:
    consumer, _ = make()
    body = b"understudy " * 1000
    large(consumer, Message(zlib.compress(body), address="q", properties={LARGE_COMPRESSED: True}))
    received = consumer.take()
    assert received is not None
    assert received.body == body


@pytest.mark.parametrize(
    ("whole", "announced", "error"),
    [
        (Message(zlib.compress(bytes(100_000)), address="q", properties={LARGE_COMPRESSED: True}), None, LimitExceeded),
        (Message(b"no zlib", address="q", properties={LARGE_COMPRESSED: True}), None, RemoteProtocolError),
    ],
)
def test_a_large_message_that_is_unreadable_raises_and_is_skipped(
    whole: Message, announced: int | None, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_state, "LARGE_BODY_BYTES_MAX", 50_000)
    consumer, host = make()
    changes: list[int] = []
    consumer.on_change = lambda: changes.append(1)
    large(consumer, whole, announced=announced, pieces=1)
    assert changes
    with pytest.raises(error):
        consumer.take()
    consumer.arrived(message(9), 1, 1)
    received = consumer.take()
    assert received is not None
    assert received.message_id == 9, "the consumer continues with the next message"
    assert host.packets


def test_a_bomb_is_not_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_state, "LARGE_BODY_BYTES_MAX", 10_000)
    consumer, _ = make()
    bomb = zlib.compress(bytes(10_001), 9)
    large(consumer, Message(bomb, address="q", properties={LARGE_COMPRESSED: True}), pieces=1)
    with pytest.raises(LimitExceeded):
        consumer.take()


def test_pieces_without_a_beginning_are_dropped() -> None:
    consumer, host = make()
    host.take()
    consumer.large_continues(b"abc", False, 60)
    assert consumer.take() is None
    assert host.take() == []


def test_received_message_speaks_for_its_message() -> None:
    consumer, _ = make()
    body = b"\x01" + struct.pack(">i", 4) + "Hi".encode("utf-16-le")
    consumer.arrived(Message(body, address="q", type=3, properties={"n": 1}, message_id=4), 3, 10)
    received = consumer.take()
    assert received is not None
    assert (received.text, received.queue, received.message_id, received.delivery_count) == ("Hi", "q", 4, 3)
    assert received.properties["n"] == 1
    assert received.redelivered
    assert "delivery 3" in repr(received)


# --- bodies that are read while they come ---------------------------------------------------------

BIG = 40 * 100_000
PIECE = bytes(100_000)


def credits_of(host: Host) -> int:
    return sum(each.credits for each in host.take() if isinstance(each, FlowToken))


def drain(stream: BodyStream) -> None:
    while stream.take(1 << 20):
        pass


def begin_big(consumer: ConsumerState) -> None:
    consumer.large_begins(header_of_message(message(5)), 1, BIG, 50)


def test_a_big_body_is_handed_over_at_once_and_read_while_it_comes() -> None:
    consumer, host = make(1 << 20)
    host.take()
    begin_big(consumer)
    received = consumer.take()
    assert received is not None
    assert received.stream is not None
    assert (received.message_id, received.stream.size_bytes) == (5, BIG)
    with pytest.raises(IllegalState):
        _ = received.body
    with pytest.raises(IllegalState):
        _ = received.text
    assert received.stream.take(10) is None
    read = 0
    for number in range(40):
        consumer.large_continues(PIECE, number < 39, 100_030)
        while data := received.stream.take(65_536):
            read += len(data)
    assert read == BIG
    assert received.stream.take(10) == b""
    consumer.force()
    assert credits_of(host) == 50 + 40 * 100_030


def test_credits_wait_for_a_slow_reader() -> None:
    consumer, host = make(1 << 20)
    host.take()
    begin_big(consumer)
    received = consumer.take()
    assert received is not None
    assert received.stream is not None
    for _ in range(30):
        consumer.large_continues(PIECE, True, 100_030)
    consumer.force()
    given = credits_of(host)
    assert given <= 50 + (READ_AHEAD_BYTES // 100_000) * 100_030, "chunks ahead of the reader cost credits"
    while received.stream.take(1 << 20):
        pass
    consumer.force()
    assert given + credits_of(host) == 50 + 30 * 100_030


def test_asking_for_the_next_message_discards_the_rest_of_a_body() -> None:
    consumer, host = make(1 << 20)
    host.take()
    begin_big(consumer)
    received = consumer.take()
    assert received is not None
    assert received.stream is not None
    consumer.large_continues(PIECE, True, 100_030)
    assert consumer.take() is None
    for number in range(39):
        consumer.large_continues(PIECE, number < 38, 100_030)
    consumer.arrived(message(6), 1, 10)
    following = consumer.take()
    assert following is not None
    assert following.message_id == 6
    with pytest.raises(IllegalState):
        received.stream.take(1)
    consumer.force()
    assert credits_of(host) == 50 + 40 * 100_030 + 10


def test_window_zero_streams_one_body_and_asks_for_the_next() -> None:
    consumer, host = make(0)
    consumer.ask()
    host.take()
    begin_big(consumer)
    received = consumer.take()
    assert received is not None
    assert received.stream is not None
    balance = 1 - 50
    for number in range(40):
        balance += credits_of(host)
        assert balance > 0, "it would stall"
        consumer.large_continues(PIECE, number < 39, 100_030)
        balance -= 100_030
        while received.stream.take(1 << 20):
            pass
    assert consumer.take() is None
    consumer.ask()
    assert balance + credits_of(host) == 1, "one more message may come"


@pytest.mark.parametrize("event", ["lost", "rolled back", "ended"])
def test_a_body_that_will_not_come_says_so(event: str) -> None:
    consumer, _ = make(1 << 20)
    begin_big(consumer)
    received = consumer.take()
    assert received is not None
    assert received.stream is not None
    consumer.large_continues(PIECE, True, 100_030)
    if event == "lost":
        consumer.session_lost()
    elif event == "rolled back":
        consumer.rolled_back()
    else:
        consumer.end(ObjectClosed("the consumer is closed"))
    with pytest.raises((ConnectionLost, IllegalState, ObjectClosed)):
        drain(received.stream)
    consumer.large_continues(PIECE, False, 100_030)
    assert consumer.take() is None


def test_a_compressed_stream_is_inflated_as_it_is_read() -> None:
    consumer, _ = make(1 << 20)
    body = random.Random(1).randbytes(3_000_000) + bytes(3_000_000)
    packed = zlib.compress(body)
    assert len(packed) > READ_AHEAD_BYTES
    whole = Message(b"", address="q", properties={LARGE_COMPRESSED: True})
    consumer.large_begins(header_of_message(whole), 1, len(packed), 50)
    received = consumer.take()
    assert received is not None
    assert received.stream is not None
    out = bytearray()
    for start in range(0, len(packed), 100_000):
        consumer.large_continues(packed[start : start + 100_000], start + 100_000 < len(packed), 100_030)
        while data := received.stream.take(1 << 20):
            assert len(data) <= 1 << 20
            out += data
    assert bytes(out) == body


def test_a_stream_that_lies_about_its_compression_is_an_error() -> None:
    consumer, _ = make(1 << 20)
    whole = Message(b"", address="q", properties={LARGE_COMPRESSED: True})
    for body in (bytes(100), zlib.compress(b"x" * 100)[:-5]):
        consumer.large_begins(header_of_message(whole), 1, BIG, 50)
        received = consumer.take()
        assert received is not None
        assert received.stream is not None
        consumer.large_continues(body, False, 100)
        with pytest.raises(RemoteProtocolError):
            drain(received.stream)


def test_a_small_compressed_message_is_inflated_too() -> None:
    consumer, _ = make()
    consumer.arrived(Message(zlib.compress(b"x" * 500), address="q", properties={LARGE_COMPRESSED: True}), 1, 50)
    received = consumer.take()
    assert received is not None
    assert received.body == b"x" * 500
