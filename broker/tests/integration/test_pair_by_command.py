"""A failover and a failback as an administrator sees them: one context for both nodes, events, rates and the log."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import forked
from support.processes import COMMAND, TOKEN, Pair
from understudy.client.sync import connect


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    try:
        yield made.start()
    finally:
        made.end()


class Administrator:
    """Commands with a context that names both nodes."""

    def __init__(self, pair: Pair, directory: Path) -> None:
        self.environment = {"XDG_CONFIG_HOME": str(directory), "PATH": "/usr/bin:/bin"}
        (directory / "token").write_text(TOKEN)
        urls = [f"http://127.0.0.1:{node.http_port}" for node in (pair.primary, pair.backup)]
        named = [word for url in urls for word in ("--management", url)]
        self.run("context", "add", "pair", *named, "--token-file", str(directory / "token"))

    def run(self, *arguments: str) -> str:
        done = self.result(*arguments)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    def result(self, *arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        return forked.run(
            [str(COMMAND), *arguments],
            input=typed,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=self.environment,
        )

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json"))


def test_a_failover_and_a_failback(pair: Pair, tmp_path: Path) -> None:
    admin = Administrator(pair, tmp_path)
    urls = {node: f"http://127.0.0.1:{node.http_port}" for node in (pair.primary, pair.backup)}
    admin.run("queue", "create", "orders")
    assert admin.json("top", "--once")["url"] == urls[pair.primary]
    refused = admin.result("promote", "--accept-data-loss")
    assert (refused.returncode, "the command is about one node" in refused.stderr) == (2, True), refused
    pair.primary.kill()
    pair.backup.wait_ready("active")
    seen = admin.result("events", "--json", "--limit", "2000")
    assert seen.returncode == 0
    assert f"{urls[pair.primary]} does not answer" in seen.stderr
    events = json.loads(seen.stdout)
    assert any(
        each["event"].startswith(
            f"took over from primary-node (127.0.0.1:{pair.primary.port}), which vanished: epoch 2, "
        )
        for each in events
    )
    assert admin.json("top", "--once")["url"] == urls[pair.backup]
    assert "orders" in admin.run("queue", "list")
    pair.primary.start().wait_ready("active")
    pair.backup.wait_ready("passive")
    texts = {node: [each["event"] for each in node.get("/api/v1/events?limit=2000")[1]["events"]] for node in urls}  # type: ignore[index]
    assert any(
        each.startswith(f"serves again instead of backup-node (127.0.0.1:{pair.backup.port}): epoch 3, ")
        for each in texts[pair.primary]
    )
    assert f"gave back to primary-node (127.0.0.1:{pair.primary.port})" in texts[pair.backup]
    assert "backup disconnected" not in texts[pair.backup], "a failback is no warning"
    shown = admin.run("log", "--file", str(pair.backup.log), "--level", "warning")
    assert "took over from" in shown
    assert "gave back to" not in shown
    assert admin.json("top", "--once")["url"] == urls[pair.primary]


def test_a_user_that_was_added_to_both_nodes_logs_in_after_a_failover(tmp_path: Path) -> None:
    made = Pair(tmp_path, security=True)
    try:
        made.start()
        admin = Administrator(made, tmp_path)
        add, secret = ("user", "add", "carol", "--role", "everything"), "secret of carol"
        added = admin.result(*add, typed=f"{secret}\n")
        assert added.returncode == 0, (added.stdout, added.stderr)
        again = admin.result(*add, typed=f"{secret}\n")
        assert (again.returncode, again.stderr.count("NOT user carol added")) == (1, 2), again.stderr
        only_backup = ("--url", f"http://127.0.0.1:{made.backup.http_port}", "--token-file", str(tmp_path / "token"))
        admin.run("user", "remove", "carol", "--yes", *only_backup, "--only-here")
        users = [node.config.parent / "artemis-users.properties" for node in (made.primary, made.backup)]
        assert ["carol" in each.read_text() for each in users] == [True, False]
        back = admin.result(*add, *only_backup, typed=f"{secret}\n")
        assert (back.returncode, "which are NOT changed" in back.stderr) == (1, True), back.stderr
        assert "primary-node" in back.stderr
        made.primary.kill()
        made.backup.wait_ready("active")
        with connect(f"tcp://127.0.0.1:{made.backup.port}", user="carol", password=secret) as connection:
            assert connection.session() is not None
        log = made.backup.log.read_text()
        assert "managed" in log
        assert secret not in log
    finally:
        made.end()
