"""Every class that the glossary names exists."""

from __future__ import annotations

import re

from support.architecture import ROOT, classes, report

GLOSSARY = ROOT / "docs" / "glossary.md"
_ENTRY = re.compile(r"^\| (?P<word>[^|]+) \| [^|]+ \| (?:`(?P<name>[\w.]+)`|\([^|]+\)) \|$", re.M)
ENTRIES_MIN = 60


def test_the_glossary_names_classes_that_exist() -> None:
    existing = {f"{each.module.name}.{each.node.name}" for each in classes()} | {
        "ids.NodeId",
        "planted.planting.PlantedBug",
    }
    entries = list(_ENTRY.finditer(GLOSSARY.read_text()))
    assert len(entries) >= ENTRIES_MIN
    report(
        f"{entry['word']}: {entry['name']} does not exist"
        for entry in entries
        if entry["name"] is not None and entry["name"] not in existing
    )
