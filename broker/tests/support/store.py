"""A store on a simulated volume with the model of its expected contents."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any
from zlib import crc32

from support.store_model import Model
from understudy.errors import DiskFull
from understudy.ids import NodeId
from understudy.message import LargeBody, LargeMessage, Message
from understudy.store.log.applier import Applier, LogFiles
from understudy.store.log.reading.follower import Follower
from understudy.store.log.reading.replay import read_frames
from understudy.store.log.records import AddressRecord, QueueRecord
from understudy.store.log.segment import SEGMENT_BYTES_MIN, seed_of, segment_name
from understudy.store.log.segment_pool import SegmentPool
from understudy.store.messages.message_store import MessageStore, StoreOwner
from understudy.store.setting_record import SettingKind, SettingRecord
from understudy.store.settings import StoreSettings
from understudy.testing.manual_time import ManualTime
from understudy.testing.sim.disk import SimDisk, SimVolume
from understudy.testing.sim.writer import SimLogWriter

NODE_ID = NodeId("0f1e2d3c-4b5a-4697-8897-a6b5c4d3e2f1")
DIRECTORY = "/store"


class Crashed(BaseException):
    """The simulated machine died in the middle of a disk operation."""


class StoreHarness:
    """Nodes that take turns on one volume, and the model of their operations."""

    applier_class = Applier
    """Tests of recorded operations replace it."""

    def __init__(
        self,
        stream: random.Random,
        *,
        segment_bytes: int = SEGMENT_BYTES_MIN,
        id_cache_size: int = 5,
        compact_segments_min: int = 0,
        compact_percent: int = 60,
        with_large: bool = False,
        with_settings: bool = False,
    ) -> None:
        """``with_large``: some messages are large, and routing's part is played: it holds and releases files.
        ``with_settings``: management adds and removes settings, too.
        """
        self.stream = stream
        self.with_large = with_large
        self.with_settings = with_settings
        self.files = LargeFiles(self)
        self.prepared: dict[int, tuple[list[tuple[int, int]], list[tuple[int, int]]]] = {}
        """References that prepared transactions have added and acknowledged."""
        self.volume = SimVolume()
        self.volume.disk("setup").make_directory(DIRECTORY)
        self.time = ManualTime()
        self.model = Model(id_cache_size)
        self.settings = StoreSettings(
            segment_bytes=segment_bytes,
            id_cache_size=id_cache_size,
            compact_segments_min=compact_segments_min,
            compact_percent=compact_percent,
        )
        self.store: MessageStore | None = None
        self.writer: SimLogWriter | None = None
        self.housekeeper: SimLogWriter | None = None
        self.failures: list[BaseException] = []
        self.owner = ""
        self.bodies: dict[int, bytes] = {}
        """Message id to the encoded message."""
        self.queue_ids: list[int] = []
        self.address_ids: list[int] = []
        self.live: list[tuple[int, int]] = []

    def disk(self, owner: str) -> SimDisk:
        return self.volume.disk(owner)

    def follower(self, owner: str) -> Follower:
        return Follower(self.disk(owner), DIRECTORY, id_cache_size=self.model.id_cache_size)

    def log_files(self, owner: str) -> LogFiles:
        """The files of the log as a node has them, with new writers."""
        pool = SegmentPool(self.disk(owner), DIRECTORY, self.settings.pool)
        applier = self.applier_class(self.disk(owner), DIRECTORY, self.settings.retention, pool=pool)
        self.writer = SimLogWriter(self.time, self.stream, applier)
        self.housekeeper = SimLogWriter(self.time, self.stream, applier)
        return LogFiles(applier, self.writer, self.housekeeper)

    def activate(self, owner: str, follower: Follower | None = None) -> MessageStore:
        """Another node takes over."""
        self.owner = owner
        self.failures = []
        self.store = MessageStore.activate(
            follower or self.follower(owner),
            files=self.log_files(owner),
            clock=self.time,
            node_id=NODE_ID,
            owner=StoreOwner(self.failures.append),
            settings=self.settings,
        )
        return self.store

    @property
    def idle(self) -> bool:
        """Nothing is being written or removed."""
        return all(writer is None or writer.idle for writer in (self.writer, self.housekeeper))

    def stop_writing(self) -> None:
        """The threads of the active node are dead."""
        for writer in (self.writer, self.housekeeper):
            if writer is not None:
                writer.kill()

    def crash_at(self, operations: int) -> None:
        """Raise Crashed at that changing disk operation from now."""
        left = [operations]

        def count(operation: str) -> None:
            left[0] -= 1
            if left[0] <= 0:
                raise Crashed(operation)

        self.volume.before_operation = count

    def die(self, *, power_loss: bool) -> None:
        """The active node is gone."""
        self.volume.before_operation = lambda operation: None
        self.stop_writing()
        self.volume.crash_process(self.owner)
        if power_loss and self.stream.random() < 0.5:
            self.volume.power_loss(self.stream, self.owner)
        elif power_loss:
            self.volume.lose_unsynced(self.stream)
        self.store = None

    def segments(self) -> list[str]:
        """Paths of the segments, in order of number."""
        return [path for path in self.volume.paths() if path.rsplit("/", 1)[1].startswith("segment-")]

    def sequences(self) -> list[int]:
        """Sequences of all records that the files of the log of the active store have, in its order."""
        assert self.store is not None
        disk = self.volume.copy().disk("judge")
        found: list[int] = []
        for number, use in self.store.state.segments.items():
            file = disk.open(f"{DIRECTORY}/{segment_name(number, use.epoch)}", read_only=True)
            frames = read_frames(file, seed_of(number, use.epoch), use.end or None)
            found += [frame.sequence for frame, _ in frames]
            file.close()
        return found

    # --- operations ---------------------------------------------------------------------------------

    def operate(self) -> None:
        """One random operation on the store and the model."""
        choices: list[tuple[int, Callable[[], None]]] = [
            (30, self.send),
            (20, self.acknowledge),
            (3, self.send_in_transaction),
            (2, self.count),
            (2, self.duplicate),
            (1, self.address),
            (2, self.queue),
            (1, self.remove_queue),
            (1, self.remove_address),
        ]
        if self.with_settings:
            choices.append((2, self.setting))
        if self.with_large:
            choices += [(4, self.send_large), (12, self.send_in_transaction), (2, self.decide)]
        (operation,) = self.stream.choices([choice for _, choice in choices], [weight for weight, _ in choices])
        operation()

    def address(self) -> None:
        assert self.store is not None
        record = AddressRecord(self.store.next_id(), f"a{self.stream.random()}", (0, 1), settings={"x": 1})
        self.model.add(self.store.store_address(record), "address", record)
        self.address_ids.append(record.address_id)

    def queue(self) -> None:
        assert self.store is not None
        if not self.address_ids:
            self.address()
        record = QueueRecord(
            self.store.next_id(), self.stream.choice(self.address_ids), f"q{self.stream.random()}", 1, "a = '\ud800'"
        )
        self.model.add(self.store.store_queue(record), "queue", record)
        self.queue_ids.append(record.queue_id)

    def setting(self) -> None:
        """Management adds, replaces or removes one of a few settings."""
        assert self.store is not None
        match = f"a.{self.stream.randrange(4)}"
        values = None if self.stream.random() < 0.3 else {"redeliveryDelay": self.stream.randrange(1000)}
        # a reader has a life of its own; a kind more would give every seed another history (a moved store and a client
        # session are stored like a moved branch)
        left_out = (SettingKind.READER, SettingKind.MOVED_STORE, SettingKind.CLIENT_SESSION)
        kinds = [kind for kind in SettingKind if kind not in left_out]
        record = SettingRecord(self.stream.choice(kinds), match, values)
        self.model.add(self.store.store_setting(record), "setting", record)

    def remove_queue(self) -> None:
        assert self.store is not None
        if len(self.queue_ids) > 2:
            queue_id = self.queue_ids.pop(self.stream.randrange(len(self.queue_ids)))
            self.model.add(self.store.delete_queue(queue_id), "queue-", queue_id)
            self.live = [entry for entry in self.live if entry[0] != queue_id]
            self.files.release([entry for entry in self.files.held if entry[0] == queue_id])
            self.prepared = {
                tx_id: ([e for e in added if e[0] != queue_id], [e for e in acknowledged if e[0] != queue_id])
                for tx_id, (added, acknowledged) in self.prepared.items()
            }

    def remove_address(self) -> None:
        assert self.store is not None
        if len(self.address_ids) > 2:
            address_id = self.address_ids.pop()
            self.model.add(self.store.delete_address(address_id), "address-", address_id)

    def send(self, tx_id: int = 0) -> list[tuple[int, int]]:
        if self.with_large and self.stream.random() < (0.3 if tx_id else 0.03):
            return self.send_large(tx_id)
        store, stream = self.store, self.stream
        assert store is not None
        if not self.queue_ids:
            self.queue()
        size = stream.choice((0, 10, 500, 3000, 20000) if stream.random() < 0.5 else (100,))
        body = stream.randbytes(size) if stream.random() < 0.7 else bytes(size)
        message = Message(body, address="x", priority=stream.randrange(10), expiration=stream.choice((0, 99)))
        message.assign_id(store.next_id())
        return self._send(message, tx_id, 0)

    def send_large(self, tx_id: int = 0) -> list[tuple[int, int]]:
        """A message with a file of its own, or, as a dead letter, with that of another."""
        assert self.store is not None
        if self.files.held and self.stream.random() < 0.3:
            entry = self.stream.choice(list(self.files.held))
            original = LargeMessage.decode(self.bodies[entry[1]])
            message = original.replace(message_id=self.store.next_id())
            return self._send(message, tx_id, self.files.held[entry])
        file_id = self.store.next_id()
        large = self.files.write(file_id)
        header = Message(b"", address="x", priority=self.stream.randrange(10))
        return self._send(LargeMessage.of(header, large, large.size_bytes), tx_id, file_id)

    def _send(self, message: Message, tx_id: int, file_id: int) -> list[tuple[int, int]]:
        store, stream = self.store, self.stream
        assert store is not None
        if not self.queue_ids:
            self.queue()
        queue_ids = tuple(stream.sample(self.queue_ids, min(len(self.queue_ids), stream.choice((1, 1, 1, 2, 3)))))
        duplicate_id = stream.randbytes(8) if stream.random() < 0.2 else b""
        scheduled_ms = stream.choice((0, 0, 123456))
        address_id = stream.choice(self.address_ids)
        try:
            store.store_message(
                message,
                address_id,
                queue_ids,
                tx_id=tx_id,
                duplicate_id=duplicate_id,
                scheduled_ms=scheduled_ms,
                large=file_id != 0,
            )
        except DiskFull:
            return []
        fields = (message.priority, message.expiration, scheduled_ms, message.encode_size, file_id)
        self.model.add(
            store.last_sequence, "message", tx_id, message.message_id, address_id, queue_ids, fields, duplicate_id
        )
        self.bodies[message.message_id] = message.encoded
        added = [(queue_id, message.message_id) for queue_id in queue_ids]
        if file_id:
            self.files.hold(added, file_id)
        if not tx_id:
            self.live += added
        return added

    def acknowledge(self, tx_id: int = 0) -> list[tuple[int, int]]:
        assert self.store is not None
        if not self.live:
            return []
        queue_id = self.stream.choice(self.live)[0]
        mine = [entry for entry in self.live if entry[0] == queue_id]
        taken = mine[: self.stream.choice((1, 2, len(mine)))]
        message_ids = [message_id for _, message_id in taken]
        self.store.store_acknowledges(queue_id, message_ids, tx_id)
        self.model.add(self.store.last_sequence, "acknowledge", tx_id, queue_id, tuple(message_ids))
        gone = set(taken)
        self.live = [entry for entry in self.live if entry not in gone]
        if not tx_id:
            self.files.release(taken)
        return taken

    def send_in_transaction(self) -> None:
        store, stream = self.store, self.stream
        assert store is not None
        tx_id = store.next_id()
        added, acknowledged = [], []
        for _ in range(stream.randrange(1, 4)):
            if stream.random() < 0.6:
                added += self.send(tx_id)
            else:
                acknowledged += self.acknowledge(tx_id)
        outcome = stream.choice(("commit", "commit", "rollback", "prepare", "open"))
        if outcome == "prepare":
            self.model.add(store.store_prepare(tx_id, b"xid"), "prepare", tx_id, b"xid")
            outcome = stream.choice(("commit", "rollback", "open"))
            if outcome == "open":
                self.prepared[tx_id] = (added, acknowledged)
        if outcome != "open":
            self._end(tx_id, outcome, added, acknowledged)

    def _end(self, tx_id: int, outcome: str, added: list[tuple[int, int]], acknowledged: list[tuple[int, int]]) -> None:
        assert self.store is not None
        if outcome == "commit":
            self.model.add(self.store.store_commit(tx_id), "commit", tx_id)
            self.live += added
            self.files.release(acknowledged)
        else:
            self.model.add(self.store.store_rollback(tx_id), "rollback", tx_id)
            self.live += acknowledged
            self.files.release(added)

    def decide(self) -> None:
        """The outcome of a transaction that was prepared before, perhaps by another node."""
        if self.prepared:
            tx_id = self.stream.choice(list(self.prepared))
            self._end(tx_id, self.stream.choice(("commit", "rollback")), *self.prepared.pop(tx_id))

    def count(self) -> None:
        assert self.store is not None
        if self.live:
            queue_id, message_id = self.stream.choice(self.live)
            count = self.stream.randrange(1, 5)
            not_before_ms = self.stream.choice((0, 0, 7_000_000_000_000 + message_id))
            self.store.store_delivery_count(queue_id, message_id, count, not_before_ms=not_before_ms)
            self.model.add(self.store.last_sequence, "count", queue_id, message_id, count, not_before_ms)

    def duplicate(self) -> None:
        assert self.store is not None
        if self.address_ids:
            address_id, duplicate_id = self.stream.choice(self.address_ids), self.stream.randbytes(5)
            self.store.store_duplicate_ids(address_id, [duplicate_id])
            self.model.add(self.store.last_sequence, "duplicate", 0, address_id, duplicate_id)

    def settle_log(self) -> None:
        """Some time for the disk, whatever it takes."""
        assert self.store is not None
        for _ in range(20):
            self.store.flush()
            self.time.advance(10)

    def settle(self, each_turn: Callable[[], object] = lambda: None) -> None:
        """Let everything that was appended become durable, and the consolidator finish."""
        assert self.store is not None
        for _ in range(2000):
            each_turn()
            self.store.flush()
            self.time.advance(10)
            if self.store.consolidating or self.store.backlog_bytes:
                continue
            if self.idle:
                return
        raise AssertionError("the store does not settle")

    def resume_from(self, contents: dict[str, Any]) -> None:
        """Continue with the recovered contents."""
        self.queue_ids = list(contents["queues"])
        self.address_ids = list(contents["addresses"])
        # what a prepared transaction has acknowledged is not ours to acknowledge again
        held = {entry for _, _, acknowledges in contents["prepared"].values() for entry in acknowledges}
        self.live = [
            (queue_id, message_id)
            for queue_id, messages in contents["messages"].items()
            for message_id in messages
            if queue_id in contents["queues"] and (queue_id, message_id) not in held
        ]
        self.prepared = {
            tx_id: (list(added), list(acknowledged)) for tx_id, (_, added, acknowledged) in contents["prepared"].items()
        }
        self.files.held = {
            (queue_id, message_id): file_id
            for queue_id, message_id in (
                *((queue_id, message_id) for queue_id, found in contents["messages"].items() for message_id in found),
                *(entry for _, added, _ in contents["prepared"].values() for entry in added),
            )
            if (file_id := self.files.of_message.get(message_id))
        }


class LargeFiles:
    """Bodies of large messages beside a rig's store, and the messages that need them, as routing would know."""

    def __init__(self, rig: StoreHarness) -> None:
        """None is needed yet."""
        self._rig = rig
        self.held: dict[tuple[int, int], int] = {}
        """Queue id and message id to the file id."""
        self.of_message: dict[int, int] = {}
        """Message id to the file id; never removed."""

    def write(self, file_id: int) -> LargeBody:
        """Whole on the medium before a record names it, as ``LargeMessages`` does it."""
        rig = self._rig
        assert rig.store is not None
        folder, disk = rig.store.large, rig.disk(rig.owner)
        disk.make_directory(folder.directory)
        body = rig.stream.randbytes(40)
        path = folder.path_of(file_id)
        file = disk.open(path + ".tmp", create=True)
        file.write(0, (body,))
        file.sync()
        file.close()
        disk.rename(path + ".tmp", path)
        disk.sync_directory(folder.directory)
        return LargeBody(file_id, len(body), crc32(body))

    def hold(self, entries: list[tuple[int, int]], file_id: int) -> None:
        """These references need the file.

        A broker copies a reference only from one it has, so the file is always present here. A rig that goes on after a
        restart with the references of transactions that the crash has ended (``resume_from`` was not called) would
        refer to a file that the activation has removed.
        """
        assert self._rig.store is not None
        assert file_id in self.present(), "a reference was copied from one that the store does not have any more"
        for entry in entries:
            self.held[entry] = file_id
            self.of_message[entry[1]] = file_id
            self._rig.store.large.hold(file_id)

    def release(self, entries: list[tuple[int, int]]) -> None:
        """These references are gone."""
        assert self._rig.store is not None
        for entry in entries:
            file_id = self.held.pop(entry, 0)
            if file_id:
                self._rig.store.large.release(file_id)

    def needed(self, contents: dict[str, Any]) -> Counter[int]:
        """File id to references, by the model's contents."""
        counts: Counter[int] = Counter()
        for messages in contents["messages"].values():
            counts.update(fields[4] for fields in messages.values() if fields[4])
        for _, added, _ in contents["prepared"].values():
            counts.update(self.of_message[message_id] for _, message_id in added if self.of_message.get(message_id))
        return counts

    def present(self) -> list[int]:
        """Ids of the files that are there."""
        prefix = f"{DIRECTORY}/large/"
        return sorted(
            int(path.removeprefix(prefix).removesuffix(".large"))
            for path in self._rig.volume.paths()
            if path.startswith(prefix) and path.endswith(".large")
        )
