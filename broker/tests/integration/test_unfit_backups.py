"""Backups of a shared store that would never take over say so, as real processes (ADR 0120)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import forked
from support.ports import free_port
from support.processes import COMMAND, Node
from support.replicated import wait_until

MakeNode = Callable[..., Node]


def understudy(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    return forked.run([str(COMMAND), *arguments], capture_output=True, text=True, timeout=60, input=given)


@pytest.fixture
def create(tmp_path: Path) -> Iterator[MakeNode]:
    """Makes an instance of a pair as `understudy create --partner` writes it."""
    made: list[Node] = []
    ports = {"a": free_port(), "b": free_port()}

    def make(
        name: str, *, data: str = "store", password: str = "a-secret-of-this-test", anonymous: bool = True
    ) -> Node:
        role, other = ("primary", "b") if name == "a" else ("backup", "a")
        file = tmp_path / f"{name}.password"
        file.write_text(password)
        options = ["--port", str(ports[name]), "--partner", f"127.0.0.1:{ports[other]}", "--allow-anonymous"]
        options += ["--cluster-password-file", str(file), "--data", str(tmp_path / data)]
        done = understudy("create", str(tmp_path / name), *options, *(["--backup"] if role == "backup" else []))
        assert done.returncode == 0, done.stderr
        made.append(Node(tmp_path / name, role, ports[name]))
        return made[-1]

    yield make
    for node in made:
        if node.process is not None and node.process.poll() is None:
            node.kill()


def reason(node: Node) -> str:
    """Why the node is not ready; empty if it is."""
    status, answer = node.get("/health/ready")
    return "" if status != 503 else str(answer["reason"])


def wait_not_ready(node: Node, text: str) -> None:
    wait_until(lambda: text in reason(node), node)


def test_a_backup_with_a_store_of_its_own_is_not_ready(create: MakeNode) -> None:
    primary, backup = create("a"), create("b", data="another store")
    primary.start().wait_ready("active")
    backup.start()
    wait_not_ready(backup, "no primary has opened the store of this backup yet")
    wait_not_ready(backup, f"127.0.0.1:{primary.port} is node {primary.facts()['node_id']}")
    wait_until(lambda: "this backup would not take over" in backup.tail(), backup)
    checked = understudy("cluster", "check", "--instance", str(backup.directory), "--json")
    assert checked.returncode == 1
    assert "not-ready" in [each["code"] for each in json.loads(checked.stdout)["problems"]]


def test_a_backup_with_another_cluster_password_is_not_ready_and_its_primary_names_it(create: MakeNode) -> None:
    primary, backup = create("a"), create("b", password="another-secret-of-it")
    primary.start().wait_ready("active")
    backup.start()
    wait_not_ready(backup, "this backup is announced to no node")
    assert "cluster password" in reason(backup) or "cluster credentials" in reason(backup)
    wait_until(lambda: "cluster password" in primary.tail(), primary)
    lines = [json.loads(each) for each in primary.log.read_text().splitlines() if "cluster password" in each]
    assert {each["level"] for each in lines} == {"warning"}
    assert all("127.0.0.1" in each["peer"] for each in lines)


def test_a_backup_without_a_cluster_connection_is_not_ready(create: MakeNode) -> None:
    primary, backup = create("a"), create("b")
    text = backup.config.read_text()
    begin, end = text.index("    <cluster-connections>"), text.index("    </cluster-connections>")
    backup.config.write_text(text[:begin] + text[end + len("    </cluster-connections>") :])
    primary.start().wait_ready("active")
    backup.start()
    wait_not_ready(backup, "there is no cluster-connection")


def test_a_backup_of_the_right_store_is_ready(create: MakeNode) -> None:
    primary, backup = create("a"), create("b")
    backup.start()
    wait_not_ready(backup, "no primary has opened the store of this backup yet")
    primary.start().wait_ready("active")
    backup.wait_ready("passive")
    primary.kill()
    backup.wait_ready("active")


def test_a_second_start_of_a_running_instance_is_refused_and_changes_nothing(create: MakeNode) -> None:
    node = create("a").start()
    node.wait_ready("active")
    assert node.process is not None
    names = ("understudy.pid", "node.json", "lock")
    files = {name: (node.directory / "run" / name).read_bytes() for name in names}
    second = understudy("run", "--instance", str(node.directory), "--http", f"127.0.0.1:{free_port()}")
    assert second.returncode == 2
    assert f"the instance runs already: process {node.process.pid}, since 2" in second.stderr
    assert {name: (node.directory / "run" / name).read_bytes() for name in names} == files
    assert node.get("/health/ready")[0] == 200
    node.kill()
    node.start().wait_ready("active")


def test_an_active_node_without_an_open_acceptor_is_not_ready(create: MakeNode) -> None:
    node = create("a")
    text = node.config.read_text()
    place = text.index("</acceptor>")
    node.config.write_text(text[:place] + "?autoStart=false" + text[place:])
    node.start()
    wait_not_ready(node, "no acceptor is open")
