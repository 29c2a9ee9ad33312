"""The pairs of the benchmark of failovers: this broker and Artemis, with shared storage or replication.

Each node is a process on a host of its own (``support.networks``), or all are on loopback where there are no network
namespaces. The configuration of a pair is the same for both brokers, but for the lock manager: Artemis is measured
without one.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from benchmarks.load import CannotRun, RunFailed
from benchmarks.targets import artemis_home
from support import zookeeper
from support.artemis import ArtemisNode
from support.management_driver import ManagementDriver
from support.networks import MANAGEMENT_PORT, Network
from support.ports import free_port
from support.processes import COMMAND, Node
from support.witnesses import WitnessProcess
from understudy.client.sync import connect
from understudy.errors import BrokerError

#: Only against a hang: a pair that does not get into a state. The longest wait is a silent cut with a TTL of 60 s.
STATE_S_MAX: Final = 120
NODES: Final = ("primary", "backup")
#: Host of the lock manager.
THIRD: Final = "third"

_XML: Final = """<?xml version="1.0"?>
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
    {extra}
    <connectors>{connectors}</connectors>
    <acceptors><acceptor name="core">tcp://{host}:{port}</acceptor></acceptors>
    <cluster-connections>
      <cluster-connection name="pair">
        <connector-ref>{name}</connector-ref>
        {times}
        <static-connectors><connector-ref>{other}</connector-ref></static-connectors>
      </cluster-connection>
    </cluster-connections>
    <ha-policy>{policy}</ha-policy>
  </core>
</configuration>
"""
_OURS_ACTIVE: Final = '"event": "active"'
#: Last lines of the log of a node that is active, and of one that is not.
_ARTEMIS_ACTIVE: Final = ("AMQ221007", "AMQ221010")
_ARTEMIS_PASSIVE: Final = ("AMQ221109", "AMQ221031", "AMQ221024")


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the tables: a broker and a policy."""

    broker: str
    policy: str
    """``shared-store``, ``votes``, or the name of a lock manager."""

    @property
    def name(self) -> str:
        return f"{self.broker}: {self.policy}"

    @property
    def shared(self) -> bool:
        """Whether the nodes have one store."""
        return self.policy == "shared-store"

    @property
    def goes_on_when_cut(self) -> bool:
        """Whether a node without network goes on, so that only a network check ends it. A lone pair of Artemis that
        decides by votes is measured as its manual sets it up: both of its nodes are active then.
        """
        return self.policy in ("shared-store", "file") or (self.broker, self.policy) == ("understudy", "votes")


@dataclass(frozen=True, slots=True)
class Tuning:
    """Settings differ between the default and the tuned measurement of silent cuts."""

    client: str
    """Parameters of the URLs of the clients."""
    times: str = ""
    """Elements of the cluster connection."""
    lease_ms: int | None = None
    check_period_ms: int | None = None
    """network-check-period."""


DEFAULTS: Final = Tuning("")
TUNED: Final = Tuning(
    "&connectionTTL=1500&clientFailureCheckPeriod=500&callTimeout=2000&connect-timeout-millis=500",
    "<check-period>500</check-period><connection-ttl>2000</connection-ttl>",
    2_000,
    1_000,
)


class FailoverPair:
    """A primary and a backup that gives its place back to the primary."""

    def __init__(self, directory: Path, kind: Kind, network: Network | None, tuning: Tuning) -> None:
        """Raises CannotRun: something that this kind needs is not installed."""
        self.kind = kind
        self.directory = directory
        self._network = network
        self._tuning = tuning
        self._ends: list[Callable[[], object]] = []
        hosts = {name: network.address(name) if network is not None else "127.0.0.1" for name in NODES}
        ports = {name: free_port() for name in NODES}
        places = {name: f"tcp://{hosts[name]}:{ports[name]}" for name in NODES}
        self.url = f"({','.join(places.values())})?ha=true&reconnectAttempts=-1&initialConnectAttempts=-1" + (
            "&retryInterval=100" + tuning.client
        )
        connectors = "".join(f'<connector name="{name}">{place}</connector>' for name, place in places.items())
        self.nodes: dict[str, Node | ArtemisNode] = {}
        self._started_at = dict.fromkeys(NODES, 0)
        """Length of the log of each node when its process was started."""
        try:
            manager = self._manager()
            for name in NODES:
                store = directory / ("store" if kind.shared else f"store-{name}")
                config = _XML.format(
                    name=name, store=store, host=hosts[name], port=ports[name], connectors=connectors,
                    other=NODES[1 - NODES.index(name)], times=tuning.times, extra=self._extra(name),
                    policy=_policy(kind, name, manager),
                )  # fmt: skip
                self.nodes[name] = self._node(name, hosts[name], ports[name], config)
        except BaseException:
            self.end()
            raise

    def _extra(self, name: str) -> str:
        extra = "<journal-type>NIO</journal-type>" if self.kind.broker == "artemis" else ""
        if self.kind.goes_on_when_cut and self._network is not None:
            extra += f"<network-check-list>{self._network.router(name)}</network-check-list>"
            if self._tuning.check_period_ms is not None:
                extra += f"<network-check-period>{self._tuning.check_period_ms}</network-check-period>"
        return extra

    def _manager(self) -> str:
        """Start the lock manager; content of the element ``manager``."""
        kind, lease_ms = self.kind.policy, self._tuning.lease_ms
        host = "127.0.0.1" if self._network is None else self._network.address(THIRD)
        prefix = () if self._network is None else self._network.command(THIRD)
        if kind == "file":
            (self.directory / "locks").mkdir(parents=True)
            return _element(kind, {"locks-folder": self.directory / "locks"})
        if kind == "witness":
            self.directory.mkdir(parents=True, exist_ok=True)
            witness = WitnessProcess(self.directory, host, prefix)
            # leases as long as the configuration says, and no wait after the start of an empty witness
            witness.start()
            self._ends.append(lambda: witness.end(signal.SIGKILL))
            lease = {} if lease_ms is None else {"lease-ms": lease_ms}
            return _element(kind, {"addresses": witness.address, "secret-file": witness.secret, **lease})
        if kind == "zookeeper":
            if not zookeeper.installed():
                raise CannotRun("Debian's package zookeeper is not installed")
            servers = zookeeper.Ensemble(self.directory, 3, tick_ms=1_000, host=host, prefix=prefix)
            self._ends.append(servers.kill)
            servers.start()
            session = {} if lease_ms is None else {"session-ms": lease_ms, "connection-ms": lease_ms // 2}
            return _element(kind, {"connect-string": servers.connect_string, **session})
        return ""

    def _node(self, name: str, host: str, port: int, config: str) -> Node | ArtemisNode:
        prefix = () if self._network is None else self._network.command(name)
        directory = self.directory / name
        if self.kind.broker == "artemis":
            theirs = ArtemisNode(artemis_home() / "bin" / "artemis", directory, port, config)
            theirs.prefix = prefix
            self._ends.append(theirs.end)
            return theirs
        ours = Node(directory, name, port, host)
        ours.command = (*prefix, str(COMMAND))
        if prefix:
            ours.http_port = MANAGEMENT_PORT
        ours.config.parent.mkdir(parents=True)
        ours.config.write_text(config)
        self._ends.append(ours.end)
        return ours

    def start(self) -> None:
        """Start both; returns when the backup can take over."""
        self.start_node("primary")
        self.wait_active("primary")
        self.start_node("backup")
        self.wait_ready()

    def start_node(self, name: str) -> None:
        """Start the process of a node; what its log says of earlier processes does not count any more."""
        log = self.nodes[name].log
        # that of Artemis begins anew
        self._started_at[name] = log.stat().st_size if log.exists() and self.kind.broker != "artemis" else 0
        self.nodes[name].start()

    def wait_active(self, name: str) -> None:
        """Wait until a node is active."""
        self._wait(lambda: self.is_active(name), f"{name} is not active")

    def wait_ready(self) -> None:
        """Wait until the primary is active and the backup can take over."""
        self._wait(lambda: self.is_active("primary") and self._can_take_over(), "the backup cannot take over")

    def _wait(self, condition: Callable[[], bool], text: str) -> None:
        end = time.monotonic() + STATE_S_MAX
        while not condition():
            if time.monotonic() > end:
                logs = "\n---\n".join(node.tail() for node in self.nodes.values())
                raise RunFailed(f"{self.kind.name}: {text} after {STATE_S_MAX} s:\n{logs}")
            time.sleep(0.05)

    def _log(self, name: str) -> str:
        log = self.nodes[name].log
        return log.read_bytes()[self._started_at[name] :].decode(errors="replace") if log.exists() else ""

    def is_active(self, name: str) -> bool:
        """Whether a node is active, by its log."""
        process, log = self.nodes[name].process, self._log(name)
        if process is None or process.poll() is not None:
            return False
        if self.kind.broker == "artemis":
            return _last(log, _ARTEMIS_ACTIVE) > _last(log, _ARTEMIS_PASSIVE)
        return _last(log, ('"to": "ACTIVE"',)) > _last(log, ('"from": "ACTIVE"',))

    def _can_take_over(self) -> bool:
        active, standby = self._log("primary"), self._log("backup")
        if self.kind.broker == "artemis":
            sign = "AMQ221031" if self.kind.shared else "AMQ221024"
            return _last(standby, (sign,)) > _last(standby, (*_ARTEMIS_ACTIVE, "AMQ221109"))
        if not self.kind.shared:
            return _last(active, ("replica in sync",)) > _last(
                active, ("without a replica", _OURS_ACTIVE, "replica registered")
            )
        primary, backup = self.nodes["primary"], self.nodes["backup"]
        assert isinstance(primary, Node)
        assert isinstance(backup, Node)
        return primary.facts().get("peer") is not None and backup.get("/health/ready")[0] == 200

    def active_at_s(self, name: str) -> float:
        """When a node became active the last time, by its log. Unix time in seconds."""
        lines = self._log(name).splitlines()
        if self.kind.broker == "artemis":
            line = next(each for each in reversed(lines) if any(sign in each for sign in _ARTEMIS_ACTIVE))
            found = re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}", line)
            assert found is not None, line
            return datetime.strptime(found[0], "%Y-%m-%d %H:%M:%S,%f").timestamp()
        line = next(each for each in reversed(lines) if _OURS_ACTIVE in each)
        return datetime.fromisoformat(json.loads(line)["ts"]).timestamp()

    def switch(self) -> None:
        """Move the active role from the primary to the backup by command; the process of the primary ends."""
        node = self.nodes["primary"]
        if isinstance(node, ArtemisNode):
            threading.Thread(target=self._force_failover, daemon=True).start()
            self.wait_active("backup")
            node.end()
            return
        subprocess.run(
            [str(COMMAND), "failover", "--url", f"http://{node.host}:{node.http_port}",
             "--token-file", str(node.config.with_name("management.token"))],
            check=True, capture_output=True, timeout=STATE_S_MAX,
        )  # fmt: skip
        assert node.process is not None
        node.process.wait(STATE_S_MAX)

    def _force_failover(self) -> None:
        try:
            with connect(self.url.replace("reconnectAttempts=-1", "reconnectAttempts=0")) as connection:
                ManagementDriver(connection).operation("broker", "forceFailover")
        except (BrokerError, AssertionError):
            # the node ends before it answers
            return

    def end(self) -> None:
        """Leave nothing running."""
        while self._ends:
            self._ends.pop()()


def _last(text: str, signs: tuple[str, ...]) -> int:
    return max(text.rfind(sign) for sign in signs)


def _element(kind: str, properties: dict[str, object]) -> str:
    values = "".join(f'<property key="{key}" value="{value}"/>' for key, value in properties.items())
    return f"<manager><class-name>{kind}</class-name><properties>{values}</properties></manager>"


def _policy(kind: Kind, name: str, manager: str) -> str:
    settings = "<allow-failback>true</allow-failback>" if name == "backup" else ""
    if kind.policy == "votes" and name == "primary":
        settings = "<check-for-active-server>true</check-for-active-server>"
    if kind.shared:
        # a node that the network check stops ends cleanly, and hands over only with this
        settings += "<failover-on-shutdown>true</failover-on-shutdown>"
    element = "shared-store" if kind.shared else "replication"
    return f"<{element}><{name}>{manager}{settings}</{name}></{element}>"
