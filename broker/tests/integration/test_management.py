"""Management of a real broker: by messages of our own client and over HTTP, with the same operations."""

from __future__ import annotations

import pytest

from support.nodes import Nodes
from support.processes import Pair, invoke
from understudy.management.doors.http import COLLECTIONS


@pytest.fixture
def pair(nodes: Nodes) -> Pair:
    return nodes.pair().start()


def test_what_management_made_outlives_a_kill(pair: Pair) -> None:
    """Answered means durable: an address, a queue, a message, a change and a pause are there after SIGKILL."""
    node = pair.primary
    assert invoke(node, "broker", "createQueue", "a", "ANYCAST", "q", None, True, -1, False, True)[0] == 200
    assert invoke(node, "broker", "updateQueue", "q", None, 3, None)[0] == 200
    assert invoke(node, "queue.q", "sendMessage", {"colour": "red"}, 3, "hello", True, None, None)[0] == 200
    assert invoke(node, "queue.q", "pause", True) == (200, None)
    assert invoke(node, "queue.q", "countMessages", "colour = 'red'") == (200, 1)
    assert invoke(node, "queue.r", "pause")[0] == 422
    assert invoke(pair.backup, "queue.q", "pause") == (503, "the node is passive")
    node.kill()
    pair.backup.wait_ready("active")
    backup = pair.backup
    assert invoke(backup, "queue.q", "isPersistedPause") == (200, True)
    assert invoke(backup, "queue.q", "getMaxConsumers") == (200, 3)
    status, shown = invoke(backup, "queue.q", "browse")
    assert status == 200
    assert isinstance(shown, list)
    assert [(entry["text"], entry["colour"]) for entry in shown] == [("hello", "red")]
    assert invoke(backup, "queue.q", "removeAllMessages") == (200, 1)


def test_an_operator_can_force_a_failover(pair: Pair) -> None:
    assert invoke(pair.primary, "broker", "forceFailover") == (200, None)
    pair.backup.wait_ready("active")
    assert pair.primary.process is not None
    assert pair.primary.process.wait(60) == 0


def test_collections_of_a_running_pair(pair: Pair) -> None:
    """An active node shows pages of all that it has, a passive one the empty collections of a broker."""
    node = pair.primary
    for name in ("orders", "bills"):
        assert invoke(node, "broker", "createQueue", name, "ANYCAST", name, None, True, -1, False, True)[0] == 200
    assert invoke(node, "queue.orders", "sendMessage", {"colour": "red"}, 3, "hello", True, None, None)[0] == 200
    status, page = node.get("/api/v1/queues?sort=-message_count&size=1&filter=internal=false")
    assert (status, page["items"][0]["name"], page["items"][0]["message_count"]) == (200, "orders", 1)
    assert page["count"] >= 2
    assert node.get("/api/v1/addresses/bills")[1]["queue_count"] == 1
    (message,) = node.get("/api/v1/queues/orders/messages?filter=colour%3D'red'")[1]["items"]
    assert (message["text"], message["properties"]["colour"], message["durable"]) == ("hello", "red", True)
    assert node.get("/api/v1/queues/orders/messages?filter=colour%3D")[0] == 422
    for name in COLLECTIONS:
        for each in (node, pair.backup):
            status, page = each.get(f"/api/v1/{name}")
            assert (status, len(page["items"])) == (200, min(page["count"], 100)), name
    assert pair.backup.get("/api/v1/queues")[1]["count"] == 0
    assert pair.backup.get("/api/v1/acceptors")[1]["count"] == 1
    assert pair.backup.get("/api/v1/queues/orders/messages")[0] == 503
