"""A producer and a consumer of AMQP 0-9-1 that write ledgers, as ``understudy produce`` and
``consume`` do over CORE. Each is a thread with pika, and connects again to the first node that answers.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

import pika
from pika.exceptions import AMQPError

from understudy.ledger import LedgerWriter, ReceivedCopy, digest_of

#: Names of the headers that identify a message in ledgers (``understudy.cli.messages.load``).
PRODUCER, NUMBER = "ledger_producer", "ledger_number"
_BATCH = 20
_ERRORS = (AMQPError, OSError)


class _Client(threading.Thread, ABC):
    """A client with a ledger that goes on at the next node when its connection is lost."""

    def __init__(
        self,
        places: Sequence[pika.ConnectionParameters],
        queue: str,
        ledger: Path,
        enter: Callable[[], None] = lambda: None,
    ) -> None:
        """Make a client that does not run yet.

        Args:
            places: How the nodes are reached, in the order in which they are tried.
            queue: The queue, which is declared as a durable one.
            ledger: File to which the rows are added.
            enter: Called in the thread before it connects, such as to enter a network namespace.
        """
        super().__init__(daemon=True)
        self._places = places
        self._enter = enter
        self._queue = queue
        self.ledger = ledger
        self._file: TextIO | None = None
        self.enough = threading.Event()
        self.count = 0
        """Messages that were confirmed or acknowledged."""
        self.connected = 0
        """How often a connection was opened."""
        self.bug: BaseException | None = None

    def run(self) -> None:
        try:
            self._enter()
            with self.ledger.open("a", encoding="utf-8") as self._file:
                self._rows = LedgerWriter(self._file.write)
                while not self.enough.is_set():
                    self._connect_and_work()
        except BaseException as bug:
            self.bug = bug

    def _connect_and_work(self) -> None:
        for place in self._places:
            try:
                connection = pika.BlockingConnection(place)
                self.connected += 1
                self._work(connection.channel())
                connection.close()
                return
            except _ERRORS:
                continue
        time.sleep(0.05)

    @abstractmethod
    def _work(self, channel: Any) -> None:
        """Work on an open channel until it fails, or there was enough."""

    def _flush(self) -> None:
        """Rows leave the process before the message that they announce does."""
        assert self._file is not None
        self._file.flush()

    def finish(self, timeout_s: float = 60) -> None:
        """Let it end, and raise the error that it has met."""
        self.enough.set()
        self.join(timeout_s)
        assert not self.is_alive()
        if self.bug is not None:
            raise self.bug


class Producer(_Client):
    """Publishes durable messages, each with a confirm. What became of one without a confirm is unknown: it is not sent
    again, so that a message which comes twice is an error of the broker.
    """

    _number = 0

    def _work(self, channel: Any) -> None:
        channel.queue_declare(self._queue, durable=True)
        channel.confirm_delivery()
        while not self.enough.is_set():
            number, self._number = self._number, self._number + 1
            body = b"%d" % number
            self._rows.sent("amqp", number, self._queue, _now_ms(), digest=digest_of(body))
            self._flush()
            headers = {PRODUCER: "amqp", NUMBER: number}
            properties = pika.BasicProperties(headers=headers, delivery_mode=2)
            channel.basic_publish("", self._queue, body, properties, mandatory=True)
            self._rows.confirmed("amqp", number, self._queue, _now_ms())
            self.count += 1


class Consumer(_Client):
    """Acknowledges messages in transactions: a commit that was answered has acknowledged them for certain."""

    def _work(self, channel: Any) -> None:
        channel.queue_declare(self._queue, durable=True)
        channel.tx_select()
        channel.basic_qos(prefetch_count=_BATCH)
        copies: list[tuple[str, int, ReceivedCopy]] = []
        for method, properties, body in channel.consume(self._queue, inactivity_timeout=0.2):
            if method is not None:
                headers = properties.headers
                copy = ReceivedCopy("amqp", self._queue, 0, digest_of(body))
                copies.append((str(headers[PRODUCER]), int(headers[NUMBER]), copy))
                attempt = 2 if method.redelivered else 1
                self._each(
                    copies[-1:], lambda *row, attempt=attempt: self._rows.delivered(*row, delivery_count=attempt)
                )
            if copies and (method is None or len(copies) == _BATCH):
                self._each(copies, self._rows.acknowledging)
                self._flush()
                channel.basic_ack(0, multiple=True)
                channel.tx_commit()
                self._each(copies, self._rows.acknowledged)
                self.count += len(copies)
                copies = []
            if self.enough.is_set() and not copies:
                return

    def _each(self, copies: Sequence[tuple[str, int, ReceivedCopy]], write: Callable[..., None]) -> None:
        for producer, number, copy in copies:
            write(producer, number, self._queue, _now_ms(), copy)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
