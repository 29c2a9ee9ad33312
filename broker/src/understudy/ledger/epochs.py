"""Which node confirmed in which epoch, judged by the rows of the clients alone (ADR 0058).

A confirmation was made between the row written before its request left the client (SENT, ACKNOWLEDGING) and the row
written after it had arrived (CONFIRMED, ACKNOWLEDGED). Of one node id:

* in one epoch, one node confirms;
* epochs only grow: no confirmation of an epoch was requested after one of a younger epoch had arrived.

Together they mean that at no instant two nodes confirm. Rows without an epoch are not judged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Final

from understudy.dataclass import dataclass
from understudy.ledger.rows import Kind, Row

#: Findings that a report lists.
LISTED_MAX: Final = 100
_REQUESTS: Final = {Kind.SENT: Kind.CONFIRMED, Kind.ACKNOWLEDGING: Kind.ACKNOWLEDGED}
_ENDS: Final = frozenset({*_REQUESTS.values(), Kind.REFUSED})

_Key = tuple[Kind, str, int, str, str]


@dataclass(slots=True)
class EpochOfNode:
    """Confirmations of sends that one epoch of a node id gave."""

    node_id: str
    epoch: int
    nodes: set[str] = field(default_factory=set)
    """Nodes that confirmed in the epoch."""
    confirmations: int = 0
    first_ms: int = 0
    """Time at which the first confirmation had arrived."""
    last_requested_ms: int = -1
    """Time in ms at which the one that was requested last was requested; -1: of none the request is known."""
    last: str = ""
    """Message that was confirmed last."""


@dataclass(frozen=True, slots=True)
class EpochReport:
    """The result of ``check_epochs``."""

    epochs: tuple[EpochOfNode, ...]
    """Epochs by node id and epoch."""
    findings: tuple[str, ...]
    """At most LISTED_MAX broken promises."""

    @property
    def ok(self) -> bool:
        """Whether no promise was broken."""
        return not self.findings

    def to_json(self) -> dict[str, object]:
        """The report for ``--json``."""
        epochs = [
            {
                "node_id": each.node_id,
                "epoch": each.epoch,
                "nodes": sorted(each.nodes),
                "confirmations": each.confirmations,
                "first_ms": each.first_ms,
                "last_requested_ms": each.last_requested_ms,
            }
            for each in self.epochs
        ]
        return {"ok": self.ok, "epochs": epochs, "findings": list(self.findings)}


def check_epochs(rows: Iterable[Row], *, clock_skew_ms: int = 0) -> EpochReport:
    """Judge the epochs of all confirmations.

    Args:
        rows: Rows of each client in the order in which it wrote them; clients in any order.
        clock_skew_ms: How far the clocks of clients differ.
    """
    requested: dict[_Key, int] = {}
    found: dict[tuple[str, int], EpochOfNode] = {}
    for row in rows:
        answer = _REQUESTS.get(row.kind)
        if answer is not None:
            requested[_key(answer, row)] = row.at_ms
        elif row.kind in _ENDS:
            kind = row.kind if row.kind is not Kind.REFUSED else Kind.ACKNOWLEDGED if row.consumer else Kind.CONFIRMED
            since_ms = requested.pop(_key(kind, row), -1)
            if row.epoch:
                _note(found.setdefault((row.node_id, row.epoch), EpochOfNode(row.node_id, row.epoch)), row, since_ms)
    return judge_epochs(found.values(), clock_skew_ms=clock_skew_ms)


def judge_epochs(found: Iterable[EpochOfNode], *, clock_skew_ms: int = 0) -> EpochReport:
    """Judge epochs whose confirmations were counted elsewhere.

    Args:
        found: Each node id and epoch once, in any order.
        clock_skew_ms: How far the clocks of clients differ.
    """
    epochs = tuple(sorted(found, key=lambda each: (each.node_id, each.epoch)))
    return EpochReport(epochs, tuple(_findings(epochs, clock_skew_ms)[:LISTED_MAX]))


def _key(kind: Kind, row: Row) -> _Key:
    if kind is Kind.CONFIRMED:
        return (kind, row.producer, row.number, "", "")
    return (kind, row.producer, row.number, row.queue, row.consumer)


def _note(epoch: EpochOfNode, row: Row, since_ms: int) -> None:
    epoch.nodes.add(row.node)
    if not epoch.confirmations or row.at_ms < epoch.first_ms:
        epoch.first_ms = row.at_ms
    epoch.confirmations += 1
    if since_ms > epoch.last_requested_ms:
        epoch.last_requested_ms = since_ms
        epoch.last = f"{row.kind.value} {row.producer} {row.number} by {row.node}"


def _findings(epochs: tuple[EpochOfNode, ...], clock_skew_ms: int) -> list[str]:
    findings: list[str] = []
    earliest: EpochOfNode | None = None
    # the youngest first: of the younger epochs only the one that confirmed first matters
    for epoch in reversed(epochs):
        name = f"node id {epoch.node_id or '?'}, epoch {epoch.epoch}"
        if len(epoch.nodes) > 1:
            findings.append(f"{name}: {len(epoch.nodes)} nodes confirmed in it: {', '.join(sorted(epoch.nodes))}")
        if earliest is None or earliest.node_id != epoch.node_id:
            earliest = epoch
            continue
        if epoch.last_requested_ms > earliest.first_ms + clock_skew_ms:
            findings.append(
                f"{name}: {epoch.last} was requested at {epoch.last_requested_ms} ms, after epoch {earliest.epoch} "
                f"({', '.join(sorted(earliest.nodes))}) had confirmed at {earliest.first_ms} ms"
            )
        if epoch.first_ms < earliest.first_ms:
            earliest = epoch
    return findings
