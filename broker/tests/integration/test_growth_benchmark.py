"""``python -m benchmarks growth`` counts correctly, with few messages, queues and connections."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.growth import measure_beside, measure_waiting
from benchmarks.load import CannotRun

pytestmark = pytest.mark.long


@pytest.mark.parametrize("snapshots", [True, False])
def test_messages_that_wait_survive_a_take_over_and_a_start(tmp_path: Path, snapshots: bool) -> None:
    found = measure_waiting(tmp_path, 5_000, 200, snapshots=snapshots, after_s=0.1)
    assert found.load_per_s > 0
    assert found.take_over_s > 0
    assert found.start_cpu_s > 0
    assert found.resident_mib > found.start_resident_mib / 2
    assert "loop" in found.after_threads_s


@pytest.mark.parametrize("what", ["queues", "connections"])
def test_a_message_is_measured_beside_others(tmp_path: Path, what: str) -> None:
    try:
        found = measure_beside(tmp_path, rounds=1, window_ms=200, **{what: (0, 5)})  # type: ignore[arg-type]
    except CannotRun as error:
        pytest.skip(str(error))
    assert [each.count for each in found] == [0, 5]
    assert all(each.cpu_us[0] > 0 and each.per_s[0] > 0 for each in found)
    assert all((each.start_cpu_s > 0) is (what == "queues") for each in found)
