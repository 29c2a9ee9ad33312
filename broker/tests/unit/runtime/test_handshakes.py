"""The limit of TLS handshakes under way."""

from __future__ import annotations

from collections.abc import Callable

from understudy.limits import TLS_HANDSHAKE_STALLED_MS
from understudy.runtime.net.handshakes import Handshakes
from understudy.testing.manual_time import ManualTime


class Worker:
    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        raise AssertionError("no step was asked for")

    def close(self) -> None:
        pass


class Handshake:
    def __init__(self, handshakes: Handshakes) -> None:
        self.handshakes = handshakes
        self.silent_since_ms: int | None = None
        self.begun = self.displaced = False

    def begin(self) -> None:
        self.begun = True
        self.silent_since_ms = self.handshakes.now_ms()

    def displace(self) -> None:
        self.displaced = True
        self.handshakes.end(self)


def three(time: ManualTime) -> tuple[Handshakes, list[Handshake]]:
    """One more than the limit."""
    handshakes = Handshakes(Worker(), time, limit=2)
    made = [Handshake(handshakes) for _ in range(3)]
    for each in made:
        handshakes.ask(each)
    return handshakes, made


def test_a_connection_beyond_the_limit_waits_for_a_place() -> None:
    handshakes, (first, second, third) = three(ManualTime())
    assert (first.begun, second.begun, third.begun) == (True, True, False)
    assert (len(handshakes), handshakes.waiting_count) == (2, 1)
    handshakes.end(second)
    assert third.begun
    handshakes.end(second)
    assert (len(handshakes), handshakes.waiting_count) == (2, 0)


def test_a_connection_that_is_lost_while_it_waits_takes_no_place() -> None:
    handshakes, (first, _, third) = three(ManualTime())
    handshakes.end(third)
    handshakes.end(first)
    assert not third.begun
    assert len(handshakes) == 1


def test_a_silent_client_loses_its_place_only_when_another_waits() -> None:
    time = ManualTime()
    handshakes, (first, second, third) = three(time)
    second.silent_since_ms = None  # its step is computed
    time.advance(TLS_HANDSHAKE_STALLED_MS - 1)
    handshakes.check()
    assert not first.displaced
    time.advance(1)
    handshakes.check()
    assert (first.displaced, second.displaced, third.begun) == (True, False, True)
    time.advance(10 * TLS_HANDSHAKE_STALLED_MS)
    handshakes.check()
    assert not third.displaced, "no connection waits"
