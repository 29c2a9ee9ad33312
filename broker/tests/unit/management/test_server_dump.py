"""server-dump-interval: the summary in the log."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from support.managed import ManagedWorld
from support.routing import text
from understudy.management.events.server_dump import ServerDump


def summaries(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [record for record in caplog.records if record.message == "server summary"]


def test_a_summary_is_logged_at_once_and_at_every_interval(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    node = ManagedWorld()
    node.world.queue("q")
    node.world.session().sends.send(text("m"))
    clock = node.world.clock
    dump = ServerDump(node.services, clock, 5_000)
    clock.advance(0)
    (first,) = summaries(caplog)
    assert (first.queues, first.messages, first.consumers, first.paging) == (1, 1, 0, [])
    clock.advance(10_000)
    assert len(summaries(caplog)) == 3
    dump.close()
    clock.advance(10_000)
    assert len(summaries(caplog)) == 3


@pytest.mark.parametrize("interval_ms", [0, -1])
def test_without_an_interval_no_summary_is_logged(caplog: pytest.LogCaptureFixture, interval_ms: int) -> None:
    caplog.set_level(logging.INFO)
    node = ManagedWorld()
    ServerDump(node.services, node.world.clock, interval_ms)
    node.world.clock.advance(10_000)
    assert summaries(caplog) == []
