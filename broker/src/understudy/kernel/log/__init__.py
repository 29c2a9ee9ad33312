"""Functions for the records of the log (docs/build/journal-format.md), native or in Python, which ``kernel`` chose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy.kernel import ACTIVE
from understudy.kernel.log.batches import DONE, SYNC, WRITE, Batch, Outcome
from understudy.kernel.log.runs import QUEUE_ID_BYTES, RECORD_HEAD_BYTES, LogPosition, SendsPart

if TYPE_CHECKING or ACTIVE == "python":
    from understudy.kernel.log.batches import batch_thread
    from understudy.kernel.log.crc import crc32, crc32_combine
    from understudy.kernel.log.records import digest_records, scan
    from understudy.kernel.log.references import (
        live_references,
        pack_references,
        plain_references,
        reference_blocks,
        unseen_bytes,
    )
    from understudy.kernel.log.runs import (
        Run,
        acknowledge_record,
        append_duplicate_ids,
        append_sends,
        join_runs,
        keep_sends,
    )
    from understudy.kernel.log.search import find_record
    from understudy.kernel.log.skim import skim_records
    from understudy.kernel.log.stored import bare_run, read_run, run_columns
    from understudy.kernel.log.values import run_values
else:
    from understudy_kernel import (
        Run,
        acknowledge_record,
        append_duplicate_ids,
        append_sends,
        bare_run,
        batch_thread,
        crc32,
        crc32_combine,
        digest_records,
        find_record,
        join_runs,
        keep_sends,
        live_references,
        pack_references,
        plain_references,
        read_run,
        reference_blocks,
        run_columns,
        run_values,
        scan,
        skim_records,
        unseen_bytes,
    )

__all__ = [
    "DONE",
    "QUEUE_ID_BYTES",
    "RECORD_HEAD_BYTES",
    "SYNC",
    "WRITE",
    "Batch",
    "LogPosition",
    "Outcome",
    "Run",
    "SendsPart",
    "acknowledge_record",
    "append_duplicate_ids",
    "append_sends",
    "bare_run",
    "batch_thread",
    "crc32",
    "crc32_combine",
    "digest_records",
    "find_record",
    "join_runs",
    "keep_sends",
    "live_references",
    "pack_references",
    "plain_references",
    "read_run",
    "reference_blocks",
    "run_columns",
    "run_values",
    "scan",
    "skim_records",
    "unseen_bytes",
]
