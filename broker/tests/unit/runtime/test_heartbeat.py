"""The lag of the event loop is the delay of each beat after its time."""

from __future__ import annotations

import asyncio

from understudy.runtime.management.heartbeat import PERIOD_MS, Heartbeat

MS = 1_000_000


def test_the_lag_of_each_beat_is_counted_and_the_call_is_made() -> None:
    async def main() -> None:
        now_ns, calls = [0], []
        heartbeat = Heartbeat(lambda: calls.append(now_ns[0]), lambda: now_ns[0])
        heartbeat.start()
        for late_ms in (0, 30, 7):
            now_ns[0] += (PERIOD_MS + late_ms) * MS
            heartbeat.stop()
            heartbeat.beat()
        heartbeat.stop()
        assert sum(heartbeat.lag.counts) == len(calls) == 3
        assert heartbeat.lag.total_ns == 37 * MS

    asyncio.run(main())


def test_a_stopped_heartbeat_has_no_timer() -> None:
    async def main() -> None:
        calls: list[int] = []
        heartbeat = Heartbeat(lambda: calls.append(1))
        heartbeat.start()
        timer = heartbeat._timer
        assert timer is not None
        heartbeat.stop()
        assert timer.cancelled()
        heartbeat.stop()

    asyncio.run(main())
