"""``understudy config``: changes of broker.xml that keep its comments, its order and all bytes not concerned."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from understudy.cli.node.check import effects
from understudy.cli.node.configuration.overrides import (
    OVERRIDES,
    adopt_overrides,
    drop_overrides,
    drop_superfluous,
    effective_data,
    override_rows,
    report,
)
from understudy.cli.node.defaults import default_directory
from understudy.cli.node.instances import config_of
from understudy.cli.node.run import configuration_file, property_option, read_configuration
from understudy.cli.tables import View, view_options
from understudy.cli.terminal import Commands, echo
from understudy.config.edit import Add, Change, Remove, Set, difference, edit
from understudy.config.instance_files import launcher_properties
from understudy.config.reading.servers import LoadedConfig
from understudy.errors import ConfigError
from understudy.limits import CONFIG_BYTES_MAX
from understudy.runtime.files.configuration_file import read_data, read_included
from understudy.runtime.files.replacement import replace_unchanged

F = TypeVar("F", bound=Callable[..., Any])

_CHANGED = 1


@click.group("config", cls=Commands)
def config() -> None:
    """Change broker.xml of an instance; comments, order and all bytes that are not concerned stay.

    PATH is a place as errors name it: core/acceptors/acceptor[@name='artemis'], core/name, or
    core/addresses/address[@name='a']/@name for an attribute. [.='text'] is an element by its text, [2] by its number.

    The reader of the broker checks the result before it is written, and the difference is printed. A running node takes
    changed addresses, address settings, security settings and diverts by itself; the command names others, which
    need a restart.
    A file that Ansible renders is written again by the next play: change its variables instead.
    """


_PLACE = (
    property_option(),
    click.option(
        "--instance",
        type=click.Path(path_type=Path, file_okay=False),
        help="The instance directory; default: that of `understudy run`.",
    ),
    click.option(
        "--config", "file", type=click.Path(path_type=Path, dir_okay=False), help="The broker.xml, if it is elsewhere."
    ),
)


def _options_of_place(command: F) -> F:
    for option in _PLACE:
        command = option(command)
    return command


def _options(command: F) -> F:
    return click.option("--dry-run", is_flag=True, help="Print the difference, and write nothing.")(
        _options_of_place(command)
    )


@config.command("set")
@_options
@click.argument("pairs", nargs=-1, required=True, metavar="PATH VALUE [PATH VALUE]...")
def set_values(
    pairs: tuple[str, ...],
    instance: Path | None,
    file: Path | None,
    properties: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Set elements or attributes to values; missing elements of a PATH are made. A VALUE - is read from standard input.

    \b
    Example: understudy config set "core/address-settings/address-setting[@match='#']/max-delivery-attempts" 5

    Exit codes: 0 written, or nothing to change; 2 refused, and nothing was written.
    """
    if len(pairs) % 2:
        raise click.UsageError(f"{pairs[-1]} has no value: give PATH VALUE [PATH VALUE]...")
    changes = [Set(path, _value(value)) for path, value in zip(pairs[::2], pairs[1::2], strict=True)]
    apply_changes(changes, instance, file, properties, dry_run=dry_run)


@config.command("add")
@_options
@click.argument("path")
@click.argument("value", required=False)
def add(
    path: str,
    value: str | None,
    instance: Path | None,
    file: Path | None,
    properties: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Add an element that is not there yet, at the place where the schema has it, after its like.

    \b
    Example: understudy config add "core/connectors/connector[@name='b']" tcp://10.0.0.2:61616

    Exit codes: 0 written; 2 refused, and nothing was written.
    """
    apply_changes([Add(path, None if value is None else _value(value))], instance, file, properties, dry_run=dry_run)


@config.command("remove")
@_options
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
def remove(
    paths: tuple[str, ...], instance: Path | None, file: Path | None, properties: tuple[str, ...], dry_run: bool
) -> None:
    """Remove elements with everything in them, or attributes. Comments before them stay.

    \b
    Example: understudy config remove "core/diverts/divert[@name='audit']" --dry-run

    Exit codes: 0 written; 2 refused, and nothing was written.
    """
    apply_changes([Remove(path) for path in paths], instance, file, properties, dry_run=dry_run)


@config.command("diff")
@_options_of_place
@click.argument("other", required=False, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@view_options(OVERRIDES)
def diff(other: Path | None, instance: Path | None, file: Path | None, properties: tuple[str, ...], view: View) -> None:
    """Show the changes of the management CLI, or print the difference between broker.xml and the file OTHER.

    Without OTHER: the changes that running brokers keep in broker.d/50-cli.json beside broker.xml, in their order. They
    count instead of the values of broker.xml. With OTHER: the difference if that file took the place of broker.xml, and
    its effects.

    \b
    Example: understudy config diff --instance /srv/broker

    Exit codes: 0 no difference; 1 different; 2 a file cannot be used.
    """
    config, directory = place_of(instance, file)
    if other is None:
        rows = override_rows(configuration_file(config, directory, properties))
        view.rows(OVERRIDES, rows)
        if rows:
            raise SystemExit(_CHANGED)
        return
    before, after = read_data(config), read_data(other)
    if before == after:
        echo("no difference")
        return
    echo(difference(before, after, str(config), str(other)))
    changed = read_configuration(other, directory, properties)
    for line in effects(read_configuration(config, directory, properties), changed):
        echo(line)
    raise SystemExit(_CHANGED)


@config.command("print")
@_options_of_place
def print_configuration(instance: Path | None, file: Path | None, properties: tuple[str, ...]) -> None:
    """Print broker.xml as a node uses it, with the changes of the management CLI. Passwords are not masked.

    Placeholders and included files stay as they are.

    \b
    Example: understudy config print --instance /srv/broker

    Exit codes: 0 printed; 2 a file cannot be used, or a change is in an included file.
    """
    config, directory = place_of(instance, file)
    sys.stdout.buffer.write(effective_data(configuration_file(config, directory, properties)))
    sys.stdout.buffer.flush()


@config.command("drop")
@_options
@click.option("--all", "everything", is_flag=True, help="Drop all changes.")
@click.option("--superfluous", is_flag=True, help="Drop the changes that broker.xml has as well.")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
def drop(
    paths: tuple[str, ...],
    everything: bool,
    superfluous: bool,
    instance: Path | None,
    file: Path | None,
    properties: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Drop changes of the management CLI: those of the PATHs and of everything in them count no more.

    The values of broker.xml count again: at once, or after a restart or a reload of the node.

    \b
    Example: understudy config drop core/ha-policy --instance /srv/broker

    Exit codes: 0 dropped, or nothing to drop; 2 refused, and nothing was written.
    """
    if bool(paths) + everything + superfluous != 1:
        raise click.UsageError("give PATHs, --all or --superfluous")
    config, directory = place_of(instance, file)
    source = configuration_file(config, directory, properties)
    report(drop_superfluous(source, dry_run=dry_run) if superfluous else drop_overrides(source, paths, dry_run=dry_run))


@config.command("adopt")
@_options
def adopt(instance: Path | None, file: Path | None, properties: tuple[str, ...], dry_run: bool) -> None:
    """Write the changes of the management CLI into broker.xml, and drop them.

    Comments, order and all bytes that are not concerned stay, and so does the configuration of the node. A broker.xml
    that Ansible renders is written again by the next play: change its variables, then drop the changes.

    \b
    Example: understudy config adopt --dry-run

    Exit codes: 0 written, or nothing to adopt; 2 refused, and nothing was written.
    """
    config, directory = place_of(instance, file)
    report(adopt_overrides(configuration_file(config, directory, properties), dry_run=dry_run))


def place_of(instance: Path | None, file: Path | None) -> tuple[Path, Path]:
    """broker.xml and the instance directory."""
    if file is not None:
        return file, (instance or file.resolve().parent.parent).resolve()
    directory = (instance or default_directory(os.environ)).resolve()
    return config_of(directory), directory


def apply_changes(
    changes: Sequence[Change], instance: Path | None, file: Path | None, properties: tuple[str, ...], *, dry_run: bool
) -> None:
    """Make changes in broker.xml, and print the difference and its effects on a running node. Raises ConfigError."""
    config, directory = place_of(instance, file)
    running = _readable(partial(read_configuration, config, directory, properties))
    edited = edit(
        read_data(config),
        changes,
        file=str(config),
        check=lambda data, read: read_configuration(config, directory, properties, data=data, read_file=read),
        read_file=read_included,
        properties=launcher_properties(str(directory)) | dict(each.partition("=")[::2] for each in properties),
    )
    if edited.before == edited.after:
        echo(f"{edited.file}: nothing to change")
        return
    echo(edited.diff())
    for line in [] if running is None else effects(running, edited.loaded):
        echo(line)
    if dry_run:
        echo("nothing was written")
        return
    try:
        replace_unchanged(Path(edited.file), edited.before, edited.after)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=edited.file) from error
    echo(f"{edited.file}: written")


def _readable(read: Callable[[], LoadedConfig]) -> LoadedConfig | None:
    """The present configuration; None if it cannot be used, which a change may correct."""
    try:
        return read()
    except ConfigError:
        return None


def _value(text: str) -> str:
    return sys.stdin.read(CONFIG_BYTES_MAX).rstrip("\r\n") if text == "-" else text
