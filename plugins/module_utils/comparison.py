"""Copies of one node's journal, as ``understudy data compare`` and ``data verify`` describe them in JSON, in short.

Copies in one place are compared record by record by the command. Of copies on several hosts only their ends are known
here; which one is newest follows from that, not whether one is the beginning of the other. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

IN_LOG_ORDER = ("epoch", "last_sequence")

USAGE = 2
UNREADABLE = 3


class NotComparable(ValueError):
    """There is no verdict; the message says why."""


def read_json(command: Sequence[str], code: int, output: str, errors: str) -> dict[str, Any]:
    """What a command has printed.

    Raises:
        NotComparable: it refused, could not read a store, or printed something else than JSON.
    """
    said = (errors.strip() or output.strip())[-2000:]
    if code in (USAGE, UNREADABLE):
        lines = [line for line in said.splitlines() if line and not line.startswith(("Usage:", "Try "))]
        raise NotComparable(" ".join(lines).removeprefix("Error: ") or f"exit code {code}")
    try:
        found = json.loads(output)
    except ValueError as error:
        raise NotComparable(f"{' '.join(command)}: exit code {code}, {said or 'no output'}") from error
    if not isinstance(found, dict):
        raise NotComparable(f"{' '.join(command)} printed no object")
    return found


def summary(comparison: Mapping[str, Any]) -> dict[str, object]:
    """The verdict of ``data compare --json`` as the module returns it.

    Raises:
        KeyError: a value is missing.
    """
    pairs = [
        {
            "left": pair["left"],
            "right": pair["right"],
            "relation": pair["relation"],
            "common_until": common_until(pair, comparison["copies"]),
            "left_only_messages": pair["left_only"]["replay_messages"],
            "right_only_messages": pair["right_only"]["replay_messages"],
        }
        for pair in comparison["pairs"]
    ]
    copies = [copy_of(copy["directory"], copy) for copy in comparison["copies"]]
    return {
        "copies": copies,
        "newest": list(comparison["newest"]),
        "pairs": pairs,
        "diverged": any(pair["relation"] in ("diverged", "unknown") for pair in pairs),
        "damaged": [copy["name"] for copy in copies if copy["state"] == "damaged"],
        "plan": list(comparison["plan"]),
    }


def common_until(pair: Mapping[str, Any], copies: Sequence[Mapping[str, Any]]) -> int:
    """Last sequence that both copies of a pair have in common; 0 if none is known."""
    if pair["relation"] == "unknown":
        return 0
    if pair["relation"] == "identical":
        return next(int(copy["last_sequence"]) for copy in copies if copy["directory"] == pair["left"])
    return int(pair["sequence"]) - 1


def copy_of(name: str, report: Mapping[str, Any]) -> dict[str, object]:
    """One copy as the module returns it."""
    return {
        "name": name,
        "node_id": report["node_id"],
        "epoch": report["epoch"],
        "last_sequence": report["last_sequence"],
        "live_messages": report["live_messages"],
        "state": report["state"],
    }


def copy_of_verification(name: str, report: Mapping[str, Any]) -> dict[str, object]:
    """One copy from ``data verify --json``."""
    return copy_of(name, {**report, "state": "damaged" if report["problems"] else "whole"})


def across_hosts(copies: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """Which of several copies is newest, from what the module returned on each host.

    Raises:
        NotComparable: they are of different nodes, or one is incomplete.
    """
    names = [str(copy.get("name")) for copy in copies]
    if len(set(names)) < len(names):
        raise NotComparable(f"two copies have the same name: {', '.join(sorted(names))}")
    missing = [
        name for name, copy in zip(names, copies, strict=True) if any(copy.get(key) is None for key in IN_LOG_ORDER)
    ]
    if missing:
        problem = "without epoch and last_sequence; give the results 'copies' of this module"
        raise NotComparable(f"{', '.join(missing)}: {problem}")
    nodes: dict[str, list[str]] = {}
    for name, copy in zip(names, copies, strict=True):
        if copy.get("node_id") is not None:
            nodes.setdefault(str(copy["node_id"]), []).append(name)
    if len(nodes) > 1:
        parts = "; ".join(f"node {node}: {', '.join(found)}" for node, found in sorted(nodes.items()))
        raise NotComparable(f"the copies are of different nodes: {parts}. Compare copies of one node only")
    places = [tuple(int(copy[key]) for key in IN_LOG_ORDER) for copy in copies]
    best = max(places)
    newest = [name for name, place in zip(names, places, strict=True) if place == best]
    damaged = [name for name, copy in zip(names, copies, strict=True) if copy.get("state") == "damaged"]
    return {
        "copies": [dict(copy) for copy in copies],
        "newest": newest,
        "pairs": [],
        "diverged": None,
        "damaged": damaged,
        "plan": _plan(newest, names, damaged, best),
    }


def _plan(newest: Sequence[str], names: Sequence[str], damaged: Sequence[str], best: tuple[int, ...]) -> list[str]:
    others = [name for name in names if name not in newest]
    plan = [f"{name} is damaged; only the records before the damage are valid. Keep it." for name in damaged]
    ends = "ends" if len(newest) == 1 else "end"
    plan.append(f"{' and '.join(newest)} {ends} last, at epoch {best[0]}, sequence {best[1]}.")
    compared = [*newest, *others]
    if len(compared) > 1:
        plan.append(
            f"Bring the journals of {', '.join(compared)} to one host and compare them there before any node starts: "
            "only the records show whether one copy is the beginning of the other."
        )
    return plan
