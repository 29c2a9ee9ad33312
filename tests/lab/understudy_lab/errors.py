"""Errors of the lab; each message names the host or the program and says how to go on."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class LabError(Exception):
    """A command of the lab failed; the message says which and why."""


class CannotRun(LabError):
    """This machine cannot run a lab; the message says why."""


def run(command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """Output of a program.

    Raises:
        LabError: the program ended with an error; the message has the last lines that it wrote.
    """
    try:
        done = subprocess.run(
            command, cwd=cwd, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
    except OSError as error:
        raise LabError(f"{command[0]}: {error}") from error
    if done.returncode:
        last = "\n".join(done.stdout.splitlines()[-15:])
        raise LabError(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{last}")
    return done.stdout
