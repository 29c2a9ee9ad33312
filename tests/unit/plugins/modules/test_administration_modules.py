"""Goal: the modules for daily operations speak Ansible's language where no broker is needed: errors, check mode, files.

The states of a running broker are in tests/integration.
"""

from __future__ import annotations

import json
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.administration import (
    Administration,
    NoSuchResource,
    Refused,
)
from ansible_collections.understudy.broker.plugins.module_utils.credentials import fits
from ansible_collections.understudy.broker.plugins.module_utils.destinations import Call
from ansible_collections.understudy.broker.plugins.module_utils.management import ManagementClient
from ansible_collections.understudy.broker.plugins.module_utils.waiting import Clock
from ansible_collections.understudy.broker.plugins.modules import (
    address,
    drain,
    export,
    journal_compare,
    journal_prune,
    queue,
    user,
)

CONFIGURATION = """<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
<name>n</name><cluster-user>cluster</cluster-user><journal-directory>data/journal</journal-directory>
</core></configuration>
"""


@pytest.fixture
def instance(tmp_path: Path, management: Any) -> Path:
    """An instance that does not run."""
    for name in ("etc", "run", "log", "data/journal"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "etc/broker.xml").write_text(CONFIGURATION)
    (tmp_path / "etc/artemis-users.properties").write_text("# people\n")
    (tmp_path / "etc/artemis-roles.properties").write_text("amq = \n")
    (tmp_path / "etc/artemis-users.properties").chmod(0o640)
    (tmp_path / "etc/management.token").write_text("right")
    definition = {
        "name": "n",
        "backend": "process",
        "unit": "",
        "user": "",
        "command": ["understudy"],
        "supervisor": ["true"],
        "management_url": management.url,
        "token_file": str(tmp_path / "etc/management.token"),
    }
    (tmp_path / "etc/service.json").write_text(json.dumps(definition))
    return tmp_path


@pytest.mark.parametrize("module", [address, queue])
def test_a_passive_node_is_an_error_unless_it_is_ignored(
    module: Any, instance: Path, management: Any, run_module: Any
) -> None:
    management.refuses, management.refusal_status = "it is passive", 503
    arguments = {"directory": str(instance), "name": "x"}
    assert run_module(module, **arguments)["msg"] == "n is not active: it is passive"
    result = run_module(module, **arguments, passive="ignore")
    assert (result["changed"], result["node_state"]) == (False, "passive")


@pytest.mark.parametrize("module", [address, queue, drain])
def test_where_nothing_is_deployed_the_message_says_what_to_do(module: Any, tmp_path: Path, run_module: Any) -> None:
    arguments = {} if module is drain else {"name": "x"}
    result = run_module(module, directory=str(tmp_path), **arguments)
    assert result["failed"]
    assert "run the site playbook on this host first" in result["msg"]


def test_a_refusal_names_the_operation(instance: Path, management: Any, run_module: Any) -> None:
    management.refuses = "no such thing"
    result = run_module(queue, directory=str(instance), name="x")
    assert result["msg"] == "n refuses listQueues of broker: no such thing"


def test_a_stopped_node_has_nothing_to_drain(instance: Path, management: Any, run_module: Any) -> None:
    result = run_module(drain, directory=str(instance), method="scale_down")
    assert (result["changed"], result["state"]) == (False, "stopped")
    assert management.asked == []


class Queueless:
    """A node that blocks addresses, and refuses to list its queues; ``unblock`` may be refused, too."""

    def __init__(self, *, unblocks: bool) -> None:
        self.blocked = False
        self._unblocks = unblocks

    def rows(self, operation: str) -> list[dict[str, object]]:
        if operation == "listQueues":
            raise Refused("n refuses listQueues of broker: too busy")
        return [{"name": "orders", "internal": "false"}]

    def perform(self, call: Call) -> object:
        if call.operation == "isBlocked":
            return self.blocked
        if call.operation == "unblock" and not self._unblocks:
            raise Refused("n refuses unblock of address.orders: too busy")
        self.blocked = call.operation == "block"
        return None


@pytest.mark.parametrize(
    ("on_timeout", "unblocks", "blocked", "said"),
    [
        ("resume", True, False, "n refuses listQueues of broker: too busy"),
        ("keep", True, True, "n refuses listQueues of broker: too busy"),
        ("resume", False, True, "state: resumed lets them go on"),
    ],
)
def test_producers_go_on_when_the_node_refuses_an_answer(
    on_timeout: str, unblocks: bool, blocked: bool, said: str
) -> None:
    failed: dict[str, object] = {}
    module = SimpleNamespace(
        params={"timeout_s": 1, "on_timeout": on_timeout, "ignore": []}, fail_json=lambda **given: failed.update(given)
    )
    deployed = SimpleNamespace(definition=SimpleNamespace(name="n"), management=lambda: None)
    node = drain.Drain(module, deployed, Clock(now_s=lambda: 0.0, pause=lambda _: None))  # type: ignore[arg-type]
    administration = Queueless(unblocks=unblocks)
    node._administration = administration  # type: ignore[assignment]
    node.consume()
    assert administration.blocked is blocked
    assert str(failed["msg"]).endswith(said)
    assert (failed["changed"], failed["blocked"]) == (True, ["orders"])


class Vanishing:
    """A node one of whose addresses is deleted after it was listed."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def rows(self, operation: str) -> list[dict[str, object]]:
        return [{"name": name, "internal": "false"} for name in ("gone", "orders")]

    def perform(self, call: Call) -> object:
        if call.resource == "address.gone":
            raise NoSuchResource(f"n refuses {call.operation} of address.gone: no address 'gone'")
        self.calls.append(call.operation)
        return False


def test_an_address_that_is_deleted_meanwhile_is_passed_over() -> None:
    administration = Vanishing()
    assert drain.set_blocked(administration, wanted=True, dry_run=False) == ["orders"]  # type: ignore[arg-type]
    assert administration.calls == ["isBlocked", "block"]


def test_a_missing_resource_is_a_refusal_of_its_own(management: Any) -> None:
    management.refuses, management.refusal_status = "no address 'gone'", 422
    administration = Administration(ManagementClient(management.url, "right"), "n")
    with pytest.raises(Refused) as refused:
        administration.perform(Call("address.gone", "isBlocked"))
    assert not isinstance(refused.value, NoSuchResource)
    management.refusal_code = "resource-not-found"
    with pytest.raises(NoSuchResource, match="no address 'gone'"):
        administration.perform(Call("address.gone", "isBlocked"))


def test_a_user_is_added_changed_and_removed(instance: Path, run_module: Any) -> None:
    users, roles = instance / "etc/artemis-users.properties", instance / "etc/artemis-roles.properties"
    wish = {"directory": str(instance), "name": "shop", "password": "a long password", "roles": ["amq"]}
    assert run_module(user, check_mode=True, **wish)["changed"]
    assert users.read_text() == "# people\n"
    made = run_module(user, **wish)
    assert (made["changed"], made["reloaded"], made["roles"]) == (True, False, ["amq"])
    assert "a long password" not in json.dumps({**made, "invocation": None})
    assert stat.S_IMODE(users.stat().st_mode) == 0o640
    assert fits("a long password", users.read_text().partition("shop = ")[2].strip())
    assert roles.read_text() == "amq = shop\n"
    assert not run_module(user, **wish)["changed"]
    assert run_module(user, directory=str(instance), name="shop", state="absent")["changed"]
    assert (users.read_text(), roles.read_text()) == ("# people\n", "amq = \n")


def test_refused_users(instance: Path, run_module: Any) -> None:
    result = run_module(user, directory=str(instance), name="cluster", password="a long password")
    assert "is the cluster's own login" in result["msg"]
    (instance / "etc/artemis-users.properties").unlink()
    result = run_module(user, directory=str(instance), name="shop", state="absent")
    assert "deploy the node with broker_security_enabled" in result["msg"]


def test_old_copies_go_but_the_newest(instance: Path, run_module: Any) -> None:
    journal = instance / "data/journal"
    for number in (1, 2, 3):
        (journal / f"oldreplica.{number}").mkdir()
        (journal / f"oldreplica.{number}/segment").write_bytes(b"x")
    preview = run_module(journal_prune, check_mode=True, directory=str(instance), keep=2)
    assert (preview["changed"], preview["removed"]) == (True, [f"{journal}/oldreplica.1"])
    result = run_module(journal_prune, paths=[str(journal)])
    assert result["kept"] == [f"{journal}/oldreplica.3"]
    assert sorted(each.name for each in journal.iterdir()) == ["oldreplica.3"]
    assert not run_module(journal_prune, directory=str(instance))["changed"]


def test_refused_prunings(instance: Path, run_module: Any) -> None:
    assert "keep must be 1 or more" in run_module(journal_prune, directory=str(instance), keep=0)["msg"]
    assert "no such directory" in run_module(journal_prune, paths=[str(instance / "none")])["msg"]


def test_a_comparison_that_the_command_refuses_fails_with_its_words(tmp_path: Path, run_module: Any) -> None:
    command = tmp_path / "understudy"
    command.write_text("#!/bin/sh\necho 'Error: /b is the journal of node y, not of x' >&2\nexit 2\n")
    command.chmod(0o755)
    result = run_module(journal_compare, command=str(command), directories=["/a", "/b"])
    assert result["msg"] == "the copies cannot be compared: /b is the journal of node y, not of x"
    copies = [{"name": name, "node_id": name, "epoch": 1, "last_sequence": 1} for name in "ab"]
    assert "different nodes: node a: a; node b: b" in run_module(journal_compare, copies=copies)["msg"]


def test_the_files_of_a_node_are_read(instance: Path, run_module: Any) -> None:
    result = run_module(export, directory=str(instance))
    assert (result["document"], result["users"], result["changed"]) == (CONFIGURATION, "# people\n", False)
    assert result["service"]["command"] == ["understudy"]
    (instance / "etc/broker.xml").unlink()
    assert "must be the instance directory" in run_module(export, directory=str(instance))["msg"]
