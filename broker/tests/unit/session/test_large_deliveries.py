"""Deliveries of large messages: credits, slow sockets, cut-off deliveries, browsers, damaged files."""

from __future__ import annotations

import pytest

from support.large import FOLDER, Node, body_of, node_with_dead_letters, seen_by, sent
from support.routing import FakeCallback, text

UNLIMITED = -1


@pytest.fixture
def node() -> Node:
    return node_with_dead_letters()


def test_credits_stall_a_body_and_nothing_overtakes_it(node: Node) -> None:
    sent(node, "m")
    node.world.session().sends.send(text("behind"))
    reader = node.consumer(credit_bytes=150_000)
    node.settle()
    seen = seen_by(reader)
    assert 0 < len(seen.unfinished[0]) < 600_000
    assert reader.consumers.by_id[0].flow.credits <= 0
    reader.consumers.force_delivery(0, 7)
    assert (seen.delivered, seen.forced) == ([], []), "nothing else before its end"
    while seen.unfinished:
        before = len(seen.unfinished[0])
        reader.consumers.receive_credits(0, 100_000)
        node.settle()
        assert not seen.unfinished or len(seen.unfinished[0]) > before
    assert seen.large_bodies == [body_of("m")]
    reader.consumers.receive_credits(0, UNLIMITED)
    node.settle()
    assert [message.body for _, message, _ in seen.delivered] == [b"behind"]
    assert [(consumer, sequence) for consumer, sequence, _ in seen.forced] == [(0, 7)]


def test_every_frame_is_charged(node: Node) -> None:
    sent(node, "m")
    callback = FakeCallback(frame_bytes=10)
    reader = node.consumer(credit_bytes=1000, callback=callback, min_large_message_size=100_000)
    node.settle()
    assert callback.large_bodies == [body_of("m")]
    assert reader.consumers.by_id[0].flow.credits == 1000 - 10 - 6 * 10


def test_a_slow_socket_stalls_a_body(node: Node) -> None:
    sent(node, "m")
    callback = FakeCallback()
    reader = node.consumer(callback=callback, credit_bytes=1)
    node.settle()
    callback.slow = True
    reader.consumers.receive_credits(0, UNLIMITED)
    node.settle()
    assert callback.large_bodies == []
    callback.slow = False
    reader.consumers.resume_deliveries()
    node.settle()
    assert callback.large_bodies == [body_of("m")]


@pytest.mark.parametrize("end", ["rollback", "close", "lost"])
def test_a_delivery_that_is_cut_off_begins_again(node: Node, end: str) -> None:
    sent(node, "m")
    reader = node.consumer(credit_bytes=150_000, transacted=True)
    node.settle()
    assert seen_by(reader).unfinished
    if end == "rollback":
        reader.rollback()
    elif end == "close":
        reader.consumers.close(0)
    else:
        reader.close(failed=True)
    node.settle()
    again = reader if end == "rollback" else node.consumer()
    again.consumers.receive_credits(0, UNLIMITED)
    node.settle()
    assert seen_by(again).large_bodies == [body_of("m")]
    assert [count for _, _, count in seen_by(again).large][-1] == (2 if end == "lost" else 1)
    assert node.store.large.references(int(node.files()[0].partition(".")[0])) == 1, "no delivery holds it any more"


def test_an_acknowledgement_in_the_middle_leaves_the_delivery_its_file(node: Node) -> None:
    sent(node, "m")
    reader = node.consumer(credit_bytes=150_000)
    node.settle()
    reader.acknowledge(0, seen_by(reader).large[0][1].message_id)
    node.outlive()
    assert len(node.files()) == 1
    reader.consumers.receive_credits(0, UNLIMITED)
    node.outlive()
    assert seen_by(reader).large_bodies == [body_of("m")]
    assert node.files() == []


def test_pre_acknowledged(node: Node) -> None:
    sent(node, "m")
    reader = node.consumer(credit_bytes=150_000, pre_acknowledge=True)
    node.outlive()
    reader.consumers.receive_credits(0, UNLIMITED)
    node.outlive()
    assert seen_by(reader).large_bodies == [body_of("m")]
    assert node.files() == []


def test_browsing_takes_nothing_and_stalls_like_a_consumer(node: Node) -> None:
    sent(node, "m", "n")
    session = node.world.session()
    session.consumers.create(0, "q", browse_only=True)
    session.consumers.receive_credits(0, 150_000)
    seen = seen_by(session)
    assert seen.unfinished
    session.consumers.force_delivery(0, 3)
    assert seen.forced == []
    session.consumers.receive_credits(0, UNLIMITED)
    assert seen.large_bodies == [body_of("m"), body_of("n")]
    assert [sequence for _, sequence, _ in seen.forced] == [3]
    session.consumers.close(0)
    node.outlive()
    assert len(node.files()) == 2


def test_two_consumers_share_the_queue_while_one_is_busy_with_a_body(node: Node) -> None:
    sent(node, "m")
    slow = node.consumer(credit_bytes=150_000)
    node.settle()
    fast = node.consumer()
    node.world.session().sends.send(text("small"))
    node.settle()
    assert [message.body for _, message, _ in seen_by(fast).delivered] == [b"small"]
    assert seen_by(slow).unfinished


@pytest.mark.parametrize("damage", ["missing", "short", "changed"])
def test_a_damaged_file_is_never_served_and_blocks_no_message(
    node: Node, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    sent(node, "m")
    path = f"{FOLDER}/{node.files()[0]}"
    if damage == "missing":
        node.rig.disk("vandal").remove(path)
    elif damage == "short":
        node.rig.volume.cut_file(path, 1000)
    else:
        node.rig.volume.flip_bit(path, 300_000, 3)
    sent(node, "n")
    reader = node.consumer()
    node.settle()
    seen = seen_by(reader)
    assert path in " ".join(str(record.__dict__.get("error")) for record in caplog.records)
    if damage == "changed":
        assert seen.disconnected == [0], "a part of it went out: only a closed consumer says that it has no end"
        reader = node.consumer()
        node.settle()
        seen = seen_by(reader)
    assert seen.large_bodies == [body_of("n")]
    queue = node.world.office.directory.find_queue("q")
    assert queue is not None
    assert queue.message_count == 2, "it stays until the file is restored"
    assert [(entry.kind, entry.held) for entry in node.store.quarantine.entries()] == [("large message", True)]
