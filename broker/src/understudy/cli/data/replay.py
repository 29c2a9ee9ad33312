"""``understudy data replay``: send the messages of a retention directory again.

Exit codes: 0 done, 1 the broker refused or a body does not exist any more, 2 usage, 3 broker unreachable,
4 timed out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from understudy.cli.data.stored_body import StoredBody
from understudy.cli.data.stores import STORE, open_store
from understudy.cli.messages.load import connection_options, now_ms, read_password
from understudy.cli.messages.sending import Outgoing, SendPlan, send_all
from understudy.cli.terminal import echo
from understudy.dataclass import dataclass
from understudy.errors import BrokerError, DiskFailed, LargeMessageFailed
from understudy.message import LARGE_COMPRESSED, LargeBody, Message
from understudy.ports import Disk
from understudy.selector import Selector, parse_selector
from understudy.tools.export import ExportedMessage
from understudy.tools.retained import RetainedCounts, RetainedMessage, retained_messages


@click.command("replay")
@click.argument("directory", type=STORE)
@connection_options
@click.option("--from", "start", help="Only messages sent then or later: 2026-01-31T12:00:00, UTC unless it says else.")
@click.option("--to", "stop", help="Only messages sent before.")
@click.option("--address", "addresses", multiple=True, help="Only messages to this address; may be repeated.")
@click.option("--filter", "filter_text", help="Selector; only matching messages.")
@click.option("--target", help="Send to this address, or address::queue, instead of the one each had.")
@click.option(
    "--large-messages",
    "large_directory",
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    help="large-messages-directory of the broker: bodies that it still needs are read there.",
)
@click.option("--dry-run", is_flag=True, help="Only read and count; send and create nothing.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Messages per second; default: no limit.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
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
    large_directory: str | None,
    dry_run: bool,
    rate: float | None,
    as_json: bool,
) -> None:
    """Send the messages of retained segments in DIRECTORY again, acknowledged or not.

    Each goes to its address, with a duplicate id of its own, so that replaying twice is once. One
    whose expiration has passed gets none. A large one whose body is not kept any more is named and left out.

    \b
    Example: understudy data replay /srv/kept --address orders --dry-run
    """
    disk = open_store(directory)
    try:
        selector = parse_selector(filter_text) if filter_text and filter_text.strip() else None
    except BrokerError as error:
        raise click.UsageError(f"--filter: {error}") from error
    chosen = _Chosen(*period(start, stop), frozenset(addresses), selector)
    replay = _Replay(disk, directory, large_directory, chosen, target)
    addresses_of = replay.look()
    if replay.counts.without_outcome:
        echo(
            f"left out: {replay.counts.without_outcome} messages, of transactions without a commit in these segments",
            err=True,
        )
    plan = SendPlan({}, replay.outgoing, addresses_of.total(), addresses_of, "", rate, dry_run)
    code = send_all(plan, "replay", url, user, read_password(password_file), as_json=as_json, progress_file=None)
    context.exit(code or (1 if replay.left_out else 0))


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Selects messages by the options of the command."""

    start_ms: int | None
    stop_ms: int | None
    addresses: frozenset[str]
    selector: Selector | None

    def __call__(self, message: Message, sent_ms: int) -> bool:
        if (self.start_ms is not None and sent_ms < self.start_ms) or (
            self.stop_ms is not None and sent_ms >= self.stop_ms
        ):
            return False
        if self.addresses and (message.address or "") not in self.addresses:
            return False
        return self.selector is None or self.selector.matches(message)


class _Replay:
    """The messages to send; the same at each iteration."""

    def __init__(
        self, disk: Disk, directory: str, large_directory: str | None, chosen: _Chosen, target: str | None
    ) -> None:
        self._disk = disk
        self._directories = [directory, *([large_directory] if large_directory is not None else ())]
        self._chosen = chosen
        self._target = target
        self._began_ms = now_ms()
        self.counts = RetainedCounts()
        self.left_out: set[tuple[int, int]] = set()
        """Epoch and sequence of large messages without their body."""

    def look(self) -> Counter[str]:
        """Messages for each address; every body is read once; a message without one is named and left out."""
        found: Counter[str] = Counter()
        for retained, message in self._messages():
            large = retained.large
            if large is not None:
                try:
                    self._body(message, large).check()
                except (LargeMessageFailed, DiskFailed) as error:
                    self.left_out.add((retained.header.epoch, retained.sequence))
                    echo(
                        f"message {retained.record.message_id} to {message.address or ''!a} left out: {error}", err=True
                    )
                    continue
            found[(self._target or message.address or "").partition("::")[0]] += 1
        return found

    def outgoing(self) -> Iterator[Outgoing]:
        """The messages, ready to be sent."""
        for retained, message in self._messages():
            if (retained.header.epoch, retained.sequence) in self.left_out:
                continue
            wanted = self._target or message.address or ""
            if message.expiration and message.expiration <= self._began_ms:
                message = message.replace(expiration=0)
            header, large = retained.header, retained.large
            known = ExportedMessage(
                f"replay to {wanted}",
                header.node_id,
                header.epoch,
                retained.sequence,
                retained.record.message_id,
                message,
                large=large,
            )
            yield Outgoing(known.to_send(wanted), None if large is None else self._body(message, large))

    def _messages(self) -> Iterator[tuple[RetainedMessage, Message]]:
        for retained in retained_messages(self._disk, self._directories[0], self.counts):
            message = retained.decode()
            if self._chosen(message, message.timestamp or retained.header.created_ms):
                yield retained, message

    def _body(self, message: Message, large: LargeBody) -> StoredBody:
        """Retained, or still with the broker; the error of reading it names the first place."""
        paths = [f"{directory}/{large.file_id}.large" for directory in self._directories]
        path = next(filter(self._disk.exists, paths), paths[0])
        return StoredBody(self._disk, path, large, compressed=bool(message.properties.get(LARGE_COMPRESSED)))


def period(start: str | None, stop: str | None) -> tuple[int | None, int | None]:
    """The times that ``--from`` and ``--to`` name, epoch milliseconds. Raises UsageError."""
    start_ms, stop_ms = moment("--from", start), moment("--to", stop)
    if start_ms is not None and stop_ms is not None and stop_ms <= start_ms:
        raise click.UsageError(f"--to {stop} is not after --from {start}: no message is in between")
    return start_ms, stop_ms


def moment(option: str, text: str | None) -> int | None:
    """The time that an option names, epoch milliseconds; UTC unless it says else.

    Raises:
        UsageError: it is no time; names the option.
    """
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from error
    return int((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1000)
