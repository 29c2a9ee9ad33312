"""``understudy ledger check``: judge delivery ledgers with the reference judge, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import TextIO

import click

from understudy.cli.messages.report import exit_code_of_report, print_report
from understudy.cli.terminal import Commands, echo
from understudy.dataclass import dataclass
from understudy.errors import ConfigError, LedgerDamaged
from understudy.ledger import WINDOW_MS, Row, check, check_epochs, read, read_remaining


def open_text(path: Path) -> TextIO:
    """A file of JSON lines; bytes that are no text are replaced, and the line that has them is refused."""
    return path.open(encoding="utf-8", errors="replace", newline="\n")


@dataclass(slots=True)
class LedgerFiles:
    """The rows of several files, one file after the other; can be walked again."""

    paths: tuple[Path, ...]
    torn: dict[str, int] = field(default_factory=dict)
    """File -> line of a half-written last line."""
    has_rows: bool = False
    """Whether a row was read."""

    def __iter__(self) -> Iterator[Row]:
        for path in self.paths:
            with open_text(path) as lines:
                for row in read(lines, file=str(path), on_torn_tail=self.torn.__setitem__):
                    self.has_rows = True
                    yield row


def refuse_twice(paths: tuple[Path, ...]) -> None:
    """Refuse a ledger that is named twice, which would make every row of it a duplicate."""
    seen: set[Path] = set()
    for path in paths:
        real = path.resolve()
        if real in seen:
            raise ConfigError("is given twice", file=str(path))
        seen.add(real)


@click.group(cls=Commands)
def ledger() -> None:
    """Check the ledgers of producers and consumers."""


@ledger.command("check")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option(
    "--window-ms",
    type=click.IntRange(min=0),
    default=WINDOW_MS,
    show_default=True,
    help="Pauses between confirmations of a producer longer than this are windows without service.",
)
@click.option(
    "--clock-skew-ms",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="How far consumers' clocks differ.",
)
@click.option(
    "--remaining-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON lines with producer and number of ALL messages the queues held in the end.",
)
@click.option(
    "--members",
    is_flag=True,
    help="Messages moved between members of a cluster: another message id alone is no duplicate, order is not judged.",
)
def check_command(
    files: tuple[Path, ...],
    as_json: bool,
    window_ms: int,
    clock_skew_ms: int,
    remaining_file: Path | None,
    members: bool,
) -> None:
    """Check ledger FILES together: lost, duplicated, reordered, unexplained, corrupted, refused, partial.

    Confirmations name their node and its epoch: two nodes of one node id that confirm at the same time, and a
    confirmation of an epoch after one of a younger epoch, are broken promises, too (two-confirming).

    A message that was neither acknowledged nor seen in a queue is lost only if the ledgers show that its
    queue was drained (understudy consume and browse write that into --ledger), or with --remaining-file;
    otherwise it is unresolved.

    \b
    Example: understudy ledger check sent.jsonl received.jsonl

    Exit codes: 0 every promise kept, 1 a promise broken, 2 a file cannot be read (named with its line), or no
    file has a whole row, 3 nothing broken, but messages are unresolved.
    """
    refuse_twice(files)
    rows = LedgerFiles(files)
    try:
        remaining = None
        if remaining_file is not None:
            with open_text(remaining_file) as lines:
                remaining = read_remaining(lines, str(remaining_file))
        report = check(rows, remaining=remaining, window_ms=window_ms, clock_skew_ms=clock_skew_ms, members=members)
        epochs = check_epochs(rows, clock_skew_ms=clock_skew_ms)
    except LedgerDamaged as error:
        raise ConfigError(str(error)) from error
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(error.filename)) from error
    if not rows.has_rows:
        raise ConfigError(
            "no file has a whole row: nothing can be judged",
            file=", ".join(map(str, files)),
            hint="name the files that the clients have written with --ledger",
        )
    if as_json:
        echo(json.dumps(report.to_json() | {"torn": rows.torn, "confirmed_by": epochs.to_json()}, indent=2))
    else:
        print_report(report, rows.torn)
        for finding in epochs.findings:
            echo(f"two-confirming: {finding}")
    if not report.ok or not epochs.ok:
        raise SystemExit(exit_code_of_report(report) if epochs.ok else 1)
