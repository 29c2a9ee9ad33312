"""Listening sockets: sizes of their buffers, ports that are reserved. Descriptors are in ``test_descriptors``."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from understudy.runtime.net.listening import allow_listening, bound_socket, reserve_port, resize_buffers

_LISTENS = """
import socket, sys
made = socket.socket()
made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
made.bind(("127.0.0.1", int(sys.argv[1])))
made.listen()
"""
_SIZES = {socket.SO_SNDBUF: "wmem_max", socket.SO_RCVBUF: "rmem_max"}


def _sizes(made: socket.socket) -> list[int]:
    return [made.getsockopt(socket.SOL_SOCKET, option) for option in _SIZES]


def _greatest(name: str) -> int:
    return int(Path(f"/proc/sys/net/core/{name}").read_text())


def test_buffers_get_the_configured_sizes() -> None:
    with socket.socket() as made:
        resize_buffers(made, 50_000, 60_000)
        # Linux counts its own bookkeeping as well and answers with twice the size
        assert _sizes(made) == [100_000, 120_000]


@pytest.mark.parametrize("size_bytes", [-1, 0])
def test_buffers_are_left_to_the_system(size_bytes: int) -> None:
    with socket.socket() as made:
        before = _sizes(made)
        resize_buffers(made, size_bytes, size_bytes)
        assert _sizes(made) == before


def test_a_size_that_the_system_does_not_grant_in_full_is_left_to_it() -> None:
    with socket.socket() as made:
        before = _sizes(made)
        resize_buffers(made, _greatest("wmem_max") + 1, _greatest("rmem_max") + 1)
        assert _sizes(made) == before
        resize_buffers(made, _greatest("wmem_max"), _greatest("rmem_max"))
        assert _sizes(made) == [2 * _greatest(name) for name in _SIZES.values()]


def test_accepted_sockets_probe_a_silent_peer() -> None:
    """A client of AMQP 0-9-1 without heartbeats whose host is gone is noticed by nothing else."""
    with bound_socket(socket.AF_INET, ("127.0.0.1", 0)) as made:
        made.listen()
        made.setblocking(True)
        with socket.create_connection(made.getsockname()), made.accept()[0] as accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            assert [accepted.getsockopt(socket.IPPROTO_TCP, each) for each in options] == [30, 10, 3]


def test_a_port_that_is_reserved_refuses_clients_and_is_given_to_no_other_process() -> None:
    with bound_socket(socket.AF_INET, ("127.0.0.1", 0)) as made:
        port = made.getsockname()[1]
        reserve_port(made)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        other = subprocess.run([sys.executable, "-c", _LISTENS, str(port)], capture_output=True, text=True)
        assert "Address already in use" in other.stderr
        allow_listening(made)
        made.listen()
        socket.create_connection(("127.0.0.1", port)).close()
