"""Reloads of servers of a process: a server that has ended for its reload is made and started again."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any, cast

import pytest

from understudy.errors import ConfigError, ManagementError
from understudy.runtime.process.hosted_node import HostedNode
from understudy.runtime.process.servers import Servers


class FakeHosted:
    """A node that runs until it is stopped."""

    def __init__(self) -> None:
        self.context = contextvars.copy_context()
        self.ended = asyncio.Event()
        self.reasons: list[str] = []

    async def run(self, started: Callable[[], None]) -> bool:
        started()
        await self.ended.wait()
        return True

    def stop(self, reason: str) -> None:
        self.reasons.append(reason)
        self.ended.set()


class Process:
    """Servers of a process, whose makers make fakes."""

    def __init__(self, *names: str) -> None:
        self.servers = Servers()
        self.made: dict[str, list[FakeHosted]] = {name: [] for name in names}
        self.fault: ConfigError | None = None
        for name in names:
            self.make(name)
            self.servers.makers[name] = lambda name=name: self.make(name)  # type: ignore[misc]  # the name of this turn

    def make(self, name: str) -> None:
        if self.fault is not None:
            raise self.fault
        self.made[name].append(FakeHosted())
        self.servers.nodes[name] = cast(HostedNode, self.made[name][-1])


def run(scenario: Callable[[], Any]) -> None:
    asyncio.run(scenario())


async def turns() -> None:
    """Let every task that can go on do so."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_reload_starts_the_server_again_and_the_others_go_on() -> None:
    async def scenario() -> None:
        process = Process("a", "b")
        process.servers.run(lambda: None)
        ended = asyncio.ensure_future(process.servers.wait_ended())
        await turns()
        process.servers.reload(["a"], "reload", forced=True)
        await turns()
        assert [len(each) for each in process.made.values()] == [2, 1]
        assert process.made["a"][0].reasons == ["reload"]
        assert not ended.done()
        process.servers.reload(["a"], "again", forced=True)
        await turns()
        assert len(process.made["a"]) == 3
        for each in (process.made["a"][-1], process.made["b"][-1]):
            each.ended.set()
        assert await ended

    run(scenario)


def test_the_only_server_of_a_process_is_reloaded_without_the_end_of_the_process() -> None:
    async def scenario() -> None:
        process = Process("a")
        process.servers.run(lambda: None)
        ended = asyncio.ensure_future(process.servers.wait_ended())
        await turns()
        process.servers.reload(["a"], "reload", forced=True)
        await turns()
        assert not ended.done()
        process.made["a"][-1].ended.set()
        assert await ended

    run(scenario)


def test_a_server_that_cannot_be_made_again_ends_the_process_with_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        process = Process("a")
        process.servers.run(lambda: None)
        ended = asyncio.ensure_future(process.servers.wait_ended())
        await turns()
        process.fault = ConfigError("cannot be used")
        process.servers.reload(["a"], "reload", forced=True)
        assert not await ended

    run(scenario)
    assert "a server could not be started again" in caplog.text


def test_a_server_that_is_being_stopped_is_not_reloaded() -> None:
    async def scenario() -> None:
        process = Process("a")
        process.servers.run(lambda: None)
        ended = asyncio.ensure_future(process.servers.wait_ended())
        await turns()
        process.servers.reload(["a"], "reload", forced=True)
        with pytest.raises(ManagementError, match="is being stopped"):
            process.servers.reload(["a"], "twice", forced=True)
        await turns()
        process.made["a"][-1].ended.set()
        assert await ended
        with pytest.raises(ManagementError, match="is being stopped"):
            process.servers.reload(["a"], "too late", forced=True)

    run(scenario)
