"""Runs of the jobs of a pipeline host, now, and the reports that they leave.

``etc/jobs/NAME.json`` below the root of the pipeline says how a job is run; ``latest.json`` in the directory of its
reports links to the report of the newest run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Run = Callable[[Sequence[str]], "tuple[int, str, str]"]

LATEST = "latest.json"
JOURNAL_LINES = 20


class PipelineError(Exception):
    """A job cannot be run, or has left no report; the message says why."""


@dataclass(frozen=True)
class Job:
    """One job as it is deployed on this host."""

    name: str
    unit: str
    """Systemd unit that runs it; empty where there is no systemd."""
    runner: tuple[str, ...]
    definition: Path
    reports: Path

    def newest(self) -> str:
        """Name of the newest report; empty if there is none."""
        link = self.reports / LATEST
        if not link.is_symlink():
            return ""
        name = os.readlink(link)
        # the directory belongs to the user of the jobs, and this may be root
        if "/" in name:
            raise PipelineError(f"{link} leads out of {self.reports}")
        return name

    def run(self, run: Run) -> dict[str, object]:
        """Run it to its end, or wait for the end of a run that goes on; the report.

        Raises:
            PipelineError: no run has ended meanwhile.
        """
        before = self.newest()
        command = ["systemctl", "start", self.unit] if self.unit else [*self.runner, str(self.definition)]
        _code, output, error = run(command)
        after = self.newest()
        if after == before:
            said = (error or output).strip()
            if self.unit:
                _code, lines, _error = run(
                    ["journalctl", "-u", self.unit, "-n", str(JOURNAL_LINES), "-o", "cat", "--no-pager"]
                )
                said = f"{said}\n{lines.strip()}"
            raise PipelineError(f"job {self.name} left no report: {said}")
        return self.read(after)

    def read(self, name: str) -> dict[str, object]:
        """One report, with the other files of its run.

        Raises:
            PipelineError: it cannot be read.
        """
        path = self.reports / name
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise PipelineError(f"report {path} cannot be read: {error}") from error
        if not isinstance(found, dict):
            raise PipelineError(f"report {path} is no JSON object")
        run = name.removesuffix(".json")
        others = sorted(str(each) for each in self.reports.iterdir() if each.name.startswith(run) and each != path)
        return {**found, "report": str(path), "files": others}


def open_job(root: Path, name: str) -> Job:
    """The job with this name below the root of a pipeline.

    Raises:
        PipelineError: there is none, or its definition cannot be used.
    """
    directory = root / "etc" / "jobs"
    path = directory / f"{name}.json"
    if "/" in name or not path.is_file():
        known = ", ".join(sorted(each.stem for each in directory.glob("*.json"))) or "none"
        raise PipelineError(f"{root} has no job {name!r}; it has: {known}")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PipelineError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, Mapping) or not all(key in found for key in ("unit", "runner", "reports")):
        raise PipelineError(f"{path} is no definition of a job")
    return Job(name, str(found["unit"]), tuple(map(str, found["runner"])), path, Path(str(found["reports"])))
