"""Operations of management on the named readers, their HTTP answer and their metrics."""

from __future__ import annotations

import json
from typing import Any

from support.managed import ManagedWorld
from support.slices import exposed
from understudy.management.doors import openapi
from understudy.management.doors.http import readers_json
from understudy.management.model.node import Readers
from understudy.management.snapshot.links import readers_of
from understudy.testing.fake_node import FakeNodeView
from unit.management.test_openapi import matches


def ask(node: ManagedWorld, operation: str, *parameters: Any) -> Any:
    return json.loads(node.ask("broker", operation, *parameters))


def test_a_reader_is_registered_committed_listed_and_dropped() -> None:
    node = ManagedWorld()
    node.world.sync()
    first = ask(node, "registerReader", "stream")
    assert (first["name"], first["dropped"], first["max_bytes"]) == ("stream", None, 1 << 30)
    assert first["node_id"] == node.world.store.node_id
    node.world.sync()
    listed = ask(node, "listReadersAsJSON")
    assert [each["name"] for each in listed["readers"]] == ["stream"]
    end = listed["confirmed"]
    assert end["sequence"] > first["sequence"]
    position = json.dumps({"node_id": listed["node_id"], **end})
    assert ask(node, "commitReader", "stream", position)["sequence"] == end["sequence"]
    early = ask(node, "registerReader", "archive", "earliest", 5_000)
    assert (early["sequence"], early["max_bytes"]) == (listed["earliest"]["sequence"], 5_000)
    assert ask(node, "dropReader", "stream")["sequence"] == end["sequence"]
    assert "no reader 'stream'" in node.refused("broker", "dropReader", "stream")


def test_positions_that_are_none_are_refused() -> None:
    node = ManagedWorld()
    node.world.sync()
    ask(node, "registerReader", "r")
    for position, reason in (
        ("latest-ish", "is no position"),
        ("[1]", "is no position"),
        ('{"epoch": 1, "sequence": 2}', "is no position"),
        ('{"node_id": "x", "epoch": true, "sequence": 2}', "epoch and sequence are numbers"),
        ('{"node_id": "x", "epoch": 1, "sequence": 2}', "is of node x"),
    ):
        assert reason in node.refused("broker", "commitReader", "r", position)


def test_the_http_answer_and_the_metrics() -> None:
    schemas = openapi.document("1")["components"]["schemas"]  # type: ignore[index]
    assert matches(readers_json(Readers()), schemas["Readers"], schemas)
    assert "understudy_readers" not in exposed(FakeNodeView())
    node = ManagedWorld()
    ask(node, "registerReader", "stream")
    node.world.sync()
    view = FakeNodeView(named=readers_of(node.world.store))
    assert matches(readers_json(view.readers()), schemas["Readers"], schemas)
    text = exposed(view)
    for line in (
        "understudy_readers 1.0",
        "understudy_readers_dropped_total 0.0",
        'understudy_reader_dropped{reader="stream"} 0.0',
    ):
        assert line in text
    assert 'understudy_reader_held_bytes{reader="stream"}' in text
