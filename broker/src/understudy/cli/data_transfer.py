"""``understudy data export``, ``import`` and ``replay``: messages out of a journal, into a broker.

Exit codes: 0 done, 1 the broker refused or something could not be read whole, 2 usage or a file that
is no export, 3 nobody there, 4 timed out.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

import click

from understudy.cli.load import connection_options, now_ms, print_summary, read_password
from understudy.cli.sending import SendPlan, send_all
from understudy.cli.stores import STORE, open_store
from understudy.errors import BrokerError, ConfigError, DiskFailed, JournalCorrupt, RemoteProtocolError, WrongNode
from understudy.message import Message
from understudy.selector import parse_selector
from understudy.store.compare import replay_set
from understudy.store.contents import LiveMessage, beginning_is_missing, live_messages
from understudy.store.log_copy import CopyState
from understudy.store.retained import RetainedCounts, retained_messages
from understudy.store.transfer import (
    LINE_BYTES_MAX,
    ExportedMessage,
    ExportedQueue,
    ExportEnd,
    ExportHeader,
    end_line,
    header_line,
    message_line,
    parse_line,
    queue_line,
)

_JSON = click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
_RATE = click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), help="Messages per second; default: no limit."
)
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Look and count; send and make nothing.")


# --- export -------------------------------------------------------------------------------------------


@click.command("export")
@click.argument("directory", type=STORE)
@click.option(
    "--only-in-not",
    "others",
    multiple=True,
    type=STORE,
    help="Leave out what this copy of the same node's journal has or ever had; may be repeated.",
)
@click.option("--queue", "queues", multiple=True, help="Only this queue; may be repeated.")
@click.option("--address", "addresses", multiple=True, help="Only queues of this address; may be repeated.")
@click.option("--allow-damage", is_flag=True, help="Export what can be read of a journal that is not whole.")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, allow_dash=True),
    help="File to write; - is stdout.",
)
@_JSON
@click.pass_context
def export_messages(
    context: click.Context,
    directory: str,
    others: tuple[str, ...],
    queues: tuple[str, ...],
    addresses: tuple[str, ...],
    allow_damage: bool,
    output: str,
    as_json: bool,
) -> None:
    """Write the messages that live in the journal in DIRECTORY, one JSON object a line.

    The journal is only read. The file is made under another name and renamed when it is complete.
    """
    disk = open_store(directory, *others)
    try:
        copy, contents, counterparts = replay_set(disk, directory, others)
    except WrongNode as error:
        raise click.UsageError(str(error)) from error
    except FileNotFoundError as error:
        raise DiskFailed(
            f"{directory}: {error}", hint="a running broker has trimmed it meanwhile: try again"
        ) from error
    missing = beginning_is_missing(copy, contents)
    if not allow_damage and (missing or copy.state in (CopyState.DAMAGED, CopyState.SHORT)):
        problem = copy.problem
        raise JournalCorrupt(
            problem.message if problem is not None else "the beginning of the log is missing",
            file=problem.file if problem is not None else directory,
            offset=problem.offset if problem is not None else 0,
        )
    if copy.node_id is None:
        raise JournalCorrupt("no segment can be read", file=directory, offset=0)
    chosen = (
        live
        for live in live_messages(copy, contents, counterparts)
        if (not queues or live.queue.name in queues)
        and (not addresses or (live.address is not None and live.address.name in addresses))
    )
    header = ExportHeader(copy.node_id, *copy.position, directory)
    with _Output(output) as file:
        written = _write(file, header, chosen)
    summary = {
        "directory": directory,
        "node_id": copy.node_id,
        "epoch": header.epoch,
        "sequence": header.sequence,
        "state": copy.state.value,
        "messages": written.messages,
        "queues": written.queues,
        "left_out": written.left_out,
        "prepared_transactions": contents.prepared,
        "file": output,
    }
    if output != "-":
        print_summary("export", summary, as_json=as_json)
    context.exit(1 if written.left_out or missing or copy.state is CopyState.DAMAGED else 0)


@dataclass(slots=True)
class _Written:
    messages: int = 0
    queues: int = 0
    left_out: int = 0


def _write(file: TextIO, header: ExportHeader, messages: Iterator[LiveMessage]) -> _Written:
    """All lines; what is in the log only in part is left out and said."""
    written = _Written()
    file.write(header_line(header))
    queue_id = None
    for live in messages:
        try:
            if live.large:
                raise RemoteProtocolError("its body is not in the log")
            line = message_line(live)
        except RemoteProtocolError as error:
            written.left_out += 1
            click.echo(f"message {live.record.message_id} of {live.queue.name!a} left out: {error}", err=True)
            continue
        if live.queue.queue_id != queue_id:
            queue_id = live.queue.queue_id
            written.queues += 1
            file.write(queue_line(live))
        file.write(line)
        written.messages += 1
    file.write(end_line(written.messages, written.left_out))
    return written


class _Output:
    """A file that appears when it is complete; for its owner alone, as bodies are nobody else's business."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._temporary = f"{name}.{os.getpid()}.part"
        self._file: TextIO = sys.stdout

    def __enter__(self) -> TextIO:
        if self._name != "-":
            try:
                descriptor = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise ConfigError(f"cannot be written: {error.strerror}", file=self._name) from error
            self._file = os.fdopen(descriptor, "w", encoding="ascii", newline="\n")
        return self._file

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._name == "-":
            return
        try:
            if kind is None:
                self._file.flush()
                os.fsync(self._file.fileno())
                os.replace(self._temporary, self._name)
        finally:
            self._file.close()
            with suppress(FileNotFoundError):
                os.unlink(self._temporary)


# --- import -------------------------------------------------------------------------------------------


class _ExportFile:
    """A file of ``export``, read line by line as often as needed."""

    def __init__(self, path: Path) -> None:
        """Raises:
        ConfigError: it is no export, or cut short; every line has been looked at.
        """
        self.path = path
        self.queues: dict[str, ExportedQueue] = {}
        self.counts: dict[str, int] = {}
        self.header: ExportHeader | None = None
        end: ExportEnd | None = None
        for number, line in self._lines():
            if end is not None:
                raise ConfigError(f"line {number}: lines behind the end", file=str(path))
            if isinstance(line, ExportHeader):
                self.header = line
            elif isinstance(line, ExportedQueue):
                self.queues[line.name] = line
            elif isinstance(line, ExportedMessage):
                if line.queue not in self.queues:
                    raise ConfigError(f"line {number}: nothing said what queue {line.queue!r} is", file=str(path))
                self.counts[line.queue] = self.counts.get(line.queue, 0) + 1
            else:
                end = line
        if end is None or end.messages != self.messages:
            raise ConfigError("the file is cut short: its last line is missing", file=str(path), hint="export again")

    @property
    def messages(self) -> int:
        return sum(self.counts.values())

    @property
    def addresses(self) -> dict[str, int]:
        """Messages for each address."""
        counts: Counter[str] = Counter()
        for name, count in self.counts.items():
            counts[self.queues[name].address] += count
        return counts

    @property
    def fingerprint(self) -> str:
        """Changes when the file is made anew from another state of the log."""
        assert self.header is not None, "checked"
        return f"{self.path.name} {self.path.stat().st_size} {self.header.node_id} {self.header.sequence}"

    def _lines(self) -> Iterator[tuple[int, ExportHeader | ExportedQueue | ExportedMessage | ExportEnd]]:
        header: ExportHeader | None = None
        number = 0
        with self.path.open("rb") as file:
            while raw := file.readline(LINE_BYTES_MAX):
                number += 1
                try:
                    line = parse_line(raw.decode("utf-8"), header)
                except ValueError as error:
                    raise ConfigError(f"line {number}: {error}", file=str(self.path)) from error
                header = line if isinstance(line, ExportHeader) else header
                yield number, line

    def outgoing(self) -> Iterator[Message]:
        """The messages, ready to be sent."""
        for _, line in self._lines():
            if isinstance(line, ExportedMessage):
                queue = self.queues[line.queue]
                # straight into its queue: others of the address have their own copy
                yield line.to_send(f"{queue.address}::{queue.name}")


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@connection_options
@_DRY_RUN
@_RATE
@_JSON
@click.pass_context
def import_messages(
    context: click.Context,
    file: Path,
    url: str,
    user: str | None,
    password_file: Path | None,
    dry_run: bool,
    rate: float | None,
    as_json: bool,
) -> None:
    """Send the messages of FILE, made by export, into a running broker.

    Each goes straight into its queue, which is made if there is none, with a duplicate id made of
    where it comes from, so that doing it twice is doing it once. After an interruption the same
    command goes on where it was (FILE.progress).
    """
    exported = _ExportFile(file)
    plan = SendPlan(
        exported.queues, exported.outgoing, exported.messages, exported.addresses, exported.fingerprint, rate, dry_run
    )
    password = read_password(password_file)
    context.exit(send_all(plan, "import", url, user, password, as_json=as_json, progress_file=Path(f"{file}.progress")))


# --- replay -------------------------------------------------------------------------------------------


@click.command("replay")
@click.argument("directory", type=STORE)
@connection_options
@click.option("--from", "start", help="Only messages sent then or later: 2026-01-31T12:00:00, UTC unless it says else.")
@click.option("--to", "stop", help="Only messages sent before.")
@click.option("--address", "addresses", multiple=True, help="Only messages to this address; may be repeated.")
@click.option("--filter", "filter_text", help="Selector; only matching messages.")
@click.option("--target", help="Send to this address, or address::queue, instead of the one each had.")
@_DRY_RUN
@_RATE
@_JSON
@click.pass_context
def replay_messages(
    context: click.Context,
    directory: str,
    url: str,
    user: str | None,
    password_file: Path | None,
    start: str | None,
    stop: str | None,
    addresses: tuple[str, ...],
    filter_text: str | None,
    target: str | None,
    dry_run: bool,
    rate: float | None,
    as_json: bool,
) -> None:
    """Send the messages of retained segments in DIRECTORY again, acknowledged or not.

    Each goes to its address, with a duplicate id of its own, so that replaying twice is once. One
    whose expiration has passed gets none.
    """
    disk = open_store(directory)
    try:
        selector = parse_selector(filter_text) if filter_text and filter_text.strip() else None
    except BrokerError as error:
        raise click.UsageError(f"--filter: {error}") from error
    start_ms, stop_ms = _moment("--from", start), _moment("--to", stop)
    counts = RetainedCounts()

    def outgoing() -> Iterator[Message]:
        moment_ms = now_ms()
        for retained in retained_messages(disk, directory, counts):
            message = retained.decode()
            address = message.address or ""
            sent_ms = message.timestamp or retained.header.created_ms
            if (start_ms is not None and sent_ms < start_ms) or (stop_ms is not None and sent_ms >= stop_ms):
                continue
            if (addresses and address not in addresses) or (selector is not None and not selector.matches(message)):
                continue
            if message.expiration and message.expiration <= moment_ms:
                message = message.replace(expiration=0)
            wanted = target or address
            header = retained.header
            known = ExportedMessage(
                f"replay to {wanted}",
                header.node_id,
                header.epoch,
                retained.sequence,
                retained.record.message_id,
                message,
            )
            yield known.to_send(wanted)

    addresses_of = Counter((message.address or "").partition("::")[0] for message in outgoing())
    for left_out, why in (
        (counts.without_outcome, "of transactions without a commit in these segments"),
        (counts.large, "large ones, whose bodies are not in the log"),
    ):
        if left_out:
            click.echo(f"left out: {left_out} messages, {why}", err=True)
    plan = SendPlan({}, outgoing, addresses_of.total(), addresses_of, "", rate, dry_run)
    context.exit(send_all(plan, "replay", url, user, read_password(password_file), as_json=as_json, progress_file=None))


def _moment(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from error
    return int((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1000)
