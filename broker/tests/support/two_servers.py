"""Two processes with two servers each: the main server of one, and the backup of the other (reference/001)."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Final

from support import forked
from support.members import wait_until
from support.ports import free_port
from support.processes import COMMAND, READY_S, Node

_HEAD: Final = """
    <security-enabled>false</security-enabled>
    <bindings-directory>{store}/bindings</bindings-directory>
    <journal-directory>{store}/journal</journal-directory>
    <large-messages-directory>{store}/large-messages</large-messages-directory>
    <paging-directory>{store}/paging</paging-directory>
    <cluster-user>cluster</cluster-user>
    <cluster-password>a-secret-of-this-test</cluster-password>
    <connectors>{connectors}</connectors>
    <acceptors><acceptor name="netty">tcp://127.0.0.1:{port}{upgrade}</acceptor></acceptors>
    <ha-policy>{policy}</ha-policy>
    <cluster-connections><cluster-connection name="my-cluster"><connector-ref>{own}</connector-ref>
      <retry-interval>100</retry-interval>
      <static-connectors>{statics}</static-connectors>
    </cluster-connection></cluster-connections>
    <xi:include href="common.xml"/>
    <addresses><address name="q"><anycast><queue name="q"/></anycast></address></addresses>
"""
_XML: Final = """<?xml version="1.0"?>
<configuration xmlns="urn:activemq" xmlns:xi="http://www.w3.org/2001/XInclude">
  <core xmlns="urn:activemq:core"><name>{name}</name>{main}</core>
  <server xmlns="urn:activemq:core" name="backup" management="127.0.0.1:{http}">{backup}</server>
</configuration>
"""
_COMMON: Final = """<address-settings xmlns="urn:activemq:core">
  <address-setting match="#"><redistribution-delay>-1</redistribution-delay></address-setting>
</address-settings>
"""


class TwoServers:
    """The processes ``a`` and ``b``. The server ``backup`` of each is the backup of the main server of the other."""

    def __init__(self, directory: Path, kind: str = "shared-store", *, shares_port: bool = False) -> None:
        """Args:
        directory: Scratch directory.
        kind: ``shared-store`` or ``replication``.
        shares_port: Whether the servers of a process share a port by HTTP upgrades.
        """
        self.kind = kind
        self.nodes = [Node(directory / name, "primary", free_port()) for name in "ab"]
        """The processes; their ports and their management are those of the main servers."""
        self.backups = []
        """Views of the servers ``backup``, which are not started by themselves."""
        for node in self.nodes:
            backup = Node(node.directory, "backup", node.port if shares_port else free_port())
            backup.log = node.log
            self.backups.append(backup)
        upgrade = "?httpUpgradeEnabled=true" if shares_port else ""
        for number, node in enumerate(self.nodes):
            node.config.parent.mkdir(parents=True)
            (node.config.parent / "common.xml").write_text(_COMMON)
            places = {f"{name}-{role}": each.port for role, nodes in (("main", self.nodes), ("backup", self.backups))
                      for name, each in zip("ab", nodes, strict=True)}  # fmt: skip
            connectors = ""
            for name, port in places.items():
                server = "backup" if name.endswith("backup") else name
                query = f"{upgrade};activemqServerName={server}" if shares_port else ""
                connectors += f'<connector name="{name}">tcp://127.0.0.1:{port}{query}</connector>'
            values = {"connectors": connectors, "upgrade": upgrade}
            own, other = "ab"[number], "ab"[1 - number]
            texts = {}
            for role, port, pair in (("main", node.port, own), ("backup", self.backups[number].port, other)):
                store = directory / f"store-{pair}" if kind == "shared-store" else directory / own / f"data-{role}"
                statics = "".join(
                    f"<connector-ref>{each}</connector-ref>" for each in places if each != f"{own}-{role}"
                )
                texts[role] = _HEAD.format(
                    store=store,
                    port=port,
                    policy=self._policy(role, pair),
                    own=f"{own}-{role}",
                    statics=statics,
                    **values,
                )
            node.config.write_text(_XML.format(name=f"{own}-main", http=self.backups[number].http_port, **texts))

    def _policy(self, role: str, pair: str) -> str:
        policy = "primary" if role == "main" else "backup"
        if self.kind == "shared-store":
            inside = "<failover-on-shutdown>true</failover-on-shutdown>"
        elif role == "main":
            inside = f"<group-name>{pair}</group-name><check-for-active-server>true</check-for-active-server>"
        else:
            inside = f"<group-name>{pair}</group-name><allow-failback>true</allow-failback>"
        return f"<{self.kind}><{policy}>{inside}</{policy}></{self.kind}>"

    def start(self) -> TwoServers:
        """Start both processes, and wait until both main servers are active with a backup that is ready."""
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.wait_ready("active")
        self.wait_backups()
        return self

    def wait_backups(self) -> None:
        """Wait until both backups are passive and ready, and announced."""
        for node, backup in zip(self.nodes, self.backups, strict=True):
            backup.wait_ready("passive")
            wait_until(lambda node=node: node.facts().get("peer") is not None, "no backup is announced", node)  # type: ignore[misc]

    def url(self, number: int) -> str:
        """URL with which our client reaches the main server of a process, and follows it."""
        places = f"tcp://127.0.0.1:{self.nodes[number].port},tcp://127.0.0.1:{self.backups[1 - number].port}"
        return f"({places})?ha=true&reconnectAttempts=-1&retryInterval=100&initialConnectAttempts=-1"

    def end(self) -> None:
        """End both."""
        for node in self.nodes:
            node.end()


def command(node: Node, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A command of ``understudy`` about the instance of a process."""
    arguments = [str(COMMAND), *name.split(), "--instance", str(node.directory), *options]
    return forked.run(arguments, capture_output=True, text=True, timeout=2 * READY_S, check=False)


def states(node: Node) -> dict[str, Any]:
    """State of each server of a process, by name."""
    found: Any = node.get("/api/v1/servers")[1].get("servers", [])
    return {each["name"]: each["state"] for each in found}
