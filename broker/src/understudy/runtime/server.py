"""One process: the loop, its signals, descriptors and memory, the service manager, and its nodes.

A node belongs to an identity: its configuration, its store, its lock, its users, its acceptors, its management
(``HostedNode``). Resources of the process belong to the ``Server``. A node that ends or fails
leaves the others running; the process ends with its last node. `understudy run` starts one node; colocated backups are
several (ADR 0046).
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import logging
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from understudy.config.model import Configuration
from understudy.errors import BrokerError, DiskFailed
from understudy.runtime import interpreter
from understudy.runtime.critical_analyzer import CriticalAnalyzer
from understudy.runtime.descriptors import Descriptors, raise_soft_limit
from understudy.runtime.environment import system_environment
from understudy.runtime.logs import NODE
from understudy.runtime.management_listener import ManagementListener
from understudy.runtime.node import BrokerNode
from understudy.runtime.node_view import LiveNodeView
from understudy.runtime.reloading import ConfigurationFiles
from understudy.runtime.systemd import Watchdog, notify
from understudy.security.authorization import SecurityPolicy

if TYPE_CHECKING:
    from understudy.runtime.http import ManagementServer

log = logging.getLogger(__name__)

#: Seconds that a node has for its start before management is loaded.
HEAD_START_S: Final = 0.2


class HostedNode:
    """A node of the process, its management, and the checks that run beside it."""

    def __init__(self, node: BrokerNode, listener: ManagementListener | None = None) -> None:
        """Nothing is started.

        Args:
            node: The node.
            listener: For its management; None: it has none.
        """
        self.node = node
        self._listener = listener
        self.files: ConfigurationFiles | None = None
        """Its files that are watched for changes; set before ``run``."""
        self.on_started: Callable[[], None] | None = None
        """Called when it has started and has not ended."""
        self._management: asyncio.Task[ManagementServer] | None = None
        self._stops: list[asyncio.Task[None]] = []
        configuration = node.configuration
        self.context = contextvars.copy_context()
        """Context of everything that the node runs; log lines take the name of the node from it."""
        self.context.run(NODE.set, configuration.name)
        self._analyzer = CriticalAnalyzer(
            node.environment.critical_paths,
            configuration.critical_analyzer_policy,
            timeout_ms=configuration.critical_analyzer_timeout_ms,
            check_period_ms=configuration.critical_analyzer_check_period_ms,
            shut_down=lambda reason: node.life.fail(DiskFailed(reason)),
        )

    def stop(self, reason: str, *, failover: bool = False) -> None:
        """Stop the node cleanly. A second call ends the wait for clients; later calls do nothing."""
        if len(self._stops) < 2:
            self.context.copy().run(log.info, "stopping", extra={"reason": reason})
            loop = asyncio.get_running_loop()
            self._stops.append(loop.create_task(self.node.stop(failover=failover), context=self.context.copy()))

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
        return error is None and managed

    def _has_started(self) -> None:
        kernel = LiveNodeView(self.node).kernel
        facts = {"state": self.node.state, "kernel": kernel.active, "kernel_reason": kernel.reason}
        log.info("started", extra=facts)
        if self.on_started is not None:
            self.on_started()

    async def _start_management(self, listener: ManagementListener) -> ManagementServer:
        """Load and start the management server. A node without management is spared the time and 15 MiB; in every other
        it is loaded in a thread, so that clients are served meanwhile.
        """
        loop = asyncio.get_running_loop()
        module = await loop.run_in_executor(None, importlib.import_module, "understudy.runtime.http")
        server: ManagementServer = module.ManagementServer(LiveNodeView(self.node), listener)
        await server.start()
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
        if self._management is not None:
            try:
                await (await self._management).stop()
            except Exception:  # logged where it began
                managed = False
        if self._listener is not None:
            self._listener.close()
        return managed


class Server:
    """The composition root of a broker process; made on its loop."""

    def __init__(self, nodes: int = 1) -> None:
        """No node runs yet.

        Args:
            nodes: How many there will be; each gets an equal share of memory and descriptors.

        Raises:
            ConfigError: the process may open too few files.
        """
        self._nodes = nodes
        self._descriptors = Descriptors(raise_soft_limit())
        self._hosted: list[HostedNode] = []
        self._starting = 0
        """Nodes whose start is not over."""
        self._collector = interpreter.Collector(asyncio.get_running_loop())

    def add(
        self,
        configuration: Configuration,
        security: SecurityPolicy,
        *,
        instance_directory: str | None = None,
        listener: ManagementListener | None = None,
    ) -> HostedNode:
        """A further node; ``run`` starts it.

        Args:
            configuration: From its broker.xml. Its store, locks and ports are its own.
            security: Its users and roles.
            instance_directory: See ``BrokerNode``.
            listener: For its management; None: it has none.
        """
        environment = system_environment(asyncio.get_running_loop(), self._descriptors, self._nodes)
        node = BrokerNode(configuration, environment, security, instance_directory=instance_directory)
        hosted = HostedNode(node, listener)
        self._hosted.append(hosted)
        return hosted

    async def run(self) -> bool:
        """Run the nodes until the last has ended; SIGTERM and SIGINT stop all. Whether all ended cleanly."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGTERM, signal.SIGINT)
        for number in signals:
            loop.add_signal_handler(number, self.stop, "signal")
        if not os.isatty(0):
            # a process that was started from a terminal ends with it
            loop.add_signal_handler(signal.SIGHUP, self._reload)
        watchdog = Watchdog(loop)
        watchdog.start()
        interpreter.start_up()
        self._starting = len(self._hosted)
        try:
            running = [loop.create_task(each.run(self._started), context=each.context) for each in self._hosted]
            ends = await asyncio.gather(*running)
        finally:
            self._collector.stop()
            watchdog.stop()
            for number in (*signals, signal.SIGHUP):
                loop.remove_signal_handler(number)
        return all(ends)

    def stop(self, reason: str) -> None:
        """Stop all nodes cleanly."""
        notify("STOPPING=1")
        for hosted in self._hosted:
            hosted.stop(reason)

    def _reload(self) -> None:
        """SIGHUP: read the files of all nodes again; errors are logged there."""
        for hosted in self._hosted:
            if hosted.files is not None:
                hosted.files.ask(lambda error: None)

    def _started(self) -> None:
        """Count a node whose start has ended, with or without success."""
        self._starting -= 1
        if self._starting:
            return
        interpreter.settle()
        self._collector.start()
        states = [hosted.node.state for hosted in self._hosted]
        if any(state != "stopped" for state in states):
            notify(f"READY=1\nSTATUS={', '.join(states)}")
