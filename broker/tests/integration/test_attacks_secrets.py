"""Secrets stay where they belong (docs/operate/security.md, class 12): a scripted run, and all its output searched."""

from __future__ import annotations

import os
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest

from support import forked
from support.processes import COMMAND, TOKEN, Node, Pair
from understudy.wire.core import packets as p
from understudy.wire.core.codec import FrameDecoder, encode

PASSWORD = "secret of bob"
WRONG = "a password typed by mistake"
CLUSTER_PASSWORD = "a-secret-of-this-test"
SESSION_NAME = "5e551015-ec2e-4000-8000-0123456789ab"
BODY = "the body of a private message"


def fetch(node: Node, path: str) -> str:
    request = urllib.request.Request(
        f"http://127.0.0.1:{node.http_port}{path}", headers={"Authorization": f"Bearer {TOKEN}"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode())


def say(node: Node, *packets: tuple[p.Packet, int]) -> None:
    """A conversation of its own, with things that go wrong in it."""
    with socket.create_connection(("127.0.0.1", node.port), timeout=5) as client:
        client.sendall(b"ARTEMIS" + b"".join(encode(packet, channel) for packet, channel in packets))
        client.settimeout(0.5)
        decoder = FrameDecoder("client")
        try:
            while data := client.recv(65536):
                decoder.receive_data(data)
        except TimeoutError:
            pass


def create_session(name: str, user: str, password: str) -> p.CreateSession:
    return p.CreateSession(name, 10, 136, user, password, 102_400, False, True, True, 1000, False, None)


def command(*arguments: str, tmp_path: Path) -> str:
    done = forked.run([str(COMMAND), *arguments], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    return done.stdout + done.stderr


def arguments_of_processes(pair: Pair) -> str:
    """The command lines of both nodes, which every user of the machine can read."""
    lines = []
    for node in (pair.primary, pair.backup):
        assert node.process is not None
        line = Path(f"/proc/{node.process.pid}/cmdline").read_bytes()
        assert b"understudy" in line
        lines.append(line.replace(b"\0", b" ").decode("utf-8", "replace"))
    return "\n".join(lines)


def test_no_secret_in_anything_that_is_written_down_or_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs at debug level, status, metrics, run files, command lines, dumps of the log, errors of clients."""
    # a forked process would show the command line of the process that it was forked from
    monkeypatch.setattr(forked, "Popen", subprocess.Popen)
    pair = Pair(tmp_path, security=True)
    shown: dict[str, str] = {}
    try:
        pair.primary.arguments = ("--log-level", "debug")
        pair.backup.arguments = ("--log-level", "debug")
        pair.start()
        node = pair.primary
        password, wrong = tmp_path / "password", tmp_path / "wrong"
        for path, text in ((password, PASSWORD), (wrong, WRONG)):
            path.write_text(text + "\n")
            path.chmod(0o600)
        body = tmp_path / "body"
        body.write_text(BODY + "\n")
        url = f"tcp://127.0.0.1:{node.port}"
        common = ("--url", url, "--queue", "private", "--user", "bob", "--password-file")
        shown["produce"] = command("produce", *common, str(password), "--file", str(body), tmp_path=tmp_path)
        shown["refused"] = command("produce", *common, str(wrong), "--count", "1", tmp_path=tmp_path)
        shown["bad url"] = command(
            "produce", "--url", f"tcp://127.0.0.1:1?user=bob&password={WRONG.split()[0]}XYZZY", "--queue", "q",
            "--count", "1", tmp_path=tmp_path,
        )  # fmt: skip
        say(
            node,
            (create_session(SESSION_NAME, "bob", PASSWORD), 1),
            (p.DeleteQueue("no such queue"), 10),
            (p.CreateConsumer(5, "private", "a = = 1", False, True, 0), 10),
            (p.ReattachSession(SESSION_NAME, 3), 1),
            (p.SessionClose(), 99),
        )
        say(node, (create_session(SESSION_NAME + "2", "bob", WRONG), 1))
        say(node, (p.ClusterConnect("cluster", CLUSTER_PASSWORD), 3))
        shown["status"] = command("status", "--instance", str(node.directory), tmp_path=tmp_path)
        shown["status json"] = command("status", "--instance", str(node.directory), "--json", tmp_path=tmp_path)
        for path in ("/api/v1/node", "/metrics", "/api/v1/openapi.json", "/health/ready"):
            shown[path] = fetch(node, path)
        shown["command lines"] = arguments_of_processes(pair)
        shown["run files"] = "".join(path.read_text() for path in (node.directory / "run").iterdir() if path.is_file())
        node.terminate()
        shown["data print"] = command("data", "print", str(pair.store / "journal"), tmp_path=tmp_path)
        shown["data verify"] = command("data", "verify", str(pair.store / "journal"), tmp_path=tmp_path)
    finally:
        pair.end()
    shown["log of the primary"] = pair.primary.log.read_text()
    shown["log of the backup"] = pair.backup.log.read_text()
    assert '"level": "debug"' in shown["log of the primary"], "the search is for everything that can be logged"
    assert "connection closed" in shown["log of the primary"]
    for place, text in shown.items():
        for secret in (PASSWORD, WRONG, CLUSTER_PASSWORD, SESSION_NAME, TOKEN, "XYZZY"):
            assert secret not in text, f"{secret!r} in {place}"
        assert "ENC(" not in text, place
        if place.startswith(("log", "/")) or place == "command lines":
            assert BODY not in text, f"a body in {place}"


def test_no_secret_lies_in_the_store(tmp_path: Path) -> None:
    """Files of the store hold messages and names, and no password, token or session name."""
    pair = Pair(tmp_path, security=True)
    try:
        pair.primary.start().wait_ready("active")
        say(pair.primary, (create_session(SESSION_NAME, "bob", PASSWORD), 1), (p.AddMetadataV2("k", "v", True), 10))
        pair.primary.terminate()
        for folder, _, names in os.walk(pair.store):
            for name in names:
                data = (Path(folder) / name).read_bytes()
                for secret in (PASSWORD, CLUSTER_PASSWORD, SESSION_NAME, TOKEN):
                    assert secret.encode() not in data
                    assert secret.encode("utf-16-le") not in data
    finally:
        pair.end()
