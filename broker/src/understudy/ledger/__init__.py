"""The delivery ledger: what producers and consumers saw, and the promises judged over it.

A ledger is a sequence of rows written by clients while they work. ``check`` judges any number
of them together and reports which promises of the broker were broken. It is the judge of the
simulation, the lab tests and ``understudy ledger check``, and the reference of the Spark audit.
It uses no log of the broker: nothing here knows sessions, journals or failovers.

Rows (ADR 0022). A message is identified by (producer, number); a number is sent once.

* ``SENT``: written and flushed *before* the send leaves the client, with the digest of the body. A
  transacted producer writes it just before its commit, with the name of the transaction, so that a
  send it rolled back has no SENT row and counts as never sent if it is ever delivered.
* ``CONFIRMED``: the broker has confirmed the send (or the commit that held it).
* ``DELIVERED``: handed to the application, before it is acknowledged, with the digest of the body.
* ``ACKNOWLEDGING``: the acknowledgement (or the commit that holds it) is about to leave the client.
* ``ACKNOWLEDGED``: the broker has *confirmed* the acknowledgement (or the commit that held it).
* ``REFUSED``: the broker has refused the send for certain, alone or with its transaction. With a
  consumer and a queue: the same for an acknowledgement, which then had no effect.
* ``REMAINING``: the queue still holds the message, with the digest of the body.
* ``DRAINED``: at ``at_ms`` the queue was seen completely: it holds the messages of its REMAINING rows
  and no other, none is in delivery, and no client that could still settle one is at work.
* ``OPENED``: the request to open a consumer on the queue is about to leave the client.
* ``CLOSED``: the broker has *confirmed* that the consumer is closed.

Rows of CONFIRMED and ACKNOWLEDGED name the node that confirmed, its node id and its epoch, if the client knows them
(ADR 0058); ``check_epochs`` judges those alone.

A row of DELIVERED or REMAINING has an ``origin`` if the broker moved the copy there from another queue
(dead letter, expiry, management). Rows have a version. Lines of version 1 have no ACKNOWLEDGING
rows: there, a delivery without acknowledgement may have been acknowledged without the answer. Lines of
versions 1 and 2 have no OPENED and CLOSED rows.

Order of rows: rows with the same consumer name come in the order in which that consumer wrote
them; nothing is assumed between different writers. Only where two *different* writers meet are
their clocks compared, with ``clock_skew_ms`` in the broker's favour.

Findings:

* **lost**: CONFIRMED and durable, and (a) without a DELIVERED row, although the queues of its address
  were drained after the confirmation (``DRAINED`` names the address, the queue, or both as
  ``address::queue``, as the producer named it); or (b) DELIVERED on a queue that was drained after the
  confirmation and never ACKNOWLEDGED on it. Not lost is a message that is REMAINING on any queue, or was moved
  away from the queue, or has more ACKNOWLEDGING than REFUSED rows on the queue: the answer to an
  acknowledgement was cut off, and both outcomes are right. Sent without confirmation is an unknown
  outcome as well: both delivered and not delivered are right.
* **duplicated**, per (queue, producer, number): *stored twice*, that is DELIVERED with two
  different broker message ids; or *delivered after acknowledgement*, that is ACKNOWLEDGED and then
  DELIVERED again, to the same consumer (later row) or to another one (later by the clocks); or
  *remaining after acknowledgement*, that is REMAINING later than ACKNOWLEDGED by the clocks. Any
  other repeated delivery is an explained redelivery, whatever its delivery count: a broker that
  failed over may have forgotten that it had delivered, never that it had taken an acknowledgement.
* **reordered**, per (queue, producer): the *course* of a queue is all its DELIVERED rows, consumer
  after consumer (by the begin of their spans), each in its own order. The first row of a number
  in the course is its first delivery; with a delivery count above 1 it repeats a delivery the
  ledger does not have and is left out. A first delivery of ``n`` after a first delivery of
  ``m > n`` is reordered. A consumer that crashed, failed over or rolled back sees numbers *again*;
  those are no first deliveries, so going back is fine and what follows must continue in order.
  The *span* of a consumer on a queue begins with the first and ends with the last of its OPENED,
  DELIVERED and CLOSED rows there; with more OPENED than CLOSED rows it has no end. (A consumer that
  was killed holds messages that it never showed to its application, until the broker closes it.)
  A queue on which the spans of two consumers overlap, or on which a consumer has an OPENED row before
  the CLOSED row of its last one, is *shared*: competing consumers have no common order, it is not judged
  and named in ``order_not_judged``.
* **unexplained**: DELIVERED, REMAINING or CONFIRMED but never SENT, ACKNOWLEDGED on a queue that
  never DELIVERED it, or both CONFIRMED and REFUSED.
* **corrupted**, per (queue, producer, number): DELIVERED or REMAINING with a digest that no SENT row of
  the message has, although one has a digest.
* **refused**: REFUSED, and DELIVERED or REMAINING on any queue.
* **partial**: SENT in a transaction, durable, and neither CONFIRMED nor DELIVERED nor REMAINING, although
  another message of the transaction is one of these, no message of it is REFUSED, and the queues of
  its address were drained later than both its SENT row and the first of these rows.

**Unresolved** are messages that would be lost or partial if its queue had been drained, and case (b) of lost with
a DELIVERED row of version 1. A run with unresolved messages has not passed.

With ``members`` several members of a cluster have the queues, and a message that was delivered and not acknowledged
may move to another member, where it gets another message id. Then *stored twice* also needs two ACKNOWLEDGED rows, and
order is judged on no queue: messages that waited at one member come late.

Windows without service (pauses between confirmations of one producer) are measured, not judged.
Percentiles are nearest-rank: the value at position ceil(n * p) of n sorted values.
"""

from __future__ import annotations

from understudy.ledger.epochs import EpochOfNode, EpochReport, check_epochs, judge_epochs
from understudy.ledger.judge import check
from understudy.ledger.remaining import read_remaining
from understudy.ledger.report import (
    EXAMPLE_ROWS_MAX,
    FINDING_SORTS,
    FINDINGS_LISTED_MAX,
    LISTED_SORTS,
    QUEUES_LISTED_MAX,
    SORT_OF_REASON,
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
    row_counts,
    with_examples,
)
from understudy.ledger.rows import (
    DELIVERY_COUNT_MAX,
    END_MS,
    FLAT_OBJECT,
    INTEGER_MAX,
    KIND_ORDER,
    ORIGIN_PROPERTY,
    REPLACEMENT,
    TIME_MS_MAX,
    UNKNOWN,
    VERSION,
    WITHOUT_MESSAGE,
    Confirmer,
    Kind,
    LedgerWriter,
    ReceivedCopy,
    Row,
    digest_of,
    encode,
    parse,
    read,
    sort_key,
)

__all__ = [
    "DELIVERY_COUNT_MAX",
    "END_MS",
    "EXAMPLE_ROWS_MAX",
    "FINDINGS_LISTED_MAX",
    "FINDING_SORTS",
    "FLAT_OBJECT",
    "INTEGER_MAX",
    "KIND_ORDER",
    "LISTED_SORTS",
    "ORIGIN_PROPERTY",
    "QUEUES_LISTED_MAX",
    "REPLACEMENT",
    "SORT_OF_REASON",
    "TIME_MS_MAX",
    "UNKNOWN",
    "VERSION",
    "WINDOWS_LISTED_MAX",
    "WINDOW_MS",
    "WITHOUT_MESSAGE",
    "Confirmer",
    "Counts",
    "EpochOfNode",
    "EpochReport",
    "Finding",
    "Kind",
    "Latency",
    "LedgerWriter",
    "Reason",
    "ReceivedCopy",
    "Report",
    "Row",
    "Window",
    "check",
    "check_epochs",
    "digest_of",
    "encode",
    "judge_epochs",
    "latency_of",
    "parse",
    "rank_of",
    "read",
    "read_remaining",
    "row_counts",
    "sort_key",
    "with_examples",
]
