"""Contexts: where commands find nodes and logins, and who may read the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from understudy.cli.main import cli
from understudy.cli.messages.load import read_password
from understudy.cli.node import cluster, status
from understudy.cli.node.status import Place
from understudy.errors import ConfigError, Unreachable


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("UNDERSTUDY_CONTEXT", "UNDERSTUDY_URL", "UNDERSTUDY_USER", "UNDERSTUDY_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def run(*arguments: str, code: int = 0) -> str:
    found = CliRunner().invoke(cli, list(arguments))
    assert found.exit_code == code, (found.output, found.exception)
    return found.output


def add(home: Path, name: str) -> None:
    (home / "token").write_text("a-token-of-a-test\n")
    (home / "password").write_text("hidden\nnot this\n")
    run(
        "context", "add", name, "--management", f"http://{name}:8161", "--token-file", str(home / "token"),
        "--broker", f"tcp://{name}:61616", "--user", "alice", "--password-file", str(home / "password"),
    )  # fmt: skip


def test_commands_ask_the_node_of_the_context(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(home, "east")
    add(home, "west")
    assert Place.of(None, None, None) == Place("http://west:8161", "a-token-of-a-test")
    run("context", "use", "east")
    assert Place.of(None, None, None).url == "http://east:8161"
    monkeypatch.setenv("UNDERSTUDY_CONTEXT", "west")
    assert Place.of(None, None, None).url == "http://west:8161"
    assert Place.of(None, "http://other:1", None).url == "http://other:1", "an option comes first"
    assert read_password(None) == "hidden"
    monkeypatch.setenv("UNDERSTUDY_PASSWORD", "other")
    assert read_password(None) == "other", "the environment comes first"


def test_the_nodes_of_a_pair_are_given_one_by_one_or_with_a_comma(home: Path) -> None:
    run("context", "add", "pair", "--management", "http://a:8161,https://b:8161")
    nodes = json.loads((home / "understudy/contexts.json").read_text())["contexts"]["pair"]["nodes"]
    assert nodes == [{"management": "http://a:8161"}, {"management": "https://b:8161"}]
    found = CliRunner().invoke(cli, ["context", "add", "pair", "--management", "tcp://a:61616"])
    assert isinstance(found.exception, ConfigError)
    assert "'tcp://a:61616' is no http or https URL" in str(found.exception)


def test_a_check_of_the_cluster_asks_every_node(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def ask(place: Place, path: str) -> dict[str, object]:
        asked.append(place.url)
        return {"ok": True, "state": None, "problems": [], "members": [], "connections": [], "links": []}

    monkeypatch.setattr(Place, "ask", ask)
    monkeypatch.setattr(cluster, "readiness_of", lambda place: {"ready": True})
    for name in ("_problems", "_disagreements"):
        monkeypatch.setattr(cluster, name, lambda *found: [])
    run("context", "add", "pair", "--management", "http://a:8161,http://b:8161")
    assert run("cluster", "check") == "2 nodes asked, 0 problems\n"
    assert run("cluster", "check", "--url", "http://c:1,http://d:1", "--url", "http://e:1").startswith("3 nodes asked")
    assert asked == ["http://a:8161", "http://b:8161", "http://c:1", "http://d:1", "http://e:1"]


def test_a_check_of_the_cluster_reports_the_other_nodes_beside_one_that_is_not_reachable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def ask(place: Place, path: str) -> dict[str, object]:
        if place.url == "http://a:1":
            raise Unreachable("no answer")
        return {}

    monkeypatch.setattr(Place, "ask", ask)
    monkeypatch.setattr(cluster, "readiness_of", lambda place: {"ready": False, "state": "passive", "reason": "alone"})
    for name in ("_problems", "_disagreements"):
        monkeypatch.setattr(cluster, name, lambda *found: [])
    options = ["--url", "http://a:1", "--url", "http://b:1", "--instance", str(tmp_path)]
    found = json.loads(run("cluster", "check", "--json", *options, code=3))
    assert found["peers"] == ["http://b:1"]
    assert {(each["peer"], each["code"]) for each in found["problems"]} == {
        ("http://a:1", "not-reachable"), (str(tmp_path), "not-reachable"), ("http://b:1", "not-ready"),
    }  # fmt: skip


def test_the_file_is_readable_for_its_user_only_and_lists_show_no_secret(home: Path) -> None:
    add(home, "east")
    assert (home / "understudy/contexts.json").stat().st_mode & 0o777 == 0o600
    shown = run("context", "list") + run("context", "list", "--json")
    assert "token, password" in shown
    assert "hidden" not in shown
    assert "a-token" not in shown
    assert json.loads(run("context", "list", "--json"))[0]["used"] is True


def test_of_the_nodes_of_a_context_the_active_one_is_asked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        (home / name).write_text(f"token-of-{name}\n")
    urls = ("--management", "http://a:1", "--management", "http://b:1")
    run("context", "add", "pair", *urls, "--token-file", str(home / "a"), "--token-file", str(home / "b"))
    states = {"http://a:1": "passive", "http://b:1": "active"}

    def ready(place: Place) -> dict[str, object]:
        if states[place.url] == "down":
            raise Unreachable(f"{place.url} does not answer")
        return {"state": states[place.url]}

    monkeypatch.setattr(status, "readiness_of", ready)
    assert Place.of(None, None, None) == Place("http://b:1", "token-of-b")
    states["http://b:1"] = "down"
    assert Place.of(None, None, None).url == "http://a:1", "none is active: the first that answers"
    states["http://a:1"] = "active"
    assert Place.of(None, None, None).url == "http://a:1", "after a failover, the other one"
    assert Place.of(None, "http://b:1,http://a:1", home / "a") == Place("http://a:1", "token-of-a")
    states["http://a:1"] = "down"
    with pytest.raises(Unreachable, match=r"http://a:1 does not answer; http://b:1 does not answer"):
        Place.of(None, None, None)
    with pytest.raises(ConfigError, match="about one node"):
        Place.only(None, None, None)


def test_the_number_of_tokens_fits_the_nodes(home: Path) -> None:
    (home / "token").write_text("one-token\n")
    two = ("--management", "http://a:1", "--management", "http://b:1")
    run("context", "add", "x", *two, *("--token-file", str(home / "token")) * 3, code=2)
    run("context", "add", "x", "--instance", str(home), "--token-file", str(home / "token"), code=2)
    run("context", "add", "x", *two, "--token-file", str(home / "token"))
    assert [each.token for each in Place.all_of(None, None, None)] == ["one-token", "one-token"]
    assert json.loads(run("context", "list", "--json"))[0]["nodes"] == ["http://a:1", "http://b:1"]


def test_instances_of_a_context_that_do_not_run_are_left_out(home: Path) -> None:
    run("context", "add", "pair", "--instance", str(home / "a"), "--instance", str(home / "b"))
    with pytest.raises(Unreachable, match="no node runs from"):
        Place.of(None, None, None)
    (home / "b/run").mkdir(parents=True)
    (home / "b/run/node.json").write_text(json.dumps({"http_url": "http://b:1", "token_file": None, "servers": {}}))
    assert Place.of(None, None, None).url == "http://b:1"


def test_names_that_do_not_exist(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(home, "east")
    for command in ("use", "remove"):
        assert isinstance(CliRunner().invoke(cli, ["context", command, "nope"]).exception, ConfigError)
    run("context", "use", "--none")
    run("context", "use", code=2)
    monkeypatch.setenv("UNDERSTUDY_CONTEXT", "nope")
    with pytest.raises(ConfigError, match="no context 'nope'"):
        Place.of(None, None, None)
    monkeypatch.delenv("UNDERSTUDY_CONTEXT")
    run("context", "remove", "east")
    assert json.loads(run("context", "list", "--json")) == []


def test_a_login_in_a_url_is_refused_and_not_shown() -> None:
    found = CliRunner().invoke(cli, ["context", "add", "x", "--management", "http://user:secret@host:1"])
    assert isinstance(found.exception, ConfigError)
    assert "secret" not in str(found.exception)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion(shell: str) -> None:
    assert "_UNDERSTUDY_COMPLETE" in run("completion", shell)
