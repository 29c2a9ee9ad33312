"""Queues, addresses, bindings, diverts and waiting messages of an active broker."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from itertools import chain, repeat
from typing import Any, Final

from understudy.errors import QueueNotFound
from understudy.ids import uuid_text
from understudy.management.model import links, queues
from understudy.management.operations.invocation import ManagedNode
from understudy.management.operations.queue_messages import page, shown_value, text_of, wanted_by
from understudy.management.snapshot.rows import Rows
from understudy.protocols.amqp091.names import host_name, x_arguments
from understudy.routing.addresses.address import Address
from understudy.routing.addresses.divert import Divert
from understudy.routing.queues.queue import Queue
from understudy.store.messages.reference import MessageReference


def _or_none(value: int | None) -> int | None:
    """The value of a setting; -1 means that there is no limit."""
    return None if value is None or value < 0 else value


def _auto_delete(queue: Queue) -> bool:
    arguments = queue.configuration.arguments
    return bool(queue.configuration.auto_delete) or (arguments is not None and arguments.auto_delete)


def _arguments(queue: Queue) -> dict[str, object] | None:
    arguments = queue.configuration.arguments
    return None if arguments is None else x_arguments(arguments)


def _virtual_host(queue: Queue) -> str | None:
    arguments = queue.configuration.arguments
    return None if arguments is None else host_name(arguments.host)


QUEUE: Final[Mapping[str, Callable[[Queue], object]]] = {
    "id": lambda queue: queue.queue_id,
    "name": lambda queue: queue.name,
    "address": lambda queue: queue.address.name,
    "filter": lambda queue: None if queue.filter is None else queue.filter.text,
    "durable": lambda queue: queue.durable,
    "paused": lambda queue: queue.paused,
    "persisted_pause": lambda queue: bool(queue.configuration.paused),
    "temporary": lambda queue: queue.temporary,
    "purge_on_no_consumers": lambda queue: queue.purge_on_no_consumers,
    "consumer_count": lambda queue: queue.consumers.count,
    "max_consumers": lambda queue: _or_none(queue.configuration.max_consumers),
    "auto_created": lambda queue: queue.configuration.auto_created,
    "user": lambda queue: queue.configuration.user,
    "routing_type": lambda queue: queue.routing_type.name,
    "messages_added": lambda queue: queue.messages_added,
    "message_count": lambda queue: queue.message_count,
    "messages_acknowledged": lambda queue: queue.messages_acknowledged,
    "messages_expired": lambda queue: queue.messages_expired,
    "delivering_count": lambda queue: queue.delivering_count,
    "messages_killed": lambda queue: queue.messages_killed,
    "messages_replaced": lambda queue: queue.messages_replaced,
    "exclusive": lambda queue: queue.exclusive,
    "last_value": lambda queue: bool(queue.configuration.last_value),
    "last_value_key": lambda queue: queue.configuration.last_value_key,
    "non_destructive": lambda queue: bool(queue.configuration.non_destructive),
    "scheduled_count": lambda queue: queue.scheduled_count,
    "group_rebalance": lambda queue: bool(queue.configuration.group_rebalance),
    "group_rebalance_pause_dispatch": lambda queue: bool(queue.configuration.group_rebalance_pause_dispatch),
    "group_buckets": lambda queue: _or_none(queue.configuration.group_buckets),
    "group_first_key": lambda queue: queue.configuration.group_first_key,
    "enabled": lambda queue: queue.configuration.enabled is not False,
    "ring_size": lambda queue: _or_none(queue.configuration.ring_size),
    "consumers_before_dispatch": lambda queue: queue.configuration.consumers_before_dispatch or 0,
    "delay_before_dispatch": lambda queue: _or_none(queue.configuration.delay_before_dispatch),
    "auto_delete": _auto_delete,
    "virtual_host": _virtual_host,
    "arguments": _arguments,
    "internal": lambda queue: queue.internal,
    "paging": lambda queue: queue.address.paging,
    "memory_bytes": lambda queue: queue.address.memory_bytes,
    "spilled_count": lambda queue: queue.pending.spilled_count,
    "waiting_count": lambda queue: len(queue.pending),
    "group_count": lambda queue: len(queue.groups.owners),
    "measured": lambda queue: queue.address.settings.enable_metrics,
}
"""Readers of the fields that the queue alone decides."""


def queue_rows(node: ManagedNode) -> Rows[queues.Queue]:
    """Rows of all queues."""
    directory = node.services.sessions.post_office.directory
    return Rows(queues.Queue, list(directory.queues.values()), queue_readers(node), directory.find_queue)


def queue_readers(node: ManagedNode) -> Mapping[str, Callable[[Queue], object]]:
    """Readers of a queue."""
    ages, now_ms = node.ages, node.services.clock.monotonic_ms()

    def oldest_age_ms(queue: Queue) -> int | None:
        message_id = queue.pending.oldest_id
        return None if message_id is None else ages.age_ms(message_id, now_ms)

    return {**QUEUE, "oldest_age_ms": oldest_age_ms}


def _prefetch(wanted: int, read_at_once: int) -> int:
    """A prefetch setting; if not set, the read-ahead of the address."""
    return wanted if wanted >= 0 else read_at_once


def address_readers(global_max_size_bytes: int) -> Mapping[str, Callable[[Address], object]]:
    """Readers of an address, whose memory limit may be that of the node."""

    def limit_percent(address: Address) -> int:
        limit = address.settings.max_size_bytes
        if limit < 0:
            limit = global_max_size_bytes
        return address.memory_bytes * 100 // limit if limit > 0 else 0

    return {
        "id": lambda address: address.address_id,
        "name": lambda address: address.name,
        "routing_types": lambda address: [kind.name for kind in sorted(address.routing_types)],
        "queue_count": lambda address: len(address.bindings),
        "internal": lambda address: address.internal,
        "temporary": lambda address: not address.stored and not address.internal,
        "auto_created": lambda address: address.auto_created,
        "paused": lambda address: address.paused,
        "duplicate_id_count": lambda address: len(address.duplicate_ids),
        "retroactive_resource": lambda address: address.retroactive_resource,
        "unrouted_message_count": lambda address: address.messages_unrouted,
        "routed_message_count": lambda address: address.messages_routed,
        "message_count": lambda address: address.message_count,
        "limit_percent": limit_percent,
        "page_count": lambda address: address.pages.file_count if address.pages is not None else 0,
        "size_bytes": lambda address: address.size_bytes,
        "max_read_page_bytes": lambda address: address.settings.max_read_page_bytes,
        "max_read_page_messages": lambda address: address.settings.max_read_page_messages,
        "prefetch_page_bytes": lambda address: _prefetch(
            address.settings.prefetch_page_bytes, address.settings.max_read_page_bytes
        ),
        "prefetch_page_messages": lambda address: _prefetch(
            address.settings.prefetch_page_messages, address.settings.max_read_page_messages
        ),
        "page_size_bytes": lambda address: address.settings.page_size_bytes,
        "paging": lambda address: address.paging,
        "memory_bytes": lambda address: address.memory_bytes,
    }


def address_rows(node: ManagedNode) -> Rows[queues.Address]:
    """Rows of all addresses."""
    addresses = node.services.sessions.post_office.directory.addresses
    return Rows(queues.Address, list(addresses.values()), address_readers(node.global_max_size_bytes), addresses.get)


#: Readers of the fields of a binding, by its kind.
_BINDINGS: Final[Mapping[str, Mapping[str, Callable[[Any], object]]]] = {
    "queue": {
        "address": lambda each: each.queue.address.name,
        "name": lambda each: each.name,
        "routing_type": lambda each: each.queue.routing_type.name,
        "filter": lambda each: None if each.filter is None else each.filter.text,
        "consumer_count": lambda each: each.queue.consumers.count,
    },
    "divert": {
        "address": lambda each: each.configuration.address,
        "name": lambda each: each.name,
        "filter": lambda each: each.configuration.filter,
        "exclusive": lambda each: each.configuration.exclusive,
    },
    "remote": {
        "address": lambda each: each.address,
        "name": lambda each: each.name,
        "filter": lambda each: None if each.filter is None else each.filter.text,
        "consumer_count": lambda each: each.consumers.count,
        "node_id": lambda each: each.node_id,
    },
}
_BINDING_DEFAULTS: Final = {"routing_type": None, "exclusive": False, "consumer_count": 0, "node_id": None}


def _binding_reader(name: str) -> Callable[[tuple[str, Any]], object]:
    """Reads a field of a binding from its kind and its object."""

    def read(source: tuple[str, Any]) -> object:
        kind, each = source
        reader = _BINDINGS[kind].get(name)
        return _BINDING_DEFAULTS[name] if reader is None else reader(each)

    return (lambda source: source[0]) if name == "kind" else read


_BINDING: Final = {name: _binding_reader(name) for name in queues.Binding.__struct_fields__}


def binding_rows(node: ManagedNode) -> Rows[queues.Binding]:
    """Queues, diverts, and queues of other members of the cluster, by the address whose messages they get."""
    office = node.services.sessions.post_office
    # one pass over the addresses, as it is not done in steps
    bound = chain.from_iterable(each.bindings.values() for each in office.directory.addresses.values())
    sources: list[tuple[str, Any]] = list(zip(repeat("queue"), bound))
    sources += [("divert", each) for each in office.diverts.by_name.values()]
    if node.members is not None:
        sources += [("remote", each) for each in node.members.bindings.by_name.values()]
    return Rows(queues.Binding, sources, _BINDING)


DIVERT: Final[Mapping[str, Callable[[Divert], object]]] = {
    "name": lambda divert: divert.name,
    "address": lambda divert: divert.configuration.address,
    "forwarding_address": lambda divert: divert.configuration.forwarding_address,
    "routing_name": lambda divert: divert.routing_name,
    "filter": lambda divert: divert.configuration.filter,
    "exclusive": lambda divert: divert.configuration.exclusive,
    "routing_type": lambda divert: divert.configuration.routing_type.name,
}


def divert_rows(node: ManagedNode) -> Rows[links.Divert]:
    """Rows of all diverts."""
    diverts = node.services.sessions.post_office.diverts.by_name
    return Rows(links.Divert, list(diverts.values()), DIVERT, diverts.get)


def message_of(queue: Queue, reference: MessageReference) -> queues.Message:
    """Read a waiting message; one that cannot be read is quarantined."""
    message = queue.read_waiting(reference)
    if message is None:
        return queues.Message(message_id=reference.message_id, unreadable=True)
    limit = queue.address.settings.management_message_attribute_size_limit
    return queues.Message(
        message_id=reference.message_id,
        address=message.address or "",
        type=message.type,
        durable=message.durable,
        priority=message.priority,
        timestamp_ms=message.timestamp,
        expiration_ms=message.expiration,
        user_id=None if message.user_id is None else f"ID:{uuid_text(message.user_id)}",
        size_bytes=reference.size_bytes,
        large=message.is_large,
        properties={name: shown_value(value, limit) for name, value in message.properties.items()},
        text=text_of(queue, message),
    )


def message_page(
    node: ManagedNode, name: str, selector: str | None, skip: int, limit: int
) -> Generator[None, None, list[queues.Message]]:
    """Waiting messages of a queue that a selector selects, in slices.

    Args:
        name: Name of the queue.
        selector: None: all messages.
        skip: Number of selected messages that are left out.
        limit: Maximum number of messages.

    Raises:
        QueueNotFound: there is no such queue.
        InvalidSelector: the selector cannot be read.
    """
    queue = node.services.sessions.post_office.directory.find_queue(name)
    if queue is None:
        raise QueueNotFound(f"no queue {name!r} here")
    return page(queue, wanted_by(queue, selector), skip, limit, message_of)
