"""The Java client of RabbitMQ, as it is, against our broker: its automatic recovery over failover and failback."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from support.processes import Pair

pytestmark = pytest.mark.maven


@pytest.mark.feature("AMQP 0-9-1: the automatic recovery of the Java client over failover and failback")
def test_the_client_recovers_connection_channels_and_topology(
    java: Callable[..., subprocess.Popen[str]], pair: Pair
) -> None:
    client = java("AmqpRecovery", str(pair.primary.port), str(pair.backup.port), stdin=subprocess.PIPE)
    assert client.stdin is not None
    assert client.stdout is not None

    def check(text: str) -> None:
        """Have a message sent and wait until the consumer of the client has it; another one may come again."""
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(f"{text}\n")
        client.stdin.flush()
        seen = []
        for line in client.stdout:
            seen.append(line)
            if line == f"got {text}\n":
                return
        raise AssertionError(f"the client ended: {''.join(seen)}")

    try:
        check("before")
        pair.primary.kill()
        pair.backup.wait_ready("active")
        check("after the failover")
        pair.primary.start().wait_ready("active")
        check("after the failback")
        client.stdin.close()
        assert client.wait(60) == 0
    finally:
        client.kill()
        client.wait(30)
