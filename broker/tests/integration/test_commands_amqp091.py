"""``understudy produce`` and ``consume`` over AMQP 0-9-1, beside CORE, while the active node of a pair is killed.

The ledgers of both sides decide that no confirmed message is lost.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from support import forked
from support.nodes import Nodes
from support.processes import COMMAND, Pair
from support.replicated import wait_until

#: Rows that each ledger gets before and after the kill.
ROWS = 100


def _command(*arguments: object) -> subprocess.Popen[str]:
    command = [str(COMMAND), *map(str, arguments)]
    return forked.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _rows(ledger: Path) -> int:
    return ledger.read_bytes().count(b"\n") if ledger.exists() else 0


def test_commands_lose_nothing_between_the_protocols(nodes: Nodes, tmp_path: Path) -> None:
    pair: Pair = nodes.pair()
    pair.start()
    places = f"127.0.0.1:{pair.primary.port},127.0.0.1:{pair.backup.port}"
    amqp = f"amqp091://{places}/?reconnectAttempts=-1&initialConnectAttempts=-1&retryInterval=100"
    enough = tmp_path / "enough"
    ledgers: list[tuple[Path, Path]] = []
    producers, consumers = [], []
    for queue, sends, takes in (("to-amqp", pair.url, amqp), ("to-core", amqp, pair.url), ("within", amqp, amqp)):
        sent, taken = tmp_path / f"{queue}-sent.jsonl", tmp_path / f"{queue}-taken.jsonl"
        ledgers.append((sent, taken))
        producers.append(_command("produce", "--url", sends, "--queue", queue, "--count", 1, "--until", enough,
                                  "--rate", 40, "--ledger", sent))  # fmt: skip
        consumers.append(_command("consume", "--url", takes, "--queue", queue, "--ack", "transacted", "--batch", 20,
                                  "--follow", "--ledger", taken))  # fmt: skip
    try:

        def wait_for_more() -> None:
            paths = [path for both in ledgers for path in both]
            before = {path: _rows(path) for path in paths}
            wait_until(lambda: all(_rows(path) >= before[path] + ROWS for path in paths), pair.primary, pair.backup)

        wait_for_more()
        pair.primary.kill()
        pair.backup.wait_ready("active")
        wait_for_more()
        enough.touch()
        for process in producers:
            out, err = process.communicate(timeout=120)
            assert process.returncode == 0, out + err

        def empty() -> bool:
            queues = [pair.backup.queue(name) for name in ("to-amqp", "to-core", "within")]
            return all(queue is not None and queue["message_count"] == 0 for queue in queues)

        wait_until(empty, pair.backup)
        for process in consumers:
            process.send_signal(2)
            out, err = process.communicate(timeout=60)
            assert process.returncode == 0, out + err
    finally:
        for process in (*producers, *consumers):
            if process.poll() is None:
                process.kill()
                process.communicate()
    for names in ledgers:
        check = _command("ledger", "check", "--json", *names)
        out, err = check.communicate(timeout=60)
        report = json.loads(out)
        assert report["ok"], (names, report)
        assert report["counts"]["confirmed"] > ROWS
