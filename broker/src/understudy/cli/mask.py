"""``understudy mask``: a masked password for broker.xml."""

from __future__ import annotations

import json
import os
import sys

import click

from understudy.cli.terminal import echo
from understudy.config.password_codec import KEY_VARIABLE, PasswordCodec


@click.command()
@click.argument("password", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
def mask(password: str | None, as_json: bool) -> None:
    """Print PASSWORD masked, as ENC(...) for broker.xml. Artemis reads it, and Understudy that of `artemis mask`.

    Without PASSWORD it is asked for on a terminal and otherwise read from the first line of standard input, so that
    it is never an argument that other users of the machine can see.

    The key is taken from the environment variable ARTEMIS_DEFAULT_SENSITIVE_STRING_CODEC_KEY, which the broker needs
    as well. Without it Artemis' default key is used, which is public.

    \b
    Example: understudy mask
    """
    if password is None:
        if sys.stdin.isatty():
            password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        else:
            password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise click.UsageError("the password is empty")
    key = os.environ.get(KEY_VARIABLE)
    try:
        masked = PasswordCodec(key).mask(password)
    except ValueError as error:
        raise click.UsageError(f"{KEY_VARIABLE}: {error}") from error
    if key is None:
        echo(f"warning: {KEY_VARIABLE} is not set; the default key is public", err=True)
    echo(json.dumps({"masked": masked, "default_key": key is None}) if as_json else masked)
