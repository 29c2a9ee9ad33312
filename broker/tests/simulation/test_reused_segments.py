"""Goal: simulated nodes write over old records, whose sequences are higher, and read none of them."""

from __future__ import annotations

import pytest

from understudy.ports import File
from understudy.store.log.segment import SegmentHeader
from understudy.store.log.segment_pool import SegmentPool
from understudy.testing.scenarios.scenarios import SCENARIOS
from understudy.testing.simulate import quiet_logging


@pytest.mark.parametrize("scenario", ["shared-store", "replication"])
def test_segments_of_a_run_are_made_of_old_files(scenario: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    take = SegmentPool.take

    def noting(self: SegmentPool, header: SegmentHeader, target: str) -> File | None:
        file = take(self, header, target)
        taken.extend([target] if file is not None else [])
        return file

    monkeypatch.setattr(SegmentPool, "take", noting)
    with quiet_logging():
        outcome = SCENARIOS[scenario].run_seed(1)
    assert outcome.violations == ()
    assert len(taken) > 2
