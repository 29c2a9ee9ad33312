"""Operations of ``broker`` on the named readers of the log (ADR 0079)."""

from __future__ import annotations

from typing import Final

from msgspec import to_builtins

from understudy.errors import ManagementError
from understudy.limits import READER_HELD_BYTES
from understudy.management.doors.http import readers_json
from understudy.management.json_text import parse_json, to_json
from understudy.management.operations.invocation import Control
from understudy.management.operations.table import Operation, long, operation, text
from understudy.management.snapshot.links import reader_of, readers_of
from understudy.store.messages.message_store import MessageStore
from understudy.store.named_readers import LogPosition, NamedReader


def _store(control: Control) -> MessageStore:
    return control.node.services.sessions.post_office.store


def _one(control: Control, reader: NamedReader) -> str:
    store = _store(control)
    return to_json({"node_id": store.node_id, **to_builtins(reader_of(store, reader))})


def register(control: Control, name: str, position: str = "latest", max_bytes: int = READER_HELD_BYTES) -> str:
    """Register a reader. Raises ManagementError, LimitExceeded."""
    store = _store(control)
    if position == "earliest":
        first = store.readers.earliest
    elif position == "latest":
        first = store.readers.confirmed
    else:
        first = _parsed(store, position)
    return _one(control, store.readers.register(name, first, max_bytes))


def commit(control: Control, name: str, position: str) -> str:
    """Move a reader to a position. Raises ResourceNotFound, ManagementError."""
    store = _store(control)
    return _one(control, store.readers.commit(name, _parsed(store, position)))


def remove(control: Control, name: str) -> str:
    """Forget a reader. Raises ResourceNotFound."""
    return _one(control, _store(control).readers.remove(name))


def _parsed(store: MessageStore, position: str) -> LogPosition:
    """A position as JSON: node_id, epoch, sequence. Raises ManagementError."""
    try:
        given = parse_json(position)
    except ValueError:
        given = None
    if not isinstance(given, dict) or set(given) != {"node_id", "epoch", "sequence"}:
        raise ManagementError(f"{position[:200]!r} is no position", hint="JSON with node_id, epoch and sequence")
    node_id, epoch, sequence = given["node_id"], given["epoch"], given["sequence"]
    if type(epoch) is not int or type(sequence) is not int or epoch < 0 or sequence < 0:
        raise ManagementError(f"{position[:200]!r} is no position: epoch and sequence are numbers")
    if node_id != store.node_id:
        raise ManagementError(f"the position is of node {node_id}, this is node {store.node_id}")
    return LogPosition(epoch, sequence)


READER_OPERATIONS: Final[tuple[Operation, ...]] = (
    operation("listReadersAsJSON", lambda control: to_json(readers_json(readers_of(_store(control)))),
              "Named readers of the log, the confirmed end of the log, and the earliest position, as JSON.",
              returns=str),
    operation("registerReader", register, "Hold the log for a reader from now on.", text("name")),
    operation("registerReader", register,
              "From a position on: earliest, latest, or JSON with node_id, epoch and sequence; up to so many bytes.",
              text("name"), text("position"), long("maxBytes")),
    operation("commitReader", commit, "The reader has processed everything up to a position.",
              text("name"), text("position")),
    operation("dropReader", remove, "Forget a reader; the segments that it holds may be removed.", text("name")),
)  # fmt: skip
