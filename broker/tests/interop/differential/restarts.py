"""Programs with a restart of the broker in their middle: many of them before each restart, which takes seconds.

Each has names of its own, so what one leaves does not matter to the others. A broker ends by its own will or is
killed; what it had answered must be there again either way, and what it had not must be gone at both or at neither.

Not here: what is drawn (``generator.restarting``), how a program is run between restarts (``runner``).
"""

from __future__ import annotations

from collections.abc import Sequence

from interop.differential.campaign import Verdict
from interop.differential.compare import Difference, Seen, first_difference
from interop.differential.generator import restarting
from interop.differential.runner import Runner
from interop.differential.steps import Program, Restart
from support.targets import Target


def judge_restarts(
    seeds: Sequence[int], understudy: Target, artemis: Target, *, killed: bool, shrinking: bool = True
) -> list[Verdict]:
    """Run the programs of some seeds at both, with one restart for all of them."""

    def find(programs: Sequence[Program]) -> list[Difference | None]:
        ours, theirs = (_run(programs, target, killed=killed) for target in (understudy, artemis))
        return [first_difference(*each) for each in zip(programs, ours, theirs, strict=True)]

    verdicts: list[Verdict] = []
    for seed, first in zip(seeds, find([restarting(seed) for seed in seeds]), strict=True):
        if first is None:
            verdicts.append(Verdict(seed))
            continue
        (again,) = find([first.program])
        if again is None or (again.where, again.ours, again.theirs) != (first.where, first.ours, first.theirs):
            verdicts.append(Verdict(seed, unstable=first))
            continue
        verdicts.append(Verdict(seed, _shrink(first, find) if shrinking else first))
    return verdicts


def _run(programs: Sequence[Program], target: Target, *, killed: bool) -> list[Seen]:
    runners = [Runner(target.node.port, alone=False) for _ in programs]
    stages = [runner.stages(program) for runner, program in zip(runners, programs, strict=True)]
    for each in stages:
        next(each)
    if killed:
        target.node.kill()
    else:
        target.node.terminate()
    target.node.start().wait_ready("active")
    for each in stages:
        assert next(each, "ended") == "ended", "one restart a program"
    return [runner.seen for runner in runners]


def _shrink(difference: Difference, find: object) -> Difference:
    """As ``compare.shrink``, but all that one round tries is tried with one restart."""
    assert callable(find)
    kind = difference.sort.partition(" ")[0]
    best = difference
    size = max(1, len(best.program) // 2)
    while size:
        program = best.program
        tries = [program[:at] + program[at + size :] for at in range(len(program) - size, -1, -size)]
        tries = [each for each in tries if any(isinstance(step, Restart) for step in each)]
        found = [each for each in find(tries) if each is not None and each.sort.partition(" ")[0] == kind]
        if found:
            best = found[0]
        else:
            size //= 2
    return best
