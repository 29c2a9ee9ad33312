"""Confirmation of changes that cannot be undone: asked for on a terminal, an option elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

yes_option: Callable[[F], F] = click.option(
    "--yes", is_flag=True, help="Do not ask. Needed where there is no terminal."
)
dry_run_option: Callable[[F], F] = click.option("--dry-run", is_flag=True, help="Count only, and change nothing.")


def confirm(question: str, *, yes: bool) -> None:
    """Ask before a change.

    Raises:
        click.UsageError: there is no terminal, and no ``--yes``.
        click.Abort: the answer was no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Without a terminal this needs --yes.")
    click.confirm(question, abort=True, err=True)
