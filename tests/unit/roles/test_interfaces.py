"""Goal: every role has the interface that the table of variables declares, and uses nothing private to another role.

Method: read the YAML of the roles and compare it with the table and with itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ansible_collections.understudy.broker.plugins.plugin_utils.variables import (
    ENTRY_ROLE,
    HOST,
    Role,
    files,
    table,
)

ROOT = Path(__file__).resolve().parents[3]
ROLES = ROOT / "roles"
NAMES = sorted(path.name for path in ROLES.iterdir())
ALONE = sorted(set(NAMES) - {ENTRY_ROLE})
SOURCES = sorted(
    path
    for folder in ("roles", "playbooks", "inventories", "molecule")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".yml", ".j2")
)


def role_of(name: str) -> Role:
    return table().roles[name]


def load(path: Path) -> list[dict[str, object]]:
    content = yaml.safe_load(path.read_text())
    assert isinstance(content, list)
    return content


def inclusions() -> Iterator[tuple[Path, str, dict[str, object]]]:
    """Every inclusion of a role in the role broker: file, role and the inputs that it gives."""
    for path in sorted((ROLES / ENTRY_ROLE / "tasks").glob("*.yml")):
        for task in load(path):
            included = task.get("ansible.builtin.include_role")
            if isinstance(included, dict):
                inputs = task["vars"]
                assert isinstance(inputs, dict)
                yield path, str(included["name"]).removeprefix("understudy.broker."), inputs


def test_every_role_is_in_the_table() -> None:
    assert sorted(table().roles) == NAMES


@pytest.mark.parametrize(("name", "text"), [*files(table())], ids=lambda value: value if len(value) < 60 else "text")
def test_generated_files_are_current(name: str, text: str) -> None:
    assert (ROOT / name).read_text() == text, "run `make docs`"


@pytest.mark.parametrize("name", NAMES)
def test_every_input_is_described_and_secrets_are_marked(name: str) -> None:
    for variable in role_of(name).variables:
        assert variable.name.startswith(f"{name}_"), variable.name
        assert all(variable.description), variable.name
        assert variable.secret is bool(re.search(r"_(password|token|secret)$", variable.name)), variable.name


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_private_names_are_used_in_their_own_role_only(path: Path) -> None:
    """``__role_name`` belongs to the role with the longest name that it begins with."""
    parts = path.relative_to(ROOT).parts
    here = parts[1] if parts[0] == "roles" else ""
    for name in re.findall(r"\b__(broker_\w+)", path.read_text()):
        owner = max((role for role in NAMES if name.startswith(f"{role}_")), key=len)
        assert owner == here, f"__{name} is private to the role {owner}"


@pytest.mark.parametrize("name", ALONE)
def test_a_role_that_stands_alone_names_its_own_variables_only(name: str) -> None:
    known = {str(each["name"]) for each in role_of(name).outputs} | {f"{name}_"}
    for variable in role_of(name).variables:
        # Messages may name the variable of the role broker.
        known |= {variable.name, variable.given_by}
    roles = "|".join(NAMES)
    for path in (each for each in (ROLES / name).rglob("*") if each.suffix in (".yml", ".j2")):
        if path.parts[-2] == "meta":
            continue
        for word in re.findall(rf"(?<![\w.])(?:{roles})_\w+", path.read_text()):
            assert word in known or word in table().roles, f"{path.name}: {word}"


@pytest.mark.parametrize("name", NAMES)
def test_no_default_hands_on_a_variable_of_another_role(name: str) -> None:
    for variable in role_of(name).variables:
        for word in set(re.findall(r"\bbroker_\w+", str(variable.default))) - set(NAMES):
            assert word in {each.name for each in role_of(name).variables}, f"{variable.name}: {word}"


@pytest.mark.parametrize("name", ALONE)
def test_the_facts_that_a_role_sets_are_those_that_it_declares(name: str) -> None:
    found = set()
    for path in (ROLES / name / "tasks").glob("*.yml"):
        for task in load(path):
            facts = task.get("ansible.builtin.set_fact", {})
            assert isinstance(facts, dict)
            found |= {fact for fact in facts if not fact.startswith("__")}
    assert found == {str(each["name"]) for each in role_of(name).outputs}


def test_the_role_broker_gives_every_input_that_is_marked_so() -> None:
    given: dict[str, set[str]] = {name: set() for name in ALONE}
    for path, name, inputs in inclusions():
        declared = {variable.name for variable in role_of(name).variables if variable.given_by}
        assert set(inputs) <= declared, path.name
        given[name] |= set(inputs)
    for name in ALONE:
        optional = {variable.name for variable in role_of(name).variables if not variable.given_by}
        declared = {variable.name for variable in role_of(name).variables} - optional
        assert given[name] == declared, name


def test_the_role_broker_uses_the_judged_node_and_not_the_variables_it_was_read_from() -> None:
    """A value of a play that the inventory does not have would otherwise be used here and not at the partner."""
    judged = {variable.name for variable in table().topology}
    for path in sorted((ROLES / ENTRY_ROLE).rglob("*.yml")):
        if path.parts[-2] not in ("tasks", "vars"):
            continue
        for template in re.findall(r"\{\{.*?\}\}", path.read_text(), re.DOTALL):
            used = set(re.findall(r"(?<![\w.])broker_\w+", re.sub(r"'[^']*'", "", template)))
            assert not used & judged, f"{path.name}: {used & judged}"


def test_only_topology_inputs_have_elements_or_agree_in_a_pair() -> None:
    for role in table().roles.values():
        for variable in role.variables:
            if variable.xml:
                assert role.name == ENTRY_ROLE
                assert variable.scope != HOST
            if role.name != ENTRY_ROLE:
                assert variable.scope == HOST, variable.name


def test_every_phase_has_a_tag_of_its_name_which_its_inclusions_hand_on() -> None:
    tags = {}
    for task in load(ROLES / ENTRY_ROLE / "tasks/main.yml"):
        tags[task["ansible.builtin.import_tasks"]] = task["tags"]
    for path in sorted((ROLES / ENTRY_ROLE / "tasks").glob("*.yml")):
        if path.name not in tags:
            continue
        assert tags[path.name] == ["always"] or f"broker_{path.stem}" in tags[path.name]
        for task in load(path):
            included = task.get("ansible.builtin.include_role")
            if isinstance(included, dict):
                assert included["apply"] == {"tags": tags[path.name]}, path.name


@pytest.mark.parametrize("name", NAMES)
def test_tasks_use_no_facts_and_no_batch(name: str) -> None:
    for path in (ROLES / name).rglob("*.yml"):
        text = path.read_text()
        for word in ("ansible_facts", "ansible_play_batch", "ignore_errors", "failed_when: false", "no_log: false"):
            assert word not in text or "argument_specs" in path.name, f"{path}: {word}"
        assert not re.search(r"no_log: .*\{\{", text), f"{path}: no_log must not depend on anything"


@pytest.mark.parametrize("name", ALONE)
def test_the_example_of_a_role_uses_only_this_role_and_its_inputs(name: str) -> None:
    text = (ROLES / name / "README.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (play,) = yaml.safe_load(example)
    (role,) = play["roles"]
    assert role["role"] == f"understudy.broker.{name}"
    inputs = {variable.name: variable for variable in role_of(name).variables}
    assert set(role["vars"]) <= set(inputs)
    assert {each.name for each in inputs.values() if each.required} <= set(role["vars"])
    for output in role_of(name).outputs:
        assert f"`{output['name']}`" in text
