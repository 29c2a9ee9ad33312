"""Named readers against any order of work, commits, deaths and takeovers.

Goal: at every moment, whatever a death loses, a reader that is not dropped finds every record after its committed
position; a reader holds at most one segment more than its limit once a segment has ended since the limit was set; a
confirmed position is never taken back.
"""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.test_consolidation_model import SEEDS, churn, consolidating_rig
from tests.property.test_store_model import RELAXED
from tests.support.store import StoreHarness

from understudy.errors import ManagementError, ResourceNotFound
from understudy.store.log.segment import SEGMENT_BYTES_MIN
from understudy.store.named_readers import LogPosition

NAMES = ("one", "two")


def check(rig: StoreHarness, promised: dict[str, LogPosition]) -> None:
    """Every reader that was promised its records finds them in a copy of the files."""
    assert rig.store is not None
    rig.settle()
    found = rig.sequences()
    for reader in rig.store.readers:
        assert reader.position.sequence >= promised.get(reader.name, reader.position).sequence
        if reader.dropped is None:
            wanted = list(range(reader.position.sequence + 1, found[-1] + 1))
            assert [sequence for sequence in found if sequence > reader.position.sequence] == wanted


def request(rig: StoreHarness, promised: dict[str, LogPosition], limited: dict[str, int]) -> None:
    """One request about a reader. ``limited`` gets the segment in which the limit of a reader was set."""
    store, stream = rig.store, rig.stream
    assert store is not None
    name, readers = stream.choice(NAMES), store.readers
    draw = stream.random()
    limit = stream.choice((3 * SEGMENT_BYTES_MIN, 1 << 30))
    earliest, end = readers.earliest.sequence, readers.confirmed.sequence
    try:
        if draw < 0.4:
            promised[name] = readers.register(name, LogPosition(0, stream.randint(earliest, end)), limit).position
            limited[name] = next(reversed(store.state.segments))
        elif draw < 0.9:
            position = LogPosition(0, stream.randint(min(readers.get(name).position.sequence, end), end))
            promised[name] = readers.commit(name, position).position
        else:
            readers.remove(name)
            promised.pop(name, None)
    except ResourceNotFound:
        assert all(reader.name != name for reader in readers)
    except ManagementError as error:
        if "was dropped" not in str(error):
            raise
        readers.remove(name)
        promised.pop(name, None)
    rig.settle()


@settings(max_examples=60, **RELAXED)
@given(SEEDS, st.lists(st.booleans(), min_size=1, max_size=3))
def test_a_reader_finds_every_record_after_its_position(seed: int, deaths: list[bool]) -> None:
    rig = consolidating_rig(random.Random(seed))
    rig.with_large = False
    rig.activate("n0")
    promised: dict[str, LogPosition] = {}
    limited: dict[str, int] = {}
    for number, power_loss in enumerate(deaths):
        for _ in range(rig.stream.randrange(1, 8)):
            churn(rig, rig.stream.randrange(10, 60))
            rig.settle()
            assert rig.store is not None
            for reader in rig.store.readers:
                # checked when a segment ends; the present one may be as large as a record
                if next(reversed(rig.store.state.segments)) > limited[reader.name]:
                    assert rig.store.readers.held_bytes(reader) <= reader.bytes_max + 2 * SEGMENT_BYTES_MIN
            request(rig, promised, limited)
            check(rig, promised)
        assert rig.store is not None
        confirmed = rig.store.readers.confirmed
        rig.die(power_loss=power_loss)
        rig.activate(f"n{number + 1}")
        assert rig.store is not None
        assert rig.store.readers.confirmed.sequence >= confirmed.sequence
        assert {reader.name for reader in rig.store.readers} >= promised.keys()
        check(rig, promised)
