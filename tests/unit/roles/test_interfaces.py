"""Goal: the declared interface of every role is its real one, and defaults are said once.

Method: read the YAML of the roles and compare it with itself and with the topology's own defaults.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.understudy.broker.plugins.module_utils.topology import DEFAULTS

ROLES = Path(__file__).resolve().parents[3] / "roles"
NAMES = sorted(path.name for path in ROLES.iterdir())
WITHOUT_DEFAULT = {"broker_advertise_address", "broker_cluster_password"}
SPELT_OUT = {"broker_install_cache"}
"""Inputs whose default is a rule too long for a document, described there in words."""


def load(role: str, path: str) -> dict[str, object]:
    content = yaml.safe_load((ROLES / role / path).read_text())
    assert isinstance(content, dict)
    return content


def options(role: str) -> dict[str, dict[str, object]]:
    return load(role, "meta/argument_specs.yml")["argument_specs"]["main"]["options"]  # type: ignore[index,no-any-return]


@pytest.mark.parametrize("role", NAMES)
def test_every_input_is_declared_and_every_declared_one_exists(role: str) -> None:
    defaults = load(role, "defaults/main.yml")
    assert set(options(role)) - WITHOUT_DEFAULT == set(defaults)


@pytest.mark.parametrize("role", NAMES)
def test_declared_defaults_are_the_real_ones(role: str) -> None:
    defaults = load(role, "defaults/main.yml")
    for name, option in options(role).items():
        if option.get("required"):
            assert name in WITHOUT_DEFAULT
            assert name not in defaults
        elif name not in SPELT_OUT:
            assert option["default"] == defaults[name], name


@pytest.mark.parametrize("role", NAMES)
def test_every_input_is_described_and_secrets_are_marked(role: str) -> None:
    for name, option in options(role).items():
        assert option["description"], name
        assert option["type"], name
        assert bool(option.get("no_log")) is bool(re.search(r"_(password|token)$", name)), name


def test_the_topology_assumes_the_same_defaults_as_the_role() -> None:
    defaults = load("broker", "defaults/main.yml")
    assert {name: defaults[name] for name in DEFAULTS} == dict(DEFAULTS)


@pytest.mark.parametrize("role", NAMES)
def test_tasks_use_no_facts_and_no_batch(role: str) -> None:
    for path in (ROLES / role).rglob("*.yml"):
        text = path.read_text()
        for word in ("ansible_facts", "ansible_play_batch", "ignore_errors", "failed_when: false", "no_log: false"):
            assert word not in text, f"{path}: {word}"
        assert not re.search(r"no_log: .*\{\{", text), f"{path}: no_log must not depend on anything"
