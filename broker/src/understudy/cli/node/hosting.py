"""The management listener of a node, and the parts of the colocated backups that it hosts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from understudy.cli.node.descriptions import Instance
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


def management_address(text: str) -> tuple[str, int] | None:
    """Host and port of ``host:port``; None for ``off``. Raises ConfigError."""
    if text == "off":
        return None
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"--http {text!r}: host:port or 'off'")
    return host.strip("[]"), int(port)


def listen_for_management(place: Instance, allow_remote: bool, port_offset: int = 0) -> ManagementListener | None:
    """Listen for management; returns None if management is off.

    Args:
        place: The instance.
        allow_remote: Whether it may listen on an address that is not loopback.
        port_offset: Added to its port.

    Raises:
        ConfigError: before anything has been activated.
    """
    address = management_address(place.http)
    if address is None:
        return None
    host, port = address
    token = ""
    if place.token_file is not None:
        try:
            token = place.token_file.read_text().strip()
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", file=str(place.token_file)) from error
    number = port + port_offset if port else 0
    listener = ManagementListener(host, number, token, allow_remote=allow_remote)
    listener.listen()
    return listener


def backup_parts(
    place: Instance, allow_remote: bool, port_offset: int, read: Callable[[], LoadedConfig]
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
