"""Messages of a queue that move to other queues in runs: their copies and their end are one transaction of the log.

What ``Acceptance.move`` does for one message, done for neighbours that need nothing special. Not here: which messages
move, and where (``cluster.balancing.redistribution``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from understudy.errors import BrokerError, DiskFull
from understudy.kernel import Sends
from understudy.kernel.log import keep_sends
from understudy.routing.address import Address
from understudy.routing.batch import Arrival, enqueue_together, longest_plain_bytes
from understudy.routing.post_office import PostOffice
from understudy.routing.queues.queue import Queue
from understudy.routing.walk import requeue
from understudy.store.messages.reference import Part, RunSlice

_UNLIMITED: Final = 1 << 62


class Copies(NamedTuple):
    """Copies of messages for one queue."""

    queue: Queue
    sends: Sends
    """Has them in rows that are alike (``Sends.alike``), without duplicate ids."""
    row: int
    """The first one."""
    rows: int
    """How many."""


class RunMoves:
    """Moves messages of the queues of one node."""

    def __init__(self, office: PostOffice) -> None:
        self._office = office
        self._longest_bytes = longest_plain_bytes(office.store)

    def alike(self, sends: Sends, row: int, queue: Queue) -> int:
        """How many of the messages from ``row`` on, which leave a queue, can be copied together; 0: the first one is
        for ``Acceptance.move``.
        """
        return sends.alike(row, self._longest_bytes, queue.routing_type, _UNLIMITED, _UNLIMITED)[0]

    def move(self, queue: Queue, address: Address, gone: Sequence[Part], copies: Sequence[Copies]) -> None:
        """Put copies with new ids in other queues and end the originals, all or none.

        Args:
            queue: Has the originals.
            address: They were sent to it.
            gone: The originals, which wait in the queue (``Level.part_from``).

        Raises:
            DiskFull: the disk is full; the originals are in the queue.
            StoreError: the journal has failed.
        """
        store = self._office.store
        if store.full:
            raise DiskFull(store.full_reason)
        for part in gone:
            queue.pending.take_part(part)
        try:
            self._record(queue, address, gone, copies)
        except BrokerError:
            for part in gone:
                requeue(queue, part)
            raise
        for part in gone:
            queue.forget(part)

    def _record(self, queue: Queue, address: Address, gone: Sequence[Part], copies: Sequence[Copies]) -> None:
        office = self._office
        store, context = office.store, office.context
        if context.gathered is not None:
            # ids rise with the log
            context.gathered.close()
        durable = [each.queue.durable and each.sends.durable(each.row) for each in copies]
        transaction_id = store.next_id() if any(durable) else 0
        arrivals: list[tuple[Queue, list[Arrival]]] = []
        for (target, sends, row, count), logged in zip(copies, durable, strict=True):
            part, first_id = (sends, row, count), store.last_id + 1
            store.last_id += count
            if logged:
                runs = store.store_run([part], count, first_id, address.address_id, (target.queue_id,), transaction_id)
            else:
                runs = [keep_sends([part], first_id)]
            for run in runs:
                office.acceptance.charge((target,), run.first_id, run.count, run.size_bytes)
            priority = sends.priority(row)
            arrivals.append((target, [(RunSlice(run, 0, run.count, priority, -1),) for run in runs]))
            address.messages_routed += count
        acknowledged = queue.log_acknowledges(*gone, transaction_id=transaction_id)
        if transaction_id:
            store.store_commit(transaction_id)
        sequence = store.last_sequence if acknowledged or transaction_id else 0
        for target, runs_of in arrivals:
            context.when_durable(sequence, enqueue_together, office, (target,), runs_of)
