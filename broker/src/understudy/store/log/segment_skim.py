"""Summary of a segment, collected from its bytes as they are written, so that the consolidator does not read it back.

Not here: the meaning of records (``skim``).
"""

from __future__ import annotations

from typing import Final

from understudy.kernel.log import skim_records
from understudy.kernel.log.skim import Step
from understudy.limits import SKIMMED_SEGMENT_BYTES_MAX
from understudy.store.log.records import SealRecord

#: Bytes of written records that are collected before they are looked at.
COLLECT_BYTES: Final = 64 * 1024
#: Memory of the objects of a step, of one of its groups and of one other entry, without their contents.
_STEP_BYTES: Final = 320
_GROUP_BYTES: Final = 310
_RECORD_BYTES: Final = 160


class Skim:
    """Summary of one segment, taken from its bytes as they are written."""

    def __init__(self, position: int) -> None:
        """``position``: offset in the file of the first record."""
        self._position = position
        self._parts: list[bytes] = []
        self._part_bytes = 0
        self.steps: list[Step] | None = []
        """The summary, once ``finish`` was called; None if that is too much to be kept."""
        self.kept_bytes = 0
        """Memory that the steps take, about."""
        self.seal: tuple[int, SealRecord] | None = None
        """Offset and content of the seal, without the offsets of the records."""

    def take(self, data: bytes, steps: list[Step] | None = None) -> None:
        """The next bytes of the segment, whole records, and their summary if it is known already."""
        if steps is not None:
            if self._parts:
                self.finish()
            self._add(steps)
            self._position += len(data)
            return
        if len(data) >= COLLECT_BYTES and self._parts:
            # views, so that the bytes are not copied
            self.finish()
        self._parts.append(data)
        self._part_bytes += len(data)
        if self._part_bytes >= COLLECT_BYTES:
            self.finish()

    def finish(self) -> None:
        """Process bytes that were taken and not processed yet."""
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._part_bytes = [], 0
        if self.steps is not None:
            _, _, steps = skim_records(data, self._position)
            self._add(steps)
        self._position += len(data)

    def _add(self, steps: list[Step]) -> None:
        if self.steps is None:
            return
        self.steps += steps
        self.kept_bytes += sum(map(_size, steps))
        if self.kept_bytes > SKIMMED_SEGMENT_BYTES_MAX:
            self.steps, self.kept_bytes = None, 0


def _size(step: Step) -> int:
    """Bytes of memory that a step takes, about. Most of it are the objects if a step has only few records."""
    groups, duplicates, others = step
    return (
        _STEP_BYTES
        + sum(_GROUP_BYTES + 40 * len(queue_ids) + 3 * len(ids) for _, queue_ids, _, ids, *_ in groups)
        + sum(_RECORD_BYTES + len(ids) for _, _, ids in duplicates)
        + sum(_RECORD_BYTES + len(each) for _, each in others)
    )
