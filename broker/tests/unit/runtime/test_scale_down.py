"""When a node does not look for a target (docs/operate/scale-down.md)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from understudy.config.high_availability import (
    HighAvailabilityPolicy,
    ReplicationConfiguration,
    Role,
    ScaleDownConfiguration,
)
from understudy.errors import BrokerError, DiskFailed
from understudy.runtime.members.scale_down import NodeScaleDown
from understudy.store.replication.replica_state import ReplicaState, ReplicaStatus, write_replica_state
from understudy.testing.sim.disk import SimVolume


class LookedFor(Exception):
    """The search has begun."""


class Searching:
    """A broker whose log is asked for an interrupted scale-down, with which the search begins."""

    @property
    def store(self) -> object:
        raise LookedFor


@pytest.mark.parametrize(
    ("error", "isolating", "searches"),
    [(None, False, True), (DiskFailed("full"), False, False), (None, True, False)],
)
def test_messages_stay_after_an_error_and_during_isolation(
    error: BrokerError | None, isolating: bool, searches: bool
) -> None:
    current = SimpleNamespace(ha_policy=HighAvailabilityPolicy(scale_down=ScaleDownConfiguration()))
    parts: Any = SimpleNamespace(configuration=SimpleNamespace(current=current))
    owner: Any = SimpleNamespace(error=error, isolating=isolating)
    broker: Any = Searching()
    made = NodeScaleDown(parts, owner)
    if searches:
        with pytest.raises(LookedFor):
            asyncio.run(made.choose_target(broker))
    else:
        asyncio.run(made.choose_target(broker))
    assert made.target_id is None


@pytest.mark.parametrize(
    ("of_node", "copy", "searches"),
    [(None, True, True), (None, False, False), ("n", False, True)],
    ids=["copy", "served", "served, and colocated"],
)
def test_a_backup_that_has_served_its_data_serves_it_again(of_node: str | None, copy: bool, searches: bool) -> None:
    """The record of the move would not tell its primary which messages are new. A colocated one has no acceptors."""
    disk = SimVolume().disk("host")
    disk.make_directory("/journal")
    if copy:
        write_replica_state(disk, "/journal", ReplicaState(ReplicaStatus.IN_SYNC))
    policy = HighAvailabilityPolicy(
        role=Role.BACKUP,
        scale_down=ScaleDownConfiguration(),
        replication=ReplicationConfiguration(of_node=of_node),
    )
    current = SimpleNamespace(ha_policy=policy, journal_directory="/journal", large_messages_directory="/large")
    parts: Any = SimpleNamespace(configuration=SimpleNamespace(current=current), environment=SimpleNamespace(disk=disk))
    owner: Any = SimpleNamespace(error=None, isolating=False)
    made = NodeScaleDown(parts, owner)

    def begin(broker: Any) -> None:
        raise LookedFor

    made._end = begin  # type: ignore[assignment,method-assign]  # the first thing that a search needs
    broker: Any = SimpleNamespace(store=SimpleNamespace(state=SimpleNamespace(settings={})))
    if searches:
        with pytest.raises(LookedFor):
            asyncio.run(made.choose_target(broker))
    else:
        asyncio.run(made.choose_target(broker))
    assert (made.target_id, made.outcome) == (None, None)
