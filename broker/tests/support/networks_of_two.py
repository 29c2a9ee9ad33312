"""Members with two cluster connections of different connectors (ADR 0082)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from support.members import members_xml
from support.ports import free_port
from support.processes import Node

SECOND = """</cluster-connection><cluster-connection name="second"><connector-ref>s{own}</connector-ref>
  <address>news,q2</address><retry-interval>100</retry-interval>
  <message-load-balancing>STRICT</message-load-balancing>{found}
</cluster-connection></cluster-connections>"""

_FOUND = '<discovery-group-ref discovery-group-name="{group}"/>'
_GROUP = """<local-bind-address>127.0.0.1</local-bind-address><group-address>231.7.7.7</group-address>
  <group-port>{port}</group-port>"""


def _groups(number: int, ports: tuple[int, int]) -> str:
    """A broadcast group and a discovery group for each cluster connection of a member."""
    names = ((f"n{number}", "groups-of-cluster", ports[0]), (f"s{number}", "groups-of-second", ports[1]))
    broadcasts = "".join(
        f'<broadcast-group name="{name}">{_GROUP.format(port=port)}<broadcast-period>200</broadcast-period>'
        f"<connector-ref>{connector}</connector-ref></broadcast-group>"
        for connector, name, port in names
    )
    listened = "".join(
        f'<discovery-group name="{name}">{_GROUP.format(port=port)}</discovery-group>' for _, name, port in names
    )
    return f"<broadcast-groups>{broadcasts}</broadcast-groups><discovery-groups>{listened}</discovery-groups>"


class TwoNetworks:
    """The ports and broker.xml of members ``n0``, ``n1`` …

    ``cluster`` takes all addresses but ``news`` and ``q2``, by connector ``n…`` and acceptor ``core``; ``second`` takes
    these with STRICT, by connector ``s…`` and acceptor ``second``.
    """

    def __init__(
        self,
        directory: Path,
        count: int = 2,
        *,
        extra: Callable[[int], str] = lambda number: "",
        discovery: bool = False,
    ) -> None:
        """Args:
        directory: Scratch directory.
        count: Number of members.
        extra: More elements of a member, by its number.
        discovery: Members find each other in a multicast group for each cluster connection, on loopback.
        """
        first = "<address>!news,!q2</address>"
        group_ports = (free_port(), free_port())
        self.ports: list[int] = []
        self.second_ports = [free_port() for _ in range(count)]
        self.texts: list[str] = []
        connectors = "".join(
            f'<connector name="s{number}">tcp://127.0.0.1:{port}</connector>'
            for number, port in enumerate(self.second_ports)
        )
        for number, (port, text) in enumerate(members_xml(directory, count, cluster=first, extra=extra)):
            refs = "".join(f"<connector-ref>s{other}</connector-ref>" for other in range(count) if other != number)
            found = f"<static-connectors>{refs}</static-connectors>"
            text = _replaced(text, "<connectors><connector name", f"<connectors>{connectors}<connector name")
            second = f"tcp://127.0.0.1:{self.second_ports[number]}?clusterConnection=second"
            text = _replaced(text, "</acceptors>", f'<acceptor name="second">{second}</acceptor></acceptors>')
            if discovery:
                statics = text[
                    text.index("<static-connectors>") : text.index("</static-connectors>") + len("</static-connectors>")
                ]
                text = _replaced(text, statics, _FOUND.format(group="groups-of-cluster"))
                found = _FOUND.format(group="groups-of-second")
                text = _replaced(text, "<acceptors>", _groups(number, group_ports) + "<acceptors>")
            end = "</cluster-connection></cluster-connections>"
            text = _replaced(text, end, SECOND.format(own=number, found=found))
            queue = '<addresses><address name="q2"><anycast><queue name="q2"/></anycast></address>'
            self.ports.append(port)
            self.texts.append(_replaced(text, "<addresses>", queue))

    def places(self, number: int | None = None) -> tuple[set[str], set[str]]:
        """Host and port of the members (None: all) in the topologies of ``cluster`` and of ``second``."""
        chosen = range(len(self.ports)) if number is None else [number]
        return (
            {f"127.0.0.1:{self.ports[each]}" for each in chosen},
            {f"127.0.0.1:{self.second_ports[each]}" for each in chosen},
        )


def nodes_of(networks: TwoNetworks, directory: Path) -> list[Node]:
    """A process for each member, not started."""
    nodes = []
    for number, (port, text) in enumerate(zip(networks.ports, networks.texts, strict=True)):
        node = Node(directory / f"n{number}", "primary", port)
        node.config.parent.mkdir(parents=True)
        node.config.write_text(text)
        nodes.append(node)
    return nodes


def _replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)
