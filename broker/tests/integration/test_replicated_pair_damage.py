"""Goal: in a replicated pair of real processes, bodies that are damaged on the disk of either node are found by its
scrubber and taken from the other node; every message is delivered, and nothing goes to the quarantine.
"""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from support.nodes import Nodes
from support.processes import TOKEN, Node
from support.replicated import ReplicatedPair, consume, produce, wait_until

MESSAGES = 6
SIZE_BYTES = 300_000


@pytest.fixture
def pair(nodes: Nodes) -> ReplicatedPair:
    """A pair in sync whose nodes compare their files every second."""
    return nodes.replicated(extra="<scrub-period>1000</scrub-period>").start()


def bodies_of(node: Node) -> list[Path]:
    """Files of the bodies of large messages of a node."""
    return sorted(node.directory.glob("**/large-messages/*.large"))


def metrics_of(node: Node) -> str:
    request = urllib.request.Request(
        f"http://{node.host}:{node.http_port}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.read(), "utf-8")


def scrub_of(node: Node) -> dict[str, int]:
    found = node.get("/api/v1/node")[1]["scrub"]
    assert isinstance(found, dict)
    return found


def flip(path: Path) -> None:
    """Damage a byte of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    with path.open("r+b") as file:
        file.write(content)


def test_damaged_bodies_of_either_node_are_taken_from_the_other_one(pair: ReplicatedPair) -> None:
    produce(pair.url, MESSAGES, size=SIZE_BYTES)
    right = {path.name: path.read_bytes() for path in bodies_of(pair.primary)}
    assert len(right) == MESSAGES
    for number, node in enumerate((pair.primary, pair.backup)):
        wait_until(lambda node=node: len(bodies_of(node)) == MESSAGES, node)  # type: ignore[misc]
        for path in bodies_of(node)[number::2]:
            flip(path)
    for node in (pair.primary, pair.backup):
        wait_until(
            lambda node=node: {path.name: path.read_bytes() for path in bodies_of(node)} == right,
            node,  # type: ignore[misc]
        )
        kept = sorted(path.name for path in node.directory.glob("**/large-messages/replaced/*"))
        assert len(kept) == MESSAGES // 2
        # the pass that repaired the last file may not have ended yet
        wait_until(lambda node=node: scrub_of(node)["passes"] > 0, node)  # type: ignore[misc]
        assert scrub_of(node)["damaged"] == MESSAGES // 2
        metrics = metrics_of(node)
        assert f"understudy_scrub_damaged_files_total {MESSAGES // 2}.0" in metrics
        assert "understudy_scrub_age_seconds" in metrics
    consume(pair.url, MESSAGES)
    assert pair.primary.get("/api/v1/quarantine")[1]["count"] == 0
