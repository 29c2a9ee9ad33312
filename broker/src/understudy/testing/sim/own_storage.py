"""The disk of one node of a replicated pair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from understudy.runtime.base.environment import Environment
from understudy.testing.sim.environment import Skew
from understudy.testing.sim.loop import SimProcess
from understudy.testing.sim.storage import CrashPoint, SharedStorage
from understudy.wire.core.packets_replication import REPLICATION_PROTOCOL, REPLICATION_PROTOCOL_MIN


class OwnStorage(SharedStorage):
    """The disk of one node."""

    older: frozenset[str] = frozenset()
    """Names of nodes that run an older version; see ``PairOptions.older``."""

    def environment(
        self, process: SimProcess, skew: Skew, crash_point: CrashPoint, heard: Callable[[float], None]
    ) -> Environment:
        old = process.name in self.older and process.incarnation == 1
        return replace(
            super().environment(process, skew, crash_point, heard),
            replication_protocol=REPLICATION_PROTOCOL_MIN if old else REPLICATION_PROTOCOL,
        )

    def expire_leases(self, host: str) -> None:
        """A lock on a disk of the own host has no lease."""
