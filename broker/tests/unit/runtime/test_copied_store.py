"""``TargetCopy``: the end of a copy."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from support.replication import BODIES, ReplicatedHarness
from support.store import DIRECTORY, NODE_ID
from understudy.runtime.base.disk import RealDisk
from understudy.runtime.replica.copied_store import TargetCopy
from understudy.runtime.replica.runner import WorkerRunner
from understudy.store.replication.copy_messages import CopyIdentity, decode_message, encode_message
from understudy.store.replication.copy_source import CopySource, SourceState
from understudy.store.replication.store_files import StoreDirectories
from understudy.wire.core.packets_replication import REPLICATION_PROTOCOL

Done = Callable[[BaseException | None], None]


class OneWorker:
    """Runs a job when the test says so. Implements ``ports.Worker``."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], None], Done]] = []

    def run(self, work: Callable[[], None], done: Done) -> None:
        self.jobs.append((work, done))

    def step(self) -> bool:
        if not self.jobs:
            return False
        work, done = self.jobs.pop(0)
        work()
        done(None)
        return True


class Backup:
    """A passive node around its copy. Implements ``TargetOwner``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.worker = OneWorker()
        self.sent: list[bytes] = []
        self.notes: list[Done] = []
        """Writes of the activation sequence that are under way."""
        node: Any = SimpleNamespace(
            environment=SimpleNamespace(disk=RealDisk(), replica_runner=lambda worker, executor: WorkerRunner(worker)),
            turn=None,
            configuration=SimpleNamespace(
                current=SimpleNamespace(
                    journal_directory=f"{directory}/journal", large_messages_directory=f"{directory}/large"
                )
            ),
            watch=SimpleNamespace(forget=lambda: None),
            lock=SimpleNamespace(adopt=lambda node_id: None),
        )
        local: Any = SimpleNamespace(write=lambda value, done: self.notes.append(done))
        self.copy = TargetCopy(node, self.worker, local, 2, self)

    def open_files(self) -> list[str]:
        """Files of the copy that this process has open."""
        files = []
        for number in os.listdir("/proc/self/fd"):
            try:
                files.append(os.readlink(f"/proc/self/fd/{number}"))
            except FileNotFoundError:  # that of this listing
                continue
        return [each for each in files if each.startswith(f"{self.directory}/") and os.path.isfile(each)]

    def copy_send(self, data: bytes) -> None:
        self.sent.append(data)

    def copied(self) -> None: ...

    def copy_failed(self, error: object) -> None:
        raise AssertionError(error)

    def progress(self, durable: int) -> None: ...


def test_a_copy_that_ends_before_it_is_noted_leaves_no_file_open(tmp_path: Path) -> None:
    rig = ReplicatedHarness(random.Random(3))
    rig.activate("active")
    rig.act(40)
    rig.rest()
    assert rig.store is not None
    backup = Backup(tmp_path)
    directories = StoreDirectories(rig.disk("active"), DIRECTORY, BODIES)
    source = CopySource(directories, rig.log, rig.bodies_applier, rig.store.epoch)
    backup.copy.begin(REPLICATION_PROTOCOL)
    while not backup.notes:
        moved = backup.worker.step()
        while backup.sent:
            source.receive(decode_message(backup.sent.pop(0)))
        if source.wants_step:
            moved = True
            for message in source.step():
                backup.copy.receive(b"".join(encode_message(message)))
        if source.state is SourceState.LITTLE_LEFT:
            source.freeze(rig.store.context.durable, CopyIdentity(NODE_ID, rig.store.epoch, 5, "a", 0))
        assert moved
    assert backup.open_files()
    ended: list[bool] = []
    backup.copy.end(lambda: ended.append(True))
    while backup.worker.step():
        pass
    assert ended == [True]
    assert backup.open_files() == []
