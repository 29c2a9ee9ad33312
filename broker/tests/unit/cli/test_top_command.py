"""``understudy top``: rates, the frame of a terminal, and the node that is asked."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner
from rich.cells import cell_len

from understudy.cli.managing import top as module
from understudy.cli.managing.top import CONSUMERS, QUEUES, Nodes, Reading, frame, top, with_rates
from understudy.cli.node.status import Place
from understudy.cli.tables import View
from understudy.errors import NotActive, Unreachable

QUEUE = {
    "name": "orders", "message_count": 20_000, "delivering_count": 10, "consumer_count": 2, "messages_added": 100,
    "messages_acknowledged": 50, "messages_killed": 0, "memory_bytes": 4096,
}  # fmt: skip
CONSUMER = {
    "queue": "orders", "session": "s", "id": 1, "remote_address": "10.0.0.9:1234", "user": "alice",
    "delivering_count": 10, "messages_acknowledged": 50,
}  # fmt: skip
BEFORE = Reading(10.0, "http://a:1", "b takes over; nothing is lost", [QUEUE], [CONSUMER])


def later(**changes: Any) -> Reading:
    more = {"messages_added": 4_100, "messages_acknowledged": 53}
    return (
        replace(BEFORE, at_s=12.0, queues=[QUEUE | more], consumers=[CONSUMER | {"messages_acknowledged": 53}])
        if (not changes)
        else replace(BEFORE, at_s=12.0, **changes)
    )


def test_rates_are_of_the_time_between_the_readings() -> None:
    queues, consumers = with_rates(BEFORE, later())
    assert (queues[0]["in_rate"], queues[0]["out_rate"], consumers[0]["rate"]) == (2000, 1.5, 1.5)


def test_rows_without_an_earlier_reading_have_no_rate() -> None:
    new = later(queues=[QUEUE, QUEUE | {"name": "new"}])
    assert [(each["name"], each["in_rate"]) for each in with_rates(BEFORE, new)[0]] == [("new", None), ("orders", 0)]
    other_node = later(url="http://b:1", queues=[QUEUE])
    assert with_rates(BEFORE, other_node)[0][0]["in_rate"] is None, "the counters are of another activation"
    again = later(queues=[QUEUE | {"messages_added": 3}])
    assert with_rates(BEFORE, again)[0][0]["in_rate"] is None, "and began again"


@pytest.mark.parametrize("width", [80, 200])
def test_a_frame_fits_the_terminal_with_whole_numbers(width: int) -> None:
    busy = [QUEUE | {"name": f"{n}." + "x" * 120, "message_count": 9_223_372_036_854_775_807} for n in range(60)]
    reading = later(queues=busy, consumers=[CONSUMER | {"id": n} for n in range(60)])
    text = re.sub(r"\x1b\[[0-9;]*m", "", frame(View(), BEFORE, reading, width, 24))
    lines = text.split("\n")
    assert len(lines) <= 24
    assert max(map(cell_len, lines)) <= width
    assert "9,223,372,036,854,775,807" in text
    assert lines[:2] == ["active      http://a:1", "takes over  b takes over; nothing is lost"]
    assert [each.split()[0] for each in lines if each.split()[1:2] in (["messages"], ["from"])] == ["queue", "queue"]
    assert ("memory" in text) is (width == 200)
    assert sum("10.0.0.9:1234" in each for each in lines) >= 3, "both tables have a share of the height"


def test_one_table_has_the_whole_height() -> None:
    reading = later(queues=[QUEUE | {"name": f"q{n}"} for n in range(60)])
    lines = frame(View(table="queues"), BEFORE, reading, 80, 24).split("\n")
    ordered = frame(View(table="queues", order=("-name",)), BEFORE, reading, 80, 24)
    assert ("q9" in ordered, "q10" in ordered) == (True, False), "the order is that of all rows"
    assert len([each for each in lines if "q1" in each]) > 8
    assert "from" not in "".join(lines)
    assert "10.0.0.9" in frame(View(table="consumers"), BEFORE, reading, 80, 24)


def test_json_and_text_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([BEFORE, later(), BEFORE, later()])
    monkeypatch.setattr(module, "_ONCE_S", 0.0)
    monkeypatch.setattr(Nodes, "__init__", lambda nodes, places: None)
    monkeypatch.setattr(Nodes, "read", lambda nodes, now_s: next(readings))
    shown = CliRunner().invoke(top, ["--url", "http://a:1", "--once"]).output.splitlines()
    assert shown[2] == "queues      1 with 20,000 messages, in 2,000/s, out 1.5/s"
    assert shown[6].split() == ["orders", "20000", "2000", "1.5", "10", "2", "0", "4.0", "KiB"]
    found = json.loads(CliRunner().invoke(top, ["--url", "http://a:1", "--once", "--json"]).output)
    assert found["queues"][0]["in_rate"] == 2000
    assert {column.name for column in QUEUES.columns} <= set(found["queues"][0])
    assert {column.name for column in CONSUMERS.columns} <= set(found["consumers"][0])


def test_the_node_that_takes_over_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    states = {"http://a:1": "active", "http://b:1": "passive"}

    def ready(place: Place) -> dict[str, Any]:
        if states[place.url] == "down":
            raise Unreachable(place.url)
        return {"state": states[place.url], "protection": "text"}

    monkeypatch.setattr("understudy.cli.node.status.readiness_of", ready)
    monkeypatch.setattr("understudy.cli.managing.places.readiness_of", ready)
    monkeypatch.setattr(module, "readiness_of", ready)
    monkeypatch.setattr(module, "items", lambda place, name: [])
    monkeypatch.setattr(Place, "ask", lambda place, path: {"name": "b", "peer": {"connector": "a:61616"}})
    nodes = Nodes([Place("http://a:1", ""), Place("http://b:1", "")])
    assert nodes.read(0).url == "http://a:1"
    states |= {"http://a:1": "down", "http://b:1": "active"}
    assert nodes.read(0).url == "http://b:1"
    states["http://b:1"] = "passive"
    with pytest.raises(NotActive):
        nodes.read(0)
    with pytest.raises(NotActive, match="the active node is a:61616: give its management URL"):
        Nodes([Place("http://b:1", "")])
