"""Goal: a take-over makes few system calls on the store before it serves; each is one request or several on a network
file system.

Method: the active node is a process that is killed, the node that takes over runs in this process, where the calls of
its thread can be counted. Calls by a path cost a request more for each directory below the mount.
``simulation/test_take_over_requests.py`` counts what the node asks of its disk. docs/build/reliability.md has the
figures.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.faulty_disk import start_node
from support.processes import Pair
from understudy.ha.life.node import NodeLife
from understudy.runtime.base.disk import RealDisk
from understudy.runtime.net.acceptor import Acceptor
from understudy.store.node_lock import NodeLock

#: Calls with a path, or with a descriptor of a directory and a name.
BY_NAME = ("open", "stat", "listdir", "mkdir", "rename", "unlink", "utime", "statvfs", "makedirs")
BY_DESCRIPTOR = ("fstat", "pread", "pwrite", "pwritev", "lseek", "fdatasync", "fsync", "posix_fallocate", "ftruncate")
#: From the activation to the listening socket, the tail of the log being empty; without those that read and those that
#: prove the lock. Before, while the node waits for the end of the last proof of the former one (ADR 0113), it looks at
#: the log as often as the time allows.
CALLS_MAX = 24
#: Of these: by a path from the root.
PATHS_MAX = 2
#: Of ``pread`` and ``lseek``. Here 14; more where the file system does not know which blocks were written.
READS_MAX = 40


class Calls:
    """The system calls of the main thread on a store, from the activation of the node to the first acceptor."""

    def __init__(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        self.paths: list[str] = []
        self._store = str(store)
        self._counting = False
        self._proving = False
        for name in (*BY_NAME, *BY_DESCRIPTOR):
            monkeypatch.setattr(os, name, self._counted(name, getattr(os, name)))
        monkeypatch.setattr(NodeLock, "lost", self._proved(NodeLock.lost))
        monkeypatch.setattr(NodeLife, "activate", self._activating(NodeLife.activate))
        monkeypatch.setattr(Acceptor, "open", self._served(Acceptor.open))

    def _place(self, subject: object) -> str:
        if isinstance(subject, int):
            return os.readlink(f"/proc/self/fd/{subject}")
        return str(subject)

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def count(subject: object, *arguments: Any, **options: Any) -> Any:
            if self._counting and not self._proving and threading.current_thread() is threading.main_thread():
                base = next((options[key] for key in ("dir_fd", "src_dir_fd") if options.get(key) is not None), None)
                place = self._place(subject if base is None else base)
                if place.startswith(self._store):
                    self.counts[name] += 1
                    if base is None and isinstance(subject, str):
                        self.paths.append(f"{name} {subject}")
            return call(subject, *arguments, **options)

        return count

    def _activating(self, call: Callable[[NodeLife], None]) -> Callable[[NodeLife], None]:
        def activate(life: NodeLife) -> None:
            self._counting = True
            call(life)

        return activate

    def _proved(self, call: Callable[[NodeLock], str | None]) -> Callable[[NodeLock], str | None]:
        """Leave out the proofs of the lock: their number depends on the time that a take-over needs."""

        def prove(lock: NodeLock) -> str | None:
            self._proving = True
            try:
                return call(lock)
            finally:
                self._proving = False

        return prove

    def _served(self, call: Callable[[Acceptor], Any]) -> Callable[[Acceptor], Any]:
        def serve(acceptor: Acceptor) -> Any:
            self._counting = False
            return call(acceptor)

        return serve


def test_a_take_over_makes_few_calls_on_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(tmp_path)

    async def story() -> Calls:
        node = await start_node(pair.backup, RealDisk(), "passive")
        while node.standby.announced_to is None or node.standby.follower is None or not node.standby.follower.caught_up:
            await asyncio.sleep(0.01)
        calls = Calls(pair.store, monkeypatch)
        pair.primary.kill()
        assert await node.wait_for("active", "stopped") == "active"
        await node.stop()
        return calls

    try:
        pair.primary.start().wait_ready("active")
        calls = asyncio.run(story())
    finally:
        pair.end()
    reads = calls.counts["pread"] + calls.counts["lseek"]
    assert 20 < calls.counts.total() - reads <= CALLS_MAX, calls.counts
    assert reads <= READS_MAX, calls.counts
    assert len(calls.paths) <= PATHS_MAX, calls.paths
    # the commit of the activation is one of them (ADR 0112)
    assert calls.counts["fdatasync"] == 2, calls.counts
    assert not calls.counts["unlink"], calls.counts
    assert not calls.counts["ftruncate"], calls.counts
