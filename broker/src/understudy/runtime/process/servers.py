"""The servers of a process that its broker.xml names: each ends by itself, and can be started again (ADR 0075).

Not here: the resources of the process (``runtime.process.server``), and backups of other nodes, which a server starts
itself (``runtime.process.backup_process``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from understudy.errors import BrokerError, ManagementError
from understudy.runtime.process.hosted_node import HostedNode

if TYPE_CHECKING:
    from understudy.management.model.node import Server

log = logging.getLogger(__name__)

#: Longest wait for the end of the backups of a process that is being stopped, before its other servers are stopped.
BACKUPS_FIRST_S: Final = 10.0


class Servers:
    """Servers of the process. Implements ``management.view.ServersView``."""

    def __init__(self, forgotten: Callable[[str], None] = lambda name: None) -> None:
        """Args:
        forgotten: Called with the name of a server that the process does not have any more.
        """
        self.nodes: dict[str, HostedNode] = {}
        """The present node of each server, by its name."""
        self.makers: dict[str, Callable[[], None]] = {}
        """Functions that make a new node of a server and put it into ``nodes``. They raise BrokerError."""
        self._running: dict[asyncio.Task[bool], str] = {}
        self._reloading: set[str] = set()
        """Servers that are made and started again when they have ended."""
        self._leaving: set[str] = set()
        """Servers that the file does not have any more; they are forgotten when they have ended."""
        self._forgotten = forgotten
        self._clean: dict[str, bool] = {}
        """Whether each server ended cleanly the last time."""
        self._stopping = False
        self._stops_rest: asyncio.Task[None] | None = None

    def run(self, started: Callable[[], None]) -> None:
        """Start all; ``started`` is called once for each when its start is over, also if it failed."""
        for name in self.nodes:
            self._run(name, started)

    def _run(self, name: str, started: Callable[[], None]) -> None:
        hosted = self.nodes[name]
        task = asyncio.get_running_loop().create_task(hosted.run(started), context=hosted.context)
        self._running[task] = name

    async def wait_ended(self) -> bool:
        """Wait until none runs; whether each ended cleanly the last time."""
        while self._running:
            done, _ = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                name = self._running.pop(task)
                error = task.exception()
                if error is not None:
                    self.nodes[name].context.copy().run(log.critical, "a server has ended", exc_info=error)
                self._clean[name] = error is None and task.result()
                if self._starts_again(name):
                    continue
                if name in self._leaving:
                    self._forget(name)
                    continue
                if self._running:
                    rest = sorted(self._running.values())
                    self.nodes[name].context.copy().run(log.info, "other servers go on", extra={"servers": rest})
        return all(self._clean.values())

    def reload(self, names: Sequence[str], reason: str, *, forced: bool) -> None:
        """Stop servers cleanly, and start them again with the present configuration. None is stopped after an error.

        Args:
            names: At least one.
            forced: Whether also active servers are stopped that no node would replace.

        Raises:
            ManagementError: one of them is being stopped already, or the process is, or no node would serve.
        """
        for name in names:
            if self._stopping or name in self._reloading or name not in self._running.values():
                raise ManagementError(f"server {name!r} is being stopped")
            if not forced:
                _check_replaced(self.nodes[name], alone=len(names) == 1)
        for name in names:
            self._reloading.add(name)
            self.nodes[name].stop(reason)

    def forget(self, name: str, reason: str) -> None:
        """Stop a server that the file does not have any more, and forget it when it has ended."""
        self.makers.pop(name, None)
        if name in self._running.values():
            self._leaving.add(name)
            self.nodes[name].stop(reason)
        else:
            self._forget(name)

    def _forget(self, name: str) -> None:
        self._leaving.discard(name)
        self._clean.pop(name, None)
        self.nodes.pop(name, None)
        self._forgotten(name)

    def reloads(self, name: str) -> bool:
        """Whether a server is being stopped, or was stopped, to be started again by ``reload``."""
        return name in self._reloading

    def is_running(self, name: str) -> bool:
        """Whether a server runs."""
        return name in self._running.values()

    def _starts_again(self, name: str) -> bool:
        """Make and start a server that has ended for its reload. False: it ended otherwise, or cannot be started."""
        if name not in self._reloading or self._stopping:
            self._reloading.discard(name)
            return False
        try:
            self.makers[name]()
        except BrokerError as error:
            facts = {"code": error.code, "error": str(error)}
            self.nodes[name].context.copy().run(log.error, "a server could not be started again", extra=facts)
            self._clean[name] = False
            return False
        finally:
            self._reloading.discard(name)
        self._run(name, lambda: None)
        return True

    def stop(self, reason: str) -> None:
        """Stop all cleanly, the backups first. A second call ends the wait for them and for clients."""
        again, self._stopping = self._stopping, True
        running = [self.nodes[name] for name in self.nodes if name in self._running.values()]
        backups = [each for each in running if each.node.configuration.ha_policy.is_backup]
        if self._stops_rest is not None:
            self._stops_rest.cancel()
        if again or len(backups) in (0, len(running)):
            _stop(running, reason)
            return
        _stop(backups, reason)
        names = {each.node.configuration.name for each in backups}
        first = [task for task, name in self._running.items() if name in names]
        rest = [each for each in running if each not in backups]
        self._stops_rest = asyncio.get_running_loop().create_task(self._stop_rest(first, rest, reason))

    async def _stop_rest(self, first: list[asyncio.Task[bool]], rest: list[HostedNode], reason: str) -> None:
        await asyncio.wait(first, timeout=BACKUPS_FIRST_S)
        _stop(rest, reason)

    # --- management.view.ServersView ---------------------------------------------------

    def all(self) -> list[Server]:
        # imported here, as only management asks for servers
        from understudy.management.model.node import Server

        return [
            Server(name, each.node.state, each.http_url)  # type: ignore[arg-type]  # one of the declared states
            for name, each in self.nodes.items()
        ]

    def messages(self, name: str | None) -> int | None:
        hosted = self.nodes.get(next(iter(self.nodes)) if name is None else name)
        if hosted is None:
            return 0
        broker = hosted.node.broker
        if broker is None:
            return None
        return sum(queue.message_count for queue in broker.post_office.directory.queues.values())

    def start(self, name: str) -> None:
        if name not in self.makers:
            raise ManagementError(f"this process has no server {name!r}", hint=f"it has {', '.join(self.makers)}")
        if self._stopping:
            raise ManagementError("the process is being stopped")
        if name in self._running.values():
            raise ManagementError(f"server {name!r} is {self.nodes[name].node.state}")
        self.makers[name]()
        self._run(name, lambda: None)


def _check_replaced(hosted: HostedNode, *, alone: bool) -> None:
    """Raises ManagementError: a reload would stop an active node of a pair that no other node replaces."""
    node = hosted.node
    protection = node.protection.find()
    if node.state != "active" or node.policy.name == "primary-only" or protection.protected:
        return
    which = "the only node that serves" if alone else f"server {node.configuration.name!r}, which serves"
    raise ManagementError(
        f"a reload would stop {which}: {protection.sentence}", hint=":reload(force=true) reloads it nevertheless"
    )


def _stop(nodes: Iterable[HostedNode], reason: str) -> None:
    for each in nodes:
        each.stop(reason)
