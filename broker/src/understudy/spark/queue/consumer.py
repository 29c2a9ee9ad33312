"""The messages of one batch of a live queue: received, held without an acknowledgement, acknowledged together.

One session in CLIENT mode: an acknowledgement is for everything that it has received, in one commit. Therefore a batch
is acknowledged, or given up with the connection, before the next one is received. After a failover the broker delivers
unacknowledged messages again; they are recognised by node id and message id, so that none is in two batches.

The rules are in ``Held``, which knows no connection; ``QueueConsumer`` is the shell.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from understudy.client.sync import Connection, Consumer, Received, Session, connect
from understudy.errors import ConfigError, ConnectionLost, LimitExceeded, QueueNotFound
from understudy.message import LARGE_SIZE
from understudy.spark.queue.options import SourceOptions
from understudy.spark.queue.rows import QueueMessage

#: Longest wait for the first message of a batch, so that Spark can stop the query in between. Seconds.
_FIRST_S: Final = 0.2
Key = tuple[str, int]


class Held:
    """Which messages were taken, and which acknowledgements the broker does not have yet."""

    def __init__(self) -> None:
        self._batch: dict[Key, QueueMessage] = {}
        self._generations: dict[Key, int] = {}
        """Session of the broker in which each message of the batch was taken last; rises with each failover."""
        self._size_bytes = 0
        self._finished: dict[Key, int | None] = {}
        """Messages of finished batches without a confirmed acknowledgement, with the generation in which they came
        again; they are dropped until a copy is acknowledged.
        """
        self.owes = False
        """Whether a message was taken whose acknowledgement was not confirmed."""

    @property
    def messages(self) -> list[QueueMessage]:
        """The batch, in the order of the queue."""
        return list(self._batch.values())

    @property
    def size_bytes(self) -> int:
        """Bytes of the messages of the batch."""
        return self._size_bytes

    def take(self, message: QueueMessage, generation: int) -> bool:
        """A message has come in a generation of the session; whether it is new.

        One that is in the batch already came again after a failover: the broker counts the later delivery.
        """
        self.owes = True
        key = message.key
        if key in self._finished:
            self._finished[key] = generation
            return False
        self._generations[key] = generation
        if key in self._batch:
            return False
        self._batch[key] = message
        self._size_bytes += message.size_bytes
        return True

    def acknowledged(self, generation: int | None) -> None:
        """Called when the batch is durable elsewhere, and everything taken in a generation was acknowledged.

        Args:
            generation: None if the broker confirmed nothing. Messages of other generations come again.
        """
        owed = self._finished | dict(self._generations)
        self._finished = {key: None for key, taken in owed.items() if taken is None or taken != generation}
        self._batch.clear()
        self._generations.clear()
        self._size_bytes = 0
        self.owes = False


class QueueConsumer:
    """A connection with one consumer."""

    def __init__(self, options: SourceOptions, now_s: Callable[[], float] = time.monotonic) -> None:
        """Connect to the broker.

        Raises:
            ConfigError: the password file cannot be read.
            ConnectionFailed: no broker answers.
            SecurityError: user or password are wrong, or the user may not consume.
            AddressError: there is no such queue, or it cannot be consumed.
        """
        self._options = options
        self._now_s = now_s
        self._held = Held()
        self._last: Received | None = None
        self._connection, self._session = open_session(options)
        try:
            self._queue = require_queue(self._session, options.queue)
            self._consumer: Consumer = self._session.consumer(self._queue, filter=options.filter, auto_create=False)
        except BaseException:
            self._connection.abandon()
            raise

    @property
    def messages(self) -> list[QueueMessage]:
        """The batch that was collected last, and is not acknowledged."""
        return self._held.messages

    def waiting(self) -> int:
        """Number of messages in the queue, delivered ones included."""
        return self._session.query_queue(self._queue).message_count

    def collect(self, messages_max: int) -> list[QueueMessage]:
        """Receive a batch. It waits a short time for a first message, and then takes what the broker has at once.

        Args:
            messages_max: At most so many, and not more than the options say.

        Returns:
            The messages; empty if none came.

        Raises:
            ConfigError: a body is larger than option maxMessageBytes; the message stays in the queue.
            BrokerError: as ``Consumer.receive``.
        """
        assert not self._held.messages, "a batch is acknowledged before the next one is received"
        options, held = self._options, self._held
        limit = min(messages_max, options.messages_max)
        deadline_s = self._now_s() + options.wait_ms / 1000
        received = self._consumer.receive(min(_FIRST_S, options.wait_ms / 1000))
        while received is not None:
            self._take(received)
            if len(held.messages) >= limit or held.size_bytes >= options.bytes_max or self._now_s() >= deadline_s:
                break
            received = self._consumer.receive_nowait()
        if held.owes and not held.messages:
            # only messages of a finished batch came again
            self.acknowledge()
        return held.messages

    def _take(self, received: Received) -> None:
        try:
            message = self._whole(received)
        except ConnectionLost:
            return  # the broker delivers the message again
        self._last = received
        self._held.take(message, received.generation)

    def _whole(self, received: Received) -> QueueMessage:
        limit = self._options.message_bytes_max
        try:
            body = received.read_body(limit)
            if len(body) > limit:
                raise LimitExceeded(f"message {received.message_id} has a body of {len(body)} bytes")
        except LimitExceeded as error:
            raise ConfigError(
                f"queue {self._queue!r}: message {received.message_id} has a body of more than {limit} bytes",
                hint="raise option maxMessageBytes, or leave it out with option filter",
            ) from error
        return received_message(self._connection, self._queue, received, body)

    def acknowledge(self) -> bool:
        """Acknowledge a batch, which removes it from the queue; called when the batch is durable elsewhere.

        Returns:
            Whether the broker confirmed it. If not, after a failover, its messages come again and are dropped here.

        Raises:
            ConnectionFailed: the connection was lost and no other came back.
        """
        last, self._last = self._last, None
        confirmed = last is not None and self._consumer.acknowledge(last)
        self._held.acknowledged(last.generation if last is not None and confirmed else None)
        return confirmed

    def close(self) -> None:
        """Give everything back that was not acknowledged."""
        self._connection.abandon()


def open_session(options: SourceOptions) -> tuple[Connection, Session]:
    """A connection, and a session in CLIENT mode.

    Raises:
        BrokerError: as ``QueueConsumer``.
    """
    login = options.login
    connection = connect(login.client_url(), login.user, login.password())
    try:
        return connection, connection.session("client")
    except BaseException:
        connection.abandon()
        raise


def require_queue(session: Session, name: str) -> str:
    """The queue, which must exist.

    Args:
        session: Any.
        name: Name of the queue, or ``address::queue``.

    Raises:
        QueueNotFound: there is none.
        NotAuthorized: the user may not ask.
    """
    queue = name.rpartition("::")[2]
    if not session.query_queue(queue).exists:
        raise QueueNotFound(f"the broker has no queue {queue!r}", hint="see `understudy status` for its queues")
    return queue


def received_message(connection: Connection, queue: str, received: Received, body: bytes) -> QueueMessage:
    """A message with the node that delivered it."""
    message = received.message
    streamed = received.stream is not None
    return QueueMessage(
        connection.node_id or "",
        queue,
        message,
        body,
        streamed or LARGE_SIZE in message.properties,
        message.encode_size + (len(body) if streamed else 0),
        received.delivery_count,
    )
