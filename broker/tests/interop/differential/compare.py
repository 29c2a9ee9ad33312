"""Compares the observations at two brokers: the first difference, and the smallest program that has one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from interop.differential.runner import Observation
from interop.differential.steps import Program

Seen = list[Observation]
Run = Callable[[Program], Seen]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first one of a program."""

    program: Program
    where: str
    """The step, or the part of the end."""
    paths: tuple[str, ...]
    """Paths of the values that differ."""
    ours: Any
    theirs: Any

    @property
    def sort(self) -> str:
        """Differences of one sort mostly have one cause."""
        step = self.where.partition(": ")[2].partition("(")[0]
        if self.where.startswith("end:"):
            step = "end " + step.split()[0]
        return f"{step} {' '.join(sorted(set(self.paths)))[:160]}"

    def describe(self) -> str:
        """Text with the program and the behaviour of each broker."""
        lines = [f"  {step!r}" for step in self.program]
        lines.append(f"differs at {self.where}")
        lines.extend(f"  {line}" for line in _lines(self.ours, self.theirs))
        return "\n".join(lines)


def first_difference(program: Program, ours: Seen, theirs: Seen) -> Difference | None:
    """The first step that was not the same."""
    for (where, mine), (_, other) in zip(ours, theirs, strict=False):
        if mine != other:
            return Difference(program, where, tuple(_paths(mine, other, "")), mine, other)
    if len(ours) != len(theirs):
        return Difference(program, "end: ", ("length",), len(ours), len(theirs))
    return None


def shrink(difference: Difference, find: Callable[[Program], Difference | None]) -> Difference:
    """Drop steps while a difference of the same kind of step remains."""
    kind = difference.sort.partition(" ")[0]
    best = difference
    size = max(1, len(best.program) // 2)
    while size:
        at = len(best.program) - size
        while at >= 0:
            smaller = best.program[:at] + best.program[at + size :]
            found = find(smaller) if smaller else None
            if found is not None and found.sort.partition(" ")[0] == kind:
                best = found
            at -= size
        size //= 2
    return best


def _paths(ours: Any, theirs: Any, path: str) -> list[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        found = []
        for key in [*ours, *(key for key in theirs if key not in ours)]:
            if ours.get(key) != theirs.get(key):
                found += _paths(ours.get(key), theirs.get(key), f"{path}.{key}" if path else str(key))
        return found
    if isinstance(ours, (tuple, list)) and isinstance(theirs, (tuple, list)) and len(ours) == len(theirs):
        return [
            inner
            for mine, other in zip(ours, theirs, strict=True)
            if mine != other
            for inner in _paths(mine, other, path)
        ]
    return [path or "answer"]


def _lines(ours: Any, theirs: Any) -> list[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        lines = []
        for key in [*ours, *(key for key in theirs if key not in ours)]:
            if ours.get(key) != theirs.get(key):
                inner = _lines(ours.get(key), theirs.get(key))
                lines += [f"{key}:", *(f"  {line}" for line in inner)]
        return lines
    if isinstance(ours, (tuple, list)) and isinstance(theirs, (tuple, list)) and len(ours) == len(theirs):
        lines = []
        for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            if mine != other:
                lines += [f"[{number}]", *(f"  {line}" for line in _lines(mine, other))]
        return lines
    return [f"understudy: {_short(ours)}", f"the other:  {_short(theirs)}"]


def _short(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_short(each) for each in value) + "]"
    if isinstance(value, tuple) and value and value[0] == "ReceiveMessage" and len(value) == 3:
        return f"{value[2]['body']} (delivery {value[1]['delivery count']})"
    return repr(value)
