"""The brokers that our client is tried against, each with the same broker.xml.

A ``Target`` is one running broker: ours, or Artemis from its distribution.
"""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from pathlib import Path

from support import forked
from support.artemis import ArtemisNode
from support.ports import free_port
from support.processes import COMMAND, Node

USER, PASSWORD = "bob", "secret of bob"

#: One broker; both kinds read it as it stands, and serve however full the disk of this machine is.
_XML = """<?xml version="1.0"?>
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <name>{name}</name>
    <security-enabled>{security}</security-enabled>
    <bindings-directory>{store}/bindings</bindings-directory>
    <journal-directory>{store}/journal</journal-directory>
    <large-messages-directory>{store}/large-messages</large-messages-directory>
    <paging-directory>{store}/paging</paging-directory>
    <journal-type>NIO</journal-type>
    <max-disk-usage>100</max-disk-usage>
    <message-expiry-scan-period>{expiry_scan_period_ms}</message-expiry-scan-period>
    <address-queue-scan-period>{scan_period_ms}</address-queue-scan-period>
    <connectors>
      <connector name="core">tcp://127.0.0.1:{port}</connector>
      {connectors}
    </connectors>
    <acceptors>
      <acceptor name="core">tcp://127.0.0.1:{port}</acceptor>
      {acceptors}
    </acceptors>
    {elements}
    <security-settings>
      <security-setting match="#">
        <permission type="send" roles="everything"/>
        <permission type="consume" roles="everything"/>
        <permission type="browse" roles="everything"/>
        <permission type="createAddress" roles="everything"/>
        <permission type="createDurableQueue" roles="everything"/>
        <permission type="createNonDurableQueue" roles="everything"/>
        <permission type="deleteDurableQueue" roles="everything"/>
        <permission type="deleteNonDurableQueue" roles="everything"/>
        <permission type="manage" roles="everything"/>
      </security-setting>
    </security-settings>
    <addresses>
      <address name="dead"><anycast><queue name="dead"/></anycast></address>
      <address name="expired"><anycast><queue name="expired"/></anycast></address>
    </addresses>
    <address-settings>
      <address-setting match="#">
        <dead-letter-address>dead</dead-letter-address>
        <expiry-address>expired</expiry-address>
        <max-delivery-attempts>3</max-delivery-attempts>
        <auto-delete-queues>false</auto-delete-queues>
        <auto-delete-addresses>false</auto-delete-addresses>
      </address-setting>
      <address-setting match="delayed.#">
        <redelivery-delay>300</redelivery-delay>
      </address-setting>
      <address-setting match="failing.#">
        <max-size-bytes>100K</max-size-bytes>
        <address-full-policy>FAIL</address-full-policy>
      </address-setting>
      <address-setting match="blocking.#">
        <max-size-bytes>100K</max-size-bytes>
        <address-full-policy>BLOCK</address-full-policy>
      </address-setting>
      <address-setting match="paging.#">
        <max-size-bytes>100K</max-size-bytes>
        <page-size-bytes>50K</page-size-bytes>
        <address-full-policy>PAGE</address-full-policy>
      </address-setting>
      <address-setting match="closed.#">
        <auto-create-queues>false</auto-create-queues>
        <auto-create-addresses>false</auto-create-addresses>
      </address-setting>
      {settings}
    </address-settings>
  </core>
</configuration>
"""


def pause(node: Node | ArtemisNode) -> None:
    """SIGSTOP, until every thread of the process stands still."""
    assert node.process is not None
    node.process.send_signal(signal.SIGSTOP)
    tasks = Path("/proc") / str(node.process.pid) / "task"
    deadline = time.monotonic() + 10
    while any(_state(task) not in "TtX" for task in tasks.iterdir()):
        assert time.monotonic() < deadline, "it does not stop"
        time.sleep(0.01)


def resume(node: Node | ArtemisNode) -> None:
    """SIGCONT."""
    assert node.process is not None
    node.process.send_signal(signal.SIGCONT)


def _state(task: Path) -> str:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


@dataclass
class Target:
    """One running broker."""

    name: str
    """``understudy`` or ``artemis``."""
    node: Node | ArtemisNode

    @property
    def url(self) -> str:
        return f"tcp://127.0.0.1:{self.node.port}"

    def end(self) -> None:
        self.node.end()


def start_target(
    name: str,
    directory: Path,
    artemis: Path | None,
    *,
    security: bool = False,
    connectors: str = "",
    acceptors: str = "",
    elements: str = "",
    settings: str = "",
    scan_period_ms: int = 200,
    expiry_scan_period_ms: int = 200,
    powerless: str = "",
) -> Target:
    """A broker of that kind, active.

    Args:
        artemis: The distribution's command, for Artemis.
        connectors: More of them.
        acceptors: More of them.
        elements: More of ``core``.
        settings: More address settings.
        scan_period_ms: Milliseconds between two searches for idle queues and addresses.
        expiry_scan_period_ms: Milliseconds between two searches for expired messages.
        powerless: Name of another user with the same password, who may do nothing; only with security.
    """
    port = free_port()
    directory.mkdir(parents=True, exist_ok=True)
    text = _XML.format(
        name=f"{name}-{port}",
        security=str(security).lower(),
        store=directory / "store",
        port=port,
        connectors=connectors,
        acceptors=acceptors,
        elements=elements,
        settings=settings,
        scan_period_ms=scan_period_ms,
        expiry_scan_period_ms=expiry_scan_period_ms,
    )
    node: Node | ArtemisNode
    if name == "artemis":
        assert artemis is not None
        node = ArtemisNode(artemis, directory / "artemis", port, text, security=security)
        if powerless:
            users = directory / "artemis" / "etc" / "artemis-users.properties"
            users.write_text(f"{users.read_text()}\n{powerless} = {PASSWORD}\n")
    else:
        node = Node(directory / "node", "primary", port)
        node.config.parent.mkdir(parents=True)
        node.config.write_text(text)
        if security:
            hashed = [
                forked.run(
                    [str(COMMAND), "user", "hash", user],
                    input=f"{PASSWORD}\n",
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout
                for user in (USER, powerless)
                if user
            ]
            (node.config.parent / "artemis-users.properties").write_text("".join(hashed))
            (node.config.parent / "artemis-roles.properties").write_text(f"everything = {USER}\n")
    target = Target(name, node)
    try:
        node.start().wait_ready("active")
    except BaseException:
        node.end()
        raise
    return target
