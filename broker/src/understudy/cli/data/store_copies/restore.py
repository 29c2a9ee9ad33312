"""``understudy data restore`` and ``set-aside``: a copy in the place of the store of a node that does not run.

Exit codes: 0 done, or only checked and possible, 1 refused or not completed, 2 usage or configuration, 3 a store is
damaged or cannot be read.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from understudy.cli.data.store_copies.backup import directories_of, read_description
from understudy.cli.data.stores import locked_store
from understudy.cli.node.instances import config_of
from understudy.cli.node.run import read_configuration
from understudy.cli.node.serving import notes_directory
from understudy.cli.terminal import echo
from understudy.errors import BrokerError, DiskFailed, JournalCorrupt, LargeMessageFailed, StoreBehind
from understudy.ids import NodeId, uuid_bytes, uuid_text
from understudy.runtime.base.disk import RealDisk
from understudy.runtime.process.instance_lock import InstanceLock
from understudy.store.node_lock import NodeLock
from understudy.store.replication.replica_state import incomplete_copy, write_replica_state
from understudy.store.replication.store_files import StoreDirectories
from understudy.store.seen import Position, SeenPosition
from understudy.tools.restore import Restore, Restored, set_aside, why_refused

_INSTANCE = click.option(
    "--instance",
    type=click.Path(path_type=Path, exists=True, file_okay=False, resolve_path=True),
    required=True,
    help="Instance directory of the node, which does not run.",
)
_SERVER = click.option("--server", help="One of several servers of the instance, by its name; default: that of core.")
_JSON = click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")


class _Place:
    """The store of a node, its lock, and its notes."""

    def __init__(self, instance: Path, server: str | None) -> None:
        configuration = read_configuration(config_of(instance), instance, ()).server(server)
        self.disk = RealDisk()
        self.store = StoreDirectories(
            self.disk, configuration.journal_directory, configuration.large_messages_directory
        )
        self.seen = SeenPosition(self.disk, str(notes_directory(instance, server)))
        self._locks = configuration.lock_directory
        self._process = InstanceLock(instance)

    @contextmanager
    def locked(self) -> Iterator[NodeLock]:
        """Hold the instance and both locks of the store: the node does not run, and no other one uses its store.

        Nodes of a replicated pair with a lock manager do not take the locks of the store.
        """
        self._process.claim()
        for path in (self.store.log, self.store.bodies, self._locks):
            os.makedirs(path, mode=0o700, exist_ok=True)
        with locked_store(self.disk, self._locks) as lock:
            if not lock.try_backup():
                raise DiskFailed(f"{self._locks}: a passive node follows this store", hint="stop it first")
            yield lock


@click.command("restore")
@_INSTANCE
@_SERVER
@click.option(
    "--from",
    "source",
    required=True,
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    help="Directory that `understudy data backup --to` has made; only read.",
)
@click.option(
    "--over-newer",
    is_flag=True,
    help="Also where the present store, or the note of the node, is newer than the copy: these messages are given up.",
)
@click.option("--dry-run", is_flag=True, help="Only compare, and say whether the copy would be refused.")
@_JSON
@click.pass_context
def restore_copy(
    context: click.Context,
    instance: Path,
    server: str | None,
    source: str,
    over_newer: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Put a copy in the place of the store of a node that does not run. Run it as the user of the broker.

    The present files are moved to oldreplica.N in the directories of the store. Refused if the present store has
    records that the copy has not. May be interrupted at any time and repeated.

    \b
    Example: understudy data restore --instance /srv/broker --from /backup/monday
    """
    try:
        read_description(source)
        place = _Place(instance, server)
        copy = directories_of(place.disk, source)
        if dry_run:
            reason = _judge(copy, place, source, over_newer=over_newer)
            echo(json.dumps({"refused": reason}) if as_json else "the copy can be restored; nothing was changed")
            return
        with place.locked() as lock:
            restore = Restore(copy, place.store, _progress)
            reason = None if restore.begun else _judge(copy, place, source, over_newer=over_newer)
            done = restore.run()
            lock.adopt(NodeId(done.node_id))
            if over_newer:
                place.seen.accept(Position(done.node_id, done.epoch, done.sequence))
    except (JournalCorrupt, LargeMessageFailed) as error:
        echo(f"understudy: {error}", err=True)
        context.exit(3)
    except (BrokerError, OSError) as error:
        echo(f"understudy: {error}", err=True)
        context.exit(1)
    fields = {"node_id": done.node_id, "epoch": done.epoch, "sequence": done.sequence, "set_aside": done.set_aside}
    echo(json.dumps({**fields, "refused": reason}) if as_json else _text(done, place.store.log))


def _node_id(context: click.Context, parameter: click.Parameter, value: str | None) -> NodeId | None:
    if value is None:
        return None
    try:
        return NodeId(uuid_text(uuid_bytes(value)))
    except ValueError:
        hint = "`understudy status` of the active node shows its node id"
        raise click.BadParameter(f"{value!r} is no UUID; {hint}") from None


@click.command("set-aside")
@_INSTANCE
@_SERVER
@click.option(
    "--copy-of",
    "node_id",
    metavar="NODE_ID",
    callback=_node_id,
    help="Node id of the active node of its pair: this node activates only once it has copied that store, also if it is"
    " the primary and has never had one.",
)
@_JSON
@click.pass_context
def set_store_aside(
    context: click.Context, instance: Path, server: str | None, node_id: NodeId | None, as_json: bool
) -> None:
    """Move the store of a node that does not run to oldreplica.N, so that it copies the data of its partner.

    Run it as the user of the broker. The node starts without a store afterwards. A primary without one begins a new
    node, beside the partner that serves, unless --copy-of is given.

    \b
    Example: understudy data set-aside --instance /srv/broker
    """
    try:
        place = _Place(instance, server)
        with place.locked() as lock:
            number = set_aside(place.store)
            place.seen.forget()
            if node_id is not None:
                # first: a node that is interrupted here does not activate, and its partner refuses its former node id
                write_replica_state(place.disk, place.store.log, incomplete_copy(node_id))
                lock.adopt(node_id)
    except (BrokerError, OSError) as error:
        echo(f"understudy: {error}", err=True)
        context.exit(1)
    if as_json:
        echo(json.dumps({"set_aside": number, "copy_of": node_id}))
    else:
        echo("there is no store" if number is None else f"{place.store.log}: moved to oldreplica.{number}")
        if node_id is not None:
            echo(f"the node copies the store of node {node_id} before it may activate")


def _judge(copy: StoreDirectories, place: _Place, source: str, *, over_newer: bool) -> str | None:
    """Reason why the copy needs ``--over-newer``; None if it does not.

    Raises:
        StoreBehind: it does, and the option was not given.
    """
    reason = _why_refused(copy, place, source)
    if reason is not None and not over_newer:
        raise StoreBehind(
            f"refused: {reason}",
            hint="compare them with `understudy data compare`; --over-newer gives the newer data up, and keeps the"
            " present store in oldreplica.N",
        )
    return reason


def _why_refused(copy: StoreDirectories, place: _Place, source: str) -> str | None:
    """Reason why the copy is older than the present store, or than the store that the node has used last."""
    refused = why_refused(copy, place.store)
    noted = place.seen.read()
    if refused is not None or noted is None or not noted.node_id:
        return refused
    description = read_description(source)
    if noted.node_id != description["node_id"]:
        return f"this node has used the store of node {noted.node_id}, and the copy is of {description['node_id']}"
    found = Position(description["node_id"], description["epoch"], description["sequence"])
    if found.reaches(noted.epoch, noted.sequence):
        return None
    return f"this node has used a newer store: it has noted {noted} ({place.seen.path}), and the copy ends at {found}"


def _progress(doing: str) -> None:
    if sys.stderr.isatty():
        echo(doing, err=True)


def _text(done: Restored, log: str) -> str:
    before = (
        "there was no store before" if done.set_aside is None else f"the former one is in oldreplica.{done.set_aside}"
    )
    return f"{log}: log up to epoch {done.epoch}, sequence {done.sequence} of node {done.node_id}; {before}"
