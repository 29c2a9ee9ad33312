"""``understudy data export`` and ``import``: messages out of a journal, into a broker.

Exit codes: 0 done, 1 the broker refused or a message could not be read, 2 usage or a file that
is not an export, 3 broker unreachable, 4 timed out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, TextIO

import click

from understudy.cli.data.export_file import ExportFile
from understudy.cli.data.stores import STORE, open_store
from understudy.cli.messages.load import connection_options, print_summary, read_password
from understudy.cli.messages.sending import SendPlan, send_all
from understudy.cli.terminal import echo
from understudy.dataclass import dataclass
from understudy.errors import (
    ConfigError,
    DiskFailed,
    JournalCorrupt,
    LargeMessageFailed,
    RemoteProtocolError,
    StoreError,
    WrongNode,
)
from understudy.message import large_body_of
from understudy.ports import Disk
from understudy.session.branch import Kind, decode_name
from understudy.store.log.records import AddressRecord, QueueRecord
from understudy.store.messages.large_messages import LargeReader
from understudy.store.state import TransactionRecord
from understudy.tools.compare import replay_set
from understudy.tools.contents import LiveMessage, beginning_is_missing, live_messages, prepared_messages
from understudy.tools.export import (
    PIECE_BYTES,
    ExportedTransaction,
    ExportHeader,
    diverts_of,
    end_line,
    header_line,
    message_line,
    piece_line,
    queue_line,
    transaction_line,
)
from understudy.tools.log_copy import CopyState

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
    help="Leave out messages that this copy of the same node's journal has or ever had; may be repeated.",
)
@click.option("--queue", "queues", multiple=True, help="Only this queue; may be repeated.")
@click.option("--address", "addresses", multiple=True, help="Only queues of this address; may be repeated.")
@click.option(
    "--large-messages",
    "large_directory",
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    help="large-messages-directory; default: large-messages beside DIRECTORY.",
)
@click.option("--allow-damage", is_flag=True, help="Export the readable part of a damaged or interrupted journal.")
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
    large_directory: str | None,
    allow_damage: bool,
    output: str,
    as_json: bool,
) -> None:
    """Write the messages that live in the journal in DIRECTORY, one JSON object a line.

    The journal is only read. The file is made under another name and renamed when it is complete.

    \b
    Example: understudy data export /srv/broker/data/journal -o messages.jsonl
    """
    summary, complete = export_copy(
        directory, others, output, chosen=Chosen(frozenset(queues), frozenset(addresses)), with_empty=not others,
        large_directory=large_directory, allow_damage=allow_damage,
    )  # fmt: skip
    if output != "-":
        print_summary("export", summary, as_json=as_json)
    context.exit(0 if complete else 1)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Selects messages by queue, address and id; empty sets of names, and None for the ids, select all."""

    queues: frozenset[str] = frozenset()
    addresses: frozenset[str] = frozenset()
    message_ids: Set[int] | None = None

    def check(self, queues: Iterable[QueueRecord], addresses: Iterable[AddressRecord]) -> None:
        """Check that everything named is there. Raises UsageError: a misspelt name would export nothing."""
        for kind, wanted, there in (("queue", self.queues, queues), ("address", self.addresses, addresses)):
            for name in sorted(wanted - {each.name for each in there}):
                raise click.UsageError(f"--{kind}: the journal has no {kind} {name!r}")

    def __call__(self, live: LiveMessage) -> bool:
        if self.message_ids is not None and live.record.message_id not in self.message_ids:
            return False
        return self.takes(live.queue, live.address)

    def takes(self, queue: QueueRecord, address: AddressRecord | None) -> bool:
        """Whether a queue of an address is selected."""
        if self.queues and queue.name not in self.queues:
            return False
        return not self.addresses or (address is not None and address.name in self.addresses)


#: Selects everything.
_ALL: Final = Chosen()


def export_copy(
    directory: str,
    others: tuple[str, ...],
    output: str,
    *,
    chosen: Chosen = _ALL,
    with_empty: bool = False,
    large_directory: str | None = None,
    allow_damage: bool = False,
) -> tuple[dict[str, object], bool]:
    """Write the messages that live in a journal and not in the others to a file.

    Args:
        chosen: Selects messages.
        with_empty: Whether selected queues are written although no message of theirs is, without those made on demand.

    Returns:
        A summary, and whether everything that lives there could be written.

    Raises:
        UsageError: a directory holds no journal, the journals are of different nodes, or there is no queue or address
            of a name.
        JournalCorrupt: the journal is damaged and ``allow_damage`` is false.
        DiskFailed: it cannot be read.
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
    chosen.check(contents.state.queues.values(), contents.state.addresses.values())
    header = ExportHeader(copy.node_id, *copy.position, directory)
    with _Output(output) as file:
        writing = _Writing(file, disk, large_directory or f"{directory.rpartition('/')[0]}/large-messages")
        file.write(header_line(header))
        writing.messages(filter(chosen, live_messages(copy, contents, counterparts)))
        for transaction_id, transaction in contents.state.transactions.items():
            if transaction.prepared:
                held = list(filter(chosen, prepared_messages(copy, contents, transaction_id, counterparts)))
                writing.transaction(transaction_id, transaction, held, contents.state.queues)
        if with_empty:
            writing.empty_queues(contents.state.queues.values(), contents.state.addresses, chosen.takes)
        diverts = diverts_of(contents.state.addresses.values())
        file.write(end_line(writing.count, writing.left_out, writing.prepared, diverts))
    summary: dict[str, object] = {
        "directory": directory,
        "node_id": copy.node_id,
        "epoch": header.epoch,
        "sequence": header.sequence,
        "state": copy.state.value,
        "messages": writing.count,
        "queues": len(writing.queues),
        "large_messages": writing.large,
        "left_out": writing.left_out,
        "prepared_transactions": contents.prepared,
        "prepared_messages": writing.prepared,
        "file": output,
    }
    return summary, not (writing.left_out or missing or copy.state is CopyState.DAMAGED)


class _Writing:
    """Writes the lines of an export; incomplete messages are omitted and reported."""

    def __init__(self, file: TextIO, disk: Disk, large_directory: str) -> None:
        self._file = file
        self._disk = disk
        self._large_directory = large_directory
        self.queues: set[int] = set()
        """Ids of the queues written."""
        self.count = 0
        self.large = 0
        self.prepared = 0
        self.left_out = 0

    def messages(self, messages: Iterable[LiveMessage], transaction_id: int = 0) -> None:
        """Messages with the queues they are in."""
        for live in messages:
            try:
                line = message_line(live, transaction_id)
                body = self._body(live) if live.large else None
            except (RemoteProtocolError, LargeMessageFailed, DiskFailed) as error:
                self.left_out += 1
                echo(f"message {live.record.message_id} of {live.queue.name!a} left out: {error}", err=True)
                continue
            if live.queue.queue_id not in self.queues:
                self.queues.add(live.queue.queue_id)
                self._file.write(queue_line(live.queue, live.address))
            self._file.write(line)
            self.count += 1
            self.prepared += bool(transaction_id)
            if body is not None:
                self.large += 1
                self._write_body(body)

    def empty_queues(
        self,
        queues: Iterable[QueueRecord],
        addresses: Mapping[int, AddressRecord],
        chosen: Callable[[QueueRecord, AddressRecord | None], bool],
    ) -> None:
        """Write durable queues of which no message was written: a subscription without messages gets those that are
        sent later. Queues of the broker itself, and those made on demand, are left out.
        """
        for queue in queues:
            address = addresses.get(queue.address_id)
            internal = queue.settings.get("internal") or (address is not None and address.settings.get("internal"))
            if queue.queue_id in self.queues or not queue.durable or internal or queue.settings.get("auto_created"):
                continue
            if chosen(queue, address):
                self.queues.add(queue.queue_id)
                self._file.write(queue_line(queue, address))

    def transaction(
        self,
        transaction_id: int,
        transaction: TransactionRecord,
        held: list[LiveMessage],
        queues: dict[int, QueueRecord],
    ) -> None:
        """Write a prepared transaction and its messages."""
        kind, xid = Kind.BRANCH, None
        with suppress(StoreError):
            kind, xid = decode_name(transaction.xid or b"")
        taken: dict[str, list[int]] = {}
        for queue_id, message_id in transaction.acknowledges:
            if queue_id in queues:
                taken.setdefault(queues[queue_id].name, []).append(message_id)
        acknowledges = tuple((queue, tuple(ids)) for queue, ids in taken.items())
        self._file.write(
            transaction_line(ExportedTransaction(transaction_id, xid, _OUTCOMES[kind], len(held), acknowledges))
        )
        self.messages(held, transaction_id)

    def _body(self, live: LiveMessage) -> LargeReader:
        """The body of a message, after reading it once to check it."""
        large = large_body_of(live.record.encoded)
        reader = LargeReader(self._disk, f"{self._large_directory}/{large.file_id}.large", large)
        try:
            while reader.left_bytes:
                reader.read(PIECE_BYTES)
        except BaseException:
            reader.pause()
            raise
        # kept open: a running broker may remove it meanwhile
        reader.restart()
        return reader

    def _write_body(self, body: LargeReader) -> None:
        offset = 0
        while body.left_bytes:
            data = body.read(PIECE_BYTES)
            self._file.write(piece_line(offset, data))
            offset += len(data)
        body.pause()


_OUTCOMES: Final = {
    Kind.BRANCH: "prepared",
    Kind.HEURISTICALLY_COMMITTED: "heuristically committed",
    Kind.HEURISTICALLY_ROLLED_BACK: "heuristically rolled back",
}


class _Output:
    """A file that appears when it is complete; readable by its owner alone, because it holds the bodies of messages."""

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


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@connection_options
@click.option(
    "--prepared",
    type=click.Choice(["leave-out", "include"]),
    default="leave-out",
    show_default=True,
    help="Messages of prepared transactions: include sends them as if committed.",
)
@click.option("--again", is_flag=True, help="Send everything, whatever FILE.progress says.")
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
    prepared: str,
    again: bool,
    dry_run: bool,
    rate: float | None,
    as_json: bool,
) -> None:
    """Send the messages of FILE, made by export, into a running broker.

    Each goes straight into its queue, which is made if there is none, as it was, with a duplicate id made of
    where it comes from, so that doing it twice is doing it once. A message that its queue does not take is counted
    as unrouted; the exit code is 1 then. FILE.progress notes how far it is: after an
    interruption the same command goes on there, and once all is done it sends nothing to that broker any more.

    \b
    Example: understudy data import messages.jsonl
    """
    exported = ExportFile(file)
    include = prepared == "include"
    left_out = exported.messages(prepared=True) - exported.messages(prepared=include)
    if left_out:
        echo(f"left out: {left_out} messages of prepared transactions; --prepared include sends them", err=True)
    for divert in exported.diverts:
        echo(
            f"note: divert {divert.name!a} from {divert.address!a} to {divert.forwarding_address!a} is not imported",
            err=True,
        )
    plan = SendPlan(
        exported.queues,
        partial(exported.outgoing, prepared=include),
        exported.messages(prepared=include),
        exported.addresses(prepared=include),
        exported.fingerprint,
        rate,
        dry_run,
    )
    password = read_password(password_file)
    progress_file = Path(f"{file}.progress")
    if again and not dry_run:
        try:
            progress_file.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot be removed: {error.strerror}", file=str(progress_file)) from error
    context.exit(send_all(plan, "import", url, user, password, as_json=as_json, progress_file=progress_file))
