"""Colocated backups, as real processes: members host each other's backups (docs/operate/colocated.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.colocated import PORT_OFFSET, backup_of, colocated, colocated_members, share_port, talk_across_a_kill
from support.members import Members, wait_until
from support.processes import READY_S, Node
from understudy.client.sync import connect
from understudy.errors import Unreachable


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Members]]:
    made: list[Members] = []

    def make(*arguments: object, **options: object) -> Members:
        made.append(colocated_members(tmp_path, *arguments, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for each in made:
        each.end()


def wait_backups(*nodes: Node) -> None:
    for node in nodes:
        wait_until(lambda node=node: backup_of(node) is not None, "the node has no backup", node)  # type: ignore[misc]


def failing_over(node: Node, backup_port: int) -> str:
    """URL of a client that knows a node and the place of its backup."""
    places = f"(tcp://127.0.0.1:{node.port},tcp://127.0.0.1:{backup_port})"
    return f"{places}?ha=true&reconnectAttempts=-1&retryInterval=100&initialConnectAttempts=-1"


@pytest.mark.parametrize("kind", ["shared-store", "replication"])
def test_members_host_each_others_backup_and_fail_over(make: Callable[..., Members], kind: str) -> None:
    """A killed node is served by its backup in the process of the other one, which goes on; it comes back."""
    first, second = make(kind).start().nodes
    wait_backups(first, second)
    assert backup_of(first) == f"tcp://127.0.0.1:{second.port + PORT_OFFSET}"
    assert [each["server"] for each in colocated(second)["hosted"]] == ["colocated_backup_01"]
    with connect(failing_over(first, second.port + PORT_OFFSET)) as connection, connection.session() as session:
        producer = session.producer("q")
        for number in range(50):
            producer.send(f"before {number}")
        first.kill()
        for number in range(50):
            producer.send(f"after {number}")
        consumer = session.consumer("q")
        bodies = []
        for _ in range(100):
            taken = consumer.receive(READY_S)
            assert taken is not None, second.tail()
            session.acknowledge(taken)
            bodies.append(taken.text)
        assert sorted(bodies, key=str) == sorted([f"{part} {n}" for part in ("before", "after") for n in range(50)])
        assert second.get("/health/ready")[0] == 200, "the parent goes on"
        producer.send("kept")
        first.start().wait_ready("active")
        wait_backups(first)
        taken = consumer.receive(READY_S)
        assert taken is not None
        assert taken.text == "kept"
    wait_until(lambda: colocated(second)["hosted"][0]["state"] == "passive", "no backup again", second)


def test_a_host_that_is_started_again_hosts_the_backup_again(make: Callable[..., Members]) -> None:
    """While the primary is away the newest data are with its backup, so that must not be forgotten."""
    first, second = make("replication").start().nodes
    wait_backups(first, second)
    first.kill()
    wait_until(lambda: colocated(second)["hosted"][0]["state"] == "active", "no take-over", second)
    with connect(f"tcp://127.0.0.1:{second.port + PORT_OFFSET}") as connection, connection.session() as session:
        session.producer("q").send("at the backup")
    second.kill()
    second.start().wait_ready("active")
    hosted = colocated(second)["hosted"]
    assert [each["server"] for each in hosted] == ["colocated_backup_01"]
    assert (second.directory / "run" / "colocated-backups.json").exists()


def test_a_clean_stop_ends_the_hosted_backups_as_well(make: Callable[..., Members]) -> None:
    first, second = make().start().nodes
    wait_backups(first, second)
    assert second.terminate() == 0, second.tail()
    wait_until(lambda: backup_of(first) is None, "the backup is still announced", first)
    second.start().wait_ready("active")
    wait_backups(first, second)
    assert len(colocated(second)["hosted"]) == 1


def test_three_nodes_with_two_places_each_have_a_backup_each(make: Callable[..., Members]) -> None:
    nodes = make(count=3, inner="<max-backups>2</max-backups>").start().nodes
    wait_backups(*nodes)
    places = [len(colocated(each)["hosted"]) for each in nodes]
    assert sum(places) == 3
    assert max(places) <= 2
    assert all(colocated(each)["request"] == "HOSTED" for each in nodes)


def test_a_store_that_is_not_shared_is_refused(make: Callable[..., Members]) -> None:
    """Otherwise the backup would serve an empty store under the id of the other node."""
    members = make()
    first, second = members.nodes
    text = first.config.read_text()
    moved = first.directory / "elsewhere"
    first.config.write_text(text.replace(str(first.directory / "data"), str(moved)))
    members.start()
    wait_backups(first, second)
    second.terminate()
    (moved / "journal").rename(moved / "other")
    (moved / "journal").mkdir()
    second.start().wait_ready("active")
    wait_until(lambda: "is not the store of the node" in second.log.read_text(), "it was not refused", second)
    (moved / "journal").rmdir()
    (moved / "other").rename(moved / "journal")


@pytest.mark.parametrize("kind", ["shared-store", "replication"])
def test_a_client_follows_although_no_server_is_named(make: Callable[..., Members], kind: str) -> None:
    """Neither the connectors nor the URL of the client have a name, and the client follows."""
    members = make(kind)
    share_port(members, named=False)
    first, second = members.start().nodes
    wait_backups(first, second)
    query = "httpUpgradeEnabled=true&ha=true&reconnectAttempts=300&retryInterval=100"
    with connect(f"tcp://127.0.0.1:{first.port}?{query}") as connection, connection.session() as session:
        talk_across_a_kill(session, first, second)


@pytest.mark.parametrize("kind", ["shared-store", "replication"])
def test_servers_share_a_port_by_http_upgrade(make: Callable[..., Members], kind: str) -> None:
    """The port is not offset: the request of the client names the server. The client follows."""
    members = make(kind)
    share_port(members)
    first, second = members.start().nodes
    wait_backups(first, second)
    assert backup_of(first) == f"tcp://127.0.0.1:{second.port}", "the same port, another server"
    # without the name of its server a client does not know which member it is connected to
    query = "httpUpgradeEnabled=true&activemqServerName=n0&ha=true&reconnectAttempts=300&retryInterval=100"
    with connect(f"tcp://127.0.0.1:{first.port}?{query}") as connection, connection.session() as session:
        producer, consumer = talk_across_a_kill(session, first, second)
        first.start().wait_ready("active")
        producer.send("again")
        taken = consumer.receive(READY_S)
        assert taken is not None, first.tail()
        assert taken.text == "again"
        session.acknowledge(taken)
    wait_backups(first)
    with pytest.raises(Unreachable, match="404 Not Found"):
        connect(f"tcp://127.0.0.1:{first.port}?httpUpgradeEnabled=true&activemqServerName=nowhere")
    with pytest.raises(Unreachable, match="503 Service Unavailable"):
        connect(f"tcp://127.0.0.1:{first.port}?httpUpgradeEnabled=true&activemqServerName=colocated_backup_01")
