"""Plans are drawn from the seed, printable, and cover every kind of fault."""

from __future__ import annotations

import random

from understudy.testing.runs.fault_plan import (
    GROUP_KINDS,
    LAST_KINDS,
    LATER_KINDS,
    PAIR_LATER_KINDS,
    PUT_BACK_CHANCES,
    QUORUM_KINDS,
    REPLICATION_KINDS,
    WEIGHTS,
    WITNESS_LATER_KINDS,
    Fault,
    FaultKind,
    draw_faults,
)
from understudy.testing.scenarios.wrong_reads_pair import WRONG_READS_KINDS


def draw(seed: int, **options) -> tuple[Fault, ...]:
    return draw_faults(random.Random(seed), begin_s=1.0, end_s=9.0, count=6, **options)


def test_equal_seeds_draw_equal_plans():
    assert [draw(seed) for seed in range(20)] == [draw(seed) for seed in range(20)]
    assert len({draw(seed) for seed in range(20)}) == 20


def test_faults_lie_in_order_between_the_two_moments():
    for seed in range(100):
        moments = [fault.at_s for fault in draw(seed)]
        assert moments == sorted(moments)
        assert 1.0 <= moments[0] <= moments[-1] <= 9.0
        assert [fault.number for fault in draw(seed)] == list(range(6))


def test_every_kind_is_drawn_and_clients_only_if_there_are_some():
    tables = (
        WEIGHTS,
        LATER_KINDS,
        LAST_KINDS,
        GROUP_KINDS,
        QUORUM_KINDS,
        PAIR_LATER_KINDS,
        PUT_BACK_CHANCES,
        WITNESS_LATER_KINDS,
        WRONG_READS_KINDS,
    )
    assert {kind for table in tables for kind in table} | {FaultKind.DAMAGE} == set(FaultKind)
    drawn = {fault.kind for seed in range(100) for fault in draw(seed, clients=["p", "c"])}
    assert drawn == set(WEIGHTS)
    for kinds in (REPLICATION_KINDS, GROUP_KINDS, QUORUM_KINDS):
        assert {fault.kind for seed in range(100) for fault in draw(seed, weights=kinds)} == set(kinds)
    assert all(fault.kind is not FaultKind.KILL_CLIENT for seed in range(100) for fault in draw(seed))


def test_kinds_can_be_chosen():
    assert {fault.kind for seed in range(20) for fault in draw(seed, weights={FaultKind.KILL: 1})} == {FaultKind.KILL}


def test_the_text_of_a_fault_names_its_effect():
    fault = Fault(3, 1.25, FaultKind.CRASH_IN_DISK, "active", 2.0, 0.5, 7)
    assert str(fault) == "#3 1.250s crash-in-disk active for 2.000s at disk operation 7 (0.50)"
