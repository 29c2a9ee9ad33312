"""The drawn machines are the declared ones."""

from __future__ import annotations

import ast
from pathlib import Path

import understudy
from documents.diagrams import MODULES, machines, page

DOCS = Path(__file__).parents[4] / "docs" / "build" / "machines"


def test_committed_diagrams_are_current() -> None:
    for name, machine in machines().items():
        assert (DOCS / name).read_text() == page(machine), f"{name} is stale: make docs"


def test_every_machine_is_drawn() -> None:
    root = Path(understudy.__file__).parent
    declaring = {
        "understudy." + str(path.relative_to(root)).removesuffix(".py").replace("/", ".")
        for path in root.rglob("*.py")
        if "TABLE" in (text := path.read_text())
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(target, ast.Assign) and ast.unparse(target.targets[0]) == "TABLE" for target in node.body)
    }
    assert declaring - {"understudy.machine"} == set(MODULES)
