"""Outside suites as ``suites.toml`` describes them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Replacement:
    """Lines of a suite that are changed before it runs."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Suite:
    """One outside suite."""

    name: str
    repository: str
    """Owner and name of the repository with its sources."""
    commit: str
    kind: str
    """``pytest``, ``go`` or ``junit``."""
    limit_s: int
    """Longest time of a run in seconds."""
    packages: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    certificates: dict[str, str] = field(default_factory=dict)
    """Paths of ``authority``, ``certificate`` and ``key`` in the sources."""
    replacements: tuple[Replacement, ...] = ()
    beside: dict[str, str] = field(default_factory=dict)
    """Folders of other sources by the path at which the suite looks for them."""
    service: tuple[str, ...] = ()
    """Command of a server that the suite needs beside the node."""
    removed: tuple[str, ...] = ()
    """Files that are left out."""
    project: str = ""
    """Folder beside this module that builds the suite; the sources are in its folder ``sources``."""


def suites(path: Path) -> dict[str, Suite]:
    """All suites by their names, in the order of the file."""
    found: dict[str, Suite] = {}
    for name, values in tomllib.loads(path.read_text()).items():
        values["replacements"] = tuple(Replacement(**each) for each in values.get("replacements", ()))
        for each in ("packages", "arguments", "service", "removed"):
            values[each] = tuple(values.get(each, ()))
        found[name] = Suite(name=name, **values)
    return found
