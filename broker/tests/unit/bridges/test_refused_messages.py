"""Messages that the target of a bridge refuses: the others pass them (ADR 0136)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.bridged import Bridged
from support.routing import text
from understudy.cluster.bridges.bridge import State
from understudy.cluster.bridges.forwarding import REFUSED_RETRY_MS
from understudy.config.bridge import BridgeConnection
from understudy.errors import AddressFull, BrokerError, LimitExceeded, NotAuthorized
from understudy.message import Message
from understudy.session.session import ServerSession


def send(bridged: Bridged, *bodies: str) -> None:
    for body in bodies:
        bridged.producer.sends.send(text(body))


class Refusing:
    """A session of the target that refuses messages whose body begins with ``bad``."""

    def __init__(self, session: ServerSession, error: type[BrokerError]) -> None:
        self.session = session
        self.error = error
        self.refuses = True

    @property
    def sends(self) -> Refusing:
        return self

    def send(self, message: Message, done: Callable[[BrokerError | None], None]) -> None:
        if self.refuses and message.body.startswith(b"bad"):
            done(self.error("refused"))
        else:
            self.session.sends.send(message, done)


def refusing(bridged: Bridged, error: type[BrokerError] = LimitExceeded) -> Refusing:
    session: Any = Refusing(bridged.target.session, error)
    bridged.target.session = session
    return session  # type: ignore[no-any-return]


@pytest.mark.parametrize("detects", [True, False], ids=["window", "one at a time"])
@pytest.mark.parametrize("size", [1, 3_000], ids=["small", "large"])
def test_a_message_that_the_target_refuses_lets_the_others_pass(detects: bool, size: int) -> None:
    """A refused message stays in the queue, uncounted, and is sent again after a minute, on the same connection."""
    bridged = Bridged(
        use_duplicate_detection=detects,
        min_large_message_size_bytes=2_000,
        confirmation_window_size_bytes=2_000,
        # nothing is heard while the minute passes
        connection=BridgeConnection(connection_ttl_ms=10 * REFUSED_RETRY_MS),
    )
    wire = bridged.connect()
    session = refusing(bridged)
    bodies = [name + "x" * size for number in range(10) for name in (f"bad {number}", f"good {number}")]
    send(bridged, *bodies)
    for _ in bodies:
        bridged.settle()
        bridged.source.clock.advance(1)
    assert bridged.target.bodies() == [each.encode() for each in bodies if each.startswith("good")]
    assert (bridged.waiting(), bridged.bridge.unconfirmed, bridged.bridge.counts.refused) == (10, 0, 10)
    assert "refused" in bridged.bridge.last_error
    session.refuses = False
    bridged.source.clock.advance(REFUSED_RETRY_MS)
    for _ in bodies:
        bridged.settle()
        bridged.source.clock.advance(1)
    assert not wire.closed
    assert bridged.waiting() == 0
    assert sorted(bridged.target.bodies()) == sorted(each.encode() for each in bodies)
    assert all(message.properties.get("_AMQ_ORIG_DELIVERIES") is None for message in bridged.target.sent)


def test_what_every_message_meets_ends_the_connection_and_holds_none(caplog: pytest.LogCaptureFixture) -> None:
    """The address is full, or all messages go to an address where the user may not send."""
    for error, address, goes_on in (
        (AddressFull, "t", False), (AddressFull, None, False), (NotAuthorized, "t", False), (NotAuthorized, None, True),
    ):  # fmt: skip
        bridged = Bridged(forwarding_address=address)
        bridged.target.world.queue("q")
        bridged.connect()
        refusing(bridged, error)
        send(bridged, "bad", "good")
        bridged.settle()
        assert (bridged.bridge.state is State.RUNNING) == goes_on
        assert bridged.waiting() == (1 if goes_on else 2)


def test_too_many_refused_messages_end_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.cluster.bridges.forwarding.BRIDGE_REFUSED_MESSAGES_MAX", 3)
    bridged = Bridged()
    bridged.connect()
    refusing(bridged)
    send(bridged, *(f"bad {number}" for number in range(5)), "good")
    bridged.settle()
    assert bridged.bridge.state is State.WAITING
    assert bridged.waiting() == 6


def test_stopping_ends_when_the_last_message_is_refused() -> None:
    bridged = Bridged()
    bridged.connect()
    refusing(bridged)
    send(bridged, "bad")
    bridged.source.sync()
    bridged.bridge.stop()
    bridged.settle()
    assert bridged.bridge.state is State.STOPPED
    assert bridged.waiting() == 1
