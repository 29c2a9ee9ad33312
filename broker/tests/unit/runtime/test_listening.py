"""Listening sockets: sizes of their buffers. The numbers of descriptors are in ``test_descriptors``."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from understudy.runtime.listening import resize_buffers

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
