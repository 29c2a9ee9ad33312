#!/usr/bin/env python3
"""Run the parts of the test suite and say what ran and how long it took.

    .ci/parts.py [--at-once N] NAME=COMMAND [NAME=COMMAND ...]

Parts begin in the order of the list, N at a time (one unless said otherwise): some parts compute, others mostly wait.
The longest ones come first in the list, so that none of them is left alone at the end.
A part's output goes to the terminal as it comes if one part runs at a time, and when the part ends otherwise. A part
that ends with exit code 77 could not run on this machine: its last line says why, and it counts as skipped. Every other
non-zero exit is a failure; the remaining parts still run. Exit code 1 when a part failed.

The table at the end has the time of each part and the processor time of its processes: where the second is far below
the first, the part waited, for timers or for the parts beside it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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


def run_and_report(part: str, collected: bool) -> Outcome:
    """Run a part and say how it ended.

    Args:
        part: ``NAME=COMMAND``.
        collected: Show the output of the part when it ends, not as it comes.
    """
    name, _, command = part.partition("=")
    lines: list[str] = []
    print(f"\n=== {name}: {'begins' if collected else command}", flush=True)
    began = time.monotonic()
    code, processor_seconds, last = run_part(command, lines.append if collected else show_line)
    seconds = time.monotonic() - began
    outcome = {0: "passed", SKIPPED: "skipped"}.get(code, "failed")
    head = f"\n=== {name}: {command}\n" if collected else ""
    # one write, so that parts that end at the same time do not mix their lines
    print(f"{head}{''.join(lines)}=== {name}: {outcome} in {seconds:.0f} s\n", end="", flush=True)
    return Outcome(name, outcome, seconds, processor_seconds, last if outcome == "skipped" else "")


def show_line(line: str) -> None:
    print(line, end="", flush=True)


def main(arguments: list[str]) -> int:
    if not arguments or "--help" in arguments:
        print(__doc__)
        return 0 if arguments else 2
    at_once, parts = 1, arguments
    if arguments[0] == "--at-once":
        at_once, parts = int(arguments[1]), arguments[2:]
    with ThreadPoolExecutor(at_once) as pool:
        rows = list(pool.map(lambda part: run_and_report(part, at_once > 1), parts))
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
