"""Discovery between our node and those of Artemis: clients, and brokers in one multicast group."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.ports import free_port
from support.processes import Node
from support.targets import start_target

pytestmark = [pytest.mark.maven, pytest.mark.long]

GROUP = "231.7.7.7"
Start = Callable[[str, str], Node]


def groups(port: int) -> str:
    """Elements of a node in a cluster whose members find each other by multicast."""
    at = (
        f"<local-bind-address>127.0.0.1</local-bind-address><group-address>{GROUP}</group-address>"
        f"<group-port>{port}</group-port>"
    )
    return (
        "<cluster-user>cluster</cluster-user><cluster-password>a-secret-of-this-test</cluster-password>"
        f"<broadcast-groups><broadcast-group name='b'>{at}<broadcast-period>200</broadcast-period>"
        "<connector-ref>core</connector-ref></broadcast-group></broadcast-groups>"
        f"<discovery-groups><discovery-group name='d'>{at}</discovery-group></discovery-groups>"
        "<cluster-connections><cluster-connection name='c'><connector-ref>core</connector-ref>"
        "<discovery-group-ref discovery-group-name='d'/></cluster-connection></cluster-connections>"
    )


@pytest.fixture
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    """Start a broker of a kind with elements of its own."""
    made: list[Node] = []

    def make(kind: str, elements: str) -> Node:
        artemis = request.getfixturevalue("artemis") if kind == "artemis" else None
        node = start_target(kind, tmp_path / kind, artemis, elements=elements).node
        made.append(node)  # type: ignore[arg-type]  # both kinds have the same names
        return made[-1]

    yield make
    for each in made:
        each.end()


@pytest.mark.feature("discovery of our broker by udp://")
def test_a_stock_client_finds_our_broker(java: Callable[..., subprocess.Popen[str]], start: Start) -> None:
    port = free_port()
    start("understudy", groups(port))
    process = java("JmsBasics", f"udp://{GROUP}:{port}?localBindAddress=127.0.0.1")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert output.count("ok ") == 10, output


@pytest.mark.feature("broadcasts of brokers in both directions")
def test_brokers_of_both_kinds_hear_each_other(start: Start) -> None:
    """Each decodes the broadcast of the other one and dials it; the logins differ (ADR 0005), so it ends there."""
    port = free_port()
    ours, theirs = start("understudy", groups(port)), start("artemis", groups(port))

    def heard() -> list[object]:
        (group,) = ours.get("/api/v1/cluster")[1]["discovery"]  # type: ignore[misc]
        return [each["connectors"] for each in group["entries"]]  # type: ignore[index]

    wanted = [[f"tcp://127.0.0.1:{theirs.port}"]]
    refusal = "plain cluster password"
    deadline = time.monotonic() + 60
    while heard() != wanted or refusal not in ours.log.read_text():
        assert time.monotonic() < deadline, f"{heard()}\n{ours.tail()}\n{theirs.tail()}"
        time.sleep(0.05)
