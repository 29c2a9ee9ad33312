"""Entry point of ``understudy``; each command's module is imported when it is used.

Exit codes, the same everywhere: 0 done, 1 a check found something or the broker failed, 2 usage
or configuration, 3 broker unreachable, 4 timed out.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import sys
from typing import Any, Final

import click

from understudy import __version__
from understudy.cli.terminal import Commands, echo
from understudy.errors import BrokerError, CallTimedOut, ConfigError, ConnectionFailed, FailoverTimedOut
from understudy.local_paths import local_path

_COMMANDS: Final = {
    "accept-store": "understudy.cli.node.accept_store:accept_store",
    "activate": "understudy.cli.node.handing_over:activate",
    "address": "understudy.cli.managing.addresses:address",
    "bridge": "understudy.cli.messages.bridge:bridge",
    "browse": "understudy.cli.messages.browse:browse",
    "channel": "understudy.cli.managing.clients:channel",
    "check": "understudy.cli.managing.checks:check",
    "cli": "understudy.cli.console.command:management_cli",
    "cluster": "understudy.cli.node.cluster:cluster",
    "config": "understudy.cli.node.configuration.commands:config",
    "completion": "understudy.cli.managing.context:completion",
    "connection": "understudy.cli.managing.clients:connection",
    "context": "understudy.cli.managing.context:context",
    "consume": "understudy.cli.messages.consume:consume",
    "consumer": "understudy.cli.managing.clients:consumer",
    "create": "understudy.cli.node.create:create",
    "data": "understudy.cli.data.commands:data",
    "definitions": "understudy.cli.managing.definitions.commands:definitions",
    "demo": "understudy.cli.node.demo:demo",
    "dlq": "understudy.cli.managing.dlq:dlq",
    "events": "understudy.cli.managing.events:events",
    "exchange": "understudy.cli.managing.exchanges:exchange",
    "failback": "understudy.cli.node.handing_over:failback",
    "failover": "understudy.cli.node.handing_over:failover",
    "ha": "understudy.cli.managing.ha:ha",
    "ledger": "understudy.cli.data.ledger:ledger",
    "log": "understudy.cli.managing.log:log",
    "mask": "understudy.cli.mask:mask",
    "message": "understudy.cli.managing.messages:message",
    "migrate": "understudy.cli.data.migrate:migrate",
    "operation": "understudy.cli.managing.operations:operation",
    "permission": "understudy.cli.managing.permissions:permission",
    "pipeline": "understudy.cli.pipeline.commands:pipeline",
    "produce": "understudy.cli.messages.produce:produce",
    "promote": "understudy.cli.node.promote:promote",
    "queue": "understudy.cli.managing.queues:queue",
    "reader": "understudy.cli.messages.reader:reader",
    "receive": "understudy.cli.messages.receive:receive",
    "run": "understudy.cli.node.run:run",
    "send": "understudy.cli.messages.send:send",
    "session": "understudy.cli.managing.clients:session",
    "sim": "understudy.testing.simulate:main",
    "start": "understudy.cli.node.start:start",
    "status": "understudy.cli.node.status:status",
    "stop": "understudy.cli.node.status:stop",
    "top": "understudy.cli.managing.top:top",
    "transaction": "understudy.cli.managing.clients:transaction",
    "user": "understudy.cli.node.user:user",
    "witness": "understudy.cli.node.witness:witness",
}

_SECTIONS: Final = {
    "Brokers and their state": (
        "demo", "create", "run", "status", "top", "ha", "events", "log", "check", "stop", "start", "cluster", "witness",
    ),
    "Messages": ("send", "receive", "browse", "produce", "consume", "message", "dlq"),
    "Queues, addresses and clients": (
        "queue", "address", "exchange", "connection", "session", "channel", "consumer", "transaction", "bridge",
        "operation",
    ),
    "Handing the service over": ("failover", "failback", "promote", "activate", "accept-store"),
    "Configuration and users": ("cli", "config", "definitions", "user", "permission", "mask", "migrate"),
    "Stores, journals and ledgers": ("data", "reader", "ledger", "pipeline"),
    "Other": ("context", "completion", "sim"),
}  # fmt: skip


class LocalPath(click.Path):
    """A path on this host, or a ``file:`` URL of one; URLs of other schemes are refused (exit code 2)."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Check the path and return it."""
        if isinstance(value, str):
            try:
                value = local_path(value, "it is a URL")
            except ConfigError as error:
                self.fail(str(error).removeprefix("it is a URL: "), param, ctx)
        return super().convert(value, param, ctx)


def with_local_paths(command: click.Command) -> click.Command:
    """The command, whose parameters of type ``click.Path``, and those of its subcommands, take local paths only."""
    for parameter in command.params:
        if isinstance(parameter.type, click.Path) and not isinstance(parameter.type, LocalPath):
            parameter.type = _local(parameter.type)
    if isinstance(command, click.Group):
        for each in command.commands.values():
            with_local_paths(each)
    return command


def _local(given: click.Path) -> LocalPath:
    options: dict[str, Any] = {
        name: getattr(given, name)
        for name in ("exists", "file_okay", "dir_okay", "writable", "readable", "resolve_path", "allow_dash")
    }
    return LocalPath(**options, executable=given.executable, path_type=given.type)


#: What a write to standard output ends with if its file cannot take more; click ends a closed pipe without a word.
_OUTPUT_FAILURES: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class LazyGroup(Commands):
    """Loads a command's module only when it is called or its help is shown."""

    sections = _SECTIONS

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands, without loading their modules."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load the module of a command."""
        place = _COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, _, attribute = place.partition(":")
        # imported objects remain: searching them for garbage is a fifth of the time to start
        gc.disable()
        try:
            command = getattr(importlib.import_module(module), attribute)
        finally:
            gc.enable()
        assert isinstance(command, click.Command)
        return with_local_paths(command)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="understudy")
def cli() -> None:
    """A highly available message broker: run and inspect it, send and receive messages, audit ledgers."""


def exit_code_of(error: BrokerError) -> int:
    """The exit code that belongs to an error."""
    if isinstance(error, ConfigError):
        return 2
    if isinstance(error, (FailoverTimedOut, CallTimedOut)):
        return 4
    return 3 if isinstance(error, ConnectionFailed) else 1


def main() -> None:
    """Run the command line; errors raised on purpose end as one line and an exit code."""
    _run(cli, "understudy")


def jboss_cli() -> None:
    """Run ``understudy cli`` under the name that scripts of the reference product call."""
    command = cli.get_command(click.Context(cli), "cli")
    assert command is not None
    _run(command, "jboss-cli.sh")


def _run(command: click.Command, name: str) -> None:
    if not __debug__:
        # without assertions the broker would continue after an internal error
        sys.exit("understudy does not run under python -O: its assertions are part of its safety")
    try:
        command(prog_name=name)
    except BrokerError as error:
        echo(f"{name}: {error}", err=True)
        sys.exit(exit_code_of(error))
    except OSError as error:
        # a file that has a name is not the output, and its command has an error of its own for it
        if error.errno not in _OUTPUT_FAILURES or error.filename is not None:
            raise
        echo(f"{name}: the output cannot be written: {error.strerror}", err=True)
        sys.exit(1)
