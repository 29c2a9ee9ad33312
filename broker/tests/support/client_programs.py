"""Six programs as application developers write them. Each survives the loss of the node that serves it.

The calls of ``step`` stand for the work of the application, which a test observes.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from understudy.client import Backoff, aio
from understudy.client.sync import connect
from understudy.errors import CallTimedOut, ConnectionLost

Step = Callable[[str], None]


def work_queue(url: str, step: Step) -> None:
    """Work on jobs; one whose work fails three times is a dead letter."""
    with connect(url) as connection, connection.session("individual") as session:
        jobs = session.consumer("jobs")
        while (job := jobs.receive(timeout_s=5)) is not None:
            with contextlib.suppress(ValueError), job.process(dead_letter_after=3, delay_s=Backoff(0.01)):
                step(job.text or "")


def requests(url: str, count: int, step: Step) -> list[str]:
    """Ask for prices, and answer in a thread; an answer that went with the node is asked for again."""
    prices = []
    with connect(url) as connection, connection.session() as asking, connection.session("individual") as answering:
        threading.Thread(target=answering.respond, args=("prices", lambda request: f"4.20 for {request.text}")).start()
        while len(prices) < count:
            with contextlib.suppress(CallTimedOut):
                prices.append(asking.request("prices", f"tea {len(prices)}", timeout_s=2).text or "")
                step(prices[-1])
        answering.close()
    return prices


def subscription(url: str, step: Step) -> None:
    """Receive the news of a durable subscription until there is none for a while."""
    with connect(f"{url}?clientID=office") as connection, connection.session() as session:
        news = session.subscriber("news", name="desk")
        while (message := news.receive(timeout_s=5)) is not None:
            step(message.text or "")


def outbox(url: str, database: Path, step: Step) -> None:
    """Send the rows of a database that were not sent; one that was sent and not marked is dropped by the broker."""
    with connect(url) as connection, connection.session() as session, sqlite3.connect(database) as rows:
        producer = session.producer("outbox")
        for number, text in rows.execute("SELECT id, text FROM outbox WHERE NOT sent").fetchall():
            producer.send(text, duplicate_id=f"outbox-{number}")
            step(text)
            rows.execute("UPDATE outbox SET sent = 1 WHERE id = ?", (number,))
            rows.commit()


def copy_file(url: str, source: Path, target: Path, progress: Callable[[int], None]) -> None:
    """Send a file and save it where it is received; a copy that breaks off begins again."""
    with connect(url) as connection, connection.session("individual") as session:
        session.producer("files").send(source)
        for message in session.consumer("files"):
            with contextlib.suppress(ConnectionLost):
                message.save_to(target, progress=progress)
                message.ack()
                break


async def consumers(url: str, number: int, step: Step, stop: asyncio.Event) -> None:
    """Work on events in tasks until ``stop`` is set."""
    async with await aio.connect(url) as connection, asyncio.TaskGroup() as group:

        async def work() -> None:
            async with await connection.session("individual") as session:
                async for event in await session.consumer("events"):
                    async with event.process():
                        step(event.text or "")

        tasks = [group.create_task(work()) for _ in range(number)]
        await stop.wait()
        for task in tasks:
            task.cancel()
