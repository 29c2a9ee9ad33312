"""``understudy accept-store``: let a node start with an older or another store than it has used.

Exit codes: 0 accepted, 1 the store cannot be read, 2 usage or configuration.
"""

from __future__ import annotations

from pathlib import Path

import click

from understudy.cli.node.instances import config_of
from understudy.cli.node.run import property_option, read_configuration
from understudy.cli.node.serving import notes_directory
from understudy.cli.terminal import echo
from understudy.errors import StoreError
from understudy.runtime.base.disk import RealDisk
from understudy.store.log.reading.follower import recover
from understudy.store.seen import SeenPosition, position_of


@click.command("accept-store")
@click.option(
    "--instance",
    type=click.Path(path_type=Path, exists=True, file_okay=False, resolve_path=True),
    required=True,
    help="Instance directory of the node.",
)
@click.option(
    "--config", type=click.Path(path_type=Path), help="The node's broker.xml; default: etc/broker.xml of the instance."
)
@property_option()
@click.option("--server", help="One of several servers of the instance, by its name; default: that of core.")
def accept_store(instance: Path, config: Path | None, properties: tuple[str, ...], server: str | None) -> None:
    """Accept the present store, although this node has used a later state of it.

    A node refuses a store that is older than the one it has used, because confirmed messages are missing there. Run
    it on each node of the pair, as the user of the broker, while the node is stopped. The position that a lock manager
    has noted for a replicated pair, and records that a replica has more, are given up with it: there it is run on one
    node only, and the other one copies its data.

    \b
    Example: understudy accept-store --instance /srv/broker
    """
    loaded = read_configuration(config or config_of(instance), instance, properties)
    configuration = loaded.server(server)
    disk = RealDisk()
    seen = SeenPosition(disk, str(notes_directory(instance, server)))
    before = disk.exists(seen.path)
    follower = recover(disk, configuration.journal_directory)
    follower.close()
    found = position_of(follower)
    echo(f"in the store: {found}")
    try:
        noted = str(seen.read() or "nothing")
    except StoreError as error:
        noted = str(error)
    echo(f"noted before: {noted}")
    if found.epoch:
        seen.accept(found)
    elif before:
        disk.remove(seen.path)
    echo(f"accepted; {seen.path} is changed")
