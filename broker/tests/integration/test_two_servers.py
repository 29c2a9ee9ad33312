"""Several servers in one broker.xml, as real processes: main servers and each other's backups (ADR 0075)."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from support.colocated import talk_across_a_kill
from support.members import wait_until
from support.nodes import Nodes
from support.processes import READY_S, Node
from support.two_servers import TwoServers, command, states
from understudy.client.sync import connect

KINDS = pytest.mark.parametrize("kind", ["shared-store", "replication"])


@pytest.fixture
def make(nodes: Nodes) -> Callable[..., TwoServers]:
    def make(kind: str = "shared-store", **options: bool) -> TwoServers:
        return nodes.keep(TwoServers(nodes.directory, kind, **options))

    return make


def events(node: Node, event: str) -> list[str | None]:
    """The nodes whose log lines have the event, in their order."""
    lines = [json.loads(line) for line in node.log.read_text().splitlines() if line.startswith("{")]
    return [line.get("node") for line in lines if line["event"] == event]


@KINDS
def test_a_process_that_is_killed_is_served_by_the_other_one_and_comes_back(
    make: Callable[..., TwoServers], kind: str
) -> None:
    """The backup in the other process takes over beside the main server there, and yields when the process is back."""
    servers = make(kind).start()
    first, second = servers.nodes
    with (
        connect(servers.url(0)) as moved,
        connect(servers.url(1)) as stayed,
        moved.session() as session,
        stayed.session() as other,
    ):
        producer = session.producer("q")
        for number in range(50):
            producer.send(f"before {number}")
        other.producer("q").send("at the second")
        first.kill()
        for number in range(50):
            producer.send(f"after {number}")
        assert states(second) == {"b-main": "active", "backup": "active"}
        other.producer("q").send("still at the second")
        first.start().wait_ready("active")
        servers.wait_backups()
        assert states(second) == {"b-main": "active", "backup": "passive"}
        expected = {f"{part} {n}" for part in ("before", "after") for n in range(50)}
        expected |= {"at the second", "still at the second"}
        bodies = set()
        for part, count in ((session, 100), (other, 2)):
            consumer = part.consumer("q")
            for _ in range(count):
                taken = consumer.receive(READY_S)
                assert taken is not None, second.tail()
                part.acknowledge(taken)
                bodies.add(taken.text)
        assert bodies == expected


@KINDS
def test_a_server_that_is_stopped_leaves_the_other_one_and_is_started_again(
    make: Callable[..., TwoServers], kind: str
) -> None:
    servers = make(kind).start()
    first, second = servers.nodes
    with connect(f"tcp://127.0.0.1:{second.port}") as connection, connection.session() as session:
        stopped = command(second, "stop", "--server", "backup")
        assert stopped.returncode == 0, stopped.stderr
        assert states(second) == {"b-main": "active", "backup": "stopped"}
        assert servers.backups[1].get("/health/live") == (0, {}), "its management has ended, too"
        session.producer("q").send("served")
    refused = command(second, "start", "--server", "b-main")
    assert refused.returncode == 1
    assert "is active" in refused.stderr
    started = command(second, "start", "--server", "backup")
    assert (started.returncode, started.stdout) == (0, "passive\n"), started.stderr
    servers.wait_backups()
    status = command(second, "status", "--server", "backup", "--json")
    assert json.loads(status.stdout)["ha"]["role"] == "backup"
    unknown = command(second, "status", "--server", "nowhere")
    assert unknown.returncode == 2
    assert "it has b-main, backup" in unknown.stderr
    # the main server alone: its backup takes over, and the backup beside it goes on
    assert command(first, "failover", "--server", "a-main").returncode == 0
    wait_until(lambda: states(second)["backup"] == "active", "no take-over", second)
    assert servers.backups[0].wait_ready("passive") >= 0
    assert command(first, "start", "--server", "a-main").returncode == 0
    first.wait_ready("active")
    servers.wait_backups()


def test_a_stop_of_the_process_stops_the_backup_first(make: Callable[..., TwoServers]) -> None:
    servers = make().start()
    first, second = servers.nodes
    assert first.terminate() == 0, first.tail()
    assert events(first, "stopping") == ["backup", "a-main"]
    wait_until(lambda: states(second) == {"b-main": "active", "backup": "active"}, "no take-over", second)
    assert not (first.directory / "run" / "node.json").exists()
    assert second.terminate() == 0, second.tail()
    for place in (".", "servers/backup"):
        path = second.directory / place / "run" / "store-position.json"
        assert path.exists(), "each active server notes its store in a place of its own"


def test_each_server_reloads_its_part_of_the_file(make: Callable[..., TwoServers]) -> None:
    """An address that is added to the main server is not in the other one; included files count for both."""
    servers = make().start()
    first = servers.nodes[0]
    queue = '<address name="{0}"><anycast><queue name="{0}"/></anycast></address></addresses>'
    main, separator, rest = first.config.read_text().partition("</core>")
    first.config.write_text(main.replace("</addresses>", queue.format("added")) + separator + rest)
    assert first.process is not None
    first.process.send_signal(1)
    wait_until(lambda: first.queue("added") is not None, "the queue was not added", first)
    wait_until(lambda: sorted(events(first, "configuration reloaded")) == ["a-main", "backup"], "no reload", first)
    first.config.write_text(first.config.read_text().replace("<server xmlns", '<server unknown="1" xmlns'))
    first.process.send_signal(1)
    event = "changed configuration not applied"
    wait_until(lambda: sorted(events(first, event)) == ["a-main", "backup"], "no error", first)
    assert "server[@name='backup']/@unknown" in first.log.read_text()


def test_a_server_that_fails_leaves_the_other_one(make: Callable[..., TwoServers]) -> None:
    """The store of the second server cannot be used when the process starts."""
    servers = make()
    first = servers.nodes[0]
    text = first.config.read_text()
    blocked = first.directory / "a-file"
    blocked.write_text("")
    head, separator, rest = text.partition("</core>")
    first.config.write_text(head + separator + rest.replace(str(first.directory.parent / "store-b"), str(blocked)))
    first.start().wait_ready("active")
    wait_until(lambda: states(first) == {"a-main": "active", "backup": "stopped"}, "it runs", first)
    with connect(f"tcp://127.0.0.1:{first.port}") as connection, connection.session() as session:
        session.producer("q").send("served")
    verified = command(first, "data verify")
    assert verified.returncode == 0, verified.stderr
    assert first.terminate() == 1, "the process tells that one of its servers failed"


@KINDS
def test_servers_share_a_port_by_http_upgrade(make: Callable[..., TwoServers], kind: str) -> None:
    servers = make(kind, shares_port=True).start()
    first, second = servers.nodes
    query = "httpUpgradeEnabled=true&activemqServerName=a-main&ha=true&reconnectAttempts=300&retryInterval=100"
    with connect(f"tcp://127.0.0.1:{first.port}?{query}") as connection, connection.session() as session:
        talk_across_a_kill(session, first, second)
    assert states(second) == {"b-main": "active", "backup": "active"}
