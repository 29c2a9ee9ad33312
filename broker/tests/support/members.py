"""Real broker processes that are members of one cluster, without backups."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from support import forked
from support.ports import free_port
from support.processes import COMMAND, READY_S, Node, Pair, invoke
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
    {extra}
    <acceptors><acceptor name="core">tcp://127.0.0.1:{port}</acceptor></acceptors>
    <cluster-connections><cluster-connection name="cluster"><connector-ref>{name}</connector-ref>
      <retry-interval>100</retry-interval>{cluster}
      <static-connectors{direct}>{statics}</static-connectors>
    </cluster-connection></cluster-connections>
    <address-settings><address-setting match="#">{settings}</address-setting></address-settings>
    <addresses>
      <address name="q"><anycast><queue name="q"/></anycast></address>
      <address name="news"><multicast/></address>
    </addresses>
  </core>
</configuration>
"""


def members_xml(
    directory: Path,
    count: int,
    *,
    cluster: str = "",
    settings: str = "<redistribution-delay>0</redistribution-delay>",
    knows: Callable[[int], Iterable[int]] | None = None,
    direct_only: bool = False,
    extra: Callable[[int], str] = lambda number: "",
) -> list[tuple[int, str]]:
    """Port and broker.xml of each member; the arguments are those of ``Members``."""
    ports = [free_port() for _ in range(count)]
    connectors = "".join(
        f'<connector name="n{number}">tcp://127.0.0.1:{port}</connector>' for number, port in enumerate(ports)
    )
    texts = []
    for number, port in enumerate(ports):
        others = range(count) if knows is None else knows(number)
        statics = "".join(f"<connector-ref>n{other}</connector-ref>" for other in others if other != number)
        text = _XML.format(
            name=f"n{number}", store=directory / f"n{number}" / "data", port=port, connectors=connectors,
            cluster=cluster, statics=statics, settings=settings, extra=extra(number),
            direct=' allow-direct-connections-only="true"' if direct_only else "",
        )  # fmt: skip
        texts.append((port, text))
    return texts


class Members:
    """Members ``n0``, ``n1`` … of a cluster, each with the anycast queue ``q`` and the multicast address ``news``."""

    def __init__(
        self,
        directory: Path,
        count: int = 2,
        *,
        cluster: str = "",
        settings: str = "<redistribution-delay>0</redistribution-delay>",
        knows: Callable[[int], Iterable[int]] | None = None,
        direct_only: bool = False,
        extra: Callable[[int], str] = lambda number: "",
    ) -> None:
        """Args:
        directory: Scratch directory.
        count: Number of members.
        cluster: More elements of the cluster connection.
        settings: Elements of the address setting that holds for all addresses.
        knows: Numbers of the members that a member has as static connectors; None: all others.
        direct_only: Whether a member dials no others.
        extra: More elements of a member, by its number.
        """
        self.nodes: list[Node] = []
        texts = members_xml(
            directory, count, cluster=cluster, settings=settings, knows=knows, direct_only=direct_only, extra=extra
        )
        for number, (port, text) in enumerate(texts):
            node = Node(directory / f"n{number}", "primary", port)
            node.config.parent.mkdir(parents=True)
            node.config.write_text(text)
            self.nodes.append(node)

    def start(self) -> Members:
        """Start all, and wait until they are active."""
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.wait_ready("active")
        return self

    def end(self) -> None:
        """End all."""
        for node in self.nodes:
            node.end()


def third_of(pair: Pair, directory: Path) -> Node:
    """A member in the cluster of a pair, with a store of its own."""
    third = Node(directory / "third", "primary", free_port())
    third.config.parent.mkdir(parents=True)
    text = pair.primary.config.read_text().replace(str(pair.store), str(directory / "other"))
    text = text.replace(
        f'<acceptor name="core">tcp://127.0.0.1:{pair.primary.port}',
        f'<acceptor name="core">tcp://127.0.0.1:{third.port}',
    )
    text = text.replace("<connectors>", f'<connectors><connector name="third">tcp://127.0.0.1:{third.port}</connector>')
    text = text.replace("<connector-ref>primary</connector-ref>", "<connector-ref>third</connector-ref>")
    text = text.replace("<static-connectors>", "<static-connectors><connector-ref>primary</connector-ref>")
    third.config.write_text(text.replace("primary-node", "third-node"))
    return third


def url(node: Node) -> str:
    """URL with which our client reaches a member and stays with it."""
    return f"tcp://127.0.0.1:{node.port}?reconnectAttempts=-1&initialConnectAttempts=-1&retryInterval=100"


def depth(node: Node, queue: str) -> int:
    """Messages of a queue, those being delivered included."""
    return int(str(invoke(node, f"queue.{queue}", "getMessageCount")[1]))


def wait_until(holds: Callable[[], bool], what: str, node: Node) -> None:
    """Wait until a condition holds; fails with the end of the node's log."""
    deadline = time.monotonic() + READY_S
    while not holds():
        assert time.monotonic() < deadline, f"{what}: {node.tail()}"
        time.sleep(0.05)


def wait_knows(node: Node, queue: str, *, nodes: int = 1, consumers: int = -1) -> None:
    """Wait until a member knows the queue of so many others, with so many consumers together (-1: whatever)."""

    def knows() -> bool:
        known = [each for each in node.get("/api/v1/cluster")[1]["remote_queues"] if each["queue"] == queue]
        connected = [each for each in known if each["connected"]]
        return len(connected) >= nodes and consumers in (-1, sum(each["consumers"] for each in connected))

    wait_until(knows, f"the node does not know {queue!r} of {nodes} others", node)


class Traffic:
    """A producer at one member and a consumer at another one, with ledgers."""

    def __init__(self, directory: Path, source: str, target: str, count: int) -> None:
        self.sent, self.received, self.count = directory / "sent.jsonl", directory / "received.jsonl", count
        self.producer = self._run(
            "produce", "--url", source, "--producer", "p", "--ledger", str(self.sent), "--rate", "700", "--size", "300",
        )  # fmt: skip
        self.consumer = self._run(
            "consume", "--url", target, "--consumer", "c", "--ledger", str(self.received),
            "--idle-timeout", "15",
        )  # fmt: skip

    def _run(self, command: str, *options: str) -> subprocess.Popen[bytes]:
        return forked.Popen(
            [str(COMMAND), command, "--queue", "q", "--count", str(self.count), *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def confirmed(self) -> int:
        """Messages that were confirmed so far."""
        return self.sent.read_text().count('"CONFIRMED"') if self.sent.exists() else 0

    def finish(self) -> None:
        """Everything was confirmed and arrives once. Order is not judged: messages that were kept here while the other
        member was away come after those that went there directly.
        """
        output, errors = self.producer.communicate(timeout=3 * READY_S)
        assert self.producer.returncode == 0, (output + errors).decode()
        # without success if a kill took the answer to an acknowledgement
        self.consumer.communicate(timeout=3 * READY_S)
        report = check([row for file in (self.sent, self.received) for row in read(file.read_text().splitlines())])
        found = (*report.lost, *report.duplicated, *report.corrupted, *report.unexplained)
        assert not found, report
        assert report.counts.messages == self.count

    def end(self) -> None:
        """End both."""
        for process in (self.producer, self.consumer):
            if process.poll() is None:
                process.kill()
                process.communicate()
