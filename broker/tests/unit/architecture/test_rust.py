"""The modules of the native kernel are short and use each other in no circle."""

from __future__ import annotations

import re

from support.architecture import ROOT, report, rules
from unit.architecture.test_imports import strongly_connected

SOURCES = sorted((ROOT / "broker" / "kernel" / "src").glob("*.rs"))
LINES_MAX: int = rules()["sizes"]["rust_lines"]  # type: ignore[index]  # a table of TOML
_USE = re.compile(r"\bcrate::(\w+)")


def test_rust_modules_are_short() -> None:
    counts = {path.name: path.read_text().count("\n") for path in SOURCES}
    report(f"{name}: {count} lines, at most {LINES_MAX}" for name, count in counts.items() if count > LINES_MAX)


def test_rust_modules_use_each_other_in_no_circle() -> None:
    names = {path.stem for path in SOURCES}
    graph = {path.stem: (set(_USE.findall(path.read_text())) & names) - {path.stem} for path in SOURCES}
    assert graph["log"], "no module is used: the pattern does not fit the sources any more"
    report(f"a circle: {', '.join(sorted(circle))}" for circle in strongly_connected(graph))
