"""The command line of the Artemis distribution against our pair."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from support.processes import Pair

pytestmark = pytest.mark.maven


def run_artemis(command: Path, *arguments: str) -> str:
    result = subprocess.run([str(command), *arguments], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.feature("producer and consumer commands")
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
