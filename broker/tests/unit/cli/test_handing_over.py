"""``failover``, ``failback`` and ``activate`` say which node serves, after how long, and the next step.

Goal: the text and the JSON of each outcome. Method: fake nodes that change their state at the request; the acceptor of
the other node is a socket of the test.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from understudy.cli.main import cli
from understudy.cli.node import handing_over
from understudy.cli.node import status as status_module
from understudy.cli.node.status import Place
from understudy.errors import BrokerError, CallTimedOut, Unreachable

A, B = "http://127.0.0.1:1", "http://127.0.0.1:2"


class FakePair:
    """Node a, which serves, and node b, which may take over."""

    def __init__(self, peer: dict[str, Any] | None, after: str = "stopped") -> None:
        self.states = {A: "active", B: "passive"}
        self.peer = peer
        self.after = after
        self.takes_over = True

    def ask(self, place: Place, path: str, *, body: dict[str, str] | None = None) -> Any:
        if body is not None:
            if path.endswith("activate"):
                self.states[place.url] = "active"
                return {}
            self.states[A], self.states[B] = self.after, "active" if self.takes_over else "passive"
            return {"result": None}
        if self.states[place.url] == "stopped":
            raise Unreachable(f"{place.url} does not answer")
        names = {A: "a", B: "b"}
        return {
            "name": names[place.url],
            "node_id": "id",
            "peer": self.peer,
            "ha": {"state": self.states[place.url], "policy": "shared-store", "role": "primary"},
        }

    def ready(self, place: Place) -> dict[str, Any]:
        if self.states[place.url] == "stopped":
            raise Unreachable(f"{place.url} does not answer")
        return {"state": self.states[place.url]}


@pytest.fixture
def acceptor() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def closed() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"127.0.0.1:{listening.getsockname()[1]}"


def run(pair: FakePair, monkeypatch: pytest.MonkeyPatch, *arguments: str, urls: str = A) -> Result:
    monkeypatch.setattr(Place, "ask", lambda place, path, *, body=None: pair.ask(place, path, body=body))
    for module in (status_module, handing_over):
        monkeypatch.setattr(module, "readiness_of", pair.ready)
    return CliRunner().invoke(cli, [*arguments, "--url", urls])


def test_failover_says_who_serves_and_how_to_complete_the_pair(acceptor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = FakePair({"role": "backup", "connector": acceptor, "name": "b"})
    shown = run(pair, monkeypatch, "failover")
    assert shown.exit_code == 0, shown.output
    first, following = shown.output.splitlines()
    assert first.startswith(f"b ({acceptor}) serves, ")
    assert first.endswith(" ms after the request; a has ended")
    assert following == (
        "next: start a again, so that the pair is complete: `understudy run` on its host, or its service"
    )


def test_failover_as_json(acceptor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = FakePair({"role": "backup", "connector": acceptor, "name": None})
    found = json.loads(run(pair, monkeypatch, "failover", "--json").output)
    assert found["serving"].pop("took_ms") >= 0
    assert found.pop("next").startswith("start a again")
    assert found == {
        "name": "a",
        "node_id": "id",
        "state": "stopped",
        "serving": {"name": None, "connector": acceptor},
    }


def test_failover_asks_the_other_node_where_it_is_given(closed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = FakePair({"role": "backup", "connector": closed, "name": "b"})
    shown = run(pair, monkeypatch, "failover", urls=f"{B},{A}")
    assert shown.exit_code == 0, shown.output
    assert shown.output.startswith(f"b ({closed}) serves, ")


def failure(shown: Result, kind: type[BrokerError]) -> str:
    """The text of the error with which a command ended."""
    assert type(shown.exception) is kind, shown.output
    return f"{shown.exception} ({shown.exception.hint})"


@pytest.mark.parametrize("urls", [A, f"{A},{B}"])
def test_failover_without_a_node_that_serves_says_so(closed: str, urls: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = FakePair({"role": "backup", "connector": closed, "name": "b"})
    pair.takes_over = False
    monkeypatch.setattr(handing_over.time, "sleep", lambda seconds: None)
    shown = run(pair, monkeypatch, "failover", "--timeout", "0.1", urls=urls)
    text = failure(shown, CallTimedOut)
    assert text.startswith(f"a does not serve any more, and the backup b ({closed}) does not serve yet")
    assert "understudy ha --url" in text


def test_failover_without_a_peer_needs_force(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = run(FakePair(None), monkeypatch, "failover")
    assert "start the other node" in failure(refused, BrokerError)
    shown = run(FakePair(None), monkeypatch, "failover", "--force")
    assert (shown.exit_code, shown.output.splitlines()[0]) == (0, "no node is known to serve; a has ended")


@pytest.mark.parametrize(
    ("after", "shown_state", "advice"),
    [
        ("passive", "a is passive", "next: a is passive; `understudy ha` says when it can take over again"),
        ("stopped", "a has ended", "next: start a again, so that the pair is complete (restart-backup is false)"),
    ],
)
def test_failback_says_who_serves(
    after: str, shown_state: str, advice: str, acceptor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = FakePair({"role": "primary", "connector": acceptor, "name": "p"}, after)
    shown = run(pair, monkeypatch, "failback")
    assert shown.exit_code == 0, shown.output
    first, following = shown.output.splitlines()
    assert first.startswith(f"p ({acceptor}) serves, ")
    assert first.endswith(shown_state)
    assert following == advice


@pytest.mark.parametrize("command", ["failover", "failback"])
def test_a_passive_node_names_the_active_one(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = FakePair({"role": "primary", "connector": "10.0.0.1:61616", "name": "a"})
    shown = run(pair, monkeypatch, command, urls=B)
    text = failure(shown, BrokerError)
    assert text.startswith("b (http://127.0.0.1:2) is passive, not active (ask the active node a (10.0.0.1:61616)")


def test_activate_says_who_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = run(FakePair(None), monkeypatch, "activate", urls=B)
    assert shown.exit_code == 0, shown.output
    first, following = shown.output.splitlines()
    assert first.startswith("b serves, ")
    assert following.startswith("next: start the primary again")
