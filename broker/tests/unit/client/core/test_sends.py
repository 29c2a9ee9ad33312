"""Sends: order, credits, confirmations by id, and repeated sends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from support.client import Outcome
from understudy.client.core.session.sends import PENDING_SENDS_MAX, Pending, ProducerState, Sends
from understudy.client.core.url.options import ClientOptions
from understudy.errors import AddressFull, ConnectionLost, IllegalState, SendOutcomeUnknown
from understudy.message import Message
from understudy.wire.core.packets import Packet, ProducerRequestCredits


class Host:
    """Records frames; a frame is made of its parts' texts, so that tests can read it."""

    def __init__(self, window_bytes: int = -1) -> None:
        self.frames: list[str] = []
        self.packets: list[Packet] = []
        self.watched = 0
        self.settings = ClientOptions(producer_window_size=window_bytes)
        self.link = SimpleNamespace(pump=self)
        self.sends = Sends(self)  # type: ignore[arg-type]
        self.producer = ProducerState(1, "a", 4)

    def encode_send(self, message: Message, requires_response: bool, correlation_id: int, sender_id: int) -> bytes:
        return f"{message.body.decode()}/{correlation_id if requires_response else 'no answer'}".encode()

    def transmit(self, frame: bytes) -> None:
        self.frames.append(frame.decode())

    def transmit_packet(self, packet: Packet) -> None:
        self.packets.append(packet)

    def awaiting_confirmation(self) -> None:
        self.watched += 1

    def send(self, body: str, *, address: str = "a", confirm: bool = True, resend: bool = True) -> Outcome:
        outcome = Outcome()
        message = Message(body.encode(), address=address)
        self.sends.add(Pending(self.producer, message, outcome, confirm, resend))
        return outcome


def size_of(body: str) -> int:
    return Message(body.encode(), address="a").encode_size


LOST = ConnectionLost("gone")


def test_confirmed_by_id_in_any_order() -> None:
    host = Host()
    host.sends.resume()
    first, second = host.send("x"), host.send("y")
    assert host.frames == ["x/1", "y/2"]
    assert host.sends.confirmed(2)
    assert (first.settled, second.settled) == (False, True)
    assert host.sends.confirmed(1)
    assert not host.sends.confirmed(1), "once"
    assert host.sends.unconfirmed == 0
    assert host.producer.in_flight == 0


def test_unconfirmed_kind_is_done_when_written() -> None:
    host = Host()
    host.sends.resume()
    outcome = host.send("x", confirm=False)
    assert host.frames == ["x/no answer"]
    assert outcome.settled
    assert host.producer.in_flight == 0


def test_refused_send_fails_alone() -> None:
    host = Host()
    host.sends.resume()
    first, second = host.send("x"), host.send("y")
    assert host.sends.refused(1, AddressFull("full"))
    assert isinstance(first.error, AddressFull)
    assert not second.settled
    assert not host.sends.refused(1, AddressFull("full"))


def test_resend_repeats_frames_in_order_before_anything_new() -> None:
    host = Host()
    host.sends.resume()
    outcomes = [host.send(body) for body in "abc"]
    host.sends.confirmed(2)
    host.sends.suspend()
    waiting = host.send("d")
    assert host.frames == ["a/1", "b/2", "c/3"]
    host.sends.resend(LOST)
    assert host.frames[3:] == ["a/1", "c/3", "d/4"]
    for correlation_id in (1, 3, 4):
        assert host.sends.confirmed(correlation_id)
    assert all(each.settled and each.error is None for each in [*outcomes, waiting])


def test_a_send_without_a_duplicate_id_is_never_repeated() -> None:
    host = Host()
    host.sends.resume()
    outcome = host.send("x", resend=False)
    host.sends.suspend()
    queued = host.send("y", resend=False)
    host.sends.resend(LOST)
    assert isinstance(outcome.error, SendOutcomeUnknown)
    assert host.frames == ["x/1", "y/2"], "what never left is sent for the first time"
    assert not queued.settled


def test_reattachment_sends_nothing_twice() -> None:
    host = Host()
    host.sends.resume()
    host.send("x")
    host.sends.suspend()
    host.send("y")
    host.sends.resume()
    assert host.frames == ["x/1", "y/2"]


def test_end_tells_unknown_from_never_sent() -> None:
    host = Host()
    host.sends.resume()
    sent = host.send("x")
    host.sends.suspend()
    waiting = host.send("y")
    host.sends.end(LOST)
    assert isinstance(sent.error, SendOutcomeUnknown)
    assert waiting.error is LOST


def test_credits_are_asked_for_in_halves_of_the_window() -> None:
    host = Host(window_bytes=1000)
    host.sends.resume()
    outcome = host.send("x")
    assert host.packets == [ProducerRequestCredits(500, "a")]
    assert host.frames == []
    host.send("y")
    assert len(host.packets) == 1, "enough is on its way"
    host.sends.credits_arrived(500, "a")
    assert host.frames == ["x/1", "y/2"]
    assert host.packets[1:] == [ProducerRequestCredits(500, "a")], (
        "asked again as soon as less than half the window is left"
    )
    assert not outcome.settled


def test_a_message_larger_than_the_window_asks_for_its_size() -> None:
    host = Host(window_bytes=10)
    host.sends.resume()
    body = "z" * 100
    host.send(body)
    assert host.packets == [ProducerRequestCredits(size_of(body), "a")]
    host.sends.credits_arrived(size_of(body), "a")
    assert host.frames == [f"{body}/1"]


def test_addresses_have_their_own_credits_and_keep_their_order() -> None:
    host = Host(window_bytes=1000)
    host.sends.resume()
    host.send("x")
    host.send("y", address="b")
    host.sends.credits_arrived(500, "b")
    host.sends.credits_arrived(500, "nobody")
    assert host.frames == ["y/1"]
    host.sends.credits_arrived(500, "a")
    assert host.frames == ["y/1", "x/2"]


def test_a_full_address_fails_its_waiting_sends() -> None:
    host = Host(window_bytes=1000)
    host.sends.resume()
    outcome, other = host.send("x"), host.send("y", address="b")
    host.sends.credits_refused(500, "a")
    assert isinstance(outcome.error, AddressFull)
    assert not other.settled
    assert host.producer.in_flight == 1


def test_credits_start_again_with_a_new_session() -> None:
    host = Host(window_bytes=1000)
    host.sends.resume()
    host.sends.credits_arrived(0, "a")
    host.send("x")
    host.sends.credits_arrived(500, "a")
    host.sends.suspend()
    host.send("y")
    host.packets.clear()
    host.sends.resend(LOST)
    assert host.packets == [ProducerRequestCredits(500, "a")]
    assert host.frames == ["x/1", "x/1"], "the repeated send needs no credits, the new one does"


def test_a_full_window_reopens_in_batches() -> None:
    host = Host()
    host.sends.resume()
    woken: list[Any] = []
    for body in "abcd":
        host.send(body)
    assert not host.producer.has_room
    host.producer.on_room = lambda: woken.append(host.producer.in_flight)
    host.sends.confirmed(1)
    assert woken == [3]
    host.sends.confirmed(2)
    assert woken == [3], "told once"


def test_idle_is_reported_once() -> None:
    host = Host()
    host.sends.resume()
    told: list[int] = []
    host.send("x")
    host.send("y")
    host.sends.on_idle = lambda: told.append(1)
    host.sends.confirmed(1)
    assert told == []
    host.sends.refused(2, AddressFull("full"))
    assert told == [1]


def test_ignoring_back_pressure_is_refused() -> None:
    host = Host()
    host.producer.in_flight = PENDING_SENDS_MAX
    with pytest.raises(IllegalState, match="wait_sendable"):
        host.send("x")


def test_a_doomed_transaction_drops_its_unsent_messages() -> None:
    host = Host()
    outcome = host.send("x", confirm=False)
    host.sends.drop()
    assert outcome.settled
    host.sends.resume()
    assert host.frames == []
