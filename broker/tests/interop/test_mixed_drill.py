"""Producers of CORE with consumers of AMQP 0-9-1, and the reverse, while the active node of a pair is killed.

The CORE side is ``understudy produce`` and ``consume``, the AMQP side is pika; all of them keep ledgers, and
``understudy ledger check`` decides: no confirmed message is lost, none comes twice without a mark.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pika
import pytest

from support import forked
from support.amqp_ledger import Consumer, Producer
from support.nodes import Nodes
from support.processes import COMMAND, Pair
from support.replicated import ReplicatedPair, is_protected, roles, wait_until

#: Kills of the active node, each with a failover.
KILLS = 3
#: Rows that each ledger gets before the next kill or failback.
ROWS = 150
TO_AMQP, TO_CORE = "core-to-amqp", "amqp-to-core"


def _command(*arguments: object) -> subprocess.Popen[str]:
    command = [str(COMMAND), *map(str, arguments)]
    return forked.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _rows(ledger: Path) -> int:
    return ledger.read_bytes().count(b"\n") if ledger.exists() else 0


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.feature("AMQP 0-9-1: CORE producers with AMQP consumers and the reverse over failovers, nothing lost")
@pytest.mark.parametrize("kind", ["shared", "replicated"])
def test_nothing_is_lost_between_the_protocols(nodes: Nodes, tmp_path: Path, kind: str) -> None:
    pair: Pair | ReplicatedPair = nodes.pair() if kind == "shared" else nodes.replicated(allow_failback=True)
    pair.start()
    places = [pika.ConnectionParameters("127.0.0.1", node.port, heartbeat=10) for node in (pair.primary, pair.backup)]
    ledgers = {name: tmp_path / f"{name}.jsonl" for name in ("core-sent", "amqp-taken", "amqp-sent", "core-taken")}
    enough = tmp_path / "enough"
    taken, sent = Consumer(places, TO_AMQP, ledgers["amqp-taken"]), Producer(places, TO_CORE, ledgers["amqp-sent"])
    taken.start()
    sent.start()
    wait_until(lambda: bool(taken.connected and sent.connected), pair.primary)
    core_sent = _command("produce", "--url", pair.url, "--queue", TO_AMQP, "--count", 1, "--until", enough,
                         "--rate", 40, "--ledger", ledgers["core-sent"])  # fmt: skip
    core_taken = _command("consume", "--url", pair.url, "--queue", TO_CORE, "--ack", "transacted", "--batch", 20,
                          "--follow", "--ledger", ledgers["core-taken"])  # fmt: skip
    try:

        def wait_for_more() -> None:
            before = {name: _rows(path) for name, path in ledgers.items()}
            wait_until(
                lambda: all(_rows(path) >= before[name] + ROWS for name, path in ledgers.items()),
                pair.primary,
                pair.backup,
            )

        for _ in range(KILLS):
            wait_for_more()
            active, passive = roles(pair)
            active.kill()
            passive.wait_ready("active")
            wait_for_more()
            # the primary fails back, unless it has done so too often in a short time
            active.start()
            wait_until(lambda: is_protected(pair), active, passive)
        wait_for_more()
        enough.touch()
        out, err = core_sent.communicate(timeout=120)
        assert core_sent.returncode == 0, out + err
        sent.finish()

        def empty() -> bool:
            active, _ = roles(pair)
            queues = [active.queue(name) for name in (TO_AMQP, TO_CORE)]
            return all(queue is not None and queue["message_count"] == 0 for queue in queues)

        wait_until(empty, pair.primary)
        taken.finish()
        core_taken.send_signal(2)
        out, err = core_taken.communicate(timeout=60)
        assert core_taken.returncode == 0, out + err
    finally:
        for process in (core_sent, core_taken):
            if process.poll() is None:
                process.kill()
                process.communicate()
    for names in (("core-sent", "amqp-taken"), ("amqp-sent", "core-taken")):
        check = _command("ledger", "check", "--json", *(ledgers[name] for name in names))
        out, err = check.communicate(timeout=60)
        report = json.loads(out)
        assert report["ok"], report
        assert report["counts"]["confirmed"] > KILLS * ROWS / 2
        print(kind, names, report["counts"])
    # both clients have lost their connection at each kill
    assert min(taken.connected, sent.connected) > KILLS
