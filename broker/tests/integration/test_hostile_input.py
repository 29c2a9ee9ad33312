"""Hostile and accidental input: it gives a clear log line, and the broker continues to serve."""

from __future__ import annotations

import os
import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import forked
from support.processes import COMMAND, Node, Pair, assert_serves


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    pair = Pair(tmp_path)
    try:
        pair.primary.start().wait_ready("active")
        yield pair.primary
    finally:
        pair.end()


def answer_to(node: Node, data: bytes) -> bytes:
    """Everything the broker says until it closes the connection, which it need not read to the end before."""
    with socket.create_connection(("127.0.0.1", node.port), timeout=60) as stranger:
        said = b""
        try:
            stranger.sendall(data)
            while chunk := stranger.recv(65536):
                said += chunk
        except ConnectionError:
            pass
        return said


PING = struct.pack(">ibqq", 17, 10, 0, 60_000)

HOSTILE = {
    "garbage": random.Random(1).randbytes(4096),
    "wrong magic": b"ARTEMUS!" + PING,
    "http": b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    "frame length 0x7fffffff": b"ARTEMIS" + struct.pack(">ibq", 0x7FFFFFFF, 10, 0),
    "negative frame length": b"ARTEMIS" + struct.pack(">ibq", -5, 10, 0),
    "tiny frame length": b"ARTEMIS" + struct.pack(">ibq", 3, 10, 0),
    "large frame before login": b"ARTEMIS" + struct.pack(">ibq", 10 * 1024 * 1024, 71, 10) + b"x" * 100_000,
    "unknown packet": b"ARTEMIS" + struct.pack(">ibq", 9, 99, 0),
    "garbage after a good ping": b"ARTEMIS" + PING + random.Random(2).randbytes(2048),
    "session frame without session": b"ARTEMIS" + struct.pack(">ibq", 9, 99, 10),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_end_their_connection_only(node: Node, name: str) -> None:
    answer_to(node, HOSTILE[name])
    assert node.process is not None
    assert node.process.poll() is None
    assert "connection dropped" in node.tail() or "protocol not served" in node.tail()
    assert_serves(node)


def test_a_half_open_handshake_times_out(tmp_path: Path) -> None:
    pair = Pair(tmp_path, acceptor="?handshake-timeout=2")
    try:
        node = pair.primary.start()
        node.wait_ready("active")
        assert answer_to(node, b"ART") == b""
        assert "its first bytes did not come within the time limit" in node.tail()
        assert_serves(node)
    finally:
        pair.end()


def test_many_half_open_connections_do_not_keep_clients_out(node: Node) -> None:
    strangers = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(200)]
    try:
        assert_serves(node)
    finally:
        for stranger in strangers:
            stranger.close()


def test_a_typo_in_the_configuration_is_named_with_its_line(node: Node) -> None:
    text = node.config.read_text().replace("<security-enabled>", "<security-enable>", 1)
    text = text.replace("</security-enabled>", "</security-enable>", 1)
    broken = node.config.with_name("typo.xml")
    broken.write_text(text)
    done = forked.run([str(COMMAND), "run", "--check", "--config", str(broken)], capture_output=True, text=True)
    assert done.returncode == 2
    line = next(number for number, row in enumerate(text.splitlines(), 1) if "security-enable>" in row)
    assert f"typo.xml:{line}" in done.stderr
    assert "security-enabled" in done.stderr, "the nearest known name"


def fill(url: str) -> None:
    """Send 200 messages and then another one, whose confirmation proves that the first batch was synced."""
    for count in ("200", "1"):
        command = [str(COMMAND), "produce", "--url", url, "--queue", "q", "--count", count, "--size", "500"]
        forked.run(command, check=True, capture_output=True)


def fails_to_start(node: Node) -> str:
    node.end()
    node.start()
    assert node.process is not None
    assert node.process.wait(60) == 1
    return node.tail()


def segments(node: Node) -> list[Path]:
    journal = node.directory.parent / "store" / "journal"
    return sorted(path for path in journal.glob("segment-*.log"))


def test_a_flipped_bit_is_located_and_never_served(node: Node) -> None:
    url = f"tcp://127.0.0.1:{node.port}"
    fill(url)
    node.kill()
    segment = segments(node)[0]  # the last one is prepared and empty
    data = bytearray(segment.read_bytes())
    data[20_000] ^= 0x10
    segment.write_bytes(data)
    said = fails_to_start(node)
    assert segment.name in said
    assert "offset" in said
    verify = forked.run([str(COMMAND), "data", "verify", str(segment.parent)], capture_output=True, text=True)
    assert verify.returncode == 1
    assert segment.name in (verify.stdout + verify.stderr).replace("\n", "")


def test_a_truncated_journal_is_not_served_as_if_whole(node: Node) -> None:
    url = f"tcp://127.0.0.1:{node.port}"
    fill(url)
    node.kill()
    segment = segments(node)[0]  # the last one is prepared and empty
    os.truncate(segment, 50_000)
    assert segment.name in fails_to_start(node)


def test_a_store_of_another_node_is_refused(node: Node) -> None:
    node.kill()
    lock = node.directory.parent / "store" / "journal" / "server.lock"
    content = bytearray(lock.read_bytes())
    content[3:19] = os.urandom(16)
    lock.write_bytes(content)
    assert "wrong-node" in fails_to_start(node)


def test_a_store_directory_that_is_a_file_is_named(node: Node) -> None:
    node.kill()
    text = node.config.read_text()
    blocked = node.directory / "blocked"
    blocked.write_text("")
    node.config.write_text(text.replace(str(node.directory.parent / "store" / "journal"), str(blocked / "journal")))
    assert "blocked" in fails_to_start(node)


def test_a_locked_store_is_waited_for_and_reported(tmp_path: Path) -> None:
    """A second primary on the store of a running one stays passive: it never serves beside it."""
    pair = Pair(tmp_path)
    try:
        pair.start()
        second = Node(tmp_path / "second", "primary", pair.primary.port + 0)
        second.config.parent.mkdir(parents=True)
        second.config.write_text(pair.primary.config.read_text())
        try:
            second.start().wait_ready("passive")
            assert pair.primary.get("/health/ready")[1]["state"] == "active"
        finally:
            second.end()
    finally:
        pair.end()


def test_a_flood_of_wrong_passwords_delays_no_other_client(tmp_path: Path) -> None:
    pair = Pair(tmp_path, security=True)
    try:
        node = pair.primary.start()
        node.wait_ready("active")
        url = f"tcp://127.0.0.1:{node.port}"
        command = [str(COMMAND), "produce", "--url", url, "--queue", "q", "--count", "1", "--user", "bob"]
        wrong, right = tmp_path / "wrong", tmp_path / "right"
        wrong.write_text("guessed\n")
        right.write_text("secret of bob\n")
        good = forked.run([*command, "--password-file", str(right)], capture_output=True, text=True, timeout=60)
        assert good.returncode == 0, good.stderr
        bad = forked.run([*command, "--password-file", str(wrong)], capture_output=True, text=True, timeout=60)
        assert bad.returncode == 1
        assert "bob" in bad.stderr
        assert "guessed" not in node.tail() + bad.stderr
        unauthenticated = forked.run(
            [str(COMMAND), "consume", "--url", url, "--queue", "q", "--count", "1"],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert unauthenticated.returncode == 1, "a client without a user has no permissions"
        again = forked.run([*command, "--password-file", str(right)], capture_output=True, text=True, timeout=60)
        assert again.returncode == 0, again.stderr
    finally:
        pair.end()
