"""A log writer without a thread, for offline tools."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from understudy.errors import StoreError
from understudy.ports import Disk, Operation, OperationApplier
from understudy.store.log.applier import Applier, LogFiles
from understudy.store.retention import RetentionSettings

_Done = Callable[[BaseException | None], None]


class StepWriter:
    """A ``LogWriter`` without a thread: work is done by ``drain``, one piece after the other."""

    def __init__(self, applier: OperationApplier) -> None:
        """Nothing to do; the applier executes the operations."""
        self._applier = applier
        self._jobs: deque[tuple[Callable[[], None], _Done]] = deque()

    def submit(self, operations: Sequence[Operation], done: _Done) -> None:
        """See ``ports.LogWriter``; carried out by ``drain``."""
        self._jobs.append((partial(self._applier.apply, operations), done))

    def run(self, work: Callable[[], None], done: _Done) -> None:
        """See ``ports.LogWriter``; carried out by ``drain``."""
        self._jobs.append((work, done))

    def close(self) -> None:
        """Nothing is waiting that would not be done."""

    def drain(self) -> bool:
        """Do everything that was submitted, and what follows from it; whether there was anything."""
        did = bool(self._jobs)
        while self._jobs:
            work, done = self._jobs.popleft()
            error: BaseException | None = None
            try:
                work()
            except (StoreError, OSError) as failure:
                error = failure
            done(error)
        return did


def stepped(disk: Disk, directory: str, retention: RetentionSettings | None = None) -> tuple[LogFiles, StepWriter]:
    """The files of a directory, and the one writer that changes them.

    Args:
        disk: Where the directory is, writable.
        directory: Absolute path.
        retention: Where removed files go; None: they are removed.
    """
    applier = Applier(disk, directory, retention)
    writer = StepWriter(applier)
    return LogFiles(applier, writer, writer), writer
