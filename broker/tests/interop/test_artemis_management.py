"""Management and notifications by the helpers of the stock Java client, against a real broker."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from support.processes import Pair

pytestmark = pytest.mark.maven

Java = Callable[..., "subprocess.Popen[str]"]


@pytest.mark.feature("management over messages")
def test_the_stock_helpers_manage_the_broker(java: Java, pair: Pair) -> None:
    """JMS with a QueueRequestor, core with a ClientRequestor, SimpleManagement."""
    process = java("Managing", f"tcp://127.0.0.1:{pair.primary.port}")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert output.count("ok ") == 8, output
    log = pair.primary.log.read_text()
    assert '"operation": "removeMessages"' in log, "what changes something is logged with its user"


@pytest.mark.feature("notifications")
def test_a_stock_subscriber_is_notified(java: Java, pair: Pair) -> None:
    """A JMS topic subscription with selectors: bindings, consumers, sessions."""
    process = java("Notified", f"tcp://127.0.0.1:{pair.primary.port}")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert output.count("ok ") == 4, output
