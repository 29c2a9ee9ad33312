"""Goal: records that nothing waits for are written with later ones, and not much later (ADR 0198, ADR 0211)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.support.store import DIRECTORY, StoreHarness
from tests.unit.store.log.test_journal import send, store_with

from understudy.message import Message
from understudy.store.log.operations import Append
from understudy.store.log.records import RecordType
from understudy.store.log.resting import RESTING_BYTES_MAX, RESTING_TURNS_MAX
from understudy.tools.inspect import read_log


class _Open:
    """A store whose log writer is idle, and an open transaction with records in it."""

    def __init__(self) -> None:
        self.rig = StoreHarness(random.Random(1))
        self.store = store_with(self.rig)
        self.tx_id = self.store.next_id()
        self.queue_id = self.rig.queue_ids[0]

    def send(self, size: int = 100) -> None:
        message = Message(bytes(size), address="x")
        message.assign_id(self.store.next_id())
        self.store.store_message(message, self.rig.address_ids[0], (self.queue_id,), tx_id=self.tx_id)

    def turn(self) -> bool:
        """One turn of the loop; whether everything is durable after it."""
        self.store.flush()
        self.rig.time.advance(1000)
        return self.store.context.durable == self.store.last_sequence


def test_records_of_an_open_transaction_are_written_with_its_commit() -> None:
    made = _Open()
    made.send()
    assert not made.turn()
    made.store.store_acknowledges(made.queue_id, (7,), tx_id=made.tx_id)
    made.store.store_duplicate_ids(made.rig.address_ids[0], [b"id"], tx_id=made.tx_id)
    assert not made.turn()
    made.store.store_commit(made.tx_id)
    assert made.turn()
    frames = [logged.frame for logged in read_log(made.rig.disk("judge"), DIRECTORY)]
    assert len({frame.batch for frame in frames[-4:]}) == 1
    assert frames[-5].batch != frames[-4].batch


@pytest.mark.parametrize("end", ["prepare", "rollback", "other record", "waits"])
def test_records_of_an_open_transaction_are_written_when_something_needs_them_or_follows(end: str) -> None:
    made = _Open()
    made.send()
    assert not made.turn()
    durable: list[int] = []
    if end == "prepare":
        made.store.store_prepare(made.tx_id, b"xid")
    elif end == "rollback":
        made.store.store_rollback(made.tx_id)
    elif end == "other record":
        send(made.rig, 10)
    else:
        made.store.context.when_durable(made.store.last_sequence, durable.append, 1)
    assert made.turn()
    assert durable == ([1] if end == "waits" else [])


def test_records_of_open_transactions_after_another_record_are_written_with_it() -> None:
    made = _Open()
    send(made.rig, 10)
    made.send()
    assert made.turn()


def test_many_bytes_of_an_open_transaction_do_not_wait_for_its_commit() -> None:
    made = _Open()
    made.send(RESTING_BYTES_MAX // 2)
    assert not made.turn()
    made.send(RESTING_BYTES_MAX // 2)
    assert made.turn()


def test_records_of_an_open_transaction_wait_for_some_turns_only() -> None:
    made = _Open()
    made.send()
    assert [made.turn() for _ in range(RESTING_TURNS_MAX + 1)] == [False] * RESTING_TURNS_MAX + [True]
    # they begin again with the next records
    made.send()
    assert not made.turn()


def test_acknowledgements_that_nothing_waits_for_rest_until_they_are_to_be_finished() -> None:
    made = _Open()
    store, resting = made.store, made.store.context.resting
    asked = []
    for number in (7, 8):
        before = store.context.appended
        store.store_acknowledges(made.queue_id, (number,))
        asked.append(resting.add_for_a_time(before, store.context.appended))
        assert not made.turn()
    assert asked == [True, False]
    resting.finish()
    assert made.turn()


def test_an_acknowledgement_that_rests_goes_with_the_next_record() -> None:
    made = _Open()
    before = made.store.context.appended
    made.store.store_acknowledges(made.queue_id, (7,))
    made.store.context.resting.add_for_a_time(before, made.store.context.appended)
    assert not made.turn()
    send(made.rig, 10)
    assert made.turn()
    frames = [logged.frame for logged in read_log(made.rig.disk("judge"), DIRECTORY)]
    assert len({frame.batch for frame in frames[-2:]}) == 1


def test_a_store_that_is_closed_writes_the_records_of_open_transactions() -> None:
    made = _Open()
    made.send()
    assert not made.turn()
    made.rig.store.close(lambda: None)
    made.rig.time.advance(1000)
    kinds = [logged.frame.kind for logged in read_log(made.rig.disk("judge"), DIRECTORY)]
    assert kinds[-2:] == [RecordType.MESSAGE_ADD, RecordType.SEAL]


def test_a_batch_hurries_unless_all_its_records_are_without_an_answer() -> None:
    made = _Open()
    store, resting = made.store, made.store.context.resting
    hurries: list[bool] = []
    submit = store._journal._writer.submit

    def submitted(operations: Any, done: Any) -> None:
        if isinstance(operations[0], Append):
            hurries.append(operations[0].hurries)
        submit(operations, done)

    store._journal._writer.submit = submitted  # type: ignore[method-assign]  # the writer of this test alone
    for answered in ((False, False), (False, True), (True, False), (False,)):
        for each in answered:
            before = store.context.appended
            send(made.rig, 10)
            if not each:
                resting.add_unanswered(before, store.context.appended)
        assert made.turn()
    assert hurries == [False, True, True, False]
