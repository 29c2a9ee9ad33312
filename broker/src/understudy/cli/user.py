"""``understudy user``: entries of the users file of a broker with security enabled."""

from __future__ import annotations

import sys

import click

from understudy.runtime.environment import SystemEntropy
from understudy.security.authentication import PasswordHash


@click.group()
def user() -> None:
    """Entries for artemis-users.properties."""


@user.command(name="hash")
@click.argument("name")
def hash_password(name: str) -> None:
    """Print the line of NAME for artemis-users.properties, with its password salted and hashed.

    The password is asked for on a terminal and otherwise read from standard input, so that it is
    never an argument that other users of the machine can see.
    """
    if sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\n")
    if not password:
        raise click.UsageError("the password is empty")
    click.echo(f"{name} = {PasswordHash.make(password, SystemEntropy())}")
