"""What a queue is asked to be, before and after the address settings filled in what was left open.

Field names and meanings are those of CREATE_QUEUE_V2 (facts 4.2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from understudy.config.model import RoutingType
from understudy.errors import InvalidQueueConfiguration
from understudy.limits import NAME_UNITS_MAX
from understudy.routing.settings import AddressSettings

T = TypeVar("T")

#: Separates address and queue in a fully qualified queue name.
FQQN_SEPARATOR = "::"


@dataclass(frozen=True, slots=True)
class QueueConfiguration:
    """A queue as asked for; None = as the address settings say."""

    name: str
    address: str = ""
    """Empty = the same as ``name``."""
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

    def filled(self, settings: AddressSettings) -> QueueConfiguration:
        """With every open question answered by the settings of its address.

        Raises:
            InvalidQueueConfiguration: a name that cannot be used, or an option that this version
                does not carry out; never ignored, because a client relies on what it asked for.
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
        full._refuse_unsupported()
        return full

    def _refuse_unsupported(self) -> None:
        asked = {
            "last-value": bool(self.last_value) or self.last_value_key is not None,
            "non-destructive": bool(self.non_destructive),
            "ring-size": self.ring_size not in (None, -1),
            "consumers-before-dispatch": self.consumers_before_dispatch not in (None, 0),
            "delay-before-dispatch": self.delay_before_dispatch not in (None, -1),
            "enabled=false": self.enabled is False,
        }
        refused = [name for name, wanted in asked.items() if wanted]
        if refused:
            raise InvalidQueueConfiguration(f"queue {self.name!r}: {', '.join(refused)} not available in this version")
        if self.temporary and self.durable:
            raise InvalidQueueConfiguration(f"queue {self.name!r} cannot be both temporary and durable")


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
