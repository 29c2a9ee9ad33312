"""The changes of the management CLI beside a broker.xml: shown, dropped, and written into it (ADR 0170)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from understudy.cli.tables import Column, Kind, Table
from understudy.cli.terminal import echo
from understudy.config.edit import Merged, difference
from understudy.config.edit.overlay import Override, counting, waiting
from understudy.errors import ConfigError
from understudy.runtime.files.configuration_file import ConfigurationFile, read_data, read_included
from understudy.runtime.files.overlay_file import overlay_of, overlay_writer, read_overlay, write_overlay
from understudy.runtime.files.replacement import replace_unchanged
from understudy.texts import masked_url

OVERRIDES: Final = Table(
    "overrides",
    (
        Column("path", Kind.NAME, "Place in broker.xml."),
        Column("state", Kind.NAME, "set, present or absent."),
        Column("value", Kind.TEXT, "The value; passwords are masked."),
        Column("differs", Kind.NAME, "Whether broker.xml without this change is another one."),
        Column(
            "waits",
            Kind.NAME,
            "Whether it waits for a change that makes a missing element.",
            optional=True,
        ),
        Column("time", Kind.NAME, "Time of the change.", optional=True),
        Column("user", Kind.NAME, "Login that made the change.", optional=True),
        Column("line", Kind.TEXT, "The line of the management CLI.", shown=False),
    ),
    "Changes of the management CLI",
)


def override_rows(source: ConfigurationFile) -> list[dict[str, Any]]:
    """The changes as rows of the table, in their order. Raises ConfigError."""
    overrides = read_overlay(source.config)
    merged = source.merged(overrides)
    return [
        {
            "path": each.target.path,
            "state": each.state,
            "value": _shown(each),
            "differs": differs,
            "waits": each.waits or None,
            "time": each.time,
            "user": each.user,
            "line": each.line,
        }
        for each, differs in zip(overrides, merged.differs, strict=True)
    ]


def _shown(override: Override) -> str | None:
    if override.value is None:
        return None
    if "password" in override.target.path.rpartition("/")[2]:
        return "***"
    return masked_url(override.value)


def drop_overrides(source: ConfigurationFile, paths: Sequence[str], *, dry_run: bool) -> list[str]:
    """Drop the changes of places and of everything in them; no path means all. The result is the lines to print.

    Raises:
        ConfigError: a path has no change, or broker.xml is not usable without the dropped ones. Nothing was written.
    """
    if not overlay_of(source.config).exists():
        return ["nothing to drop"]
    with overlay_writer(source.config):
        overrides = read_overlay(source.config)
        kept = [each for each in overrides if paths and not any(_is_in(each.target.path, path) for path in paths)]
        for path in paths:
            if not any(_is_in(each.target.path, path) for each in overrides):
                raise ConfigError("has no change", path=path, hint="`understudy config diff` lists the changes")
        return _drop(source, overrides, kept, dry_run=dry_run)


def drop_superfluous(source: ConfigurationFile, *, dry_run: bool) -> list[str]:
    """Drop the changes that broker.xml has as well. The configuration stays; the result is the lines to print.

    Raises:
        ConfigError: the configuration cannot be used. Nothing was written.
    """
    if not overlay_of(source.config).exists():
        return ["nothing to drop"]
    with overlay_writer(source.config):
        overrides = read_overlay(source.config)
        differs = source.merged(overrides).differs
        # a change that waits for another one has no effect yet, and is needed later
        kept = [each for each, needed in zip(overrides, differs, strict=True) if needed or each.waits]
        return _drop(source, overrides, kept, dry_run=dry_run)


def _drop(
    source: ConfigurationFile, overrides: Sequence[Override], kept: Sequence[Override], *, dry_run: bool
) -> list[str]:
    """Keep some changes only. The caller has ``overlay_writer``."""
    dropped = [f"dropped: {each.target.path}" for each in overrides if each not in kept]
    if dropped:
        source.load(overrides=counting(kept))
        if not dry_run:
            write_overlay(source.config, kept)
    return _told(dropped or ["nothing to drop"], dry_run=dry_run)


def _is_in(path: str, around: str) -> bool:
    return path == around or path.startswith(f"{around.rstrip('/')}/")


def adopt_overrides(source: ConfigurationFile, *, dry_run: bool) -> list[str]:
    """Write the changes into broker.xml and drop them. The result is the lines to print.

    Raises:
        ConfigError: a change is in an included file, or a file cannot be written. The configuration is as it was.
    """
    if not overlay_of(source.config).exists():
        return ["nothing to adopt"]
    with overlay_writer(source.config):
        found = read_overlay(source.config)
        overrides = counting(found)
        if not overrides:
            return ["nothing to adopt"]
        before = read_data(source.config)
        merged = source.merged(overrides, before)
        loaded = source.load(data=before, overrides=overrides)
        _check_included(source, merged, loaded.included)
        if not dry_run:
            try:
                # with both files the configuration is the same: a crash between the two writes changes nothing
                replace_unchanged(source.config, before, merged.data)
            except OSError as error:
                raise ConfigError(f"cannot be written: {error.strerror}", file=str(source.config)) from error
            write_overlay(source.config, waiting(found))
    name = str(source.config)
    return _told([difference(before, merged.data, name, name) or "broker.xml has all changes"], dry_run=dry_run)


def effective_data(source: ConfigurationFile) -> bytes:
    """The bytes of broker.xml with the changes in it. Raises ConfigError: it cannot be used with them."""
    overrides, data = read_overlay(source.config), read_data(source.config)
    merged = source.merged(overrides, data)
    _check_included(source, merged, source.load(data=data, overrides=overrides).included)
    return merged.data


def _check_included(source: ConfigurationFile, merged: Merged, included: Iterable[str]) -> None:
    for file in included:
        if file != str(overlay_of(source.config)) and merged.read_file(file) != read_included(file):
            message = "a change of the management CLI is in this included file"
            raise ConfigError(message, file=file, hint="write it there by hand, then drop the change")


def _told(lines: list[str], *, dry_run: bool) -> list[str]:
    return [*lines, "nothing was written"] if dry_run else lines


def report(lines: Iterable[str]) -> None:
    """Print lines."""
    for line in lines:
        echo(line)
