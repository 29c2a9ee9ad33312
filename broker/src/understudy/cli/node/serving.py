"""The servers of one ``understudy run``: made from broker.xml, and made again when one is started alone (ADR 0075)."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from understudy import __version__
from understudy.cli.node.check import key_files
from understudy.cli.node.defaults import DEFAULT_URL
from understudy.cli.node.descriptions import Instance, node_facts, start_fields
from understudy.cli.node.hosting import backup_parts, listen_for_management
from understudy.cli.node.user_files import logins_beside, security_of, user_files, watched_files
from understudy.cli.terminal import echo
from understudy.config.instance_files import LOGIN_FILE
from understudy.config.model import Configuration, ConfigWarning
from understudy.config.reading.servers import LoadedConfig
from understudy.errors import ConfigError
from understudy.runtime.base.file_modes import check_directories, check_files
from understudy.runtime.base.kept_events import keep_events
from understudy.runtime.files.configuration_file import ConfigurationFile, volatile_store
from understudy.runtime.management.listener import ManagementListener
from understudy.runtime.process.server import Server
from understudy.runtime.process.server_changes import ServerChanges, nodes_of

__all__ = ["Instance", "notes_directory", "serve"]

log = logging.getLogger(__name__)

#: Below the instance directory: notes of further servers, each in a folder of its name.
SERVERS_FOLDER: Final = "servers"


def notes_directory(instance: Path, server: str | None) -> Path:
    """Directory in which a server notes which store it uses; None: the directory of ``core``."""
    return instance if server is None else instance / SERVERS_FOLDER / server


async def serve(
    loaded: LoadedConfig,
    place: Instance,
    allow_remote: bool,
    source: ConfigurationFile,
) -> int:
    """Run all servers of a broker.xml until the last has ended; the exit code.

    Args:
        loaded: The file.
        place: The instance.
        allow_remote: Whether management may listen on an address that is not loopback.
        source: The files of the configuration, which are read again.
    """
    keep_events()
    process = Server(nodes_of(loaded))
    maker = _Maker(process, place, allow_remote, source)
    names = (None, *(each.configuration.name for each in loaded.servers))
    for name in names:
        maker.make(loaded, name)
        maker.keep(loaded.server(name).name, name)
    if place.greets:
        hosted = process.servers.nodes[loaded.configuration.name]
        hosted.on_started = partial(_print_first_commands, loaded.configuration, place)
    maker.write_run_files()
    try:
        clean = await process.run()
    finally:
        _remove_run_files(place)
        if not loaded.configuration.persistence_enabled:
            volatile_store(source.directory).remove()
    log.info("stopped", extra={"clean": clean})
    return 0 if clean else 1


class _Maker:
    """Makes the nodes of the servers of a process."""

    def __init__(self, process: Server, place: Instance, allow_remote: bool, source: ConfigurationFile) -> None:
        self._process = process
        self._place = place
        self._allow_remote = allow_remote
        self._source = source
        self._read = source.load
        self._changes = ServerChanges(process, lambda name: self.keep(name, name))

    def make(self, loaded: LoadedConfig, name: str | None) -> None:
        """Make the node of a server; None: that of ``core``. Raises BrokerError."""
        place, configuration = self._place, loaded.server(name)
        security = security_of(configuration, place.config.parent)
        if configuration.security_enabled:
            for warning in logins_beside(place.config.parent).warnings:
                log.warning("login.config", extra={"detail": warning})
        log.info("Understudy %s starts", __version__, extra=start_fields(configuration, security, place))
        _check_modes(configuration, place)
        listener = self._listen(loaded, name)
        colocated = configuration.ha_policy.colocated
        backups = None
        if colocated is not None:
            backups = backup_parts(place, self._allow_remote, colocated.backup_port_offset, self._read)
        # a volatile store is empty at each start, so a recorded position does not apply to it
        notes = str(notes_directory(place.directory, name)) if configuration.persistence_enabled else None
        hosted = self._process.add(
            configuration, security, instance_directory=notes, listener=listener, backups=backups
        )
        read = partial(self._read_server, name)
        hosted.files = watched_files(hosted.node, security, place.config, read, loaded.included)
        hosted.node.parts.configuration.overrides = loaded.overrides
        hosted.node.parts.configuration.pending = loaded.waiting
        hosted.source = self._source
        hosted.reload = partial(self._changes.reload, configuration.name, name is None)

    def keep(self, known_as: str, name: str | None) -> None:
        """Have a server made again when it is started again; None: that of ``core``."""
        self._process.servers.makers[known_as] = partial(self.make_again, name, known_as)

    def make_again(self, name: str | None, known_as: str) -> None:
        """Make the node of a server that has ended, from the present file. Raises BrokerError."""
        loaded = self._read()
        if loaded.server(name).name != known_as:
            raise ConfigError(f"server {known_as!r} has another name now: restart the process", path="core/name")
        self._process.resize(nodes_of(loaded))
        self._changes.forget_store(known_as, notes_directory(self._place.directory, name), loaded.server(name))
        self.make(loaded, name)
        self.write_run_files()

    def _read_server(self, name: str | None) -> LoadedConfig:
        loaded = self._read()
        known = self._process.servers.nodes
        added = [each.configuration.name for each in loaded.servers if each.configuration.name not in known]
        warnings = [_added(server, str(self._place.config)) for server in added] if name is None else []
        return replace(loaded, configuration=loaded.server(name), warnings=(*loaded.warnings, *warnings))

    def _listen(self, loaded: LoadedConfig, name: str | None) -> ManagementListener | None:
        """Listen for management; a further server runs without it if its port is taken, as do the others."""
        if name is None:
            return listen_for_management(self._place, self._allow_remote)
        number = next(n for n, each in enumerate(loaded.servers, 1) if each.configuration.name == name)
        written = loaded.servers[number - 1].management
        try:
            if written is None:
                return listen_for_management(self._place, self._allow_remote, number)
            return listen_for_management(replace(self._place, http=written), self._allow_remote)
        except ConfigError as error:
            log.error("a server has no management", extra={"server": name, "error": str(error)})
            return None

    def write_run_files(self) -> None:
        """Tell commands where the process and its servers are."""
        place, servers = self._place, self._process.servers
        main = next(iter(servers.nodes))
        facts = node_facts(place, main, {name: each.http_url for name, each in servers.nodes.items()})
        place.pid_file.parent.mkdir(parents=True, exist_ok=True)
        for path, text in ((place.pid_file, f"{os.getpid()}\n"), (place.node_file, json.dumps(facts) + "\n")):
            temporary = path.with_suffix(".tmp")
            temporary.write_text(text)
            temporary.replace(path)


def _added(server: str, file: str) -> ConfigWarning:
    message = "a server that was added starts with a reload of the main server by `understudy cli`, or with the process"
    return ConfigWarning(message, f"server[@name='{server}']", file, 1)


def _print_first_commands(configuration: Configuration, place: Instance) -> None:
    """Print the first commands to try on a default instance."""
    url = configuration.acceptors[0].url
    given = "" if url == DEFAULT_URL else f" --url {url}"
    login = "with login" if configuration.security_enabled else "without login"
    echo(f"Understudy {__version__} serves {url} {login}. Configuration: {place.config}")
    echo("Try it from another terminal:")
    echo(f"  understudy produce{given} --queue hello --count 1000")
    echo(f"  understudy consume{given} --queue hello --count 1000")


def _check_modes(configuration: Configuration, place: Instance) -> None:
    """Raises BrokerError for files that are writable by others, and for a token that others can read."""
    folder = place.config.parent
    users = user_files(folder, logins_beside(folder))[0]
    token = [str(place.token_file)] if place.token_file is not None else []
    complaints = check_files([str(place.config), str(users), str(folder / LOGIN_FILE)], token)
    complaints += check_files([*key_files(configuration)], [])
    for complaint in (*complaints, *check_directories(configuration.store_directories())):
        log.warning("file modes", extra={"detail": complaint})


def _remove_run_files(place: Instance) -> None:
    for path in (place.pid_file, place.node_file):
        path.unlink(missing_ok=True)
