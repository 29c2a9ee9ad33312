"""Goal: the measured time of a sync is the time that a confirmed message waits for the volume."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.understudy.broker.plugins.module_utils import store_measurements
from ansible_collections.understudy.broker.plugins.module_utils.store_measurements import measure_syncs

WRITE_S, SYNC_S = 0.060, 0.002


@pytest.mark.parametrize(("write_s", "sync_s"), [(WRITE_S, 0.0), (0.0, SYNC_S), (WRITE_S, SYNC_S)])
def test_the_write_counts_because_a_synchronous_mount_waits_in_it(
    write_s: float, sync_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    written = os.pwrite

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        now[0] += write_s
        return written(descriptor, data, offset)

    def fsync(descriptor: int) -> None:
        now[0] += sync_s

    monkeypatch.setattr(store_measurements.os, "pwrite", pwrite)
    monkeypatch.setattr(store_measurements.os, "fsync", fsync)
    monkeypatch.setattr(store_measurements.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(store_measurements.time, "monotonic", lambda: now[0])
    took, skew_ms = measure_syncs(tmp_path, 0.5)
    assert took == pytest.approx([write_s + sync_s] * len(took))
    assert abs(skew_ms) < 1000
    assert list(tmp_path.iterdir()) == []
