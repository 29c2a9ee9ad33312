"""How much memory a deep queue takes: many small messages through one queue, first in, then out.

Goal: the broker's resident memory stays bounded however many messages wait (10 million of 100
bytes: under 400 MiB), nothing is lost and the order holds. ``measure`` is also what the integration
test of the same goal uses, with fewer messages.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from support.processes import Node, Pair
from understudy.client import aio

COUNT = int(os.environ.get("UNDERSTUDY_SOAK_MESSAGES", 10_000_000))
BODY_BYTES = 100
MAX_SIZE_BYTES = 64 * 1024 * 1024
WINDOW = 2_000
BATCH = 1_000
QUEUE = "soak"

SETTINGS = f"""
    <addresses><address name="{QUEUE}"><anycast><queue name="{QUEUE}"/></anycast></address></addresses>
    <address-settings>
      <address-setting match="#"><max-size-bytes>{{max_size_bytes}}</max-size-bytes></address-setting>
    </address-settings>"""


@dataclass(frozen=True)
class Figures:
    """One run. MiB are of the broker's process."""

    messages: int
    idle_mib: float
    filled_mib: float
    drained_mib: float
    peak_mib: float
    produce_s: float
    consume_s: float
    spilled: int
    memory_bytes: int

    @property
    def bytes_per_waiting_message(self) -> float:
        """Memory for each waiting message, the bodies allowed in memory included."""
        return (self.filled_mib - self.idle_mib) * 1024 * 1024 / self.messages


def soak(*, as_json: bool) -> None:
    """One run; prints its figures."""
    with tempfile.TemporaryDirectory(prefix="understudy-soak-") as directory:
        figures = measure(Path(directory), COUNT)
    if as_json:
        print(json.dumps({"benchmark": "soak", **asdict(figures)}))
        return
    table = Table(title=f"{figures.messages:,} messages of {BODY_BYTES} bytes, max-size-bytes {MAX_SIZE_BYTES:,}")
    for column in ("idle MiB", "all waiting MiB", "drained MiB", "peak MiB", "B per message", "in /s", "out /s"):
        table.add_column(column, justify="right")
    table.add_row(
        f"{figures.idle_mib:.0f}", f"{figures.filled_mib:.0f}", f"{figures.drained_mib:.0f}",
        f"{figures.peak_mib:.0f}", f"{figures.bytes_per_waiting_message:.1f}",
        f"{figures.messages / figures.produce_s:,.0f}", f"{figures.messages / figures.consume_s:,.0f}",
    )  # fmt: skip
    Console().print(table)


def measure(directory: Path, count: int, max_size_bytes: int = MAX_SIZE_BYTES) -> Figures:
    """A broker of its own takes ``count`` messages, then gives them all back in order."""
    pair = Pair(directory, extra=SETTINGS.format(max_size_bytes=max_size_bytes))
    node = pair.primary
    try:
        node.start().wait_ready("active")
        idle_mib, _ = resident_mib(node)
        url = f"tcp://127.0.0.1:{node.port}"
        began = time.monotonic()
        asyncio.run(_produce(url, count))
        produced = time.monotonic()
        facts = node.queue(QUEUE)
        assert facts is not None
        assert facts["message_count"] == count, facts
        filled_mib, _ = resident_mib(node)
        consuming = time.monotonic()
        asyncio.run(_consume(url, count))
        consumed = time.monotonic()
        drained_mib, peak_mib = resident_mib(node)
        left = node.queue(QUEUE)
        assert left is not None
        assert (left["message_count"], left["paging"]) == (0, False), left
        return Figures(
            count, idle_mib, filled_mib, drained_mib, peak_mib, produced - began, consumed - consuming,
            int(str(facts["spilled_count"])), int(str(facts["memory_bytes"])),
        )  # fmt: skip
    finally:
        pair.end()


def resident_mib(node: Node) -> tuple[float, float]:
    """Resident memory of a node now, and its highest so far."""
    assert node.process is not None
    text = Path(f"/proc/{node.process.pid}/status").read_text()
    fields = dict(line.split(":", 1) for line in text.splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024, int(fields["VmHWM"].split()[0]) / 1024


async def _produce(url: str, count: int) -> None:
    async with await aio.connect(url) as connection:
        session = await connection.session()
        producer = await session.producer(QUEUE, window=WINDOW, duplicate_ids=False)
        rest = b"x" * (BODY_BYTES - 8)
        open_sends: deque[asyncio.Future[None]] = deque()
        for number in range(count):
            if not number % 100:
                await producer.wait_sendable()
                while len(open_sends) > WINDOW:
                    await open_sends.popleft()
            open_sends.append(producer.send_nowait(number.to_bytes(8, "big") + rest))
        for send in open_sends:
            await send


async def _consume(url: str, count: int) -> None:
    async with await aio.connect(url) as connection:
        session = await connection.session("client")
        consumer = await session.consumer(QUEUE)
        session.start()
        for number in range(count):
            message = consumer.take() or await consumer.receive(60)
            assert message is not None, f"nothing after {number} of {count}"
            found = int.from_bytes(message.message.body[:8], "big")
            assert found == number, f"message {found} where {number} was next"
            if number % BATCH == BATCH - 1 or number == count - 1:
                await session.acknowledge(message)
