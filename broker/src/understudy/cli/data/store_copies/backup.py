"""``understudy data backup``: a consistent copy of the store of a node, running or not.

Exit codes: 0 the copy is complete and verified, 1 it could not be made, 2 usage or configuration, 3 the store is
damaged.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from understudy import __version__
from understudy.cli.data.stores import open_store
from understudy.cli.messages.reader import invoke
from understudy.cli.node.instances import config_of
from understudy.cli.node.run import read_configuration
from understudy.cli.node.status import Place
from understudy.cli.terminal import echo
from understudy.config.model import Configuration
from understudy.errors import BrokerError, ConfigError, JournalCorrupt, LargeMessageFailed, StoreError, Unreachable
from understudy.runtime.base.disk import RealDisk
from understudy.store.replication.store_files import StoreDirectories
from understudy.tools.store_copy import StoreCopy, copy_store
from understudy.units import format_bytes, parse_bytes

DESCRIPTION: Final = "backup.json"
"""File of a copy that describes it; written last, so that a copy with it is complete."""
FORMAT: Final = 1
_READER: Final = "backup"


def directories_of(disk: RealDisk, base: str) -> StoreDirectories:
    """The directories in a copy."""
    return StoreDirectories(disk, f"{base}/journal", f"{base}/large-messages")


@click.command("backup")
@click.option(
    "--instance",
    type=click.Path(path_type=Path, exists=True, file_okay=False, resolve_path=True),
    required=True,
    help="Instance directory of the node.",
)
@click.option("--server", help="One of several servers of the instance, by its name; default: that of core.")
@click.option(
    "--to",
    "target",
    required=True,
    type=click.Path(file_okay=False, resolve_path=True),
    help="Directory of the copy; made if it is missing or empty.",
)
@click.option(
    "--reader",
    default=_READER,
    show_default=True,
    help="Name of the reader for which an active node keeps its log meanwhile.",
)
@click.option("--reader-max-bytes", default="100GiB", show_default=True, help="Limit of the log that the reader holds.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
@click.pass_context
def back_up_store(
    context: click.Context,
    instance: Path,
    server: str | None,
    target: str,
    reader: str,
    reader_max_bytes: str,
    as_json: bool,
) -> None:
    """Copy the store of a node with the bodies of its large messages, and verify every byte of the copy.

    The node may be active, passive or stopped; it is not disturbed. Run it as the user of the broker. An active node
    keeps its log for a named reader meanwhile, which is dropped at the end. Records after the begin of the copy are in
    it or not; everything that was confirmed before the begin is.

    \b
    Example: understudy data backup --instance /srv/broker --to /backup/monday
    """
    if os.path.isdir(target) and os.listdir(target):
        raise click.UsageError(f"{target} is not empty; each copy needs a directory of its own")
    try:
        limit_bytes = parse_bytes(reader_max_bytes)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--reader-max-bytes") from error
    configuration = read_configuration(config_of(instance), instance, ()).server(server)
    _refuse_inside(configuration, target)
    try:
        with _held_log(instance, server, reader, limit_bytes) as held:
            made = _copy(configuration, target, held)
    except (JournalCorrupt, LargeMessageFailed) as error:
        echo(f"understudy: {error}", err=True)
        context.exit(3)
    except (BrokerError, OSError) as error:
        echo(f"understudy: {error}", err=True)
        context.exit(1)
    echo(json.dumps({**asdict(made), "directory": target, "reader": held}) if as_json else _text(made, target))


def _refuse_inside(configuration: Configuration, target: str) -> None:
    """Raise UsageError if a copy would be in a directory of the broker, which may remove or count its files."""
    for directory in (
        configuration.journal_directory,
        configuration.bindings_directory,
        configuration.large_messages_directory,
        configuration.paging_directory,
    ):
        if Path(target).is_relative_to(os.path.realpath(directory)):
            raise click.UsageError(f"{target} is in {directory} of the broker: give a directory elsewhere")


def _copy(configuration: Configuration, target: str, held: str | None) -> StoreCopy:
    disk = open_store(configuration.journal_directory)
    source = StoreDirectories(disk, configuration.journal_directory, configuration.large_messages_directory)
    begun_ms = time.time_ns() // 1_000_000

    def progress(doing: str) -> None:
        if sys.stderr.isatty():
            echo(doing, err=True)

    made = copy_store(source, directories_of(disk, target), progress)
    description = {"format": FORMAT, **asdict(made), "begun_ms": begun_ms, "version": __version__, "reader": held}
    write_description(disk, target, description)
    return made


def write_description(disk: RealDisk, target: str, description: dict[str, object]) -> None:
    """Write the file that makes a copy complete, durably."""
    path = f"{target}/{DESCRIPTION}"
    file = disk.open(path + ".tmp", create=True)
    try:
        file.write(0, ((json.dumps(description, indent=2) + "\n").encode("ascii"),))
        file.sync()
    finally:
        file.close()
    disk.rename(path + ".tmp", path)
    disk.sync_directory(target)


def read_description(target: str) -> dict[str, Any]:
    """The description of a copy.

    Raises:
        StoreError: the copy is not complete, or of another version.
    """
    path = f"{target}/{DESCRIPTION}"
    try:
        with open(path, encoding="ascii") as file:
            found = json.load(file)
    except FileNotFoundError:
        raise StoreError(
            f"{path} does not exist, so {target} is no complete copy",
            hint="give the directory that `understudy data backup --to` has made",
        ) from None
    except ValueError as error:
        raise StoreError(f"{path}: {error}") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise StoreError(f"{path}: format {FORMAT} is wanted", hint="use the version of Understudy that made the copy")
    return found


@contextmanager
def _held_log(instance: Path, server: str | None, reader: str, limit_bytes: int) -> Iterator[str | None]:
    """Have an active node keep its log from the beginning on; the name of the reader, None if no active node runs."""
    place = _active(instance, server)
    if place is None:
        yield None
        return
    if any(known["name"] == reader for known in invoke(place, "listReadersAsJSON")["readers"]):
        raise StoreError(
            f"the node has a reader named {reader!r} already",
            hint=f"another backup runs, or was killed: then remove it with `understudy reader drop {reader}`, or give"
            " another name with --reader",
        )
    invoke(place, "registerReader", reader, "earliest", limit_bytes)
    try:
        yield reader
    finally:
        try:
            invoke(place, "dropReader", reader)
        except BrokerError as error:
            echo(
                f"understudy: the reader {reader} could not be dropped and holds the log up to its limit: {error};"
                f" repeat it with `understudy reader drop {reader}` at the active node",
                err=True,
            )


def _active(instance: Path, server: str | None) -> Place | None:
    """The management of the node if it runs and is active."""
    try:
        place = Place.of(instance, None, None, server)
        return place if place.ask("/api/v1/node")["ha"]["state"] == "active" else None
    except Unreachable:
        return None
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


def _text(made: StoreCopy, target: str) -> str:
    return (
        f"{target}: log up to epoch {made.epoch}, sequence {made.sequence}, with {made.messages} messages in queues,"
        f" {made.prepared} prepared transactions and {made.bodies} large bodies, {format_bytes(made.size_bytes)};"
        " every byte was verified"
    )
