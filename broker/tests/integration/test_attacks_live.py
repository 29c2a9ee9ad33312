"""A running node under fuzz: strangers and a logged-in client send mutated conversations over sockets.

Goal: the node neither dies nor grows, its log tells of refused bytes and of no bug, and an honest
client that works all the while loses nothing, which its ledger proves.
"""

from __future__ import annotations

import os
import random
import select
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fuzz.captures import streams
from fuzz.mutation import mutate
from fuzz.targets_conversations import session_script
from fuzz.targets_wire import sample_frames
from support import forked
from support.nodes import Nodes
from support.processes import COMMAND, Node
from understudy.limits import SKIMMED_BYTES_MAX
from understudy.wire.core import packets as p
from understudy.wire.core.codec import encode

#: How much larger the node may be afterwards, its caches filled: sessions that wait for their clients, and summaries of
#: segments that the consolidator has not processed. KiB.
GROWTH_KIB_MAX = 48 * 1024 + SKIMMED_BYTES_MAX // 1024
MESSAGES_PER_SECOND = 200


@pytest.fixture
def node(nodes: Nodes) -> Node:
    return nodes.active(security=True).primary


class Honest:
    """A producer and a consumer of the command line, each with its ledger."""

    def __init__(self, node: Node, directory: Path, count: int) -> None:
        password = directory / "password"
        password.write_text("secret of bob\n")
        password.chmod(0o600)
        self.ledgers = [directory / "sent.ledger", directory / "received.ledger"]
        common = ["--url", f"tcp://127.0.0.1:{node.port}?reconnectAttempts=-1", "--queue", "honest"]
        common += ["--user", "bob", "--password-file", str(password), "--count", str(count)]
        self._processes = [
            forked.Popen([str(COMMAND), *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for arguments in (
                ["produce", *common, "--rate", str(MESSAGES_PER_SECOND), "--ledger", str(self.ledgers[0])],
                ["consume", *common, "--ledger", str(self.ledgers[1])],
            )
        ]

    def finish(self) -> None:
        """Everything was sent, confirmed, delivered and acknowledged once."""
        for process in self._processes:
            output, _ = process.communicate(timeout=90)
            assert process.returncode == 0, output
        done = forked.run(
            [str(COMMAND), "ledger", "check", *map(str, self.ledgers)], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def end(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait(10)


def login(stream: random.Random) -> bytes:
    """The magic and the login of a client that may do everything."""
    create = p.CreateSession(
        name=f"{stream.getrandbits(128):032x}-fuzz", session_channel_id=10, version=136, user="bob",
        password="secret of bob", min_large_message_size=102_400, xa=stream.random() < 0.2,
        auto_commit_sends=stream.random() < 0.7, auto_commit_acks=stream.random() < 0.7,
        confirmation_window=stream.choice((-1, -1, 1000)), pre_acknowledge=False, default_address=None,
    )  # fmt: skip
    return b"ARTEMIS" + encode(create, 1)


def send_for_a_moment(port: int, data: bytes) -> None:
    """Send, read answers for a moment, and close the connection in one of several ways."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as stranger:
        try:
            stranger.sendall(data)
            if select.select([stranger], [], [], 0.02)[0]:
                stranger.recv(65536)
        except OSError:
            pass


def fuzz(port: int, seconds: float, seed: int) -> int:
    """How many conversations there were."""
    stream = random.Random(seed)
    strangers = [b"ARTEMIS" + frame for frame in sample_frames()] + list(streams("to-server"))
    script = [encode(packet, 10) for packet in session_script()]
    clients = [*script, *sample_frames(), b"".join(script), *(b"".join(script[at : at + 5]) for at in range(20))]
    until = time.monotonic() + seconds
    count = 0
    while time.monotonic() < until:
        logged_in = stream.random() < 0.6
        start = login(stream) if logged_in else b""
        send_for_a_moment(port, start + mutate(clients if logged_in else strangers, stream, 8192))
        count += 1
    return count


def resident_kib(node: Node) -> int:
    assert node.process is not None
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def descriptors(node: Node) -> int:
    assert node.process is not None
    return len(os.listdir(f"/proc/{node.process.pid}/fd"))


@pytest.mark.parametrize("seconds", [10, pytest.param(150, marks=pytest.mark.long)])
def test_a_node_under_fuzz_serves_on(node: Node, tmp_path: Path, seconds: int) -> None:
    seed = random.SystemRandom().randrange(1 << 31)
    print(f"seed {seed}")
    fuzz(node.port, 2, seed + 1)  # caches fill once
    before_kib, before_descriptors = resident_kib(node), descriptors(node)
    honest = Honest(node, tmp_path, MESSAGES_PER_SECOND * seconds)
    try:
        with ThreadPoolExecutor(2) as strangers:
            assert all(strangers.map(lambda each: fuzz(node.port, seconds, seed + each), (2, 3)))
        assert node.process is not None
        assert node.process.poll() is None, node.tail()
        honest.finish()
    finally:
        honest.end()
    log = node.log.read_text(errors="replace")
    assert "internal error" not in log, [line for line in log.splitlines() if "internal error" in line][:3]
    assert "Traceback" not in log
    assert "connection dropped" in log, "nothing was refused: this was no fuzz"
    assert node.get("/health/ready")[0] == 200
    assert resident_kib(node) - before_kib < GROWTH_KIB_MAX
    # the last strangers have hung up; the node hears of it when it comes to it
    began = time.monotonic()
    while node.facts()["connections"] != 0 or descriptors(node) > before_descriptors + 10:
        assert time.monotonic() - began < 60, (node.facts()["connections"], descriptors(node), before_descriptors)
        time.sleep(0.1)
