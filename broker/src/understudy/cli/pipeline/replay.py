"""``understudy pipeline replay``: messages of an archive, sent into a running broker once."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from understudy.cli.data.replay import period
from understudy.cli.data.stored_body import inflated
from understudy.cli.messages.load import connection_options, now_ms, print_summary, read_password
from understudy.cli.messages.sending import Outgoing, SendPlan, send_all
from understudy.cli.pipeline.spark_job import JSON, MASTER, WORK_DIRECTORY, job_session, progress
from understudy.errors import BrokerError, ConfigError
from understudy.message import LARGE_COMPRESSED
from understudy.selector import parse_selector
from understudy.spark.archive.layout import read_published
from understudy.tools.export import PIECE_BYTES, ExportedMessage

if TYPE_CHECKING:
    from understudy.spark.archive.replays import Chosen


@click.command("replay")
@click.argument("archive", type=click.Path(exists=True, file_okay=False, path_type=Path))
@connection_options
@click.option("--from", "start", help="Only messages sent then or later: 2026-01-31T12:00:00, UTC unless it says else.")
@click.option("--to", "stop", help="Only messages sent before.")
@click.option(
    "--address",
    "addresses",
    multiple=True,
    help="Only messages to this address; * is one word, # any number of words; may be repeated.",
)
@click.option("--filter", "filter_text", default="", help="Selector; only matching messages.")
@click.option("--to-address", "target", help="Send to this address, or address::queue, instead of the one each had.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Messages per second; default: no limit.")
@click.option(
    "--resume",
    "resume_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File with the number of confirmed messages; a replay that was cut goes on there.",
)
@click.option("--dry-run", is_flag=True, help="Only select and count; no broker is needed.")
@MASTER
@JSON
@WORK_DIRECTORY
@click.pass_context
def replay_command(
    context: click.Context,
    archive: Path,
    url: str,
    user: str | None,
    password_file: Path | None,
    start: str | None,
    stop: str | None,
    addresses: tuple[str, ...],
    filter_text: str,
    target: str | None,
    rate: float | None,
    resume_file: Path | None,
    dry_run: bool,
    master: str,
    as_json: bool,
    work_dir: Path | None,
) -> None:
    """Send messages of ARCHIVE again, in the order in which each node had them.

    Each has a duplicate id made of its node, id and content, so that replaying twice is once, as far as the broker
    remembers duplicate ids (id-cache-size). An expiration that has passed is removed.

    \b
    Example: understudy pipeline replay /archive

    Exit codes: 0 done, 1 the broker refused, or an address has no queue, or messages were left out because the archive
    has not their body, 2 usage, or the archive cannot be used, 3 broker unreachable, 4 timed out.
    """
    try:
        if filter_text.strip():
            parse_selector(filter_text)
    except BrokerError as error:
        raise click.UsageError(f"--filter: {error}") from error
    start_ms, stop_ms = period(start, stop)
    if target == "":
        raise click.UsageError("--to-address: an address is needed")
    if resume_file is not None and not resume_file.absolute().parent.is_dir():
        raise ConfigError("its directory does not exist", file=str(resume_file))
    read_published(archive)
    with job_session("replay", master, work_dir) as spark:
        from understudy.spark.archive.replays import Selection, choose

        selection = Selection(start_ms, stop_ms, addresses, filter_text.strip())
        with choose(spark, archive, selection, progress(quiet=as_json)) as chosen:
            notes: dict[str, Any] = {"left_out": chosen.left_out if as_json else sum(chosen.left_out.values())}
            counts = _targets(chosen, target)
            if dry_run:
                shown = dict(sorted(counts.items())) if as_json else len(counts)
                found = {"messages": chosen.total, "addresses": shown, **notes, "dry_run": True}
                print_summary("replay", found, as_json=as_json)
                code = 0
            else:
                source = _source(chosen, target)
                _check_resume(resume_file, source)
                began_ms = now_ms()
                plan = SendPlan(
                    {}, lambda: _outgoing(chosen, target, began_ms), chosen.total, counts, source, rate, False, notes,
                    check_queues=True,
                )  # fmt: skip
                code = send_all(
                    plan, "replay", url, user, read_password(password_file), as_json=as_json, progress_file=resume_file
                )
    context.exit(code or (1 if chosen.left_out else 0))


def _targets(chosen: Chosen, target: str | None) -> Counter[str]:
    """Messages for each address that they are sent to."""
    found: Counter[str] = Counter()
    for address, count in chosen.addresses.items():
        found[(target or address).partition("::")[0]] += count
    return found


def _source(chosen: Chosen, target: str | None) -> str:
    """Identity of the messages and where they go, for the resume file."""
    text = json.dumps([chosen.content, chosen.total, target])
    return hashlib.sha256(text.encode()).hexdigest()


def _check_resume(file: Path | None, source: str) -> None:
    """Raises ConfigError for the file of another replay: its number would be that of other messages."""
    if file is None or not file.exists():
        return
    try:
        noted = json.loads(file.read_text(encoding="utf-8"))
        own = noted["source"] == source
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(file)) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError("is no progress of a replay", file=str(file), hint="remove it") from error
    if not own:
        raise ConfigError(
            "is the progress of a replay of other messages or to another address",
            file=str(file),
            hint="the archive may have grown; give --to, or another file",
        )


def _outgoing(chosen: Chosen, target: str | None, began_ms: int) -> Iterator[Outgoing]:
    from understudy.spark.archive.replays import large_of, message_of, pieces_of

    for row in chosen.rows():
        wanted = target or row["address"] or ""
        original, large = message_of(row).replace(), large_of(row)
        # as ``data replay`` names them, so that a message that both send is there once
        known = ExportedMessage(
            f"replay to {wanted}", row["node_id"], row["epoch"], row["sequence"], row["message_id"], original,
            large=large,
        )  # fmt: skip
        message = known.to_send(wanted)
        if message.expiration and message.expiration <= began_ms:
            # not before the duplicate id is made: a replay that goes on later must make the same one
            message = message.replace(expiration=0)
        body: Iterable[bytes] | None = None
        if large is not None:
            pieces = pieces_of(bytes(row["body"]), PIECE_BYTES)
            body = _Inflated(pieces) if original.properties.get(LARGE_COMPRESSED) else pieces
        yield Outgoing(message, body)


class _Inflated:
    """A compressed body, inflated each time it is iterated."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        return inflated(self._pieces)
