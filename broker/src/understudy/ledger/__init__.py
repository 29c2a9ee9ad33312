"""The delivery ledger: what producers and consumers saw, and the promises judged over it.

A ledger is a sequence of rows written by clients while they work. ``check`` judges any number
of them together and says which promises of the broker were broken. It is the one judge of the
simulation, the lab tests, ``understudy ledger check`` and, as the reference, of the Spark audit.
It is not a log of the broker: nothing here knows sessions, journals or failovers, so a broker
cannot talk itself out of a finding.

Rows (design s. 3.5). A message is identified by (producer, number).

* ``SENT``: written and flushed *before* the send leaves the client. A transacted producer writes
  it just before its commit, so that a send it rolled back has no SENT row and, if it ever shows
  up, counts as never sent.
* ``CONFIRMED``: the broker has confirmed the send (or the commit that held it).
* ``DELIVERED``: handed to the application, before it is acknowledged.
* ``ACKNOWLEDGED``: the broker has *confirmed* the acknowledgement (or the commit that held it).

Order of rows: rows with the same consumer name come in the order in which that consumer wrote
them; nothing is assumed between different writers. Only where two *different* consumers meet are
their clocks compared, with ``clock_skew_ms`` in the broker's favour.

Findings:

* **lost**: CONFIRMED, durable, never DELIVERED on any queue and not in ``remaining``. Sent without
  confirmation is an unknown outcome: both delivered and not delivered are right.
* **duplicated**, per (queue, producer, number): *stored twice*, that is DELIVERED with two
  different broker message ids; or *delivered after acknowledgement*, that is ACKNOWLEDGED and then
  DELIVERED again, to the same consumer (later row) or to another one (later by the clocks). Any
  other repeated delivery is an explained redelivery, whatever its delivery count: a broker that
  failed over may have forgotten that it had delivered, never that it had taken an acknowledgement.
* **reordered**, per (queue, producer): the *course* of a queue is all its DELIVERED rows, consumer
  after consumer (by the time of their first row), each in its own order. The first row of a number
  in the course is its first delivery; with a delivery count above 1 it repeats a delivery the
  ledger does not have and is left out. A first delivery of ``n`` after a first delivery of
  ``m > n`` is reordered. A consumer that crashed, failed over or rolled back sees numbers *again*;
  those are no first deliveries, so going back is fine and what follows must continue in order.
  A queue whose consumers overlap in time is *shared*: competing consumers have no common order,
  it is not judged and named in ``order_not_judged``.
* **unexplained**: DELIVERED or CONFIRMED but never SENT (a ghost), or ACKNOWLEDGED on a queue that
  never DELIVERED it.

Windows without service (pauses between confirmations of one producer) are measured, not judged.
Percentiles are nearest-rank: the value at position ceil(n * p) of n sorted values.
"""

from __future__ import annotations

from understudy.ledger.judge import check
from understudy.ledger.report import (
    EXAMPLE_ROWS_MAX,
    FINDING_SORTS,
    FINDINGS_LISTED_MAX,
    QUEUES_LISTED_MAX,
    WINDOW_MS,
    WINDOWS_LISTED_MAX,
    Counts,
    Finding,
    Latency,
    Reason,
    Report,
    Window,
    latency_of,
    rank_of,
    with_examples,
)
from understudy.ledger.rows import (
    DELIVERY_COUNT_MAX,
    FLAT_OBJECT,
    INTEGER_MAX,
    KIND_ORDER,
    REPLACEMENT,
    TIME_MS_MAX,
    Kind,
    LedgerWriter,
    Row,
    encode,
    parse,
    read,
    sort_key,
)

__all__ = [
    "DELIVERY_COUNT_MAX",
    "EXAMPLE_ROWS_MAX",
    "FINDINGS_LISTED_MAX",
    "FINDING_SORTS",
    "FLAT_OBJECT",
    "INTEGER_MAX",
    "KIND_ORDER",
    "QUEUES_LISTED_MAX",
    "REPLACEMENT",
    "TIME_MS_MAX",
    "WINDOWS_LISTED_MAX",
    "WINDOW_MS",
    "Counts",
    "Finding",
    "Kind",
    "Latency",
    "LedgerWriter",
    "Reason",
    "Report",
    "Row",
    "Window",
    "check",
    "encode",
    "latency_of",
    "parse",
    "rank_of",
    "read",
    "sort_key",
    "with_examples",
]
