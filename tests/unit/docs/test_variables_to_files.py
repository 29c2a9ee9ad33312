"""Goal: the page that shows where each variable ends is current, complete and true.

Method: the script of the page is compared with the roles, and its statements with the table of variables.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]


def _script() -> ModuleType:
    specification = importlib.util.spec_from_file_location("variables_to_files", ROOT / ".ci/variables_to_files.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


SCRIPT = _script()
PLACES = SCRIPT.places_of_variables()
TOPOLOGY = {"broker_config_core", "broker_config_origins"}
"""Inputs with elements of the topology, which the comparison of topologies covers."""


def test_the_page_is_current() -> None:
    assert SCRIPT.PAGE.read_text(encoding="utf-8") == SCRIPT.page(), "run `make docs`"


def test_every_template_and_program_of_a_role_is_a_file_of_the_page() -> None:
    shown = {file.template for file in SCRIPT.FILES} | {file.name for file in SCRIPT.FILES}
    for path in (ROOT / "roles").glob("*/[tf][ei][ml][pe]*/*"):
        assert path.name in shown, path


def test_every_list_of_files_of_the_entry_point_render_is_on_the_page() -> None:
    shown = {file.variable for file in SCRIPT.FILES}
    for path in sorted((ROOT / "roles").glob("*/tasks/render.yml")):
        role = path.parts[-3]
        if role == "broker":
            continue
        text = " ".join(SCRIPT.texts(yaml.safe_load(path.read_text())))
        variables = {name for name in SCRIPT.names(text) if name.endswith(("_file", "_files", "_rendered"))}
        for name in variables - {f"{role}_rendered"}:
            inner = SCRIPT.names(" ".join(SCRIPT.texts(SCRIPT.role_variables(role)[name])))
            assert name in shown or inner & shown, f"{role}: {name}"


def test_every_condition_of_a_file_is_on_the_page() -> None:
    """A variable of the entry point ``render`` either is in a file, or decides whether there is one."""
    for path in sorted((ROOT / "roles").glob("*/tasks/render.yml")):
        role = path.parts[-3]
        for task in yaml.safe_load(path.read_text()) if role != "broker" else []:
            inputs = SCRIPT.inputs_of(role, task.get("ansible.builtin.set_fact", {}))
            for name in inputs - set(SCRIPT.DECIDING):
                assert name in SCRIPT.places_of_inputs() or name in TOPOLOGY, f"{role}: {name}"


@pytest.mark.parametrize(
    ("variable", "file", "place"),
    [
        ("broker_port", "broker.xml", "acceptors/acceptor"),
        ("broker_restart_backup", "broker.xml", "ha-policy/shared-store/backup/restart-backup"),
        ("broker_cluster_password", "broker.xml", "cluster-password"),
        ("broker_service_watchdog_s", "understudy-HOST.service", "WatchdogSec"),
        ("broker_management_port", "service.json", "management_url"),
        ("broker_client_sources", "understudy-HOST.nft", "(content)"),
        ("broker_firewall", "understudy-HOST.nft", "(whether)"),
        ("broker_group", "broker.xml", "(owner)"),
        ("broker_instance_directory", "witness-secret", "(path)"),
        ("broker_store_mount_options", "STORE.mount", "Options"),
        ("broker_quorum_listen", "unit of the witness", "ExecStart"),
        ("broker_drill_queue", "broker.xml", "security-settings"),
    ],
)
def test_a_variable_ends_where_the_page_says(variable: str, file: str, place: str) -> None:
    assert (file, place) in PLACES[variable]


def test_every_element_that_the_table_gives_to_a_variable_is_found_by_the_comparison() -> None:
    for variable in SCRIPT.table().topology:
        found = {place for file, place in PLACES[variable.name] if file == SCRIPT.BROKER_XML}
        for path in variable.xml:
            assert path in found, f"{variable.name}: {path}"


def test_a_variable_without_a_file_names_its_uses() -> None:
    page = SCRIPT.PAGE.read_text(encoding="utf-8")
    alone = [line for line in page.splitlines() if line.endswith("used by the checks of the inventory |")]
    assert {line.split("`")[1] for line in alone} == {"broker_extra_variables", "broker_failure_domain"}
