"""Reports of benchmarks whose brokers run the same cases in turn: a table, text for each case, or JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import click
from rich.console import Console

from benchmarks.goals import Goal
from benchmarks.report import goal_table, markdown_table


class CaseRow(Protocol):
    """A broker and the figures of its runs, which have a rate ``per_s`` and the processor time ``broker_cpu_us``."""

    name: str
    failures: dict[str, str]
    """Reason of the failed run of a case, by case."""

    @property
    def samples(self) -> Mapping[str, Sequence[Any]]:
        """Figures of each run, by case."""
        ...

    def median(self, run: str, figure: str) -> float | None:
        """The median of a figure over the rounds of a case; None if no round has it."""
        ...


@dataclass(frozen=True)
class CaseReport:
    """The report of one run of a benchmark."""

    benchmark: str
    texts: Mapping[str, str]
    """Text of each case, by case."""
    cases: Sequence[str]
    """Cases that were run."""
    other: str
    """Process whose processor time is shown beside that of the broker: the figure ``<other>_cpu_us``."""
    decimals: int
    """Decimals of processor times."""

    def last(self, row: CaseRow, case: str) -> str:
        """The newest run of a case, in one line."""
        if case in row.failures:
            return f"FAILED: {row.failures[case]}"
        figures = row.samples[case][-1]
        return f"{figures.per_s:,.0f}/s, {self._us(figures.broker_cpu_us)} us"

    def print(
        self, rows: Sequence[CaseRow], goals: Sequence[Goal], *, rounds: int, as_json: bool, as_markdown: bool
    ) -> None:
        """Write everything to the standard output."""
        if as_json:
            facts = {
                row.name: {
                    "samples": {case: [asdict(each) for each in figures] for case, figures in row.samples.items()},
                    "failures": row.failures,
                }
                for row in rows
            }
            goals_of = [asdict(goal) for goal in goals]
            click.echo(json.dumps({"benchmark": self.benchmark, "rounds": rounds, "rows": facts, "goals": goals_of}))
        elif as_markdown:
            click.echo(markdown_table(("case", *(row.name for row in rows), "ratio"), self._lines(rows, goals)))
        else:
            self._show(rows, goals)

    def _us(self, value: float) -> str:
        return f"{value:,.{self.decimals}f}"

    def _lines(self, rows: Sequence[CaseRow], goals: Iterable[Goal]) -> list[tuple[str, ...]]:
        """Rate of each broker in each case and, in brackets, its processor time in us."""
        verdicts = {goal.text: goal for goal in goals}
        lines = []
        for case in self.cases:
            cells = [f"{self.texts[case]} (`{case}`)"]
            for row in rows:
                per_s, cpu_us = row.median(case, "per_s"), row.median(case, "broker_cpu_us")
                failed = "failed" if case in row.failures else ""
                cells.append(f"{per_s:,.0f} ({self._us(cpu_us)})" if per_s and cpu_us is not None else failed)
            goal = verdicts.get(case)
            known = goal is not None and goal.met is not None
            cells.append(f"{goal.found}: {'met' if goal.met else 'missed'}" if goal is not None and known else "")
            lines.append(tuple(cells))
        return lines

    def _show(self, rows: Sequence[CaseRow], goals: Sequence[Goal]) -> None:
        console = Console(width=118)
        for case in self.cases:
            console.print(f"{case}: {self.texts[case]}", highlight=False)
            for row in rows:
                if case in row.failures:
                    console.print(f"  {row.name:20} FAILED: {row.failures[case]}", highlight=False, markup=False)
                elif rates := [each.per_s for each in row.samples.get(case, ())]:
                    middle, cpu_us = statistics.median(rates), row.median(case, "broker_cpu_us")
                    other_us = row.median(case, f"{self.other}_cpu_us")
                    assert cpu_us is not None
                    assert other_us is not None
                    spread = f"{min(rates):,.0f} to {max(rates):,.0f}"
                    times = f"CPU {self._us(cpu_us)} us, {self.other} {self._us(other_us)} us"
                    console.print(f"  {row.name:20}{middle:12,.0f}/s ({spread}), {times}", highlight=False)
        console.print(goal_table(goals))
