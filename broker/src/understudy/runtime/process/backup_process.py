"""The colocated backups that one node of a process hosts, as further nodes of the process (ADR 0073).

A backup runs beside the node that hosts it, with its own store, lock, users and management. It stops when that node
ends; its own end or failure changes nothing there. Not here: which backups are hosted (``cluster.colocation.hosting``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from understudy.config.colocated import HostedBackup
from understudy.config.model import Configuration
from understudy.dataclass import dataclass
from understudy.runtime.management.listener import ManagementListener
from understudy.runtime.net.endpoints import Endpoints
from understudy.runtime.node.node import BrokerNode
from understudy.runtime.process.hosted_node import HostedNode
from understudy.runtime.process.reloading import ConfigurationFiles
from understudy.runtime.process.servers import Servers
from understudy.security.authorization import SecurityPolicy

log = logging.getLogger(__name__)


class NodeMaker(Protocol):
    """Maker of nodes; implemented by the process (``runtime.process.server``)."""

    endpoints: Endpoints
    servers: Servers

    def make_node(
        self, configuration: Configuration, security: SecurityPolicy, *, listener: ManagementListener | None
    ) -> HostedNode:
        """Make a node that uses its share of the process; the caller runs it."""
        ...


@dataclass(frozen=True, slots=True)
class BackupParts:
    """Makes the parts of a colocated backup that are not in its configuration."""

    security: Callable[[Configuration], SecurityPolicy]
    """Users and roles of the backup. Raises ConfigError."""
    listener: Callable[[HostedBackup], ManagementListener | None]
    """Listener for the management of the backup; None: it has none."""
    files: Callable[[BrokerNode, SecurityPolicy, HostedBackup], ConfigurationFiles]
    """Files of the backup that are watched for changes."""


class BackupProcess:
    """Starts colocated backups for one node. Implements ``runtime.base.process.Process``."""

    def __init__(self, server: NodeMaker, make: BackupParts | None) -> None:
        """Args:
        server: Makes their nodes.
        make: Makes their parts; None: it hosts none.
        """
        self._server = server
        self._make = make
        self.endpoints = server.endpoints
        self.servers = server.servers
        self.parent: HostedNode | None = None
        """Node whose process hosts the backups, once it is made."""

    def host(self, backup: HostedBackup, configuration: Configuration, ended: Callable[[bool], None]) -> BrokerNode:
        parent = self.parent
        assert parent is not None, "a node that is being made does not host"
        make = self._make
        assert make is not None, "a node without a colocated policy hosts none"
        security = make.security(configuration)
        hosted = self._server.make_node(configuration, security, listener=make.listener(backup))
        hosted.files = make.files(hosted.node, security, backup)
        loop = asyncio.get_running_loop()
        running = loop.create_task(hosted.run(lambda: None), context=hosted.context)
        parent.backups[running] = hosted
        self.endpoints.servers.add(configuration.name)

        def done(task: asyncio.Task[bool]) -> None:
            parent.backups.pop(task, None)
            self.endpoints.servers.discard(configuration.name)
            if not task.cancelled() and task.exception() is not None:
                log.critical("a hosted backup has ended", exc_info=task.exception())
            if not parent.ends_backups:
                ended(not task.cancelled() and task.exception() is None and task.result())

        running.add_done_callback(done)
        return hosted.node
