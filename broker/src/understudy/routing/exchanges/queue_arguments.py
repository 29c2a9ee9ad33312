"""Properties of a queue that was declared over AMQP 0-9-1, as its configuration and its record keep them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from understudy.dataclass import dataclass

DROP_HEAD: Final = "drop-head"
REJECT_PUBLISH: Final = "reject-publish"
REJECT_PUBLISH_DLX: Final = "reject-publish-dlx"
OVERFLOWS: Final = (DROP_HEAD, REJECT_PUBLISH, REJECT_PUBLISH_DLX)


@dataclass(frozen=True, slots=True)
class QueueArguments:
    """Arguments of queue.declare; None: not given."""

    host: str = ""
    """Prefix of the virtual host, which is put before names of exchanges and queues; empty for the default one."""
    auto_delete: bool = False
    """Whether the queue goes with its last consumer."""
    expires_ms: int | None = None
    """Time after which an unused queue is deleted (x-expires)."""
    message_ttl_ms: int | None = None
    """Longest time that a message waits (x-message-ttl)."""
    max_length: int | None = None
    """Most messages that wait (x-max-length)."""
    max_length_bytes: int | None = None
    """Most bytes of the messages of the queue (x-max-length-bytes)."""
    overflow: str = DROP_HEAD
    """Treatment of messages above these limits (x-overflow): one of ``OVERFLOWS``."""
    dead_letter_exchange: str | None = None
    """Exchange that gets rejected, expired and dropped messages, without the prefix of the virtual host."""
    dead_letter_routing_key: str | None = None
    max_priority: int | None = None
    """Highest priority of messages; None: the queue ignores priorities."""
    single_active_consumer: bool = False
    delivery_limit: int | None = None
    """Returns of a message after which it becomes a dead letter."""
    queue_type: str = "classic"

    @property
    def attempts_max(self) -> int:
        """Deliveries after which a returned message becomes a dead letter; 0: it never does."""
        return 0 if self.delivery_limit is None else self.delivery_limit + 1

    @property
    def drops_head(self) -> bool:
        """Whether the oldest messages leave when the queue holds too much."""
        return self.overflow == DROP_HEAD and (self.max_length is not None or self.max_length_bytes is not None)

    @property
    def rejects(self) -> bool:
        """Whether the queue refuses messages when it holds too much."""
        return self.overflow != DROP_HEAD and (self.max_length is not None or self.max_length_bytes is not None)

    def is_full(self, count: int, size_bytes: int) -> bool:
        """Whether a queue with so many messages refuses another one."""
        if self.overflow == DROP_HEAD:
            return False
        return (self.max_length is not None and count >= self.max_length) or (
            self.max_length_bytes is not None and size_bytes >= self.max_length_bytes
        )

    def as_values(self) -> dict[str, object]:
        """The values that differ from the defaults, for the record of the queue."""
        return {
            each.name: getattr(self, each.name) for each in fields(self) if getattr(self, each.name) != each.default
        }

    @classmethod
    def of_values(cls, values: object) -> QueueArguments:
        """The arguments of a record. Values of later versions are left aside.

        Raises:
            ValueError: no such values.
        """
        if not isinstance(values, Mapping):
            raise ValueError(f"{values!r} are no queue arguments")
        known: dict[str, Any] = {}
        for each in fields(cls):
            if each.name in values:
                value = values[each.name]
                wanted = type(each.default) if each.default is not None else _OPTIONAL[each.name]
                if type(value) is not wanted:
                    raise ValueError(f"queue argument {each.name} is {value!r}")
                known[each.name] = value
        return cls(**known)


_OPTIONAL: Final[Mapping[str, type]] = {
    "expires_ms": int,
    "message_ttl_ms": int,
    "max_length": int,
    "max_length_bytes": int,
    "dead_letter_exchange": str,
    "dead_letter_routing_key": str,
    "max_priority": int,
    "delivery_limit": int,
}
