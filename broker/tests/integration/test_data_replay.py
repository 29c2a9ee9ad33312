"""A real broker with the journal settings of the documents: retention fills, replay sends again, once.

Goal: what consumers have had can be had again for a time and an address, and asking twice gives it
once; syncing off is honoured and said loudly.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from tests.support.processes import Pair

from understudy.client.sync import connect

COMMAND = [sys.executable, "-c", "from understudy.cli.main import main; main()"]


def run(*arguments: str, code: int = 0) -> dict[str, object]:
    ended = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == code, (ended.returncode, ended.stdout, ended.stderr)
    result: dict[str, object] = json.loads(ended.stdout)
    return result


def test_retained_segments_are_replayed_once(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    extra = f"""
    <journal-file-size>1M</journal-file-size>
    <journal-min-files>3</journal-min-files>
    <journal-sync-transactional>false</journal-sync-transactional>
    <journal-sync-non-transactional>false</journal-sync-non-transactional>
    <journal-retention-directory unit="HOURS" period="2" storage-limit="20M">{kept}</journal-retention-directory>
    """
    pair = Pair(tmp_path, extra=extra)
    node = pair.primary
    url = f"tcp://127.0.0.1:{node.port}"
    try:
        node.start().wait_ready("active")
        with connect(url) as connection, connection.session() as session:
            session.start()
            for queue in ("rare", "often"):
                producer, consumer = session.producer(queue), session.consumer(queue)
                for number in range(8 if queue == "rare" else 120):
                    producer.send(bytes(100_000), properties={"n": number})
                    received = consumer.receive(10)
                    assert received is not None
                    consumer.acknowledge(received)
        assert len(list(kept.iterdir())) >= 4
        assert "SYNC IS OFF" in node.tail()
        before = {path.name: path.stat().st_mtime_ns for path in kept.iterdir()}
        arguments = ["data", "replay", str(kept), "--url", url, "--address", "rare", "--filter", "n >= 3", "--json"]
        assert run(*arguments, "--dry-run")["messages"] == 5
        past = datetime(2020, 1, 1, tzinfo=UTC).isoformat()
        assert run(*arguments, "--to", past)["messages"] == 0
        for _ in range(2):
            assert run(*arguments, "--from", past)["confirmed"] == 5
            queue = node.queue("rare")
            assert queue is not None
            assert queue["message_count"] == 5
        assert run(*arguments, "--target", "elsewhere")["confirmed"] == 5
        assert (node.queue("elsewhere") or {})["message_count"] == 5
        assert {name for name in before if (kept / name).stat().st_mtime_ns == before[name]} == set(before)
        assert node.terminate() == 0
        node.start().wait_ready("active")
        assert (node.queue("rare") or {})["message_count"] == 5
    finally:
        pair.end()
