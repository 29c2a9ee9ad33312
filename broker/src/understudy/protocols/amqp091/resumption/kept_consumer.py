"""Description of a consumer that a client finds again: for the status of its channel, and for the log (ADR 0195)."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from understudy.limits import AMQP091_KEPT_ARGUMENTS_BYTES_MAX
from understudy.protocols.amqp091 import names
from understudy.wire.amqp091.methods import BasicConsume
from understudy.wire.amqp091.tables import decode_table, encode_table

#: Nominal memory of a consumer without its texts. Bytes.
_CONSUMER_BYTES: Final = 512


class KeptConsumer(NamedTuple):
    """A consumer as basic.consume has asked for it."""

    tag: str
    queue: str
    """Name of the queue without the prefix of the virtual host."""
    no_ack: bool
    exclusive: bool
    arguments: bytes
    """Encoded table with its length."""
    prefetch: int
    """Limit of basic.qos when it was made; 0: none."""

    @property
    def state_bytes(self) -> int:
        """Bytes that count for the state of a session."""
        return _CONSUMER_BYTES + len(self.tag) + len(self.queue) + len(self.arguments)

    def method(self) -> BasicConsume:
        """The method that makes the consumer."""
        return BasicConsume(
            0,
            self.queue,
            self.tag,
            no_ack=self.no_ack,
            exclusive=self.exclusive,
            no_wait=True,
            arguments=self._table(),
        )

    def _table(self) -> dict[str, Any]:
        return decode_table(self.arguments, 0, len(self.arguments))[0]

    def status(self, reason: str | None) -> dict[str, Any]:
        """Entry of the status of a channel; ``reason``: why the consumer was cancelled, None: it is active."""
        entry = {
            "tag": self.tag,
            "queue": self.queue,
            "no-ack": self.no_ack,
            "exclusive": self.exclusive,
            "arguments": self._table(),
            "state": "active" if reason is None else "cancelled",
        }
        return entry if reason is None else entry | {"reason": reason}

    def values(self) -> list[object]:
        """The values for a record of the log."""
        return [self.tag, self.queue, self.no_ack, self.exclusive, self.arguments.hex(), self.prefetch]

    @classmethod
    def of(cls, method: BasicConsume, tag: str, queue: str, prefetch: int) -> KeptConsumer:
        """The description of a consumer.

        Args:
            method: The request of the client.
            tag: Consumer tag, which the broker may have chosen.
            queue: Name of the queue without the prefix of the virtual host.
            prefetch: Limit of basic.qos.

        Raises:
            Amqp091Error: PRECONDITION_FAILED: the arguments are too long to be kept.
        """
        arguments = encode_table(method.arguments)
        if len(arguments) > AMQP091_KEPT_ARGUMENTS_BYTES_MAX:
            raise names.refused(
                f"arguments of {len(arguments)} bytes, a session keeps {AMQP091_KEPT_ARGUMENTS_BYTES_MAX}"
            )
        return cls(tag, queue, method.no_ack, method.exclusive, arguments, prefetch)

    @classmethod
    def read(cls, values: Any) -> KeptConsumer:
        """The consumer of ``values``. Raises ValueError, TypeError."""
        tag, queue, no_ack, exclusive, arguments, prefetch = values
        encoded = bytes.fromhex(arguments)
        found = cls(str(tag), str(queue), no_ack is True, exclusive is True, encoded, int(prefetch))
        found._table()
        return found
