"""Reloads changed files of a running node: broker.xml, users and roles, certificates.

Every ``configuration-file-refresh-period`` the time, size and inode of broker.xml and of the files that it includes are
compared with the last ones; those of the files of users and roles every second, because a removed user must not wait
for that period. A changed file is read and checked on a thread. An error in it is logged once, with element and line,
and nothing changes; otherwise the node applies the changes that need no restart, and logs them, every address, queue
and divert that does not fit the store and is left out, and every changed element that needs a restart.

A passive node reads a changed file as well and uses it when it activates. The management operation
``reloadConfigurationFile`` and the signal SIGHUP do the same, also if the period is -1. Key stores, trust stores and
revocation lists of acceptors with ``sslAutoReload`` are checked with the period of broker.xml; those of all acceptors
are read on request. Not here: which changes apply (``config.changes``).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from understudy.config.changes import changes
from understudy.config.reading.servers import LoadedConfig
from understudy.errors import BrokerError, ConfigError
from understudy.management.operations.invocation import InstanceFiles
from understudy.runtime.files.overlay_file import overlay_of
from understudy.runtime.logins.user_files import UserFiles
from understudy.runtime.node.node import BrokerNode
from understudy.security.user_changes import UserChange

R = TypeVar("R")

log = logging.getLogger(__name__)

#: Period of the check of the files of users and roles.
USERS_PERIOD_S: Final = 1.0
#: Minimum time without change before a file is read, because it may still be being written.
SETTLE_S: Final = 0.1
#: Period of warnings about certificates that expire soon.
EXPIRY_PERIOD_S: Final = 24 * 3600.0

Reload = Callable[[LoadedConfig, bool], None]
"""Begins to stop a node and to start it again with a configuration; also if no node would serve meanwhile, if the
second argument is true. Raises ManagementError.
"""
Stamp = tuple[int, int, int] | None
"""Modification time in nanoseconds, size and inode of a file; None: the file does not exist."""


class ConfigurationFiles:
    """Watches the files of one node."""

    def __init__(
        self,
        node: BrokerNode,
        config: tuple[Path, ...],
        read: Callable[[], LoadedConfig],
        users: tuple[Path, ...],
        read_users: Callable[[], Callable[[], None]],
        *,
        period_ms: int,
    ) -> None:
        """Args:
        config: Paths of broker.xml and of the files that it includes.
        read: Reads and checks those files; called in a thread. Raises ConfigError.
        users: Files of users and roles; empty without security.
        read_users: Reads and checks those, on a thread; the returned function is called on the loop and applies
            them. Raises ConfigError.
        period_ms: configuration-file-refresh-period; -1 or 0: ``config`` is read only by management.
        """
        self._node = node
        self._config = config
        self._overlay = overlay_of(config[0])
        """Comes with the first change of the management CLI, and may not exist."""
        self._read = read
        self._users = users
        self._read_users = read_users
        self._period_ms = period_ms
        self._tasks: list[asyncio.Task[None]] = []
        self._asked: set[asyncio.Task[None]] = set()
        # compared with the files read at the start, so that a change during the start is noticed
        self._config_stamp = _stamps(config)
        self._users_stamp = tuple(_stamp(path) for path in users)
        self._tls = node.parts.tls
        self._tls_files = tuple(Path(path) for path in self._tls.files(auto_reload_only=True))
        self._tls_stamp = tuple(_stamp(path) for path in self._tls_files)

    def start(self) -> None:
        """Begin to check the files."""
        if self._period_ms > 0:
            self._tasks.append(asyncio.create_task(self._watch_config()))
        if self._users:
            self._tasks.append(asyncio.create_task(self._watch_users()))
        if self._tls_files and self._period_ms > 0:
            self._tasks.append(asyncio.create_task(self._watch_tls()))
        if self._tls.files(auto_reload_only=False):
            self._tasks.append(asyncio.create_task(self._watch_expiry()))

    def stop(self) -> None:
        """Stop checking the files for changes."""
        for task in (*self._tasks, *self._asked):
            task.cancel()

    def ask(self, done: Callable[[tuple[BrokerError, ...]], None]) -> None:
        """Read broker.xml, users and roles, and the TLS files of all acceptors now, changed or not. Called on the loop.

        Args:
            done: Called with the errors, none if everything was applied. Each part that has none is applied.
        """
        task = asyncio.get_running_loop().create_task(self._reload_for(done))
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)

    async def _reload_for(self, done: Callable[[tuple[BrokerError, ...]], None]) -> None:
        errors: list[BrokerError] = []
        try:
            self._config_stamp = await _in_thread(_stamps, self._config)
            errors += await self._reload()
            if self._users:
                self._users_stamp = await _in_thread(_stamps, self._users)
                errors += filter(None, [await self._reload_users()])
            errors += await self._read_tls(auto_reload_only=False)
        except Exception:
            # root of a task: the request gets its answer after an internal error, too
            log.exception("reload failed")
            errors.append(BrokerError("the reload failed; details are in the log"))
        done(tuple(errors))

    def on_request(self, users: UserFiles | None) -> InstanceFiles:
        """The files of the node for requests of management.

        Args:
            users: The files of users and roles; None: logins are not checked with such files.
        """
        return InstanceFiles(self.ask, None if users is None else partial(self._change, users))

    def _change(self, files: UserFiles, change: UserChange, done: Callable[[BrokerError | None], None]) -> None:
        task = asyncio.get_running_loop().create_task(self._change_users(files, change, done))
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)

    async def _change_users(
        self, files: UserFiles, change: UserChange, done: Callable[[BrokerError | None], None]
    ) -> None:
        try:
            await _in_thread(files.change, change)
            self._users_stamp = await _in_thread(_stamps, self._users)
            error = await self._reload_users()
        except BrokerError as refused:
            error = refused
        except Exception:
            # root of a task: the request gets its answer after an internal error, too
            log.exception("change of users failed")
            error = BrokerError("the change of users failed; details are in the log")
        done(error)

    # --- broker.xml ------------------------------------------------------------------------------

    async def _watch_config(self) -> None:
        while True:
            await asyncio.sleep(self._period_ms / 1000)
            stamps = await _settled(self._config, self._overlay)
            if stamps is not None and stamps != self._config_stamp:
                self._config_stamp = stamps
                await self._reload()

    async def _reload(self) -> tuple[BrokerError, ...]:
        node = self._node
        try:
            loaded = await _in_thread(self._read)
            change = changes(node.configuration, loaded.configuration)
            if "wildcard-addresses" in change.restart:
                raise ConfigError(
                    "a running node cannot take another way of writing wildcards",
                    path="core/wildcard-addresses",
                    file=str(self._config[0]),
                    hint="restart the node",
                )
            refused = node.reconfigure(change.configuration)
        except BrokerError as error:
            log.error("changed configuration not applied", extra={"code": error.code, "error": str(error)})
            return (error,)
        await self._watch_included(loaded.included)
        node.parts.configuration.overrides = loaded.overrides
        node.parts.configuration.pending = (*change.restart, *loaded.waiting)
        for warning in loaded.warnings:
            log.warning("configuration", extra={"detail": str(warning)})
        log.info(
            "configuration reloaded",
            extra={
                "file": str(self._config[0]),
                "applied": list(change.applied),
                "left_out": list(map(str, refused)),
                "state": node.state,
            },
        )
        if change.restart:
            log.warning("changes in the configuration that need a restart", extra={"elements": list(change.restart)})
        return refused

    async def _watch_included(self, included: tuple[str, ...]) -> None:
        """Watch the files that the new broker.xml includes."""
        config = (self._config[0], *map(Path, included))
        if config != self._config:
            self._config, self._config_stamp = config, await _in_thread(_stamps, config)

    # --- certificates ----------------------------------------------------------------------------

    async def _watch_tls(self) -> None:
        while True:
            await asyncio.sleep(self._period_ms / 1000)
            stamps = await _settled(self._tls_files)
            if stamps is not None and stamps != self._tls_stamp:
                self._tls_stamp = stamps
                await self._read_tls(auto_reload_only=True)

    async def _read_tls(self, *, auto_reload_only: bool) -> list[ConfigError]:
        return (await _in_thread(partial(self._tls.read_again, auto_reload_only=auto_reload_only)))()

    async def _watch_expiry(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_PERIOD_S)
            self._tls.warn_of_expiry()

    # --- users and roles -------------------------------------------------------------------------

    async def _watch_users(self) -> None:
        while True:
            await asyncio.sleep(USERS_PERIOD_S)
            stamps = await _settled(self._users)
            if stamps is None or stamps == self._users_stamp:
                continue
            self._users_stamp = stamps
            await self._reload_users()

    async def _reload_users(self) -> BrokerError | None:
        try:
            (await _in_thread(self._read_users))()
        except BrokerError as error:
            log.error("changed users or roles not applied", extra={"code": error.code, "error": str(error)})
            return error
        log.info("users and roles reloaded", extra={"files": [str(path) for path in self._users]})
        return None


def _stamp(path: Path) -> Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _stamps(paths: tuple[Path, ...]) -> tuple[Stamp, ...]:
    return tuple(_stamp(path) for path in paths)


async def _settled(paths: tuple[Path, ...], optional: Path | None = None) -> tuple[Stamp, ...] | None:
    """Present stamps of the files; None while one is being written, or one that is not optional is missing."""
    before = await _in_thread(_stamps, paths)
    await asyncio.sleep(SETTLE_S)
    after = await _in_thread(_stamps, paths)
    missing = any(stamp is None and path != optional for path, stamp in zip(paths, after, strict=True))
    return None if before != after or missing else after


async def _in_thread(call: Callable[..., R], *args: object) -> R:
    return await asyncio.get_running_loop().run_in_executor(None, call, *args)
