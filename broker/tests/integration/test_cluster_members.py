"""A pair and a third node in one cluster, as real processes: every member knows both nodes of the pair."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path

import pytest

from support.members import third_of
from support.processes import READY_S, TOKEN, Node, Pair
from understudy.client.sync import connect

pytestmark = pytest.mark.long


def topology(node: Node) -> dict[str, tuple[str, str | None]]:
    """Active and passive connector by node id."""
    body = json.dumps({"resource": "broker", "operation": "listNetworkTopology"}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{node.http_port}/api/v1/invoke", body, {"Authorization": f"Bearer {TOKEN}"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        members = json.loads(json.load(answer)["result"])
    return {each["nodeID"]: (each["primary"], each.get("backup")) for each in members}


def wait_for(node: Node, expected: tuple[str, str | None], node_id: str) -> None:
    deadline = time.monotonic() + READY_S
    while topology(node).get(node_id) != expected:
        assert time.monotonic() < deadline, (topology(node), expected, node.tail())
        time.sleep(0.05)


def test_a_third_member_and_its_clients_follow_a_failover(tmp_path: Path) -> None:
    pair = Pair(tmp_path / "pair", failover_on_shutdown=True)
    third = third_of(pair, tmp_path)
    try:
        pair.start()
        third.start().wait_ready("active")
        first, second = f"127.0.0.1:{pair.primary.port}", f"127.0.0.1:{pair.backup.port}"
        node_id = str(pair.primary.facts()["node_id"])
        wait_for(third, (first, second), node_id)
        wait_for(pair.primary, (f"127.0.0.1:{third.port}", None), str(third.facts()["node_id"]))
        url = f"tcp://127.0.0.1:{third.port}?ha=true&reconnectAttempts=-1&initialConnectAttempts=-1"
        with connect(url) as connection:
            learned = {node.node_id: node for node in connection._link.core.link.topology}
            backup = learned[node_id].backup
            assert backup is not None
            assert backup.port == pair.backup.port
        assert pair.primary.terminate() == 0
        pair.backup.wait_ready("active")
        wait_for(third, (second, None), node_id)
    finally:
        pair.end()
        third.end()
