"""``understudy run``: one broker node in the foreground, until it is told to stop or must."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import uvloop

from understudy.config.model import Configuration, LoadedConfig
from understudy.config.reader import read_broker_xml
from understudy.errors import BrokerError, ConfigError, DiskFailed
from understudy.runtime import interpreter
from understudy.runtime.critical_analyzer import CriticalAnalyzer
from understudy.runtime.environment import SystemClock, SystemEntropy, system_environment
from understudy.runtime.file_modes import check_directories, check_files
from understudy.runtime.logs import configure_logs
from understudy.runtime.node import BrokerNode
from understudy.runtime.node_view import LiveNodeView
from understudy.runtime.systemd import Watchdog, notify
from understudy.security.authorization import SecurityPolicy, security_policy

if TYPE_CHECKING:
    from understudy.runtime.http import ManagementServer

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Instance:
    """Where one node keeps what is not its store."""

    directory: Path
    config: Path
    http: str
    token_file: Path | None

    @property
    def pid_file(self) -> Path:
        return self.directory / "run" / "understudy.pid"

    @property
    def node_file(self) -> Path:
        return self.directory / "run" / "node.json"


@click.command()
@click.option("--config", type=click.Path(path_type=Path), required=True, help="The node's broker.xml.")
@click.option(
    "--instance",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of run/ and of relative store paths; default: the parent of the folder of --config.",
)
@click.option("--http", default="127.0.0.1:8161", show_default=True, help="Management address, host:port, or 'off'.")
@click.option("--http-token-file", type=click.Path(path_type=Path), help="File with the management token, mode 0600.")
@click.option("--http-allow-remote", is_flag=True, help="Let management listen on an address that is not loopback.")
@click.option("--log-file", type=click.Path(dir_okay=False), help="Append JSON log lines here instead of stderr.")
@click.option(
    "--log-level", default="info", show_default=True, type=click.Choice(["debug", "info", "warning", "error"])
)
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="Value for ${NAME} in broker.xml.")
@click.option("--check", is_flag=True, help="Read the configuration, say what is wrong with it, and end.")
def run(
    config: Path,
    instance: Path | None,
    http: str,
    http_token_file: Path | None,
    http_allow_remote: bool,
    log_file: str | None,
    log_level: str,
    properties: tuple[str, ...],
    check: bool,
) -> None:
    """Run a broker node. SIGTERM and SIGINT stop it cleanly.

    Exit codes: 0 stopped cleanly, 1 the node failed (the last log line says why), 2 the
    configuration cannot be used.
    """
    directory = (instance or config.resolve().parent.parent).resolve()
    loaded = _read(config, directory, properties)
    if check:
        for warning in loaded.warnings:
            click.echo(f"warning: {warning}", err=True)
        click.echo(f"{config}: usable, {len(loaded.warnings)} warnings")
        return
    configure_logs(log_level, log_file)
    for warning in loaded.warnings:
        log.warning("configuration", extra={"detail": str(warning)})
    place = Instance(directory, config.resolve(), http, http_token_file)
    sys.exit(uvloop.run(_serve(loaded.configuration, place, http_allow_remote)))


def _read(config: Path, directory: Path, properties: tuple[str, ...]) -> LoadedConfig:
    try:
        data = config.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(config)) from error
    values = dict(entry.partition("=")[::2] for entry in properties)
    return read_broker_xml(data, file=str(config), base_directory=str(directory), properties=values)


async def _serve(configuration: Configuration, place: Instance, allow_remote: bool) -> int:
    loop = asyncio.get_running_loop()
    security = _security(configuration, place.config.parent)
    _check_modes(configuration, place)
    node = BrokerNode(configuration, system_environment(loop), security)
    _write_run_files(place, configuration)
    management = await _start_management(node, place, allow_remote)
    stopping: list[asyncio.Task[None]] = []

    def stop() -> None:
        # the second time it does not wait for clients any longer
        if len(stopping) < 2:
            log.info("stopping", extra={"reason": "signal"})
            notify("STOPPING=1")
            stopping.append(loop.create_task(node.stop()))

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    watchdog = Watchdog(loop)
    watchdog.start()
    analyzer = CriticalAnalyzer(
        node.environment.critical_paths,
        configuration.critical_analyzer_policy,
        timeout_ms=configuration.critical_analyzer_timeout_ms,
        check_period_ms=configuration.critical_analyzer_check_period_ms,
        shut_down=lambda reason: node.policy.fail(DiskFailed(reason)),
    )
    if configuration.critical_analyzer:
        analyzer.start(loop)
    try:
        await node.start()
        interpreter.settle()
        notify(f"READY=1\nSTATUS={node.state}")
        log.info("started", extra={"state": node.state})
        error = await node.wait_ended()
    except BrokerError as failure:
        log.error("node did not start", extra={"code": failure.code, "error": str(failure)})
        error = failure
    finally:
        watchdog.stop()
        analyzer.stop()
        if management is not None:
            await management.stop()
        _remove_run_files(place)
    log.info("stopped", extra={"clean": error is None})
    return 0 if error is None else 1


async def _start_management(node: BrokerNode, place: Instance, allow_remote: bool) -> ManagementServer | None:
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
    # a node without management is spared what it stands on: a third of the time to start, 15 MiB
    from understudy.runtime.http import ManagementServer

    server = ManagementServer(
        LiveNodeView(node), host=host.strip("[]"), port=int(port), token=token, allow_remote=allow_remote
    )
    await server.start()
    return server


def _security(configuration: Configuration, folder: Path) -> SecurityPolicy:
    """Users and roles stand beside broker.xml, under the names that Artemis operators know."""
    users, roles = folder / "artemis-users.properties", folder / "artemis-roles.properties"
    texts = {}
    for path in (users, roles):
        try:
            texts[path] = path.read_text() if configuration.security_enabled else ""
        except OSError as error:
            raise ConfigError(f"security is enabled: {error.strerror}", file=str(path)) from error
    return security_policy(
        configuration,
        SystemEntropy(),
        SystemClock(),
        users=texts[users],
        users_file=str(users),
        roles=texts[roles],
        roles_file=str(roles),
    )


def _check_modes(configuration: Configuration, place: Instance) -> None:
    """Raises BrokerError for what everybody can write, and for a token that everybody can read."""
    users = place.config.parent / "artemis-users.properties"
    token = [str(place.token_file)] if place.token_file is not None else []
    complaints = check_files([str(place.config), str(users)], token)
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
