"""Ports of test servers: a test that was killed leaves servers, and no later test gets a port that they know."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support.ports import free_port, has_listener

_TESTS = Path(__file__).parents[1]
#: Takes two ports as a test of a pair does, starts a server on one of them, and waits to be killed.
_KILLED = """
import signal, socket, subprocess, sys
from support.ports import free_port
served, other = free_port(), free_port()
listener = socket.create_server((sys.argv[1], served))
server = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], pass_fds=[listener.fileno()])
print(served, other, server.pid, flush=True)
signal.pause()
"""


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, cwd=_TESTS, env=os.environ | {"PYTHONPATH": str(_TESTS)},
                            stdout=subprocess.PIPE, text=True)  # fmt: skip


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"])
def test_ports_beside_a_server_of_a_killed_test_are_not_given_again(address: str) -> None:
    killed = start(_KILLED, address)
    assert killed.stdout is not None
    served, other, server = map(int, killed.stdout.readline().split())
    try:
        killed.kill()
        killed.wait()
        given = start("from support.ports import free_port; print(*(free_port() for _ in range(150)))")
        ports = set(map(int, given.communicate(timeout=60)[0].split()))
    finally:
        os.kill(server, signal.SIGKILL)
        killed.stdout.close()
    assert len(ports) == 150
    assert not ports & {served, other}


def test_a_port_that_was_closed_a_moment_ago_is_no_leftover() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as server:
        assert has_listener(port)
        with socket.create_connection(("127.0.0.1", port)):
            accepted, _ = server.accept()
            # the side that closes first keeps the port for a minute, without a listener
            accepted.close()
    assert not has_listener(port)
