"""A bridge whose messages came together: a slice is sent as one piece, and confirmations cover ranges of it."""

from __future__ import annotations

import pytest

from support.bridged import Bridged
from support.routing import text
from support.sends import sends_of
from understudy.cluster.bridges.bridge import State
from understudy.message import BRIDGE_DUPLICATE_ID
from understudy.wire.core.codec import encode_null_response


def send_together(bridged: Bridged, count: int) -> None:
    """Messages that came in one read; what the session sends first comes before, alone."""
    bridged.producer.sends.permit("q")
    batch = sends_of([text(f"{number:03}", "q") for number in range(count)])
    assert bridged.producer.sends.send_batch(batch, 0, None) == count
    bridged.source.sync()


def under_way(count: int = 20, **options: object) -> Bridged:
    bridged = Bridged(producer_window_size_bytes=-1, **options)
    bridged.connect()
    send_together(bridged, count)
    return bridged


def bodies(count: int) -> list[bytes]:
    return [b"%03d" % number for number in range(count)]


def confirm(bridged: Bridged, *numbers: int) -> None:
    """The target has these, counted from 1; the next turn of the source follows."""
    bridged.wire.link.receive_data(b"".join(encode_null_response(10, each) for each in numbers))
    bridged.source.clock.advance(0)
    bridged.source.sync()


def test_a_slice_is_one_write_and_each_message_has_its_own_id() -> None:
    bridged = under_way()
    assert bridged.wire.take() == 1
    bridged.target.world.sync()
    assert bridged.target.bodies() == bodies(20)
    assert len({each.properties[BRIDGE_DUPLICATE_ID] for each in bridged.target.sent}) == 20
    assert bridged.bridge.unconfirmed == 20
    bridged.settle()
    assert (bridged.waiting(), bridged.bridge.unconfirmed, bridged.bridge.counts.acknowledged) == (0, 0, 20)


def test_a_part_of_a_slice_is_removed_and_the_rest_is_sent_again_after_a_loss() -> None:
    bridged = under_way()
    bridged.wire.take()
    bridged.target.world.sync()
    confirm(bridged, *range(1, 8))
    assert (bridged.waiting(), bridged.bridge.unconfirmed) == (13, 13)
    bridged.wire.cut()
    assert bridged.bridge.state is State.WAITING
    bridged.source.clock.advance(2_000)
    bridged.wire.open()
    bridged.settle()
    assert len(bridged.target.sent) == 33
    assert bridged.target.bodies() == bodies(20)
    assert bridged.waiting() == 0


@pytest.mark.parametrize("early", [(5,), (20,), (5, 6), (19, 5, 12), (2, 4, 6)])
def test_confirmations_out_of_order_remove_their_messages_only(early: tuple[int, ...]) -> None:
    bridged = under_way()
    confirm(bridged, *early)
    left = 20 - len(early)
    assert (bridged.waiting(), bridged.bridge.unconfirmed) == (left, left)
    confirm(bridged, *[each for each in range(1, 21) if each not in early])
    assert (bridged.waiting(), bridged.bridge.unconfirmed) == (0, 0)
    confirm(bridged, 3)
    assert bridged.bridge.state is State.RUNNING, "a second confirmation is ignored"


def test_a_confirmation_of_a_message_that_was_not_sent_ends_the_connection() -> None:
    bridged = under_way()
    confirm(bridged, 1, 2, 21)
    assert bridged.bridge.state is State.WAITING
    assert "21" in bridged.bridge.last_error


def test_a_slice_takes_its_credit_together_and_no_more_than_the_window() -> None:
    bridged = Bridged(producer_window_size_bytes=500)
    bridged.connect()
    send_together(bridged, 20)
    bridged.settle()
    assert bridged.target.bodies() == bodies(20)
    assert bridged.waiting() == 0


@pytest.mark.parametrize("options", [{"transformer_properties": {"added": "here"}}, {"routing_type": "STRIP"}])
def test_messages_that_a_run_cannot_change_go_one_by_one(options: dict[str, object]) -> None:
    bridged = under_way(**options)
    assert bridged.wire.take() == 20
    bridged.settle()
    assert bridged.target.bodies() == bodies(20)
