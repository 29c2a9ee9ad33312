"""``understudy data prune``: remove old copies of the store that a backup has moved aside.

Exit codes: 0 done (or planned, with --dry-run), 1 a directory could not be removed, 2 usage.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import click

from understudy.cli.node.instances import config_of
from understudy.cli.node.run import property_option, read_configuration
from understudy.cli.terminal import echo
from understudy.config.model import Configuration
from understudy.errors import BrokerError
from understudy.runtime.base.disk import RealDisk
from understudy.store.replication.store_files import StoreDirectories
from understudy.tools.pruning import OldCopies, find_copies, remove_inside


@click.command("prune")
@click.option(
    "--instance",
    required=True,
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Instance directory of the node.",
)
@click.option(
    "--config", type=click.Path(path_type=Path), help="The node's broker.xml; default: etc/broker.xml of the instance."
)
@property_option()
@click.option("--server", help="One of several servers of the instance, by its name; default: that of core.")
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Copies that stay, those with the highest numbers; the last one may be needed to get messages back.",
)
@click.option("--dry-run", is_flag=True, help="Only print the paths that would be removed.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
def prune_copies(
    instance: Path,
    config: Path | None,
    properties: tuple[str, ...],
    server: str | None,
    keep: int,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Remove old copies of the store of a node, running or not.

    A backup moves its data to oldreplica.N when it copies its primary anew, and keeps as many of them as
    max-saved-replicated-journals-size says. Stores that came from another broker have directories with a number after
    the name instead (journal1), which nothing removes. The directories in use and the newest copies stay.

    \b
    Example: understudy data prune --instance /srv/broker --dry-run
    """
    loaded = read_configuration(config or config_of(instance), instance.resolve(), properties)
    configuration = loaded.server(server)
    used = [path for each in loaded.configurations() for path in each.store_directories()]
    store = StoreDirectories(RealDisk(), configuration.journal_directory, configuration.large_messages_directory)
    old = find_copies(store, _directories(configuration), used).superfluous(keep)
    paths = list(_paths(store, old))
    if not dry_run:
        remove_inside(store, keep)
        for path in (each for group in old.beside for each in group):
            try:
                shutil.rmtree(path)
            except OSError as error:
                raise BrokerError(f"{path} cannot be removed: {error.strerror}") from error
    if as_json:
        echo(json.dumps({"removed": [] if dry_run else paths, "planned": paths if dry_run else []}))
        return
    for path in paths:
        echo(f"{'would remove' if dry_run else 'removed'} {path}")
    if not paths:
        echo("nothing to remove")


def _directories(configuration: Configuration) -> tuple[str, ...]:
    return (
        configuration.bindings_directory,
        configuration.journal_directory,
        configuration.large_messages_directory,
        configuration.paging_directory,
    )


def _paths(store: StoreDirectories, old: OldCopies) -> Iterator[str]:
    for number in old.inside:
        yield from (path for base in (store.log, store.bodies) if os.path.isdir(path := f"{base}/oldreplica.{number}"))
    for group in old.beside:
        yield from group
