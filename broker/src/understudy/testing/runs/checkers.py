"""Checks of a simulated run. They use the events of clients and the state of the store, not reports of nodes.

- ``EpochChecker``: epochs only grow, no node becomes active while another one serves, and nothing
  that a node wrote after a younger epoch had begun is ever confirmed.
- ``judge_ledger``: the promises of ``understudy.ledger`` over the events of the clients. A run drains its
  queue at the end, so an unresolved message is a violation too.
- ``judge_failures``: no exception reached the loop.

A violation carries the name of its check, so that a test can ask for the one it planted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from understudy.dataclass import dataclass
from understudy.ledger import LISTED_SORTS, Finding, Kind, Reason, Row, check
from understudy.testing.sim.loop import Failure

#: Number of findings of one sort that are spelled out.
_LISTED_MAX: Final = 5
#: Sorts of findings that the damage of a message explains. It is gone; one that was damaged before it was confirmed is
#: sent again by its client, and comes after later messages, which were stored already.
_EXPLAINED_BY_DAMAGE: Final = frozenset({"lost", "partial", "unresolved", "reordered"})


@dataclass(frozen=True, slots=True)
class Violation:
    """One promise of the broker that a run has broken."""

    check: str
    """A sort of findings of the ledger or ``unresolved``; ``corrupt``, ``client``, ``two-active``, ``epoch``,
    ``zombie``, ``two-confirming``, ``stuck``, ``no-service``, ``left-over``, ``store``, ``quarantine``, ``ended`` or
    ``failure``.
    """
    text: str

    def __str__(self) -> str:
        return f"{self.check}: {self.text}"


@dataclass(frozen=True, slots=True)
class _Activation:
    at_s: float
    node: str
    epoch: int


class EpochChecker:
    """Watches activations and confirmations of the nodes that share one store."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.activations: list[_Activation] = []
        self.confirmations = 0
        """Batches whose end was reported to a node."""

    def activated(self, now: float, node: str, epoch: int, others_serving: Collection[str]) -> None:
        """Called when a node has become active.

        Args:
            others_serving: Labels of other nodes that run and call themselves active at this moment.
        """
        if self.activations and epoch <= self.activations[-1].epoch:
            last = self.activations[-1]
            self._add("epoch", now, f"{node} activated epoch {epoch}, but {last.node} had {last.epoch}")
        if others_serving:
            self._add("two-active", now, f"{node} became active while {', '.join(others_serving)} served")
        self.activations.append(_Activation(now, node, epoch))

    def confirmed(self, now: float, node: str, epoch: int, durable_at_s: float) -> None:
        """A node learnt that a batch is durable, which releases confirmations.

        Args:
            durable_at_s: When the medium finished the sync; earlier than ``now`` if the node was paused.
        """
        self.confirmations += 1
        for younger in reversed(self.activations):
            if younger.epoch <= epoch:
                break
            if younger.at_s < durable_at_s:
                self._add(
                    "zombie",
                    now,
                    f"{node} confirms in epoch {epoch} a record written at {durable_at_s:.6f} s, "
                    f"after {younger.node} had begun epoch {younger.epoch} at {younger.at_s:.6f} s",
                )
                break

    def _add(self, check: str, now: float, text: str) -> None:
        self.violations.append(Violation(check, f"at {now:.6f} s {text}"))


def judge_ledger(
    rows: Sequence[Row],
    *,
    sessions: Mapping[Row, int] | None = None,
    drained: bool = True,
    set_aside: Collection[tuple[str, int]] = (),
    members: bool = False,
) -> list[Violation]:
    """The promises of the ledger over all rows.

    Args:
        drained: The run came to its end, so nothing may be unresolved.
        set_aside: Producer and number of damaged messages that are in the quarantine of the store, which explains
            that they are in no queue, and why one that was not confirmed before comes late.
        sessions: When the session began through which a DELIVERED row came. A message that a client
            had fetched before its connection broke may reach its application after another
            consumer has acknowledged it; the ledger cannot see that, the session's age shows it.
        members: Several members of a cluster have the queue. Messages that waited at one of them come late, and one
            that was delivered and not acknowledged may move to another member, where it gets another id.
    """
    report = check(rows)
    violations: list[Violation] = []
    for sort in LISTED_SORTS:
        findings: list[Finding] = [
            finding
            for finding in getattr(report, sort)
            if not (sort == "unresolved" and not drained)
            and not (members and (sort == "reordered" or _moved(rows, finding, sessions or {})))
            and not ((finding.producer, finding.number) in set_aside and _damage_explains(rows, sort, finding))
            and not (
                finding.reason is Reason.DELIVERED_AFTER_ACKNOWLEDGEMENT
                and sessions is not None
                and _was_fetched_before(rows, finding, sessions)
            )
        ]
        if findings:
            listed = "; ".join(
                f"{finding.producer} {finding.number} ({finding.reason.value}"
                + (f", after {finding.after}" if finding.after >= 0 else "")
                + ")"
                for finding in findings[:_LISTED_MAX]
            )
            violations.append(Violation(sort, f"{len(findings)}: {listed}"))
    return violations


def _damage_explains(rows: Sequence[Row], sort: str, finding: Finding) -> bool:
    """Whether the damage of its message explains a finding. A message that was damaged before its confirmation is sent
    again and stored under another id, because the record with its duplicate id cannot be read; it may have been
    delivered before, but one id at most was acknowledged.
    """
    if finding.reason is not Reason.STORED_TWICE:
        return sort in _EXPLAINED_BY_DAMAGE
    acknowledged = {
        row.message_id
        for row in rows
        if row.kind is Kind.ACKNOWLEDGED
        and (row.producer, row.number, row.queue) == (finding.producer, finding.number, finding.queue)
    }
    return len(acknowledged) <= 1


def _moved(rows: Sequence[Row], finding: Finding, sessions: Mapping[Row, int]) -> bool:
    """Whether a message that was delivered under several ids was acknowledged under one of them only, and under no
    other one delivered later: it moved to another member before.
    """
    if finding.reason is not Reason.STORED_TWICE:
        return False
    acknowledged: Row | None = None
    for row in rows:
        if (row.producer, row.number, row.queue) != (finding.producer, finding.number, finding.queue):
            continue
        if acknowledged is None:
            acknowledged = row if row.kind is Kind.ACKNOWLEDGED else None
        elif row.message_id != acknowledged.message_id and (
            row.kind is Kind.ACKNOWLEDGED or (row.kind is Kind.DELIVERED and sessions.get(row, 0) > acknowledged.at_ms)
        ):
            return False
    return True


def _was_fetched_before(rows: Sequence[Row], finding: Finding, sessions: Mapping[Row, int]) -> bool:
    """Whether every delivery after an acknowledgement went to another consumer, through a session
    that is older than the acknowledgement, and was not acknowledged itself.
    """
    story = [
        row
        for row in rows
        if (row.producer, row.number, row.queue) == (finding.producer, finding.number, finding.queue)
    ]
    acknowledged: Row | None = None
    for row in story:
        if row.kind is Kind.ACKNOWLEDGED:
            if acknowledged is not None:
                return False
            acknowledged = row
        elif (
            acknowledged is not None
            # the next request of such a consumer, an acknowledgement that is refused, delivers nothing
            and row.kind is Kind.DELIVERED
            and (row.consumer == acknowledged.consumer or sessions[row] > acknowledged.at_ms)
        ):
            return False
    return True


def judge_failures(failures: Sequence[Failure]) -> list[Violation]:
    """Exceptions that reached the loop."""
    return [Violation("failure", str(failure)) for failure in failures[:_LISTED_MAX]]
