"""A disk that says no: nothing it did not keep is confirmed or served, it is never asked twice, and the node stops.

Method: a whole node in this process, on the real disk with faults injected below it; and a real process whose writes
the kernel refuses.
"""

from __future__ import annotations

import asyncio
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import forked
from support.faulty_disk import FaultyDisk, start_node
from support.processes import COMMAND, Pair
from understudy.client import aio
from understudy.config.model import CriticalAnalyzerPolicy
from understudy.errors import BrokerError, DiskFailed, LockLost
from understudy.ha.shared import lock_proof
from understudy.ha.shared import policy as shared_store
from understudy.runtime.base import journal_writer
from understudy.runtime.base.journal_writer import AT_ONCE_BYTES_MAX
from understudy.runtime.node.node import BrokerNode
from understudy.runtime.process.critical_analyzer import CriticalAnalyzer

SHALLOW = """
    <address-settings>
      <address-setting match="#"><max-size-bytes>1024</max-size-bytes></address-setting>
    </address-settings>
"""


#: Only against a test that hangs: how long anything may take on a slow machine.
GUARD_S = 60
#: Records of a new store go here, and the next segment is made beside it.
LOG, SPARE = "/journal/segment-000000000001-", "/journal/segment-000000000002-"
#: The log gets nothing but what the test sends: no mark because it was quiet.
STILL = "<disk-scan-period>3600000</disk-scan-period>"


def in_journal(path: str) -> bool:
    return "/journal/segment-" in path


async def until(condition: Callable[[], object]) -> None:
    """Look at it again and again."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < GUARD_S, "it never came true"
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("body_bytes", [10, 2 * AT_ONCE_BYTES_MAX], ids=["on the loop", "in the thread"])
def test_a_sync_that_hung_during_a_takeover_confirms_nothing(
    tmp_path: Path, body_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what hangs can be seen from outside, wherever it does."""
    # the lock is checked only before a confirmation, and any disk counts as quick
    monkeypatch.setattr(lock_proof, "LOCK_PROOF_MS", 500)
    monkeypatch.setattr(shared_store, "LOCK_CHECK_MS", 3_600_000)
    monkeypatch.setattr(journal_writer, "AT_ONCE_NS_MAX", 3_600_000_000_000)
    pair = Pair(tmp_path, extra=STILL)

    async def main() -> None:
        disk = FaultyDisk()
        node = await start_node(pair.primary, disk)
        connection = await aio.connect(f"tcp://127.0.0.1:{pair.primary.port}?reconnectAttempts=0")
        producer = await (await connection.session()).producer("q")
        disk.watches = in_journal
        # twice on the loop and nothing between: the next segment is full of zeros, so the thread has nothing to do
        while len(disk.calls) < 4 or not all(call.on_loop for call in disk.calls[-4:]):
            await producer.send(b"confirmed")
        analyzer = CriticalAnalyzer(
            node.environment.critical_paths, CriticalAnalyzerPolicy.LOG, timeout_ms=100, shut_down=print
        )
        stuck: dict[str, int] = {}
        disk.hits, disk.hangs = in_journal, frozenset({"sync"})

        def answer() -> None:
            assert disk.hung.wait(GUARD_S)
            while not stuck:
                time.sleep(0.01)
                stuck.update(analyzer.stuck(time.monotonic_ns()))
            node.parts.lock.lost = lambda: "another node has activated"  # type: ignore[method-assign]
            # until the last proof is too old: there is no other
            time.sleep(0.6)
            disk.answers.set()

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(BrokerError):
            await asyncio.wait_for(producer.send(bytes(body_bytes)), GUARD_S)
        assert isinstance(await asyncio.wait_for(node.wait_ended(), GUARD_S), LockLost)
        assert list(stuck) == ["writer 1 of the store"]
        assert disk.calls[-1].operation == "sync"
        assert disk.calls[-1].on_loop is (body_bytes == 10)
        await connection.close()

    asyncio.run(main())


async def bodies_of(url: str, queue: str) -> list[bytes]:
    async with await aio.connect(url) as connection:
        session = await connection.session()
        consumer = await session.consumer(queue)
        session.start()
        found = []
        # asks the broker, which says when there is no more
        while (received := await consumer.receive_nowait()) is not None:
            found.append(received.message.body)
        return found


def assert_never_tried_again(disk: FaultyDisk) -> list[str]:
    """The files that failed, each once and for the last time."""
    changes = [call for call in disk.calls if call.operation != "read"]
    failed = [call.path for call in changes if call.failed]
    for path in failed:
        calls = [call for call in changes if call.path == path]
        assert [call.failed for call in calls].index(True) == len(calls) - 1, calls
    return failed


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_failed_write_or_sync_is_the_end_and_is_not_tried_again(tmp_path: Path, operation: str) -> None:
    pair = Pair(tmp_path, extra=STILL)
    url = f"tcp://127.0.0.1:{pair.primary.port}"

    async def main() -> None:
        disk = FaultyDisk()
        node = await start_node(pair.primary, disk)
        connection = await aio.connect(f"{url}?reconnectAttempts=0")
        producer = await (await connection.session()).producer("q")
        await producer.send(b"confirmed")
        # not where the next segment is made: that may be under way now, or not
        disk.watches = disk.hits = lambda path: LOG in path
        disk.fails = frozenset({operation})
        with pytest.raises(BrokerError):
            await asyncio.wait_for(producer.send(b"not confirmed"), GUARD_S)
        error = await asyncio.wait_for(node.wait_ended(), GUARD_S)
        assert isinstance(error, DiskFailed)
        assert LOG in str(error)
        assert node.state == "stopped"
        changes = [call.operation for call in disk.calls if call.operation != "read"]
        assert changes == (["write"] if operation == "write" else ["write", "sync"])
        assert len(assert_never_tried_again(disk)) == 1
        await connection.close()

        again = await start_node(pair.primary, FaultyDisk())
        found = await bodies_of(url, "q")
        assert found[0] == b"confirmed"
        assert set(found[1:]) <= {b"not confirmed"}
        await again.stop()

    asyncio.run(asyncio.wait_for(main(), 3 * GUARD_S))


@pytest.mark.parametrize("log_fails", [False, True], ids=["alone", "and the log after it"])
@pytest.mark.parametrize("operation", ["write", "sync"])
def test_zeros_of_the_next_segment_that_fail_stop_the_node_with_the_next_batch(
    tmp_path: Path, operation: str, log_fails: bool
) -> None:
    """Two files, one writer: pending writes to the other file are still done, and no client gets an error."""
    pair = Pair(tmp_path, extra=STILL)
    url = f"tcp://127.0.0.1:{pair.primary.port}"

    async def main() -> None:
        disk = FaultyDisk()
        node = await start_node(pair.primary, disk)
        connection = await aio.connect(f"{url}?reconnectAttempts=0")
        producer = await (await connection.session()).producer("q")
        disk.watches, disk.hits = in_journal, lambda path: SPARE in path
        disk.hangs = frozenset({operation})
        store, confirmed = node.store, 0
        assert store is not None
        sending = asyncio.ensure_future(producer.send(b"a message"))
        # zeros are written only while no batch is, so a batch that is not durable while zeros hang waits for them
        while not (disk.hung.is_set() and store.backlog_bytes):
            if sending.done():
                await sending
                confirmed += 1
                sending = asyncio.ensure_future(producer.send(b"a message"))
            await asyncio.sleep(0.001)
        await assert_the_end(node, disk, sending, log_fails)
        await connection.close()
        again = await start_node(pair.primary, FaultyDisk())
        found = await bodies_of(url, "q")
        assert confirmed <= len(found) <= confirmed + 1
        await again.stop()

    asyncio.run(asyncio.wait_for(main(), 3 * GUARD_S))


@pytest.mark.parametrize("log_fails", [False, True], ids=["alone", "and the log after it"])
@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_next_segment_that_cannot_be_made_stops_the_node_with_the_next_batch(
    tmp_path: Path, operation: str, log_fails: bool
) -> None:
    """The same while the node has just activated: the queue that a client makes is not confirmed either."""
    pair = Pair(tmp_path, extra=STILL)
    url = f"tcp://127.0.0.1:{pair.primary.port}"

    async def main() -> None:
        disk = FaultyDisk()
        disk.watches, disk.hits = in_journal, lambda path: SPARE in path
        disk.hangs = frozenset({operation})
        node = await start_node(pair.primary, disk)
        connection = await aio.connect(f"{url}?reconnectAttempts=0")
        making = asyncio.ensure_future((await connection.session()).producer("q"))
        await until(disk.hung.is_set)
        await assert_the_end(node, disk, making, log_fails)
        assert not [path for path in (pair.store / "journal").iterdir() if SPARE in str(path)]
        await connection.close()
        again = await start_node(pair.primary, FaultyDisk())
        assert await bodies_of(url, "q") == []
        await again.stop()

    asyncio.run(asyncio.wait_for(main(), 3 * GUARD_S))


async def assert_the_end(node: BrokerNode, disk: FaultyDisk, asked: asyncio.Future[Any], log_fails: bool) -> None:
    """The hanging operation fails, and with it the client's request; the next batch was tried, on a file of its own."""
    store = node.store
    assert store is not None
    await until(lambda: store.backlog_bytes)
    # appended; some turns on it has been handed over and stands in the log writer's queue
    for _ in range(10):
        await asyncio.sleep(0)
    assert not asked.done()
    disk.fails = disk.hangs
    if log_fails:
        disk.hits = in_journal
    disk.answers.set()
    with pytest.raises(BrokerError):
        await asyncio.wait_for(asked, GUARD_S)
    error = await asyncio.wait_for(node.wait_ended(), GUARD_S)
    assert isinstance(error, DiskFailed)
    assert SPARE in str(error)
    assert node.state == "stopped"
    failed = assert_never_tried_again(disk)
    assert [SPARE in path for path in failed] == [True, False][: 1 + log_fails]
    behind = disk.calls[[call.failed for call in disk.calls].index(True) + 1 :]
    assert [(LOG in call.path, call.operation) for call in behind][:1] == [(True, "write")], behind


@pytest.mark.parametrize("damage", ["unreadable", "flipped"])
def test_a_message_that_cannot_be_read_back_is_set_aside_and_its_neighbours_are_served(
    tmp_path: Path, damage: str
) -> None:
    """The body is in the log only, because its address is over its memory limit."""
    pair = Pair(tmp_path, extra=SHALLOW)
    url = f"tcp://127.0.0.1:{pair.primary.port}"
    bodies = [b"%03d" % number * 300 for number in range(20)]
    # the queue stands still for ten seconds, in which the disk may answer again
    patience_s = 15 if damage == "unreadable" else 1

    async def received(patience_s: float = 1) -> list[bytes]:
        async with await aio.connect(f"{url}?reconnectAttempts=0") as connection:
            session = await connection.session()
            consumer = await session.consumer("q")
            session.start()
            found = []
            while (message := await consumer.receive(patience_s)) is not None:
                found.append(message.message.body)
                await consumer.acknowledge(message)
            return found

    async def main() -> None:
        disk = FaultyDisk()
        node = await start_node(pair.primary, disk)
        async with await aio.connect(url) as connection:
            producer = await (await connection.session()).producer("q")
            for body in bodies:
                await producer.send(body)
        if damage == "unreadable":
            disk.hits, disk.fails = in_journal, frozenset({"read"})
        else:
            (segment,) = (
                path for path in (pair.store / "journal").glob("segment-*") if bodies[-1] in path.read_bytes()
            )
            content = segment.read_bytes()
            with segment.open("r+b") as file:
                file.seek(content.index(bodies[10]) + 50)
                file.write(b"X")
        found = await received(patience_s)
        assert node.state == "active"
        assert node.store is not None
        entries = node.store.quarantine.entries()
        assert [body for body in bodies if body in found] == found, "whole and in order"
        assert len(found) + len(entries) == len(bodies)
        if damage == "unreadable":
            assert all(entry.held for entry in entries), "the disk may answer later"
            disk.fails = frozenset()
            await node.stop()
            node = await start_node(pair.primary, disk)
            assert found + await received() == bodies
        else:
            assert set(bodies) - set(found) == {bodies[10]}
            assert not entries[0].held
        await node.stop()

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
        while passive.standby.following_error is None:
            await asyncio.sleep(0.01)
        assert passive.state == "passive"
        disk.fails = frozenset()
        while passive.standby.following_error is not None:
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
            producing = forked.Popen(
                [str(COMMAND), "produce", "--url", f"{url}?reconnectAttempts=0&callTimeout=60000", "--queue", "q",
                 "--count", "1000000", "--rate", "2000", "--ledger", str(ledger)],
                stdout=output, stderr=output,
            )  # fmt: skip
        while not ledger.exists() or ledger.read_text().count('"CONFIRMED"') < 1_000:
            assert producing.poll() is None
            time.sleep(0.01)
        assert node.process is not None
        # no write may reach beyond the first byte of a file any more: each fails with EFBIG
        resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (1, 1))
        assert node.process.wait(GUARD_S) == 1
        assert producing.wait(GUARD_S) != 0
        confirmed = ledger.read_text().count('"CONFIRMED"')
        node.start().wait_ready("active")
        kept = node.queue("q")
        assert kept is not None
        consumed = tmp_path / "consumed.jsonl"
        out = forked.run(
            [str(COMMAND), "consume", "--url", url, "--queue", "q", "--count", str(kept["message_count"]),
             "--ledger", str(consumed), "--json"],
            capture_output=True, text=True, timeout=GUARD_S,
        )  # fmt: skip
        assert out.returncode == 0, out.stdout + out.stderr
        report = forked.run(
            [str(COMMAND), "ledger", "check", "--json", str(ledger), str(consumed)], capture_output=True, text=True
        )
        assert report.returncode == 0, report.stdout
        assert confirmed >= 1_000
    finally:
        pair.end()
