"""The stock client follows from the main server of one process to the backup in the other one (ADR 0075)."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.processes import COMMAND
from support.two_servers import TwoServers, states

pytestmark = [pytest.mark.maven, pytest.mark.long]

Java = Callable[..., "subprocess.Popen[str]"]


@pytest.mark.feature("failover: sends, consumers, temporary queues, transactions, XA, listeners")
@pytest.mark.parametrize("shares_port", [False, True], ids=["own-ports", "one-port"])
@pytest.mark.parametrize("kind", ["shared-store", "replication"])
def test_the_stock_client_follows_to_the_other_process_and_back(
    java: Java, tmp_path: Path, kind: str, shares_port: bool
) -> None:
    servers = TwoServers(tmp_path, kind, shares_port=shares_port)
    try:
        first, second = servers.start().nodes
        upgrade = "&httpUpgradeEnabled=true&activemqServerName=a-main" if shares_port else ""
        url = f"tcp://127.0.0.1:{first.port}?ha=true&reconnectAttempts=-1&retryInterval=100{upgrade}"
        process = java("JmsBasics", url)
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output
        count = 3_000
        produced = subprocess.run(
            [str(COMMAND), "produce", "--url", url, "--queue", "q", "--count", str(count), "--size", "100"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert produced.returncode == 0, produced.stderr
        consumer = java("ReceiveAcrossFailover", url, "q", str(count))
        assert consumer.stdout is not None
        seen = []
        killed = False
        for line in consumer.stdout:
            seen.append(line)
            progress = re.match(r"got (\d+)", line)
            if progress and not killed and int(progress[1]) >= count // 4:
                first.kill()
                killed = True
            if progress and killed and int(progress[1]) >= count // 2:
                break
        assert states(second) == {"b-main": "active", "backup": "active"}
        first.start().wait_ready("active")
        rest, _ = consumer.communicate(timeout=120)
        assert consumer.returncode == 0, "".join(seen) + rest + second.tail()
        assert f"done {count} distinct" in "".join(seen) + rest, rest[-500:]
        servers.wait_backups()
    finally:
        servers.end()
