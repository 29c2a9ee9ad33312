"""Goal: an inventory of the collection has only variables that the page of variables describes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
INVENTORIES = sorted([*(ROOT / "inventories").glob("*/hosts.yml"), *(ROOT / "molecule").glob("*/addresses.yml")])
DOCUMENTED = set(re.findall(r"^\| `(broker_\w+)` \|", (ROOT / "docs/operate/variables.md").read_text(), re.MULTILINE))


def variables(node: object) -> Iterator[str]:
    """Names of all variables below a group of an inventory."""
    if not isinstance(node, dict):
        return
    yield from node.get("vars") or {}
    for host in (node.get("hosts") or {}).values():
        yield from host or {}
    for child in (node.get("children") or {}).values():
        yield from variables(child)


@pytest.mark.parametrize("path", INVENTORIES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_an_inventory_has_documented_variables_only(path: Path) -> None:
    names = {name for group in yaml.safe_load(path.read_text()).values() for name in variables(group)}
    assert {name for name in names if name.startswith("broker_")} <= DOCUMENTED


@pytest.mark.parametrize("path", INVENTORIES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_only_the_inventory_of_the_demo_turns_security_off(path: Path) -> None:
    off = "broker_security_enabled: false" in path.read_text()
    assert off == (path.parent.name == "localhost")
