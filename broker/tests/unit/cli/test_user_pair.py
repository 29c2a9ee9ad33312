"""``understudy user`` on the nodes of a pair, which have files of their own.

Goal: a change is made on both nodes, or the command says which node keeps its users and ends with exit code 1, so that
a failover locks no user out unnoticed. Method: fake nodes that keep the requested operations.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from understudy.cli.main import cli
from understudy.cli.node import status
from understudy.cli.node.status import Place
from understudy.errors import BrokerError, ManagementError, Unreachable

A, B = "http://127.0.0.1:1", "http://127.0.0.1:2"


class Pair:
    """Node a, which is active, and node b."""

    def __init__(self) -> None:
        self.changes: dict[str, list[str]] = {A: [], B: []}
        self.errors: dict[str, BrokerError] = {}
        self.peers: dict[str, Any] = {A: {"connector": "b:61616", "name": "b"}, B: {"connector": "a:61616"}}

    def ask(self, place: Place, path: str, *, body: Any = None) -> Any:
        if place.url in self.errors:
            raise self.errors[place.url]
        if body is None:
            return {"name": place.url, "peer": self.peers[place.url]}
        self.changes[place.url].append(" ".join(map(str, [body["operation"], *body["parameters"]])))
        return {"result": None}


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pair:
    made = Pair()
    monkeypatch.setattr(Place, "ask", lambda place, path, *, body=None: made.ask(place, path, body=body))
    monkeypatch.setattr(status, "readiness_of", lambda place: {"state": "active" if place.url == A else "passive"})
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("UNDERSTUDY_CONTEXT", raising=False)
    return made


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["user", *arguments], input="secret\n")


@pytest.mark.parametrize(
    ("arguments", "operation"),
    [
        (("add", "alice", "--role", "amq"), "addUser alice secret amq"),
        (("password", "alice"), "resetUser alice secret None"),
        (("roles", "alice", "--role", "amq", "--role", "x"), "resetUser alice None amq,x"),
        (("remove", "alice", "--yes"), "removeUser alice"),
    ],
)
def test_both_nodes_are_changed(arguments: tuple[str, ...], operation: str, pair: Pair) -> None:
    done = run(*arguments, "--url", f"{A},{B}")
    assert done.exit_code == 0, done.output
    assert pair.changes == {A: [operation], B: [operation]}
    assert [f"{url}: it is in force" in done.output for url in (A, B)] == [True, True]


def test_both_nodes_of_a_context_are_changed(pair: Pair) -> None:
    made = CliRunner().invoke(cli, ["context", "add", "pair", "--management", A, "--management", B])
    assert made.exit_code == 0, made.output
    assert run("add", "alice", "--role", "amq").exit_code == 0
    assert pair.changes == {A: ["addUser alice secret amq"], B: ["addUser alice secret amq"]}


@pytest.mark.parametrize("failing", [A, B])
@pytest.mark.parametrize("error", [Unreachable("does not answer"), ManagementError("user 'alice' exists")])
def test_a_node_that_was_not_changed_is_named(failing: str, error: BrokerError, pair: Pair) -> None:
    pair.errors[failing] = error
    done = run("add", "alice", "--role", "amq", "--url", f"{A},{B}")
    assert done.exit_code == 1
    assert f"NOT user alice added at {failing}: {error}" in done.stderr
    assert "repeat the command with the --url" in done.stderr
    other = B if failing == A else A
    assert pair.changes[other] == ["addUser alice secret amq"], "one node that is down does not keep the other back"


@pytest.mark.parametrize(("url", "other"), [(A, "b (b:61616)"), (B, "a:61616")])
def test_a_change_of_one_node_of_a_pair_says_that_the_other_one_is_not_changed(
    url: str, other: str, pair: Pair
) -> None:
    done = run("add", "alice", "--role", "amq", "--url", url)
    assert done.exit_code == 1
    assert f"the other node of the pair, {other}, has files of its own, which are NOT changed" in done.stderr
    assert pair.changes[url] == ["addUser alice secret amq"]
    meant = run("add", "alice", "--role", "amq", "--url", url, "--only-here")
    assert (meant.exit_code, meant.stderr) == (0, "")


def test_a_single_server_has_no_other_files(pair: Pair) -> None:
    pair.peers[A] = None
    done = run("remove", "alice", "--yes", "--url", A)
    assert (done.exit_code, done.stderr) == (0, "")


def test_the_error_of_the_only_node_ends_the_command(pair: Pair) -> None:
    pair.errors[A] = ManagementError("user 'alice' exists")
    assert run("add", "alice", "--role", "amq", "--url", A).exception is pair.errors[A]


def test_an_instance_of_a_context_that_does_not_run_is_changed_in_its_files(pair: Pair, tmp_path: Path) -> None:
    instance = tmp_path / "b"
    made = CliRunner().invoke(cli, ["create", str(instance), "--user", "admin"], input="a password\n")
    assert made.exit_code == 0, made.output
    nodes = [{"management": A, "token": "t"}, {"instance": str(instance)}]
    (tmp_path / "understudy").mkdir(exist_ok=True)
    contexts = {"used": "pair", "contexts": {"pair": {"nodes": nodes}}}
    (tmp_path / "understudy" / "contexts.json").write_text(json.dumps(contexts))
    done = run("add", "alice", "--role", "amq")
    assert done.exit_code == 0, done.output
    assert pair.changes[A] == ["addUser alice secret amq"]
    assert "alice" in (instance / "etc" / "artemis-users.properties").read_text()
