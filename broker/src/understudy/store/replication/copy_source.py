"""The active node's side of the copy of a store (docs/build/architecture.md, "Replication").

The backup sends its inventory first. A pass lists the directories, sends all bytes that the backup lacks, and is
repeated until little was sent. Then the owner holds the writers of the store, waits until the jobs under way have
ended, and calls ``freeze``: the last pass states all files and which of them are open.

``CopySource`` is driven by its owner: ``receive`` takes the messages of the backup on the loop; ``step`` blocks, runs
on another thread, one call at a time, and returns the next messages to be sent. ``wants_step`` says whether to call
it.

Readable while the store is being written: files that do not change any more (sealed segments, segments of
older epochs, complete snapshots, bodies and entries of the quarantine), and the bytes of a growing file up to the
position that its applier states. Everything else waits for the last pass. A file that disappears between listing and
opening is left to the next pass. The copy decides by names, positions and hashes; it never interprets records.

Not here: the other side (``copy_target``), holding the writers, sending.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterator
from enum import Enum, auto
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import DiskFailed, LimitExceeded, RemoteProtocolError
from understudy.limits import COPY_FILES_MAX, COPY_LIST_FILES_MAX, COPY_PIECE_BYTES_MAX, COPY_WINDOW_BYTES_MAX
from understudy.ports import File
from understudy.store.file_checks import Condition
from understudy.store.log.applier import UNFINISHED, Applier
from understudy.store.log.operations import ReplaceBytes
from understudy.store.log.segment import HEADER_BLOCK_BYTES, parse_name
from understudy.store.repair import Answer, Outcome, Repair, Write
from understudy.store.replication.conditions import FileConditions, is_settled
from understudy.store.replication.copy_messages import (
    AnswerBytes,
    AskBytes,
    CheckFile,
    CommonFiles,
    CopyFailed,
    CopyIdentity,
    CopyMessage,
    Directory,
    DropFile,
    EndFile,
    EpochHistory,
    FilesPart,
    FinalState,
    InventoryFile,
    InventoryPart,
    KeepFile,
    PassEnd,
    Piece,
    RenamedFile,
    SetAside,
    StatedFile,
    TargetReady,
    Written,
)
from understudy.store.replication.epoch_history import read_history
from understudy.store.replication.fetching import answer_in
from understudy.store.replication.inventory import hash_of
from understudy.store.replication.store_files import (
    StoreDirectories,
    belongs,
    is_entry,
    is_segment,
    is_unfinished,
    list_store,
    newest_segment,
)
from understudy.store.snapshots.reserve import RESERVE_NAME

log = logging.getLogger(__name__)

#: A pass that sent at most this much is followed by the last one. Bytes.
LITTLE_BYTES: Final = 8 * 1024 * 1024
#: Passes after which the last one follows, whatever the one before has sent: the store is written as fast as copied.
PASSES_MAX: Final = 50
#: Work of one step. Bytes read.
_STEP_BYTES: Final = 1024 * 1024
#: Work of a message without bytes, and of looking at a file.
_MESSAGE_COST: Final = 4096

_Key = tuple[Directory, str]
_Work = Generator[CopyMessage | int, None, None]
"""Messages, and numbers of bytes that were read without a message."""


class SourceState(Enum):
    """Progress of a copy at the active node."""

    AWAITING_INVENTORY = auto()
    COPYING = auto()
    LITTLE_LEFT = auto()
    """The owner is to hold the writers and to call ``freeze``."""
    FINAL = auto()
    """The last pass of the copy, during which the link holds the writers."""
    AWAITING_READY = auto()
    """Everything was sent; the writers are still held."""
    COMPLETE = auto()
    """The backup has all files; operations may follow."""
    FAILED = auto()


_WORKING: Final = frozenset({SourceState.COPYING, SourceState.FINAL})


@dataclass(frozen=True, slots=True)
class _Sent:
    """A file as the backup has it."""

    offset: int
    """Bytes of data sent for this file."""
    size_bytes: int
    complete: bool
    """Whether the file does not change any more."""
    modified_ns: int = 0
    """Time of an entry of the quarantine."""


@dataclass(frozen=True, slots=True)
class _Extent:
    """Bytes of a file that can be sent now."""

    end: int
    size_bytes: int
    complete: bool


@dataclass(frozen=True, slots=True)
class KnownMessages:
    """The messages of later versions of the replication protocol that a backup knows."""

    common_files: bool = True
    """``CommonFiles``; otherwise it sets all files of a log that differs aside."""
    checks: bool = True
    """``CheckFile`` and ``AskBytes``; otherwise damage is only reported."""
    history: bool = True
    """``EpochHistory``; otherwise it reports records that this node has had and trimmed as its own."""


ALL_MESSAGES: Final = KnownMessages()


class CopySource:
    """One copy of the store of the active node, from its side."""

    def __init__(
        self,
        directories: StoreDirectories,
        log: Applier,
        bodies: Applier,
        epoch: int,
        *,
        knows: KnownMessages = ALL_MESSAGES,
        refuses: Callable[[_Key], bool] = lambda key: False,
    ) -> None:
        """Nothing is read yet.

        Args:
            log: Writes the directory of the log.
            bodies: Writes the directory of large messages.
            knows: Messages that the backup knows.
            refuses: Whether the copy ends because of a damaged file that the backup cannot replace; otherwise it is
                copied as it is. Reads may be wrong for a while. Called by ``step``.
        """
        self._knows = knows
        self._question: tuple[int, AnswerBytes | None] | None = None
        """Number of the last question to the backup, and its answer."""
        self._known = FileConditions(directories, bodies.checksum_of)
        self._known.refuses = refuses
        self._directories = directories
        self._disk = directories.disk
        self._log = log
        self._bodies = bodies
        self._epoch = epoch
        self.state = SourceState.AWAITING_INVENTORY
        self.failure: CopyFailed | None = None
        """Reason why the backup has ended the copy."""
        self.passes = 0
        """Passes begun so far, the last one included."""
        self.sent_bytes = 0
        """Bytes of files that were sent."""
        self._written_bytes = 0
        """Bytes that the backup has written."""
        self._theirs: dict[_Key, InventoryFile] = {}
        """Files of the backup that were not compared yet."""
        self._keeps_nothing = False
        self._common: set[_Key] = set()
        """Files of the backup that are complete and the same here."""
        self._sent: dict[_Key, _Sent] = {}
        self._end: tuple[int, CopyIdentity] | None = None
        self._work = self._all()

    # --- on the loop --------------------------------------------------------------------------------

    def receive(self, message: CopyMessage) -> None:
        """A message of the backup.

        Raises:
            RemoteProtocolError: it is not one that may come now.
        """
        match message:
            case InventoryPart() if self.state is SourceState.AWAITING_INVENTORY:
                self._take_inventory(message)
            case Written(size_bytes) if self._written_bytes <= size_bytes <= self.sent_bytes:
                self._written_bytes = size_bytes
            case AnswerBytes(number) if self._question == (number, None):
                self._question = (number, message)
            case TargetReady() if self.state is SourceState.AWAITING_READY:
                self.state = SourceState.COMPLETE
            case CopyFailed():
                self.failure = message
                self.state = SourceState.FAILED
            case _:
                raise RemoteProtocolError(f"{type(message).__name__} of a backup in state {self.state.name}")

    def _take_inventory(self, part: InventoryPart) -> None:
        if len(self._theirs) + len(part.files) > COPY_FILES_MAX:
            raise LimitExceeded(f"the backup has more than {COPY_FILES_MAX} files")
        for each in part.files:
            key = (each.directory, each.name)
            if not belongs(*key) or key in self._theirs:
                raise RemoteProtocolError(f"inventory of the backup: {each.name!r} is unknown, or listed twice")
            self._theirs[key] = each
        if part.last:
            self._keeps_nothing = part.copied
            self.state = SourceState.COPYING

    @property
    def wants_step(self) -> bool:
        """Whether ``step`` has something to do: not before the backup has written enough of the bytes sent."""
        asks = self._question is not None and self._question[1] is None
        return self.state in _WORKING and not asks and self.sent_bytes - self._written_bytes < COPY_WINDOW_BYTES_MAX

    def freeze(self, sequence: int, identity: CopyIdentity) -> None:
        """Begin the last pass. The writers are held and no job is under way until the state is ``COMPLETE``, or the
        copy is given up.

        Args:
            sequence: Sequence of the last record in the log.
            identity: Used for the note that the backup makes.
        """
        assert self.state is SourceState.LITTLE_LEFT, self.state
        self._end = (sequence, identity)
        self.state = SourceState.FINAL

    def close(self) -> None:
        """Give up, or let go of everything; not while a step runs."""
        self._work.close()
        if self.state is not SourceState.COMPLETE:
            self.state = SourceState.FAILED

    # --- on another thread --------------------------------------------------------------------------

    def step(self) -> list[CopyMessage]:
        """Read a little; the messages to be sent, in order.

        Raises:
            DiskFailed: a file cannot be read. The copy has failed.
        """
        messages: list[CopyMessage] = []
        budget = _STEP_BYTES
        while budget > 0 and self.wants_step:
            try:
                item = next(self._work)
            except BaseException:
                self.state = SourceState.FAILED
                raise
            if isinstance(item, int):
                budget -= item
            else:
                messages.append(item)
                budget -= len(item.data) if isinstance(item, Piece) else _MESSAGE_COST
        return messages

    def _all(self) -> _Work:
        if self._knows.history:
            starts = read_history(self._disk, self._directories.log)
            # without a line for the present epoch nothing shows where the one before ended
            yield EpochHistory(starts if starts and starts[-1].epoch == self._epoch else ())
        yield from self._decide()
        while self.state is SourceState.COPYING:
            sent_bytes = yield from self._pass(final=False)
            if sent_bytes <= LITTLE_BYTES or self.passes >= PASSES_MAX:
                self.state = SourceState.LITTLE_LEFT
            yield PassEnd(self.passes, sent_bytes)
        sent_bytes = yield from self._pass(final=True)
        yield PassEnd(self.passes, sent_bytes)
        assert self._end is not None
        sequence, identity = self._end
        for part in _parts(self._sent):
            yield FilesPart(part)
        self.state = SourceState.AWAITING_READY
        yield FinalState(self._log.describe_open(), self._bodies.describe_open(), sequence, identity)

    def _decide(self) -> _Work:
        """Whether the data of the backup is of any use: its log must be the beginning of this one."""
        theirs = self._theirs
        if any(name != RESERVE_NAME for _, name in theirs) and not self._keeps_nothing:
            newest = newest_segment({key: each.length for key, each in theirs.items()}, HEADER_BLOCK_BYTES)
            same = False
            if newest is not None:
                same = yield from self._is_prefix((Directory.LOG, newest))
            if not same:
                if self._knows.common_files:
                    yield from self._find_common()
                for key in [key for key in theirs if key not in self._common]:
                    del theirs[key]
                yield SetAside()
        present = set(list_store(self._disk, self._directories))
        for key in [key for key in theirs if key not in present]:
            del theirs[key]
            yield DropFile(*key)

    def _find_common(self) -> _Work:
        """State which files of the backup are complete and the same here; none if no segment is: then nothing shows
        that both logs have the same beginning.
        """
        names = set(list_store(self._disk, self._directories))
        for key, each in sorted(self._theirs.items()):
            try:
                file = self._disk.open(self._directories.path(*key), read_only=True)
            except FileNotFoundError:
                continue
            try:
                settled = is_settled(key, complete=self._is_complete(file, key, names))
                if settled and (yield from self._hash_of_settled(file, key, each)) == each.hash:
                    self._common.add(key)
            finally:
                file.close()
        segments = sum(is_segment(*key) for key in self._common)
        size_bytes = sum(self._theirs[key].length for key in self._common)
        if not segments:
            self._common.clear()
            log.warning("no segment of the backup is the same here: everything is copied")
            return
        log.info("the backup keeps the common files", extra={"segments": segments, "bytes": size_bytes})
        stated = [StatedFile(*key, self._theirs[key].length) for key in sorted(self._common)]
        for at in range(0, len(stated), COPY_LIST_FILES_MAX):
            yield CommonFiles(tuple(stated[at : at + COPY_LIST_FILES_MAX]))

    def _is_complete(self, file: File, key: _Key, names: set[_Key]) -> bool:
        """Whether a segment that is not being written has its seal, or must have it."""
        if not is_segment(*key) or key[1] in self._log.positions():
            return False
        return self._known.is_sealed(file, key, names)

    def _hash_of_settled(
        self, file: File, key: _Key, theirs: InventoryFile | None
    ) -> Generator[CopyMessage | int, None, bytes]:
        """Have the right bytes in a file that does not change any more, if either node has them; its hash then. Nothing
        is compared with a checksum if the backup has the same bytes.

        Args:
            file: File of this node, open.
            theirs: The file at the backup; None: it has none.
        """
        if theirs is not None and theirs.length == file.size():
            same = yield from hash_of(file, theirs.length)
            if same == theirs.hash:
                return same
        if key[0] is Directory.BODIES and self._known.learned_in < self.passes:
            self._known.learned_in = self.passes
            yield from self._known.learn(self._log.positions(), list_store(self._disk, self._directories))
        condition, digest = yield from self._known.look(file, key, past_cache=False)
        if condition is Condition.DAMAGED:
            condition, digest = yield from self._known.look(file, key, past_cache=True)
        if condition is Condition.DAMAGED:
            self._check_name(key)
            yield from self._repair(file, key)
            condition, digest = yield from self._known.look(file, key, past_cache=True)
        return digest

    def _check_name(self, key: _Key) -> None:
        """Raise FileNotFoundError if a segment was removed since it was opened: a later one may be made of its file."""
        path = self._directories.path(*key)
        if is_segment(*key) and not self._disk.exists(path):
            raise FileNotFoundError(path)

    def _repair(self, file: File, key: _Key) -> _Work:
        """Replace the bytes of this node by those of the backup, if these fit. A backup that has moved its earlier data
        away has a right file there.
        """
        outcome = Outcome.DAMAGED_TWICE
        if self._knows.checks:
            outcome = yield from self._ask_backup(self._known.repair(key))
        if outcome in (Outcome.REPAIRED, Outcome.READABLE):
            log.warning("damaged bytes were replaced by those of the replica", extra={"file": file.path})
        elif self._known.refuses(key):
            raise DiskFailed(
                f"{file.path} does not fit its checksum, and the replica has no file that does: it is not copied",
                hint="the copy begins again; the file is copied as it is if it is still damaged then",
            )
        else:
            log.error(
                "bytes do not fit their checksum, and the replica has none that do: they are copied as they are",
                extra={"file": file.path},
            )

    def _ask_backup(self, repair: Repair) -> Generator[CopyMessage | int, None, Outcome]:
        """Carry out a repair with the files of the backup."""
        answer: Answer | None = None
        while True:
            try:
                effect = repair.send(answer)
            except StopIteration as ended:
                outcome: Outcome = ended.value
                return outcome
            answer = None
            if isinstance(effect, Write):
                applier = self._log if effect.directory is Directory.LOG else self._bodies
                applier.apply([ReplaceBytes(effect.name, effect.offset, effect.data, effect.cut_at)])
                continue
            number = 1 if self._question is None else self._question[0] + 1
            self._question = (number, None)
            yield AskBytes(number, effect.directory, effect.name, effect.offset, effect.length)
            found = self._question[1]
            assert found is not None
            answer = answer_in(found)

    def _is_prefix(self, key: _Key) -> Generator[int, None, bool]:
        """Whether a file of the backup is the beginning of the file of the same name here."""
        theirs = self._theirs[key]
        try:
            file = self._disk.open(self._directories.path(*key), read_only=True)
        except FileNotFoundError:
            return False
        try:
            found = yield from hash_of(file, theirs.length)
            if found is not None and found != theirs.hash:
                # the disk may have returned wrong bytes
                file.forget_cached(0, theirs.length)
                found = yield from hash_of(file, theirs.length)
            return found == theirs.hash
        finally:
            file.close()

    def _pass(self, *, final: bool) -> Generator[CopyMessage | int, None, int]:
        """Send everything that may be read now; returns the bytes sent."""
        self.passes += 1
        before = self.sent_bytes
        names = list_store(self._disk, self._directories)
        if len(names) > COPY_FILES_MAX:
            raise LimitExceeded(f"{len(names)} files in the store, at most {COPY_FILES_MAX} can be copied")
        # after the list: a segment without position is then complete, or is not written yet
        positions = {(Directory.LOG, name): position for name, position in self._log.positions().items()}
        positions |= {(Directory.BODIES, name): position for name, position in self._bodies.positions().items()}
        yield from self._follow_names(set(names))
        for key in names:
            yield _MESSAGE_COST
            sent = self._sent.get(key)
            position = positions.get(key)
            # a finished file of the same name would be another one; a growing body is sent as far as it is
            wait = not final and is_unfinished(*key) and position is None
            if wait or (sent is not None and sent.complete):
                continue
            try:
                modified_ns = self._disk.modified_ns(self._directories.path(*key)) if is_entry(*key) else 0
                file = self._disk.open(self._directories.path(*key), read_only=True)
            except FileNotFoundError:
                if final:
                    raise DiskFailed(f"{key[1]} has vanished while nothing was written") from None
                continue
            try:
                extent = self._extent(file, key, position, names, final=final)
                if extent is not None:
                    yield from self._send_checked(file, key, extent, modified_ns)
            except FileNotFoundError:
                if final:
                    raise DiskFailed(f"{key[1]} has vanished while nothing was written") from None
                self._sent.pop(key, None)
                yield DropFile(*key)
            finally:
                file.close()
        return self.sent_bytes - before

    def _follow_names(self, present: set[_Key]) -> Iterator[CopyMessage]:
        """Messages about files that were sent and have another name now, or none."""
        for key in [key for key in self._sent if key not in present]:
            directory, name = key
            target = (directory, name.removesuffix(UNFINISHED))
            if directory is Directory.BODIES and target != key and target in present and target not in self._sent:
                self._sent[target] = self._sent.pop(key)
                yield RenamedFile(directory, name, target[1])
            else:
                del self._sent[key]
                yield DropFile(*key)

    def _extent(
        self, file: File, key: _Key, position: int | None, names: Collection[_Key], *, final: bool
    ) -> _Extent | None:
        """The bytes of a file that do not change any more; None if nothing is known about them yet."""
        directory, name = key
        size_bytes = file.size()
        if position is not None:
            return _Extent(position, position if directory is Directory.BODIES else size_bytes, False)
        if name == RESERVE_NAME:
            return _Extent(0, size_bytes, False)
        if not is_segment(directory, name):
            return _Extent(size_bytes, size_bytes, not is_entry(*key) and not is_unfinished(*key))
        sealed = self._known.is_sealed(file, key, names)
        number_and_epoch = parse_name(name)
        assert number_and_epoch is not None
        if not sealed and not final and number_and_epoch[1] >= self._epoch:
            # the segment is being created, or sealed
            return None
        # the last segment of an older epoch may be cut at its end
        return _Extent(size_bytes, size_bytes, sealed)

    def _send_checked(self, file: File, key: _Key, extent: _Extent, modified_ns: int) -> _Work:
        """Send a file; one that does not change any more only after its bytes were compared with their checksum, and
        together with their hash.
        """
        if not is_settled(key, complete=extent.complete):
            yield from self._send(file, key, extent, modified_ns)
            self._check_name(key)
            return
        theirs = self._theirs.get(key)
        digest = yield from self._hash_of_settled(file, key, theirs)
        size_bytes = file.size()
        yield from self._send(file, key, _Extent(size_bytes, size_bytes, extent.complete), modified_ns)
        self._check_name(key)
        if self._knows.checks and (theirs is None or theirs.hash != digest):
            yield CheckFile(*key, size_bytes, digest)

    def _send(self, file: File, key: _Key, extent: _Extent, modified_ns: int) -> _Work:
        """Messages that make the backup's file equal up to the end of the extent."""
        sent = self._sent.get(key)
        if sent is None:
            offset = yield from self._begin(file, key, extent.end)
        elif sent.modified_ns != modified_ns:
            # another entry of the quarantine took the name
            yield DropFile(*key)
            offset = 0
        elif (sent.offset, sent.size_bytes) == (extent.end, extent.size_bytes):
            self._sent[key] = _Sent(extent.end, extent.size_bytes, extent.complete, modified_ns)
            return
        else:
            # a segment of an older epoch may have been cut
            offset = min(sent.offset, extent.end)
        for begin, end in file.data_ranges(offset) if offset < extent.end else ():
            at = max(begin, offset)
            while at < min(end, extent.end):
                data = file.read(at, min(COPY_PIECE_BYTES_MAX, min(end, extent.end) - at))
                if not data:
                    raise DiskFailed(f"{file.path} ends at {at}, expected {extent.end} bytes")
                if data == bytes(len(data)):
                    yield len(data)
                else:
                    self.sent_bytes += len(data)
                    yield Piece(*key, at, data)
                at += len(data)
        self._sent[key] = _Sent(extent.end, extent.size_bytes, extent.complete, modified_ns)
        yield EndFile(*key, extent.size_bytes)

    def _begin(self, file: File, key: _Key, end: int) -> Generator[CopyMessage | int, None, int]:
        """Compare with the file of the backup; the offset from which bytes are to be sent."""
        theirs = self._theirs.pop(key, None)
        if theirs is None:
            return 0
        if key in self._common and theirs.length == end:
            yield KeepFile(*key, theirs.length)
            return theirs.length
        if theirs.length <= end:
            found = yield from hash_of(file, theirs.length)
            if found == theirs.hash:
                yield KeepFile(*key, theirs.length)
                return theirs.length
        yield DropFile(*key)
        return 0


def _parts(sent: dict[_Key, _Sent]) -> Iterator[tuple[StatedFile, ...]]:
    stated = [StatedFile(*key, each.size_bytes) for key, each in sorted(sent.items(), key=lambda item: item[0])]
    for at in range(0, len(stated), COPY_LIST_FILES_MAX):
        yield tuple(stated[at : at + COPY_LIST_FILES_MAX])
