"""The modules of the native kernel are short and use each other in no circle."""

from __future__ import annotations

import re

from support.architecture import ROOT, report, rules
from unit.architecture.test_imports import strongly_connected

SRC = ROOT / "broker" / "kernel" / "src"
SOURCES = sorted(SRC.rglob("*.rs"))
LINES_MAX: int = rules()["sizes"]["rust_lines"]  # type: ignore[index]  # a table of TOML
_USE = re.compile(r"\bcrate::(?:(?:core|log)::)?(\w+)")


def test_rust_modules_are_short() -> None:
    counts = {str(path.relative_to(SRC)): path.read_text().count("\n") for path in SOURCES}
    report(f"{name}: {count} lines, at most {LINES_MAX}" for name, count in counts.items() if count > LINES_MAX)


def test_rust_modules_use_each_other_in_no_circle() -> None:
    names = {path.stem for path in SOURCES}
    graph = {path.stem: (set(_USE.findall(path.read_text())) & names) - {path.stem} for path in SOURCES}
    assert graph["runs"], "no module is used: the pattern does not fit the sources any more"
    report(f"a circle: {', '.join(sorted(circle))}" for circle in strongly_connected(graph))
