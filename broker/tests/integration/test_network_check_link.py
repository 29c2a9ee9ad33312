"""The network check with a real interface that goes down, in a network namespace of its own (root)."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from support.processes import COMMAND, READY_S, Node, Pair

pytestmark = pytest.mark.long

#: Addresses of the range for documentation, on both ends of a virtual cable.
OUTSIDE, INSIDE = "192.0.2.1", "192.0.2.2"


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=30)


@pytest.fixture
def namespaces():
    """Names of two namespaces with a cable between them, and of the end of the cable in the second."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and iproute2")
    ends = {name: (f"u{name}{os.getpid()}", address) for name, address in (("i", INSIDE), ("o", OUTSIDE))}
    (inside, _), (outside, _) = ends["i"], ends["o"]
    made: list[str] = []
    try:
        for name, _ in ends.values():
            ip("netns", "add", name)
            made.append(name)
        ip("-n", inside, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", outside)
        for name, address in ends.values():
            ip("-n", name, "address", "add", f"{address}/30", "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield inside, outside
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespaces here: {error.stderr!r}")
    finally:
        for name in made:
            ip("netns", "del", name)


def wait_for(node: Node, state: str, times: int) -> None:
    """Until the node has reached the state so often; its management cannot be reached from outside."""
    deadline = time.monotonic() + READY_S
    while node.log.read_text().count(f'"to": "{state}"') < times:
        assert time.monotonic() < deadline, node.tail()
        time.sleep(0.05)


def test_a_node_stops_while_its_network_is_down(tmp_path: Path, namespaces: tuple[str, str]) -> None:
    inside, outside = namespaces
    check = f"<network-check-list>{OUTSIDE}</network-check-list><network-check-period>200</network-check-period>"
    pair = Pair(tmp_path, extra=check)
    pair.primary.command = ("ip", "netns", "exec", inside, str(COMMAND))
    try:
        pair.primary.start()
        wait_for(pair.primary, "ACTIVE", 1)
        ip("-n", outside, "link", "set", "cable", "down")
        wait_for(pair.primary, "ISOLATED", 1)
        ip("-n", outside, "link", "set", "cable", "up")
        wait_for(pair.primary, "ACTIVE", 2)
    finally:
        pair.end()
