"""Real broker processes of one replicated pair: each node has its own directories, a lock manager decides."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support import forked
from support.certificates import make as make_certificate
from support.networks import MANAGEMENT_PORT, Network
from support.ports import free_port
from support.processes import COMMAND, READY_S, Node, Pair

XML = """<?xml version="1.0"?>
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
    <acceptors><acceptor name="core">tcp://{host}:{port}{acceptor}</acceptor></acceptors>
    <cluster-connections>
      <cluster-connection name="pair">
        <connector-ref>{name}</connector-ref>
        <connection-ttl>{connection_ttl_ms}</connection-ttl>
        <check-period>1000</check-period>
        <call-timeout>{call_timeout_ms}</call-timeout>
        <static-connectors>{others}</static-connectors>
      </cluster-connection>
    </cluster-connections>
    <ha-policy>
      <replication>
        <{role}>
          <manager>{manager}</manager>
          <retry-replication-wait>200</retry-replication-wait>
          {settings}
        </{role}>
      </replication>
    </ha-policy>
    {extra}
  </core>
</configuration>
"""


def property_of(key: str, value: object) -> str:
    """A property of a lock manager."""
    return f'<property key="{key}" value="{value}"/>'


class PairCertificates:
    """An authority, and a certificate of the nodes and one of the clients."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._authority = make_certificate("CN=authority,O=Example", authority=True)
        self.ca = self._authority.write_certificate(directory / "ca.pem")
        self.node = make_certificate("CN=node,O=Example", self._authority).write(directory / "node.pem")
        stranger = make_certificate("CN=stranger", authority=True)
        self.unknown = make_certificate("CN=node,O=Example", stranger).write(directory / "unknown.pem")

    def renew(self) -> bytes:
        """Replace the certificate of the nodes; the new one, DER."""
        new = make_certificate("CN=node,O=Example", self._authority)
        new.write(self.node.with_suffix(".new")).replace(self.node)
        return new.der

    def acceptor(self) -> str:
        """Parameters of an acceptor that asks for a certificate."""
        return f"?sslEnabled=true;keyStorePath={self.node};trustStorePath={self.ca};needClientAuth=true"

    def connector(self, own: Path | None = None) -> str:
        """Parameters of a connector that presents a certificate."""
        return f"?sslEnabled=true;trustStorePath={self.ca};keyStorePath={own or self.node}"


class ReplicatedPair:
    """A primary and its backups, each with its own store."""

    def __init__(
        self,
        directory: Path,
        *,
        manager: str | None = None,
        allow_failback: bool = False,
        call_timeout_ms: int = 30_000,
        connection_ttl_ms: int = 60_000,
        saved_max: int = 2,
        backups: int = 1,
        network: Network | None = None,
        acceptor: str = "",
        connector: str = "",
        extra: str = "",
        replication: str = "",
    ) -> None:
        """Args:
        directory: Scratch directory.
        manager: Content of element ``manager``; by default the file lock manager.
        allow_failback: Whether the backups give the service back to a returned primary.
        call_timeout_ms: Longest time without progress of a replica.
        connection_ttl_ms: Silence after which a connection between the nodes is closed.
        saved_max: max-saved-replicated-journals-size of every node.
        backups: How many backups there are.
        network: Has a host of the name of each node; None: all are on loopback.
        acceptor: More of the URL of each acceptor.
        connector: More of the URL of each connector.
        extra: More elements of ``core``.
        replication: More elements of ``primary`` and ``backup``.
        """
        locks = directory / "locks"
        locks.mkdir()
        if manager is None:
            folder = property_of("locks-folder", locks)
            manager = f"<class-name>file</class-name><properties>{folder}</properties>"
        names = ["primary", *("backup" if number == 1 else f"backup{number}" for number in range(1, backups + 1))]
        hosts = {name: network.address(name) if network is not None else "127.0.0.1" for name in names}
        ports = {name: free_port() for name in names}
        places = {name: f"tcp://{hosts[name]}:{ports[name]}" for name in names}
        connectors = "".join(f'<connector name="{name}">{places[name]}{connector}</connector>' for name in names)
        self.nodes: list[Node] = []
        for name in names:
            role = "primary" if name == "primary" else "backup"
            node = Node(directory / name, role, ports[name], hosts[name])
            if network is not None:
                node.command = (*network.command(name), *node.command)
                node.http_port = MANAGEMENT_PORT
            node.config.parent.mkdir(parents=True)
            settings = (
                f"<max-saved-replicated-journals-size>{saved_max}</max-saved-replicated-journals-size>" + replication
            )
            if role == "backup":
                settings += f"<allow-failback>{str(allow_failback).lower()}</allow-failback>"
            others = "".join(f"<connector-ref>{other}</connector-ref>" for other in names if other != name)
            node.config.write_text(
                XML.format(
                    name=name,
                    store=node.directory / "data",
                    connectors=connectors,
                    host=node.host,
                    port=node.port,
                    acceptor=acceptor,
                    extra=extra,
                    call_timeout_ms=call_timeout_ms,
                    connection_ttl_ms=connection_ttl_ms,
                    others=others,
                    role=role,
                    manager=manager,
                    settings=settings,
                )
            )
            self.nodes.append(node)
        self.primary, self.backup = self.nodes[:2]
        self.url = (
            f"({','.join(places.values())})?ha=true&reconnectAttempts=-1&initialConnectAttempts=-1&retryInterval=100"
        )

    def start(self) -> ReplicatedPair:
        """Start the primary and the first backup; returns when the backup is in sync."""
        self.primary.start().wait_ready("active")
        self.backup.start()
        wait_in_sync(self.primary, self.backup)
        return self

    def end(self) -> None:
        """End every process."""
        for node in self.nodes:
            node.end()


def wait_until(condition: Callable[[], bool], *nodes: Node, timeout_s: float = READY_S) -> None:
    """Wait for a condition; the error shows the logs of the nodes."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "\n---\n".join(node.tail() for node in nodes)
        time.sleep(0.02)


def logged(node: Node, text: str) -> int:
    """How often the log of a node has the text."""
    return node.log.read_text(errors="replace").count(text) if node.log.exists() else 0


def wait_logged(node: Node, text: str, times: int = 1) -> None:
    """Wait until the log of a node has the text that often."""
    wait_until(lambda: logged(node, text) >= times, node)


def wait_in_sync(active: Node, replica: Node, times: int = 1) -> None:
    """Wait until the active node has said that often since its first start that a replica came into sync."""
    wait_until(lambda: logged(active, "replica in sync") >= times, active, replica)


def roles(pair: Pair | ReplicatedPair) -> tuple[Node, Node]:
    """The node that is active and the other one."""
    found: list[Node] = []
    nodes = pair.primary, pair.backup

    def one_is_active() -> bool:
        found[:] = [node for node in nodes if node.get("/health/ready")[1].get("state") == "active"]
        return len(found) == 1

    wait_until(one_is_active, *nodes)
    return found[0], nodes[found[0] is pair.primary]


def is_protected(pair: Pair | ReplicatedPair) -> bool:
    """Whether the other node would take over with all confirmed messages."""
    return roles(pair)[0].get("/health/ready")[1].get("protected") is True


class Traffic:
    """A producer with duplicate ids and a consumer, each a process with a ledger."""

    def __init__(self, url: str, directory: Path, count: int | None, *, rate: int = 500) -> None:
        """``count``: messages to send; None: the producer sends until ``stop``."""
        self.url = url
        self.count = count
        self.produced, self.consumed = directory / "produced.jsonl", directory / "consumed.jsonl"
        self._enough = directory / "enough"
        self.consumer = _command("consume", "--url", url, "--queue", "q", "--ack", "transacted", "--batch", 20,
                                 "--follow", "--ledger", self.consumed)  # fmt: skip
        limit = ("--count", 1, "--until", self._enough) if count is None else ("--count", count)
        self.producer = _command("produce", "--url", url, "--queue", "q", *limit, "--size", 200,
                                 "--rate", rate, "--ledger", self.produced)  # fmt: skip

    def wait_confirmed(self, count: int) -> None:
        """Wait until the ledger of the producer has that many lines."""

        def reached() -> bool:
            assert self.producer.poll() is None or self.lines >= count, self.producer.communicate()
            return self.lines >= count

        wait_until(reached)

    def wait_more(self, count: int) -> None:
        """Wait until the ledger of the producer has that many more lines, or all: a slow node may start late."""
        wanted = self.lines + count
        self.wait_confirmed(wanted if self.count is None else min(wanted, self.count))

    @property
    def lines(self) -> int:
        """Lines in the ledger of the producer."""
        return self.produced.read_bytes().count(b"\n") if self.produced.exists() else 0

    def stop(self) -> None:
        """Let a producer without a number of messages end."""
        self._enough.touch()

    def check(self, active: Node) -> dict[str, Any]:
        """Wait for the end of the producer and an empty queue; nothing is lost, nothing delivered twice unmarked.

        Returns:
            The report of ``understudy ledger check``.
        """
        out, err = self.producer.communicate(timeout=120)
        assert self.producer.returncode == 0, out + err + active.tail()

        def empty() -> bool:
            assert self.consumer.poll() is None, self.consumer.communicate()
            queue = active.queue("q")
            return queue is not None and queue["message_count"] == 0

        wait_until(empty, active)
        self.consumer.send_signal(2)
        out, err = self.consumer.communicate(timeout=60)
        assert self.consumer.returncode == 0, out + err
        check = _command("ledger", "check", "--json", self.produced, self.consumed)
        out, err = check.communicate(timeout=60)
        report: dict[str, Any] = json.loads(out)
        assert report["ok"], report
        counts = report["counts"]
        assert counts["confirmed"] == counts["messages"]
        assert self.count in (None, counts["messages"])
        return report

    def end(self) -> None:
        """End both processes."""
        for process in (self.producer, self.consumer):
            if process.poll() is None:
                process.kill()
                process.communicate()


def _command(*arguments: object) -> subprocess.Popen[str]:
    command = [str(COMMAND), *map(str, arguments)]
    return forked.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def produce(url: str, count: int, *, size: int = 200) -> None:
    """Send messages to queue ``q`` and wait for their confirmations."""
    process = _command("produce", "--url", url, "--queue", "q", "--count", count, "--size", size)
    out, err = process.communicate(timeout=90)
    assert process.returncode == 0, out + err


def consume(url: str, count: int) -> None:
    """Receive and acknowledge that many messages of queue ``q``."""
    process = _command("consume", "--url", url, "--queue", "q", "--count", count, "--json")
    out, err = process.communicate(timeout=90)
    assert process.returncode == 0, out + err
    assert json.loads(out)["acknowledged"] == count
