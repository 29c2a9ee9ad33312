"""The log writers of an active node, with a replica to which their operations are sent (ADR 0057).

A ``ShippingWriter`` stands in front of each local log writer. While a replica is in sync, a batch of the log is sent
when it is submitted, so that both disks work at the same time, and everything else when the local writer has
executed it without an error: an operation that failed here was never part of the store. The order of sending is the
order of these events, for all writers together (``Shipping``).

Before a replica can be in sync, the writers are *frozen*: jobs under way end, later ones wait. The files do not change
until they are *thawed*; then the waiting jobs are submitted, in order.

Invariant: between ``attach`` and ``detach`` every operation that changes a file of the store is sent, once and in an
order in which it can be executed.

Not here: the connection (``replication.active_link``), the encoding of the operations (``operation_codec``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from understudy.errors import ReplicaFailed
from understudy.ports import HoldableLogWriter, Operation
from understudy.store.log.operation_context import OperationContext, Voter
from understudy.store.log.operations import Append, SealSegment
from understudy.store.replication.copy_messages import Directory
from understudy.store.replication.operation_codec import replicated

_Done = Callable[[BaseException | None], None]


class ReplicaStream(Protocol):
    """Sends operations to the replica."""

    def ship(self, index: int, directory: Directory, operations: Sequence[Operation]) -> None:
        """Send the operations of one submission. They are not changed after the call."""

    def diverged(self, error: ReplicaFailed) -> None:
        """A submission failed here after some of its operations: the replica needs another copy of the files."""


class Shipping:
    """The replica of a store, and its confirmations."""

    def __init__(self) -> None:
        """Begin without a replica."""
        self.stream: ReplicaStream | None = None
        """The replica that is in sync; None: there is none."""
        self.index = 0
        """Index of the last submission that was sent."""
        self._context: OperationContext | None = None
        self._sent: dict[Voter, deque[tuple[int, int]]] = {}
        """Index and last sequence of submissions that end with a record and are not confirmed by the voter."""
        self._writers: list[ShippingWriter] = []

    def begin(self) -> None:
        """Called when the store is about to be opened, with other writers than before."""
        self.stream, self._context, self._sent = None, None, {}
        self._writers = []

    def add(self, writer: ShippingWriter) -> None:
        """A writer of the store; called by the writer."""
        self._writers.append(writer)

    # --- the replica -------------------------------------------------------------------------------

    def freeze(self, frozen: Callable[[], None]) -> None:
        """Hold all writers; call ``frozen`` when no job is under way."""
        left = len(self._writers)

        def quiet(error: BaseException | None) -> None:
            nonlocal left
            left -= 1
            if not left:
                frozen()

        for writer in self._writers:
            writer.freeze(quiet)

    def thaw(self) -> None:
        """Submit the jobs that were held."""
        for writer in self._writers:
            writer.thaw()

    def attach(self, stream: ReplicaStream, context: OperationContext) -> None:
        """The replica has the files as they are now, while the writers are frozen: confirmations wait for it."""
        self.stream, self._context, self.index = stream, context, 0
        # both marks are kept under every durability contract: a reload may give an address a stricter contract
        self._sent = {Voter.REPLICA_MEMORY: deque(), Voter.REPLICA_DISK: deque()}
        context.attach_replica()

    def stop_sending(self) -> None:
        """Called when the replica is lost. Nothing is confirmed until ``detach``, whatever its contract."""
        self.stream = None
        if self._context is not None:
            self._context.hold()

    def detach(self) -> None:
        """Confirmations do not wait for a replica any more.

        Raises:
            As ``OperationContext.advance``.
        """
        self.stream = None
        self._sent = {}
        if self._context is not None:
            self._context.detach_replica()

    def confirmed(self, voter: Voter, index: int) -> None:
        """Called when the replica has received, or executed durably, everything up to a submission.

        Raises:
            As ``OperationContext.advance``.
        """
        sent, sequence = self._sent.get(voter), 0
        while sent and sent[0][0] <= index:
            sequence = sent.popleft()[1]
        if sequence and self._context is not None:
            self._context.advance(sequence, voter)

    # --- the writers -------------------------------------------------------------------------------

    def ship(self, directory: Directory, operations: Sequence[Operation]) -> None:
        """Send the operations of one submission."""
        assert self.stream is not None
        operations = replicated(operations)
        if not operations:
            return
        self.index += 1
        sequence = _last_sequence(operations[0])
        if sequence:
            for sent in self._sent.values():
                sent.append((self.index, sequence))
        self.stream.ship(self.index, directory, operations)


def _last_sequence(operation: Operation) -> int:
    """Sequence of the last record that an operation writes to the log; 0: it writes none."""
    if type(operation) is Append:
        return operation.last_sequence
    return operation.sequence if isinstance(operation, SealSegment) else 0


class ShippingWriter:
    """A log writer in front of a local one. Implements ``ports.HoldableLogWriter``."""

    def __init__(self, local: HoldableLogWriter, directory: Directory, shipping: Shipping) -> None:
        """Args:
        local: Executes the operations on this node.
        shipping: Shared by the writers of the store.
        """
        self._local = local
        self._directory = directory
        self._shipping = shipping
        self._frozen: deque[Callable[[], None]] | None = None
        """Jobs that wait for ``thaw``; None: they do not wait."""
        shipping.add(self)

    def submit(self, operations: Sequence[Operation], done: _Done) -> None:
        if self._frozen is not None:
            self._frozen.append(partial(self.submit, operations, done))
        elif type(operations[0]) is Append:
            if self._shipping.stream is not None:
                self._shipping.ship(self._directory, operations)
            self._local.submit(operations, done)
        else:
            self._local.submit(operations, partial(self._executed, operations, done))

    def _executed(self, operations: Sequence[Operation], done: _Done, error: BaseException | None) -> None:
        stream = self._shipping.stream
        if stream is not None:
            if error is None:
                self._shipping.ship(self._directory, operations)
            elif len(operations) > 1:
                stream.diverged(ReplicaFailed(f"operations on the files of this node ended with an error: {error}"))
        done(error)

    def run(self, work: Callable[[], None], done: _Done) -> None:
        if self._frozen is not None:
            self._frozen.append(partial(self.run, work, done))
        else:
            self._local.run(work, done)

    def hold(self) -> None:
        self._local.hold()

    def release(self) -> None:
        self._local.release()

    def freeze(self, quiet: _Done) -> None:
        """Hold jobs that are submitted from now on; call ``quiet`` when those before have ended."""
        self._frozen = deque()
        self._local.run(lambda: None, quiet)

    def thaw(self) -> None:
        """Submit the held jobs, in order."""
        held, self._frozen = self._frozen, None
        while held:
            held.popleft()()

    def close(self) -> None:
        self.thaw()
        self._local.close()
