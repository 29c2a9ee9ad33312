"""Programs with a restart of the broker in their middle: many of them before each restart, which takes seconds.

Each has names of its own, so what one leaves does not matter to the others. A broker ends by its own will or is
killed. Answered requests must hold after either; an unanswered request must hold at both brokers or at neither.

Elsewhere: drawing the program (``generator.restarting``), and running it between restarts (``runner``).
"""

from __future__ import annotations

from collections.abc import Sequence

from interop.differential.campaign import Verdict
from interop.differential.compare import Difference, Seen, first_difference
from interop.differential.generator import restarting
from interop.differential.runner import Runner
from interop.differential.steps import Program
from support.targets import Target


def judge_restarts(seeds: Sequence[int], understudy: Target, artemis: Target, *, killed: bool) -> list[Verdict]:
    """Run the programs of some seeds at both, with one restart for all of them. What differs is not made small: each
    attempt would take a restart.
    """

    def find(programs: Sequence[Program]) -> list[Difference | None]:
        ours, theirs = (_run(programs, target, killed=killed) for target in (understudy, artemis))
        return [first_difference(*each) for each in zip(programs, ours, theirs, strict=True)]

    verdicts = {seed: Verdict(seed) for seed in seeds}
    found = dict(zip(seeds, find([restarting(seed, killed=killed) for seed in seeds]), strict=True))
    different = {seed: first for seed, first in found.items() if first is not None}
    if different:
        for (seed, first), again in zip(
            different.items(), find([each.program for each in different.values()]), strict=True
        ):
            same = again is not None and (again.where, again.ours, again.theirs) == (
                first.where,
                first.ours,
                first.theirs,
            )
            verdicts[seed] = Verdict(seed, difference=first) if same else Verdict(seed, unstable=first)
    return [*verdicts.values()]


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
