"""Goal: the modules for lines of the management CLI speak Ansible's language: changes, check mode, errors, no secrets.

Method: a program in the place of the command of the release, which records its arguments and answers as told. The real
one is in tests/integration.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.console import OVERLAY, Overrides, Summary
from ansible_collections.understudy.broker.plugins.module_utils.service import ServiceDefinition
from ansible_collections.understudy.broker.plugins.modules import cli, cli_overrides, export

ROW = {
    "path": "core/name",
    "state": "set",
    "value": "x",
    "differs": True,
    "time": "2026-11-30T08:00:00Z",
    "user": "token@127.0.0.1",
    "line": "a line",
}
SAME = {**ROW, "path": "core/id-cache-size", "differs": False}
PROGRAM = """#!{python}
import json, os, pathlib, sys
here = pathlib.Path(__file__).parent
asked = {{"arguments": sys.argv[1:], "ca": os.environ.get("SSL_CERT_FILE")}}
if sys.argv[1] == "cli":
    asked["script"] = sys.stdin.read()
with (here / "asked").open("a") as file:
    file.write(json.dumps(asked) + "\\n")
code, output, error = json.loads((here / " ".join(sys.argv[1:3]).split(" --url")[0]).read_text())
print(output, end="")
print(error, end="", file=sys.stderr)
sys.exit(code)
"""


class Release:
    """A program in the place of ``understudy``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "understudy"
        self.path.write_text(PROGRAM.format(python=sys.executable))
        self.path.chmod(0o755)

    def answers(self, command: str, code: int = 0, output: object = "", error: str = "") -> None:
        """Answer a command, such as ``cli`` or ``config diff``."""
        text = output if isinstance(output, str) else json.dumps(output)
        (self.directory / command).write_text(json.dumps([code, text, error]))

    def summary(self, code: int = 0, **given: object) -> None:
        """Answer lines."""
        usual = {"answers": [], "printed": [], "before": {}, "after": {}, "secret_written": False, "problem": None}
        self.answers("cli", code, {**usual, "reloaded": False, "reload_required": False, **given})

    @property
    def asked(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.directory / "asked").read_text().splitlines()]


@pytest.fixture
def release(tmp_path: Path) -> Release:
    (tmp_path / "bin").mkdir()
    return Release(tmp_path / "bin")


@pytest.fixture
def instance(tmp_path: Path, release: Release) -> Path:
    """A deployed instance with an overlay."""
    found = tmp_path / "node"
    (found / OVERLAY).parent.mkdir(parents=True)
    (found / OVERLAY).write_text("{}")
    (found / "etc/broker.xml").write_text("<configuration/>")
    write_definition(found, release)
    return found


def write_definition(instance: Path, release: Release, **access: object) -> None:
    definition = {
        "name": "n",
        "backend": "process",
        "unit": "",
        "user": "",
        "command": [str(release.path), "run"],
        "supervisor": ["true"],
        "management_url": "http://127.0.0.1:8161",
        "token_file": "/the/token",
        "management_access": access,
    }
    (instance / "etc/service.json").write_text(json.dumps(definition))


def test_lines_are_carried_out_at_the_management_of_the_definition(
    instance: Path, release: Release, run_module: Any
) -> None:
    release.summary(after={"a": 1}, answers=[{"outcome": "success"}], printed=["hello"])
    result = run_module(cli, directory=str(instance), lines=["echo hello", "/a=b:c(d=e,f=g)"])
    assert (result["changed"], result["reloaded"], result["printed"]) == (True, False, ["hello"])
    assert result["diff"] == {"before": "{}\n", "after": '{\n "a": 1\n}\n'}
    (asked,) = release.asked
    assert asked["script"].splitlines() == ["echo hello", "/a=b:c(d=e,f=g)"]
    place = ["--url", "http://127.0.0.1:8161", "--token-file", "/the/token"]
    assert asked["arguments"] == ["cli", *place, "--timeout", "60", "--summary", "--if-needed"]


def test_check_mode_validates_and_reloads_nothing(instance: Path, release: Release, run_module: Any) -> None:
    release.summary(after={"a": 1}, reload_required=True)
    result = run_module(cli, check_mode=True, directory=str(instance), script="x", reload=True, if_needed=False)
    assert (result["changed"], result["reloaded"], result["reload_required"]) == (True, True, True)
    (asked,) = release.asked
    assert "--check" in asked["arguments"]
    assert "--if-needed" not in asked["arguments"]


@pytest.mark.parametrize(
    ("summary", "changed"),
    [({}, False), ({"secret_written": True}, True), ({"reloaded": True}, True), ({"after": {"b": 2}}, True)],
)
def test_a_change_is_seen(
    summary: dict[str, object], changed: bool, instance: Path, release: Release, run_module: Any
) -> None:
    release.summary(**summary)
    assert run_module(cli, directory=str(instance), script="x")["changed"] is changed


def test_a_node_is_reloaded_only_if_a_change_waits_for_it(instance: Path, release: Release, run_module: Any) -> None:
    release.summary()
    result = run_module(cli, directory=str(instance), script="x", reload=True)
    assert (result["changed"], len(release.asked)) == (False, 1)
    release.summary(reload_required=True)
    result = run_module(cli, directory=str(instance), script="x", reload=True)
    assert (result["changed"], result["reloaded"]) == (True, True)
    assert release.asked[-1]["script"].strip() == ":reload"


def test_a_line_that_fails_has_the_answers_before_it(instance: Path, release: Release, run_module: Any) -> None:
    answers = [{"outcome": "success"}, {"outcome": "failed", "failure-description": "no"}]
    release.summary(1, after={"a": 1}, answers=answers, problem="no")
    result = run_module(cli, directory=str(instance), script="x")
    assert result["failed"]
    assert (result["msg"], result["changed"], result["answers"]) == ("n: no", True, answers)


@pytest.mark.parametrize("error", ["No such option: --summary", ""])
def test_a_command_without_a_summary_is_an_error(error: str, instance: Path, release: Release, run_module: Any) -> None:
    release.answers("cli", 3, error=error)
    message = run_module(cli, directory=str(instance), script="x")["msg"]
    assert message == f"n: {release.path} cli: {error or 'it ended with 3'}"


def test_secrets_in_urls_are_masked(instance: Path, release: Release, run_module: Any) -> None:
    url = {"url": "tcp://h:1?trustStorePassword=hidden-value&b=c"}
    release.summary(after=url, answers=[{"result": [url]}])
    result = run_module(cli, directory=str(instance), script="x")
    assert "hidden-value" not in json.dumps({name: result[name] for name in ("answers", "diff")})
    assert result["answers"] == [{"result": [{"url": "tcp://h:1?trustStorePassword=********&b=c"}]}]


def test_certificates_of_the_management_access(instance: Path, release: Release, run_module: Any) -> None:
    release.summary()
    write_definition(instance, release, ca_path="/the/ca.pem")
    assert not run_module(cli, directory=str(instance), script="x").get("failed")
    assert release.asked[-1]["ca"] == "/the/ca.pem"
    write_definition(instance, release, client_cert="/mine.pem")
    assert "has a client certificate" in run_module(cli, directory=str(instance), script="x")["msg"]


@pytest.mark.parametrize("arguments", [{}, {"lines": ["a"], "script": "b"}])
def test_lines_come_in_one_form(arguments: dict[str, object], instance: Path, run_module: Any) -> None:
    assert run_module(cli, directory=str(instance), **arguments)["failed"]


def test_where_nothing_is_deployed(tmp_path: Path, run_module: Any) -> None:
    assert "run the site playbook" in run_module(cli, directory=str(tmp_path), script="x")["msg"]
    result = run_module(cli_overrides, directory=str(tmp_path), policy="remove")
    assert (result["changed"], result["overrides"]) == (False, [])


@pytest.mark.parametrize(
    ("policy", "changed", "kept", "dropped", "command"),
    [
        ("keep", False, 2, 0, None),
        ("report", False, 2, 0, None),
        ("adopt", True, 1, 1, "--superfluous"),
        ("remove", True, 0, 2, "--all"),
    ],
)
def test_each_policy(
    policy: str,
    changed: bool,
    kept: int,
    dropped: int,
    command: str | None,
    instance: Path,
    release: Release,
    run_module: Any,
) -> None:
    release.answers("config diff", 1, [ROW, SAME])
    release.answers("config drop")
    release.answers("config print", output="<merged/>")
    for check_mode in (True, False):
        result = run_module(cli_overrides, check_mode=check_mode, directory=str(instance), policy=policy)
        assert (result["changed"], len(result["overrides"]), len(result["dropped"])) == (changed, kept, dropped)
        drops = [each["arguments"] for each in release.asked if each["arguments"][1] == "drop"]
        expected = [["config", "drop", command, "--instance", str(instance)]] if command and not check_mode else []
        assert drops == expected
    assert result.get("files", {}).get("effective") == ("<merged/>" if policy == "adopt" else None)


def test_changes_as_lines_for_operators(instance: Path, release: Release, run_module: Any) -> None:
    release.answers("config diff", 1, [ROW, {**SAME, "state": "present", "value": None}])
    result = run_module(cli_overrides, directory=str(instance))
    assert result["lines"] == [
        "core/name: set x (2026-11-30T08:00:00Z, token@127.0.0.1)",
        "core/id-cache-size: present, as in broker.xml (2026-11-30T08:00:00Z, token@127.0.0.1)",
    ]


def test_an_overlay_that_cannot_be_read_is_an_error(instance: Path, release: Release, run_module: Any) -> None:
    release.answers("config diff", 2, error="50-cli.json: is no JSON")
    message = run_module(cli_overrides, directory=str(instance))["msg"]
    assert message == "n: understudy config diff: 50-cli.json: is no JSON"


def test_an_instance_without_an_overlay_runs_no_command(instance: Path, release: Release) -> None:
    (instance / OVERLAY).unlink()
    definition = ServiceDefinition.read(instance)
    assert definition is not None
    overrides = Overrides(instance, definition)
    assert (overrides.rows(), overrides.document()) == ([], "<configuration/>")
    assert not (release.directory / "asked").exists()


def test_an_export_has_the_changes(instance: Path, release: Release, run_module: Any) -> None:
    release.answers("config print", output="<merged/>")
    assert run_module(export, directory=str(instance))["document"] == "<merged/>"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"before": 1}'])
def test_other_texts_are_no_summary(text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        Summary.parse(text)
