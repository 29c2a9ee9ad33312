"""Every listener is called with every failure, also when another listener raises an error."""

from __future__ import annotations

from understudy.client.core.connection.listeners import FailoverEvent, FailureCode, Listeners
from understudy.errors import BrokerError, ConnectionLost


def test_every_listener_is_called_although_one_raises() -> None:
    lines: list[str] = []
    listeners = Listeners(lambda call: call(), lines.append)
    heard: list[object] = []

    def broken(*arguments: object) -> None:
        raise RuntimeError("mine")

    def listen(error: BrokerError, failed_over: bool, code: FailureCode) -> None:
        heard.append((str(error), failed_over, code))

    listeners.of_failures += [broken, listen]
    listeners.of_failovers += [broken, heard.append]
    listeners.failure_detected()
    listeners.failed_over(ConnectionLost("one"))
    listeners.disconnected(ConnectionLost("two"))
    assert heard == [
        FailoverEvent.FAILURE_DETECTED,
        FailoverEvent.FAILOVER_COMPLETED,
        ("one", True, FailureCode.FAILOVER),
        FailoverEvent.FAILOVER_FAILED,
        ("two", False, FailureCode.DISCONNECT),
    ]
    assert len(lines) == 5
    assert "mine" in lines[0]
