"""Results of the native thread that writes batches of the log (ADR 0197).

Python has no such thread: there the log writer executes batches through the disk port, on its own thread. A test
compares the files, digests and summaries of both ways.
"""

from __future__ import annotations

from typing import Any

from understudy.kernel.log.skim import Step

#: Steps of a batch in ``Outcome``: nothing failed, or that step did.
DONE, WRITE, SYNC = 0, 1, 2

Batch = tuple[int, list[bytes], bytes, bool, int, int, int | None]
"""Offset in the file; buffers of whole records, written one after the other; bytes after them, in the same write, that
count for nothing else; whether the file is synced; digest of the segment before; seed of its records; length from which
on buffers are summarised (None: none is).
"""
Outcome = tuple[int, int, int, list[list[Step] | None], int]
"""Failed step, its ``errno``, digest of the segment with the written bytes, summary of each written buffer (None: not
wanted), nanoseconds that it took.
"""


def batch_thread() -> Any:
    """Start a thread for batches, a ``ports.BatchThread``; None: this kernel has none.

    Raises:
        OSError: The process has no descriptor or no thread left.
    """
    return None
