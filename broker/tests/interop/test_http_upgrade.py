"""The stock client with ``httpUpgradeEnabled``: through an HTTP upgrade to our acceptors, and over a failover."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.processes import Pair

pytestmark = pytest.mark.maven

Java = Callable[..., "subprocess.Popen[str]"]


@pytest.mark.feature("HTTP upgrade")
def test_the_stock_client_connects_and_fails_over_through_an_upgrade(java: Java, tmp_path: Path) -> None:
    """The connectors that the topology announces have the parameter, so the client asks the backup likewise."""
    pair = Pair(
        tmp_path,
        failover_on_shutdown=True,
        acceptor="?httpUpgradeEnabled=true",
        connector="?httpUpgradeEnabled=true;httpUpgradeEndpoint=core",
    )
    try:
        pair.start()
        url = (
            f"(tcp://127.0.0.1:{pair.primary.port},tcp://127.0.0.1:{pair.backup.port})?httpUpgradeEnabled=true"
            "&httpUpgradeEndpoint=core&ha=true&reconnectAttempts=-1&initialConnectAttempts=-1&retryInterval=100"
        )
        for node in (pair.primary, pair.backup):
            process = java("JmsBasics", url)
            output, _ = process.communicate(timeout=120)
            assert process.returncode == 0, output
            assert output.count("ok ") == 10, output
            if node is pair.primary:
                assert pair.primary.terminate() == 0
                pair.backup.wait_ready("active")
    finally:
        pair.end()


@pytest.mark.feature("HTTP upgrade")
def test_a_server_that_is_not_here_is_refused(java: Java, tmp_path: Path) -> None:
    pair = Pair(tmp_path, acceptor="?httpUpgradeEnabled=true")
    try:
        pair.primary.start().wait_ready("active")
        url = f"tcp://127.0.0.1:{pair.primary.port}?httpUpgradeEnabled=true&activemqServerName=colocated_backup_01"
        process = java("JmsBasics", url)
        output, _ = process.communicate(timeout=120)
        assert process.returncode != 0, output
        assert "upgrade refused" in pair.primary.log.read_text()
    finally:
        pair.end()
