"""Goal: the native thread writes batches of the log, reports each end once, and names the step that failed."""

from __future__ import annotations

import errno
import importlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.kernels import needs_native
from understudy.kernel.log.batches import DONE, SYNC, WRITE
from understudy.kernel.log.records import digest_records
from understudy.kernel.log.skim import skim_records
from understudy.store.log.records import RecordType
from understudy.store.log.segment import frame, seed_of

pytestmark = needs_native

SEED = seed_of(7, 2)
#: Only against a test that hangs.
GUARD_S = 60


def records(first: int, count: int) -> bytes:
    found = []
    for sequence in range(first, first + count):
        found += frame(RecordType.TX_COMMIT, 0, sequence, 4096, SEED, bytes(8), os.urandom(sequence % 50))
    return b"".join(found)


@pytest.fixture
def thread() -> Iterator[Any]:
    thread = importlib.import_module("understudy_kernel").batch_thread()
    yield thread
    thread.close()


def outcome(thread: Any) -> Any:
    assert select.select([thread.fileno()], [], [], GUARD_S)[0], "the end of the batch was not reported"
    return thread.take()


@pytest.mark.parametrize("by_thread", [False, True], ids=["on the calling thread", "on its own"])
@pytest.mark.parametrize("buffers", [1, 3, 2_500], ids=["one buffer", "some", "more than one call takes"])
def test_bytes_digest_and_summary_are_those_of_python(
    tmp_path: Path, thread: Any, by_thread: bool, buffers: int
) -> None:
    parts = [records(1 + 3 * index, 3) for index in range(buffers)]
    descriptor = os.open(tmp_path / "segment", os.O_RDWR | os.O_CREAT)
    batch = (4096, parts, b"\0" * 24, True, 99, SEED, len(parts[-1]))
    if by_thread:
        thread.submit(descriptor, batch)
        failed, number, digest, skimmed, took_ns = outcome(thread)
    else:
        failed, number, digest, skimmed, took_ns = thread.execute(descriptor, batch)
    assert (failed, number) == (DONE, 0)
    assert took_ns > 0
    whole = b"".join(parts)
    assert (tmp_path / "segment").read_bytes() == bytes(4096) + whole + bytes(24)
    assert digest == digest_records(whole, 99, SEED)
    offset = 4096
    for data, steps in zip(parts, skimmed, strict=True):
        assert steps == (skim_records(data, offset)[2] if len(data) >= len(parts[-1]) else None)
        offset += len(data)
    os.close(descriptor)


def test_batches_end_in_order_and_each_is_reported_once(tmp_path: Path, thread: Any) -> None:
    descriptor = os.open(tmp_path / "segment", os.O_RDWR | os.O_CREAT)
    assert thread.take() is None
    for index in range(100):
        thread.submit(descriptor, (4 * index, [b"%04d" % index], b"", index % 10 == 0, index, SEED, None))
    thread.close()
    ended = []
    while len(ended) < 100:
        ended.append(outcome(thread)[0])
    assert thread.take() is None
    assert ended == [DONE] * 100
    assert (tmp_path / "segment").read_bytes() == b"".join(b"%04d" % index for index in range(100))
    with pytest.raises(ValueError, match="was closed"):
        thread.submit(descriptor, (0, [b""], b"", False, 0, SEED, None))
    os.close(descriptor)


@pytest.mark.parametrize(
    ("path", "step", "number"),
    [("/dev/full", WRITE, errno.ENOSPC), ("/dev/null", SYNC, errno.EINVAL)],
    ids=["a full disk", "a sync that fails"],
)
def test_the_step_that_failed_and_its_error(thread: Any, path: str, step: int, number: int) -> None:
    descriptor = os.open(path, os.O_RDWR)
    data = records(1, 2)
    thread.submit(descriptor, (0, [data], b"", True, 5, SEED, None))
    failed, found, digest, skimmed, _ = outcome(thread)
    assert (failed, found) == (step, number)
    # written bytes count for the digest, although they may not be durable
    assert digest == (5 if step == WRITE else digest_records(data, 5, SEED))
    assert skimmed == ([] if step == WRITE else [None])
    assert thread.execute(descriptor, (0, [data], b"", True, 5, SEED, None))[:2] == (step, number)
    os.close(descriptor)


def test_a_closed_descriptor_is_an_error_of_the_write(thread: Any) -> None:
    assert thread.execute(-1, (0, [b"x"], b"", True, 0, SEED, None))[:2] == (WRITE, errno.EBADF)


def test_a_short_write_is_continued_until_the_disk_refuses(tmp_path: Path) -> None:
    """The first call writes a part, up to the limit; the second one meets it."""
    program = (
        "import os, resource, signal, understudy_kernel as kernel\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        f"descriptor = os.open({str(tmp_path / 'f')!r}, os.O_RDWR | os.O_CREAT)\n"
        "print(kernel.batch_thread().execute(descriptor, (0, [b'x' * 60, b'y' * 60], b'', True, 0, 0, None))[:2])\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str((WRITE, errno.EFBIG))
    assert (tmp_path / "f").read_bytes() == b"x" * 60 + b"y" * 40


def test_a_batch_whose_offsets_are_too_large_is_an_error_of_the_program(tmp_path: Path, thread: Any) -> None:
    descriptor = os.open(tmp_path / "segment", os.O_RDWR | os.O_CREAT)
    with pytest.raises(OverflowError):
        thread.execute(descriptor, (2**32, [records(1, 1)], b"", False, 0, SEED, 0))
    os.close(descriptor)
