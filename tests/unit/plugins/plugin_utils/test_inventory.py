"""Goal: a misspelt variable and one without a value are refused with host, name and what to set, each once.

Method: the variables of hosts as Ansible gives them, which evaluates a template when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
import yaml
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.template import trust_as_template
from ansible.vars.hostvars import HostVarsVars
from ansible_collections.understudy.broker.plugins.plugin_utils.inventory import find_faults, merged, unknown_names
from ansible_collections.understudy.broker.plugins.plugin_utils.model import Fault
from ansible_collections.understudy.broker.plugins.plugin_utils.variables import table

ROOT = Path(__file__).resolve().parents[4]
INVENTORIES = sorted(path.name for path in (ROOT / "inventories").iterdir() if path.is_dir())
PREFIXED = re.compile(r"(?<![\w.])broker_[a-z_]+[a-z]\b")


def hosts(**variables: Mapping[str, object]) -> dict[str, HostVarsVars]:
    """Hosts with their variables; a text is a template."""
    loader = DataLoader()
    return {
        name: HostVarsVars(
            {key: trust_as_template(value) if isinstance(value, str) else value for key, value in given.items()},
            loader,
            name,
        )
        for name, given in variables.items()
    }


def said(hostvars: dict[str, HostVarsVars], witnesses: Iterable[str] = ()) -> str:
    return "\n".join(merged(find_faults([name for name in hostvars if name not in witnesses], witnesses, [], hostvars)))


PLAIN = {"broker_advertise_address": "10.0.0.1", "ansible_host": "10.0.0.1"}
OTHER = {"broker_advertise_address": "10.0.0.2", "ansible_host": "10.0.0.2"}


def test_an_inventory_without_faults() -> None:
    assert said(hosts(a1=PLAIN, a2=OTHER)) == ""


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("broker_advertise_adress", "broker_advertise_address"),
        ("broker_cluster_pasword", "broker_cluster_password"),
        ("broker_failover_on_shutdwon", "broker_failover_on_shutdown"),
        ("broker_quorum_listens", "broker_quorum_listen"),
    ],
)
def test_a_misspelt_name_is_refused_with_the_nearest_one(misspelt: str, meant: str) -> None:
    found = said(hosts(a1={**PLAIN, misspelt: "x"}))
    assert found.startswith(f"a1: {misspelt}: is no variable of this collection; did you mean {meant}?")


def test_a_name_that_is_like_no_other_has_no_proposal() -> None:
    assert "did you mean" not in said(hosts(a1={**PLAIN, "broker_zzqqx": "x"}))


def test_a_variable_of_the_user_is_declared() -> None:
    own = {"broker_rack_owner": "me", "broker_extra_variables": ["broker_rack_owner"]}
    assert said(hosts(a1={**PLAIN, **own})) == ""


def test_a_fault_of_all_hosts_is_one_line() -> None:
    found = said(hosts(a1={**PLAIN, "broker_prot": 1}, a2={**OTHER, "broker_prot": 1}))
    assert found.splitlines() == [found]
    assert found.startswith("a1, a2: broker_prot: ")


def test_names_of_witnesses_are_checked() -> None:
    witness = {"ansible_host": "10.0.0.3", "broker_quorum_lisen": ["10.0.0.3:61619"]}
    assert "w: broker_quorum_lisen" in said(hosts(a1=PLAIN, w=witness), ["w"])


def test_an_undefined_variable_names_its_host_and_does_not_end_the_search() -> None:
    found = said(
        hosts(
            a1={**PLAIN, "broker_failback": "{{ missing_one }}", "broker_prot": 1},
            a2={**OTHER, "broker_users": "{{ vault_users }}"},
        )
    ).splitlines()
    assert len(found) == 3
    assert "a1: broker_failback: cannot be evaluated: 'missing_one' is undefined" in found
    assert "a2: broker_users: cannot be evaluated: 'vault_users' is undefined" in found


def test_the_defaults_of_a_role_may_be_named() -> None:
    assert said(hosts(a1={**PLAIN, "broker_users": "{{ [{'name': broker_user}] }}"})) == ""


def test_equal_faults_of_different_variables_stay_apart() -> None:
    faults = [Fault("a", "x", "is bad"), Fault("b", "y", "is bad"), Fault("b", "x", "is bad")]
    assert merged(faults) == ["a, b: x: is bad", "b: y: is bad"]


@pytest.mark.parametrize("name", INVENTORIES)
def test_every_name_of_the_inventories_is_known(name: str) -> None:
    inventory = InventoryManager(DataLoader(), sources=[str(ROOT / "inventories" / name / "hosts.yml")])
    groups = [group.get_vars() for group in inventory.groups.values()]
    given = {host.name: host.get_vars() for host in inventory.get_hosts()} | {
        "groups": {k: 0 for g in groups for k in g}
    }
    assert not list(unknown_names(given, given))


def test_every_fact_and_input_of_playbooks_and_roles_is_known() -> None:
    """A name that a play sets would be refused by the next play over the same hosts."""
    known = table().known()
    for path in sorted([*(ROOT / "playbooks").rglob("*.yml"), *(ROOT / "roles").glob("*/tasks/*.yml")]):
        for entry in yaml.safe_load(path.read_text()) or []:
            for name in set_names(entry):
                assert name in known, f"{path.relative_to(ROOT)}: {name}; list it in variables.yml (facts)"


def set_names(entry: object) -> Iterable[str]:
    """Names with the prefix that tasks register or set as facts."""
    if isinstance(entry, list):
        for each in entry:
            yield from set_names(each)
    if isinstance(entry, dict):
        facts = entry.get("ansible.builtin.set_fact", {})
        for name in [str(entry.get("register", "")), *(facts if isinstance(facts, dict) else ())]:
            yield from PREFIXED.findall(name)
        for key in ("tasks", "pre_tasks", "block", "rescue", "always"):
            yield from set_names(entry.get(key))


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("broker_service_backend", "upstart", "is 'upstart'; give one of auto, systemd, process"),
        ("broker_security_enabled", "perhaps", "is 'perhaps'; give true or false"),
        ("broker_ha_policy", "shared", "is 'shared'; give one of primary_only, shared_store"),
    ],
)
def test_a_value_that_is_no_choice_is_named_once(variable: str, value: str, problem: str) -> None:
    found = said(hosts(a1={**PLAIN, variable: value}, a2={**OTHER, variable: value}))
    assert found.startswith(f"a1, a2: {variable}: {problem}")
    assert len(found.splitlines()) == 1
