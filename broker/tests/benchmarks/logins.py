"""Many clients that come back at once: how long until all are in, and how long others are held up.

Every client is a connection of its own that creates one session with a user and password, as all do
after a failover. A bystander, logged in before, pings once a millisecond or so; its longest wait for
an answer is how long the broker did nothing else.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from support.processes import Pair
from understudy.security.password_hashes import PasswordHash
from understudy.wire.core import packets
from understudy.wire.core.codec import MAGIC, FrameDecoder, encode

CLIENTS = 500
#: Different users among them.
USERS = (1, 50, 500)


class _Entropy:
    def token(self, length_bytes: int) -> bytes:
        return os.urandom(length_bytes)


def logins(*, as_json: bool) -> None:
    """A fresh broker for each number of users; prints seconds and milliseconds."""
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as directory:
        results = [{"users": users, **_one(Path(directory) / str(users), users)} for users in USERS]
    if as_json:
        print(json.dumps({"benchmark": "logins", "clients": CLIENTS, "results": results}))
        return
    table = Table(title=f"{CLIENTS} clients that log in at once on a node that has checked none of them before")
    for column in ("users", "all in after s", "longest wait of a bystander ms"):
        table.add_column(column, justify="right")
    for result in results:
        table.add_row(f"{result['users']}", f"{result['all_in_s']:.2f}", f"{result['bystander_ms']:.0f}")
    Console().print(table)


def _one(directory: Path, users: int) -> dict[str, float]:
    pair = Pair(directory, security=True)
    names = [f"user{number}" for number in range(users)]
    hashed = "".join(f"{name} = {PasswordHash.make(name, _Entropy())}\n" for name in (*names, "bystander"))
    (pair.primary.config.parent / "artemis-users.properties").write_text(hashed)
    (pair.primary.config.parent / "artemis-roles.properties").write_text(f"everything = {', '.join(names)}\n")
    try:
        pair.primary.start().wait_ready("active")
        return asyncio.run(_storm(pair.primary.port, names))
    finally:
        pair.end()


async def _storm(port: int, names: list[str]) -> dict[str, float]:
    reader, writer = await _log_in(port, "bystander")
    waits: list[float] = []
    pinging = asyncio.create_task(_ping(reader, writer, waits))
    began = time.monotonic()
    clients = await asyncio.gather(*(_log_in(port, names[number % len(names)]) for number in range(CLIENTS)))
    all_in_s = time.monotonic() - began
    pinging.cancel()
    for _, each in (*clients, (reader, writer)):
        each.close()
    return {"all_in_s": all_in_s, "bystander_ms": max(waits) * 1000}


async def _log_in(port: int, user: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    create = packets.CreateSession(os.urandom(16).hex(), 10, 136, user, user)
    writer.write(MAGIC + encode(packets.Ping(60_000), 0) + encode(create, 1))
    decoder = FrameDecoder("client")
    while True:
        data = await reader.read(65_536)
        assert data, f"{user}: the broker hung up"
        for frame in decoder.receive_data(data):
            if frame.channel_id == 1:
                assert isinstance(frame.packet, packets.CreateSessionResponse), frame.packet
                return reader, writer


async def _ping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, waits: list[float]) -> None:
    while True:
        began = time.monotonic()
        waits.append(0.0)
        writer.write(encode(packets.Ping(60_000), 0))
        decoder = FrameDecoder("client")
        while not decoder.receive_data(await reader.read(65_536)):
            pass
        waits[-1] = time.monotonic() - began
        await asyncio.sleep(0.001)
