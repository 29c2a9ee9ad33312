"""The stock client with ``httpUpgradeEnabled``: through an HTTP upgrade to our acceptors, and over a failover."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.colocated import backup_of, colocated, colocated_members, share_port
from support.members import Members, wait_until
from support.processes import COMMAND, READY_S, Node, Pair
from understudy.client.sync import connect

pytestmark = pytest.mark.maven

Java = Callable[..., "subprocess.Popen[str]"]


@pytest.mark.feature("HTTP upgrade")
def test_the_stock_client_connects_and_fails_over_through_an_upgrade(java: Java, tmp_path: Path) -> None:
    """The connectors that the topology announces have the parameter, so the client asks the backup likewise."""
    pair = Pair(
        tmp_path,
        failover_on_shutdown=True,
        acceptor="?httpUpgradeEnabled=true",
        connector="?httpUpgradeEnabled=true;httpUpgradeEndpoint=core",
    )
    try:
        pair.start()
        url = (
            f"(tcp://127.0.0.1:{pair.primary.port},tcp://127.0.0.1:{pair.backup.port})?httpUpgradeEnabled=true"
            "&httpUpgradeEndpoint=core&ha=true&reconnectAttempts=-1&initialConnectAttempts=-1&retryInterval=100"
        )
        for node in (pair.primary, pair.backup):
            process = java("JmsBasics", url)
            output, _ = process.communicate(timeout=120)
            assert process.returncode == 0, output
            assert output.count("ok ") == 10, output
            if node is pair.primary:
                assert pair.primary.terminate() == 0
                pair.backup.wait_ready("active")
    finally:
        pair.end()


@pytest.mark.long
@pytest.mark.feature("HTTP upgrade")
@pytest.mark.parametrize("stop", ["kill", "terminate"])
@pytest.mark.parametrize("kind", ["shared-store", "replication"])
def test_the_stock_client_follows_to_a_colocated_backup_on_the_shared_port(
    java: Java, tmp_path: Path, kind: str, stop: str
) -> None:
    """The topology names the port of the other member and the server there (reference/000, its QE section)."""
    members = colocated_members(tmp_path, kind, stops_over=True)
    share_port(members)
    with shared_ports(members) as (first, second):
        url = upgrading_url(first) + "&activemqServerName=n0"
        follow_to_the_backup(java, url, first, second, stop)


@pytest.mark.long
@pytest.mark.feature("HTTP upgrade")
@pytest.mark.parametrize("kind", ["shared-store", "replication"])
def test_clients_follow_to_a_colocated_backup_without_the_name_of_a_server(
    java: Java, tmp_path: Path, kind: str
) -> None:
    """Neither broker.xml nor the URL of a client has ``activemqServerName`` (reference/000, lines 46 to 48)."""
    members = colocated_members(tmp_path, kind)
    share_port(members, named=False)
    for node in members.nodes:
        assert "activemqServerName" not in node.config.read_text()
    with shared_ports(members) as (first, second), connect(upgrading_url(first)) as connection:
        ours = connection.session()
        ours.producer("of-our-client").send("before the kill")
        follow_to_the_backup(java, upgrading_url(first), first, second, "kill")
        taken = ours.consumer("of-our-client").receive(READY_S)
        assert taken is not None, second.tail()
        assert taken.text == "before the kill"
        ours.acknowledge(taken)


@contextmanager
def shared_ports(members: Members) -> Iterator[tuple[Node, Node]]:
    """Two running members, each with a backup at the other one."""
    try:
        first, second = members.start().nodes
        for node in members.nodes:
            wait_until(lambda node=node: backup_of(node) is not None, "no backup", node)  # type: ignore[misc]
        yield first, second
    finally:
        members.end()


def upgrading_url(node: Node) -> str:
    """The URL of a client that follows a failover, and begins with an HTTP upgrade."""
    return f"tcp://127.0.0.1:{node.port}?httpUpgradeEnabled=true&ha=true&reconnectAttempts=-1&retryInterval=100"


def follow_to_the_backup(java: Java, url: str, first: Node, second: Node, stop: str) -> None:
    """Have the stock client receive messages of a node that ends meanwhile, and check that it gets every one.

    Args:
        java: Starts a scenario of the stock client.
        url: URL with which the stock client connects.
        first: The node to which the client connects, and which ends.
        second: The node with the hosted backup.
        stop: ``kill`` or ``terminate``.
    """
    process = java("JmsBasics", url)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    count = 2_000
    produced = subprocess.run(
        [str(COMMAND), "produce", "--url", url, "--queue", "q", "--count", str(count), "--size", "100"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert produced.returncode == 0, produced.stderr
    consumer = java("ReceiveAcrossFailover", url, "q", str(count))
    assert consumer.stdout is not None
    seen = []
    for line in consumer.stdout:
        seen.append(line)
        progress = re.match(r"got (\d+)", line)
        if progress and int(progress[1]) >= count // 4:
            break
    if stop == "kill":
        first.kill()
    else:
        assert first.terminate() == 0, first.tail()
    rest, _ = consumer.communicate(timeout=120)
    assert consumer.returncode == 0, "".join(seen) + rest + second.tail()
    assert f"done {count} distinct" in rest, rest[-500:]
    assert colocated(second)["hosted"][0]["state"] == "active"


@pytest.mark.feature("HTTP upgrade")
def test_a_server_that_is_not_here_is_refused(java: Java, tmp_path: Path) -> None:
    pair = Pair(tmp_path, acceptor="?httpUpgradeEnabled=true")
    try:
        pair.primary.start().wait_ready("active")
        url = f"tcp://127.0.0.1:{pair.primary.port}?httpUpgradeEnabled=true&activemqServerName=colocated_backup_01"
        process = java("JmsBasics", url)
        output, _ = process.communicate(timeout=120)
        assert process.returncode != 0, output
        assert "upgrade refused" in pair.primary.log.read_text()
    finally:
        pair.end()
