"""``understudy user``: users with passwords, in the files of an instance or by the management of a node (ADR 0161)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

from understudy.cli.managing.confirming import confirm, yes_option
from understudy.cli.node.user_places import UserTargets, only_here_option, users_options
from understudy.cli.tables import Table, View, figure_column, view_options
from understudy.cli.terminal import Commands, echo
from understudy.errors import ConfigError
from understudy.management.model.access import User
from understudy.runtime.base.environment import SystemEntropy
from understudy.runtime.files.replacement import replace
from understudy.security.password_hashes import PasswordHash, is_plain, is_scram
from understudy.security.properties_file import entries, replaced
from understudy.texts import counted

USERS: Final = Table("users", (figure_column(User, "name", "user"), figure_column(User, "roles")))


_roles_option = click.option(
    "--role", "roles", multiple=True, required=True, help="A role of the user, as named in broker.xml; repeatable."
)


def _password() -> str:
    """A password: typed twice on a terminal, else the first line of standard input. Raises UsageError: it is empty."""
    if sys.stdin.isatty():
        password: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise click.UsageError("the password is empty: type it, or give it on standard input")
    return password


@click.group(cls=Commands)
def user() -> None:
    """Show, add, change and remove users with passwords.

    Each node of a pair has files of its own: give both nodes, by a context or --url A,B.
    """


@user.command("list")
@users_options
@view_options(USERS)
def list_users(users: UserTargets, view: View) -> None:
    """Show users of the files of a node with their roles; users of a directory are not listed.

    \b
    Example: understudy user list --filter roles=amq
    """
    view.rows(USERS, users.rows())


@user.command()
@users_options
@only_here_option
@click.argument("name")
@_roles_option
def add(users: UserTargets, name: str, roles: tuple[str, ...]) -> None:
    """Add the user NAME. The password is asked for on a terminal, and otherwise read from standard input.

    It is stored as a salted hash, and never an argument that other users of the host can see.

    \b
    Example: understudy user add alice --role orders --role amq

    Exit codes: 0 added at every node of the pair, or to the files of --instance; 1 the user exists, a node refuses, or
    the other node of the pair is not changed; 2 usage; 3 not reachable.
    """
    secret = _password()
    users.change(f"user {name} added", lambda node: node.add(name, secret, roles))


@user.command()
@users_options
@only_here_option
@click.argument("name")
@yes_option
def remove(users: UserTargets, name: str, yes: bool) -> None:
    """Remove the user NAME. Its sessions have no permissions from then on.

    \b
    Example: understudy user remove alice --yes

    Exit codes: 0 removed at every node of the pair, or from the files of --instance; 1 there is no such user, or the
    other node of the pair is not changed; 2 no terminal and no --yes; 3 not reachable.
    """
    confirm(f"Remove user {name}?", yes=yes)
    users.change(f"user {name} removed", lambda node: node.remove(name))


@user.command()
@users_options
@only_here_option
@click.argument("name")
def password(users: UserTargets, name: str) -> None:
    """Give the user NAME another password, which is asked for as by `user add`. Roles stay.

    \b
    Example: understudy user password alice

    Exit codes: 0 changed at every node of the pair, or in the files of --instance; 1 there is no such user, or the
    other node of the pair is not changed; 2 usage; 3 not reachable.
    """
    secret = _password()
    users.change(f"password of user {name} changed", lambda node: node.reset(name, secret, None))


@user.command()
@users_options
@only_here_option
@click.argument("name")
@_roles_option
def roles(users: UserTargets, name: str, roles: tuple[str, ...]) -> None:
    """Give the user NAME exactly these roles. The password stays.

    \b
    Example: understudy user roles alice --role orders --role reports

    Exit codes: 0 changed at every node of the pair, or in the files of --instance; 1 there is no such user, or the
    other node of the pair is not changed; 2 usage; 3 not reachable.
    """
    users.change(f"user {name} has the roles {', '.join(roles)}", lambda node: node.reset(name, None, roles))


# the name of Artemis
user.add_command(remove, "rm")


@user.command(name="hash")
@click.argument("name")
def hash_password(name: str) -> None:
    """Print the line of NAME for artemis-users.properties, with its password salted and hashed.

    The password is asked for on a terminal and otherwise read from standard input, so that it is
    never an argument that other users of the machine can see.

    \b
    Example: understudy user hash alice >> etc/artemis-users.properties
    """
    echo(f"{name} = {PasswordHash.make(_password(), SystemEntropy())}")


@user.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--dry-run", is_flag=True, help="Print the entries, and change nothing.")
def convert(file: Path, dry_run: bool) -> None:
    """Replace every plain password in FILE, a users file of Artemis, by its hash.

    Hashes that Artemis made (ENC(1024:salt:hash)) stay: the broker verifies them, and replaces each at the next login
    of its user. Entries with SCRAM keys have no password to hash; they are named, and the exit code is 1.

    \b
    Example: understudy user convert etc/artemis-users.properties
    """
    text = file.read_text()
    try:
        found = list(entries(text, str(file)))
        entropy = SystemEntropy()
        plain = [entry for entry in found if is_plain(entry)]
        if plain and not dry_run:
            hashes: dict[str, str | None] = {entry.key: str(PasswordHash.make(entry.value, entropy)) for entry in plain}
            replace(file, replaced(text, str(file), hashes).encode())
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    for entry in plain:
        echo(f"{entry.key}: plain password {'to hash' if dry_run else 'hashed'}")
    scram = [entry for entry in found if is_scram(entry)]
    for entry in scram:
        name = entry.key.partition("|")[0]
        hint = f"replace them by the line that `understudy user hash {name}` prints"
        echo(f"{name}: SCRAM keys on line {entry.line} stay; {hint}", err=True)
    unchanged = " (nothing was changed)" if dry_run else ""
    echo(f"{file}: {counted(len(found), 'user')}, {counted(len(plain), 'plain password')}{unchanged}")
    if scram:
        sys.exit(1)
