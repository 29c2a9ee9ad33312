"""How long the loop stands still while a deep queue is read back from a slow disk.

A whole node runs in this process on a real disk whose reads of bodies and pages are each delayed; a client
in another process drains the queue, looks through it with a selector that matches nothing, asks with such a
selector for the messages present at this moment, or browses it, with and without a selector.
The figure is the longest time in which the loop served no connection, which is the longest delay of another client.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

import click
import uvloop
from rich.console import Console
from rich.table import Table

from support.faulty_disk import FaultyDisk, start_node
from support.processes import Pair
from understudy.client import aio

MESSAGES = 30_000
BODY_BYTES = 1024
DELAYS_MS = (0, 5, 20)
WAYS = ("drain", "browser", "selector", "immediate", "choosy browser")
#: What finds nothing.
CHOOSY = ("selector", "immediate", "choosy browser")
#: Receives messages until none has come for a second.
CLIENT = """
import asyncio, sys
from understudy.client import aio
async def main(url, way):
    async with await aio.connect(url) as connection:
        session = await connection.session('auto' if way == 'drain' else 'client')
        choosy = None if way == 'browser' or way == 'drain' else 'nothing = 1'
        if 'browser' in way:
            count = 0
            async for _ in await session.browser('deep', filter=choosy):
                count += 1
        elif way == 'immediate':
            consumer = await session.consumer('deep', filter=choosy)
            session.start()
            count = int(await consumer.receive_nowait() is not None)
        else:
            consumer = await session.consumer('deep', filter=choosy)
            session.start()
            count = 0
            while (received := await consumer.receive(2)) is not None:
                count += 1
                if way == 'drain':
                    await session.acknowledge(received) if count % 1000 == 0 else None
        print(count)
asyncio.run(main(*sys.argv[1:]))
"""
SETTINGS = """
    <address-settings>
      <address-setting match="#"><max-size-bytes>1048576</max-size-bytes></address-setting>
    </address-settings>
"""


@click.command("stalls")
@click.option("--messages", default=MESSAGES, show_default=True, help="Waiting messages.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def stalls(messages: int, as_json: bool) -> None:
    """Measure the longest time in which the loop serves no connection while a deep queue is read from a slow disk."""
    figures: dict[str, dict[int, float]] = {}
    for way in WAYS:
        figures[way] = {}
        for delay_ms in DELAYS_MS:
            with tempfile.TemporaryDirectory(prefix="understudy-bench-") as directory:
                figures[way][delay_ms] = uvloop.run(_measure(Path(directory), messages, way, delay_ms))
    if as_json:
        print(json.dumps({"benchmark": "stalls", "messages": messages, "longest_ms": figures}))
        return
    table = Table(title=f"longest stall of the loop in ms, {messages:,} messages of {BODY_BYTES} bytes waiting")
    table.add_column("")
    for delay_ms in DELAYS_MS:
        table.add_column(f"{delay_ms} ms a read", justify="right")
    for way, values in figures.items():
        table.add_row(way, *(f"{value:.0f}" for value in values.values()))
    Console().print(table)


async def _measure(directory: Path, count: int, way: str, delay_ms: int) -> float:
    pair = Pair(directory, extra=SETTINGS)
    url = f"tcp://127.0.0.1:{pair.primary.port}"
    disk = FaultyDisk()
    node = await start_node(pair.primary, disk)
    async with await aio.connect(url) as connection:
        producer = await (await connection.session()).producer("deep", window=2_000, duplicate_ids=False)
        for _ in range(count):
            await producer.wait_sendable()
            producer.send_nowait(bytes(BODY_BYTES))
        await producer.send(b"last")
    disk.hits = lambda path: "/journal/segment-" in path or "/paging/" in path
    disk.read_delay_s = delay_ms / 1000
    longest_s = 0.0
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, url, way, stdout=asyncio.subprocess.PIPE
    )
    ended = asyncio.ensure_future(client.wait())
    before = time.perf_counter()
    while not ended.done():
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        longest_s = max(longest_s, now - before)
        before = now
    assert await ended == 0
    assert client.stdout is not None
    expected = 0 if way in CHOOSY else count + 1
    assert int(await client.stdout.read()) == expected, way
    await node.stop()
    return longest_s * 1000
