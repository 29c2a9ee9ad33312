"""A run in which a reader meets damaged records after a failover, and which then fails over and restarts once more.

Other than in the seeds with the fault ``DAMAGE``, no node sets damaged records aside at its start
(``quarantine-damaged-records`` is off), and every damaged message is read while it waits. So exactly the damaged
messages must be in the quarantine at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Final

from understudy.testing.runs.checkers import Violation
from understudy.testing.runs.cluster_configuration import QUEUE
from understudy.testing.runs.damage import browse, count_by_management, quarantined
from understudy.testing.runs.plan import Plan
from understudy.testing.runs.scenario_run import ScenarioRun
from understudy.testing.runs.strikes import JOURNAL
from understudy.testing.runs.workload import ClientPlan, ConsumerJob, ProducerJob
from understudy.testing.sim.loop import SimLoop

#: Virtual seconds that one step of the run may take.
_STEP_S: Final = 15.0
_READER: Final = "reader"


class Meeting(Enum):
    """The operation that reads the damaged records."""

    DELIVERY = "delivery"
    RECEIVE_NO_WAIT = "receive-no-wait"
    BROWSE = "browse"
    MANAGEMENT = "management"


class DamagedPairRun(ScenarioRun):
    """Damages waiting messages after a failover; the seed chooses the reader that meets them."""

    liveness_s = 30.0

    def __init__(self, plan: Plan, loop: SimLoop) -> None:
        self.meeting = list(Meeting)[plan.seed % len(Meeting)]
        size_bytes = plan.producers[0].size_bytes
        first = plan.consumers[0]
        plan = replace(
            plan,
            pair=replace(plan.pair, quarantine=False, max_size_bytes=-1),
            producers=(
                ProducerJob("p0", QUEUE, 20, size_bytes, 0.0, window=5),
                ProducerJob("p1", QUEUE, 20, size_bytes, 0.0, window=5, batch=5),
            ),
            consumers=(
                ConsumerJob(
                    "c0",
                    QUEUE,
                    "individual" if first.mode == "xa" else first.mode,
                    first.batch,
                    polls=self.meeting is Meeting.RECEIVE_NO_WAIT,
                    idle_s=first.idle_s,
                ),
            ),
            faults=(),
            heal_s=6 * _STEP_S,
        )
        super().__init__(plan, loop)

    async def run(self) -> None:
        for line in self.plan.describe():
            self.loop.record(f"plan {line}")
        nodes = self.cluster.nodes
        self.cluster.start("a")
        self.cluster.start("b")
        for name in self._producers:
            self._start_client(name)
        await self._step("stuck", "the producers did not end", lambda: not self._working & self._producers.keys())
        # the passive node reads the rest of the log
        await asyncio.sleep(1.0)
        nodes["a"].wanted = False
        self.cluster.kill("a")
        await self._step("stuck", "b did not take over", lambda: nodes["b"].state == "active")
        self.strikes.damage(0, 1 + self.plan.seed % 3)
        if not self.strikes.damaged:
            self.violations.append(Violation("quarantine", "no message could be damaged"))
        self._meet()
        await self._step("quarantine", "not all damaged messages were set aside", self._all_set_aside)
        self.cluster.kill("b")
        self.cluster.start("a")
        await self._step("stuck", "no node became active over the damage", lambda: self.cluster.active() is not None)
        for name in self._consumers:
            if name not in self._clients:
                self._start_client(name)
        self.phase = "healing"
        await self._finish_clients()
        self.phase = "stopping"
        await self._stop_nodes()
        if self.set_aside != set(self.strikes.damaged.values()):
            self.violations.append(Violation("quarantine", f"it has {self.set_aside} of {self.strikes.damaged}"))

    async def _step(self, check: str, text: str, condition: Callable[[], bool]) -> None:
        if not await self._wait(condition, self.loop.time() + _STEP_S):
            self.violations.append(Violation(check, f"{text} in {_STEP_S} s"))

    def _all_set_aside(self) -> bool:
        return len(quarantined(self.storage.volume, JOURNAL)) >= len(self.strikes.damaged)

    def _meet(self) -> None:
        if self.meeting in (Meeting.DELIVERY, Meeting.RECEIVE_NO_WAIT):
            for name in self._consumers:
                self._start_client(name)
            return
        process = self.loop.new_process(_READER)
        self.network.add_host(_READER)
        entropy = self.loop.random(f"entropy {process.label}").randbytes
        look = browse if self.meeting is Meeting.BROWSE else count_by_management
        process.create_task(look(ClientPlan(self.plan.url, self.book.now_ms, entropy, self.book), QUEUE))
