"""One seed: its program at both brokers, and the outcome.

A difference counts only if it is there again: a program that one of the brokers does not carry out the same way twice
is called unstable, and is reported as that.
"""

from __future__ import annotations

from dataclasses import dataclass

from interop.differential.compare import Difference, first_difference, shrink
from interop.differential.generator import program
from interop.differential.runner import Runner
from interop.differential.steps import Program


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of the program of one seed at both brokers."""

    seed: int
    difference: Difference | None = None
    unstable: Difference | None = None
    """One that was not there the second time."""


def judge(seed: int, understudy_port: int, artemis_port: int, *, shrinking: bool = True) -> Verdict:
    """Run the program of a seed at both."""

    def find(candidate: Program) -> Difference | None:
        return first_difference(candidate, Runner(understudy_port).run(candidate), Runner(artemis_port).run(candidate))

    first = find(program(seed))
    if first is None:
        return Verdict(seed)
    again = find(first.program)
    if again is None or (again.where, again.ours, again.theirs) != (first.where, first.ours, first.theirs):
        return Verdict(seed, unstable=first)
    return Verdict(seed, shrink(first, find) if shrinking else first)
