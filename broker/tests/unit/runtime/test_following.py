"""How soon a passive node looks at the log again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from understudy.runtime.node.standby import NodeStandby


@pytest.mark.parametrize(
    ("applied", "caught_up", "delay_ms"), [(9, False, 0), (9, True, 50), (0, True, 50), (0, False, 50)]
)
def test_a_look_that_reads_nothing_is_not_repeated_at_once(applied: int, caught_up: bool, delay_ms: int) -> None:
    """A passive node must not use up its processor while the next record is damaged or cannot be read yet."""
    follower = SimpleNamespace(poll=lambda max_bytes, further: applied, caught_up=caught_up)
    pace = SimpleNamespace(delay_ms=50, step_bytes=9, goes_on=lambda: False, polled=lambda read_bytes, took_s: None)
    loop = SimpleNamespace(time=lambda: 0.0)
    parts = SimpleNamespace(watch=SimpleNamespace(pace=pace), loop=loop)
    node: Any = SimpleNamespace(follower=follower, _parts=parts, following_error=None)
    assert NodeStandby._poll_log(node) == delay_ms
