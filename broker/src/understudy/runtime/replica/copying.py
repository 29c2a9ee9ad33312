"""The copy of the store of an active node to its replica. Implements ``replication.active_link.Copy``.

The steps of the copy block and run on a thread; everything else happens on the loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from understudy.config.model import Configuration
from understudy.errors import BrokerError, DiskFailed, LimitExceeded, RemoteProtocolError
from understudy.ha.replication.ports import Authority
from understudy.limits import FILE_QUESTIONS_MAX, REFUSE_DAMAGED_MS
from understudy.ports import Clock, Worker
from understudy.replication.active_link import CopyOwner
from understudy.runtime.base.parts import NodeParts
from understudy.store.log.applier import Applier
from understudy.store.log.operation_context import Voter
from understudy.store.messages.message_store import MessageStore
from understudy.store.replication.copy_messages import (
    AnswerBytes,
    AskBytes,
    CopyIdentity,
    CopyMessage,
    Directory,
    decode_message,
    encode_message,
)
from understudy.store.replication.copy_source import CopySource, SourceState
from understudy.store.replication.fetching import Asker, answer_of
from understudy.store.replication.store_files import StoreDirectories
from understudy.wire.core.packets_replication import CHECKED_FILES_PROTOCOL, COMMON_FILES_PROTOCOL

log = logging.getLogger(__name__)


def store_directories(parts: NodeParts) -> StoreDirectories:
    """Directories of the store of a node."""
    configuration: Configuration = parts.configuration.current
    return StoreDirectories(
        parts.environment.disk, configuration.journal_directory, configuration.large_messages_directory
    )


class StoreOwner(Protocol):
    """Has the store of an active node."""

    @property
    def store(self) -> MessageStore | None:
        """Store of the node while it is open."""
        ...

    @property
    def appliers(self) -> tuple[Applier, Applier]:
        """The appliers of the directory of the log, and of that of large messages, while it is open."""
        ...


class Steps:
    """Calls a function that blocks on a thread, again and again, one call at a time."""

    def __init__(
        self,
        worker: Worker,
        wants: Callable[[], bool],
        step: Callable[[], list[CopyMessage]],
        stepped: Callable[[list[CopyMessage], BaseException | None], None],
    ) -> None:
        """Args:
        worker: Runs the calls.
        wants: Whether to call it.
        step: The function.
        stepped: Gets its result, or its error.
        """
        self._worker = worker
        self._wants = wants
        self._step = step
        self._stepped = stepped
        self._running = self._closed = False
        self._ended: Callable[[], None] | None = None

    def go_on(self) -> None:
        """Call the step if a call was requested and none is under way."""
        if not self._running and not self._closed and self._wants():
            self._running = True
            result: list[CopyMessage] = []
            self._worker.run(lambda: result.extend(self._step()), partial(self._done, result))

    def _done(self, result: list[CopyMessage], error: BaseException | None) -> None:
        self._running = False
        if self._closed:
            ended, self._ended = self._ended, None
            if ended is not None:
                ended()
            return
        self._stepped(result, error)
        self.go_on()

    def close(self, ended: Callable[[], None]) -> None:
        """Call the step no more; call ``ended`` when no call is under way."""
        self._closed = True
        if self._running:
            self._ended = ended
        else:
            ended()


class FileAnswers:
    """Bytes of this node's files for the other node of the pair, read on a thread, one question at a time."""

    def __init__(self, parts: NodeParts, worker: Worker, send: Callable[[bytes], None]) -> None:
        """Args:
        worker: Reads the files.
        send: To the other node.
        """
        self._directories = store_directories(parts)
        self._send = send
        self._questions: list[AskBytes] = []
        self._steps = Steps(worker, lambda: bool(self._questions), self._read, self._answered)

    def ask(self, message: AskBytes) -> None:
        """Answer a question of the other node about a file.

        Raises:
            LimitExceeded: more than ``FILE_QUESTIONS_MAX`` wait.
        """
        if len(self._questions) >= FILE_QUESTIONS_MAX:
            raise LimitExceeded(f"{len(self._questions)} questions of the other node wait")
        self._questions.append(message)
        self._steps.go_on()

    def _read(self) -> list[CopyMessage]:
        return [answer_of(self._directories, self._questions.pop(0))]

    def _answered(self, messages: list[CopyMessage], error: BaseException | None) -> None:
        for message in messages:
            self._send(b"".join(encode_message(message)))
        if error is not None:
            # the other node stops waiting when the connection ends
            log.error("bytes for the other node cannot be read", extra={"error": str(error)})

    def close(self, ended: Callable[[], None]) -> None:
        """Read nothing more; call ``ended`` when nothing is read."""
        self._steps.close(ended)


class FileExchange:
    """Questions about bytes of files, in both directions, between the nodes of a pair that are in sync."""

    def __init__(self, parts: NodeParts, worker: Worker, send: Callable[[bytes], None]) -> None:
        """Begin as ``FileAnswers`` does."""
        self._parts = parts
        self.asker = Asker(lambda message: send(b"".join(encode_message(message))))
        self._answers = FileAnswers(parts, worker, send)

    def receive(self, data: bytes) -> None:
        """Take a message of the other node.

        Raises:
            RemoteProtocolError: it is neither a question nor an answer.
        """
        message = decode_message(data)
        if isinstance(message, AnswerBytes):
            self.asker.receive(message)
        elif isinstance(message, AskBytes):
            self._answers.ask(message)
        else:
            raise RemoteProtocolError(f"{type(message).__name__} after the copy")

    def close(self, ended: Callable[[], None]) -> None:
        """Answer nothing more; call ``ended`` when nothing is read."""
        self._answers.close(ended)

    # --- an active node -----------------------------------------------------------------------------

    def attach(self, store: MessageStore, name: str, protocol: int) -> None:
        """The replica of that name is in sync; both nodes speak that version of the protocol."""
        repairs = store.quarantine.repairs
        if protocol >= CHECKED_FILES_PROTOCOL:
            if repairs.pair is not None:
                repairs.pair.other = name
            repairs.attach(self.asker)

    def detach(self, store: MessageStore | None) -> None:
        """Called when the replica is lost."""
        if store is not None:
            store.quarantine.repairs.detach()
        self.asker.lost()


class DamagedFiles:
    """Files of an active node that do not fit, and that its replica cannot replace, since when they are known."""

    def __init__(self, clock: Clock) -> None:
        """``clock``: for ``REFUSE_DAMAGED_MS``."""
        self._clock = clock
        self._since_ms: dict[tuple[Directory, str], int] = {}

    def refuses(self, key: tuple[Directory, str]) -> bool:
        """Whether a copy ends because of the file: its reads may be wrong for a while only. Called by any thread."""
        now_ms = self._clock.monotonic_ms()
        return now_ms - self._since_ms.setdefault(key, now_ms) < REFUSE_DAMAGED_MS


class SourceCopy:
    """The copy of an active node's store to a replica. Implements ``Copy``."""

    def __init__(
        self,
        parts: NodeParts,
        opened: StoreOwner,
        worker: Worker,
        authority: Authority,
        owner: CopyOwner,
        protocol: int,
        damaged: DamagedFiles,
    ) -> None:
        """Begin the copy; the replica sends its inventory first.

        Args:
            worker: Reads the files.
            authority: Has the activation sequence of the data.
            owner: Sends messages and gets the result.
            protocol: Version of the replication protocol that both nodes speak.
            damaged: Files that could not be copied.
        """
        assert opened.store is not None
        self._parts = parts
        self._store = opened.store
        self._authority = authority
        self._owner = owner
        log, bodies = opened.appliers
        self._source = CopySource(
            store_directories(parts),
            log,
            bodies,
            self._store.epoch,
            states_common=protocol >= COMMON_FILES_PROTOCOL,
            checks=protocol >= CHECKED_FILES_PROTOCOL,
            refuses=damaged.refuses,
        )
        self._told = False
        """Whether the owner was informed that few bytes are left to copy."""
        self._steps = Steps(worker, lambda: self._source.wants_step, self._source.step, self._stepped)

    def receive(self, data: bytes) -> None:
        self._source.receive(decode_message(data))
        if self._source.failure is not None:
            failure = self._source.failure
            self._owner.copy_failed(DiskFailed(f"at the replica: {failure.code}: {failure.reason}"))
        elif self._source.state is SourceState.COMPLETE:
            self._owner.copied()
        else:
            self._steps.go_on()

    def finish(self) -> None:
        configuration, store = self._parts.configuration.current, self._store
        identity = CopyIdentity(
            store.node_id,
            store.epoch,
            self._authority.sequence,
            configuration.name,
            self._parts.environment.clock.wall_ms(),
        )
        self._source.freeze(store.context.mark(Voter.LOCAL_DISK), identity)
        self._steps.go_on()

    def cancel(self) -> None:
        self._steps.close(self._source.close)

    def _stepped(self, messages: Sequence[CopyMessage], error: BaseException | None) -> None:
        for message in messages:
            self._owner.copy_send(b"".join(encode_message(message)))
        if error is not None:
            self._owner.copy_failed(error if isinstance(error, BrokerError) else DiskFailed(str(error)))
        elif self._source.state is SourceState.LITTLE_LEFT and not self._told:
            self._told = True
            self._owner.little_left()
