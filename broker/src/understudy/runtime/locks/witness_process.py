"""The process of a witness: signals, the service manager and metrics around ``runtime.locks.witness_server``."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Iterator

from understudy.errors import ConfigError
from understudy.runtime.base.disk import RealDisk
from understudy.runtime.base.environment import BootClock, LoopTimers, SystemEntropy
from understudy.runtime.base.file_modes import check_directories
from understudy.runtime.base.turn import Turn
from understudy.runtime.base.worker import ThreadWorker
from understudy.runtime.locks.file_lock import RealFileLock
from understudy.runtime.locks.witness_server import WitnessPorts, WitnessServer
from understudy.runtime.process.systemd import Watchdog, notify

log = logging.getLogger(__name__)


async def serve_witness(
    directory: str,
    places: list[tuple[str, int]],
    secret: bytes,
    lease_max_ms: int,
    scrape: tuple[str, int] | None,
) -> int:
    """Run a witness until SIGTERM or SIGINT, or until it fails; the exit code.

    Args:
        places: Hosts and ports to listen on.
        secret: Shared with the clients.
        lease_max_ms: Longest lease.
        scrape: Host and port of metrics; None: there are none.

    Raises:
        BrokerError: it cannot start.
    """
    for complaint in check_directories([directory]):
        log.warning("file modes", extra={"detail": complaint})
    loop = asyncio.get_running_loop()
    timers = LoopTimers(loop)
    turn = Turn(loop, timers)
    ports = WitnessPorts(RealDisk(), RealFileLock, BootClock(), timers, SystemEntropy(), ThreadWorker(loop, turn, 1))
    server = WitnessServer(directory, secret, lease_max_ms, ports)
    turn.on_error = server.fail
    for host, port in places:
        await server.listen(host, port)
    if scrape is not None:
        _publish(server, *scrape)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop)
    watchdog = Watchdog(loop)
    watchdog.start()
    notify("READY=1\nSTATUS=witness")
    error = await server.run()
    notify("STOPPING=1")
    watchdog.stop()
    log.info("stopped", extra={"clean": error is None})
    return 0 if error is None else 1


def _publish(server: WitnessServer, host: str, port: int) -> None:
    """Serve metrics on a thread of their own."""
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector

    class _Counts(Collector):
        def collect(self) -> Iterator[Metric]:
            frames = CounterMetricFamily("understudy_witness_frames", "Requests and answers by kind.", labels=["kind"])
            for kind, count in dict(server.witness.counts).items():
                frames.add_metric([kind], count)
            yield frames
            status = server.witness.status()
            for name in ("locks_total", "numbers_total", "grants_in_ms", "uptime_ms"):
                yield GaugeMetricFamily(
                    f"understudy_witness_{name}", f"As in the status: {name}.", value=_number(status[name])
                )

    registry = CollectorRegistry()
    registry.register(_Counts())
    try:
        start_http_server(port, host, registry)
    except OSError as error:
        raise ConfigError(f"cannot serve metrics at {host}:{port}: {error.strerror or error}") from error


def _number(value: object) -> float:
    assert isinstance(value, int)
    return float(value)
