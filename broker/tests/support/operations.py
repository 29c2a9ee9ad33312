"""Operations on single files, for tests of log writers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from understudy.ports import Operation
from understudy.store.log.operations import Append, SyncFile


class Written(Protocol):
    """The calls of a file that a batch makes."""

    def write(self, offset: int, buffers: Sequence[bytes]) -> None: ...

    def sync(self) -> None: ...


class FileApplier:
    """Executes batches on one file, whatever its name. Implements ``ports.OperationApplier``."""

    def __init__(self, file: Written | None = None) -> None:
        self.file = file

    def begin_batch(self, operations: Sequence[Operation]) -> None:
        """Leave the batch to ``apply``."""

    def apply(self, operations: Sequence[Operation]) -> None:
        assert self.file is not None
        for operation in operations:
            if isinstance(operation, Append):
                self.file.write(operation.offset, operation.parts)
            else:
                assert isinstance(operation, SyncFile)
                self.file.sync()


def batch(*parts: bytes) -> list[Operation]:
    """A batch at the beginning of a file, which is synced."""
    return [Append("segment", 0, parts, sum(map(len, parts)), 1), SyncFile("segment")]
