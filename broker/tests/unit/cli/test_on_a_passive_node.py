"""Commands that are given only the passive node of a pair.

Goal: a command that an active node alone can answer says where that node is, instead of an empty answer. Method: every
command with the options of a node is found by walking the command line, and runs against a passive node that knows its
active one. A command has to refuse, or it in ``ANSWERED``, because a passive node can do it, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click
import pytest
from click.testing import CliRunner

from support.command_tree import leaves
from understudy.cli.main import cli
from understudy.cli.managing import checks, events, ha, places, top
from understudy.cli.node import cluster, handing_over, status
from understudy.cli.node.status import Place
from understudy.errors import BrokerError

PASSIVE: Final = "http://127.0.0.1:1"
#: Commands about one node, whatever its state: a passive node answers them.
ANSWERED: Final = {
    "activate",
    "check certificate",
    "check cluster",
    "check node",
    "check pair",
    # a passive node has a configuration of its own, and the command names the other node (ADR 0174)
    "cli",
    "cluster show",
    "events",
    "ha",
    "operation list",
    "promote",
    "status",
    "stop",
    # each node has files of its own
    "user add",
    "user password",
    "user remove",
    "user rm",
    "user roles",
}
#: Arguments that are checked before the node is asked.
ARGUMENTS: Final = {
    "bridge create": ["FILE"],
    "definitions diff": ["FILE"],
    "definitions import": ["FILE"],
    "message copy": ["orders", "parked", "--all"],
    "message dead-letter": ["orders", "--all", "--yes"],
    "message delete": ["orders", "--all", "--yes"],
    "message expire": ["orders", "--all", "--yes"],
    "message move": ["orders", "parked", "--all", "--yes"],
    "message retry": ["orders", "--all", "--yes"],
    "message show": ["orders", "1"],
    "permission check": ["alice", "send", "orders"],
    "top": ["--once"],
}


def commands_of_a_node() -> dict[str, click.Command]:
    options = {"url", "token_file"}
    return {path: command for path, command in leaves(cli) if options <= {each.name for each in command.params}}


COMMANDS: Final = commands_of_a_node()


def ask(place: Place, path: str, *, body: Any = None) -> Any:
    assert body is None, f"a passive node is asked to change something: {body}"
    assert path == "/api/v1/node", f"a passive node is asked for {path}"
    return {
        "name": "b",
        "peer": {"role": "primary", "connector": "10.0.0.1:61616", "name": "a"},
        "ha": {"state": "passive"},
    }


def ready(place: Place) -> dict[str, Any]:
    return {"state": "passive"}


@pytest.mark.parametrize("path", sorted(COMMANDS.keys() - ANSWERED))
def test_the_active_node_is_named(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Place, "ask", ask)
    for module in (checks, events, ha, places, top, cluster, handing_over, status):
        if hasattr(module, "readiness_of"):
            monkeypatch.setattr(module, "readiness_of", ready)
    file = tmp_path / "definitions.json"
    file.write_text("{}")
    required = ["1" for each in COMMANDS[path].params if isinstance(each, click.Argument) and each.required]
    arguments = [str(file) if each == "FILE" else each for each in ARGUMENTS.get(path, required)]
    found = CliRunner().invoke(cli, [*path.split(), *arguments, "--url", PASSIVE], input="secret\n")
    assert found.exit_code != 0, found.output
    if path.startswith("check "):
        assert found.output.startswith("UNKNOWN - b (http://127.0.0.1:1) is passive; the active node is a (")
        return
    assert isinstance(found.exception, BrokerError), (found.output, found.exception)
    text = str(found.exception)
    assert "b (http://127.0.0.1:1) is passive" in text
    assert "active node is a (10.0.0.1:61616)" in text or "ask the active node a (10.0.0.1:61616)" in text


def test_no_command_is_left_out() -> None:
    assert COMMANDS.keys() >= ANSWERED, "a command of ANSWERED has another name now"
    assert COMMANDS.keys() >= ARGUMENTS.keys(), "a command of ARGUMENTS has another name now"
