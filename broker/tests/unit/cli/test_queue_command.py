"""Goal: ``understudy queue quarantine-damaged`` ends the wait of damaged messages, after it was confirmed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from understudy.cli.main import exit_code_of
from understudy.cli.managing import places
from understudy.cli.messages.queue import queue
from understudy.cli.node.status import Place
from understudy.errors import BrokerError, NotActive, Unreachable

COUNT, MOVE = "getMessagesWaitingForOtherNodeCount", "quarantineMessagesWaitingForOtherNode"


class Node:
    """The management of a node with damaged messages that wait."""

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting
        self.asked: list[str] = []
        self.error: BrokerError | None = None

    def ask(self, place: Place, path: str, *, body: Any = None) -> Any:
        if self.error is not None:
            raise self.error
        assert (path, body["resource"]) == ("/api/v1/invoke", "broker")
        self.asked.append(body["operation"])
        count = self.waiting
        if body["operation"] == MOVE:
            self.waiting = 0
        return {"result": count}


@pytest.fixture
def node_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Node]:
    def made(waiting: int) -> Node:
        node = Node(waiting)
        monkeypatch.setattr(places, "readiness_of", lambda place: {"state": "active"})
        monkeypatch.setattr(Place, "ask", lambda place, path, *, body=None: node.ask(place, path, body=body))
        return node

    return made


def invoke(*arguments: str, typed: str | None = None) -> Result:
    return CliRunner().invoke(queue, ["quarantine-damaged", "--url", "http://127.0.0.1:1", *arguments], input=typed)


def test_it_is_confirmed_first(node_with: Callable[[int], Node]) -> None:
    node = node_with(3)
    for typed in (None, "n\n"):
        refused = invoke(typed=typed)
        assert refused.exit_code == 1
        assert "waiting for the copy of the other node: 3 damaged messages" in refused.output
    assert node.asked == [COUNT, COUNT]
    done = invoke(typed="y\n")
    assert done.exit_code == 0
    assert "moved to the quarantine: 3 messages" in done.output
    assert node.asked == [COUNT, COUNT, COUNT, MOVE]


def test_yes_and_json_for_scripts(node_with: Callable[[int], Node]) -> None:
    node = node_with(2)
    done = invoke("--yes", "--json")
    assert (done.exit_code, json.loads(done.output)) == (0, {"moved": 2})
    again = invoke("--json")
    assert (again.exit_code, json.loads(again.output)) == (0, {"moved": 0}), "nothing waits, nothing is asked"
    assert node.asked == [COUNT, MOVE, COUNT]


@pytest.mark.parametrize("error", [NotActive("it is passive"), Unreachable("no answer")])
def test_exit_code_of_a_node_that_cannot_do_it(node_with: Callable[[int], Node], error: BrokerError) -> None:
    node_with(1).error = error
    found = invoke("--yes").exception
    assert isinstance(found, BrokerError)
    assert exit_code_of(found) == 3


def test_help_has_an_example() -> None:
    shown = CliRunner().invoke(queue, ["quarantine-damaged", "--help"])
    assert "Example: understudy queue quarantine-damaged" in shown.output
