"""Directories of journals as arguments of commands."""

from __future__ import annotations

from typing import Final

import click

from understudy.runtime.disk import RealDisk
from understudy.tools.inspect import is_store

#: An existing directory.
STORE: Final = click.Path(exists=True, file_okay=False, resolve_path=True)


def open_store(*directories: str) -> RealDisk:
    """The disk they are on.

    Raises:
        UsageError: one of them holds no journal.
    """
    disk = RealDisk()
    for directory in directories:
        if not is_store(disk, directory):
            raise click.UsageError(f"{directory} holds no journal: no file is named segment-*.log")
    return disk
