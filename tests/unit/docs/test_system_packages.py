"""Debian packages come with the targets that need them: ``make setup`` asks for no server and no Java."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / ".ci" / "system-packages"
RULES = (ROOT / "Makefile").read_text() + (ROOT / ".ci" / "collection.mk").read_text()
#: Groups of each call, with the target that makes it.
CALLS = [
    (target, call.split())
    for target, recipe in re.findall(r"^(\S[^:=\n]*):(?!=).*\n((?:\t.*\n)+)", RULES, re.MULTILINE)
    for call in re.findall(r"^\t@?\.ci/system-packages (.*)$", recipe, re.MULTILINE)
]
GROUPS = set(re.findall(r"^    (\w+)\)", SCRIPT.read_text(), re.MULTILINE))


def test_targets_name_groups_that_exist() -> None:
    assert {group for _target, groups in CALLS for group in groups} == GROUPS


def test_a_setup_installs_what_the_broker_needs_and_nothing_else() -> None:
    assert [groups for target, groups in CALLS if target == "$(VENV)/.complete"] == [["python"]]
    assert not [target for target, _groups in CALLS if target in ("setup", "$(VENV)/.kernel")]


@pytest.mark.parametrize(
    "target",
    ["test", "test-further", "test-all", "integration-1", "integration-2", "interop", "interop-short", "lab", "ssh"],
)
def test_targets_with_servers_install_them(target: str) -> None:
    assert any(groups != ["python"] for names, groups in CALLS if target in names.split())


def test_an_unknown_group_is_refused_with_the_names_of_all() -> None:
    done = subprocess.run([SCRIPT, "servers"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert all(group in done.stderr for group in GROUPS)
