"""``understudy events``: the events of several nodes in the order of their times, over restarts and failovers."""

from __future__ import annotations

import json
import urllib.parse
from typing import Any

import pytest
from click.testing import CliRunner, Result

from understudy.cli.managing import events as module
from understudy.cli.managing.events import events
from understudy.cli.node.status import Place
from understudy.errors import Unreachable


class Nodes:
    """Nodes that answer with their events."""

    def __init__(self) -> None:
        self.boots = {"http://a:1": "a1", "http://b:1": "b1"}
        self.events: dict[str, list[dict[str, Any]]] = {url: [] for url in self.boots}
        self.down: set[str] = set()

    def add(self, url: str, text: str, at: int, level: str = "info") -> None:
        known = self.events[url]
        known.append(
            {
                "sequence": len(known) + 1, "ts": f"2026-11-30T04:30:{at:02}.000+00:00", "level": level,
                "id": "UND000001", "event": text, "node": url[7], "logger": "understudy.x", "fields": {"queue": "q"},
            }
        )  # fmt: skip

    def ask(self, place: Place, path: str) -> Any:
        if place.url in self.down:
            raise Unreachable(f"{place.url} does not answer")
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(path).query))
        after, found = int(query.get("after", "0")), self.events[place.url]
        newer = [each for each in found if each["sequence"] > after][-int(query["limit"]) :]
        return {"boot": self.boots[place.url], "last": len(found), "events": newer}


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    found = Nodes()
    monkeypatch.setattr(Place, "ask", lambda place, path: found.ask(place, path))
    return found


def run(*arguments: str) -> Result:
    return CliRunner().invoke(events, ["--url", "http://a:1,http://b:1", *arguments])


def test_events_of_both_nodes_are_in_the_order_of_their_times(nodes: Nodes) -> None:
    nodes.add("http://a:1", "first", 1)
    nodes.add("http://b:1", "second", 2, "warning")
    nodes.add("http://a:1", "third", 3)
    shown = run()
    assert [line.split()[4] for line in shown.output.splitlines()[1:]] == ["first", "second", "third"]
    assert [each["event"] for each in json.loads(run("--json").output)] == ["first", "second", "third"]
    assert [each["event"] for each in json.loads(run("--json", "--level", "warning").output)] == ["second"]
    assert json.loads(run("--json", "--event", "UND999999").output) == []


def test_a_node_that_is_down_is_named_and_the_other_one_is_shown(nodes: Nodes) -> None:
    nodes.add("http://b:1", "second", 2)
    nodes.down.add("http://a:1")
    shown = run()
    assert "http://a:1 does not answer" in shown.stderr
    assert "second" in shown.stdout
    nodes.down.add("http://b:1")
    assert isinstance(run().exception, Unreachable)


def test_followed_events_go_on_over_a_failover_and_a_restart(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill() -> None:
        nodes.down.add("http://a:1")
        nodes.add("http://b:1", "took over", 5, "warning")

    def restart() -> None:
        nodes.down.clear()
        nodes.boots["http://a:1"], nodes.events["http://a:1"] = "a2", []
        nodes.add("http://a:1", "started again", 7)

    def end() -> None:
        raise KeyboardInterrupt

    steps = iter([kill, lambda: None, restart, lambda: None, end])
    monkeypatch.setattr(module, "time", type("Time", (), {"sleep": staticmethod(lambda seconds: next(steps)())}))
    nodes.add("http://a:1", "first", 1)
    nodes.add("http://a:1", "before", 2)
    shown = run("--follow", "--json")
    assert [json.loads(line)["event"] for line in shown.stdout.splitlines()] == [
        "first", "before", "took over", "started again",
    ]  # fmt: skip
    assert json.loads(shown.stdout.splitlines()[2])["queue"] == "q"
    assert shown.stderr.splitlines() == [
        "understudy: http://a:1 does not answer",
        "understudy: http://a:1 answers again",
    ]
