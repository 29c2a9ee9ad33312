"""Large messages through sessions: order, credits, sockets, redelivery, damage; over the real store."""

from __future__ import annotations

import random

import pytest

from support.large import FOLDER, Node, body_of, header_of, named, node_with_dead_letters, seen_by, sent
from support.routing import FakeSecurity
from support.store import StoreHarness
from understudy import limits
from understudy.config.model import AddressSettingsConfiguration
from understudy.errors import (
    AddressFull,
    DiskFull,
    IllegalState,
    LargeMessageFailed,
    LimitExceeded,
    NotAuthorized,
    XaError,
)
from understudy.ids import Xid
from understudy.message import DUPLICATE_ID, LARGE_COMPRESSED, LARGE_SIZE, SCHEDULED_DELIVERY
from understudy.session import uploads as upload_module
from understudy.terms import DiskFullPolicy, Permission, RoutingType

UNLIMITED = -1


@pytest.fixture
def node() -> Node:
    return node_with_dead_letters()


def test_a_message_goes_in_and_out_whole(node: Node) -> None:
    session = node.world.session()
    node.send(session, header_of("m"), body_of("m"), "m")
    assert node.world.answers.names == [], "not before its file and its record are safe"
    node.settle()
    assert node.world.answers.error("m") is None
    assert len(node.files()) == 1
    reader = node.consumer()
    node.settle()
    seen = seen_by(reader)
    assert seen.large_bodies == [body_of("m")]
    ((_, message, count),) = seen.large
    assert (named(message), count) == ("m", 1)
    assert message.properties[LARGE_SIZE] == len(body_of("m"))
    assert node.files() == [f"{message.message_id}.large"]
    reader.acknowledge(0, message.message_id)
    node.settle()
    assert len(node.files()) == 1, "a file outlives its last reference until the lock is proved again"
    node.outlive()
    assert node.files() == []


def test_a_file_stays_while_the_lock_is_in_doubt(node: Node) -> None:
    session = node.world.session()
    node.send(session, header_of("m"), body_of("m"))
    node.settle()
    reader = node.consumer()
    node.settle()
    reader.acknowledge(0, seen_by(reader).large[0][1].message_id)
    node.store.large._why_not_remove = lambda: DiskFull("in doubt")
    node.outlive()
    assert len(node.files()) == 1
    node.store.large._why_not_remove = lambda: None
    node.outlive()
    assert node.files() == []


def test_a_request_after_a_large_message_waits_for_it(node: Node) -> None:
    session = node.world.session()
    went_on: list[bool] = []
    session.uploads.begin(header_of("m"))
    assert session.uploads.finish(b"x" * 1000, -1, None, lambda: went_on.append(True))
    assert went_on == []
    node.settle()
    assert went_on == [True]
    reader = node.consumer()
    node.settle()
    assert seen_by(reader).large[0][1].properties[LARGE_SIZE] == 1000, "counted when its sender does not know"


@pytest.mark.parametrize("piece_bytes", [1, 100, 1000])
def test_pieces_of_any_size_and_an_empty_last_one(node: Node, piece_bytes: int) -> None:
    session = node.world.session()
    body = body_of("m", 1000)
    session.uploads.begin(header_of("m"))
    for start in range(0, 1000, piece_bytes):
        session.uploads.take(body[start : start + piece_bytes])
    session.uploads.finish(b"", 1000, None, lambda: None)
    session_two = node.world.session()
    node.send(session_two, header_of("empty"), b"")
    node.settle()
    reader = node.consumer()
    node.settle()
    assert seen_by(reader).large_bodies == [body, b""]


def test_a_second_announcement_discards_an_unfinished_one(node: Node) -> None:
    session = node.world.session()
    session.uploads.begin(header_of("lost"))
    session.uploads.take(body_of("lost"))
    node.settle()
    assert [name.endswith(".large.tmp") for name in node.files()] == [True]
    node.send(session, header_of("m"), b"body", "m")
    node.settle()
    assert node.world.answers.error("m") is None
    assert len(node.files()) == 1
    reader = node.consumer()
    node.settle()
    assert seen_by(reader).large_bodies == [b"body"]


@pytest.mark.parametrize("finished", [False, True])
def test_a_lost_connection_discards_an_unfinished_one(node: Node, finished: bool) -> None:
    session = node.world.session()
    session.uploads.begin(header_of("m"))
    session.uploads.take(body_of("m"))
    if finished:
        session.uploads.finish(b"", -1, node.world.answers.of("m"), lambda: None)
    session.close(failed=True)
    node.settle()
    assert node.files() == []
    assert node.world.answers.names == []
    assert node.store.large.count == 0


def test_pieces_without_an_announcement_are_refused(node: Node) -> None:
    session = node.world.session()
    with pytest.raises(IllegalState):
        session.uploads.take(b"x")
    with pytest.raises(IllegalState):
        session.uploads.finish(b"x", -1, None, lambda: None)


def test_a_producer_without_permission_hears_it_at_the_end(node: Node) -> None:
    session = node.world.session(security=FakeSecurity(Permission.SEND))
    node.send(session, header_of("m"), body_of("m"), "m")
    node.settle()
    assert isinstance(node.world.answers.error("m"), NotAuthorized)
    assert node.files() == []


def test_too_large_a_message_is_refused_and_leaves_nothing(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_module, "LARGE_MESSAGE_BYTES_MAX", 500_000)
    assert limits.LARGE_MESSAGE_BYTES_MAX > 500_000
    session = node.world.session()
    node.send(session, header_of("m"), body_of("m", 500_001), "m")
    node.settle()
    assert isinstance(node.world.answers.error("m"), LimitExceeded)
    node.send(session, header_of("n"), body_of("n", 500_000), "n")
    node.settle()
    assert node.world.answers.error("n") is None
    assert len(node.files()) == 1


def test_a_full_disk_is_a_full_address_and_leaves_nothing(node: Node) -> None:
    node.settle()
    session = node.world.session()
    node.rig.volume.capacity_bytes = node.rig.volume.used_bytes() + 400_000
    node.send(session, header_of("m"), body_of("m"), "m")
    node.settle()
    assert isinstance(node.world.answers.error("m"), AddressFull)
    assert node.files() == []
    node.rig.volume.capacity_bytes = 1 << 40
    node.send(session, header_of("n"), body_of("n"), "n")
    node.settle()
    assert node.world.answers.error("n") is None


def test_a_disk_that_is_kept_free_refuses_before_it_writes(node: Node) -> None:
    session = node.world.session()
    node.store.full = True
    node.send(session, header_of("m"), body_of("m"), "m")
    assert isinstance(node.world.answers.error("m"), AddressFull)
    node.store.full = False
    node.settle()
    assert node.files() == []


def test_a_drop_policy_drops_large_messages_while_the_disk_is_full(node: Node) -> None:
    settings = AddressSettingsConfiguration("q", disk_full_policy=DiskFullPolicy.DROP)
    node.world.office.directory.settings.add(settings)
    session = node.world.session()
    node.store.full = True
    node.send(session, header_of("m"), body_of("m"), "m")
    node.settle()
    assert node.world.answers.error("m") is None
    node.store.full = False
    node.settle()
    assert node.files() == []
    assert [queue.message_count for queue in node.world.office.queues() if queue.name == "q"] == [0]


def test_a_failed_sync_refuses_the_message_and_not_the_node(node: Node) -> None:
    node.settle()
    session = node.world.session()
    node.rig.volume.fail_next_sync()
    node.send(session, header_of("m"), body_of("m"), "m")
    node.settle()
    assert isinstance(node.world.answers.error("m"), LargeMessageFailed), "for certain, and not the end of the node"
    assert node.files() == []
    assert node.rig.failures == []


def test_a_duplicate_is_confirmed_and_leaves_nothing(node: Node) -> None:
    session = node.world.session()
    for name in ("first", "second"):
        node.send(session, header_of("m", properties={DUPLICATE_ID: "one"}), body_of("m"), name)
        node.settle()
        assert node.world.answers.error(name) is None
    node.outlive()
    assert len(node.files()) == 1
    queue = node.world.office.directory.find_queue("q")
    assert queue is not None
    assert queue.message_count == 1


def test_a_message_without_a_queue_leaves_nothing(node: Node) -> None:
    node.world.queue("picky", address="t", routing_type=RoutingType.MULTICAST, filter="name = 'other'")
    session = node.world.session()
    node.send(session, header_of("m", "t"), body_of("m"), "m")
    node.outlive()
    assert node.world.answers.error("m") is None
    assert node.files() == []


def test_transactions_count_together_or_not_at_all(node: Node) -> None:
    session = node.world.session(transacted=True)
    reader = node.consumer()
    node.send(session, header_of("no"), body_of("no"))
    node.settle()
    session.rollback()
    node.outlive()
    assert node.files() == []
    node.send(session, header_of("yes"), body_of("yes"))
    node.settle()
    assert seen_by(reader).large == []
    session.commit(node.world.answers.of("commit"))
    node.settle()
    assert node.world.answers.error("commit") is None
    assert seen_by(reader).large_bodies == [body_of("yes")]


def test_several_queues_share_one_file(node: Node) -> None:
    for name in ("t1", "t2"):
        node.world.queue(name, address="t", routing_type=RoutingType.MULTICAST)
    session = node.world.session()
    node.send(session, header_of("m", "t"), body_of("m"))
    node.settle()
    assert len(node.files()) == 1
    for name, left in (("t1", 1), ("t2", 0)):
        reader = node.consumer(name)
        node.settle()
        assert seen_by(reader).large_bodies == [body_of("m")]
        reader.acknowledge(0, seen_by(reader).large[0][1].message_id)
        node.outlive()
        assert len(node.files()) == left


def test_dead_letters_take_the_file_over(node: Node) -> None:
    node.send(node.world.session(), header_of("m"), body_of("m"))
    node.settle()
    for _ in range(2):
        reader = node.consumer()
        node.settle()
        reader.close(failed=True)
        node.settle()
    node.outlive()
    assert len(node.files()) == 1
    dead = node.consumer("DLQ")
    node.settle()
    ((_, message, _),) = seen_by(dead).large
    assert seen_by(dead).large_bodies == [body_of("m")]
    assert f"{message.message_id}.large" not in node.files(), "by reference"
    assert message.properties["_AMQ_ORIG_QUEUE"] == "q"
    dead.acknowledge(0, message.message_id)
    node.outlive()
    assert node.files() == []


def test_expiry_without_an_address_takes_the_file_away(node: Node) -> None:
    header = header_of("m", expiration=node.world.clock.wall_ms() + 1000)
    node.send(node.world.session(), header, body_of("m"))
    node.settle()
    node.world.clock.advance(60_000)
    node.outlive()
    assert node.files() == []


def test_scheduled_and_fqqn(node: Node) -> None:
    due_ms = node.world.clock.wall_ms() + 5_000
    header = header_of("later", "q::q", {SCHEDULED_DELIVERY: due_ms})
    node.send(node.world.session(), header, body_of("later"))
    reader = node.consumer()
    node.settle()
    assert seen_by(reader).large == []
    node.world.clock.advance(5_001)
    node.settle()
    assert seen_by(reader).large_bodies == [body_of("later")]


def test_a_deleted_queue_takes_its_files_along(node: Node) -> None:
    node.world.queue("gone")
    session = node.world.session()
    node.send(session, header_of("m", "gone"), body_of("m"))
    node.settle()
    session.queues.delete_queue("gone")
    node.outlive()
    assert node.files() == []


def test_a_message_that_is_not_durable_goes_with_the_node(node: Node) -> None:
    node.send(node.world.session(), header_of("m", durable=False), body_of("m"), "m")
    node.settle()
    assert node.world.answers.error("m") is None
    reader = node.consumer()
    node.settle()
    assert seen_by(reader).large_bodies == [body_of("m")]
    assert len(node.files()) == 1
    node.rig.die(power_loss=False)
    successor = Node(node.rig, "b")
    successor.settle()
    assert successor.files() == []


def test_a_compressed_body_may_be_that_of_an_empty_one(node: Node) -> None:
    session = node.world.session()
    session.uploads.begin(header_of("m", properties={LARGE_COMPRESSED: True}))
    session.uploads.finish(b"anything", 0, None, lambda: None)
    node.settle()
    reader = node.consumer()
    node.settle()
    ((_, message, _),) = seen_by(reader).large
    assert message.properties[LARGE_SIZE] == 0


def test_a_compressed_body_passes_through_untouched(node: Node) -> None:
    session = node.world.session()
    session.uploads.begin(header_of("m", properties={LARGE_COMPRESSED: True}))
    session.uploads.finish(b"anything", 123_456, None, lambda: None)
    node.settle()
    reader = node.consumer()
    node.settle()
    ((_, message, _),) = seen_by(reader).large
    assert message.properties[LARGE_SIZE] == 123_456
    assert message.large.size_bytes == 8
    assert seen_by(reader).large_bodies == [b"anything"]


# --- deliveries ------------------------------------------------------------------------------------


def test_a_takeover_finds_large_messages(node: Node) -> None:
    sent(node, "m", "n")
    node.rig.die(power_loss=True)
    successor = Node(node.rig, "b")
    reader = successor.consumer()
    successor.settle()
    assert seen_by(reader).large_bodies == [body_of("m"), body_of("n")]
    reader.acknowledge(0, seen_by(reader).large[1][1].message_id)
    successor.outlive()
    assert successor.files() == []


@pytest.mark.parametrize("outcome", ["commit", "rollback"])
def test_a_prepared_branch_keeps_its_files_over_a_takeover(node: Node, outcome: str) -> None:
    session = node.world.session(xa=True, auto_commit_sends=False, auto_commit_acks=False)
    xid = Xid(1, b"global", b"branch")
    session.branches.start(xid)
    node.send(session, header_of("m"), body_of("m"))
    node.settle()
    session.branches.end(xid, failed=False)
    session.branches.prepare(xid)
    node.settle()
    node.rig.die(power_loss=True)
    successor = Node(node.rig, "b")
    successor.outlive()
    assert len(successor.files()) == 1
    decider = successor.world.session(xa=True)
    reader = successor.consumer()
    if outcome == "commit":
        decider.branches.commit(xid, one_phase=False, done=successor.world.answers.of("commit"))
        successor.settle()
        assert seen_by(reader).large_bodies == [body_of("m")]
        reader.acknowledge(0, seen_by(reader).large[0][1].message_id)
    else:
        decider.branches.roll_back(xid)
    successor.outlive()
    assert successor.files() == []


def test_a_branch_that_is_too_old_when_the_body_is_safe(node: Node) -> None:
    """The message belongs to the branch, not to the transaction that was rolled back meanwhile."""
    registry = node.world.resources
    registry.timeout_ms = 1
    session = node.world.session(xa=True, auto_commit_sends=False, auto_commit_acks=False)
    xid = Xid(1, b"global", b"branch")
    session.branches.start(xid)
    went_on: list[bool] = []
    session.uploads.begin(header_of("m"))
    assert session.uploads.finish(body_of("m"), -1, node.world.answers.of("m"), lambda: went_on.append(True))
    node.world.clock.advance(10)
    registry._expire()
    node.settle()
    assert went_on == [True]
    with pytest.raises(XaError):
        session.branches.end(xid, failed=False)
    queue = node.world.office.directory.find_queue("q")
    assert queue is not None
    assert (queue.message_count, queue.incoming, queue.address.message_count) == (0, 0, 0)
    assert node.store.state.transactions == {}
    node.outlive()
    assert node.files() == []
    assert node.store.large.count == 0


@pytest.mark.parametrize("lent", [False, True])
@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_a_damaged_message_leaves_with_its_queue(damage: str, lent: bool) -> None:
    """A damaged message is with no consumer, and all counts, also those of the address, end at zero when its queue
    goes.
    """
    node = Node(StoreHarness(random.Random(1)), "a")
    queue = node.world.queue("q", non_destructive=lent)
    sent(node, "m")
    path = f"{FOLDER}/{node.files()[0]}"
    if damage == "missing":
        node.rig.disk("vandal").remove(path)
    else:
        node.rig.volume.flip_bit(path, 300_000, 3)
    browser = node.world.session()
    browser.consumers.create(0, "q", browse_only=True)
    browser.consumers.receive_credits(0, -1)
    reader = node.consumer()
    node.settle()
    node.world.clock.advance(100_000)
    node.settle()
    assert seen_by(reader).large_bodies == []
    assert (queue.message_count, queue.delivering_count) == (1, 0)
    assert (queue.scheduled_count, len(queue.pending)) == ((0, 1) if lent else (1, 0))
    node.world.office.directory.delete_queue("q", disconnect=True)
    assert (queue.message_count, queue.address.message_count, queue.address.size_bytes) == (0, 0, 0)
    assert node.world.office.memory.held_bytes == 0
    node.outlive()
    assert node.store.large.count == 0
