"""Members of a cluster that host each other's backups, as real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from support.members import Members
from support.processes import READY_S, Node
from understudy.client.sync import Consumer, Producer, Session

#: backup-port-offset of all members.
PORT_OFFSET: Final = 7


def colocated_members(
    directory: Path,
    kind: str = "shared-store",
    count: int = 2,
    inner: str = "",
    *,
    stops_over: bool = False,
    hosted: str = "",
) -> Members:
    """Members that request backups of each other.

    Args:
        directory: Scratch directory.
        kind: ``shared-store`` or ``replication``.
        count: Number of members.
        inner: More elements of ``colocated``.
        stops_over: Whether the backup takes over after a clean stop; a replica always does.
        hosted: More elements of ``backup``.
    """
    primary = backup = ""
    if kind == "replication":
        primary = "<check-for-active-server>true</check-for-active-server>"
    elif stops_over:
        primary = backup = "<failover-on-shutdown>true</failover-on-shutdown>"

    def extra(number: int) -> str:
        refs = "".join(f"<connector-ref>n{each}</connector-ref>" for each in range(count) if each != number)
        return f"""<ha-policy><{kind}><colocated>
          <request-backup>true</request-backup>
          <backup-request-retry-interval>300</backup-request-retry-interval>
          <backup-port-offset>{PORT_OFFSET}</backup-port-offset>{inner}
          <excludes>{refs}</excludes>
          <primary>{primary}</primary><backup>{backup}{hosted}</backup>
        </colocated></{kind}></ha-policy>"""

    return Members(directory, count, extra=extra)


def share_port(members: Members, *, named: bool = True) -> None:
    """Let the servers of each process share a port by HTTP upgrades; ``named``: connectors name their server."""
    for node in members.nodes:
        text = node.config.read_text()
        for number, other in enumerate(members.nodes):
            place = f"tcp://127.0.0.1:{other.port}"
            upgraded = f"{place}?httpUpgradeEnabled=true"
            text = text.replace(f"{place}</acceptor>", f"{upgraded}</acceptor>")
            name = f";activemqServerName=n{number}" if named else ""
            text = text.replace(f"{place}</connector>", f"{upgraded}{name}</connector>")
        node.config.write_text(text)


def colocated(node: Node) -> dict[str, Any]:
    """The part of ``/api/v1/cluster`` about colocated backups."""
    found = node.get("/api/v1/cluster")[1].get("colocated")
    return found if isinstance(found, dict) else {"request": None, "host": None, "hosted": []}


def backup_of(node: Node) -> object:
    """Address of the backup of a node, as its topology has it."""
    members: Any = node.get("/api/v1/cluster")[1].get("members", [])
    return next((each["backup"] for each in members if each["own"]), None)


def talk_across_a_kill(session: Session, first: Node, second: Node) -> tuple[Producer, Consumer]:
    """Send to queue ``q`` before and after the kill of the node of a session, and receive both messages.

    Args:
        session: Session of a client that follows a failover.
        first: Node to which the session is connected; it is killed.
        second: The node that serves then.
    """
    producer = session.producer("q")
    producer.send("before")
    first.kill()
    producer.send("after")
    consumer = session.consumer("q")
    for body in ("before", "after"):
        taken = consumer.receive(READY_S)
        assert taken is not None, second.tail()
        assert taken.text == body
        session.acknowledge(taken)
    return producer, consumer
