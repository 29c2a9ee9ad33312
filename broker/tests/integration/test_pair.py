"""The pair as real processes: kill -9, failback, clean stops; the ledger judges (ADR 0022)."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from support import forked
from support.processes import COMMAND, Pair
from support.transports import TRANSPORTS, url_by


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [str(COMMAND), *map(str, arguments)]
    return forked.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str], timeout_s: float = 120) -> str:
    out, err = process.communicate(timeout=timeout_s)
    assert process.returncode == 0, out + err
    return out


def check_ledgers(*ledgers: Path) -> dict[str, object]:
    return json.loads(finish(start("ledger", "check", "--json", *ledgers)))


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("ack", [pytest.param("transacted", marks=pytest.mark.long), "auto"])
def test_nothing_is_lost_when_the_active_is_killed_and_comes_back(
    pair: Pair, tmp_path: Path, ack: str, transport: str
) -> None:
    pair.start()
    url = url_by(transport, pair.url)
    produced, consumed = tmp_path / "produced.jsonl", tmp_path / "consumed.jsonl"
    count = 3_000
    # not --count: messages of a commit of unknown outcome do not come again, so the test ends the consumer
    consumer = start("consume", "--url", url, "--queue", "q", "--ack", ack, "--batch", 20,
                     "--follow", "--ledger", consumed)  # fmt: skip
    producer = start("produce", "--url", url, "--queue", "q", "--count", count, "--size", 200, "--rate", 500,
                     "--ledger", produced)  # fmt: skip
    while not produced.exists() or produced.read_bytes().count(b"\n") < count // 4:
        assert producer.poll() is None, finish(producer)
    pair.primary.kill()
    pair.backup.wait_ready("active")
    pair.primary.start().wait_ready("active")
    pair.backup.wait_ready("passive")
    finish(producer)
    while (queue := pair.primary.queue("q")) is None or queue["message_count"] != 0:
        assert consumer.poll() is None, finish(consumer)
        time.sleep(0.05)
    consumer.send_signal(signal.SIGINT)
    finish(consumer)
    report = check_ledgers(produced, consumed)
    assert report["ok"], report
    counts = report["counts"]
    assert isinstance(counts, dict)
    assert (counts["confirmed"], counts["messages"]) == (count, count)


def test_a_backup_whose_file_has_a_queue_on_another_address_takes_over(pair: Pair) -> None:
    """The file of each node is its own; one that does not fit the store must not leave the pair without service."""
    for node, address in ((pair.primary, "a"), (pair.backup, "b")):
        queues = f'<address name="{address}"><anycast><queue name="q"/></anycast></address>'
        text = node.config.read_text()
        node.config.write_text(text.replace("</core>", f"<addresses>{queues}</addresses></core>"))
    pair.start()
    finish(start("produce", "--url", pair.url, "--queue", "a::q", "--count", 5))
    pair.primary.kill()
    pair.backup.wait_ready("active")
    queue = pair.backup.queue("q")
    assert queue is not None
    assert (queue["address"], queue["message_count"]) == ("a", 5)
    assert "queue 'q' exists on address 'a', not 'b'" in pair.backup.log.read_text()


def test_clean_stop_leaves_the_store_stopped_and_the_backup_passive(pair: Pair) -> None:
    pair.start()
    assert pair.primary.terminate() == 0
    pair.backup.wait_ready("passive")
    assert pair.backup.facts()["ha"]["state"] == "passive"  # type: ignore[index]
    pair.primary.start().wait_ready("active")


def test_clean_stop_with_failover_on_shutdown_hands_over(tmp_path: Path) -> None:
    pair = Pair(tmp_path, failover_on_shutdown=True)
    try:
        pair.start()
        assert pair.primary.terminate() == 0
        pair.backup.wait_ready("active")
    finally:
        pair.end()


def test_everything_is_still_there_after_both_were_killed(pair: Pair) -> None:
    pair.start()
    finish(start("produce", "--url", pair.url, "--queue", "q", "--count", 500, "--size", 1000))
    epoch = pair.primary.facts()["epoch"]
    pair.primary.kill()
    pair.backup.kill()
    pair.primary.start().wait_ready("active")
    assert pair.primary.facts()["epoch"] == epoch + 1  # type: ignore[operator]
    queue = pair.primary.queue("q")
    assert queue is not None
    assert queue["message_count"] == 500
    out = json.loads(finish(start("consume", "--url", pair.url, "--queue", "q", "--count", 500, "--json")))
    assert out["acknowledged"] == 500


def test_management_shows_the_pair(pair: Pair) -> None:
    pair.start()
    active, passive = pair.primary.facts(), pair.backup.facts()
    assert active["node_id"] == passive["node_id"]
    assert active["peer"] == {
        "role": "backup",
        "connector": f"127.0.0.1:{pair.backup.port}",
        "name": "backup-node",
    }
    # but for the moment in which a quiet log is given its mark
    while pair.backup.facts()["following"] != {"caught_up": True, "lag_bytes": 0}:
        time.sleep(0.02)
    status = forked.run(
        [str(COMMAND), "status", "--instance", str(pair.primary.directory), "--json"], capture_output=True, text=True
    )
    assert status.returncode == 0, status.stderr
    assert json.loads(status.stdout)["ha"]["state"] == "active"
