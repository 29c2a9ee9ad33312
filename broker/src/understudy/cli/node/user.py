"""``understudy user``: entries of the users file of a broker with security enabled."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from understudy.cli.terminal import Commands, echo
from understudy.errors import ConfigError
from understudy.runtime.base.environment import SystemEntropy
from understudy.runtime.files.replacement import replace
from understudy.security.password_hashes import PasswordHash, is_plain, is_scram
from understudy.security.properties_file import entries, replaced


@click.group(cls=Commands)
def user() -> None:
    """Make entries for artemis-users.properties."""


@user.command(name="hash")
@click.argument("name")
def hash_password(name: str) -> None:
    """Print the line of NAME for artemis-users.properties, with its password salted and hashed.

    The password is asked for on a terminal and otherwise read from standard input, so that it is
    never an argument that other users of the machine can see.

    \b
    Example: understudy user hash alice >> etc/artemis-users.properties
    """
    if sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\n")
    if not password:
        raise click.UsageError("the password is empty")
    echo(f"{name} = {PasswordHash.make(password, SystemEntropy())}")


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
            hashes = {entry.key: str(PasswordHash.make(entry.value, entropy)) for entry in plain}
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
    echo(f"{file}: {len(found)} users, {len(plain)} plain passwords{' (nothing was changed)' if dry_run else ''}")
    if scram:
        sys.exit(1)
