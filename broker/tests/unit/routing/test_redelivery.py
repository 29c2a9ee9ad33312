"""Deliveries that failed: when they are tried again."""

from __future__ import annotations

import pytest

from support.routing import World, callback_of, text


class FixedEntropy:
    def __init__(self, token: bytes) -> None:
        self._token = token

    def token(self, length_bytes: int) -> bytes:
        return self._token[:length_bytes]


@pytest.mark.parametrize(
    ("token", "delay_ms"), [(b"\x00" * 4, 50), (b"\x80\x00\x00\x00", 100), (b"\xff" * 4, 149), (None, 100)]
)
def test_the_delay_is_varied_at_random(token: bytes | None, delay_ms: int) -> None:
    """redelivery-collision-avoidance-factor 0.5: from half to one and a half of the delay."""
    settings = {"redelivery_delay": 100, "redelivery_collision_avoidance_factor": 0.5}
    world = World({"q": settings}, entropy=FixedEntropy(token) if token is not None else None)
    queue = world.queue()
    session = world.session(transacted=True)
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    world.session().sends.send(text("m"))
    world.turn()
    session.acknowledge(0, callback_of(session).delivered[0][1].message_id)
    session.rollback()
    assert queue.scheduled_count == 1
    world.clock.advance(delay_ms - 1)
    assert queue.scheduled_count == 1
    world.clock.advance(1)
    assert queue.scheduled_count == 0
    world.turn()
    assert callback_of(session).counts() == [1, 2]
