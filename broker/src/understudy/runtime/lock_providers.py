"""The lock manager of a node, made from its configuration."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from understudy.config.lock_options import FileLockOptions, LockManagerOptions, WitnessLockOptions
from understudy.errors import ConfigError
from understudy.ha.distributed_lock import LockManager
from understudy.ha.witness_client import WitnessClientOptions, WitnessLockManager
from understudy.limits import WITNESS_SECRET_BYTES_MIN
from understudy.runtime.environment import Environment
from understudy.runtime.file_modes import check_files
from understudy.runtime.lock_folder import FolderLockManager
from understudy.runtime.lock_release import LockReleaser
from understudy.runtime.turn import Turn
from understudy.runtime.witness_dialer import LoopWitnessDialer

#: Port of ZooKeeper where the connect string has none.
ZOOKEEPER_PORT: Final = 2181


def make_lock_manager(
    options: LockManagerOptions, name: str, environment: Environment, loop: asyncio.AbstractEventLoop, turn: Turn
) -> LockManager:
    """The lock manager of a node; it is not started.

    Args:
        options: From the element ``manager``.
        name: Of the node, for logs of the service.
        environment: Of the node; its boot time is used.
        loop: For the answers.
        turn: Calls them.

    Raises:
        ConfigError: the secret cannot be read, or the client of ZooKeeper is not installed.
    """
    clock = environment.lock_clock or environment.clock
    if isinstance(options, FileLockOptions):
        return FolderLockManager(
            options.locks_folder.rstrip("/"),
            loop,
            turn,
            disk=environment.disk,
            file_lock=environment.file_lock,
            clock=clock,
            timers=turn,
        )
    if isinstance(options, WitnessLockOptions):
        client = WitnessClientOptions(
            options.addresses, read_secret(options.secret_file), name, options.lease_ms, options.identity
        )
        dialer = LoopWitnessDialer(loop, turn)
        releaser = LockReleaser(
            addresses=list(client.addresses),
            lease_ms=client.lease_ms,
            secret=client.secret.hex(),
            name=name,
            identity=None if client.identity is None else client.identity.hex(),
        )
        return WitnessLockManager(client, dialer, clock, turn, environment.entropy, releaser.granted)
    try:
        # kazoo is an optional dependency
        from understudy.runtime.zookeeper import ZooKeeperLockManager
    except ImportError as error:
        raise ConfigError(
            f"the lock manager zookeeper needs the package kazoo: {error}", hint="pip install 'understudy[zookeeper]'"
        ) from error
    releaser = LockReleaser(
        addresses=_servers(options.connect_string),
        lease_ms=options.session_ms,
        tls=[options.tls_ca, options.tls_certificate, options.tls_key] if options.tls_ca else None,
    )
    return ZooKeeperLockManager(options, loop, turn, clock, turn, releaser.session_begun)


def _servers(connect_string: str) -> list[tuple[str, int]]:
    """Hosts and ports, as kazoo reads them."""
    found = []
    for place in connect_string.partition("/")[0].split(","):
        host, _, port = place.strip().rpartition(":")
        found.append((host.strip("[]"), int(port)) if port.isdigit() and host else (place.strip(), ZOOKEEPER_PORT))
    return found


def read_secret(path: str) -> bytes:
    """The shared secret of a witness, without white space at its ends.

    Raises:
        ConfigError: the file cannot be read, other users can read or write it, or the secret is too short.
    """
    check_files((), [path])
    try:
        secret = Path(path).read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=path, hint="`understudy witness secret`") from error
    if len(secret) < WITNESS_SECRET_BYTES_MIN:
        raise ConfigError(
            f"a secret of {len(secret)} bytes; at least {WITNESS_SECRET_BYTES_MIN} are wanted",
            file=path,
            hint="`understudy witness secret` writes one",
        )
    return secret
