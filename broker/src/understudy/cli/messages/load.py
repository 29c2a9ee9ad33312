"""Code shared by ``produce``, ``consume`` and ``browse``: connections, ledger files, progress, signals.

Progress is written to stderr and the summary to stdout, so that ``--json`` output can be piped.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TextIO, TypeVar

import click
import uvloop
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from understudy.cli.managing.contexts import current_context
from understudy.cli.node.defaults import DEFAULT_URL
from understudy.cli.tables import Page, console
from understudy.cli.terminal import echo
from understudy.client import aio
from understudy.client.core.consumer.state import ReceivedMessage
from understudy.client.core.url.options import ClientUrl
from understudy.errors import ConfigError
from understudy.ledger import ORIGIN_PROPERTY, Confirmer, LedgerWriter, digest_of

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

#: Properties that identify a message in ledgers.
LEDGER_PRODUCER: Final = "ledger_producer"
LEDGER_NUMBER: Final = "ledger_number"
#: Between two lines of progress where there is no terminal.
PROGRESS_LINE_S: Final = 5.0
#: Shortest duration that differs from 0, and the logarithm of the width of a class of durations.
_SHORTEST_MS: Final = 0.001
_CLASS: Final = math.log(1.02)
#: Between two repaints of the bar.
_PAINT_S: Final = 0.1
_PASSWORD_BYTES_MAX: Final = 4096
#: Names of figures for people, where they are not those in JSON.
_LABELS: Final = {"rate": "messages per second"}


def connection_options(command: F) -> F:
    """``--url``, ``--user`` and ``--password-file``; a password is never an argument."""
    for option in (
        click.option(
            "--password-file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="File with the password on its first line; or set UNDERSTUDY_PASSWORD.",
        ),
        click.option(
            "--user",
            envvar="UNDERSTUDY_USER",
            default=lambda: _of_context("user"),
            help="User name.",
            show_default=False,
        ),
        click.option(
            "--url",
            envvar="UNDERSTUDY_URL",
            default=lambda: _of_context("broker") or DEFAULT_URL,
            show_default=f"{DEFAULT_URL}, or that of the context",
            help="Where the brokers are.",
        ),
    ):
        command = option(command)
    return command


def _of_context(name: str) -> str | None:
    """A value of the context in use; None: it has none."""
    found = current_context(os.environ)
    return None if found is None else found.get(name)


def read_password(password_file: Path | None) -> str | None:
    """The password of the options, or of the environment."""
    if password_file is None:
        return os.environ.get("UNDERSTUDY_PASSWORD") or _of_context("password")
    with password_file.open(encoding="utf-8") as file:
        return file.readline(_PASSWORD_BYTES_MAX).rstrip("\r\n")


def default_identity(role: str) -> str:
    """A name that is unique among the running processes of all hosts."""
    return f"{role}-{socket.gethostname()}-{os.getpid()}"


def now_ms() -> int:
    """Wall clock, epoch milliseconds."""
    return time.time_ns() // 1_000_000


def identity_of(received: ReceivedMessage) -> tuple[str, int] | None:
    """Producer and number of a message made by ``produce``; None for any other."""
    producer = received.properties.get(LEDGER_PRODUCER)
    number = received.properties.get(LEDGER_NUMBER)
    return (producer, number) if isinstance(producer, str) and isinstance(number, int) else None


def body_digest(received: ReceivedMessage) -> int:
    """``digest_of`` the body; 0 for a large one, which is not read as a whole."""
    return digest_of(received.message.body) if received.stream is None else 0


def origin_of(received: ReceivedMessage) -> str:
    """The queue a dead-lettered, expired or moved message comes from; empty for any other."""
    origin = received.properties.get(ORIGIN_PROPERTY)
    return origin if isinstance(origin, str) else ""


def confirmer(connection: aio.Connection) -> Confirmer:
    """The node that has just confirmed something over a connection."""
    return Confirmer(*connection.serving_node)


class LedgerFile:
    """Appends rows to a file; ``flush`` hands them to the operating system.

    Rows collected in one turn of the loop are written at once: what a turn sends leaves the process
    when the turn ends, so a flush before the next wait keeps SENT rows ahead of their messages.
    """

    def __init__(self, path: Path | None) -> None:
        """Raises:
        ConfigError: the file cannot be written.
        """
        self._lines: list[str] = []
        self._file: TextIO | None = None
        self.rows: LedgerWriter | None = None
        """Writer of the rows; None without a ledger."""
        if path is None:
            return
        try:
            self._file = path.open("a", encoding="utf-8", newline="\n")
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror}", file=str(path)) from error
        self.rows = LedgerWriter(self._lines.append)

    def __enter__(self) -> LedgerFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()
        if self._file is not None:
            self._file.close()

    def flush(self) -> None:
        """Write the collected rows."""
        if self._lines and self._file is not None:
            text = "".join(self._lines)
            self._lines.clear()
            self._file.write(text)
            self._file.flush()


class Durations:
    """Durations in classes of 2 %, so that any number of them takes the same memory; percentiles of them."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0

    def add(self, duration_ms: float) -> None:
        """Count a duration; a negative one, of clocks that differ, is none."""
        place = math.ceil(math.log(max(duration_ms, _SHORTEST_MS) / _SHORTEST_MS) / _CLASS)
        self._counts[place] = self._counts.get(place, 0) + 1
        self.count += 1

    def percentile(self, percent: float) -> float | None:
        """The duration in milliseconds that ``percent`` of all do not exceed, 2 % too long at most; None: there are
        none.
        """
        wanted, seen = self.count * percent / 100, 0
        for place in sorted(self._counts):
            seen += self._counts[place]
            if seen >= wanted:
                return round(_SHORTEST_MS * math.exp(place * _CLASS), 3)
        return None

    def summary(self, name: str) -> dict[str, float | None]:
        """Figures of a summary, such as ``latency_p99_ms``."""
        shown = ((50, "p50"), (95, "p95"), (99, "p99"), (99.9, "p99_9"), (100, "max"))
        return {f"{name}_{text}_ms": self.percentile(percent) for percent, text in shown}


class Meter:
    """Counter of outcomes, their rate and the longest pause between two of them; shows progress."""

    def __init__(self, verb: str, total: int | None, *, quiet: bool = False) -> None:
        self._verb = verb
        self._total = total
        self.count = 0
        self.started_s = self._last_s = time.monotonic()
        self._ended_s: float | None = None
        self.longest_gap_ms = 0.0
        self._shown_s = self.started_s
        self._console = console(err=True)
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._quiet = quiet
        if self._console.is_terminal and not quiet:
            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[detail]}"),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )
            self._task = self._bar.add_task(verb, total=total, detail="")

    def __enter__(self) -> Meter:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended_s = time.monotonic()
        if self._bar is not None:
            self._bar.stop()

    def add(self, count: int = 1) -> None:
        """Count further outcomes."""
        moment_s = time.monotonic()
        if self.count:
            self.longest_gap_ms = max(self.longest_gap_ms, (moment_s - self._last_s) * 1000)
        self._last_s = moment_s
        self.count += count

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return (self._ended_s or time.monotonic()) - self.started_s

    @property
    def rate(self) -> float:
        """Outcomes a second, up to the last one."""
        lasted_s = self._last_s - self.started_s
        return self.count / lasted_s if lasted_s > 0 else 0.0

    def show(self, failovers: int) -> None:
        """Update the progress if it is due."""
        moment_s = time.monotonic()
        pause_s = _PAINT_S if self._bar is not None else PROGRESS_LINE_S
        if moment_s - self._shown_s < pause_s or self._quiet:
            return
        self._shown_s = moment_s
        detail = f"{self.rate:,.0f}/s, {failovers} failovers"
        if self._bar is not None:
            self._bar.update(self._task, completed=self.count, detail=detail)
        else:
            total = f" of {self._total:,}" if self._total is not None else ""
            echo(f"{self._verb} {self.count:,}{total}, {detail}", err=True)


async def show_progress(meter: Meter, connection: aio.Connection) -> None:
    """Keep the progress shown until cancelled."""
    while True:
        await asyncio.sleep(_PAINT_S)
        meter.show(connection.failovers)


async def until_interrupted(work: Coroutine[Any, Any, None]) -> bool:
    """Run ``work``; SIGINT and SIGTERM cancel it once, so that it can tidy up.

    Returns:
        Whether it was interrupted.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    interrupted = False

    def interrupt() -> None:
        nonlocal interrupted
        interrupted = True
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)
    try:
        await task
    except asyncio.CancelledError:
        if not interrupted:
            raise
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    return interrupted


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a command's coroutine on a fresh loop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


async def connected(
    url: ClientUrl, user: str | None, password: str | None, use: Callable[[aio.Connection], Awaitable[T]]
) -> T:
    """Run ``use`` with a connection, which is closed afterwards, at once if ``use`` was cut short."""
    connection = await aio.connect(url, user, password)
    try:
        result = await use(connection)
        await connection.close()
        return result
    finally:
        connection.abandon()


def print_summary(title: str, summary: dict[str, Any], *, as_json: bool) -> None:
    """Print the result of a command: figures for people, one JSON object for programs."""
    if as_json:
        echo(json.dumps(summary))
        return
    figures = {
        _LABELS.get(name, name.replace("p99_9", "p99.9").replace("_", " ")): f"{value:,}"
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        else "none"
        if value is None
        else str(value)
        for name, value in summary.items()
        if value is not None or not name.endswith("_ms")
    }
    Page().figures(figures, title=title)
