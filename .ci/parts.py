#!/usr/bin/env python3
"""Run the parts of the test suite one after the other and say what ran and how long it took.

    .ci/parts.py NAME=COMMAND [NAME=COMMAND ...]

Each part's output goes to the terminal as it comes. A part that ends with exit code 77 could not
run on this machine: its last line says why, and it counts as skipped. Every other non-zero exit
is a failure; the remaining parts still run. Exit code 1 when a part failed.
"""

from __future__ import annotations

import subprocess
import sys
import time

SKIPPED = 77


def run_part(command: str) -> tuple[int, str]:
    """Exit code and last line of a part, its output passed on while it runs."""
    last = ""
    with subprocess.Popen(
        ["bash", "-o", "pipefail", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    return process.returncode, last


def main(arguments: list[str]) -> int:
    if not arguments or "--help" in arguments:
        print(__doc__)
        return 0 if arguments else 2
    rows: list[tuple[str, str, float, str]] = []
    for position, argument in enumerate(arguments, start=1):
        name, _, command = argument.partition("=")
        print(f"\n=== {position}/{len(arguments)} {name}: {command}", flush=True)
        began = time.monotonic()
        code, last = run_part(command)
        outcome = {0: "passed", SKIPPED: "skipped"}.get(code, "failed")
        rows.append((name, outcome, time.monotonic() - began, last if outcome == "skipped" else ""))
        print(f"=== {name}: {outcome} in {rows[-1][2]:.0f} s", flush=True)
    width = max(len(name) for name, *_ in rows)
    print("\nWhat ran")
    for name, outcome, seconds, why in rows:
        print(f"  {name:<{width}}  {outcome:<7}  {seconds:6.1f} s  {why}")
    counts = {word: sum(row[1] == word for row in rows) for word in ("passed", "failed", "skipped")}
    print(f"\n{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
