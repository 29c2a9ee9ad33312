"""The management listener of a node, and the parts of the colocated backups that it hosts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

from understudy.cli.node.user_files import security_of, watched_files
from understudy.config.colocated import HostedBackup, hosted_configuration
from understudy.config.reading.servers import LoadedConfig
from understudy.errors import ConfigError
from understudy.runtime.management.listener import ManagementListener
from understudy.runtime.node.node import BrokerNode
from understudy.runtime.process.backup_process import BackupParts
from understudy.runtime.process.reloading import ConfigurationFiles
from understudy.security.authorization import SecurityPolicy

log = logging.getLogger(__name__)


class ManagedPlace(Protocol):
    """An instance, as far as its management matters."""

    @property
    def config(self) -> Path:
        """Path of the instance's broker.xml."""
        ...

    @property
    def http(self) -> str:
        """Address ``host:port`` of the instance's management, or ``off``."""
        ...

    @property
    def token_file(self) -> Path | None:
        """File with the management token of the instance."""
        ...


def listen_for_management(place: ManagedPlace, allow_remote: bool, port_offset: int = 0) -> ManagementListener | None:
    """Listen for management; returns None if management is off.

    Args:
        place: The instance.
        allow_remote: Whether it may listen on an address that is not loopback.
        port_offset: Added to its port.

    Raises:
        ConfigError: before anything has been activated.
    """
    if place.http == "off":
        return None
    host, _, port = place.http.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"--http {place.http!r}: host:port or 'off'")
    token = ""
    if place.token_file is not None:
        try:
            token = place.token_file.read_text().strip()
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", file=str(place.token_file)) from error
    number = int(port) + port_offset if int(port) else 0
    listener = ManagementListener(host.strip("[]"), number, token, allow_remote=allow_remote)
    listener.listen()
    return listener


def backup_parts(
    place: ManagedPlace, allow_remote: bool, port_offset: int, read: Callable[[], LoadedConfig]
) -> BackupParts:
    """Colocated backups have the users and the management token of the instance, and a management port of their own.

    Args:
        place: The instance.
        allow_remote: Whether management may listen on an address that is not loopback.
        port_offset: backup-port-offset, for the port of management as well.
        read: Reads broker.xml again.
    """

    def listener(backup: HostedBackup) -> ManagementListener | None:
        try:
            return listen_for_management(place, allow_remote, port_offset * (backup.place + 1))
        except ConfigError as error:
            # a backup without management is better than no backup
            log.error("a hosted backup has no management", extra={"server": backup.name, "error": str(error)})
            return None

    def read_hosted(backup: HostedBackup) -> LoadedConfig:
        loaded = read()
        if loaded.configuration.ha_policy.colocated is None:
            raise ConfigError("colocated cannot be removed while a hosted backup runs", path="core/ha-policy")
        return replace(loaded, configuration=hosted_configuration(loaded.configuration, backup))

    def files(node: BrokerNode, security: SecurityPolicy, backup: HostedBackup) -> ConfigurationFiles:
        return watched_files(node, security, place.config, partial(read_hosted, backup))

    return BackupParts(lambda configuration: security_of(configuration, place.config.parent), listener, files)
