#!/usr/bin/env python3
"""Run the parts of the test suite and say what ran and how long it took.

    .ci/parts.py NAME=COMMAND [NAME=COMMAND ...] [--beside NAME=COMMAND ...] [--then NAME=COMMAND ... [--beside ...]]

Parts run one after the other. Those after a --beside run at the same time as the ones before it: some parts compute,
others mostly wait. Those after --then wait until all parts before it have ended.
Each part's output goes to the terminal as it comes, that of a part after --beside when the part ends. A part that
ends with exit code 77 could not run on this machine: its last line says why, and it counts as skipped. Every other
non-zero exit is a failure; the remaining parts still run. Exit code 1 when a part failed.

The table at the end has the time of each part and the processor time of its processes: where the second is far below
the first, the part waited, for timers or for the parts beside it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

SKIPPED = 77


@dataclass(frozen=True)
class Outcome:
    """What became of one part."""

    name: str
    outcome: str
    seconds: float
    processor_seconds: float
    why: str


def run_part(command: str, show: Callable[[str], object]) -> tuple[int, float, str]:
    """Exit code, processor time in s, and last line of a part; ``show`` gets its output line by line."""
    last = ""
    with subprocess.Popen(
        ["bash", "-o", "pipefail", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            show(line)
            last = line.strip() or last
        # the time of the children that it waited for is part of it
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime, last


def run_group(parts: list[str], rows: list[Outcome], collected: bool) -> None:
    """Run parts one after the other and append a row for each.

    Args:
        parts: ``NAME=COMMAND`` each.
        rows: Outcomes of the parts of all groups, to which those of this group are appended.
        collected: Show the output of a part when it ends, not as it comes.
    """
    for part in parts:
        name, _, command = part.partition("=")
        lines: list[str] = []
        head = f"\n=== {name}: {command}"
        if collected:
            lines.append(f"{head}\n")
        else:
            print(head, flush=True)
        began = time.monotonic()
        code, processor_seconds, last = run_part(command, lines.append if collected else show_line)
        outcome = {0: "passed", SKIPPED: "skipped"}.get(code, "failed")
        seconds = time.monotonic() - began
        row = Outcome(name, outcome, seconds, processor_seconds, last if outcome == "skipped" else "")
        rows.append(row)
        print(f"{''.join(lines)}=== {name}: {outcome} in {row.seconds:.0f} s", flush=True)


def show_line(line: str) -> None:
    print(line, end="", flush=True)


def main(arguments: list[str]) -> int:
    if not arguments or "--help" in arguments:
        print(__doc__)
        return 0 if arguments else 2
    # of each phase: the groups that run at the same time, each of parts that run one after the other
    phases: list[list[list[str]]] = [[[]]]
    for argument in arguments:
        if argument == "--beside":
            phases[-1].append([])
        elif argument == "--then":
            phases.append([[]])
        else:
            phases[-1][-1].append(argument)
    rows: list[Outcome] = []
    for first, *others in phases:
        beside = [threading.Thread(target=run_group, args=(group, rows, True)) for group in others]
        for thread in beside:
            thread.start()
        run_group(first, rows, False)
        if any(thread.is_alive() for thread in beside):
            print("\n=== waiting for the parts that run beside", flush=True)
        for thread in beside:
            thread.join()
    width = max(len(row.name) for row in rows)
    print("\nWhat ran")
    for row in rows:
        processor = f"{row.processor_seconds:6.1f} s of processor"
        print(f"  {row.name:<{width}}  {row.outcome:<7}  {row.seconds:6.1f} s  {processor}  {row.why}".rstrip())
    counts = {word: sum(row.outcome == word for row in rows) for word in ("passed", "failed", "skipped")}
    print(f"\n{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
