"""The blocking client: time and CPU time of one call, beside the client of an earlier commit.

One broker; in each round a process with each client, in turn. Bodies of 1 KiB.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.targets import check_out
from support.targets import start_target

#: Prints, for each shape of use, microseconds of time and of the process's CPU time for one message.
PROGRAM = """
import json, sys, threading, time
from understudy.client.sync import connect
url, count = sys.argv[1], int(sys.argv[2])
body, found = bytes(1024), {}

def measure(name, work, messages):
    began, cpu = time.perf_counter(), time.process_time()
    work()
    found[name] = [(time.perf_counter() - began) / messages * 1e6, (time.process_time() - cpu) / messages * 1e6]

with connect(url) as connection, connection.session() as session, connection.session("individual") as individual:
    producer = session.producer("calls")
    for _ in range(200):
        producer.send(body)

    def send():
        for _ in range(count):
            producer.send(body)

    def send_in_memory():
        for _ in range(count):
            producer.send(body, durable=False)

    def send_windowed():
        futures = []
        for _ in range(count):
            producer.wait_sendable()
            futures.append(producer.send_nowait(body))
        for future in futures:
            future.result()

    def receive():
        for _ in range(count):
            assert consumer.receive(10) is not None

    def receive_and_acknowledge():
        for _ in range(count):
            assert individual.acknowledge(selected.receive(10))

    def send_from_threads():
        threads = [threading.Thread(target=send_some) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def send_some():
        for _ in range(count // 4):
            producer.send(body)

    measure("send, durable", send, count)
    measure("send, not durable", send_in_memory, count)
    measure("send_nowait, window of 500", send_windowed, count)
    measure("send, durable, 4 threads", send_from_threads, count)
    with session.consumer("calls") as consumer:
        measure("receive, AUTO", receive, count)
    with individual.consumer("calls") as selected:
        measure("receive and acknowledge, INDIVIDUAL", receive_and_acknowledge, count)
    session.delete_queue("calls")
print(json.dumps(found))
"""


@click.command("blocking")
@click.option("--count", default=3_000, show_default=True, help="Messages of each measurement.")
@click.option("--rounds", default=5, show_default=True)
@click.option("--baseline", default="", metavar="REV", help="The client of this commit beside it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def blocking(count: int, rounds: int, baseline: str, as_json: bool) -> None:
    """Time and CPU time of one call of the blocking client."""
    sides: dict[str, dict[str, str]] = {"this": {}}
    if baseline:
        sides[baseline[:7]] = {"PYTHONPATH": check_out(baseline)}
    runs: dict[str, list[dict[str, list[float]]]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as directory:
        target = start_target("understudy", Path(directory), None)
        try:
            for _ in range(rounds):
                for name, environment in sides.items():
                    ended = subprocess.run(
                        [sys.executable, "-c", PROGRAM, target.url, str(count)],
                        env=os.environ | environment, capture_output=True, text=True, check=True,
                    )  # fmt: skip
                    runs[name].append(json.loads(ended.stdout))
        finally:
            target.end()
    medians = {
        name: {shape: [statistics.median(run[shape][n] for run in found) for n in (0, 1)] for shape in found[0]}
        for name, found in runs.items()
    }
    if as_json:
        print(json.dumps({"benchmark": "blocking", "count": count, "rounds": rounds, "us": medians}))
        return
    table = Table(title=f"microseconds for a message of 1 KiB: time, CPU time of the client; medians of {rounds}")
    table.add_column("")
    for name in medians:
        table.add_column(name, justify="right")
    for shape in medians["this"]:
        table.add_row(shape, *(" / ".join(f"{each:.0f}" for each in figures[shape]) for figures in medians.values()))
    Console().print(table)
