"""``understudy ha`` and ``status`` on nodes of known states: the sentence of the model, and the exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from understudy.cli.main import cli
from understudy.cli.managing import ha as ha_module
from understudy.cli.node import status as status_module
from understudy.cli.node.status import Place
from understudy.management.doors.http import node_json, ready_json
from understudy.management.model.node import Node, Protection
from understudy.runtime.base import management_client
from understudy.testing.fake_node import fake_node

ALONE = fake_node(protection=Protection(False, None, "no node takes over", "all", "Start b.", "no node; all. Start b."))


@pytest.fixture
def run_on(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    def run(node: Node, *arguments: str) -> Result:
        ready: dict[str, Any] = dict(ready_json(node))
        for module in (status_module, ha_module):
            monkeypatch.setattr(module, "readiness_of", lambda place: ready)
        answer = node_json(node) | {"queues": []}
        monkeypatch.setattr(Place, "ask", lambda place, path, *, body=None: answer)
        return CliRunner().invoke(cli, [*arguments, "--url", "http://127.0.0.1:1"])

    return run


def test_a_node_with_a_backup_is_protected(run_on: Callable[..., Result]) -> None:
    shown = run_on(fake_node(), "ha")
    assert shown.exit_code == 0
    assert shown.output == (
        "active: 10.0.0.2:61616 takes over when this node fails; both nodes use the same store: no confirmed durable"
        " message is lost\n"
    )


def test_no_node_takes_over_from_a_node_without_a_backup(run_on: Callable[..., Result]) -> None:
    shown = run_on(ALONE, "ha")
    assert (shown.exit_code, shown.output) == (1, "active: no node; all. Start b.\n")
    found = json.loads(run_on(ALONE, "ha", "--json").output)
    said = {"state": "active", "protected": False, "protection": "no node; all. Start b."}
    assert found == {**said, "overrides": 0, "pending_count": 0}


def test_changes_of_the_management_cli_are_a_second_line(run_on: Callable[..., Result]) -> None:
    changed = fake_node(overrides=2, pending=["ha-policy"], pending_count=1)
    shown = run_on(changed, "ha").output.splitlines()
    assert shown[1] == (
        "changes of the management CLI override broker.xml (2); used after a restart or reload: "
        "changed elements of the configuration (1)"
    )
    found = json.loads(run_on(changed, "ha", "--json").output)
    assert (found["overrides"], found["pending_count"]) == (2, 1)
    assert "used after a restart or reload: ha-policy" in run_on(changed, "status").output


def test_status_has_the_same_sentence(run_on: Callable[..., Result]) -> None:
    shown = run_on(ALONE, "status")
    assert shown.exit_code == 0, "an active node is ready; `understudy ha` tells whether it is protected"
    assert "no node; all. Start b." in shown.output


def test_a_node_of_an_earlier_version_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Answer:
        def __enter__(self) -> Answer:
            return self

        def __exit__(self, *arguments: object) -> None:
            return None

        def read(self, limit: int) -> bytes:
            return b'{"ready": true, "state": "active", "reason": null}'

    monkeypatch.setattr(management_client.OPENER, "open", lambda request, timeout: Answer())
    shown = CliRunner().invoke(cli, ["ha", "--url", "http://127.0.0.1:1"])
    assert (shown.exit_code, shown.output) == (1, "active: unknown: the version of the node does not say it\n")
