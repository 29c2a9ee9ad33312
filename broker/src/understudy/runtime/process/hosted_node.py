"""A node of a process, its management, and the checks that run beside it.

Not here: the process (``runtime.process.server``).
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from understudy import kernel
from understudy.errors import BrokerError, DiskFailed
from understudy.runtime.base.logs import MANAGEMENT, NODE
from understudy.runtime.files.configuration_file import ConfigurationFile
from understudy.runtime.management.listener import ManagementListener
from understudy.runtime.node.node import BrokerNode
from understudy.runtime.process import interpreter
from understudy.runtime.process.critical_analyzer import CriticalAnalyzer
from understudy.runtime.process.reloading import ConfigurationFiles, Reload

if TYPE_CHECKING:
    from understudy.runtime.management.heartbeat import Heartbeat
    from understudy.runtime.management.http import ManagementServer
    from understudy.runtime.management.node_view import LiveNodeView

log = logging.getLogger(__name__)

#: Seconds that a node has for its start before management is loaded.
HEAD_START_S: Final = 0.2


class HostedNode:
    """A node of the process, its management, and the checks that run beside it."""

    def __init__(self, node: BrokerNode, listener: ManagementListener | None = None) -> None:
        """Begin without a started node.

        Args:
            listener: Used for its management; None: it has none.
        """
        self.node = node
        self._listener = listener
        self.files: ConfigurationFiles | None = None
        """Files of the node that are watched for changes; set before ``run``."""
        self.source: ConfigurationFile | None = None
        """The files of its configuration, which the management CLI changes; None: it is not served."""
        self.reload: Reload | None = None
        """Begins the reload of the node; set before ``run``, with ``source``."""
        self.on_started: Callable[[], None] | None = None
        """Called when the node has started and has not ended."""
        self.backups: dict[asyncio.Task[bool], HostedNode] = {}
        """Colocated backups of other nodes that run because of this one."""
        self.ends_backups = False
        """Whether the hosted backups were stopped because this node stops or has ended."""
        self._management: asyncio.Task[ManagementServer] | None = None
        self._heartbeat: Heartbeat | None = None
        self._stops: list[asyncio.Task[None]] = []
        configuration = node.configuration
        self.context = contextvars.copy_context()
        """Context of everything that the node runs; log lines take the name of the node from it."""
        self.context.run(NODE.set, configuration.name)
        if listener is not None:
            self.context.run(MANAGEMENT.set, listener.url)
        self._analyzer = CriticalAnalyzer(
            node.environment.critical_paths,
            configuration.critical_analyzer_policy,
            timeout_ms=configuration.critical_analyzer_timeout_ms,
            check_period_ms=configuration.critical_analyzer_check_period_ms,
            shut_down=lambda reason: node.life.fail(DiskFailed(reason)),
        )

    @property
    def http_url(self) -> str | None:
        """URL of the management; None: it has none."""
        return None if self._listener is None else self._listener.url

    def stop(self, reason: str, *, failover: bool = False) -> None:
        """Stop the node cleanly. A second call ends the wait for clients; later calls do nothing."""
        if len(self._stops) < 2:
            self.context.copy().run(log.info, "stopping", extra={"reason": reason})
            loop = asyncio.get_running_loop()
            self._stops.append(loop.create_task(self.node.stop(failover=failover), context=self.context.copy()))
        self._stop_backups(reason)

    def _stop_backups(self, reason: str) -> None:
        self.ends_backups = True
        for backup in self.backups.values():
            if not backup._stops:
                backup.stop(reason)

    async def run(self, started: Callable[[], None]) -> bool:
        """Start the node and wait for its end; whether that was clean.

        Args:
            started: Called once when the start is over, also if it failed.
        """
        loop = asyncio.get_running_loop()
        if self.node.configuration.critical_analyzer:
            self._analyzer.start(loop)
        if self.files is not None:
            self.files.start()
        starting = loop.create_task(self.node.start())
        starting.add_done_callback(lambda task: started())
        try:
            await asyncio.wait({starting}, timeout=HEAD_START_S)
            if starting.done():
                starting.result()
            if self._listener is not None:
                self._management = loop.create_task(self._start_management(self._listener))
                self._management.add_done_callback(self._management_started)
            await starting
            if self.node.state != "stopped":
                self._has_started()
            error = await self.node.wait_ended()
        except BrokerError as failure:
            log.error("node did not start", extra={"code": failure.code, "error": str(failure)})
            error = failure
        finally:
            managed = await self._end()
            await self._end_backups()
        return error is None and managed

    async def _end_backups(self) -> None:
        self._stop_backups("the server that hosts it has ended")
        if self.backups:
            await asyncio.wait(self.backups)

    def _has_started(self) -> None:
        facts = {"state": self.node.state, "kernel": kernel.ACTIVE, "kernel_reason": kernel.WHY}
        log.info("started", extra=facts)
        if self.on_started is not None:
            self.on_started()

    async def _start_management(self, listener: ManagementListener) -> ManagementServer:
        """Load and start the management server. A node without management is spared the time and 15 MiB; in every other
        it is loaded in a thread, so that clients are served meanwhile.
        """
        loop = asyncio.get_running_loop()
        names = ("http", "node_view", "configuration_cli")
        modules = [f"understudy.runtime.management.{name}" for name in names]
        http, node_view, cli = await loop.run_in_executor(None, lambda: list(map(importlib.import_module, modules)))
        process = self.node.parts.process
        servers = None if process is None else process.servers
        configuration = None
        view: LiveNodeView = node_view.LiveNodeView(self.node)
        if self.source is not None and self.files is not None and self.reload is not None:
            configuration = cli.ConfigurationCli(self.node, self.source, self.files, self.reload)
        server: ManagementServer = http.ManagementServer(view, listener, servers, configuration)
        await server.start()
        self._heartbeat = view.heartbeat
        self._heartbeat.start()
        interpreter.keep_what_exists()
        return server

    def _management_started(self, management: asyncio.Task[ManagementServer]) -> None:
        """A node whose management failed to start stops, and its backup takes over, whatever failover-on-shutdown."""
        if management.exception() is not None:
            log.error("management did not start", exc_info=management.exception())
            self.stop("no management", failover=True)

    async def _end(self) -> bool:
        """Stop everything beside the node; whether its management ran, if it has one."""
        self._analyzer.stop()
        if self.files is not None:
            self.files.stop()
        managed = True
        if self._heartbeat is not None:
            self._heartbeat.stop()
        if self._management is not None:
            try:
                await (await self._management).stop()
            except Exception:  # the error was logged where it occurred
                managed = False
        if self._listener is not None:
            self._listener.close()
        return managed
