"""``data import`` brings back origin, delivery count, address and queue settings of an export; with real brokers.

Goal: dead letters of another store are in the dead letter queue of their address and can be retried; a message that no
queue takes is counted and reported, although a broker confirms such messages of ordinary clients.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes import Node, Pair, invoke

from support import forked
from understudy.client.sync import connect

COMMAND = [str(forked.COMMAND)]
DEAD = {
    "deadLetterAddress": "DLQ", "autoCreateDeadLetterResources": True, "maxDeliveryAttempts": 1,
    "retroactiveMessageCount": 0,
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "last": {"last_value": True, "last_value_key": "isin", "non_destructive": True},
    "ring": {"ring_size": 7, "exclusive": True, "max_consumers": 3},
    "groups": {
        "group_buckets": 5, "group_rebalance": True, "group_rebalance_pause_dispatch": True, "group_first_key": "first",
        "consumers_before_dispatch": 2, "delay_before_dispatch": 100, "auto_created": True, "auto_delete": True,
        "auto_delete_delay": 1_000, "auto_delete_message_count": 4,
    },
}  # fmt: skip


def run(*arguments: str, code: int = 0) -> tuple[dict[str, Any], str]:
    """The summary of a command, and its other output."""
    ended = forked.run([*COMMAND, *arguments, "--json"], capture_output=True, text=True, timeout=200, check=False)
    assert ended.returncode == code, (ended.returncode, ended.stdout, ended.stderr)
    return json.loads(ended.stdout), ended.stderr


def asked(node: Node, resource: str, operation: str, *parameters: object) -> Any:
    status, result = invoke(node, resource, operation, *parameters)
    assert status == 200, result
    return result


def url(node: Node) -> str:
    return f"tcp://127.0.0.1:{node.port}"


def shown(node: Node, queue: str) -> list[dict[str, Any]]:
    """The messages of a queue, without their ids."""
    found: list[dict[str, Any]] = asked(node, f"queue.{queue}", "listMessages", None)
    for each in found:
        for name in ("messageID", "_AMQ_DUPL_ID"):
            each.pop(name, None)
    return found


def described(node: Node, queue: str) -> dict[str, Any]:
    listed = json.loads(asked(node, "broker", "listQueues", json.dumps({"field": "name", "operation": "EQUALS",
                                                                         "value": queue}), 1, 10))  # fmt: skip
    (found,) = listed["data"]
    return {name: value for name, value in found.items() if name not in ("id", "messagesAdded", "user")}


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[Node, Node, Path]]:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = Pair(tmp_path / "one"), Pair(tmp_path / "two")
    try:
        for pair in (one, two):
            pair.primary.start().wait_ready("active")
            asked(pair.primary, "broker", "addAddressSettings", "work", json.dumps(DEAD))
        yield one.primary, two.primary, one.store
    finally:
        one.end()
        two.end()


@pytest.mark.long
def test_an_import_brings_back_messages_and_queues_as_they_were(nodes: tuple[Node, Node, Path], tmp_path: Path) -> None:
    one, two, store = nodes
    with connect(url(one)) as connection:
        session = connection.session(transacted=True)
        session.create_queue("work")
        for name, attributes in KINDS.items():
            session.create_queue(name, **attributes)
        producer = session.producer
        for number in range(2):
            producer("work").send(f"dead {number}".encode())
        for name in ("count", *KINDS):
            producer(name).send(name.encode())
        session.commit()
        session.start()
        for queue, times in (("work", 1), ("count", 3)):
            consumer = session.consumer(queue)
            for _ in range(times):
                received = consumer.receive(10)
                assert received is not None
                consumer.acknowledge(received)
                session.rollback()
            consumer.close()
    with connect(url(one)) as connection, connection.session() as session:
        # subscriptions without messages: those that are sent later are for them, too
        session.create_queue("waits", address="papers", routing="multicast", filter="page = 1")
        session.create_queue("waits too", address="papers", routing="multicast", ring_size=7)
    asked(one, "broker", "createDivert", "copies", "copies", "last", "elsewhere", False, None, None)
    dead = next(each for each in asked(one, "broker", "getQueueNames") if each.startswith("DLQ."))
    without = ("waits", "waits too")
    kept = {name: (shown(one, name), described(one, name)) for name in (dead, "count", *KINDS, *without)}
    assert len(kept[dead][0]) >= 1
    assert kept[dead][0][0]["_AMQ_ORIG_QUEUE"] == "work"
    counts = {name: asked(one, f"queue.{name}", "getMessageCount") for name in (dead, "work")}
    assert one.terminate() == 0

    file = tmp_path / "export.jsonl"
    exported, _ = run("data", "export", str(store / "journal"), "-o", str(file))
    with connect(url(two)) as connection, connection.session() as session:
        session.create_queue("work")
    summary, notes = run("data", "import", str(file), "--url", url(two))
    assert (summary["confirmed"], summary["unrouted"]) == (exported["messages"], {})
    assert "divert 'copies' from 'last' to 'elsewhere' is not imported" in notes
    assert {name: (shown(two, name), described(two, name)) for name in kept} == kept
    assert asked(two, f"queue.{dead}", "retryMessages") == counts[dead]
    assert asked(two, "queue.work", "getMessageCount") == counts[dead] + counts["work"]
    with connect(url(two)) as connection, connection.session() as session:
        session.start()
        received = session.consumer("count").receive(10)
        assert received is not None
        assert received.delivery_count == 4


@pytest.mark.long
def test_a_replayed_message_that_no_queue_takes_is_counted(nodes: tuple[Node, Node, Path], tmp_path: Path) -> None:
    one, two, store = nodes
    with connect(url(one)) as connection, connection.session() as session:
        for number in range(4):
            session.producer("filtered").send(b"m", properties={"n": number})
    assert one.terminate() == 0
    with connect(url(two)) as connection, connection.session() as session:
        session.create_queue("filtered", filter="n < 1")
    summary, notes = run("data", "replay", str(store / "journal"), "--url", url(two), code=1)
    assert (summary["sent"], summary["confirmed"], summary["unrouted"]) == (4, 1, {"filtered": 3})
    assert "3 messages to 'filtered' reached no queue" in notes
    assert asked(two, "queue.filtered", "getMessageCount") == 1
