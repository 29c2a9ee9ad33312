"""Tools find messages and prepared transactions in a consolidated log, wherever they were copied to."""

from __future__ import annotations

import pytest
from tests.support.store import DIRECTORY, StoreHarness
from tests.unit.store.snapshots.test_consolidator import fill, put, rig_of

from understudy.message import Message
from understudy.store.messages.reference import unpack_location
from understudy.store.snapshots.snapshot import snapshot_names
from understudy.tools.compare import replay_set
from understudy.tools.contents import live_messages, prepared_messages, read_contents
from understudy.tools.log_copy import LogCopy

OTHER = "/other"


def add(rig: StoreHarness, tx_id: int) -> int:
    """A message of a transaction; its id."""
    store = rig.store
    assert store is not None
    message = Message(rig.stream.randbytes(6_000), address="x")
    message.assign_id(store.next_id())
    rig.bodies[message.message_id] = message.encoded
    store.store_message(message, rig.address_ids[0], (rig.queue_ids[0],), tx_id=tx_id)
    return message.message_id


def prepare(rig: StoreHarness, name: bytes, count: int) -> tuple[int, list[int]]:
    """A prepared transaction with so many messages; its id and theirs."""
    assert rig.store is not None
    tx_id = rig.store.next_id()
    ids = [add(rig, tx_id) for _ in range(count)]
    rig.store.store_prepare(tx_id, name)
    rig.settle()
    return tx_id, ids


def copy_store(rig: StoreHarness) -> None:
    """The other node's store, as it is now."""
    disk = rig.disk("copy")
    disk.make_directory(OTHER)
    for path in rig.volume.paths():
        if path.startswith(f"{DIRECTORY}/"):
            file = disk.open(f"{OTHER}/{path.rsplit('/', 1)[1]}", create=True)
            file.write(0, (rig.volume.content(path),))
            file.close()


def snapshots(rig: StoreHarness) -> list[str]:
    return snapshot_names(rig.disk("looker").list(DIRECTORY))


def fill_until_moved(rig: StoreHarness, message_id: int) -> None:
    """Traffic until that message was copied forward."""
    for _ in range(200):
        fill(rig, 1)
        if message_id in (read_contents(LogCopy(rig.disk("looker"), DIRECTORY)).state.origins or {}):
            return
    raise AssertionError("it was never moved")


@pytest.mark.parametrize("fresh", [False, True])
def test_prepared_transactions_and_messages_that_were_copied_forward_are_whole(fresh: bool) -> None:
    """``fresh``: the moves themselves come after the snapshot with which reading begins."""
    rig = rig_of()
    tx_id, ids = prepare(rig, b"xid", 3)
    (live_id, location) = put(rig, pinned=True)
    fill_until_moved(rig, ids[-1])
    if not fresh:
        fill(rig, 60)
    copy = LogCopy(rig.disk("judge"), DIRECTORY)
    contents = read_contents(copy)
    found = list(prepared_messages(copy, contents, tx_id))
    assert [each.record.message_id for each in found] == ids
    assert [each.record.encoded for each in found] == [rig.bodies[message_id] for message_id in ids]
    (live,) = live_messages(copy, contents)
    assert live.record.encoded == rig.bodies[live_id]
    assert live.reference.location is not None
    assert unpack_location(live.reference.location)[0] > unpack_location(location)[0], "it was moved"


def test_a_moved_message_of_a_prepared_transaction_belongs_to_no_copy_alone() -> None:
    """The other copy has the transaction, too: where its messages lie now says nothing about when they were added."""
    rig = rig_of(percent=90)
    # or nothing old would live, and no snapshot be needed
    put(rig, pinned=True)
    while not snapshots(rig):
        fill(rig, 1)
    tx_id, ids = prepare(rig, b"both have it", 2)
    live_id, _ = put(rig, pinned=True)
    rig.settle()
    copy_store(rig)
    own_id, own = prepare(rig, b"only here", 1)
    only_here, _ = put(rig, pinned=True)
    fill_until_moved(rig, ids[-1])
    copy, contents, counterparts = replay_set(rig.disk("judge"), DIRECTORY, [OTHER])
    assert contents.state.origins, "or nothing is proved"
    assert list(prepared_messages(copy, contents, tx_id, counterparts)) == []
    assert [each.record.message_id for each in prepared_messages(copy, contents, own_id, counterparts)] == own
    found = [each.record.message_id for each in live_messages(copy, contents, counterparts)]
    assert only_here in found
    assert live_id not in found
