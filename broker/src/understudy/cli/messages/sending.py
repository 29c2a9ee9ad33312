"""Sending known messages into a running broker: queues first, every send confirmed, resumable, noted when done."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

from understudy.cli.data.exported_settings import attributes_of, differences, notes_on
from understudy.cli.messages.load import Meter, connected, print_summary, run, show_progress, until_interrupted
from understudy.cli.terminal import echo
from understudy.client import aio
from understudy.client.core.url.destinations import RoutingType
from understudy.client.core.url.parsing import parse_url
from understudy.dataclass import dataclass
from understudy.errors import (
    AddressExists,
    AddressNotFound,
    ConfigError,
    InvalidQueueConfiguration,
    QueueExists,
    QueueNotFound,
)
from understudy.limits import ID_CACHE_SIZE
from understudy.message import Message
from understudy.texts import counted
from understudy.tools.export import ExportedQueue
from understudy.wire.core.packets import QueueQueryResponse

_WINDOW: Final = 500
#: Confirmations between two records of the progress. After a crash at most so many messages and those of the window are
#: repeated; the broker must remember more duplicate ids than that.
_NOTE_EVERY: Final = 250
_LAST_CONFIRMATIONS_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message with address (or ``address::queue``) and duplicate id."""

    message: Message
    body: Iterable[bytes] | None = None
    """Body of a large message, which is sent in pieces; iterated again after a failover."""


@dataclass(frozen=True, slots=True)
class SendPlan:
    """Messages to send, and options."""

    queues: Mapping[str, ExportedQueue]
    """Queues to create before, if they are missing."""
    messages: Callable[[], Iterator[Outgoing]]
    """Function that yields the messages, the same ones in the same order at each call."""
    total: int
    addresses: Mapping[str, int]
    """Number of messages for each address, because duplicate ids are cached per address."""
    source: str
    """Identity of the input, to recognise the progress file of another one."""
    rate: float | None
    """Messages per second; None for no limit."""
    dry_run: bool
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Further entries of the summary."""
    check_queues: bool = False
    """Whether an address that has no queue in the end counts as a failure: its messages went nowhere."""


class _Progress:
    """Number of the first messages that are confirmed, kept in a file beside the export."""

    def __init__(self, file: Path | None, source: str, target: str | None) -> None:
        """
        Args:
            file: None keeps nothing.
            source: The export that is sent; progress of another one does not count.
            target: Node id of the broker; progress with another does not count.

        Raises:
            ConfigError: the file is none, or cannot be read or written.
        """
        self._file = file
        self._key = {"source": source, "target": target}
        self.confirmed = 0
        self._done: set[int] = set()
        self._noted = 0
        if file is not None and target is not None and file.exists():
            try:
                noted = json.loads(file.read_text(encoding="utf-8"))
                if {name: noted[name] for name in self._key} == self._key:
                    self.confirmed = self._noted = int(noted["confirmed"])
            except OSError as error:
                raise ConfigError(f"cannot be read: {error.strerror}", file=str(file)) from error
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise ConfigError("is no progress of an import", file=str(file), hint="remove it") from error
        if file is not None:
            # before the first message is sent, because without the record an interrupted run could not go on
            try:
                with self._temporary.open("a"):
                    pass
                self._temporary.unlink()
            except OSError as error:
                raise self._refused(error) from error

    @property
    def _temporary(self) -> Path:
        assert self._file is not None
        return self._file.with_name(self._file.name + ".part")

    def _refused(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"the progress cannot be written: {error.strerror}",
            file=str(self._file),
            hint="it is kept beside the export: copy that to a directory that can be written",
        )

    def confirm(self, number: int) -> None:
        """Note that the broker has confirmed the message with this number, from 0. Raises ConfigError as ``note``."""
        self._done.add(number)
        while self.confirmed in self._done:
            self._done.remove(self.confirmed)
            self.confirmed += 1
        if self.confirmed - self._noted >= _NOTE_EVERY:
            self.note()

    def note(self) -> None:
        """Write the progress to its file. Raises ConfigError: it cannot be written."""
        if self._file is None or self.confirmed == self._noted:
            return
        self._noted = self.confirmed
        try:
            with self._temporary.open("w", encoding="utf-8") as file:
                file.write(json.dumps({**self._key, "confirmed": self.confirmed}))
                file.flush()
                os.fsync(file.fileno())
            os.replace(self._temporary, self._file)
        except OSError as error:
            raise self._refused(error) from error


class _Sending:
    """One run that sends the messages of a plan."""

    def __init__(self, plan: SendPlan, meter: Meter) -> None:
        self._plan = plan
        self._meter = meter
        self.sent = 0
        self.skipped = 0
        self.created: list[str] = []
        self.without_queue: list[str] = []
        self.unrouted: Counter[str] = Counter()
        """Messages that no queue took, by the address or queue that they were sent to."""
        self.error: BaseException | None = None
        self.failovers = 0

    async def use(self, connection: aio.Connection, progress_of: Callable[[str | None], _Progress]) -> None:
        """Create missing addresses and queues, then send.

        Raises:
            BrokerError: the broker refused; earlier confirmations hold.
        """
        session = await connection.session()
        for queue in self._plan.queues.values():
            await self._ensure(session, queue)
        if self._plan.dry_run:
            return
        progress = progress_of(connection.node_id)
        # less than was confirmed if that was with prepared transactions and this is without
        self.skipped = min(progress.confirmed, self._plan.total)
        if self.skipped == self._plan.total > 0:
            echo("note: this broker has confirmed all of it before; --again sends it again", err=True)
        producer = await session.producer(routing=None, duplicate_ids=False, window=_WINDOW)
        painter = asyncio.create_task(show_progress(self._meter, connection))
        try:
            interrupted = await until_interrupted(self._send(producer, progress))
            deadline_s = time.monotonic() + _LAST_CONFIRMATIONS_S
            while producer.in_flight and self.error is None and (not interrupted or time.monotonic() < deadline_s):
                await asyncio.sleep(0.005)
        finally:
            painter.cancel()
            progress.note()
            self.failovers = connection.failovers
        if self.error is not None:
            raise self.error
        for address, count in sorted(self.unrouted.items()):
            echo(f"note: {counted(count, 'message')} to {address!a} reached no queue and cannot be received", err=True)
        if self._plan.check_queues and self.sent:
            await self._find_addresses_without_queue(session)

    async def _find_addresses_without_queue(self, session: aio.Session) -> None:
        """A broker confirms a message that it routes to no queue."""
        for address in self._plan.addresses:
            if not (await session.query_address(address)).queue_names:
                self.without_queue.append(address)
                echo(f"note: address {address!a} has no queue: messages to it are in no queue", err=True)

    async def _ensure(self, session: aio.Session, queue: ExportedQueue) -> None:
        """Create a queue of the plan.

        Raises:
            InvalidQueueConfiguration: a queue with the name exists and has another configuration.
        """
        answer: QueueQueryResponse = await session.query_queue(queue.name)
        if answer.exists:
            if (answer.address or queue.name) != queue.address or (answer.filter or None) != (queue.filter or None):
                raise InvalidQueueConfiguration(
                    f"queue {queue.name!r} is at address {answer.address!r} with filter {answer.filter!r} there,"
                    f" and was at {queue.address!r} with filter {queue.filter!r}",
                    hint="its messages could be lost on the way; move it aside, or edit the line 'queue' of the file",
                )
            for note in differences(queue, answer):
                echo(f"note: {note}", err=True)
            return
        self.created.append(queue.name)
        for note in notes_on(queue):
            echo(f"note: {note}", err=True)
        if self._plan.dry_run:
            return
        routing = RoutingType(queue.routing_type)
        exists = (await session.query_address(queue.address)).exists
        if not exists and not queue.address_auto_created:
            await self._create_address(session, queue)
        for again in (False, True):
            try:
                await session.create_queue(
                    queue.name, address=queue.address, routing=routing, filter=queue.filter, durable=queue.durable,
                    **attributes_of(queue),
                )  # fmt: skip
                return
            except QueueExists:
                return  # another client has created it meanwhile
            except AddressNotFound:
                if again:
                    raise
                # the address settings of the broker create no address for a queue
                await self._create_address(session, queue)

    async def _create_address(self, session: aio.Session, queue: ExportedQueue) -> None:
        routing_types = [RoutingType(each) for each in queue.address_routing_types]
        try:
            await session.create_address(queue.address, *(routing_types or [RoutingType(queue.routing_type)]))
        except AddressExists:
            pass  # another client has created it meanwhile

    async def _send(self, producer: aio.Producer, progress: _Progress) -> None:
        started_s = time.monotonic()
        rate = self._plan.rate
        first = progress.confirmed
        for number, outgoing in enumerate(islice(self._plan.messages(), first, None), first):
            if self.error is not None:
                return
            if rate is not None:
                ahead_s = self.sent / rate - (time.monotonic() - started_s)
                if ahead_s > 0:
                    await asyncio.sleep(ahead_s)
            await producer.wait_sendable()
            self.sent += 1
            if outgoing.body is None:
                future = producer.send_nowait(outgoing.message)
            else:
                future = producer.send_large_nowait(outgoing.message, outgoing.body)
            future.add_done_callback(partial(self._done, progress, number, outgoing.message.address or ""))

    def _done(self, progress: _Progress, number: int, address: str, future: asyncio.Future[None]) -> None:
        error = None if future.cancelled() else future.exception()
        if isinstance(error, QueueNotFound):
            # not confirmed: the next run tries it again
            self.unrouted[address] += 1
        elif error is not None:
            self.error = self.error or error
        elif not future.cancelled():
            self._meter.add()
            try:
                progress.confirm(number)
            except ConfigError as failed:
                self.error = self.error or failed


def send_all(
    plan: SendPlan,
    title: str,
    url: str,
    user: str | None,
    password: str | None,
    *,
    as_json: bool,
    progress_file: Path | None,
) -> int:
    """Carry out a plan and print its summary; the exit code.

    Raises:
        BrokerError: the broker is unreachable or refused.
    """
    if progress_file is None:
        _warn_of_the_cache(plan.addresses)
    parsed = parse_url(url)
    # otherwise nothing would answer for messages that are not durable
    parsed = replace(parsed, options=replace(parsed.options, block_on_non_durable_send=True))
    meter = Meter("confirmed", plan.total, quiet=as_json or plan.dry_run)
    sending = _Sending(plan, meter)
    ended_well = False
    try:
        with meter:
            run(
                lambda: connected(
                    parsed,
                    user,
                    password,
                    lambda connection: sending.use(
                        connection, lambda node_id: _Progress(progress_file, plan.source, node_id)
                    ),
                )
            )
        ended_well = True
    finally:
        if ended_well or sending.sent:
            print_summary(title, _summary(plan, sending, meter, as_json=as_json), as_json=as_json)
    complete = sending.skipped + meter.count == plan.total and not (sending.without_queue or sending.unrouted)
    return 0 if plan.dry_run or complete else 1


def _warn_of_the_cache(addresses: Mapping[str, int]) -> None:
    for address, count in addresses.items():
        if count > ID_CACHE_SIZE:
            echo(
                f"note: {counted(count, 'message')} to {address!a}: a broker remembers the newest id-cache-size"
                f" duplicate ids of an address ({ID_CACHE_SIZE:,} by default), so do this once only, or raise"
                " id-cache-size before",
                err=True,
            )


def _summary(plan: SendPlan, sending: _Sending, meter: Meter, *, as_json: bool) -> dict[str, Any]:
    checked = plan.check_queues
    return {
        "messages": plan.total,
        "addresses": dict(sorted(plan.addresses.items())) if as_json else len(plan.addresses),
        "created_queues": sending.created if as_json else len(sending.created),
        "skipped": sending.skipped,
        "sent": sending.sent,
        "confirmed": meter.count,
        "unrouted": dict(sorted(sending.unrouted.items())) if as_json else sending.unrouted.total(),
        "seconds": round(meter.elapsed_s, 3),
        "rate": round(meter.rate, 1),
        "failovers": sending.failovers,
        **plan.notes,
        **({"without_queue": sending.without_queue if as_json else len(sending.without_queue)} if checked else {}),
        "dry_run": plan.dry_run,
        "error": str(sending.error) if sending.error is not None else None,
    }
