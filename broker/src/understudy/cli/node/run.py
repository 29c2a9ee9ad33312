"""``understudy run``: the servers of one broker.xml in the foreground, until they are stopped or fail."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
import uvloop

from understudy.cli.node.check import (
    check_carriers,
    check_plain_logins,
    check_readable,
    check_security,
    check_tls,
    effects,
)
from understudy.cli.node.defaults import DEFAULT_HTTP, default_directory
from understudy.cli.node.hosting import management_address
from understudy.cli.node.instances import config_of, create_instance, default_options, preview, token_of
from understudy.cli.node.serving import Instance, serve
from understudy.cli.node.user_files import security_of
from understudy.cli.terminal import echo
from understudy.config.instance_files import TOKEN_FILE
from understudy.config.reading.servers import LoadedConfig
from understudy.errors import ConfigError
from understudy.runtime.base.logs import configure_logs
from understudy.runtime.files.configuration_file import ConfigurationFile, volatile_store
from understudy.runtime.members.reach import reached_members
from understudy.runtime.process.instance_lock import InstanceLock
from understudy.texts import counted

log = logging.getLogger(__name__)


F = TypeVar("F", bound=Callable[..., Any])


def _properties(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse what names no value: the placeholder would be empty without a word."""
    for text in given:
        name, separator, _ = text.partition("=")
        if not (name and separator):
            raise click.BadParameter(f"{text!r}: NAME=VALUE is wanted")
    return given


def property_option(help_text: str = "Value for ${NAME} in broker.xml.") -> Callable[[F], F]:
    """The option of each command that reads a broker.xml as a node would."""
    return click.option(
        "--property", "properties", multiple=True, metavar="NAME=VALUE", callback=_properties, help=help_text
    )


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
@click.option(
    "--log-file",
    type=click.Path(dir_okay=False),
    help="Append log lines here instead of stderr; the file is opened again when it was renamed.",
)
@click.option(
    "--log-format",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "text", "json"]),
    help="auto: text on a terminal and in the journal of systemd, else one JSON object per line.",
)
@click.option(
    "--logger",
    "loggers",
    multiple=True,
    metavar="NAME=LEVEL",
    help="Level of one logger, such as understudy.cluster=debug; repeatable.",
)
@click.option(
    "--log-level", default="info", show_default=True, type=click.Choice(["debug", "info", "warning", "error"])
)
@property_option(
    "Value for ${NAME} in broker.xml; data.dir, artemis.instance and artemis.instance.etc have one as in Artemis."
)
@click.option(
    "--quarantine",
    is_flag=True,
    help="Set damaged records of the journal aside if their extent is known, and serve the rest;"
    " as quarantine-damaged-records in broker.xml.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Check broker.xml, users, roles and TLS files, print errors, warnings and the members of the cluster that the"
    " static connectors reach, and end.",
)
@click.option("--user", help="With --check, by root: also check that this user can read the TLS files.")
@click.option(
    "--running",
    type=click.Path(dir_okay=False, path_type=Path),
    help="With --check: also say what a node that runs with this file applies at once, and what after a restart.",
)
def run(
    config: Path | None,
    instance: Path | None,
    data: Path | None,
    http: str,
    http_token_file: Path | None,
    http_allow_remote: bool,
    log_file: str | None,
    log_format: str,
    loggers: tuple[str, ...],
    log_level: str,
    properties: tuple[str, ...],
    quarantine: bool,
    check: bool,
    user: str | None,
    running: Path | None,
) -> None:
    """Run a broker node. SIGTERM and SIGINT stop it cleanly.

    A broker.xml with elements ``server`` runs several servers (docs/operate/colocated.md); a signal stops all.

    Without --config and --instance it runs a default instance for this machine: port 61616 on loopback, no login,
    addresses created on first use. Its etc/broker.xml is written on the first run and can be edited.

    \b
    Example: understudy run --instance /srv/broker --http 127.0.0.1:8161

    Exit codes: 0 stopped cleanly, 1 the node failed (the last log line says why), 2 the
    configuration cannot be used.
    """
    if data is not None and (config is not None or instance is not None):
        raise click.UsageError("--data is the default instance's directory; it excludes --config and --instance")
    if not check and (user is not None or running is not None):
        raise click.UsageError("--user and --running go with --check only")
    management_address(http)
    levels = _levels(loggers)
    default = config is None and instance is None
    if config is not None:
        directory = (instance or config.resolve().parent.parent).resolve()
    else:
        directory = (instance or data or default_directory(os.environ)).resolve()
        config = config_of(directory)
    if default and not config.exists():
        if check:
            preview(directory, default_options())
            echo(f"{config}: does not exist; `understudy run` writes a usable one")
            return
        create_instance(directory, default_options())
    loaded = read_configuration(config, directory, properties, quarantine)
    if check:
        _check(loaded, config, user)
        if running is not None:
            for line in _effects(partial(read_configuration, running, directory, properties, quarantine), loaded):
                echo(line)
        return
    lock = InstanceLock(directory)
    lock.claim()
    configure_logs(log_level, log_file, log_format, levels)
    for warning in loaded.warnings:
        log.warning("configuration", extra={"detail": str(warning)})
    place = Instance(directory, config.resolve(), http, http_token_file or token_of(config), default, log_file)
    source = configuration_file(config, directory, properties, quarantine)
    if not loaded.configuration.persistence_enabled:
        log.warning("persistence is off: no message, address or queue outlives this process")
        volatile_store(directory).claim()
    serving = serve(loaded, place, http_allow_remote, source)
    sys.exit(uvloop.run(serving))


def _levels(given: tuple[str, ...]) -> dict[str, str]:
    """Levels of loggers of ``NAME=LEVEL``. Raises UsageError."""
    levels = dict(each.partition("=")[::2] for each in given)
    for name, level in levels.items():
        if level not in ("debug", "info", "warning", "error"):
            raise click.UsageError(f"--logger {name}={level}: the level is debug, info, warning or error")
    return levels


def _effects(read_running: Callable[[], LoadedConfig], loaded: LoadedConfig) -> list[str]:
    """Effects of a changed file on a running node; all need a restart if this release cannot use its present file."""
    try:
        return effects(read_running(), loaded)
    except ConfigError as error:
        return [f"needs a restart: everything, because this release cannot use the present file ({error})"]


def _check(loaded: LoadedConfig, config: Path, user: str | None) -> None:
    """Print warnings about each server. Raises ConfigError: a file of one of them cannot be used."""
    warnings = [*map(str, loaded.warnings)]
    for configuration in loaded.configurations():
        found = [
            *check_security(configuration, config.resolve().parent),
            *check_plain_logins(configuration),
            *check_tls(configuration),
        ]
        check_carriers(configuration)
        if user is not None:
            check_readable(configuration, user)
        warnings += [f"server {configuration.name!r}: {text}" if loaded.servers else text for text in found]
    for text in warnings:
        echo(f"warning: {text}", err=True)
    for configuration in loaded.configurations():
        if any(each.static_connectors for each in configuration.cluster_connections):
            security = security_of(configuration, config.resolve().parent)
            for line in uvloop.run(reached_members(configuration, security)):
                echo(f"server {configuration.name!r}: {line}" if loaded.servers else line)
    servers = f" {1 + len(loaded.servers)} servers," if loaded.servers else ""
    echo(f"{config}: usable,{servers} {counted(len(warnings), 'warning')}")


def read_configuration(
    config: Path,
    directory: Path,
    properties: tuple[str, ...],
    quarantine: bool = False,
    *,
    data: bytes | None = None,
    read_file: Callable[[str], bytes] | None = None,
) -> LoadedConfig:
    """The configuration of a node.

    Args:
        config: The broker.xml of the node.
        directory: Instance directory, base of relative paths.
        properties: ``NAME=VALUE`` for ``${NAME}`` in the file; those of the launcher of Artemis have a value.
        quarantine: Whether damaged records are quarantined, regardless of the file.
        data: Bytes that take the place of those of the file.
        read_file: Takes the place of the files that it includes.

    Raises:
        ConfigError: the file cannot be read or used.
    """
    return configuration_file(config, directory, properties, quarantine).load(data=data, read_file=read_file)


def configuration_file(
    config: Path, directory: Path, properties: tuple[str, ...], quarantine: bool = False
) -> ConfigurationFile:
    """The files of a configuration. Arguments as of ``read_configuration``."""
    values = dict(entry.partition("=")[::2] for entry in properties)
    return ConfigurationFile(config, directory, values, quarantine)
