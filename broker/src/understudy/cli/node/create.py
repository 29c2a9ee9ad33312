"""``understudy create``: write the directory of a new broker instance, as ``artemis create`` does."""

from __future__ import annotations

import json
import secrets
import shlex
import sys
from pathlib import Path
from typing import Final

import click

from understudy.cli.messages.load import read_password
from understudy.cli.node.defaults import DEFAULT_HTTP
from understudy.cli.node.instances import create_instance
from understudy.cli.terminal import echo
from understudy.config.instance_files import FullHa, InstanceOptions, Pair
from understudy.errors import ConfigError
from understudy.limits import CLUSTER_PASSWORD_CHARACTERS_MIN
from understudy.runtime.management.listener import is_loopback

#: Default port of the acceptor.
CORE_PORT: Final = 61616
#: Port on which clients of AMQP 0-9-1 connect by default.
AMQP_PORT: Final = 5672


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option("--name", help="Name of the node; default: the name of the directory.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of the acceptor, announced to clients.")
@click.option(
    "--port", default=CORE_PORT, show_default=True, type=click.IntRange(1, 65535), help="Port of the acceptor."
)
@click.option(
    "--amqp-port",
    type=click.IntRange(0, 65535),
    help=f"Port of a second acceptor, for AMQP 0-9-1 only; 0: none. Default: {AMQP_PORT} if --port is {CORE_PORT}, else"
    " none. The first acceptor serves AMQP 0-9-1 in any case.",
)
@click.option(
    "--data",
    help="Directory of the store, relative to DIRECTORY; default: data. With --partner: the absolute path of the"
    " directory that both nodes use.",
)
@click.option("--user", default="admin", show_default=True, help="The first user; it gets every permission.")
@click.option(
    "--password-file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="File with its password on the first line; or set UNDERSTUDY_PASSWORD. Otherwise it is asked for.",
)
@click.option("--role", default="amq", show_default=True, help="The role of the first user.")
@click.option("--allow-anonymous", is_flag=True, help="No login at all; accepted on a loopback --host only.")
@click.option("--queue", "queues", multiple=True, help="Anycast queue to create; repeatable.")
@click.option("--address", "addresses", multiple=True, help="Multicast address to create; repeatable.")
@click.option(
    "--partner", metavar="HOST:PORT", help="Make the node one of a shared-store pair; the other node's acceptor."
)
@click.option("--backup", is_flag=True, help="With --partner: this node is the backup.")
@click.option(
    "--cluster-password-file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="With --partner or --preset: file with the password that the nodes share.",
)
@click.option(
    "--preset",
    type=click.Choice(["full-ha"]),
    help="full-ha: a member of a cluster with the names that lines of the management CLI of JBoss EAP assume; without"
    " --cluster-password-file it gets a random password.",
)
@click.option("--force", is_flag=True, help="Replace the configuration in DIRECTORY; the old one goes to etc.replaced.")
@click.option("--json", "as_json", is_flag=True, help="Print the written paths and settings as JSON.")
def create(
    directory: Path,
    name: str | None,
    host: str,
    port: int,
    amqp_port: int | None,
    data: str | None,
    user: str,
    password_file: Path | None,
    role: str,
    allow_anonymous: bool,
    queues: tuple[str, ...],
    addresses: tuple[str, ...],
    partner: str | None,
    backup: bool,
    cluster_password_file: Path | None,
    preset: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write a broker instance to DIRECTORY: etc/broker.xml with comments, users, roles and a management token.

    Security is on unless --allow-anonymous is given. Start the instance with `understudy run --instance DIRECTORY`.

    \b
    Example: understudy create /srv/broker --queue orders --password-file password

    Exit codes: 0 written, 2 an option or the directory cannot be used; nothing is written then.
    """
    directory = directory.resolve()
    if preset is not None and (partner is not None or backup):
        raise click.UsageError(
            "--preset excludes --partner and --backup: lines of `understudy cli` make it one of a pair"
        )
    if preset is not None and amqp_port:
        raise click.UsageError("--preset excludes --amqp-port: its acceptor serves AMQP 0-9-1 too")
    if amqp_port is None:
        amqp_port = AMQP_PORT if port == CORE_PORT and preset is None else 0
    if allow_anonymous and not is_loopback(host):
        raise click.UsageError(f"--allow-anonymous needs a loopback --host; {host} can be reached from other hosts")
    options = InstanceOptions(
        name=name or directory.name,
        host=host,
        port=port,
        amqp_port=amqp_port,
        data=data or "data",
        role=None if allow_anonymous else role,
        queues=queues,
        addresses=addresses,
        pair=None if preset is not None else _pair(partner, backup, cluster_password_file),
        full_ha=None
        if preset is None
        else FullHa(_cluster_password(cluster_password_file) or secrets.token_urlsafe(24)),
    )
    if partner is not None and not Path(data or "").is_absolute():
        text = "--partner needs --data with an absolute path, the same at both nodes: they share one store"
        raise click.UsageError(text)
    password = "" if allow_anonymous else _password(user, role, password_file)
    config = create_instance(directory, options, user=user, password=password, replace=force)
    command = shlex.join(["understudy", "run", "--instance", str(directory)])
    if as_json:
        facts = {"directory": str(directory), "config": str(config), "user": None if allow_anonymous else user}
        echo(json.dumps({**facts, "run": command}, indent=2))
        return
    echo(f"Instance {options.name} written to {directory}.")
    echo(f"Edit {config} and start the broker:\n  {command}")
    if partner is not None:
        echo(f"Management listens on {DEFAULT_HTTP}; two nodes on one host need different --http addresses.")


def _pair(partner: str | None, backup: bool, password_file: Path | None) -> Pair | None:
    if partner is None:
        if backup or password_file is not None:
            raise click.UsageError(
                "--backup and --cluster-password-file need --partner (the file also goes with --preset)"
            )
        return None
    host, _, port = partner.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or not 1 <= int(port) <= 65535:
        raise click.UsageError(f"--partner {partner!r}: expected HOST:PORT")
    password = _cluster_password(password_file)
    if password is None:
        raise click.UsageError("--partner needs --cluster-password-file")
    return Pair(backup, host.strip("[]"), int(port), password)


def _cluster_password(password_file: Path | None) -> str | None:
    """The password in the file; None without a file. Raises ConfigError: it is too short."""
    if password_file is None:
        return None
    password = read_password(password_file) or ""
    if len(password) < CLUSTER_PASSWORD_CHARACTERS_MIN:
        raise ConfigError(
            f"the password is shorter than {CLUSTER_PASSWORD_CHARACTERS_MIN} characters", file=str(password_file)
        )
    return password


def _password(user: str, role: str, password_file: Path | None) -> str:
    """The password of the first user, from the file, the environment, the terminal or standard input."""
    for option, value in (("--user", user), ("--role", role)):
        if not value or value.strip() != value or any(sign in value for sign in "=:#!,\\\n\r"):
            raise click.UsageError(f"{option} {value!r}: letters, digits, '-', '_', '.' and '@' are safe")
    password = read_password(password_file)
    if password is None and sys.stdin.isatty():
        password = click.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True)
    elif password is None:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise click.UsageError(
            "no password: give --password-file, set UNDERSTUDY_PASSWORD, or write it to standard input"
        )
    return password
