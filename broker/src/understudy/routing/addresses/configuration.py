"""Configuration of a queue, before and after the address settings supplied the values that were left open.

Field names and meanings are those of CREATE_QUEUE_V2 (artemis-core s. 4.2).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypeVar

from understudy.dataclass import dataclass
from understudy.errors import AddressNotFound, InvalidQueueConfiguration
from understudy.kernel.names import AMQP091_REPLIES
from understudy.limits import NAME_UNITS_MAX
from understudy.message import LAST_VALUE
from understudy.routing.addresses.settings import AddressSettings
from understudy.routing.exchanges.queue_arguments import QueueArguments
from understudy.terms import RoutingType

T = TypeVar("T")

#: Numbers of a queue by the bits that the wire has for them.
_NUMBERS: Final = (
    (("max_consumers", "group_buckets", "consumers_before_dispatch"), 32),
    (("delay_before_dispatch", "ring_size", "auto_delete_delay", "auto_delete_message_count"), 64),
)
#: Separates address and queue in a fully qualified queue name.
FQQN_SEPARATOR = "::"


@dataclass(frozen=True, slots=True)
class QueueConfiguration:
    """A queue as asked for; None = as the address settings say."""

    name: str
    address: str = ""
    """Address of the queue; empty: the same as ``name``."""
    routing_type: RoutingType | None = None
    filter: str | None = None
    """Selector text; None = everything."""
    durable: bool = True
    temporary: bool = False
    """Deleted with the connection that made it."""
    auto_created: bool = False
    internal: bool = False
    """Ours (store and forward, management): no permission checks, no dead letters."""
    max_consumers: int | None = None
    purge_on_no_consumers: bool | None = None
    exclusive: bool | None = None
    last_value: bool | None = None
    last_value_key: str | None = None
    non_destructive: bool | None = None
    consumers_before_dispatch: int | None = None
    delay_before_dispatch: int | None = None
    group_rebalance: bool | None = None
    group_rebalance_pause_dispatch: bool | None = None
    group_buckets: int | None = None
    group_first_key: str | None = None
    ring_size: int | None = None
    auto_delete: bool | None = None
    auto_delete_delay: int | None = None
    auto_delete_message_count: int | None = None
    enabled: bool | None = None
    paused: bool | None = None
    """An operator's pause that lasts; None = never paused."""
    configuration_managed: bool = False
    user: str = ""
    """User whose client made the queue, or to whom the configuration accounts it."""
    arguments: QueueArguments | None = None
    """Arguments of queue.declare of AMQP 0-9-1; None: the queue was made in another way."""

    def with_plain_name(self) -> QueueConfiguration:
        """The configuration with a plain name: ``address::queue`` is divided, ``::queue`` keeps the address."""
        fqqn = split_fqqn(self.name)
        return self if fqqn is None else replace(self, address=fqqn[0] or self.address, name=fqqn[1])

    def filled(self, settings: AddressSettings) -> QueueConfiguration:
        """A configuration with every open question answered by the settings of its address.

        Raises:
            InvalidQueueConfiguration: a name that cannot be used, or options that exclude each
                other.
        """
        check_name(self.name, "queue")
        address = self.address or self.name
        check_name(address, "address")
        full = replace(
            self,
            address=address,
            routing_type=_either(self.routing_type, settings.default_queue_routing_type),
            filter=self.filter.strip() or None if self.filter else None,
            max_consumers=_either(self.max_consumers, settings.default_max_consumers),
            purge_on_no_consumers=_either(self.purge_on_no_consumers, settings.default_purge_on_no_consumers),
            exclusive=_either(self.exclusive, settings.default_exclusive_queue),
            last_value=_either(self.last_value, settings.default_last_value_queue),
            last_value_key=_either(self.last_value_key, settings.default_last_value_key),
            non_destructive=_either(self.non_destructive, settings.default_non_destructive),
            consumers_before_dispatch=_either(
                self.consumers_before_dispatch, settings.default_consumers_before_dispatch
            ),
            delay_before_dispatch=_either(self.delay_before_dispatch, settings.default_delay_before_dispatch),
            group_rebalance=_either(self.group_rebalance, settings.default_group_rebalance),
            group_rebalance_pause_dispatch=_either(
                self.group_rebalance_pause_dispatch, settings.default_group_rebalance_pause_dispatch
            ),
            group_buckets=_either(self.group_buckets, settings.default_group_buckets),
            group_first_key=_either(self.group_first_key, settings.default_group_first_key),
            ring_size=_either(self.ring_size, settings.default_ring_size),
            auto_delete=_either(
                self.auto_delete,
                settings.auto_delete_queues if self.auto_created else settings.auto_delete_created_queues,
            ),
            auto_delete_delay=_either(self.auto_delete_delay, settings.auto_delete_queues_delay),
            auto_delete_message_count=_either(
                self.auto_delete_message_count, settings.auto_delete_queues_message_count
            ),
            enabled=_either(self.enabled, True),
        )
        if full.temporary and full.durable:
            raise InvalidQueueConfiguration(f"queue {full.name!r} cannot be both temporary and durable")
        return full.with_last_value_key()

    def with_last_value_key(self) -> QueueConfiguration:
        """A key makes a last-value queue; one that names no key has the usual one (manual,
        "Last-Value Queues").
        """
        if self.last_value_key:
            return self if self.last_value else replace(self, last_value=True)
        key = LAST_VALUE if self.last_value else None
        return self if key == self.last_value_key else replace(self, last_value_key=key)

    def check_numbers(self) -> None:
        """Check that the answer to a query of the queue can carry its numbers.

        Raises:
            InvalidQueueConfiguration: a number needs more bits than its field of SESS_QUEUEQUERY_RESP_V3 has; names
                it. Every client would fail at the queue.
        """
        for names, bits in _NUMBERS:
            for name in names:
                value = getattr(self, name)
                if value is not None and not -(1 << bits - 1) <= value < 1 << bits - 1:
                    raise InvalidQueueConfiguration(
                        f"queue {self.name!r}: {name.replace('_', '-')} {value} has more than {bits} bits"
                    )

    @property
    def bounded(self) -> bool:
        """Whether the queue is a ring: the oldest messages leave when it holds too much."""
        if self.arguments is not None and self.arguments.drops_head:
            return True
        return self.ring_size is not None and self.ring_size >= 0


def check_no_direct_replies(name: str) -> None:
    """Raises AddressNotFound for an address that stands for clients of AMQP 0-9-1 that wait for a direct reply: a queue
    would keep the answers of CORE clients, and has no reader.
    """
    if name.startswith(AMQP091_REPLIES):
        raise AddressNotFound(f"{name!r} takes replies of clients of AMQP 0-9-1 alone")


def check_name(name: str, kind: str) -> None:
    """Raises InvalidQueueConfiguration for an empty or oversized name."""
    if not name:
        raise InvalidQueueConfiguration(f"the {kind} has no name")
    if len(name) > NAME_UNITS_MAX:
        raise InvalidQueueConfiguration(f"the {kind} name has {len(name)} characters, limit {NAME_UNITS_MAX}")


def split_fqqn(name: str) -> tuple[str, str] | None:
    """(address, queue) of ``address::queue``; None for a plain name."""
    address, separator, queue = name.partition(FQQN_SEPARATOR)
    return (address, queue) if separator else None


def _either(value: T | None, default: T) -> T:
    return default if value is None else value
