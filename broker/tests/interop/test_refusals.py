"""Requests beyond the limits, of a stock client with reconnectAttempts=-1: each fails alone, without a reconnection."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from support.processes import Pair

pytestmark = pytest.mark.maven


@pytest.mark.feature("sessions, subscriptions and acknowledgement modes")
def test_a_refused_request_fails_alone(java: Callable[..., subprocess.Popen[str]], pair: Pair) -> None:
    process = java("Refusals", pair.url)
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output[-4000:]
    assert output.endswith("done\n"), output[-1000:]
    assert output.count("ok ") == 10
