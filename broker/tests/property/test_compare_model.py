"""Two copies of a log with a known split: the verdict is that of a naive comparator.

Goal: never call a prefix diverged, find the very record of the split, and carry over exactly
the messages that one side alone has, also where both sides gave out the same ids. Method: histories
of the store's rig, forked and gone on with separately; the models are replayed in the plainest way.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support.copies import Fork, act, fork, go_on, live, only_here, restart, settled_there, write_out
from tests.support.store import DIRECTORY, StoreHarness

from understudy.message import DUPLICATE_ID, Message
from understudy.runtime.base.disk import RealDisk
from understudy.tools.compare import Comparison, Relation, compare, replay_set
from understudy.tools.contents import live_messages, read_contents
from understudy.tools.export import (
    ExportedMessage,
    ExportHeader,
    end_line,
    header_line,
    message_line,
    parse_line,
    queue_line,
)
from understudy.tools.inspect import read_log
from understudy.tools.log_copy import CopyState, LogCopy


def forked(seed: int, before: int, restarts: int, **options: int) -> Fork:
    rig = StoreHarness(random.Random(seed), **options)
    rig.activate("a")
    act(rig, before)
    for _ in range(restarts):
        restart(rig)
        act(rig, before // 2)
    both = fork(rig, random.Random(seed + 1))
    both.right.settings = both.left.settings
    return both


def naive_records(rig: StoreHarness) -> list[tuple[int, int, bytes]]:
    """Every record of the log with its bytes."""
    found = []
    for logged in read_log(rig.disk("naive"), DIRECTORY):
        path = f"{DIRECTORY}/segment-{logged.number:012d}-{logged.epoch:010d}.log"
        frame = logged.frame
        content = rig.volume.content(path)
        found.append((logged.epoch, frame.sequence, content[frame.offset : frame.offset + frame.length]))
    return found


def naive_split(left: StoreHarness, right: StoreHarness) -> tuple[Relation, int]:
    """Relation and first different sequence, one record after the other."""
    mine = {sequence: (epoch, raw) for epoch, sequence, raw in naive_records(left)}
    theirs = {sequence: (epoch, raw) for epoch, sequence, raw in naive_records(right)}
    common = sorted(mine.keys() & theirs.keys())
    different = [sequence for sequence in common if mine[sequence] != theirs[sequence]]
    if not common or (common[0] in different and common[0] > 1):
        # the beginning of one was removed up to after the end, or the split, of the other: nothing can be proved
        return Relation.UNKNOWN, 0
    if different:
        return Relation.DIVERGED, different[0]
    if max(mine) == max(theirs):
        return Relation.IDENTICAL, 0
    first = min(max(mine), max(theirs)) + 1
    return (Relation.PREFIX, first) if max(mine) < max(theirs) else (Relation.EXTENSION, first)


def compare_rigs(left: StoreHarness, right: StoreHarness, directory: Path) -> Comparison:
    """Both stores written out and compared."""
    directories = [str(write_out(left, directory / "left")), str(write_out(right, directory / "right"))]
    return compare(RealDisk(), directories, sample=3)


SETTINGS = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SETTINGS
@given(
    seed=st.integers(0, 2**32),
    before=st.integers(0, 60),
    restarts=st.integers(0, 2),
    left_more=st.one_of(st.none(), st.integers(0, 60)),
    right_more=st.one_of(st.none(), st.integers(0, 60)),
)
# the rest of the right copy begins with the first record of its own
@example(seed=60, before=32, restarts=2, left_more=0, right_more=29)
def test_a_pair_is_judged_as_the_naive_comparator_does(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    before: int,
    restarts: int,
    left_more: int | None,
    right_more: int | None,
) -> None:
    both = forked(seed, before, restarts)
    if left_more is not None:
        go_on(both.left, left_more)
    if right_more is not None:
        go_on(both.right, right_more)
    comparison = compare_rigs(both.left, both.right, tmp_path_factory.mktemp("stores"))
    (pair,) = comparison.pairs
    assert (pair.relation, pair.sequence) == naive_split(both.left, both.right)
    assert [copy.state for copy in comparison.copies] == ["whole", "whole"]
    if left_more is not None and right_more is not None:
        assert pair.relation in (Relation.DIVERGED, Relation.UNKNOWN)
        assert pair.relation is Relation.UNKNOWN or pair.sequence >= both.sequence + 1
    positions = [(copy.epoch, copy.last_sequence) for copy in comparison.copies]
    assert comparison.newest == [index for index, position in enumerate(positions) if position == max(positions)]
    if pair.relation not in (Relation.IDENTICAL, Relation.UNKNOWN):
        for side, here, there in (
            (pair.left_only, both.left, both.right),
            (pair.right_only, both.right, both.left),
        ):
            assert side.replay_messages == len(only_here(here, there, both.operations))
            assert side.settled == len(settled_there(here, there, both.operations))
            tail = [record for record in naive_records(here) if record[1] >= pair.sequence]
            assert side.records == len(tail)
            assert side.messages == sum(raw[20] == 9 for _, _, raw in tail)
            assert side.commits == sum(raw[20] == 14 for _, _, raw in tail)


@pytest.mark.parametrize("seed", range(24))
def test_copies_that_were_consolidated_are_judged_alike(tmp_path: Path, seed: int) -> None:
    stream = random.Random(seed)
    both = forked(seed, 300, 0, compact_segments_min=stream.choice((2, 3, 3)), compact_percent=75)
    for side in (both.left, both.right):
        if stream.random() < 0.8:
            go_on(side, stream.choice((10, 40, 80, 300)))
    (pair,) = compare_rigs(both.left, both.right, tmp_path).pairs
    copies = [LogCopy(RealDisk(), str(tmp_path / name)) for name in ("left", "right")]
    first = max(copy.first_sequence for copy in copies)
    if pair.relation is Relation.UNKNOWN:
        # one stands for so much by its snapshot that nothing is left in common
        assert first > both.sequence
        return
    assert (pair.relation, pair.sequence) == naive_split(both.left, both.right)
    for side, here, there in ((pair.left_only, both.left, both.right), (pair.right_only, both.right, both.left)):
        assert side.replay_messages == len(only_here(here, there, both.operations))
        assert side.settled == len(settled_there(here, there, both.operations))


@SETTINGS
@given(
    seed=st.integers(0, 2**32), before=st.integers(1, 60), left_more=st.integers(0, 40), right_more=st.integers(0, 40)
)
def test_export_and_import_give_the_union_once(
    tmp_path_factory: pytest.TempPathFactory, seed: int, before: int, left_more: int, right_more: int
) -> None:
    both = forked(seed, before, 0)
    go_on(both.left, left_more)
    go_on(both.right, right_more)
    tmp = tmp_path_factory.mktemp("stores")
    left, right = str(write_out(both.left, tmp / "left")), str(write_out(both.right, tmp / "right"))
    lines = export(right, [left])
    held = [(queue, body) for queue, body in bodies(both.left, live(both.left.model))]
    seen: set[str] = set()
    for _ in range(2):
        header = parse_line(lines[0], None)
        assert isinstance(header, ExportHeader)
        for line in lines[1:]:
            parsed = parse_line(line, header)
            if isinstance(parsed, ExportedMessage):
                sent = parsed.to_send("somewhere")
                duplicate_id = str(sent.properties[DUPLICATE_ID])
                if duplicate_id not in seen:
                    seen.add(duplicate_id)
                    held.append((parsed.queue, parsed.message.encoded))
    wanted = [
        *bodies(both.left, live(both.left.model)),
        *bodies(both.right, only_here(both.right, both.left, both.operations)),
    ]
    assert Counter(held) == Counter(wanted)


def export(directory: str, others: list[str]) -> list[str]:
    copy, contents, counterparts = replay_set(RealDisk(), directory, others)
    assert copy.node_id is not None
    lines, queue = [header_line(ExportHeader(copy.node_id, *copy.position, directory))], None
    for message in live_messages(copy, contents, counterparts):
        if message.queue != queue:
            queue = message.queue
            lines.append(queue_line(message.queue, message.address))
        lines.append(message_line(message))
    return [*lines, end_line(len(lines), 0)]


def bodies(rig: StoreHarness, keys: set[tuple[int, int]]) -> list[tuple[str, bytes]]:
    """Queue name and message, without its id."""
    queues = rig.model.contents()["queues"]
    return [
        (queues[queue].name, Message.decode(rig.bodies[message]).replace().encoded)
        for queue, message in sorted(keys)
        if queue in queues
    ]


def test_all_small_forks(tmp_path: Path) -> None:
    number = 0
    for before in range(3):
        for left_more in (None, 0, 1, 2):
            for right_more in (None, 0, 1, 2):
                number += 1
                both = forked(1000 + number, before, 0)
                if left_more is not None:
                    go_on(both.left, left_more)
                if right_more is not None:
                    go_on(both.right, right_more)
                directory = tmp_path / str(number)
                directory.mkdir()
                (pair,) = compare_rigs(both.left, both.right, directory).pairs
                assert (pair.relation, pair.sequence) == naive_split(both.left, both.right), number
                if pair.relation is not Relation.IDENTICAL:
                    assert pair.left_only.replay_messages == len(only_here(both.left, both.right, both.operations))
                    assert pair.right_only.settled == len(settled_there(both.right, both.left, both.operations))


@pytest.mark.parametrize("zeros", [False, True])
def test_a_copy_cut_at_any_byte_is_a_prefix(tmp_path: Path, zeros: bool) -> None:
    rig = StoreHarness(random.Random(5))
    rig.activate("a")
    act(rig, 30)
    # one batch with much in it
    for _ in range(12):
        rig.operate()
    rig.settle()
    whole = write_out(rig, tmp_path / "whole")
    cut = write_out(rig, tmp_path / "cut")
    copy = LogCopy(RealDisk(), str(whole))
    name, end = copy.extents[-1].name, copy.extents[-1].end
    content = (whole / name).read_bytes()
    for at in range(4096, end + 1, 37):
        (cut / name).write_bytes(content[:at] + (bytes(len(content) - at) if zeros else b""))
        comparison = compare(RealDisk(), [str(whole), str(cut)])
        (pair,) = comparison.pairs
        assert pair.relation in (Relation.EXTENSION, Relation.IDENTICAL), at
        assert comparison.newest[0] == 0
        if at < 4096 + 64:
            # not even the record that begins the epoch is left, which was there before the file had its name
            assert comparison.copies[1].state == "damaged"
            continue
        assert comparison.copies[1].state in ({"cut", "whole"} if zeros else {"short"}), at
        assert pair.right_only.records == 0


def test_a_flipped_bit_is_damage_and_ends_the_copy(tmp_path: Path) -> None:
    rig = StoreHarness(random.Random(6))
    rig.activate("a")
    act(rig, 200)
    whole, bad = write_out(rig, tmp_path / "whole"), write_out(rig, tmp_path / "bad")
    names = sorted(path.name for path in bad.iterdir() if path.name.startswith("segment"))
    content = bytearray((bad / names[1]).read_bytes())
    content[6000] ^= 1
    (bad / names[1]).write_bytes(content)
    # the seals alone do not show it; every byte does
    assert LogCopy(RealDisk(), str(bad)).state is CopyState.WHOLE
    comparison = compare(RealDisk(), [str(whole), str(bad)], full=True)
    assert comparison.copies[1].state == "damaged"
    problem = comparison.copies[1].problem
    assert problem is not None
    assert problem.file.endswith(names[1])
    assert comparison.pairs[0].relation is Relation.EXTENSION
    assert comparison.damaged
    # and so does whatever reads the records
    copy = LogCopy(RealDisk(), str(bad))
    read_contents(copy)
    assert copy.state is CopyState.DAMAGED


def test_what_a_producer_sent_to_both_is_not_brought_over(tmp_path: Path) -> None:
    rig = StoreHarness(random.Random(7))
    rig.activate("a")
    rig.address()
    rig.queue()
    rig.settle()
    both = fork(rig, random.Random(8))
    for side in (both.left, both.right):
        go_on(side, 0)
        assert side.store is not None
        for duplicate_id in (b"sent again", b"only " + side.owner.encode() + str(id(side)).encode()):
            message = Message(b"one", address="x")
            message.assign_id(side.store.next_id())
            side.store.store_message(message, side.address_ids[0], side.queue_ids[:1], duplicate_id=duplicate_id)
        side.settle()
    (pair,) = compare_rigs(both.left, both.right, tmp_path).pairs
    assert pair.left_only.messages == pair.right_only.messages == 2
    assert pair.left_only.replay_messages == pair.right_only.replay_messages == 1
