"""The port between a node and the process in which other servers run, too (ADR 0073)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from understudy.config.colocated import HostedBackup
from understudy.config.model import Configuration
from understudy.runtime.net.endpoints import Endpoints
from understudy.runtime.net.upgrade import UpgradeServer

if TYPE_CHECKING:
    from understudy.management.view import ServersView


class HostedServer(Protocol):
    """A further server that was started in the process."""

    @property
    def state(self) -> str:
        """State as in management."""
        ...


class Process(Protocol):
    """The process of the node, as far as it concerns its other servers (``runtime.process.backup_process``)."""

    @property
    def endpoints(self) -> Endpoints:
        """Ports that the servers of the process share."""
        ...

    @property
    def servers(self) -> ServersView:
        """Servers that the broker.xml of the process names."""
        ...

    def host(self, backup: HostedBackup, configuration: Configuration, ended: Callable[[bool], None]) -> HostedServer:
        """Start a colocated backup, which stops when this node does.

        Args:
            ended: Called with whether it ended cleanly, unless this node stopped it.

        Raises:
            BrokerError: it cannot be made.
        """
        ...


def upgrade_server(process: Process | None, name: str) -> UpgradeServer:
    """The server of the acceptors of a node with that name."""
    return UpgradeServer(name, None if process is None else process.endpoints)
