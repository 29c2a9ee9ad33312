"""Goal: journal-min-files prepares that many segments ahead; syncing off loses the newest at a power loss
and nothing else: the remaining log is a prefix, never damaged, and required syncs are done.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.support.store import DIRECTORY, StoreHarness
from tests.support.store_model import contents_of

from understudy.store.log.batch import Sync
from understudy.store.log.preallocation import AHEAD_MAX
from understudy.store.log.reading.follower import recover


def rig_with(seed: int, **settings: object) -> StoreHarness:
    rig = StoreHarness(random.Random(seed))
    rig.settings = replace(rig.settings, **settings)  # type: ignore[arg-type]
    return rig


def blank(rig: StoreHarness) -> int:
    """Prepared segments that hold nothing yet."""
    return sum(not rig.volume.content(path)[4096:].strip(b"\0") for path in rig.segments())


@pytest.mark.parametrize(("ahead", "wanted"), [(-1, 1), (1, 1), (3, 3), (50, AHEAD_MAX)])
def test_segments_are_prepared_ahead(ahead: int, wanted: int) -> None:
    rig = rig_with(1, ahead=ahead)
    rig.activate("a")
    for _ in range(150):
        rig.operate()
        rig.settle()
        assert blank(rig) == wanted
    assert len(rig.segments()) > wanted + 1
    done: list[bool] = []
    assert rig.store is not None
    rig.store.close(lambda: done.append(True))
    while not done:
        rig.time.advance(10)
    assert blank(rig) == 0
    state = recover(rig.disk("judge"), DIRECTORY).state
    state.id_cache_size = rig.model.id_cache_size
    rig.model.crash(state.sequence)
    assert contents_of(state)["messages"] == rig.model.contents()["messages"]


def syncs_of(rig: StoreHarness) -> list[int]:
    """Grows with each sync of a file."""
    count = [0]

    def look(operation: str) -> None:
        count[0] += operation == "sync"

    rig.volume.before_operation = look
    return count


def test_messages_wait_for_no_sync_when_it_is_off() -> None:
    counts = {}
    for sync in Sync:
        rig = rig_with(2, sync=sync)
        rig.activate("a")
        rig.queue()
        rig.settle()
        count = syncs_of(rig)
        assert rig.store is not None
        for _ in range(50):
            rig.send()
            rig.settle()
            assert rig.store.context.durable == rig.store.last_sequence
        messages = count[0]
        for _ in range(50):
            tx_id = rig.store.next_id()
            rig.send(tx_id)
            rig.store.store_commit(tx_id)
            rig.settle()
        counts[sync] = (messages, count[0] - messages)
    assert counts[Sync.ALWAYS][0] >= 50
    assert counts[Sync.COMMITS][0] < 20
    assert counts[Sync.COMMITS][1] >= 50
    assert counts[Sync.SELDOM][0] < 20
    assert counts[Sync.SELDOM][1] < 20


@pytest.mark.parametrize("sync", [Sync.COMMITS, Sync.SELDOM])
def test_a_power_loss_leaves_a_prefix(sync: Sync) -> None:
    lost = 0
    for seed in range(60):
        rig = rig_with(seed, sync=sync)
        for life in range(3):
            rig.activate("ab"[life % 2])
            rig.resume_from(rig.model.contents())
            commits: list[int] = []
            for _ in range(rig.stream.randrange(1, 120)):
                rig.operate()
                sequence, name = rig.model.operations[-1][:2] if rig.model.operations else (0, "")
                if name in ("commit", "prepare", "queue", "address", "queue-"):
                    commits.append(sequence)
                assert rig.store is not None
                if rig.stream.random() < 0.5:
                    rig.store.flush()
                    rig.time.advance(rig.stream.randrange(12))
            durable = rig.store.context.durable
            rig.die(power_loss=True)
            state = recover(rig.disk("judge"), DIRECTORY).state
            lost += state.sequence < durable
            for sequence in commits:
                if sequence <= durable and (sync is Sync.COMMITS or _is_binding(rig, sequence)):
                    assert sequence <= state.sequence, seed
            rig.model.crash(state.sequence)
            found = contents_of(state)
            expected = rig.model.contents()
            found.pop("duplicates"), expected.pop("duplicates")
            assert found == expected, seed
    assert lost, "nothing was lost, so nothing was tried"


def _is_binding(rig: StoreHarness, sequence: int) -> bool:
    return any(at == sequence and name in ("queue", "address", "queue-") for at, name, _ in rig.model.operations)
