# SPDX-License-Identifier: Apache-2.0
"""Units of systemd that a host has, is to start at boot and is to run, and the commands that lead there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.understudy.broker.plugins.module_utils import files

DIRECTORY = Path("/etc/systemd/system")
"""Directory of the unit files."""
PROPERTIES = ("Id", "UnitFileState", "ActiveState", "NeedDaemonReload")
STARTED, ANY, ABSENT = "started", "any", "absent"


@dataclass(frozen=True)
class Unit:
    """One unit as it is wanted."""

    name: str
    content: str | None
    """Text of its file; None: the file is there already."""
    enabled: bool
    """Whether it is started at boot."""
    started: bool
    """Whether it has to run now; a unit that runs is not restarted."""
    absent: bool = False
    """Whether it must not be there; then it is stopped first."""


@dataclass(frozen=True)
class Present:
    """One unit as systemd knows it."""

    enabled: bool
    active: bool
    outdated: bool = False
    """Whether its file has changed since systemd has read it, for instance because a run was interrupted."""


def outdated(units: Iterable[Unit], directory: Path) -> list[Unit]:
    """Units whose file is missing or differs."""

    def text(unit: Unit) -> str | None:
        try:
            return (directory / unit.name).read_text(encoding="utf-8")
        except (FileNotFoundError, UnicodeDecodeError):
            return None

    return [unit for unit in units if unit.content is not None and text(unit) != unit.content]


def parse_units(output: str) -> dict[str, Present]:
    """Units by name, from the output of ``systemctl show`` with ``PROPERTIES``, one block for each."""
    found = {}
    for block in output.split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if values.get("Id"):
            found[values["Id"]] = Present(
                enabled=values.get("UnitFileState") in ("enabled", "enabled-runtime"),
                active=values.get("ActiveState") == "active",
                outdated=values.get("NeedDaemonReload") == "yes",
            )
    return found


def commands(units: Sequence[Unit], present: Mapping[str, Present]) -> list[list[str]]:
    """What ``systemctl`` has to do, in order; empty if nothing."""
    missing = Present(enabled=False, active=False)
    states = {unit.name: present.get(unit.name, missing) for unit in units}
    wanted = {
        "stop": [unit.name for unit in units if unit.absent and states[unit.name].active],
        "enable": [unit.name for unit in units if unit.enabled and not states[unit.name].enabled],
        "disable": [unit.name for unit in units if not unit.enabled and states[unit.name].enabled],
        "start": [unit.name for unit in units if unit.started and not states[unit.name].active],
    }
    return [[verb, *names] for verb, names in wanted.items() if names]


def in_place(
    wanted: Iterable[Mapping[str, object]],
    found: Mapping[str, Mapping[str, object]],
    states: Mapping[str, Mapping[str, bool]],
) -> bool:
    """Whether nothing is to be done for units.

    Args:
        wanted: Wanted units, as the module ``units`` takes them.
        found: What ``files.describe`` returned for their files, by path.
        states: Their enabled, active and outdated (``Present``), by name, of those that have a file.
    """
    for unit in wanted:
        name, content, state = str(unit["name"]), unit.get("content"), states.get(str(unit["name"]))
        if unit.get("state") == ABSENT:
            if state is not None:
                return False
            continue
        file = {"path": f"{DIRECTORY}/{name}", "content": content, "mode": "0644"}
        if state is None or (content is not None and not files.in_place([file], found)):
            return False
        if state["outdated"] or state["enabled"] != bool(unit.get("enabled", False)):
            return False
        if unit.get("state") == STARTED and not state["active"]:
            return False
    return True


def mount_unit_name(path: str) -> str:
    """Name of the mount unit of an absolute path, as ``systemd-escape --path --suffix=mount`` gives it.

    Raises:
        ValueError: the path is not absolute, or has a component ``.`` or ``..``.
    """
    parts = [part for part in path.split("/") if part]
    if not path.startswith("/") or {".", ".."} & set(parts):
        raise ValueError(f"{path!r} is no absolute path without . and ..")
    if not parts:
        return "-.mount"
    escaped = "-".join(_escape(part) for part in parts)
    return f"{_hex(escaped[0]) + escaped[1:] if escaped[0] == '.' else escaped}.mount"


def _escape(part: str) -> str:
    kept = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:_."
    return "".join(char if char in kept else _hex(char) for char in part)


def _hex(char: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in char.encode())
