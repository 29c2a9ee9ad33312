"""Eleven servers in two groups, one cluster and no lock manager: a backup replicates a primary of its group only.

Source: artemis-ha, example of the groups "fish" and "bird" in the manual, "High Availability and Failover".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.ports import free_port
from support.processes import READY_S, Node
from support.replicated import XML, wait_until
from support.voting_pairs import VOTES

#: Longest wait for a change among the eleven processes; each takes seconds of a processor to start and to synchronize.
LONGEST_S = 5 * READY_S
#: Group of each server of the example.
GROUPS = {
    **{f"primary{number}": "fish" if number <= 3 else "bird" for number in range(1, 6)},
    **{f"backup{number}": "fish" if number <= 4 else "bird" for number in range(1, 7)},
}


class Servers:
    """The servers of the example; every one knows the connectors of all others."""

    def __init__(self, directory: Path) -> None:
        ports = {name: free_port() for name in GROUPS}
        connectors = "".join(
            f'<connector name="{name}">tcp://127.0.0.1:{port}</connector>' for name, port in ports.items()
        )
        self.names = {f"tcp://127.0.0.1:{port}": name for name, port in ports.items()}
        self.nodes: dict[str, Node] = {}
        for name, group in GROUPS.items():
            role = name.rstrip("0123456789")
            node = self.nodes[name] = Node(directory / name, role, ports[name])
            node.config.parent.mkdir(parents=True)
            text = XML.format(
                name=name, host=node.host, acceptor="", extra="", store=node.directory / "data", connectors=connectors,
                port=node.port, call_timeout_ms=30_000, connection_ttl_ms=60_000,
                others="".join(f"<connector-ref>{other}</connector-ref>" for other in GROUPS if other != name),
                role=role, manager="", settings=f"{VOTES}<group-name>{group}</group-name>",
            )  # fmt: skip
            node.config.write_text(text.replace("<manager></manager>", ""))

    def of(self, role: str) -> list[Node]:
        """The nodes of a role."""
        return [node for name, node in self.nodes.items() if name.startswith(role)]

    def pairs(self) -> dict[str, str]:
        """Name of the backup in sync of each primary that has one, as the first primary knows it."""
        members: Any = self.nodes["primary1"].get("/api/v1/cluster")[1]["members"]
        return {self.names[each["primary"]]: self.names[each["backup"]] for each in members if each["backup"]}


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    made = Servers(tmp_path)
    try:
        for node in made.of("primary"):
            node.start().wait_ready("active", LONGEST_S)
        for node in made.of("backup"):
            node.start()
        yield made
    finally:
        for node in made.nodes.values():
            node.end()


@pytest.mark.long
def test_eleven_servers_pair_within_their_groups_and_the_spare_backup_takes_the_place_of_one_of_its_group(
    servers: Servers,
) -> None:
    wait_until(lambda: len(servers.pairs()) == 5, *servers.of("primary"), timeout_s=LONGEST_S)
    pairs = servers.pairs()
    assert [GROUPS[primary] for primary in pairs] == [GROUPS[backup] for backup in pairs.values()]
    (spare,) = {name for name in GROUPS if name.startswith("backup")} - set(pairs.values())
    assert GROUPS[spare] == "fish"
    assert servers.nodes[spare].get("/health/ready")[1]["state"] == "passive"

    bird, fish = pairs["primary4"], pairs["primary2"]
    servers.nodes[bird].kill()
    wait_until(lambda: "primary4" not in servers.pairs(), servers.nodes["primary4"], timeout_s=LONGEST_S)
    servers.nodes[fish].kill()
    wait_until(
        lambda: servers.pairs().get("primary2") == spare,
        servers.nodes["primary2"],
        servers.nodes[spare],
        timeout_s=LONGEST_S,
    )
    assert "primary4" not in servers.pairs(), "a backup of the other group has attached"
    servers.nodes[bird].start()
    wait_until(lambda: servers.pairs().get("primary4") == bird, servers.nodes[bird], timeout_s=LONGEST_S)
    servers.nodes["primary2"].kill()
    servers.nodes[spare].wait_ready("active", LONGEST_S)
