"""Goal: following a log that another node writes: never ahead of the truth, never wrong about its end."""

from __future__ import annotations

import random

import pytest
from tests.support.store import DIRECTORY, NODE_ID, StoreHarness
from tests.support.store_model import contents_of

from understudy.errors import DiskFailed, JournalCorrupt, WrongNode
from understudy.ids import NodeId
from understudy.store.log.reading.end import ends_before
from understudy.store.log.reading.follower import Follower, recover
from understudy.store.log.reading.replay import find_later_record
from understudy.store.log.records import RecordType, encode_id
from understudy.store.log.segment import HEADER_BLOCK_BYTES, frame, parse_name, seed_of
from understudy.testing.sim.disk import SimDisk, SimFile


def catch_up(follower: Follower) -> None:
    while follower.poll(1 << 20) or not follower.caught_up:
        continue


def active(seed: int = 1) -> StoreHarness:
    rig = StoreHarness(random.Random(seed))
    rig.activate("a")
    rig.queue()
    rig.settle()
    return rig


def newest(rig: StoreHarness) -> str:
    """The segment that is being filled: the last one with records."""
    used = [path for path in rig.segments() if rig.volume.content(path)[HEADER_BLOCK_BYTES:].strip(b"\0")]
    return used[-1]


def test_an_empty_directory_is_an_empty_log() -> None:
    rig = StoreHarness(random.Random(1))
    follower = rig.follower("b")
    assert follower.poll(100) == 0
    assert follower.caught_up
    assert follower.position is None
    follower.finish()
    assert follower.ends() == []
    assert follower.state.sequence == 0


def test_follows_in_small_steps() -> None:
    rig = active()
    follower = rig.follower("b")
    for _ in range(50):
        rig.send()
    rig.settle()
    assert rig.store is not None
    lags = []
    while not follower.caught_up:
        assert follower.poll(1000) > 0 or follower.caught_up
        lags.append(follower.lag_bytes)
    assert len(lags) > 5
    assert lags[0] > 0
    assert lags == sorted(lags, reverse=True)
    assert follower.lag_bytes == 0
    assert follower.state.sequence == rig.store.last_sequence
    rig.send()
    rig.settle()
    assert follower.poll(1 << 20) > 0


def test_further_steps_do_not_look_at_the_directory_until_a_segment_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = active()
    follower = rig.follower("b")
    for _ in range(200):
        rig.send()
    rig.settle()
    assert rig.store is not None
    assert follower.poll(1000) > 0
    lists: list[str] = []
    disk = follower._disk
    looked_up = disk.list
    monkeypatch.setattr(disk, "list", lambda path: lists.append(path) or looked_up(path))
    steps = 0
    while not follower.caught_up:
        follower.poll(1000, further=True)
        steps += 1
    assert follower.state.sequence == rig.store.last_sequence
    assert steps > 10
    assert len(lists) < steps / 2
    # the end of the log is known only after a look at the directory
    assert len(lists) > 0


def test_reading_changes_nothing() -> None:
    rig = active()
    for _ in range(100):
        rig.operate()
    rig.settle()
    before = rig.volume.operations
    recover(rig.disk("b"), DIRECTORY)
    assert rig.volume.operations == before


def test_a_half_written_record_is_not_yet() -> None:
    rig = active()
    follower = rig.follower("b")
    catch_up(follower)
    sequence = follower.state.sequence
    path, (number, offset) = newest(rig), follower.position or (0, 0)
    record = b"".join(frame(RecordType.TX_COMMIT, 0, sequence + 1, offset, seed_of(number, 1), encode_id(1 << 63)))
    file = rig.disk("a").open(path)
    for cut in (1, 10, 24, len(record) - 1):
        file.write(offset, (record[:cut],))
        assert follower.poll(1 << 20) == 0
        assert follower.state.sequence == sequence
    file.write(offset, (record,))
    assert follower.poll(1 << 20) == len(record)
    assert follower.state.sequence == sequence + 1


def test_a_log_that_grows_with_every_read_is_read_in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = active()
    follower = rig.follower("b")
    catch_up(follower)
    lengths: list[int] = []
    read = SimFile.read

    def slow(file: SimFile, offset: int, length: int) -> bytes:
        data = read(file, offset, length)
        lengths.append(length)
        if len(lengths) < 60:  # a slow read: the active node has written meanwhile
            with monkeypatch.context() as inner:
                inner.setattr(SimFile, "read", read)
                rig.send()
                rig.settle()
        return data

    rig.send()
    rig.settle()
    monkeypatch.setattr(SimFile, "read", slow)
    catch_up(follower)
    assert len(lengths) >= 60
    assert max(lengths) < 512 * 1024  # eight times the largest message that is sent here, not the rest of the segment


def test_quiet_asks_with_one_read_whether_something_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = active()
    follower = rig.follower("b")
    assert not follower.quiet(), "nothing was read yet"
    catch_up(follower)
    with monkeypatch.context() as patch:
        for name in ("open", "list", "exists", "modified_ns"):
            patch.setattr(SimDisk, name, lambda *_, name=name, **__: pytest.fail(f"{name} was called"))
        assert follower.quiet()
        assert follower.quiet()
    rig.send()
    rig.settle()
    assert not follower.quiet()
    catch_up(follower)
    assert follower.quiet()


def test_quiet_says_nothing_about_an_empty_or_ended_log() -> None:
    rig = StoreHarness(random.Random(1))
    follower = rig.follower("b")
    follower.poll(1 << 20)
    assert follower.caught_up
    assert not follower.quiet()
    rig = active()
    follower = rig.follower("b")
    assert rig.store is not None
    rig.store.close(lambda: None)
    rig.settle()
    catch_up(follower)
    assert not follower.quiet()


def test_quiet_is_false_when_the_segment_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = active()
    follower = rig.follower("b")
    catch_up(follower)

    def fail(*_: object) -> bytes:
        raise DiskFailed("stale file handle")

    with monkeypatch.context() as patch:
        patch.setattr(SimFile, "read", fail)
        assert not follower.quiet()
    assert follower.quiet()


def test_takeover_reads_only_the_tail() -> None:
    rig = active()
    for _ in range(200):
        rig.send()
    rig.settle()
    follower = rig.follower("b")
    catch_up(follower)
    rig.send()
    rig.settle()
    references = [follower.state.references[queue_id] for queue_id in follower.state.references]
    rig.die(power_loss=False)
    before = follower.state
    store = rig.activate("b", follower)
    assert store.state is before
    assert [store.state.references[queue_id] for queue_id in store.state.references][: len(references)] == references
    assert follower.restarts == 0


def test_starts_over_when_the_new_epoch_ends_before_the_read_records() -> None:
    rig = active()
    third = rig.follower("c")
    rig.send()
    rig.settle()
    backup = rig.follower("b")
    backup.finish()
    # the zombie writes on after the backup has read to the end and before any node reads its epoch
    rig.send()
    rig.settle()
    catch_up(third)
    assert third.state.sequence == backup.state.sequence + 1
    backup.finish = lambda disk: None  # type: ignore[method-assign]  # its position in the log decides
    store = rig.activate("b", backup)
    catch_up(third)
    assert third.restarts == 1
    assert third.state.epoch == store.epoch == 2
    assert third.state.sequence == store.last_sequence
    assert contents_of(third.state) == contents_of(store.state)


def test_steps_back_from_a_prepared_segment_that_was_never_used() -> None:
    rig = active()
    follower = rig.follower("b")
    rig.send()
    assert rig.store is not None
    # fill the segment until the seal is written and nothing follows it yet
    while True:
        rig.send()
        rig.settle()
        catch_up(follower)
        if rig.store.segment_count > 1:
            break
    number = follower.position[0] if follower.position else 0
    rig.die(power_loss=False)
    assert number == 2
    store = rig.activate("c")
    catch_up(follower)
    assert follower.restarts == 0
    assert follower.state.sequence == store.last_sequence


def test_loses_what_the_file_server_lost() -> None:
    for seed in range(20):
        rig = active(seed)
        rig.send()
        rig.settle()
        confirmed = rig.store.context.durable
        for _ in range(5):
            rig.send()
        rig.store.flush()
        rig.volume.before_operation = lambda operation: (
            (_ for _ in ()).throw(KeyboardInterrupt(operation)) if (operation == "sync") else None
        )
        with pytest.raises(KeyboardInterrupt):
            rig.time.advance(1000)
        rig.volume.before_operation = lambda operation: None
        follower = rig.follower("b")
        catch_up(follower)
        assert follower.state.sequence == confirmed + 5
        rig.stop_writing()
        rig.volume.crash_process("a")
        rig.volume.lose_unsynced(random.Random(seed), "a")
        follower.finish()
        cold = recover(rig.volume.copy().disk("judge"), DIRECTORY)
        assert confirmed <= follower.state.sequence == cold.state.sequence
        assert contents_of(follower.state)["messages"] == contents_of(cold.state)["messages"]


def test_another_nodes_log_is_refused() -> None:
    rig = active()
    other = NodeId("11111111-2222-4333-8444-555555555555")
    with pytest.raises(WrongNode, match=NODE_ID):
        Follower(rig.disk("b"), DIRECTORY, node_id=other).poll(100)


def test_damage_before_a_later_batch_names_file_and_offset() -> None:
    rig = active()
    offsets = []
    for _ in range(5):
        rig.send()
        follower = rig.follower("j")
        catch_up(follower)
        rig.settle()
        offsets.append(follower.position[1] if follower.position else 0)
    path = newest(rig)
    rig.volume.flip_bit(path, offsets[2] + 30, 1)
    with pytest.raises(JournalCorrupt) as caught:
        recover(rig.disk("b"), DIRECTORY)
    assert (caught.value.file, caught.value.offset) == (path, offsets[2])
    # the last batch cannot be distinguished from one that was never synced: it is cut
    rig.volume.flip_bit(path, offsets[2] + 30, 1)
    rig.volume.flip_bit(path, offsets[4] + 30, 1)
    assert recover(rig.disk("b"), DIRECTORY).position == (1, offsets[4])


def test_a_record_that_is_read_wrong_from_the_cache_is_no_damage() -> None:
    rig = active()
    for _ in range(5):
        rig.send()
        rig.settle()
    right = recover(rig.disk("b"), DIRECTORY).position
    rig.volume.wrong_reads.add(newest(rig), 4096 + 300, 1, cached=True)
    assert recover(rig.disk("b"), DIRECTORY).position == right


@pytest.mark.parametrize("offset", [20, HEADER_BLOCK_BYTES + 20], ids=["header", "first record of the epoch"])
def test_the_beginning_of_a_segment_is_read_again_past_the_cache(offset: int) -> None:
    rig = active()
    rig.send()
    rig.settle()
    right = recover(rig.disk("b"), DIRECTORY).position
    rig.volume.wrong_reads.add(rig.segments()[0], offset, 1, cached=False)
    with pytest.raises(JournalCorrupt):
        recover(rig.disk("b"), DIRECTORY)
    rig.volume.wrong_reads.end()
    rig.volume.wrong_reads.add(rig.segments()[0], offset, 1, cached=True)
    assert recover(rig.disk("b"), DIRECTORY).position == right


def test_a_missing_segment_in_the_middle_is_damage() -> None:
    rig = active()
    for _ in range(60):
        rig.send()
    rig.settle()
    rig.die(power_loss=False)
    rig.activate("b")
    rig.settle()
    segments = [path for path in rig.segments() if parse_name(path.rsplit("/", 1)[1])]
    assert len(segments) > 3
    copy = rig.volume.copy()
    copy.disk("x").remove(segments[1])
    with pytest.raises(JournalCorrupt, match="missing") as caught:
        recover(copy.disk("j"), DIRECTORY)
    assert caught.value.file == segments[1]
    copy = rig.volume.copy()
    copy.disk("x").remove(segments[0])
    with pytest.raises(JournalCorrupt, match="no record says"):
        recover(copy.disk("j"), DIRECTORY)


def test_find_later_record_needs_a_later_batch() -> None:
    seed = seed_of(1, 1)
    first = b"".join(frame(RecordType.TX_COMMIT, 0, 8, 5000, seed, bytes(8)))
    data = bytes(40) + first
    assert find_later_record(data, 5000, seed, above=6, after=5000) is None
    assert find_later_record(data, 5000, seed, above=6, after=4999) == 5040
    assert find_later_record(data, 5000, seed, above=8, after=-1) is None
    assert find_later_record(data, 5000, seed_of(2, 1), above=6, after=-1) is None


def test_the_newest_segment_with_records_tells_where_an_epoch_ends() -> None:
    rig = active()
    for _ in range(60):
        rig.send()
    rig.settle()
    disk, follower = rig.disk("b"), recover(rig.disk("b"), DIRECTORY)
    epoch, last = follower.chain.epoch, follower.state.sequence
    assert not ends_before(disk, DIRECTORY, epoch, last)
    assert ends_before(disk, DIRECTORY, epoch, last + 1)
    # a damaged record in the middle hides nothing
    rig.volume.flip_bit(newest(rig), HEADER_BLOCK_BYTES + 50, 1)
    assert not ends_before(disk, DIRECTORY, epoch, last)
    # without a record of the epoch nothing is known: a snapshot may have all of them
    assert not ends_before(disk, DIRECTORY, epoch + 1, last + 1)
