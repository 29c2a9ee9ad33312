"""How long a quiet client waits beside clients that flood the broker with requests.

The quiet client sends one request, waits for its answer, and pauses for a millisecond. The floods come from another
process: connections that send prepared requests as fast as the broker takes them and drop the answers. Each case
is measured without and with the flood in one broker, and the ratio of the two is printed.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import selectors
import socket
import statistics
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from support.processes import Pair
from understudy.message import Message
from understudy.wire.core import packets
from understudy.wire.core.codec import MAGIC, FrameDecoder, encode

SECONDS = 4.0
FLOODING = 8
#: What the flooding connections send: many small requests, small messages, or requests before a login.
FLOODS = ("pings", "queries", "sends", "strangers")
_CHANNEL = 10


@click.command("fairness")
@click.option("--seconds", default=SECONDS, show_default=True, help="Length of each measurement.")
@click.option("--flooding", default=FLOODING, show_default=True, help="Connections that flood.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def fairness(seconds: float, flooding: int, as_json: bool) -> None:
    """Waits of a quiet client beside flooding ones, and their ratio to its waits alone."""
    results = [_one(flood, seconds, flooding) for flood in FLOODS]
    if as_json:
        print(json.dumps({"benchmark": "fairness", "flooding": flooding, "results": results}))
        return
    table = Table(title=f"waits of a quiet client in ms, alone and beside {flooding} flooding connections")
    for column in ("flood", "alone p50", "p99", "beside p50", "p99", "p50 ratio", "p99 ratio", "requests/s"):
        table.add_column(column, justify="right")
    for each in results:
        alone, beside = each["alone"], each["beside"]
        table.add_row(
            each["flood"], f"{alone[0]:.2f}", f"{alone[1]:.2f}", f"{beside[0]:.2f}", f"{beside[1]:.2f}",
            f"{beside[0] / alone[0]:.1f}", f"{beside[1] / alone[1]:.1f}", f"{each['requests']:,.0f}",
        )  # fmt: skip
    Console().print(table)


def _one(flood: str, seconds: float, flooding: int) -> dict:
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as directory:
        pair = Pair(Path(directory))
        try:
            pair.primary.start().wait_ready("active")
            port = pair.primary.port
            alone = asyncio.run(_waits(port, seconds))
            counted = multiprocessing.get_context("spawn").Value("d", 0.0)
            process = multiprocessing.get_context("spawn").Process(
                target=_flood, args=(port, flood, flooding, seconds + 1, counted), daemon=True
            )
            process.start()
            while not counted.value:
                time.sleep(0.05)
            beside = asyncio.run(_waits(port, seconds))
            process.join()
            return {"flood": flood, "alone": alone, "beside": beside, "requests": counted.value}
        finally:
            pair.end()


async def _waits(port: int, seconds: float) -> tuple[float, float]:
    """Median and 99th percentile of the quiet client's waits. Milliseconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    create = packets.CreateSession(os.urandom(16).hex(), _CHANNEL, 136, "u", "p", confirmation_window=-1)
    writer.write(MAGIC + encode(create, 1))
    await reader.read(65_536)
    waits: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.monotonic()
        writer.write(encode(packets.Ping(60_000), 0))
        decoder = FrameDecoder("client")
        while not decoder.receive_data(await reader.read(65_536)):
            pass
        waits.append((time.monotonic() - began) * 1000)
        await asyncio.sleep(0.001)
    writer.close()
    return statistics.median(waits), statistics.quantiles(waits, n=100)[98]


def _flood(port: int, flood: str, flooding: int, seconds: float, counted: object) -> None:
    """Send requests of one kind without a pause, in a process of its own. ``counted`` gets the requests per second that
    the broker took.
    """
    if flood == "pings":
        request = encode(packets.Ping(60_000), 0)
    elif flood == "queries":
        request = encode(packets.QueueQuery("flood"), _CHANNEL)
    elif flood == "sends":
        request = encode(packets.SessionSend(Message(b"x", address="nowhere", durable=False), False, 0, 0), _CHANNEL)
    else:
        request = encode(packets.SubscribeTopologyV2(False, 136), 0)
    selector = selectors.DefaultSelector()
    block = request * (262_144 // len(request))
    sent = 0
    rest: dict[socket.socket, memoryview] = {}

    def connect() -> None:
        flooder = socket.create_connection(("127.0.0.1", port))
        flooder.sendall(MAGIC)
        if flood != "strangers":
            create = packets.CreateSession(os.urandom(16).hex(), _CHANNEL, 136, "u", "p", confirmation_window=-1)
            flooder.sendall(encode(create, 1))
            flooder.recv(65_536)
        flooder.setblocking(False)
        selector.register(flooder, selectors.EVENT_READ | selectors.EVENT_WRITE)
        rest[flooder] = memoryview(block)

    for _ in range(flooding):
        connect()
    until = time.monotonic() + seconds
    counted.value = 1.0  # type: ignore[attr-defined]
    while time.monotonic() < until:
        for key, events in selector.select(0.1):
            flooder = key.fileobj
            assert isinstance(flooder, socket.socket)
            try:
                if events & selectors.EVENT_READ and not flooder.recv(1 << 20):
                    raise ConnectionError("closed")
                if events & selectors.EVENT_WRITE:
                    with suppress(BlockingIOError):
                        taken = flooder.send(rest[flooder])
                        sent += taken
                        rest[flooder] = rest[flooder][taken:] or memoryview(block)
            except ConnectionError:
                selector.unregister(flooder)
                flooder.close()
                connect()
    counted.value = sent / len(request) / seconds  # type: ignore[attr-defined]
