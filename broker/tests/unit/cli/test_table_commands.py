"""Commands that print tables: each declared column has a value in the answer of a node, and the JSON is that answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner, Result

from understudy.cli.messages.bridge import bridge
from understudy.cli.messages.browse import MESSAGES
from understudy.cli.messages.queue import QUEUES, queue
from understudy.cli.messages.reader import reader
from understudy.cli.node.cluster import ROWS_OF, TABLES, cluster
from understudy.cli.node.status import Place
from understudy.cli.tables import Kind, Table
from understudy.management.model.cluster import (
    Broadcast,
    Cluster,
    ClusterConnection,
    Colocated,
    Discovery,
    Entry,
    Grouping,
    Hosted,
    Link,
    Member,
    Redistribution,
    RemoteQueue,
    Unreached,
)
from understudy.management.model.figure import figures
from understudy.management.model.links import Bridge
from understudy.management.model.queues import Queue

FACTS = Cluster(
    state="connected",
    members=[Member("id-1", True, "tcp://a:1", None, "group")],
    links=[Link("tcp://b:1", "id-2", "connected", 0)],
    discovery=[Discovery("g", "udp", "listening", None, [Entry("id-3", ["tcp://c:1"], "c:9", 1500)], {"new": 2}, 0)],
    broadcasts=[Broadcast("g", "udp", "sending", ["tcp://a:1"], 2000, 5, 0, None)],
    bridges=[Bridge("br", "q", None, "running", True, "tcp://b:1", 20_000, 3, 4, 1, 0, 0, "refused: no such queue")],
    remote_queues=[RemoteQueue("q", "q", "id-2", 1, True, 2, None, "sf")],
    redistribution=[Redistribution("q", "moving", 7)],
    grouping=Grouping("h", "LOCAL", 1, 0, 0, 0, 0),
    colocated=Colocated("hosted", "id-2", [Hosted("b", "id-2", "passive", ["tcp://b:1"])]),
    unreached=[Unreached("id-4", "tcp://d:1", 9, "refused")],
    connections=[ClusterConnection("cc", "", "ON_DEMAND", 1, ["id-2"], 4, 5, 6, 7)],
)
CLUSTER: dict[str, Any] = msgspec.to_builtins(FACTS)
QUEUE = {
    "name": "orders", "address": "orders", "routing_type": "ANYCAST", "durable": False, "message_count": 20_000,
    "delivering_count": 1, "consumer_count": 2, "messages_added": 3, "messages_acknowledged": 4, "messages_expired": 5,
    "messages_killed": 6, "spilled_count": 7,
}  # fmt: skip
READERS = {
    "confirmed": {"epoch": 2, "sequence": 900},
    "node_id": "id",
    "readers": [{"name": "r", "epoch": 2, "sequence": 100, "held_bytes": 2048, "max_bytes": 4096, "dropped": None}],
}
ANSWERS: dict[str, Any] = {
    "/api/v1/cluster": CLUSTER,
    "/api/v1/node": {"queues": [QUEUE]},
    "/api/v1/queues/orders": QUEUE,
    "/api/v1/invoke": {"result": json.dumps(READERS)},
}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setattr(Place, "ask", lambda place, path, *, body=None: ANSWERS[path])
    monkeypatch.setattr("understudy.cli.managing.places.readiness_of", lambda place: {"state": "active"})

    def invoke(command: click.Command, *arguments: str) -> Result:
        return CliRunner().invoke(command, [*arguments, "--url", "http://127.0.0.1:1"])

    return invoke


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_each_column_of_the_cluster_has_a_value(table: Table) -> None:
    rows = ROWS_OF[table.name](CLUSTER)
    assert rows
    for column in table.columns:
        assert column.value is not None or any(column.name in row for row in rows), column.name
        assert all(column.text(row, grouped=False) for row in rows)


def test_all_tables_of_the_cluster_are_shown(run: Callable[..., Result]) -> None:
    shown = run(cluster, "show")
    assert shown.exit_code == 0, shown.output
    assert [table.title for table in TABLES if f"{table.title}\n" not in shown.output] == []
    assert json.loads(run(cluster, "show", "--json").output) == CLUSTER
    one = run(cluster, "show", "--table", "discovered").output.splitlines()
    assert one == [
        "discovered nodes",
        "group  node id  connectors  from    age",
        "g      id-3     tcp://c:1   c:9   1.5 s",
    ]
    assert json.loads(run(cluster, "show", "--table", "members", "--json").output) == CLUSTER["members"]


def test_queues(run: Callable[..., Result]) -> None:
    lines = run(queue, "stat").output.splitlines()
    assert lines[1].split() == ["orders", "orders", "anycast,", "not", "durable", "20000", *"1234567"]
    assert json.loads(run(queue, "stat", "--json").output) == [QUEUE]
    assert json.loads(run(queue, "stat", "--name", "orders", "--json").output) == [QUEUE]
    assert len(run(queue, "stat", "--filter", "messages_killed>6").output.splitlines()) == 1


def test_each_figure_of_a_queue_is_a_column() -> None:
    assert {column.name for column in QUEUES.columns} == set(figures(Queue))
    assert [column.name for column in QUEUES.columns if column.shown][:4] == [
        "name",
        "address",
        "routing_type",
        "message_count",
    ]
    kinds = {column.name: column.kind for column in QUEUES.columns}
    assert (kinds["memory_bytes"], kinds["delay_before_dispatch"]) == (Kind.BYTES, Kind.DURATION)
    assert kinds["id"] is Kind.ID
    assert (kinds["ring_size"], kinds["paused"], kinds["user"]) == (Kind.NUMBER, Kind.NAME, Kind.NAME)


def test_a_column_that_is_not_shown_is_shown_by_its_name(run: Callable[..., Result]) -> None:
    assert run(queue, "stat", "--columns", "name,ring_size").output.splitlines() == [
        "queue   ring size",
        "orders          -",
    ]


def test_bridges(run: Callable[..., Result]) -> None:
    shown = run(bridge, "list").output
    assert "20000" in shown
    assert "refused: no such queue" in shown
    assert json.loads(run(bridge, "list", "--json").output) == CLUSTER["bridges"]


def test_readers(run: Callable[..., Result]) -> None:
    shown = run(reader, "list")
    assert shown.exit_code == 0, shown.output
    assert shown.output.splitlines() == [
        "confirmed end: epoch 2, sequence 900",
        "reader  epoch  sequence  lag    holds    limit  state",
        "r           2       100  800  2.0 KiB  4.0 KiB  holding",
    ]
    found = json.loads(run(reader, "list", "--json").output)
    assert found["confirmed"] == READERS["confirmed"]
    assert found["readers"][0].items() >= READERS["readers"][0].items()  # type: ignore[index]


def test_browsed_messages() -> None:
    row = {
        "message_id": 1, "type": "text", "durable": True, "priority": 4, "timestamp": 0, "body_bytes": 3,
        "preview": "abc",
    }  # fmt: skip
    texts = [column.text(row, grouped=True) for column in MESSAGES.columns]
    assert texts == ["1", "text", "yes", "4", "-", "3 B", "abc"]
