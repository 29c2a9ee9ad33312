"""Named readers of the log as management shows them: GET /api/v1/readers, metrics, operations of ``broker``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from understudy.store.message_store import MessageStore
from understudy.store.named_readers import LogPosition, NamedReader


@dataclass(frozen=True, slots=True)
class ReaderFacts:
    """One named reader."""

    name: str
    epoch: int
    """With the sequence the last record that the reader has committed."""
    sequence: int
    max_bytes: int
    held_bytes: int
    registered_ms: int
    committed_ms: int
    dropped: str | None
    """Why it holds nothing any more; None: it holds the log from its position on."""


@dataclass(frozen=True, slots=True)
class ReadersFacts:
    """The named readers of an active node."""

    node_id: str
    confirmed: LogPosition
    """Up to where the log may be read without the risk that a failover takes records back."""
    earliest: LogPosition
    """Position from which on no record is missing."""
    readers: Sequence[ReaderFacts]
    dropped_count: int
    """Readers dropped since the activation because they held too much."""


def reader_facts(store: MessageStore, reader: NamedReader) -> ReaderFacts:
    """Facts of one reader."""
    return ReaderFacts(
        reader.name,
        reader.position.epoch,
        reader.position.sequence,
        reader.bytes_max,
        store.readers.held_bytes(reader),
        reader.registered_ms,
        reader.committed_ms,
        reader.dropped,
    )


def readers_facts(store: MessageStore) -> ReadersFacts:
    """Facts of all readers of a store."""
    readers = store.readers
    found = [reader_facts(store, reader) for reader in readers]
    return ReadersFacts(store.node_id, readers.confirmed, readers.earliest, found, readers.dropped_count)


def readers_json(facts: ReadersFacts | None) -> dict[str, object]:
    """GET /api/v1/readers; a node that is not active has none."""
    if facts is None:
        return {"node_id": None, "confirmed": None, "earliest": None, "readers": []}
    return {
        "node_id": facts.node_id,
        "confirmed": asdict(facts.confirmed),
        "earliest": asdict(facts.earliest),
        "readers": [asdict(reader) for reader in facts.readers],
    }
