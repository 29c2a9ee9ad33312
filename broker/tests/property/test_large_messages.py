"""Large messages wherever the node dies: whole or not there, and no file is left over.

Goal: every confirmed message is there with its body, every present message has its body, and after an activation
the directory holds exactly the files that the log speaks of. Method: one scenario that sends (alone,
in transactions, to several queues), consumes, gives up to dead letters and rolls back, cut at every
single operation of the simulated disk, by a kill and by power losses that tear and forget.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from support.large import Node, body_of, header_of, named, seen_by
from support.store import Crashed, StoreHarness
from understudy.session.outcomes import ACCEPTED
from understudy.terms import RoutingType

SETTINGS = {"#": {"dead_letter_address": "DLQ", "max_delivery_attempts": 1}}
QUEUES = {"q": "q", "DLQ": "DLQ", "t1": "t", "t2": "t"}


@dataclass
class Story:
    """The messages and outcomes that the clients know of."""

    confirmed: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    """An acknowledgement was asked for: it may be there or not."""
    never: set[str] = field(default_factory=set)
    """Rolled back: it must not be there."""


def live(node: Node, story: Story) -> None:
    """The scenario; raises Crashed somewhere in it."""
    world = node.world
    world.queue("q")
    world.queue("DLQ")
    for name in ("t1", "t2"):
        world.queue(name, address="t", routing_type=RoutingType.MULTICAST)
    node.settle()
    producer = world.session()

    def send(session: object, name: str, address: str) -> None:
        def done(error: object) -> None:
            if error is None:
                story.confirmed.add(name)

        producer.uploads.begin(header_of(name, address))
        body = body_of(name)
        producer.uploads.take(body[:300_000])
        producer.uploads.take(body[300_000:590_000])
        producer.uploads.finish(body[590_000:], -1, done, lambda: None)

    send(producer, "a", "q")
    node.step()
    producer.uploads.begin(header_of("never finished"))
    producer.uploads.take(body_of("never finished", 300_000))
    node.settle()
    send(producer, "both", "t")
    node.settle()
    transacted = world.session(transacted=True)
    for name in ("x", "y"):
        node.send(transacted, header_of(name), body_of(name))
        node.settle()
    transacted.commit(lambda error: story.confirmed.update("xy") if error is None else None)
    node.settle()
    node.send(transacted, header_of("rolled back"), body_of("rolled back"))
    node.settle()
    story.never.add("rolled back")
    transacted.rollback()
    node.settle()
    reader = node.consumer()
    node.settle()
    first = seen_by(reader).large[0][1]
    story.gone.add(named(first))
    reader.acknowledge(0, first.message_id)
    node.settle()
    # the others were delivered once, which is as often as they may be
    reader.close(failed=True)
    node.settle()
    dead = node.consumer("DLQ")
    node.settle()
    for _, message, _ in seen_by(dead).large:
        story.gone.add(named(message))
        dead.settle(0, message.message_id, ACCEPTED)
        node.settle()
    subscriber = node.consumer("t1")
    node.settle()
    subscriber.acknowledge(0, seen_by(subscriber).large[0][1].message_id)
    node.outlive()
    send(producer, "last", "q")
    node.settle()


def check(node: Node, story: Story) -> None:
    """Check the messages and files of the node that takes over."""
    node.outlive()
    assert node.files() == node.expected_files()
    found: dict[str, set[str]] = {}
    for queue in QUEUES:
        if node.world.office.directory.find_queue(queue) is None:
            continue
        reader = node.consumer(queue)
        node.settle()
        seen = seen_by(reader)
        names = [named(message) for _, message, _ in seen.large]
        assert len(set(names)) == len(names)
        assert seen.large_bodies == [body_of(name) for name in names], "a body is wrong"
        for name in names:
            found.setdefault(name, set()).add(queue)
    assert not found.keys() & (story.never | {"never finished"})
    assert story.confirmed - story.gone <= found.keys(), "a confirmed message is lost"
    if "both" in story.confirmed:
        assert "t2" in found["both"]


def operations_of_the_story() -> int:
    rig = StoreHarness(random.Random(0))
    node = Node(rig, "a", SETTINGS)
    before = rig.volume.operations
    live(node, Story())
    return rig.volume.operations - before


OPERATIONS = operations_of_the_story()


@pytest.mark.parametrize("power_loss", [False, True])
@pytest.mark.parametrize("part", range(4))
def test_a_crash_at_any_operation_leaves_messages_whole_or_not_there(part: int, power_loss: bool) -> None:
    assert OPERATIONS > 70
    for operation in range(1 + part, OPERATIONS + 1, 4):
        rig = StoreHarness(random.Random(operation))
        node = Node(rig, "a", SETTINGS)
        story = Story()
        rig.crash_at(operation)
        try:
            live(node, story)
        except Crashed:
            pass
        rig.die(power_loss=power_loss)
        successor = Node(rig, "ba"[operation % 2], SETTINGS)
        check(successor, story)


@pytest.mark.parametrize("seed", range(30))
def test_crashes_of_successors_while_they_tidy_up(seed: int) -> None:
    stream = random.Random(seed)
    rig = StoreHarness(stream)
    node = Node(rig, "a", SETTINGS)
    story = Story()
    rig.crash_at(stream.randrange(1, OPERATIONS))
    try:
        live(node, story)
    except Crashed:
        pass
    for owner in "bc":
        rig.die(power_loss=stream.random() < 0.5)
        rig.crash_at(stream.randrange(1, 12))
        try:
            Node(rig, owner, SETTINGS).settle()
        except Crashed:
            pass
    rig.die(power_loss=False)
    check(Node(rig, "d", SETTINGS), story)
