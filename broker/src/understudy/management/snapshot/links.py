"""Bridges of an active broker, and named readers of its log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from understudy.cluster.bridges.bridge import Bridge
from understudy.management.model import links
from understudy.management.model.node import Position, Reader, Readers
from understudy.management.operations.invocation import ManagedNode
from understudy.management.snapshot.rows import Rows
from understudy.store.messages.message_store import MessageStore
from understudy.store.named_readers import NamedReader


def bridges_of(node: ManagedNode) -> Iterator[Bridge]:
    """Core bridges, and the bridges that empty store-and-forward queues."""
    if node.bridges is not None:
        yield from node.bridges.by_name.values()
    if node.members is not None:
        yield from (flow.bridge for flow in node.members.flows.all())


def bridge_rows(node: ManagedNode) -> Rows[links.Bridge]:
    """Rows of all bridges."""
    known = node.services.sessions.post_office.directory.queues

    def waiting(bridge: Bridge) -> int:
        queue = known.get(bridge.configuration.queue_name)
        return 0 if queue is None else queue.message_count

    readers: Mapping[str, Callable[[Bridge], object]] = {
        "name": lambda bridge: bridge.name,
        "queue": lambda bridge: bridge.configuration.queue_name,
        "forwarding_address": lambda bridge: bridge.configuration.forwarding_address,
        "state": lambda bridge: bridge.state.name,
        "connected": lambda bridge: bridge.connected,
        # parameters may hold passwords
        "target": lambda bridge: bridge.target.partition("?")[0] or None,
        "waiting": waiting,
        "unconfirmed": lambda bridge: bridge.unconfirmed,
        "forwarded": lambda bridge: bridge.counts.forwarded,
        "acknowledged": lambda bridge: bridge.counts.acknowledged,
        "lost_connections": lambda bridge: bridge.counts.lost_connections,
        "refused": lambda bridge: bridge.counts.refused,
        "error": lambda bridge: bridge.last_error or None,
    }
    return Rows(links.Bridge, list(bridges_of(node)), readers)


def reader_of(store: MessageStore, reader: NamedReader) -> Reader:
    """Model of one named reader."""
    return Reader(
        reader.name,
        reader.position.epoch,
        reader.position.sequence,
        reader.bytes_max,
        store.readers.held_bytes(reader),
        reader.registered_ms,
        reader.committed_ms,
        reader.dropped,
    )


def readers_of(store: MessageStore) -> Readers:
    """The named readers of a store."""
    readers = store.readers
    return Readers(
        store.node_id,
        Position(readers.confirmed.epoch, readers.confirmed.sequence),
        Position(readers.earliest.epoch, readers.earliest.sequence),
        [reader_of(store, reader) for reader in readers],
        readers.dropped_count,
    )
