"""The lock manager of a node, made from its configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Final

from understudy.config.lock_options import FileLockOptions, LockManagerOptions, WitnessLockOptions
from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.ha.locks.distributed_lock import LockManager
from understudy.ha.witness.client import WitnessDialer, WitnessLockManager
from understudy.ha.witness.group import WitnessGroup
from understudy.ha.witness.options import GroupConfiguration, WitnessClientOptions
from understudy.limits import WITNESS_SECRET_BYTES_MIN
from understudy.ports import Clock, Entropy, Timers
from understudy.runtime.base.environment import BootClock, Environment, SystemEntropy
from understudy.runtime.base.file_modes import check_files
from understudy.runtime.base.turn import Turn
from understudy.runtime.locks.lock_folder import FolderLockManager
from understudy.runtime.locks.release import LockReleaser
from understudy.runtime.locks.witness_dialer import LoopWitnessDialer

#: Port of ZooKeeper where the connect string has none.
ZOOKEEPER_PORT: Final = 2181
#: Lease of the locks of a group of witnesses, unless it is configured.
LEASE_MS: Final = 6_000


def make_lock_manager(
    options: LockManagerOptions, name: str, environment: Environment, loop: asyncio.AbstractEventLoop, turn: Turn
) -> LockManager:
    """The lock manager of a node; it is not started.

    Args:
        options: Options from the element ``manager``.
        name: Name of the node, for logs of the service.
        environment: Environment of the node; its boot time is used.
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
        secret = read_secret(options.secret_file)
        dialer = LoopWitnessDialer(loop, turn)
        if options.members:
            return make_group(
                WitnessGroupOptions(options.members, secret, name, options.lease_ms),
                dialer,
                turn,
                clock=clock,
                entropy=environment.entropy,
                releaser=LockReleaser(),
            )
        client = WitnessClientOptions(options.addresses, secret, name, options.lease_ms, options.identity)
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
        from understudy.runtime.locks.zookeeper import ZooKeeperLockManager
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


@dataclass(frozen=True, slots=True)
class WitnessGroupOptions:
    """A group of witnesses and its user."""

    places: Sequence[tuple[str, int]]
    """Host and port of each member."""
    secret: bytes = field(repr=False)
    """Shared with all members."""
    name: str
    """Name of the node or command, for the logs of the members."""
    lease_ms: int = LEASE_MS
    """Lease of its locks."""


def make_group(
    options: WitnessGroupOptions,
    dialer: WitnessDialer,
    turn: Timers,
    *,
    clock: Clock | None = None,
    entropy: Entropy | None = None,
    releaser: LockReleaser | None = None,
) -> WitnessGroup:
    """The lock manager of a group of witnesses; it is not started.

    Args:
        options: The group and its user.
        dialer: Opens connections.
        clock: Boot time; by default that of this machine.
        entropy: Used for tokens; by default that of this machine.
        releaser: Releases the locks after the end of the process.
    """
    clock, entropy = clock or BootClock(), entropy or SystemEntropy()
    secret, name, lease_ms = options.secret, options.name, options.lease_ms
    configuration = GroupConfiguration()
    members = []
    for number, place in enumerate(options.places):
        client = WitnessClientOptions([place], secret, name, lease_ms, group=configuration)
        if releaser is None:
            members.append(WitnessLockManager(client, dialer, clock, turn, entropy))
            continue
        releaser.tell(member=number, addresses=[place], lease_ms=lease_ms, secret=secret.hex(), name=name)
        granted = partial(releaser.granted_by, number)
        members.append(WitnessLockManager(client, dialer, clock, turn, entropy, granted))
    return WitnessGroup(members, clock, turn, entropy)


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
