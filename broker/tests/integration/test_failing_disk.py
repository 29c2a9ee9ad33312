"""A disk that says no: nothing it did not keep is confirmed or served, it is never asked twice, and the node stops.

Method: a whole node in this process, on the real disk with faults injected below it; and a real process whose writes
the kernel refuses.
"""

from __future__ import annotations

import asyncio
import resource
import subprocess
import threading
import time
from pathlib import Path

import pytest

from support.faulty_disk import FaultyDisk, start_node
from support.processes import COMMAND, Pair
from understudy.client import aio
from understudy.config.model import CriticalAnalyzerPolicy
from understudy.errors import BrokerError, DiskFailed, JournalCorrupt, LockLost
from understudy.ha import shared_store
from understudy.runtime.critical_analyzer import CriticalAnalyzer
from understudy.runtime.journal_writer import AT_ONCE_BYTES_MAX

SHALLOW = """
    <address-settings>
      <address-setting match="#"><max-size-bytes>1024</max-size-bytes></address-setting>
    </address-settings>
"""


def in_journal(path: str) -> bool:
    return "/journal/segment-" in path


@pytest.mark.parametrize("body_bytes", [10, 2 * AT_ONCE_BYTES_MAX], ids=["on the loop", "in the thread"])
def test_a_sync_that_hung_while_somebody_took_over_confirms_nothing(
    tmp_path: Path, body_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what hangs can be seen from outside, wherever it does."""
    monkeypatch.setattr(shared_store, "LOCK_PROOF_MS", 100)
    pair = Pair(tmp_path)

    async def main() -> None:
        disk = FaultyDisk()
        node = await start_node(pair.primary, disk)
        connection = await aio.connect(f"tcp://127.0.0.1:{pair.primary.port}?reconnectAttempts=0&callTimeout=5000")
        producer = await (await connection.session()).producer("q")
        for _ in range(40):  # until the disk counts as quick
            await producer.send(b"confirmed")
        analyzer = CriticalAnalyzer(
            node.environment.critical_paths, CriticalAnalyzerPolicy.LOG, timeout_ms=100, shut_down=print
        )
        stuck: list[str] = []
        disk.hits, disk.answers = in_journal, threading.Event()

        def answer() -> None:
            stuck.extend(analyzer.stuck(time.monotonic_ns()))
            node.lock.lost = lambda: "another node has activated"  # type: ignore[method-assign]
            assert disk.answers is not None
            disk.answers.set()

        threading.Timer(0.4, answer).start()
        with pytest.raises(BrokerError):
            await asyncio.wait_for(producer.send(bytes(body_bytes)), 20)
        assert isinstance(await asyncio.wait_for(node.wait_ended(), 20), LockLost)
        assert stuck == ["writer 1 of the store"]
        await connection.close()

    asyncio.run(main())


async def bodies_of(url: str, queue: str) -> list[bytes]:
    async with await aio.connect(url) as connection:
        session = await connection.session()
        consumer = await session.consumer(queue)
        session.start()
        found = []
        while (received := await consumer.receive(1)) is not None:
            found.append(received.message.body)
        return found


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_failed_write_or_sync_is_the_end_and_is_not_tried_again(tmp_path: Path, operation: str) -> None:
    pair = Pair(tmp_path)
    url = f"tcp://127.0.0.1:{pair.primary.port}"

    async def main() -> None:
        disk = FaultyDisk()
        node = await start_node(pair.primary, disk)
        connection = await aio.connect(f"{url}?reconnectAttempts=0&callTimeout=5000")
        producer = await (await connection.session()).producer("q")
        await producer.send(b"confirmed")
        disk.hits, disk.fails = in_journal, frozenset({operation})
        with pytest.raises(BrokerError):
            await asyncio.wait_for(producer.send(b"not confirmed"), 20)
        error = await asyncio.wait_for(node.wait_ended(), 20)
        assert isinstance(error, DiskFailed)
        assert "/journal/segment-" in str(error)
        assert node.state == "stopped"
        failed = [call for call in disk.calls if call[0] == operation]
        assert len(failed) == 1, disk.calls
        # and nothing else was written behind it
        assert disk.calls.index(failed[0]) == len([call for call in disk.calls if call[0] != "read"]) - 1
        await connection.close()

        healthy = FaultyDisk()
        again = await start_node(pair.primary, healthy)
        found = await bodies_of(url, "q")
        assert found[0] == b"confirmed"
        assert set(found[1:]) <= {b"not confirmed"}
        await again.stop()

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("damage", ["unreadable", "flipped"])
def test_a_message_that_cannot_be_read_back_is_never_served(tmp_path: Path, damage: str) -> None:
    """The body is in the log only, as its address has no room for it in memory."""
    pair = Pair(tmp_path, extra=SHALLOW)
    url = f"tcp://127.0.0.1:{pair.primary.port}"

    async def main() -> None:
        disk = FaultyDisk()
        node = await start_node(pair.primary, disk)
        async with await aio.connect(url) as connection:
            producer = await (await connection.session()).producer("q")
            for number in range(20):
                await producer.send(b"%03d" % number * 300)
        if damage == "unreadable":
            disk.hits, disk.fails = in_journal, frozenset({"read"})
        else:
            (segment,) = (
                path for path in (pair.store / "journal").glob("segment-*") if b"019" * 300 in path.read_bytes()
            )
            content = segment.read_bytes()
            with segment.open("r+b") as file:
                file.seek(content.index(b"010" * 300) + 50)
                file.write(b"X")
        connection = await aio.connect(f"{url}?reconnectAttempts=0")
        session = await connection.session()
        consumer = await session.consumer("q")
        session.start()
        found = []
        try:
            while (received := await consumer.receive(5)) is not None:
                found.append(received.message.body)
        except BrokerError:
            pass
        error = await asyncio.wait_for(node.wait_ended(), 20)
        assert isinstance(error, DiskFailed if damage == "unreadable" else JournalCorrupt)
        assert "segment-" in str(error)
        assert found == [b"%03d" % number * 300 for number in range(len(found))]
        assert len(found) <= 10
        await connection.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_passive_node_survives_a_disk_it_cannot_read_for_a_while(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    url = f"tcp://127.0.0.1:{pair.primary.port}"

    async def main() -> None:
        disk = FaultyDisk()
        active = await start_node(pair.primary, FaultyDisk())
        passive = await start_node(pair.backup, disk, "passive")
        disk.hits, disk.fails = in_journal, frozenset({"read"})
        async with await aio.connect(url) as connection:
            producer = await (await connection.session()).producer("q")
            await producer.send(b"while the other could not read")
        while passive.following_error is None:
            await asyncio.sleep(0.01)
        assert passive.state == "passive"
        disk.fails = frozenset()
        while passive.following_error is not None:
            await asyncio.sleep(0.01)
        await active.stop(failover=True)
        assert await passive.wait_for("active", "stopped") == "active"
        assert await bodies_of(f"tcp://127.0.0.1:{pair.backup.port}", "q") == [b"while the other could not read"]
        await passive.stop()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_process_whose_writes_the_kernel_refuses_stops_and_loses_nothing(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    node = pair.primary
    url = f"tcp://127.0.0.1:{node.port}"
    try:
        node.start().wait_ready("active")
        ledger = tmp_path / "ledger.jsonl"
        with (tmp_path / "producer").open("wb") as output:
            producing = subprocess.Popen(
                [str(COMMAND), "produce", "--url", f"{url}?reconnectAttempts=0&callTimeout=5000", "--queue", "q",
                 "--count", "1000000", "--rate", "2000", "--ledger", str(ledger)],
                stdout=output, stderr=output,
            )  # fmt: skip
        while not ledger.exists() or ledger.read_text().count('"CONFIRMED"') < 1_000:
            assert producing.poll() is None
            time.sleep(0.01)
        assert node.process is not None
        # no write may reach beyond the first byte of a file any more: each fails with EFBIG
        resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (1, 1))
        assert node.process.wait(30) == 1
        assert producing.wait(30) != 0
        confirmed = ledger.read_text().count('"CONFIRMED"')
        node.start().wait_ready("active")
        consumed = tmp_path / "consumed.jsonl"
        out = subprocess.run(
            [str(COMMAND), "consume", "--url", url, "--queue", "q", "--idle-timeout", "2", "--ledger", str(consumed),
             "--json"],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert out.returncode == 0, out.stdout + out.stderr
        report = subprocess.run(
            [str(COMMAND), "ledger", "check", "--json", str(ledger), str(consumed)], capture_output=True, text=True
        )
        assert report.returncode == 0, report.stdout
        assert confirmed >= 1_000
    finally:
        pair.end()
