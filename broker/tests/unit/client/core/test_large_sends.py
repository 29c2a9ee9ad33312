"""Large sends: pieces, where bodies come from, order, credits, compression and failover."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from support.client import Outcome
from understudy.client.core.session.large_sends import (
    BytesSource,
    FileSource,
    IterableSource,
    LargeBodySend,
    large_send,
    split_if_large,
)
from understudy.client.core.session.sends import Pending, ProducerState, Sends
from understudy.client.core.url.options import ClientOptions
from understudy.client.sources import is_stream
from understudy.errors import AddressFull, ConnectionLost, IllegalState, LocalProtocolError, SendOutcomeUnknown
from understudy.message import LARGE_COMPRESSED, LARGE_SIZE, Message
from understudy.wire.core.packets import (
    Packet,
    ProducerRequestCredits,
    SessionSendContinuation,
    SessionSendLarge,
    message_of_header,
)

LOST = ConnectionLost("gone")
HEADER = Message(b"", address="a")


class Pipe(io.BytesIO):
    """A file that cannot be sought."""

    def seekable(self) -> bool:
        return False


def pieces_of(body: LargeBodySend) -> list[bytes]:
    pieces = []
    while True:
        piece, continues = body.peek()
        body.drop()
        pieces.append(piece)
        if not continues:
            return pieces


class Host:
    """Records outgoing packets, in order, as texts."""

    def __init__(self, window_bytes: int = -1) -> None:
        self.log: list[str] = []
        self.packets: list[Packet] = []
        self.pumps = 0
        self.settings = ClientOptions(producer_window_size=window_bytes)
        self.link = SimpleNamespace(pump=self)
        self.sends = Sends(self)  # type: ignore[arg-type]
        self.producer = ProducerState(1, "a", 100)

    def encode_send(self, message: Message, requires_response: bool, correlation_id: int, sender_id: int) -> bytes:
        return f"{message.body.decode()}/{correlation_id}".encode()

    def transmit(self, frame: bytes) -> None:
        self.log.append(frame.decode())

    def transmit_packet(self, packet: Packet) -> None:
        self.packets.append(packet)
        if isinstance(packet, SessionSendLarge):
            self.log.append("begin")
        elif isinstance(packet, SessionSendContinuation):
            self.log.append(f"{len(packet.body)}{'+' if packet.continues else f'/{packet.correlation_id}'}")

    def add(self, sender: Sends) -> None:
        self.pumps += 1

    def awaiting_confirmation(self) -> None:
        """Nothing here looks at the time."""

    def small(self, body: str) -> Outcome:
        outcome = Outcome()
        self.sends.add(Pending(self.producer, Message(body.encode(), address="a"), outcome, True, True))
        return outcome

    def large(self, source: object = bytes(250), *, confirm: bool = True, resend: bool = True) -> Outcome:
        outcome = Outcome()
        if isinstance(source, bytes):
            source = BytesSource(source)
        body = LargeBodySend(source, 100)  # type: ignore[arg-type]
        self.sends.add(Pending(self.producer, HEADER, outcome, confirm, resend, body))
        return outcome

    def pump(self, budget_bytes: int = 1 << 20) -> bool:
        return self.sends.pump(budget_bytes)

    def took(self) -> list[str]:
        log, self.log = self.log, []
        return log


@pytest.mark.parametrize(("size", "sizes"), [(0, [0]), (99, [99]), (100, [100, 0]), (250, [100, 100, 50])])
def test_pieces_are_exact_and_the_last_is_shorter(size: int, sizes: list[int]) -> None:
    for source in (
        BytesSource(bytes(size)),
        FileSource(io.BytesIO(bytes(size))),
        IterableSource([bytes(7)] * (size // 7) + [bytes(size % 7)]),
    ):
        body = LargeBodySend(source, 100)
        assert [len(piece) for piece in pieces_of(body)] == sizes
        assert body.original_bytes == size
        assert body.restart()
        assert [len(piece) for piece in pieces_of(body)] == sizes


def test_bodies_that_can_be_read_again() -> None:
    def once() -> Iterator[bytes]:
        yield b"x" * 300

    file = io.BytesIO(b"skipped" + b"y" * 300)
    file.seek(7)
    for source, again in (
        (FileSource(file), True),
        (FileSource(Pipe(b"x" * 300)), False),
        (IterableSource(once()), False),
    ):
        body = LargeBodySend(source, 100)
        assert body.restart(), "nothing was read yet"
        first = body.peek()
        assert body.restart(), "the first piece is still here: that is how compression looks at it"
        assert body.peek() == first
        body.drop()
        assert body.restart() is again
        if again:
            assert body.peek() == first == (b"y" * 100, True)


def test_sources_of_something_else_are_refused() -> None:
    for source in (FileSource(io.StringIO("text")), IterableSource(["text"])):  # type: ignore[arg-type,list-item]
        with pytest.raises(LocalProtocolError):
            LargeBodySend(source, 100).peek()


def test_values_that_are_streams(tmp_path: object) -> None:
    assert all(map(is_stream, (tmp_path, io.BytesIO(), (b"x",), iter([b"x"]))))
    assert not any(map(is_stream, (None, b"x", "x", {"a": 1}, HEADER)))


def test_bodies_become_large_above_the_limit() -> None:
    options = ClientOptions(min_large_message_size=1000)
    small = Message(bytes(996), address="a")
    assert split_if_large(small, options) == (small, None)
    header, body = split_if_large(Message(bytes(997), address="a", properties={"p": 1}), options)
    assert body is not None
    assert (header.body, header.address, header.properties["p"]) == (b"", "a", 1)
    assert [len(piece) for piece in pieces_of(body)] == [997]
    with pytest.raises(IllegalState):
        large_send(Message(b"", address="a", properties={"p": "x" * 1000}), BytesSource(b""), options)


def test_compression() -> None:
    options = ClientOptions(min_large_message_size=1000, compress_large_message=True)
    small, body = large_send(HEADER, BytesSource(b"x" * 50_000), options)
    assert body is None, "it fits into one piece"
    assert zlib.decompress(small.body) == b"x" * 50_000
    assert (small.properties[LARGE_COMPRESSED], small.properties[LARGE_SIZE]) == (True, 50_000)
    raw = bytes(range(256)) * 10 + zlib.compress(bytes(range(251)) * 400)
    noise = b"".join(zlib.compress(raw[i:]) for i in range(0, 2000, 100))
    header, body = large_send(HEADER, BytesSource(noise), options)
    assert body is not None
    assert header.properties[LARGE_COMPRESSED] is True
    pieces = pieces_of(body)
    assert all(len(piece) == 1000 for piece in pieces[:-1])
    assert zlib.decompress(b"".join(pieces)) == noise
    assert body.original_bytes == len(noise)


def test_sends_after_a_large_message_wait_and_keep_their_order() -> None:
    host = Host()
    host.sends.resume()
    outcomes = [host.small("x"), host.large(), host.small("y"), host.large(bytes(10)), host.small("z")]
    assert host.took() == ["x/1", "begin"]
    assert host.pump(100), "there is more"
    assert host.took() == ["100+"]
    assert not host.pump()
    assert host.took() == ["100+", "50/2", "y/3", "begin", "10/4", "z/5"]
    for number in range(1, 6):
        assert host.sends.confirmed(number)
    assert all(outcome.settled and outcome.error is None for outcome in outcomes)
    assert not host.sends.busy
    last = [packet for packet in host.packets if isinstance(packet, SessionSendContinuation)][2]
    assert (last.message_body_size, last.requires_response, last.sender_id) == (250, True, 1)
    first = next(packet for packet in host.packets if isinstance(packet, SessionSendLarge))
    assert message_of_header(first.header).address == "a"


def test_credits_are_asked_for_piece_by_piece() -> None:
    host = Host(window_bytes=100)
    host.sends.resume()
    host.large()
    granted = 0
    for _ in range(20):
        host.pump()
        asked = [packet.credits for packet in host.packets if isinstance(packet, ProducerRequestCredits)]
        host.packets.clear()
        if not asked:
            break
        assert max(asked) < 300, "never the whole body"
        granted += sum(asked)
        host.sends.credits_arrived(sum(asked), "a")
    assert host.took() == ["begin", "100+", "100+", "50/1"]
    assert host.pumps > 1


def test_a_full_address_fails_the_large_message_and_goes_on_elsewhere() -> None:
    host = Host(window_bytes=100)
    host.sends.resume()
    outcome = host.large()
    host.sends.credits_arrived(1000, "a")
    host.pump(100)
    host.sends._gates["a"].balance = 0
    host.pump()
    host.sends.credits_refused(100, "a")
    assert isinstance(outcome.error, AddressFull)
    assert not host.sends.busy


def test_a_large_message_is_sent_again_from_its_beginning_in_its_place() -> None:
    host = Host()
    host.sends.resume()
    outcomes = [host.small("x"), host.large(), host.small("y"), host.large(bytes(120))]
    host.pump(300)
    host.pump(50)
    assert host.took() == ["x/1", "begin", "100+", "100+", "50/2", "y/3", "begin", "100+"]
    host.sends.suspend()
    later = host.small("later")
    host.sends.resend(LOST)
    assert host.took() == ["x/1", "begin"]
    host.pump()
    assert host.took() == ["100+", "100+", "50/2", "y/3", "begin", "100+", "20/4", "later/5"]
    for number in range(1, 6):
        host.sends.confirmed(number)
    assert all(outcome.settled and outcome.error is None for outcome in [*outcomes, later])


def test_two_failovers_in_a_row() -> None:
    host = Host()
    host.sends.resume()
    outcomes = [host.small("x"), host.large(), host.small("y")]
    host.pump()
    for _ in range(2):
        host.took()
        host.sends.suspend()
        host.sends.resend(LOST)
        host.pump(100)
    host.pump()
    assert host.took() == ["x/1", "begin", "100+", "100+", "50/2", "y/3"]
    for number in (1, 2, 3):
        host.sends.confirmed(number)
    assert all(outcome.settled and outcome.error is None for outcome in outcomes)


@pytest.mark.parametrize("all_sent", [False, True])
def test_a_body_that_cannot_be_read_again_is_an_unknown_outcome(all_sent: bool) -> None:
    host = Host()
    host.sends.resume()
    outcome, behind = host.large(FileSource(Pipe(bytes(250)))), host.small("y")
    host.pump(1 << 20 if all_sent else 100)
    host.sends.suspend()
    host.sends.resend(LOST)
    assert isinstance(outcome.error, SendOutcomeUnknown)
    assert host.took()[-1] == f"y/{2 if all_sent else 1}", "the next send continues"
    host.sends.confirmed(2 if all_sent else 1)
    assert behind.error is None


def test_without_a_duplicate_id_only_unfinished_sends_are_repeated() -> None:
    host = Host()
    host.sends.resume()
    finished, unfinished = host.large(resend=False), host.large(resend=False)
    host.pump(300)
    host.pump(100)
    host.took()
    host.sends.suspend()
    host.sends.resend(LOST)
    host.pump()
    assert isinstance(finished.error, SendOutcomeUnknown)
    assert host.took() == ["begin", "100+", "100+", "50/2"]
    host.sends.confirmed(2)
    assert unfinished.settled
    assert unfinished.error is None


def test_an_error_of_the_body_goes_to_its_sender_and_the_next_one_goes_on() -> None:
    def broken() -> Iterator[bytes]:
        yield bytes(150)
        raise OSError("the disk is gone")

    host = Host()
    host.sends.resume()
    outcome, behind = host.large(IterableSource(broken())), host.large(bytes(10))
    host.pump()
    assert isinstance(outcome.error, OSError)
    assert host.took() == ["begin", "100+", "begin", "10/1"]
    host.sends.confirmed(1)
    assert behind.error is None


def test_transacted_sends_are_done_when_written_and_the_commit_waits_for_them() -> None:
    host = Host()
    host.sends.resume()
    outcome = host.large(confirm=False)
    committed: list[bool] = []
    host.sends.when_none_waits(lambda: committed.append(True))
    host.pump(100)
    assert committed == []
    host.pump()
    assert outcome.settled
    assert committed == [True]


def test_the_end_and_a_doomed_transaction() -> None:
    host = Host()
    host.sends.resume()
    current = host.large()
    host.pump(100)
    host.sends.end(LOST)
    assert isinstance(current.error, SendOutcomeUnknown)
    host = Host()
    host.sends.resume()
    doomed = host.large(confirm=False)
    host.pump(100)
    host.sends.drop()
    assert doomed.settled
    assert doomed.error is None
    assert not host.sends.busy


def test_a_rollback_in_the_middle_of_a_large_message_lets_the_next_transaction_send() -> None:
    host = Host()
    host.sends.resume()
    host.large(confirm=False)
    host.pump(100)
    host.sends.drop()
    host.took()
    committed: list[bool] = []
    outcome = host.large(bytes(10), confirm=False)
    host.sends.when_none_waits(lambda: committed.append(True))
    host.pump()
    assert host.took() == ["begin", "10/0"]
    assert outcome.settled
    assert committed == [True]
    small = host.small("next")
    assert host.took() == ["next/1"]
    host.sends.confirmed(1)
    assert small.error is None


@pytest.mark.parametrize("why", ["its body", "a full address", "a rollback"])
def test_who_waits_for_the_end_hears_of_a_large_message_that_ended_before(why: str) -> None:
    def broken() -> Iterator[bytes]:
        yield bytes(150)
        raise OSError("the disk is gone")

    host = Host()
    host.sends.resume()
    outcome = host.large(IterableSource(broken()))
    ended: list[bool] = []
    host.sends.on_idle = lambda: ended.append(True)
    if why == "a full address":
        host.sends.credits_refused(100, "a")
    elif why == "a rollback":
        host.sends.drop()
    host.pump()
    assert outcome.settled
    assert ended == [True]
