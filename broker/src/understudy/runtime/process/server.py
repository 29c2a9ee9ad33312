"""One process: the loop, its signals, descriptors and memory, the service manager, and its nodes.

A node belongs to an identity: its configuration, its store, its lock, its users, its acceptors, its management
(``HostedNode``). Resources of the process belong to the ``Server``. A node that ends or fails
leaves the others running; the process ends with its last node (ADR 0046). broker.xml may name several servers
(``Servers``, ADR 0075). A node may add colocated backups of other nodes while it runs; they stop when it ends
(ADR 0073).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal

from understudy.config.model import Configuration
from understudy.runtime.base.environment import system_environment
from understudy.runtime.management.listener import ManagementListener
from understudy.runtime.net.endpoints import Endpoints
from understudy.runtime.node.node import BrokerNode
from understudy.runtime.process import interpreter
from understudy.runtime.process.backup_process import BackupParts, BackupProcess
from understudy.runtime.process.descriptors import Descriptors, raise_soft_limit
from understudy.runtime.process.hosted_node import HostedNode
from understudy.runtime.process.servers import Servers
from understudy.runtime.process.systemd import Watchdog, notify
from understudy.security.authorization import SecurityPolicy

log = logging.getLogger(__name__)


class Server:
    """The composition root of a broker process; made on its loop."""

    def __init__(self, nodes: int = 1) -> None:
        """No node runs yet.

        Args:
            nodes: How many there may be, with colocated backups; each gets an equal share of memory and descriptors.

        Raises:
            ConfigError: the process may open too few files.
        """
        self._nodes = nodes
        self._descriptors = Descriptors(raise_soft_limit())
        self.endpoints = Endpoints()
        """Ports that the nodes share."""
        self.servers = Servers(self.endpoints.servers.discard)
        """The servers that broker.xml names."""
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
        backups: BackupParts | None = None,
    ) -> HostedNode:
        """The node of a server; ``run`` starts it. It replaces one of the same name that has ended.

        Args:
            configuration: Configuration from its broker.xml. Its store, locks and ports are its own.
            instance_directory: See ``BrokerNode``.
            listener: Used for its management; None: it has none.
            backups: Makes the backups that it hosts for other nodes; None: it hosts none.
        """
        process = BackupProcess(self, backups)
        hosted = self.make_node(
            configuration, security, instance_directory=instance_directory, listener=listener, process=process
        )
        process.parent = hosted
        self.endpoints.servers.add(configuration.name)
        self.servers.nodes[configuration.name] = hosted
        return hosted

    def make_node(
        self,
        configuration: Configuration,
        security: SecurityPolicy,
        *,
        instance_directory: str | None = None,
        listener: ManagementListener | None = None,
        process: BackupProcess | None = None,
    ) -> HostedNode:
        """A node with its share of the process, which the caller runs. Arguments as of ``add``."""
        loop = asyncio.get_running_loop()
        environment = system_environment(loop, self._descriptors, self._nodes)
        node = BrokerNode(
            configuration,
            environment,
            security,
            instance_directory=instance_directory,
            process=process or BackupProcess(self, None),
        )
        return HostedNode(node, listener)

    def resize(self, nodes: int) -> None:
        """Give nodes that are made from now on the share of a process with this number of nodes."""
        self._nodes = nodes

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
        self._starting = len(self.servers.nodes)
        try:
            self.servers.run(self._started)
            return await self.servers.wait_ended()
        finally:
            self._collector.stop()
            watchdog.stop()
            for number in (*signals, signal.SIGHUP):
                loop.remove_signal_handler(number)

    def stop(self, reason: str) -> None:
        """Stop all nodes cleanly; see ``Servers.stop``."""
        notify("STOPPING=1")
        self.servers.stop(reason)

    def _reload(self) -> None:
        """SIGHUP: read the files of all nodes again; errors are logged there."""
        nodes = [each for each in self.servers.nodes.values() if each.node.state != "stopped"]
        backups = [backup for hosted in nodes for backup in hosted.backups.values()]
        for hosted in (*nodes, *backups):
            if hosted.files is not None:
                hosted.context.copy().run(hosted.files.ask, lambda errors: None)

    def _started(self) -> None:
        """Count a node whose start has ended, with or without success."""
        self._starting -= 1
        if self._starting:
            return
        interpreter.settle()
        self._collector.start()
        states = [hosted.node.state for hosted in self.servers.nodes.values()]
        if any(state != "stopped" for state in states):
            notify(f"READY=1\nSTATUS={', '.join(states)}")
