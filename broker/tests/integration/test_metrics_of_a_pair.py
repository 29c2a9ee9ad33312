"""Goal: each series that warns an operator appears in the metrics of a real pair, with a right value.

Method: a pair of processes; a client sends, a login and a delivery fail, the active node is killed.
"""

from __future__ import annotations

import os
import shutil
import time
import urllib.request
from pathlib import Path

import pytest

from support import forked
from support.certificates import make
from support.processes import COMMAND, TOKEN, Node, Pair, invoke
from support.replicated import wait_until

SETTINGS = """
    <address-settings>
      <address-setting match="#"><dead-letter-address>DLQ</dead-letter-address></address-setting>
    </address-settings>
    <addresses><address name="DLQ"><anycast><queue name="DLQ"/></anycast></address></addresses>
    <global-max-size>64Mb</global-max-size>
"""


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path, security=True, extra=SETTINGS)


def metrics_of(node: Node) -> dict[str, float]:
    """Series -> value of a scrape."""
    request = urllib.request.Request(
        f"http://{node.host}:{node.http_port}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        lines = [line for line in str(answer.read(), "utf-8").splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def run(*arguments: object, password: str = "secret of bob") -> int:
    """Exit code of a command with a login."""
    command = [str(COMMAND), *map(str, arguments), "--user", "bob"]
    environment = os.environ | {"UNDERSTUDY_PASSWORD": password}
    return forked.run(command, capture_output=True, text=True, timeout=60, env=environment).returncode


def test_every_series_that_warns_has_a_right_value(pair: Pair, tmp_path: Path) -> None:
    try:
        pair.start()
        url = f"tcp://127.0.0.1:{pair.primary.port}"
        alone = metrics_of(pair.primary)
        assert alone["understudy_dead_letters"] == 0
        assert run("produce", "--url", url, "--queue", "q", "--count", 20, "--size", 1_000) == 0
        assert run("produce", "--url", url, "--queue", "DLQ", "--count", 3) == 0
        assert run("produce", "--url", url, "--queue", "q", "--count", 1, password="wrong") != 0
        wait_until(lambda: metrics_of(pair.primary)["understudy_loop_lag_seconds_count"] > 2, pair.primary)
        found = metrics_of(pair.primary)

        assert found["understudy_backup_present"] == found["understudy_protected"] == 1
        assert 0 <= found["understudy_lock_proof_age_seconds"] < 30
        assert found['understudy_failovers_total{kind="take-over"}'] == 0

        batches = found["understudy_confirmation_latency_seconds_count"]
        assert alone["understudy_confirmation_latency_seconds_count"] < batches
        assert found['understudy_confirmation_latency_seconds_bucket{le="+Inf"}'] == batches
        assert 0 < found["understudy_sync_latency_seconds_sum"] <= found["understudy_confirmation_latency_seconds_sum"]
        assert found["understudy_sync_latency_seconds_count"] >= batches

        received = 'understudy_acceptor_received_bytes_total{acceptor="core"}'
        assert 20_000 < found[received] - alone[received] < 100_000
        assert found['understudy_acceptor_sent_bytes_total{acceptor="core"}'] > 0

        usage = shutil.disk_usage(pair.store)
        assert found["understudy_disk_size_bytes"] == pytest.approx(usage.used + usage.free, rel=0.01)
        assert 0 < found["understudy_disk_free_bytes"] <= usage.total

        assert 20_000 < found["understudy_message_memory_bytes"] < 1_000_000
        assert found["understudy_message_memory_limit_bytes"] == 64 * 1024 * 1024
        assert found["understudy_dead_letters"] == 3
        assert found['understudy_login_failures_total{reason="wrong-credentials"}'] == 1
        oldest = {series: value for series, value in found.items() if "oldest_message_age" in series}
        assert {series.partition('queue="')[2].partition('"')[0] for series in oldest} == {"q", "DLQ"}
        assert all(0 <= value <= found["understudy_uptime_seconds"] for value in oldest.values())

        passive = metrics_of(pair.backup)
        assert "understudy_backup_present" not in passive
        assert passive["understudy_disk_size_bytes"] == found["understudy_disk_size_bytes"]
        pair.primary.kill()
        pair.backup.wait_ready("active")
        after = metrics_of(pair.backup)
        assert after['understudy_failovers_total{kind="take-over"}'] == 1
        assert after["understudy_backup_present"] == after["understudy_protected"] == 0
        assert invoke(pair.backup, "queue.q", "removeAllMessages")[0] == 200
        assert not any("oldest" in series and '"q"' in series for series in metrics_of(pair.backup))
    finally:
        pair.end()


def test_the_end_of_a_certificate_is_shown(tmp_path: Path) -> None:
    store = make(days=12).write(tmp_path / "server.pem")
    pair = Pair(tmp_path, acceptor=f"?sslEnabled=true;keyStorePath={store}")
    try:
        pair.primary.start().wait_ready("active")
        end_s = metrics_of(pair.primary)['understudy_acceptor_certificate_expiry_seconds{acceptor="core"}']
        assert 11 < (end_s - time.time()) / 86_400 < 13
    finally:
        pair.end()
