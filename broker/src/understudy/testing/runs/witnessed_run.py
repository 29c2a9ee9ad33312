"""One run of a replicated pair with a witness on a third host."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import ClassVar, Final

from understudy.errors import LockManagerUnavailable
from understudy.testing.runs.checkers import Violation
from understudy.testing.runs.cluster import SimNode
from understudy.testing.runs.plan import Plan
from understudy.testing.runs.replicated_run import ReplicatedRun
from understudy.testing.runs.strikes import Strikes
from understudy.testing.runs.witnessed_strikes import WitnessedStrikes
from understudy.testing.sim.environment import SimClock, Skew
from understudy.testing.sim.loop import SimLoop
from understudy.testing.sim.storage import SharedStorage
from understudy.testing.sim.witness import SimWitness
from understudy.testing.sim.witnessed_storage import WitnessedStorage

#: Lease of the lock, and the longest lease of the witness, which is also its wait after a start. Milliseconds.
_LEASE_MS: Final = 3_000
_LEASE_MS_MAX: Final = 4_000
#: Interval in s at which the permissions of the nodes are compared. Virtual seconds.
_LOOK_S: Final = 0.02


class WitnessedRun(ReplicatedRun):
    """One run of a replicated pair whose lock manager is a witness."""

    storage_class: ClassVar[type[SharedStorage]] = WitnessedStorage
    strikes_class: ClassVar[type[Strikes]] = WitnessedStrikes

    def __init__(self, plan: Plan, loop: SimLoop) -> None:
        super().__init__(plan, loop)
        assert isinstance(self.strikes, WitnessedStrikes)
        self.strikes.witnesses = self.witnesses
        self.strikes.expected.add(LockManagerUnavailable)

    def make_storages(self) -> list[SharedStorage]:
        """See ``ReplicatedRun``; also makes the witness."""
        self.witnesses = self.make_witnesses()
        for witness in self.witnesses:
            self.network.add_host(witness.host)
        storages = super().make_storages()
        for storage in storages:
            assert isinstance(storage, WitnessedStorage)
            storage.witnesses = self.witnesses
        return storages

    def make_witnesses(self) -> Sequence[SimWitness]:
        """The witnesses, not started."""
        return [self.make_witness("witness")]

    def make_witness(self, host: str, group: bytes = b"") -> SimWitness:
        """A witness on a host of its own."""
        stream = random.Random(f"{self.plan.seed}/{host} clock")
        skew = Skew(boot_ms=stream.randrange(10**9), rate=stream.choice((1.0, stream.uniform(0.999, 1.001))))
        return SimWitness(self.loop, host, lease_ms=_LEASE_MS, lease_max_ms=_LEASE_MS_MAX, skew=skew, group=group)

    async def run(self) -> None:
        for witness in self.witnesses:
            witness.start()
        self._look_at_permissions()
        await super().run()
        failures = [error for witness in self.witnesses for error in witness.failures]
        self.violations += [Violation("ended", f"a witness ended with {error}") for error in failures]

    def _look_at_permissions(self) -> None:
        """Add a violation when two nodes may confirm at the same moment, each by its own clock."""
        for pair in self.pairs():
            permitted = [node.name for node in pair if self._permitted(node)]
            if len(permitted) > 1:
                text = f"{' and '.join(permitted)} may confirm at the same time, {self.loop.time():.3f} s"
                self.violations.append(Violation("two-permitted", text))
                return
        self.loop.call_later(_LOOK_S, self._look_at_permissions)

    def _permitted(self, node: SimNode) -> bool:
        if node.server is None or not node.running:
            return False
        return node.server.policy.fence.proved_until_ms >= SimClock(self.loop, node.skew).monotonic_ms()
