"""``understudy run``: one broker node in the foreground, until it is stopped or fails."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click
import uvloop

from understudy import __version__
from understudy.cli.check import check_carriers, check_readable, check_security, check_tls, key_files
from understudy.cli.defaults import DEFAULT_HTTP, DEFAULT_URL, default_directory
from understudy.cli.hosting import backup_parts, listen_for_management
from understudy.cli.instances import config_of, create_instance, default_options, preview, token_of
from understudy.cli.user_files import security_of, watched_files
from understudy.config.instance_files import TOKEN_FILE, USERS_FILE
from understudy.config.model import Configuration
from understudy.config.password_codec import KEY_VARIABLE
from understudy.config.reader import read_broker_xml
from understudy.config.servers import LoadedConfig
from understudy.errors import ConfigError
from understudy.runtime.file_modes import check_directories, check_files
from understudy.runtime.logs import configure_logs
from understudy.runtime.server import Server
from understudy.runtime.volatile_store import VolatileStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Instance:
    """Paths of the files of one node, except its store."""

    directory: Path
    config: Path
    http: str
    token_file: Path | None
    greets: bool = False
    """Whether the node prints example commands once it is active."""

    @property
    def pid_file(self) -> Path:
        """File with the process id while the node runs."""
        return self.directory / "run" / "understudy.pid"

    @property
    def node_file(self) -> Path:
        """File with the process id, the configuration and the management address while the node runs."""
        return self.directory / "run" / "node.json"


@click.command()
@click.option("--config", type=click.Path(path_type=Path), help="The node's broker.xml; default: etc/ of the instance.")
@click.option(
    "--instance",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of etc/, run/ and relative store paths; default: the parent of the folder of --config.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="Without --config and --instance: the instance directory, written first when it is new;"
    " default: understudy in the XDG state directory.",
)
@click.option("--http", default=DEFAULT_HTTP, show_default=True, help="Management address, host:port, or 'off'.")
@click.option(
    "--http-token-file",
    type=click.Path(path_type=Path),
    help=f"File with the management token, mode 0600; default: {TOKEN_FILE} beside broker.xml if it exists.",
)
@click.option("--http-allow-remote", is_flag=True, help="Let management listen on an address that is not loopback.")
@click.option("--log-file", type=click.Path(dir_okay=False), help="Append JSON log lines here instead of stderr.")
@click.option(
    "--log-level", default="info", show_default=True, type=click.Choice(["debug", "info", "warning", "error"])
)
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="Value for ${NAME} in broker.xml.")
@click.option(
    "--quarantine",
    is_flag=True,
    help="Set damaged records of the journal aside if their extent is known, and serve the rest;"
    " as quarantine-damaged-records in broker.xml.",
)
@click.option(
    "--check", is_flag=True, help="Check broker.xml, users, roles and TLS files, print errors and warnings, and end."
)
@click.option("--user", help="With --check, by root: also check that this user can read the TLS files.")
def run(
    config: Path | None,
    instance: Path | None,
    data: Path | None,
    http: str,
    http_token_file: Path | None,
    http_allow_remote: bool,
    log_file: str | None,
    log_level: str,
    properties: tuple[str, ...],
    quarantine: bool,
    check: bool,
    user: str | None,
) -> None:
    """Run a broker node. SIGTERM and SIGINT stop it cleanly.

    Without --config and --instance it runs a default instance for this machine: port 61616 on loopback, no login,
    addresses created on first use. Its etc/broker.xml is written on the first run and can be edited.

    Exit codes: 0 stopped cleanly, 1 the node failed (the last log line says why), 2 the
    configuration cannot be used.
    """
    if data is not None and (config is not None or instance is not None):
        raise click.UsageError("--data is the default instance's directory; it excludes --config and --instance")
    default = config is None and instance is None
    if config is not None:
        directory = (instance or config.resolve().parent.parent).resolve()
    else:
        directory = (instance or data or default_directory(os.environ)).resolve()
        config = config_of(directory)
    if default and not config.exists():
        if check:
            preview(directory, default_options())
            click.echo(f"{config}: does not exist; `understudy run` writes a usable one")
            return
        create_instance(directory, default_options())
    loaded = read_configuration(config, directory, properties, quarantine)
    if check:
        configuration = loaded.configuration
        warnings = [*map(str, loaded.warnings), *check_security(configuration, config.resolve().parent)]
        warnings += check_tls(configuration)
        check_carriers(configuration)
        if user is not None:
            check_readable(configuration, user)
        for text in warnings:
            click.echo(f"warning: {text}", err=True)
        click.echo(f"{config}: usable, {len(warnings)} warnings")
        return
    configure_logs(log_level, log_file)
    for warning in loaded.warnings:
        log.warning("configuration", extra={"detail": str(warning)})
    place = Instance(directory, config.resolve(), http, http_token_file or token_of(config), greets=default)
    read = partial(read_configuration, config, directory, properties, quarantine)
    if not loaded.configuration.persistence_enabled:
        log.warning("persistence is off: no message, address or queue outlives this process")
        _volatile_store(directory).claim()
    sys.exit(uvloop.run(_serve(loaded.configuration, place, http_allow_remote, read)))


def read_configuration(
    config: Path, directory: Path, properties: tuple[str, ...], quarantine: bool = False
) -> LoadedConfig:
    """The configuration of a node.

    Args:
        config: Its broker.xml.
        directory: Instance directory, base of relative paths.
        properties: ``NAME=VALUE`` for ``${NAME}`` in the file.
        quarantine: Whether damaged records are quarantined, regardless of the file.

    Raises:
        ConfigError: the file cannot be read or used.
    """
    try:
        data = config.read_bytes()
    except OSError as error:
        hint = "`understudy create DIR` writes an instance" if isinstance(error, FileNotFoundError) else None
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(config), hint=hint) from error
    values = dict(entry.partition("=")[::2] for entry in properties)
    loaded = read_broker_xml(
        data, file=str(config), base_directory=str(directory), properties=values, codec_key=os.environ.get(KEY_VARIABLE)
    )
    if quarantine:
        loaded = replace(loaded, configuration=replace(loaded.configuration, quarantine_damaged_records=True))
    if not loaded.configuration.persistence_enabled:
        loaded = replace(loaded, configuration=_volatile_store(directory).configure(loaded.configuration))
    return loaded


def _volatile_store(directory: Path) -> VolatileStore:
    return VolatileStore(directory / "run" / "volatile")


async def _serve(
    configuration: Configuration, place: Instance, allow_remote: bool, read: Callable[[], LoadedConfig]
) -> int:
    security = security_of(configuration, place.config.parent)
    _check_modes(configuration, place)
    listener = listen_for_management(place, allow_remote)
    colocated = configuration.ha_policy.colocated
    server = Server(1 if colocated is None else 1 + colocated.max_backups)
    # a volatile store is empty at each start, so a recorded position does not apply to it
    seen = str(place.directory) if configuration.persistence_enabled else None
    backups = None if colocated is None else backup_parts(place, allow_remote, colocated.backup_port_offset, read)
    hosted = server.add(configuration, security, instance_directory=seen, listener=listener, backups=backups)
    hosted.files = watched_files(hosted.node, security, place.config, read)
    if place.greets:
        hosted.on_started = partial(_print_first_commands, configuration, place)
    _write_run_files(place, configuration)
    try:
        clean = await server.run()
    finally:
        _remove_run_files(place)
        if not configuration.persistence_enabled:
            _volatile_store(place.directory).remove()
    log.info("stopped", extra={"clean": clean})
    return 0 if clean else 1


def _print_first_commands(configuration: Configuration, place: Instance) -> None:
    """Print the first commands to try on a default instance."""
    url = configuration.acceptors[0].url
    given = "" if url == DEFAULT_URL else f" --url {url}"
    login = "with login" if configuration.security_enabled else "without login"
    click.echo(f"Understudy {__version__} serves {url} {login}. Configuration: {place.config}")
    click.echo("Try it from another terminal:")
    click.echo(f"  understudy produce{given} --queue hello --count 1000")
    click.echo(f"  understudy consume{given} --queue hello --count 1000")


def _check_modes(configuration: Configuration, place: Instance) -> None:
    """Raises BrokerError for files that are writable by others, and for a token that others can read."""
    users = place.config.parent / USERS_FILE
    token = [str(place.token_file)] if place.token_file is not None else []
    complaints = check_files([str(place.config), str(users)], token)
    complaints += check_files([*key_files(configuration)], [])
    for complaint in (*complaints, *check_directories(configuration.store_directories())):
        log.warning("file modes", extra={"detail": complaint})


def _write_run_files(place: Instance, configuration: Configuration) -> None:
    place.pid_file.parent.mkdir(parents=True, exist_ok=True)
    facts = {
        "pid": os.getpid(),
        "name": configuration.name,
        "config": str(place.config),
        "http_url": None if place.http == "off" else f"http://{place.http}",
        "token_file": str(place.token_file) if place.token_file else None,
    }
    for path, text in ((place.pid_file, f"{os.getpid()}\n"), (place.node_file, json.dumps(facts) + "\n")):
        temporary = path.with_suffix(".tmp")
        temporary.write_text(text)
        temporary.replace(path)


def _remove_run_files(place: Instance) -> None:
    for path in (place.pid_file, place.node_file):
        path.unlink(missing_ok=True)
