"""A core bridge between two brokers as real processes: kill -9 of either; the ledger judges (ADR 0063)."""

from __future__ import annotations

import json
import socketserver
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import forked
from support.ports import free_port
from support.processes import COMMAND, READY_S, Node, Pair, invoke
from understudy.client.sync import connect
from understudy.ledger import check, read

_XML = """<?xml version="1.0"?>
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <name>{name}</name>
    <security-enabled>false</security-enabled>
    <bindings-directory>{store}/bindings</bindings-directory>
    <journal-directory>{store}/journal</journal-directory>
    <large-messages-directory>{store}/large-messages</large-messages-directory>
    <paging-directory>{store}/paging</paging-directory>
    <cluster-user>cluster</cluster-user>
    <cluster-password>a-secret-of-this-test</cluster-password>
    <connectors>{connectors}</connectors>
    <acceptors><acceptor name="core">tcp://127.0.0.1:{port}</acceptor></acceptors>
    {extra}
    <addresses><address name="q"><anycast><queue name="q"/></anycast></address></addresses>
  </core>
</configuration>
"""


def connectors_to(*ports: int) -> str:
    return "".join(f'<connector name="c{port}">tcp://127.0.0.1:{port}</connector>' for port in ports)


def bridge_to(*ports: int, more: str = "") -> str:
    references = "".join(f"<connector-ref>c{port}</connector-ref>" for port in ports)
    return (
        '<bridges><bridge name="b"><queue-name>q</queue-name><retry-interval>100</retry-interval>'
        f"{more}<static-connectors>{references}</static-connectors></bridge></bridges>"
    )


def node(directory: Path, name: str, *, connectors: str = "", extra: str = "") -> Node:
    made = Node(directory / name, name, free_port())
    made.config.parent.mkdir(parents=True)
    text = _XML.format(
        name=name, store=directory / name / "data", port=made.port, connectors=connectors, extra=extra,
    )  # fmt: skip
    made.config.write_text(text)
    return made


@pytest.fixture
def nodes() -> Iterator[list[Node]]:
    """Nodes to end after the test."""
    made: list[Node] = []
    yield made
    for each in made:
        each.end()


class Traffic:
    """A producer at the source and, later, a consumer at the target, with ledgers."""

    def __init__(self, directory: Path, url: str, count: int) -> None:
        self.sent, self.received = directory / "sent.jsonl", directory / "received.jsonl"
        self.count = count
        self.producer = forked.Popen(
            [str(COMMAND), "produce", "--url", url, "--queue", "q", "--count", str(count), "--size", "300",
             "--producer", "p", "--ledger", str(self.sent), "--rate", "800"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def wait_confirmed(self, count: int) -> None:
        deadline = time.monotonic() + READY_S
        while not self.sent.exists() or self.sent.read_text().count('"CONFIRMED"') < count:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def check(self, url: str) -> None:
        """Everything arrives at the target once and in order."""
        _, errors = self.producer.communicate(timeout=READY_S)
        assert self.producer.returncode == 0, errors.decode()
        done = forked.run(
            [str(COMMAND), "consume", "--url", url, "--queue", "q", "--count", str(self.count), "--consumer", "c",
             "--idle-timeout", str(READY_S), "--ledger", str(self.received)],
            capture_output=True, text=True, timeout=2 * READY_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        rows = [row for file in (self.sent, self.received) for row in read(file.read_text().splitlines())]
        report = check(rows)
        assert report.ok, report
        assert report.counts.messages == self.count

    def end(self) -> None:
        if self.producer.poll() is None:
            self.producer.kill()
            self.producer.communicate()


def url_of(made: Node) -> str:
    return f"tcp://127.0.0.1:{made.port}?reconnectAttempts=-1&initialConnectAttempts=-1&retryInterval=100"


@pytest.mark.parametrize("detects", ["true", "false"])
def test_large_messages_are_forwarded_between_others(tmp_path: Path, nodes: list[Node], detects: str) -> None:
    """Without duplicate detection the window is one message, and a large one needs credit for each of its pieces."""
    target = node(tmp_path, "target")
    more = f"<use-duplicate-detection>{detects}</use-duplicate-detection>"
    source = node(tmp_path, "source", connectors=connectors_to(target.port), extra=bridge_to(target.port, more=more))
    nodes += [target, source]
    for each in nodes:
        each.start().wait_ready("active")
    sizes = (10, 300_000, 300_000, 20, 1_200_000, 30)
    bodies = [str(number).ljust(size, "x").encode() for number, size in enumerate(sizes)]
    with connect(url_of(source)) as connection, connection.session() as session:
        producer = session.producer("q", routing="anycast")
        for body in bodies:
            producer.send(body)
    with connect(url_of(target)) as connection, connection.session() as session:
        consumer = session.consumer("q")
        for body in bodies:
            received = consumer.receive(10)
            assert received is not None, "a bridge stands still"
            assert received.read_body() == body


def test_kills_of_source_and_target_lose_and_double_nothing(tmp_path: Path, nodes: list[Node]) -> None:
    target = node(tmp_path, "target")
    source = node(tmp_path, "source", connectors=connectors_to(target.port), extra=bridge_to(target.port))
    nodes += [target, source]
    for each in nodes:
        each.start()
    for each in nodes:
        each.wait_ready("active")
    load = Traffic(tmp_path, url_of(source), 2_000)
    try:
        for victim, confirmed in ((target, 300), (source, 700), (target, 1_100)):
            load.wait_confirmed(confirmed)
            victim.kill()
            victim.start().wait_ready("active")
        load.check(url_of(target))
        assert invoke(source, "broker", "getBridgeNames") == (200, ["b"])
        assert invoke(source, "bridge.b", "isConnected") == (200, True)
        (shown,) = source.get("/api/v1/cluster")[1]["bridges"]  # type: ignore[misc]
        assert (shown["name"], shown["queue"], shown["connected"], shown["state"]) == ("b", "q", True, "RUNNING")
        assert (shown["waiting"], shown["unconfirmed"], shown["target"]) == (0, 0, f"tcp://127.0.0.1:{target.port}")
        assert invoke(source, "bridge.b", "stop") == (200, None)
        assert invoke(source, "bridge.b", "isStarted") == (200, False)
        assert invoke(source, "bridge.b", "start") == (200, None)
        assert invoke(source, "bridge.b", "isStarted") == (200, True)
    finally:
        load.end()


@pytest.mark.long
def test_a_failover_of_the_target_pair_loses_and_doubles_nothing(tmp_path: Path, nodes: list[Node]) -> None:
    pair = Pair(
        tmp_path / "pair",
        extra='<addresses><address name="q"><anycast><queue name="q"/></anycast></address></addresses>',
    )
    source = node(
        tmp_path, "source", connectors=connectors_to(pair.primary.port),
        extra=bridge_to(pair.primary.port, more="<ha>true</ha>"),
    )  # fmt: skip
    nodes += [pair.primary, pair.backup, source]
    pair.start()
    source.start().wait_ready("active")
    load = Traffic(tmp_path, url_of(source), 2_000)
    try:
        load.wait_confirmed(500)
        pair.primary.kill()
        pair.backup.wait_ready("active")
        load.check(pair.url)
    finally:
        load.end()


@pytest.mark.long
def test_a_failover_of_the_source_pair_loses_and_doubles_nothing(tmp_path: Path, nodes: list[Node]) -> None:
    target = node(tmp_path, "target")
    extra = '<addresses><address name="q"><anycast><queue name="q"/></anycast></address></addresses>'
    pair = Pair(tmp_path / "pair", extra=bridge_to(target.port) + extra)
    for each in (pair.primary, pair.backup):
        text = each.config.read_text().replace("<connectors>", "<connectors>" + connectors_to(target.port))
        each.config.write_text(text)
    nodes += [pair.primary, pair.backup, target]
    target.start().wait_ready("active")
    pair.start()
    load = Traffic(tmp_path, pair.url, 2_000)
    try:
        load.wait_confirmed(500)
        pair.primary.kill()
        pair.backup.wait_ready("active")
        load.check(url_of(target))
    finally:
        load.end()


def command(made: Node, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """A command of ``understudy bridge`` for a node."""
    line = [str(COMMAND), "bridge", arguments[0], "--instance", str(made.directory), *arguments[1:]]
    return forked.run(line, input=text, capture_output=True, text=True, check=False, timeout=READY_S)


@pytest.mark.long
def test_a_bridge_made_at_run_time_survives_kills_and_ends_when_it_is_destroyed(
    tmp_path: Path, nodes: list[Node]
) -> None:
    target = node(tmp_path, "target")
    source = node(tmp_path, "source")
    nodes += [target, source]
    for each in nodes:
        each.start()
    for each in nodes:
        each.wait_ready("active")
    added = command(source, "add-connector", "there", f"tcp://127.0.0.1:{target.port}")
    assert (added.returncode, added.stdout) == (0, "added\n"), added.stderr
    values = {"name": "made", "queue-name": "q", "static-connectors": ["there"], "retry-interval": 100}
    load = Traffic(tmp_path, url_of(source), 1_500)
    try:
        load.wait_confirmed(200)
        created = command(source, "create", "-", text=json.dumps(values))
        assert (created.returncode, created.stdout) == (0, "created\n"), created.stderr
        refused = command(source, "create", "-", text=json.dumps(values))
        assert refused.returncode == 1
        assert "there is a bridge 'made'" in refused.stderr
        for victim, confirmed in ((source, 500), (target, 900)):
            load.wait_confirmed(confirmed)
            victim.kill()
            victim.start().wait_ready("active")
        load.check(url_of(target))
        (shown,) = json.loads(command(source, "list", "--json").stdout)
        assert (shown["name"], shown["state"], shown["waiting"]) == ("made", "RUNNING", 0)
        assert command(source, "stop", "made").returncode == 0
        assert command(source, "start", "made").returncode == 0
        assert command(source, "destroy", "made").returncode == 0
        assert command(source, "remove-connector", "there").returncode == 0
        assert "there is no connector 'there'" in command(source, "remove-connector", "there").stderr
        assert "there is no bridge 'made'" in command(source, "destroy", "made").stderr
        source.kill()
        source.start().wait_ready("active")
        assert json.loads(command(source, "list", "--json").stdout) == []
    finally:
        load.end()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        b"",
        b"\x00" * 64,
        b"\x7f\xff\xff\xff" + b"x" * 64,
    ],
    ids=["HTTP", "closes", "zeros", "a frame of 2 GiB"],
)
def test_an_endpoint_that_is_no_broker_is_named_and_costs_no_message(
    tmp_path: Path, nodes: list[Node], answer: bytes
) -> None:
    asked = threading.Semaphore(0)

    class Endpoint(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(4096)
            self.request.sendall(answer)
            asked.release()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Endpoint) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        source = node(tmp_path, "source", connectors=connectors_to(port), extra=bridge_to(port))
        nodes.append(source)
        source.start().wait_ready("active")
        assert invoke(source, "queue.q", "sendMessage", {}, 3, "body", True, "", "")[0] == 200
        for _ in range(3):
            assert asked.acquire(timeout=READY_S), source.tail()
        status, found = source.get("/api/v1/queues/q/explain")
        server.shutdown()
    assert status == 200
    (reason,) = [each for each in found["reasons"] if each["code"] == "bridge-not-connected"]  # type: ignore[attr-defined]
    assert reason["values"]["target"] == f"tcp://127.0.0.1:{port}"
    assert f"127.0.0.1:{port}" in reason["values"]["error"]
    assert found["message_count"] == 1


@pytest.mark.long
def test_two_bridges_in_a_circle_end_with_a_dead_letter(tmp_path: Path, nodes: list[Node]) -> None:
    """Without user: neither broker has a cluster password of its own or security."""
    settings = (
        '<address-settings><address-setting match="q"><dead-letter-address>DLQ</dead-letter-address>'
        "</address-setting></address-settings>"
    )
    first, second = node(tmp_path, "first"), node(tmp_path, "second")
    for made, other in ((first, second), (second, first)):
        text = made.config.read_text().replace(
            "<cluster-user>cluster</cluster-user>\n    <cluster-password>a-secret-of-this-test</cluster-password>", ""
        )
        assert "cluster-password" not in text
        text = text.replace("<connectors></connectors>", f"<connectors>{connectors_to(other.port)}</connectors>")
        text = text.replace("<addresses>", f"{bridge_to(other.port)}{settings}<addresses>")
        dead = '<address name="DLQ"><anycast><queue name="DLQ"/></anycast></address>'
        text = text.replace("</addresses>", f"{dead}</addresses>")
        made.config.write_text(text)
        nodes.append(made.start())
    for made in nodes:
        made.wait_ready("active")
    with connect(url_of(first)) as connection, connection.session() as session:
        for number in range(20):
            session.producer("q").send(b"%d" % number)
    deadline = time.monotonic() + READY_S

    def depth(made: Node, queue: str) -> int:
        return int(str(invoke(made, f"queue.{queue}", "getMessageCount")[1]))

    while sum(depth(made, "DLQ") for made in nodes) < 20:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert [depth(made, "q") for made in nodes] == [0, 0]
    assert any("bridges lead in a circle" in made.tail() for made in nodes)


def test_messages_that_the_target_refuses_are_passed_by_the_others(tmp_path: Path, nodes: list[Node]) -> None:
    """Goal: those for an address that exists arrive; the others wait and go there when it exists; none is lost."""
    closed = "<address-settings><address-setting match='#'><auto-create-addresses>false</auto-create-addresses>"
    target = node(tmp_path, "target", extra=f"{closed}</address-setting></address-settings>")
    source = node(tmp_path, "source", connectors=connectors_to(target.port), extra=bridge_to(target.port))
    target.config.write_text(target.config.read_text().replace('name="q"', 'name="in.good"'))
    source.config.write_text(source.config.read_text().replace('<address name="q">', '<address name="in.#">'))
    nodes += [target, source]
    for each in nodes:
        each.start().wait_ready("active")
    with connect(f"tcp://127.0.0.1:{source.port}") as connection, connection.session() as session:
        producer = session.producer()
        for number in range(20):
            for address in ("in.bad", "in.good"):
                producer.send(f"{address} {number}", address=address)
    deadline = time.monotonic() + READY_S
    while invoke(target, "queue.in.good", "getMessageCount")[1] != 20:
        assert time.monotonic() < deadline, source.tail()
        time.sleep(0.05)
    found = source.get("/api/v1/cluster")[1]["bridges"][0]
    assert (found["state"], found["waiting"], found["refused"]) == ("RUNNING", 20, 20)
    assert "in.bad" in found["error"]
    assert source.log.read_text().count("the target of a bridge refuses a message") == 1
    wanted = '{"name": "in.bad", "address": "in.bad", "routing-type": "ANYCAST", "auto-create-address": true}'
    assert invoke(target, "broker", "createQueue", wanted)[0] == 200
    # another connection, before the minute is over
    assert invoke(source, "bridge.b", "stop")[0] == 200
    assert invoke(source, "bridge.b", "start")[0] == 200
    while invoke(target, "queue.in.bad", "getMessageCount")[1] != 20:
        assert time.monotonic() < deadline + READY_S, source.tail()
        time.sleep(0.05)
    assert invoke(source, "queue.q", "getMessageCount")[1] == 0
