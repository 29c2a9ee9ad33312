"""A process that is killed with SIGKILL stops listening before its clients lose their connections (ADR 0021)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support import dead_backlog
from support.processes import Pair


def descriptors_of_sockets(pid: int) -> dict[str, int]:
    """Inode of each socket of a process to its descriptor."""
    found = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        target = os.readlink(f"/proc/{pid}/fd/{name}")
        if target.startswith("socket:["):
            found[target[8:-1]] = int(name)
    return found


def inodes_of_port(port: int) -> tuple[set[str], set[str]]:
    """Inodes of the listening sockets of a TCP port, and of its connections."""
    listening, connected = set(), set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[1].rpartition(":")[2], 16) == port:
            (listening if fields[3] == "0A" else connected).add(fields[9])
    return listening, connected


def test_a_listener_has_a_higher_descriptor_than_everything_else(pair: Pair) -> None:
    node = pair.primary
    node.start().wait_ready("active")
    assert node.process is not None
    clients = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(50)]
    accepted: set[int] = set()
    deadline = time.monotonic() + 30
    # the kernel answers for the listener: the node accepts the connections over several turns of its loop
    while len(accepted) < len(clients) and time.monotonic() < deadline:
        time.sleep(0.02)
        descriptors = descriptors_of_sockets(node.process.pid)
        listening, connected = inodes_of_port(node.port)
        accepted = {descriptors[inode] for inode in connected if inode in descriptors}
    assert len(accepted) == len(clients)
    listeners = {descriptors[inode] for inode in listening if inode in descriptors}
    assert len(listeners) == 1
    others = {int(name) for name in os.listdir(f"/proc/{node.process.pid}/fd")} - listeners
    assert min(listeners) > max(others) + 1_000
    for client in clients:
        client.close()


def kill_a_server_of_plain_sockets(floor: int) -> bool:
    server = subprocess.Popen(
        [sys.executable, "-S", dead_backlog.__file__, str(floor)],
        stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    try:
        assert server.stdout is not None
        return dead_backlog.reconnects_to_the_dead(server.pid, int(server.stdout.readline()))
    finally:
        server.kill()
        server.communicate()


def test_no_client_reconnects_to_a_killed_server_whose_listener_is_the_highest() -> None:
    assert not any(kill_a_server_of_plain_sockets(1_000) for _ in range(10))


@pytest.mark.long
def test_the_same_over_a_hundred_kills_and_the_number_with_a_low_listener() -> None:
    low = sum(kill_a_server_of_plain_sockets(0) for _ in range(100))
    high = sum(kill_a_server_of_plain_sockets(1_000) for _ in range(100))
    print(f"reconnected to the dead: {low} of 100 with a low listener, {high} of 100 with a high one")
    assert high == 0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_no_client_reconnects_to_a_killed_node_in_a_hundred_kills(pair: Pair) -> None:
    node, hits = pair.primary, 0
    for _ in range(100):
        node.start().wait_ready("active")
        assert node.process is not None
        hits += dead_backlog.reconnects_to_the_dead(node.process.pid, node.port, first=b"ARTEMIS")
        node.process.wait(60)
    assert hits == 0
