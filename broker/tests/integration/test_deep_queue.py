"""A real broker whose queue is far deeper than its memory: bounded, complete, in order.

Goal: resident memory does not follow the number of waiting messages. Method: the soak benchmark
with fewer messages and a small ``max-size-bytes``; it checks order and completeness itself.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks.soak import measure
from support import forked
from support.processes import COMMAND, Pair

MIB = 1024 * 1024


def load(command: str, pair: Pair, queue: str, *options: str) -> None:
    """Send or receive 20,000 messages."""
    arguments = [str(COMMAND), command, "--url", pair.url, "--queue", queue, "--count", "20000", *options]
    forked.run(arguments, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("count", "max_size_bytes", "growth_mib"),
    [
        (100_000, 2 * MIB, 35),
        pytest.param(500_000, 16 * MIB, 70, marks=pytest.mark.long),
    ],
)
def test_memory_does_not_follow_the_depth(tmp_path: Path, count: int, max_size_bytes: int, growth_mib: int) -> None:
    figures = measure(tmp_path, count, max_size_bytes)
    assert figures.spilled > count // 2
    assert figures.memory_bytes <= max_size_bytes
    assert figures.peak_mib - figures.idle_mib < growth_mib, figures


@pytest.mark.long
def test_a_takeover_drops_page_files_and_keeps_durable_messages(tmp_path: Path) -> None:
    settings = (
        "<address-settings><address-setting match='#'><max-size-bytes>0</max-size-bytes>"
        "</address-setting></address-settings>"
    )
    pair = Pair(tmp_path, extra=settings)
    try:
        pair.start()
        load("produce", pair, "kept", "--size", "100")
        load("produce", pair, "lost", "--size", "100", "--non-durable")
        paging = pair.store / "paging"
        before = {path.name for path in paging.iterdir()}
        assert before
        pair.backup.wait_ready("passive")
        pair.primary.kill()
        pair.backup.wait_ready("active")
        load("consume", pair, "kept", "--idle-timeout", "60")
        counts = {name: pair.backup.queue(name) for name in ("kept", "lost")}
        assert all(queue is None or queue["message_count"] == 0 for queue in counts.values()), counts
        deadline = time.monotonic() + 60
        while before & {path.name for path in paging.iterdir()}:
            assert time.monotonic() < deadline, "page files of the other node are still there"
            time.sleep(0.1)
    finally:
        pair.end()
