"""Commands that move the active role, and the network check, with real processes."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from support import forked
from support.nodes import Nodes
from support.processes import COMMAND, READY_S, Node, Pair
from understudy.client.sync import connect


def run(*arguments: str) -> tuple[int, str]:
    done = forked.run([str(COMMAND), *arguments], capture_output=True, text=True, timeout=90, check=False)
    return done.returncode, done.stdout + done.stderr


def options(node: Node) -> list[str]:
    token = node.directory / "etc" / "management.token"
    return ["--url", f"http://127.0.0.1:{node.http_port}", "--token-file", str(token)]


def wait_for(what: str, node: Node, condition) -> None:
    deadline = time.monotonic() + READY_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: {node.tail()}"
        time.sleep(0.05)


def state(node: Node) -> object:
    ha = node.facts().get("ha")
    return ha["state"] if isinstance(ha, dict) else None


@pytest.fixture
def pair(nodes: Nodes) -> Pair:
    return nodes.active()


def test_failover_and_failback_move_the_active_role(pair: Pair) -> None:
    code, text = run("failover", *options(pair.primary))
    assert code == 1, text
    assert "no peer" in text

    pair.backup.start().wait_ready("passive")
    code, text = run("failback", *options(pair.backup))
    assert code == 1, text
    wait_for("the backup is announced", pair.primary, lambda: pair.primary.facts().get("peer") is not None)
    code, text = run("failback", *options(pair.primary))
    assert code == 1, text
    assert "only a backup" in text

    with connect(f"tcp://127.0.0.1:{pair.primary.port}") as connection, connection.session() as session:
        session.producer("q").send("kept")
    code, text = run("failover", "--json", *options(pair.primary))
    assert code == 0, text
    found = json.loads(text)
    place = f"127.0.0.1:{pair.backup.port}"
    assert (found["state"], found["serving"]["name"], found["serving"]["connector"]) == (
        "stopped",
        "backup-node",
        place,
    )
    assert "start primary-node again" in found["next"]
    pair.backup.wait_ready("active")
    code, text = run("failback", *options(pair.backup))
    assert code == 1, text
    assert "is it running" in text
    with connect(f"tcp://127.0.0.1:{pair.backup.port}") as connection, connection.session() as session:
        message = session.consumer("q").receive(timeout_s=30)
        assert message is not None
        assert message.text == "kept"


def test_a_backup_activates_on_request_after_a_clean_stop_of_its_primary(pair: Pair) -> None:
    pair.backup.start().wait_ready("passive")
    code, text = run("activate", *options(pair.backup))
    assert code == 1, text
    assert "activates by itself" in text
    with connect(f"tcp://127.0.0.1:{pair.primary.port}") as connection, connection.session() as session:
        session.producer("q").send("kept")
    pair.primary.terminate()
    facts = pair.backup.facts()["ha"]
    assert isinstance(facts, dict)
    assert facts["state"] == "passive"
    wait_for(
        "the backup has read the state", pair.backup, lambda: "understudy activate" in str(pair.backup.facts()["ha"])
    )
    assert pair.backup.get("/health/ready")[1]["ready"], "a backup that waits for its primary is ready"
    code, text = run("activate", "--json", *options(pair.backup))
    assert code == 0, text
    assert json.loads(text)["state"] == "active"
    with connect(f"tcp://127.0.0.1:{pair.backup.port}") as connection, connection.session() as session:
        message = session.consumer("q").receive(timeout_s=30)
        assert message is not None
        assert message.text == "kept"
    pair.primary.start().wait_ready("active")
    pair.backup.wait_ready("passive")


def test_failback_works_without_allow_failback(tmp_path: Path) -> None:
    pair = Pair(tmp_path, failover_on_shutdown=True)
    text = pair.backup.config.read_text()
    pair.backup.config.write_text(text.replace("<backup>", "<backup><allow-failback>false</allow-failback>"))
    try:
        pair.primary.start().wait_ready("active")
        pair.backup.start().wait_ready("passive")
        pair.primary.terminate()
        pair.backup.wait_ready("active")
        pair.primary.start()
        wait_for("the primary waits", pair.backup, lambda: pair.backup.facts().get("peer") is not None)
        deadline = time.monotonic() + READY_S
        code, out = run("failback", "--json", *options(pair.backup))
        while code == 1 and time.monotonic() < deadline:
            # the announcement precedes the request for the store
            code, out = run("failback", "--json", *options(pair.backup))
        assert code == 0, out
        assert json.loads(out)["state"] == "passive"
        pair.primary.wait_ready("active")
    finally:
        pair.end()


def test_a_node_without_network_stops_and_starts_again(tmp_path: Path) -> None:
    """The ping command is a script that succeeds while a file exists; 192.0.2.1 is an address that no host has."""
    network = tmp_path / "network"
    ping = tmp_path / "ping"
    ping.write_text(f"#!/bin/sh\ntest -e {network}\n")
    ping.chmod(0o755)
    network.touch()
    check = f"""
    <network-check-list>192.0.2.1</network-check-list>
    <network-check-period>200</network-check-period>
    <network-check-ping-command>{ping} %d %s</network-check-ping-command>
    """
    pair = Pair(tmp_path, failover_on_shutdown=True, extra=check)
    text = pair.backup.config.read_text()
    pair.backup.config.write_text(text.replace("<network-check-list>192.0.2.1</network-check-list>", ""))
    try:
        pair.primary.start().wait_ready("active")
        pair.backup.start().wait_ready("passive")
        network.unlink()
        wait_for("the primary is isolated", pair.primary, lambda: state(pair.primary) == "isolated")
        assert pair.primary.get("/health/ready")[0] == 503
        pair.backup.wait_ready("active")
        network.touch()
        pair.primary.wait_ready("active")
        pair.backup.wait_ready("passive")
        network.unlink()
        wait_for("the primary is isolated", pair.primary, lambda: state(pair.primary) == "isolated")
        assert pair.primary.terminate() == 0
    finally:
        pair.end()
