"""``understudy log``: the log of a node on this host, from its file or from the journal of systemd (ADR 0162)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import click

from understudy.cli.managing.log_lines import LEVELS, LogLine, Wanted, lines_of, of_journal, since_ms
from understudy.cli.node.defaults import default_directory
from understudy.cli.terminal import echo
from understudy.errors import ConfigError
from understudy.texts import reason_of

#: Period of the look for new lines.
_POLL_S: Final = 0.3
_NODE_FILE_BYTES_MAX: Final = 64 * 1024


@click.command()
@click.option(
    "--instance",
    type=click.Path(path_type=Path, file_okay=False),
    help="Instance directory of a node that runs; default: that of `understudy run`.",
)
@click.option("--file", type=click.Path(path_type=Path, dir_okay=False), help="The log file, of a node that has ended.")
@click.option("--unit", help="The unit of systemd, of a node that has ended.")
@click.option("--follow", is_flag=True, help="Go on with new lines until interrupted.")
@click.option("--level", type=click.Choice(LEVELS), default="info", show_default=True, help="The lowest level.")
@click.option("--since", help="Not earlier than a duration before now (10m, 2h, 1d) or a time (2026-11-30T04:30).")
@click.option("--event", "ids", multiple=True, metavar="ID", help="Only events with this id; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def log(
    instance: Path | None,
    file: Path | None,
    unit: str | None,
    follow: bool,
    level: str,
    since: str | None,
    ids: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show the log of a node on this host, whatever the format of its lines.

    The node says where it is: a file (--log-file of `understudy run`) or the journal. A log on a terminal is not kept.
    docs/operate/log-events.md explains the ids. `understudy events` asks nodes on other hosts.

    \b
    Example: understudy log --level warning --since 2h --follow

    Exit codes: 0 shown, or interrupted; 2 there is no log to read, or usage.
    """
    given = [each for each in (instance, file, unit) if each is not None]
    if len(given) > 1:
        raise ConfigError("give one of --instance, --file and --unit")
    wanted = Wanted(level, None if since is None else since_ms(since, time.time_ns() // 1_000_000), frozenset(ids))
    if file is None and unit is None:
        file, unit = _place_of(default_directory(os.environ) if instance is None else instance)
    try:
        for line in _journal(unit, since, follow=follow) if file is None else _file(file, follow=follow):
            if wanted.takes(line):
                echo(line.json() if as_json else line.text())
    except KeyboardInterrupt:
        return


def _place_of(instance: Path) -> tuple[Path | None, str | None]:
    """File and unit of the log of a node that runs, one of which is known. Raises ConfigError."""
    path = instance / "run" / "node.json"
    try:
        with path.open(encoding="utf-8") as opened:
            node: dict[str, Any] = json.loads(opened.read(_NODE_FILE_BYTES_MAX))
        file, unit = node.get("log_file"), node.get("journal_unit")
    except FileNotFoundError:
        raise ConfigError("no node runs here", file=str(path), hint="give --file or --unit") from None
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(f"cannot be read: {reason_of(error)}", file=str(path)) from error
    if file is None and unit is None:
        raise ConfigError(
            "the log is on standard error of the node",
            file=str(path),
            hint="`understudy run --log-file FILE` keeps it",
        )
    return None if file is None else Path(file), unit


def _file(file: Path, *, follow: bool) -> Iterator[LogLine]:
    """The events of a file, which may be renamed and begun again meanwhile. Raises ConfigError: it cannot be read."""
    position, identity = 0, None
    while True:
        try:
            with file.open("rb") as opened:
                status = os.fstat(opened.fileno())
                if identity not in (None, status.st_ino) or status.st_size < position:
                    position = 0
                identity = status.st_ino
                opened.seek(position)
                whole = _whole_lines(opened, follow=follow)
                yield from lines_of(each.decode("utf-8", "replace") for each in whole)
                position = opened.tell()
        except OSError as error:
            if identity is None or not isinstance(error, FileNotFoundError):
                raise ConfigError(f"cannot be read: {error.strerror}", file=str(file)) from error
        if not follow:
            return
        time.sleep(_POLL_S)


def _whole_lines(opened: BinaryIO, *, follow: bool) -> Iterator[bytes]:
    """The lines of a file; the last one is left for later if it has no end yet and the file is followed."""
    while line := opened.readline():
        if follow and not line.endswith(b"\n"):
            opened.seek(-len(line), os.SEEK_CUR)
            return
        yield line


def _journal(unit: str | None, since: str | None, *, follow: bool) -> Iterator[LogLine]:
    program = shutil.which("journalctl")
    if program is None:
        raise ConfigError("journalctl is not installed: the journal of systemd cannot be read")
    command = [program, "--unit", str(unit), "--output", "json", "--no-pager", "--quiet"]
    if since is not None:
        command += ["--since", f"@{since_ms(since, time.time_ns() // 1_000_000) // 1000}"]
    with subprocess.Popen([*command, *(["--follow"] if follow else [])], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield from of_journal(process.stdout)
        finally:
            process.terminate()
    if process.returncode > 0:
        raise ConfigError(f"journalctl has ended with code {process.returncode}", hint="see its lines above")
