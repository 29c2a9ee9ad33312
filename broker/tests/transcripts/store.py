"""Transcripts of the store: a message store, its log and its snapshots on a simulated disk.

Real are ``MessageStore``, ``Follower``, the consolidator and ``tools.inspect``. The log writer and the housekeeper do
their work one disk operation at a time, when a command says so; ``settle`` lets all of it happen. Output shows every
operation that changes a file. Names of files are shortened: ``segment-3-1`` is segment 3, begun in epoch 1.
"""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from transcripts.script import arguments, options
from understudy.errors import BrokerError
from understudy.ids import NodeId
from understudy.limits import ID_CACHE_SIZE
from understudy.message import Message
from understudy.ports import File, Operation, OperationApplier
from understudy.store.log import records
from understudy.store.log.applier import Applier, LogFiles
from understudy.store.log.operations import is_batch
from understudy.store.log.reading.follower import Follower
from understudy.store.log.segment import SEGMENT_BYTES_MIN
from understudy.store.messages.message_store import MessageStore, StoreOwner
from understudy.store.settings import StoreSettings
from understudy.testing.manual_time import ManualTime
from understudy.testing.sim.disk import SimDisk, SimVolume
from understudy.tools.inspect import read_log, verify

DIRECTORY: Final = "/store"
NODE_ID: Final = NodeId("0f1e2d3c-4b5a-4697-8897-a6b5c4d3e2f1")
#: Turns after which ``settle`` gives up.
TURNS_MAX: Final = 500


class _File:
    """Implements ``ports.File``: reports what changes a file."""

    def __init__(self, file: File, report: Callable[[str], None]) -> None:
        self._file = file
        self._report = report
        self.path = file.path
        self.name = _short(file.path)
        """Present name of the file, shortened."""
        self.size, self.read, self.data_ranges, self.close = file.size, file.read, file.data_ranges, file.close

    def write(self, offset: int, buffers: Sequence[bytes]) -> None:
        size = sum(map(len, buffers))
        self._file.write(offset, buffers)
        if any(any(buffer) for buffer in buffers):
            self._report(f"write {self.name} at {offset}, {size} bytes")

    def allocate(self, length: int) -> None:
        self._file.allocate(length)
        self._report(f"allocate {self.name}, {length} bytes")

    def truncate(self, length: int) -> None:
        self._file.truncate(length)
        self._report(f"truncate {self.name} to {length} bytes")

    def begin_sync(self, offset: int, length: int) -> None:
        self._file.begin_sync(offset, length)

    def sync(self) -> None:
        self._file.sync()
        self._report(f"sync {self.name}")


class _Disk(SimDisk):
    """A simulated disk that reports what changes it."""

    def __init__(self, volume: SimVolume, owner: str, report: Callable[[str], None]) -> None:
        super().__init__(volume, owner)
        self._report = report
        self._open: list[_File] = []

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        file = super().open(path, create=create, read_only=read_only)
        if create:
            self._report(f"create {_short(path)}")
        if read_only:
            return file
        self._open.append(_File(file, self._report))
        return self._open[-1]

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self._report(f"rename {_short(source)} to {_short(target)}")
        for file in self._open:
            if file.name == _short(source):
                file.name = _short(target)

    def remove(self, path: str) -> None:
        super().remove(path)
        self._report(f"remove {_short(path)}")

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        self._report(f"sync directory {path}")


class _Writer:
    """Implements ``ports.LogWriter``: one disk operation at a time."""

    def __init__(self, applier: OperationApplier) -> None:
        self._applier = applier
        self._jobs: deque[tuple[list[Callable[[], None]], Callable[[BaseException | None], None]]] = deque()

    def submit(self, operations: Sequence[Operation], done: Callable[[BaseException | None], None]) -> None:
        steps = [(operation,) for operation in operations] if is_batch(operations) else [operations]
        self._jobs.append(([partial(self._applier.apply, step) for step in steps], done))

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        self._jobs.append(([work], done))

    def close(self) -> None:
        pass

    def step(self) -> bool:
        """One operation; whether there was one."""
        if not self._jobs:
            return False
        steps, done = self._jobs[0]
        error: BaseException | None = None
        try:
            steps.pop(0)()
        except (BrokerError, OSError) as failure:
            error = failure
        if error is not None or not steps:
            self._jobs.popleft()
            done(error)
        return True


class _Survivors(random.Random):
    """The choice of what a power loss leaves: the first pieces, in the order in which they were written."""

    def __init__(self, pieces: int) -> None:
        super().__init__(0)
        self._left = pieces + 1  # the first number goes into a choice that is not used

    def choice(self, seq: Any) -> Any:
        return 0.5

    def random(self) -> float:
        self._left -= 1
        return 0.0 if self._left >= 0 else 1.0


class StoreDriver:
    """Nodes that take turns on one store. Implements ``script.Driver``."""

    def __init__(self) -> None:
        self.time = ManualTime()
        self.volume = SimVolume()
        self.volume.disk("setup").make_directory(DIRECTORY)
        self._lines: list[str] = []
        self._owner = ""
        nothing = Applier(self.volume.disk("setup"), DIRECTORY)
        self._writer = self._housekeeper = self._zombie = _Writer(nothing)
        self._store: MessageStore | None = None
        self._names: dict[int, str] = {}
        """Id to the name that a command gave it."""
        self._ids: dict[str, int] = {}
        self._settings: dict[str, Any] = {"segment_bytes": SEGMENT_BYTES_MIN, "ahead": 0, "compact_segments_min": 0}

    def close(self) -> None:
        """See ``script.Driver``."""

    def command(self, words: list[str]) -> Iterator[str]:
        """See ``script.Driver``."""
        name, *rest = words
        work = getattr(self, "_" + name.replace("-", "_") + "_command", None)
        if work is None:
            raise ValueError(f"no command {name}")
        try:
            work(*arguments(rest), **options(rest))
        except BrokerError as error:
            self._report(f"refused: {type(error).__name__}: {_short(str(error))}")
        lines, self._lines = self._lines, []
        yield from lines

    def _report(self, text: str) -> None:
        self._lines.append(text)

    @property
    def _open_store(self) -> MessageStore:
        if self._store is None:
            raise ValueError("no node has the store")
        return self._store

    def _follower(self, disk: SimDisk) -> Follower:
        return Follower(disk, DIRECTORY, id_cache_size=self._settings.get("id_cache_size", ID_CACHE_SIZE))

    def _new(self, name: str, kind: str = "") -> int:
        """A new id; addresses have names of their own kind."""
        number = self._open_store.next_id()
        self._names[number] = name
        self._ids[kind + name] = number
        return number

    def _appended(self, what: str) -> None:
        """Report the last record, and when it is durable."""
        store = self._open_store
        sequence = store.last_sequence
        self._report(f"record {sequence} appended: {what}")
        store.context.when_durable(
            sequence, lambda error=None: self._report(f"{what}: {'durable' if error is None else error}")
        )

    # --- life ----------------------------------------------------------------------------------

    def _settings_command(self, **values: str) -> None:
        """``settings segment_bytes=65536 compact_segments_min=2 …``: of the activations that follow."""
        self._settings |= {name: int(value) for name, value in values.items()}

    def _activate_command(self, owner: str, *, quiet: str = "") -> None:
        """``activate NODE [quiet=yes]``: it reads the log to its end and begins an epoch."""
        disk = _Disk(self.volume, owner, self._report)
        applier = Applier(disk, DIRECTORY)
        self._writer, self._housekeeper, self._owner = _Writer(applier), _Writer(applier), owner
        follower = self._follower(disk)
        self._store = MessageStore.activate(
            follower,
            files=LogFiles(applier, self._writer, self._housekeeper),
            clock=self.time,
            node_id=NODE_ID,
            owner=StoreOwner(lambda error: self._report(f"the store has failed: {_short(str(error))}")),
            settings=StoreSettings(**self._settings),
        )
        if quiet:
            self._lines.clear()
        self._report(f"{owner} is active, epoch {self._store.epoch}")

    def _take_over_command(self, owner: str) -> None:
        """``take-over NODE``: another node activates although the active one still runs."""
        self._zombie = self._writer
        self._activate_command(owner)

    def _zombie_writes_command(self) -> None:
        """The node that was active before does the disk operations that it had begun."""
        while self._zombie.step():
            pass

    def _stop_command(self) -> None:
        """Write the appended records, seal the segment, and release the store."""
        self._open_store.close(lambda: self._report("closed"))
        while self._writer.step() or self._housekeeper.step():
            pass
        self._store = None

    def _crash_command(self) -> None:
        """Kill the process of the active node; its written data is still in the cache of its kernel."""
        self.volume.crash_process(self._owner)
        self._store = None

    def _power_loss_command(self, keep: str = "0") -> None:
        """``power-loss keep=N``: the first N pieces that were not synced survive; a piece is a sector of 512 bytes, a
        change of size or a change of a name.
        """
        self.volume.power_loss(_Survivors(int(keep)))
        self._store = None

    # --- records -------------------------------------------------------------------------------

    def _address_command(self, name: str) -> None:
        self._open_store.store_address(records.AddressRecord(self._new(name, "address "), name, (1,)))
        self._appended(f"address {name}")

    def _queue_command(self, name: str, address: str) -> None:
        """``queue NAME ADDRESS``."""
        number = self._new(name)
        self._open_store.store_queue(records.QueueRecord(number, self._ids[f"address {address}"], name, 1))
        self._appended(f"queue {name}")

    def _remove_queue_command(self, name: str) -> None:
        self._open_store.delete_queue(self._ids[name])
        self._appended(f"removal of queue {name}")

    def _send_command(
        self, name: str, *queues: str, size: str = "100", tx: str = "", duplicate: str = "", count: str = "1"
    ) -> None:
        """``send NAME QUEUE... [size=BYTES] [tx=NAME] [duplicate=TEXT] [count=N]``: to the address named first."""
        for number in range(int(count)):
            each = name if count == "1" else f"{name}{number + 1}"
            message = Message(b"x" * int(size), address=queues[0])
            message.assign_id(self._new(each))
            address, *rest = queues
            self._open_store.store_message(
                message,
                self._ids[f"address {address}"],
                [self._ids[queue] for queue in rest],
                tx_id=self._transaction(tx),
                duplicate_id=duplicate.encode(),
            )
            self._appended(f"message {each}" + (f" of {tx}" if tx else ""))

    def _ack_command(self, queue: str, *messages: str, tx: str = "") -> None:
        """``ack QUEUE MESSAGE... [tx=NAME]``."""
        ids = [self._ids[name] for name in messages]
        self._open_store.store_acknowledges(self._ids[queue], ids, self._transaction(tx))
        self._appended(f"acknowledgement of {', '.join(messages)}" + (f" of {tx}" if tx else ""))

    def _delivered_command(self, queue: str, message: str, count: str) -> None:
        """``delivered QUEUE MESSAGE COUNT``: the delivery count."""
        self._open_store.store_delivery_count(self._ids[queue], self._ids[message], int(count))
        self._appended(f"delivery count {count} of {message}")

    def _prepare_command(self, tx: str) -> None:
        self._open_store.store_prepare(self._transaction(tx), tx.encode())
        self._appended(f"prepare {tx}")

    def _commit_command(self, tx: str) -> None:
        self._open_store.store_commit(self._transaction(tx))
        self._appended(f"commit {tx}")

    def _rollback_command(self, tx: str) -> None:
        self._open_store.store_rollback(self._transaction(tx))
        self._appended(f"rollback {tx}")

    def _transaction(self, name: str) -> int:
        if not name:
            return 0
        return self._ids[name] if name in self._ids else self._new(name)

    # --- disk ----------------------------------------------------------------------------------

    def _advance_command(self, seconds: str) -> None:
        """``advance SECONDS``."""
        self.time.advance(int(seconds) * 1000)

    def _turn_command(self) -> None:
        """The end of a turn of the loop: the appended records are handed to the log writer."""
        self._open_store.flush()

    def _step_command(self, count: str = "1") -> None:
        """``step [N]``: the log writer does its next disk operations."""
        for _ in range(int(count)):
            self._writer.step()

    def _settle_command(self, *, quiet: str = "") -> None:
        """``settle [quiet=yes]``: turns of the loop until all work is done; quiet: without its output."""
        before = len(self._lines)
        store = self._open_store
        for _ in range(TURNS_MAX):
            store.flush()
            busy = self._writer.step() or self._housekeeper.step()
            if not busy and not store.consolidating and not store.backlog_bytes:
                break
            if not busy:
                self.time.advance(1000)
        else:
            raise ValueError("the store does not settle")
        if quiet:
            del self._lines[before:]

    def _check_disk_command(self) -> None:
        """The look at the disks that a node takes every few seconds."""
        self._open_store.check_disk()
        self._report(f"full: {self._open_store.full_reason or 'no'}")

    def _capacity_command(self, free: str) -> None:
        """``capacity free=BYTES``: that many bytes are left on the disk."""
        self.volume.capacity_bytes = self.volume.used_bytes() + int(free)

    def _fail_sync_command(self) -> None:
        """The next sync of a file fails; as on Linux its pages are dropped."""
        self.volume.fail_next_sync()

    def _flip_command(self, name: str, offset: str) -> None:
        """``flip FILE OFFSET``: one bit of the medium changes."""
        self.volume.flip_bit(self._path(name), int(offset), 0)

    def _delete_command(self, name: str) -> None:
        """``delete FILE``: a file is lost."""
        self.volume.disk("setup").remove(self._path(name))

    def _path(self, name: str) -> str:
        return next(path for path in self.volume.paths() if _short(path) == name)

    # --- looking -------------------------------------------------------------------------------

    def _files_command(self) -> None:
        """Every file, and what ``understudy data verify`` says of it."""
        report = verify(self.volume.disk("reader"), DIRECTORY)
        segments = {each.file: each for each in report.segments}
        snapshots = {each.file: each for each in report.snapshots}
        for path in self.volume.paths():
            line = f"{_short(path)}: {len(self.volume.content(path))} bytes"
            if path in segments:
                each = segments[path]
                line += f", {each.state}, {each.records} records"
                line += f" ({each.first_sequence} to {each.last_sequence})" if each.records else ""
                line += f", {each.tail_bytes} bytes after them" if each.tail_bytes else ""
                line += "" if each.part_of_log else ", no part of the log"
            elif path in snapshots:
                found = snapshots[path]
                line += f", records up to {found.sequence}, {found.references} references"
                line += ", used by a start" if found.used else ""
            self._report(line)
        for problem in report.problems:
            self._report(f"problem: {_short(problem.file)} at {problem.offset}: {_short(problem.message)}")

    def _log_command(self) -> None:
        """Every record of the log."""
        for logged in read_log(self.volume.disk("reader"), DIRECTORY):
            frame = logged.frame
            place = f"segment {logged.number}, offset {frame.offset}"
            self._report(f"{frame.sequence}: {self._record(logged.record)} ({place})")

    def _record(self, record: Any) -> str:
        kind = type(record).__name__.removesuffix("Record")
        if isinstance(record, records.MessageRecord):
            text = f"{kind} {self._named(record.message_id)} in {self._all(record.queue_ids)}"
        elif isinstance(record, records.AcknowledgeRecord):
            text = f"{kind} {self._all(record.message_ids) or 'nothing'}"
        elif isinstance(record, records.EpochRecord):
            ends = "".join(f", segment {end.number} of epoch {end.epoch} ends at {end.end}" for end in record.ends)
            text = f"{kind} {record.epoch}{ends}"
        elif isinstance(record, records.SealRecord):
            text = f"{kind} of {record.count} records{', the node stopped cleanly' if record.closed else ''}"
        elif isinstance(record, records.MoveRecord):
            text = f"{kind} {self._named(record.message_id)} from segment {record.source_number}"
        elif isinstance(record, records.DropRecord):
            text = f"{kind} segments {', '.join(map(str, record.numbers))}"
        elif isinstance(record, records.SnapshotRecord):
            text = f"{kind} of the records up to {record.sequence}"
        else:
            text = kind
            for field in ("address_id", "queue_id", "message_id"):
                if hasattr(record, field):
                    text = f"{kind} {self._named(getattr(record, field))}"
        tx_id = getattr(record, "tx_id", 0)
        return f"{text} of {self._named(tx_id)}" if tx_id else text

    def _named(self, number: int) -> str:
        return self._names.get(number, f"id {number}")

    def _all(self, numbers: Sequence[int]) -> str:
        return ", ".join(map(self._named, numbers))

    def _recover_command(self) -> None:
        """Show the state that a node would recover now; nothing is written."""
        follower = self._follower(self.volume.disk("reader"))
        follower.finish()
        state = follower.state
        self._report(f"epoch {state.epoch}, records up to {state.sequence}")
        for queue_id, queue in state.queues.items():
            waiting = [
                self._named(reference.message_id)
                + (f" (delivered {reference.delivery_count} times)" if reference.delivery_count else "")
                for reference in (state.references[queue_id].references() if queue_id in state.references else ())
            ]
            shown = ", ".join(waiting) if len(waiting) < 10 else f"{waiting[0]} to {waiting[-1]}, {len(waiting)}"
            self._report(f"queue {queue.name}: {shown or 'empty'}")
        for address_id, ids in state.duplicate_ids.items():
            self._report(f"duplicate ids of {self._named(address_id)}: {b', '.join(ids).decode()}")
        for tx_id, transaction in state.transactions.items():
            if transaction.prepared:
                adds = ", ".join(self._named(reference.message_id) for _, reference in transaction.adds)
                acknowledged = ", ".join(self._named(message_id) for _, message_id in transaction.acknowledges)
                self._report(
                    f"prepared {self._named(tx_id)}: adds {adds or 'nothing'}, acknowledges {acknowledged or 'nothing'}"
                )
        follower.close()


def _short(text: str) -> str:
    """Paths and names of files without directories, leading zeros and ``.log``."""
    text = text.replace(f"{DIRECTORY}/", "")
    text = re.sub(r"\b(segment|snapshot)-0*(\d+)-0*(\d+)", r"\1-\2-\3", text)
    return re.sub(r"\.(log|snap)\b", "", text)
