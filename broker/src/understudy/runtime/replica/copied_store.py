"""The copy of another node's store on a node that is not active. Implements ``replication.replica_link.CopyTarget``.

The steps of the copy block and run on a thread; everything else happens on the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from understudy.errors import BrokerError, DiskFailed
from understudy.ha.locks.local_sequence import LocalSequence
from understudy.ha.replication.standing import CopyNote, Origin
from understudy.ids import coordination_node_id
from understudy.ports import Operation, Worker
from understudy.replication.replica_link import Accepted, TargetOwner
from understudy.runtime.base.parts import NodeParts
from understudy.runtime.replica.copying import FileExchange, Steps, store_directories
from understudy.runtime.replica.scrubbing import ReplicaScrub, scrub_replica
from understudy.store.replication.copy_messages import (
    CopyMessage,
    Directory,
    TargetReady,
    decode_message,
    encode_message,
)
from understudy.store.replication.copy_target import CopyTarget, TargetState
from understudy.store.replication.divergence import Divergence, read_note, saved_directories
from understudy.store.replication.old_replicas import saved_numbers
from understudy.store.replication.replica_log import ReplicaLog
from understudy.store.replication.replica_state import (
    NO_NODE,
    ReplicaState,
    ReplicaStatus,
    incomplete_copy,
    read_replica_state,
    write_replica_state,
)

_ORIGINS: Final = {
    ReplicaStatus.NONE: Origin.OWN,
    ReplicaStatus.INCOMPLETE: Origin.INCOMPLETE,
    ReplicaStatus.IN_SYNC: Origin.COPIED,
}


class TargetCopy:
    """The copy of another node's store on this node, and the execution of its operations. Implements ``CopyTarget``."""

    def __init__(
        self, parts: NodeParts, worker: Worker, local: LocalSequence, saved_max: int, owner: TargetOwner
    ) -> None:
        """Nothing is read yet.

        Args:
            worker: Reads and writes the files.
            local: Activation sequence of the data of this node.
            saved_max: max-saved-replicated-journals-size.
            owner: Sends messages and gets the result.
        """
        self._parts = parts
        self._local = local
        self._owner = owner
        self._target = CopyTarget(
            store_directories(parts), saved_max, parts.configuration.store_settings().pool.files_max
        )
        self._steps = Steps(worker, lambda: self._target.wants_step, self._target.step, self._stepped)
        self._worker = worker
        self._files = FileExchange(parts, worker, owner.copy_send)
        self._log: ReplicaLog | None = None
        """Log of the replica; None until the copy is complete."""
        self._ending = False
        self._protocol = 0
        """Version of the replication protocol that both nodes speak."""
        self._scrub: ReplicaScrub | None = None
        """While the copy is in sync."""

    def begin(self, accepted: Accepted) -> None:
        # the files are about to become those of another node: a position that was seen here does not apply to them
        self._parts.watch.forget()
        self._protocol = accepted.protocol
        self._target.incomplete = incomplete_copy(accepted.node_id, accepted.sequence)
        self._steps.go_on()

    def receive(self, data: bytes) -> None:
        if self._log is None:
            self._target.receive(decode_message(data))
            self._steps.go_on()
        else:
            self._files.receive(data)

    def _stepped(self, messages: Sequence[CopyMessage], error: BaseException | None) -> None:
        for message in messages:
            if isinstance(message, TargetReady):
                self._note(message)
            else:
                self._owner.copy_send(b"".join(encode_message(message)))
        failure = error or self._target.failure
        if failure is not None:
            self._failed(failure)

    def _failed(self, error: BaseException) -> None:
        self._owner.copy_failed(error if isinstance(error, BrokerError) else DiskFailed(str(error)))

    def _note_incomplete(self) -> None:
        """On the thread of the operations."""
        disk, directory = self._parts.environment.disk, store_directories(self._parts).log
        write_replica_state(disk, directory, self._target.incomplete)

    def _note(self, ready: TargetReady) -> None:
        """The files are complete and noted: node id and activation sequence follow, then the answer."""
        state = self._adopt()

        def noted(error: BaseException | None) -> None:
            if self._ending:
                return
            if error is not None:
                self._failed(error)
                return
            self._log = self._make_log()
            self._owner.copied()
            self._owner.copy_send(b"".join(encode_message(ready)))
            self._scrub = scrub_replica(self._parts, self._worker, self._target, self._files, self._protocol)

        if state.activation_sequence >= 0:
            self._local.write(state.activation_sequence, noted)
        else:
            noted(None)

    def _adopt(self) -> ReplicaState:
        """The note of the complete copy, whose node id becomes that of this node."""
        state = read_replica_state(self._parts.environment.disk, store_directories(self._parts).log)
        self._parts.lock.adopt(state.node_id)
        return state

    def _make_log(self) -> ReplicaLog:
        target = self._target
        return ReplicaLog(
            target.log,
            target.bodies,
            self._parts.environment.replica_runner(self._worker, self._parts.turn),
            sequence=target.sequence,
            on_progress=lambda progress: self._owner.progress(progress.durable),
            on_failure=self._failed,
            note_incomplete=self._note_incomplete,
        )

    def execute(
        self, index: int, directory: Directory, operations: Sequence[Operation], size_bytes: int, *, at_once: bool
    ) -> None:
        assert self._log is not None
        self._log.receive(index, directory, operations, size_bytes, at_once=at_once)

    def end(self, ended: Callable[[], None]) -> None:
        self._ending = True
        if self._scrub is not None:
            self._scrub.close()

        def steps_ended() -> None:
            if self._log is None and self._target.state is TargetState.READY:
                # complete and noted, but the answer was not sent: the node id is that of the data from now on, also
                # without a restart, and the files are open and closed like those of any other copy
                self._adopt()
                self._log = self._make_log()
            if self._log is not None:
                self._log.finish(lambda error: ended())
            else:
                self._target.close()
                ended()

        self._steps.close(lambda: self._files.close(steps_ended))


def is_complete(parts: NodeParts) -> bool:
    """Whether the data of a node is complete: not that of a copy that did not end."""
    state = read_replica_state(parts.environment.disk, store_directories(parts).log)
    return state.status is not ReplicaStatus.INCOMPLETE


def copy_note(parts: NodeParts) -> CopyNote:
    """The note about the copy that the data of a node is.

    Raises:
        StoreError: the note cannot be read.
    """
    state = read_replica_state(parts.environment.disk, store_directories(parts).log)
    node_id = None if state.node_id == NO_NODE else state.node_id
    return CopyNote(_ORIGINS[state.status], state.activation_sequence, node_id)


def adopt_identity(parts: NodeParts, coordination_id: str | None) -> None:
    """At the start of a node: its node id is that of its data, if they are a copy that was completed, which a crash may
    have kept it from taking; peers with a coordination-id have that (artemis-ha s. 1).
    """
    state = read_replica_state(parts.environment.disk, store_directories(parts).log)
    if state.status is ReplicaStatus.IN_SYNC:
        parts.lock.adopt(state.node_id)
    elif coordination_id is not None:
        parts.lock.adopt(coordination_node_id(coordination_id))


def own_data(parts: NodeParts) -> None:
    """At an activation: the data is that of this node from now on."""
    disk, directory = parts.environment.disk, store_directories(parts).log
    if read_replica_state(disk, directory).status is not ReplicaStatus.NONE:
        write_replica_state(disk, directory, ReplicaState())


EarlierNote = tuple[str, Divergence]
"""Path of an ``oldreplica.N``, and its note."""


def earlier_data(parts: NodeParts) -> EarlierNote | None:
    """The newest ``oldreplica.N``; None if there is none, or its note is not complete.

    Raises:
        DiskFailed: the note cannot be read.
    """
    directories = store_directories(parts)
    numbers = saved_numbers(directories.disk, directories.log)
    directory = saved_directories(directories, numbers[-1]).log if numbers else ""
    note = read_note(directories.disk, directory) if numbers else None
    return (directory, note) if note is not None and note.complete else None
