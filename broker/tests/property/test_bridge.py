"""A bridge whose connection is lost at any step, and whose source and target are taken over at any step.

Goal: every message arrives at the target exactly once and in the order in which it was sent.

Method: Hypothesis draws steps: sends, parts of the packets under way carried in either direction, syncs of either
disk, losses of the connection. At the end everything is carried. With duplicate detection the target holds exactly the
sent messages; a bridge without it doubles some, which the last test shows.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from support.bridged import Bridged
from support.routing import text
from understudy.cluster.bridges.bridge import State

steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 3_000)),
        st.tuples(st.just("take"), st.integers(1, 4)),
        st.sampled_from([("give", 0), ("sync source", 0), ("sync target", 0), ("cut", 0), ("deactivate", 0)]),
    ),
    max_size=60,
)


def run(drawn: list[tuple[str, int]], *, detect: bool) -> tuple[list[bytes], list[bytes]]:
    """Bodies sent, and bodies at the target at the end."""
    bridged = Bridged(
        confirmation_window_size_bytes=6_000, producer_window_size_bytes=4_000, min_large_message_size_bytes=2_000,
        use_duplicate_detection=detect,
    )  # fmt: skip
    bridged.connect()
    sent = []
    for number, (step, amount) in enumerate(drawn):
        wire = bridged.wire
        if step == "send":
            sent.append(f"{number}:".ljust(amount, "x"))
            bridged.producer.sends.send(text(sent[-1]))
        elif step == "take":
            wire.take(amount)
        elif step == "give":
            wire.give()
        elif step == "sync source":
            bridged.source.sync()
        elif step == "sync target":
            bridged.target.world.sync()
        elif step == "cut":
            wire.cut()
            connect_again(bridged)
        else:
            bridged.bridge.close()
            bridged.bridge = bridged.make()
            bridged.bridge.start()
            bridged.wire.open()
    bridged.settle()
    assert bridged.waiting() == 0
    return [body.encode() for body in sent], bridged.target.bodies()


def connect_again(bridged: Bridged) -> None:
    while bridged.bridge.state is State.WAITING:
        bridged.source.clock.advance(1_000)
    bridged.wire.open()


@given(steps)
@settings(max_examples=150)
def test_every_message_arrives_once_and_in_order(drawn: list[tuple[str, int]]) -> None:
    sent, arrived = run(drawn, detect=True)
    assert arrived == sent


@given(steps)
@settings(max_examples=50)
def test_without_duplicate_detection_no_message_is_lost(drawn: list[tuple[str, int]]) -> None:
    sent, arrived = run(drawn, detect=False)
    assert sorted(set(arrived)) == sorted(set(sent))


def test_without_duplicate_detection_a_message_may_arrive_twice() -> None:
    drawn = [("send", 1), ("sync source", 0), ("take", 4), ("give", 0), ("take", 4), ("sync target", 0), ("cut", 0)]
    sent, arrived = run(drawn, detect=False)
    assert arrived == sent * 2
    assert run(drawn, detect=True) == (sent, sent)
