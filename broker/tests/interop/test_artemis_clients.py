"""The Artemis command line and JMS client against our pair, also across a SIGKILL of the active."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.processes import COMMAND, Pair
from support.proxy import proxy_to

pytestmark = pytest.mark.maven

Java = Callable[..., "subprocess.Popen[str]"]


def run_artemis(command: Path, *arguments: str) -> str:
    result = subprocess.run([str(command), *arguments], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_artemis_producer_and_consumer(artemis: Path, pair: Pair) -> None:
    """1,000 durable messages in and out again by the distribution's own command line, over CORE."""
    url = f"tcp://127.0.0.1:{pair.primary.port}"
    sent = run_artemis(
        artemis, "producer", "--protocol", "core", "--url", url, "--destination", "queue://interop.cli",
        "--message-count", "1000", "--user", "u", "--password", "p",
    )  # fmt: skip
    assert "1000" in sent
    queue = pair.primary.queue("interop.cli")
    assert queue is not None
    assert queue["message_count"] == 1000
    assert queue["durable"]
    got = run_artemis(
        artemis, "consumer", "--protocol", "core", "--url", url, "--destination", "queue://interop.cli",
        "--message-count", "1000", "--user", "u", "--password", "p", "--receive-timeout", "20000",
    )  # fmt: skip
    assert re.search(r"Consumed: 1000 messages", got), got
    queue = pair.primary.queue("interop.cli")
    assert queue is None or queue["message_count"] == 0, "an auto-created queue may be gone, but holds nothing"


def test_jms_basics(java: Java, pair: Pair) -> None:
    """Bodies, properties, acknowledgement modes, transactions, topics, browsing, request and reply."""
    process = java("JmsBasics", f"tcp://127.0.0.1:{pair.primary.port}")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert output.count("ok ") == 10, output


def test_jms_client_keeps_receiving_across_a_kill(java: Java, pair: Pair) -> None:
    """A stock client with ha=true and reconnectAttempts=-1 gets every message although the active is killed."""
    count = 2_000
    producer = subprocess.Popen(
        [str(COMMAND), "produce", "--url", pair.url, "--queue", "interop.failover", "--count", str(count),
         "--size", "100", "--rate", "400", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    consumer = java("ReceiveAcrossFailover", pair.url, "interop.failover", str(count))
    assert consumer.stdout is not None
    seen = []
    for line in consumer.stdout:
        seen.append(line)
        progress = re.match(r"got (\d+)", line)
        if progress and int(progress[1]) >= count // 4:
            break
    pair.primary.kill()
    pair.backup.wait_ready("active")
    rest, _ = consumer.communicate(timeout=120)
    produced, _ = producer.communicate(timeout=60)
    assert producer.returncode == 0, produced
    assert consumer.returncode == 0, "".join(seen) + rest
    assert f"done {count} distinct, 0 seen again" in rest, rest[-500:]


def test_jms_transactions_survive_cut_connections(java: Java, pair: Pair) -> None:
    """With a confirmation window the stock client reattaches: nothing is rolled back, lost or repeated."""
    with proxy_to(pair.primary.port) as proxy:
        url = (
            f"tcp://127.0.0.1:{proxy.port}?reconnectAttempts=-1&retryInterval=50&confirmationWindowSize=1048576"
            "&useTopologyForLoadBalancing=false"
        )
        client = java("AcrossCuts", url, "interop.cuts", "2000")
        assert client.stdout is not None
        lines, cuts = [], 0
        for line in client.stdout:
            lines.append(line)
            if re.match(r"at \d+50$", line):
                cuts += proxy.cut() > 0
        assert client.wait(60) == 0, "".join(lines[-30:])
        assert lines[-1] == "done\n"
    assert cuts >= 15
    assert pair.primary.log.read_text().count("session reattached") >= cuts


def test_xa_with_a_commit_after_failover(java: Java, pair: Pair) -> None:
    """Branches as a transaction manager has them; the prepared one is in doubt at the other node and commits there."""
    process = java("Xa", pair.url, stdin=subprocess.PIPE)
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if line == "prepared\n":
            break
    assert process.poll() is None, "".join(seen)
    pair.primary.kill()
    pair.backup.wait_ready("active")
    output, _ = process.communicate("go\n", timeout=120)
    assert process.returncode == 0, "".join(seen) + output
    assert sum(line.startswith("ok ") for line in seen) == 5
    assert output.endswith("ok failover\ndone\n"), output
