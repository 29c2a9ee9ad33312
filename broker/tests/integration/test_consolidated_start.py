"""A broker starts from a store that ``understudy pipeline consolidate`` has made, and serves the same messages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.processes import Pair

from support import forked
from understudy.client.sync import connect

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

_MESSAGES = 8000
_TAKEN = 5000
_LARGE = b"large " * 50_000


def understudy(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("understudy")), *arguments]
    return forked.run(command, capture_output=True, text=True, timeout=300, check=False)


def send_and_take(url: str) -> None:
    with connect(url) as connection, connection.session() as session:
        producer = session.producer("orders")
        for number in range(_MESSAGES):
            producer.send_nowait(b"%d " % number + bytes(1000))
        producer.send(_LARGE)
        session.start()
        consumer = session.consumer("orders")
        for _ in range(_TAKEN):
            received = consumer.receive(30)
            assert received is not None
            session.acknowledge(received)


def test_a_broker_serves_from_a_consolidated_store(tmp_path: Path) -> None:
    pair = Pair(tmp_path, extra="<journal-file-size>1048576</journal-file-size>")
    node = pair.primary
    try:
        node.start().wait_ready("active")
        url = f"tcp://127.0.0.1:{node.port}"
        send_and_take(url)
        node.kill()
        journal = pair.store / "journal"
        refused = understudy("pipeline", "consolidate", str(journal), "-o", str(journal / "inside"))
        assert refused.returncode == 2
        made = understudy("pipeline", "consolidate", str(journal), "-o", str(tmp_path / "new"), "--json")
        assert made.returncode == 0, made.stderr
        report = json.loads(made.stdout)
        assert report["references"] > 0
        assert report["segments_copied"] < report["segments"] + 2
        verified = understudy("data", "verify", str(tmp_path / "new" / "journal"))
        assert verified.returncode == 0, verified.stdout + verified.stderr
        for name in ("journal", "large-messages"):
            (pair.store / name).rename(tmp_path / f"old-{name}")
            if (tmp_path / "new" / name).exists():
                (tmp_path / "new" / name).rename(pair.store / name)
        node.start().wait_ready("active")
        with connect(url) as connection, connection.session() as session:
            session.start()
            found = [received.read_body() for received in session.browser("orders")]
        assert [int(body.split(b" ")[0]) for body in found[:-1]] == list(range(_TAKEN, _MESSAGES))
        assert found[-1] == _LARGE
    finally:
        pair.end()
