"""``understudy definitions``: export, compare and import the objects of a node as one JSON file (ADR 0161)."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from understudy.cli.managing.confirming import confirm, yes_option
from understudy.cli.managing.definitions.changes import (
    Difference,
    apply_to_node,
    changes_of_xml,
    differences,
    possible_in_xml,
)
from understudy.cli.managing.definitions.sources import of_configuration, of_node
from understudy.cli.managing.definitions.values import DefinitionFile, Definitions, parse, shown
from understudy.cli.managing.places import require_active
from understudy.cli.node.configuration.commands import apply_changes, place_of
from understudy.cli.node.run import read_configuration
from understudy.cli.node.status import Place, instance_option, server_option, token_file_option, url_option
from understudy.cli.tables import Column, Kind, Table, View, view_options
from understudy.cli.terminal import Commands, echo
from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.texts import counted, reason_of

F = TypeVar("F", bound=Callable[..., Any])

DIFFERENCES: Final = Table(
    "differences",
    (
        Column("kind", Kind.NAME, "Kind of the object."),
        Column("name", Kind.NAME, "Its name, or the match of a setting."),
        Column("action", Kind.NAME, "create, change, impossible, or only there: an import deletes nothing."),
        Column("details", Kind.TEXT, "Present and wanted values, or why the change is impossible."),
    ),
)
#: Largest file that is read.
_BYTES_MAX: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Target:
    """The node or the broker.xml that is compared and changed."""

    place: Place | None = None
    config: Path | None = None

    def definitions(self) -> Definitions:
        """The present definitions. Raises BrokerError."""
        if self.place is not None:
            return of_node(self.place)
        config, directory = place_of(None, self.config)
        return of_configuration(read_configuration(config, directory, ()).configuration)

    def differences(self, file: DefinitionFile) -> list[Difference]:
        """The differences of a file. Raises BrokerError."""
        found = differences(self.definitions(), file.values)
        found += [Difference(kind, name, "impossible", why=why) for (kind, name), why in file.impossible.items()]
        return found if self.place is not None else possible_in_xml(found)

    def apply(self, file: DefinitionFile, found: list[Difference]) -> list[str]:
        """Make the changes. Returns the refused ones."""
        if self.place is not None:
            return apply_to_node(self.place, file, found)
        apply_changes(changes_of_xml(found), None, self.config, (), dry_run=False)
        return []


def _target_options(command: F) -> F:
    """The options of a node, and ``--config``; the command gets the argument ``target``."""

    @wraps(command)
    def with_target(
        instance: Path | None,
        server: str | None,
        url: str | None,
        token_file: Path | None,
        config: Path | None,
        **options: Any,
    ) -> Any:
        if config is not None:
            if instance is not None or url is not None:
                raise ConfigError("give either --config or a node")
            return command(target=Target(config=config), **options)
        place = Place.of(instance, url, token_file, server)
        require_active(place)
        return command(target=Target(place=place), **options)

    config_option = click.option(
        "--config",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="Take this broker.xml instead of a node. It has no users.",
    )
    for option in (config_option, token_file_option, url_option, server_option, instance_option):
        with_target = option(with_target)
    with_target.__doc__ = inspect.cleandoc(command.__doc__ or "")
    return with_target  # type: ignore[return-value]  # click adds options to the function and returns it


_file_argument = click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True))


@click.group(cls=Commands)
def definitions() -> None:
    """Export, compare and import addresses, queues, exchanges, settings, diverts and users as one JSON file."""


@definitions.command()
@_target_options
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="The file; default: standard output.")
def export(target: Target, output: Path | None) -> None:
    """Write the definitions of an active node, or of a broker.xml. Passwords are not among them.

    Addresses and queues that the use of clients has created are left out, and so are exchanges and bindings that end
    with the broker.

    \b
    Example: understudy definitions export --output definitions.json

    Exit codes: 0 written; 2 a file cannot be used; 3 not active or not reachable.
    """
    found = target.definitions()
    if output is None:
        echo(shown(found), nl=False)
        return
    try:
        output.write_text(shown(found), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(output)) from error
    echo(f"{output}: {counted(sum(map(len, found.values())), 'definition')}")


@definitions.command()
@_target_options
@_file_argument
@view_options(DIFFERENCES)
def diff(target: Target, file: Path, view: View) -> None:
    """Show what differs between FILE and an active node or a broker.xml. Fields that FILE has not are not compared.

    \b
    Example: understudy definitions diff definitions.json

    Exit codes: 0 no difference; 1 different; 2 FILE cannot be used; 3 not active or not reachable.
    """
    found = target.differences(_read(file))
    view.rows(DIFFERENCES, [each.row for each in found])
    if found:
        raise SystemExit(1)


@definitions.command("import")
@_target_options
@_file_argument
@click.option("--dry-run", is_flag=True, help="Show the differences, and change nothing.")
@yes_option
@view_options(DIFFERENCES)
def import_file(target: Target, file: Path, dry_run: bool, yes: bool, view: View) -> None:
    """Create and change on an active node, or in a broker.xml, what differs from FILE. Nothing is deleted.

    On a node the changes are in force at once and are stored, so a restart and a failover keep them. With --config they
    are made in the file, whose other bytes stay, and a running node applies it as `understudy config` says. A second
    import of the same file changes nothing. Users get their roles; a missing one is named, because FILE has no
    password. FILE may also have the form of RabbitMQ (`rabbitmqctl export_definitions`): its queues, exchanges and
    bindings are taken, and everything else is named.

    \b
    Example: understudy definitions import definitions.json --dry-run

    Exit codes: 0 all of it holds now, or would; 1 some of it cannot hold, or was refused; 2 FILE cannot be used; 3 not
    active or not reachable.
    """
    read = _read(file)
    found = target.differences(read)
    view.rows(DIFFERENCES, [each.row for each in found])
    changes = [each for each in found if each.action in ("create", "change")]
    impossible = [each for each in found if each.action == "impossible"]
    refused = list[str]()
    if changes and not dry_run:
        confirm(f"Make {counted(len(changes), 'change')}?", yes=yes)
        refused = target.apply(read, changes)
    for text in refused:
        echo(text, err=True)
    would = "would be " if dry_run else ""
    echo(f"{counted(len(changes) - len(refused), 'change')} {would}made", err=True)
    for each in impossible:
        echo(f"{read.place(each.kind, each.name)}: {each.why}", err=True)
    for text in read.left_out:
        echo(text, err=True)
    if refused or impossible:
        raise SystemExit(1)


def _read(file: Path) -> DefinitionFile:
    """Read a file of definitions; ``-`` is standard input. Raises ConfigError."""
    if str(file) == "-":
        return parse(sys.stdin.read(_BYTES_MAX), "standard input")
    try:
        with file.open(encoding="utf-8") as opened:
            return parse(opened.read(_BYTES_MAX), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {reason_of(error)}", file=str(file)) from error
