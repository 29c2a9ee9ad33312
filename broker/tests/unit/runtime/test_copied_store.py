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
from understudy.ids import NodeId
from understudy.replication.replica_link import Accepted
from understudy.runtime.base.disk import RealDisk
from understudy.runtime.replica.copied_store import TargetCopy
from understudy.runtime.replica.runner import WorkerRunner
from understudy.store.replication.copy_messages import CopyIdentity, decode_message, encode_message
from understudy.store.replication.copy_source import CopySource, SourceState
from understudy.store.replication.replica_state import ReplicaStatus, read_replica_state
from understudy.store.replication.store_files import StoreDirectories
from understudy.store.settings import StoreSettings
from understudy.wire.core.packets_replication import REPLICATION_PROTOCOL

Done = Callable[[BaseException | None], None]


class OneWorker:
    """Runs a job when the test says so. Implements ``ports.Worker``."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], None], Done]] = []

    def run(self, work: Callable[[], None], done: Done) -> None:
        self.jobs.append((work, done))

    def step(self, before_done: Callable[[], None] = lambda: None) -> bool:
        if not self.jobs:
            return False
        work, done = self.jobs.pop(0)
        work()
        before_done()
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
        self.adopted: list[NodeId] = []
        """Node ids that the node has taken."""
        node: Any = SimpleNamespace(
            environment=SimpleNamespace(disk=RealDisk(), replica_runner=lambda worker, executor: WorkerRunner(worker)),
            turn=None,
            configuration=SimpleNamespace(
                current=SimpleNamespace(
                    journal_directory=f"{directory}/journal", large_messages_directory=f"{directory}/large"
                ),
                store_settings=StoreSettings,
            ),
            watch=SimpleNamespace(forget=lambda: None),
            lock=SimpleNamespace(adopt=self.adopted.append),
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


def copy_until(backup: Backup, is_over: Callable[[], bool], *, after_work: Callable[[], None] = lambda: None) -> None:
    """Copy the store of an active node.

    Args:
        after_work: Called after each step of the backup, before its result is known to the loop.
    """
    rig = ReplicatedHarness(random.Random(3))
    rig.activate("active")
    rig.act(40)
    rig.rest()
    assert rig.store is not None
    directories = StoreDirectories(rig.disk("active"), DIRECTORY, BODIES)
    source = CopySource(directories, rig.log, rig.bodies_applier, rig.store.epoch)
    backup.copy.begin(Accepted(REPLICATION_PROTOCOL, NODE_ID, 3))
    while not is_over():
        moved = backup.worker.step(after_work)
        while backup.sent:
            source.receive(decode_message(backup.sent.pop(0)))
        if source.wants_step:
            moved = True
            for message in source.step():
                backup.copy.receive(b"".join(encode_message(message)))
        if source.state is SourceState.LITTLE_LEFT:
            source.freeze(rig.store.context.durable, CopyIdentity(NODE_ID, rig.store.epoch, 5, "a", 0))
        assert moved


def test_a_copy_that_ends_before_it_is_noted_leaves_no_file_open(tmp_path: Path) -> None:
    backup = Backup(tmp_path)
    copy_until(backup, lambda: bool(backup.notes))
    assert backup.open_files()
    ended: list[bool] = []
    backup.copy.end(lambda: ended.append(True))
    while backup.worker.step():
        pass
    assert ended == [True]
    assert backup.open_files() == []


def test_a_copy_that_ends_while_its_last_step_runs_gives_the_node_its_node_id(tmp_path: Path) -> None:
    """Without it the node states another node id than that of its data until it is started again, and the node that was
    active last does not recognise its replica (ADR 0064).
    """
    backup = Backup(tmp_path)
    ended: list[bool] = []

    def end_if_complete() -> None:
        if not ended and read_replica_state(RealDisk(), f"{tmp_path}/journal").status is ReplicaStatus.IN_SYNC:
            backup.copy.end(lambda: ended.append(True))

    copy_until(backup, lambda: bool(ended), after_work=end_if_complete)
    assert backup.notes == [], "the copy ended after its last step"
    assert backup.adopted == [NODE_ID]
    assert backup.open_files() == []
