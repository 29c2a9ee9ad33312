"""When a node does not look for a target (docs/operate/scale-down.md)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from understudy.config.high_availability import HighAvailabilityPolicy, ScaleDownConfiguration
from understudy.errors import BrokerError, DiskFailed
from understudy.runtime.members.scale_down import NodeScaleDown


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
