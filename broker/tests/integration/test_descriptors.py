"""A real node with few file descriptors and thousands of connections that never log in.

Goal: clients that are connected go on, the log begins new segments, the lock stays proved, management answers, and a
client that comes during the flood is served.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from contextlib import suppress

import pytest

from support import forked
from support.nodes import Nodes
from support.processes import COMMAND, Node, assert_serves

SMALL_SEGMENTS = "<journal-file-size>1M</journal-file-size>"
FLOOD = 1_500


@pytest.fixture
def node(nodes: Nodes) -> Node:
    pair = nodes.pair(extra=SMALL_SEGMENTS)
    pair.primary.open_files = (256, 640)
    pair.primary.start().wait_ready("active")
    return pair.primary


def segments(node: Node) -> set[str]:
    return {name for name in os.listdir(node.directory.parent / "store" / "journal") if name.startswith("segment-")}


def connect(node: Node, strangers: list[socket.socket]) -> None:
    stranger = socket.socket()
    stranger.settimeout(1)
    strangers.append(stranger)
    # a full backlog or a reset is an answer, too
    with suppress(OSError):
        stranger.connect(("127.0.0.1", node.port))


def test_a_flood_before_login_takes_no_descriptor_that_the_node_needs(node: Node) -> None:
    assert node.process is not None
    url = f"tcp://127.0.0.1:{node.port}"
    served = [
        forked.Popen(
            [str(COMMAND), *arguments, "--url", url, "--queue", "present", "--count", "600"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for arguments in (("consume",), ("produce", "--size", "4000", "--rate", "200"))
    ]  # fmt: skip
    while (node.queue("present") or {}).get("consumer_count") != 1:
        time.sleep(0.02)
    strangers: list[socket.socket] = []
    try:
        for _ in range(FLOOD):
            connect(node, strangers)
        before = segments(node)
        assert len(os.listdir(f"/proc/{node.process.pid}/fd")) < 640
        # a client that comes now is served, and makes the log begin segments
        assert_serves(node)
        for process in served:
            output, _ = process.communicate(timeout=120)
            assert process.returncode == 0, output + node.tail()
        assert segments(node) - before, "the log began no segment meanwhile"
        node.wait_ready("active")
    finally:
        for stranger in strangers:
            stranger.close()
        for process in served:
            process.kill()
            process.wait(10)
    events = [json.loads(line) for line in node.log.read_text().splitlines()]
    assert not [event for event in events if event["level"] in ("error", "critical")], node.tail()
    assert {"event": "limit of open files raised", "from": 256, "to": 640}.items() <= next(
        event for event in events if event["event"].startswith("limit")
    ).items()


@pytest.mark.long
def test_a_node_that_has_no_descriptor_left_keeps_its_lock_and_says_why_it_waits(node: Node) -> None:
    """Descriptors are taken by something that the node does not count: its limit is lowered under it."""
    assert node.process is not None
    used = max(map(int, os.listdir(f"/proc/{node.process.pid}/fd")))
    assert used >= 608, "the listener has one of the highest numbers"
    below = sorted(int(name) for name in os.listdir(f"/proc/{node.process.pid}/fd") if int(name) < 608)
    subprocess.run(["prlimit", "--pid", str(node.process.pid), f"--nofile={below[-1] + 1}:640"], check=True)
    strangers: list[socket.socket] = []
    try:
        for _ in range(50):
            connect(node, strangers)
        # the lock is proved every second, and each proof opens the state of the store
        until = time.monotonic() + 3
        while time.monotonic() < until:
            assert node.process.poll() is None, node.tail()
            time.sleep(0.1)
    finally:
        for stranger in strangers:
            stranger.close()
    subprocess.run(["prlimit", "--pid", str(node.process.pid), "--nofile=640:640"], check=True)
    assert_serves(node)
    assert "lock lost" not in node.log.read_text()
