"""Probes of the network check on this machine; the ping command is a script."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from support.config import read
from understudy.ha.life.network_check import Reach
from understudy.runtime.base.network_probe import NetworkProber, ProbeOptions, make_network_check, ping_arguments


def probe(target: str, options: ProbeOptions, *, url: bool = False) -> Reach:
    async def run() -> Reach:
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Reach] = loop.create_future()
        prober = NetworkProber(loop, options)
        (prober.url if url else prober.address)(target, result.set_result)
        return await asyncio.wait_for(result, 20)

    return asyncio.run(run())


def script(directory: Path, text: str) -> str:
    path = directory / "ping"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("ping -c 1 -w %d %s", ["ping", "-c", "1", "-w", "2", "10.0.0.1"]),
        ("ping6 -c 1 %2$s", ["ping6", "-c", "1", "10.0.0.1"]),
        ("p  %2$s/%1$d %%d", ["p", "10.0.0.1/2", "%d"]),
    ],
)
def test_arguments_of_a_ping_command(command: str, arguments: list[str]) -> None:
    assert ping_arguments(command, 2, "10.0.0.1") == arguments


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_this_machine_is_no_target(host: str) -> None:
    assert probe(host, ProbeOptions()) is Reach.LOOPBACK


# an address of the range for documentation: no host has it
@pytest.mark.parametrize(("status", "reach"), [(0, Reach.ANSWERED), (1, Reach.SILENT)])
def test_the_exit_status_of_the_ping_command_decides(tmp_path: Path, status: int, reach: Reach) -> None:
    command = script(tmp_path, f'echo "$@" > {tmp_path}/arguments; exit {status}')
    options = ProbeOptions(timeout_ms=3_000, ping_command=f"{command} %d %s")
    assert probe("192.0.2.1", options) is reach
    assert (tmp_path / "arguments").read_text() == "3 192.0.2.1\n"


def test_a_ping_command_that_hangs_is_killed(tmp_path: Path) -> None:
    command = script(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 100")
    assert probe("192.0.2.1", ProbeOptions(timeout_ms=1_000, ping_command=f"{command} %d %s")) is Reach.SILENT
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize("host", ["-c", "no.such.host.invalid"])
def test_a_host_that_cannot_be_looked_up_is_silent(tmp_path: Path, host: str) -> None:
    options = ProbeOptions(timeout_ms=500, ping_command=f"{script(tmp_path, 'exit 0')} %d %s")
    assert probe(host, options) is Reach.SILENT


def test_a_missing_ping_command_means_silence() -> None:
    assert probe("192.0.2.1", ProbeOptions(ping_command="/no/such/ping %d %s")) is Reach.SILENT


def own_address() -> str | None:
    """An address of this machine that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probing:
        try:
            probing.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return str(probing.getsockname()[0])


def test_a_refused_connection_is_an_answer() -> None:
    address = own_address()
    if address is None:
        pytest.skip("this machine has no address beside loopback")
    assert probe(address, ProbeOptions()) is Reach.ANSWERED


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/good" else 500)
        self.end_headers()

    def log_message(self, *arguments: object) -> None: ...


def test_urls_are_fetched() -> None:
    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        base = f"http://127.0.0.1:{server.server_port}"
        assert probe(f"{base}/good", ProbeOptions(), url=True) is Reach.ANSWERED
        assert probe(f"{base}/bad", ProbeOptions(), url=True) is Reach.SILENT
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert probe(f"{base}/good", ProbeOptions(), url=True) is Reach.SILENT


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://h/", "nonsense"])
def test_other_urls_are_not_fetched(url: str) -> None:
    assert probe(url, ProbeOptions(), url=True) is Reach.SILENT


def test_the_check_is_made_from_the_configuration() -> None:
    loaded = read(
        "<network-check-list>a, b</network-check-list><network-check-URL-list>http://u</network-check-URL-list>"
        "<network-check-timeout>7</network-check-timeout><network-check-NIC>eth9</network-check-NIC>"
        "<network-check-ping-command>p %s</network-check-ping-command>"
    )
    made: list[ProbeOptions] = []

    def prober(options: ProbeOptions) -> NetworkProber:
        made.append(options)
        return NetworkProber(asyncio.new_event_loop(), options)

    check = make_network_check(loaded.configuration.ha_policy.network_check, prober, None)  # type: ignore[arg-type]  # not started
    assert check is not None
    assert (check._options.addresses, check._options.urls) == (("a", "b"), ("http://u",))
    assert made == [ProbeOptions(7, "eth9", "p %s")]
    assert made[0].only_ping
    assert make_network_check(read("").configuration.ha_policy.network_check, prober, None) is None  # type: ignore[arg-type]  # not started
