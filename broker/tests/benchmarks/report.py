"""The tables of the peer benchmark."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks.goals import Goal
from benchmarks.perf_client import PERF_CLIENT

if TYPE_CHECKING:
    from benchmarks.peers import Target


def show(targets: Sequence[Target], cases: Mapping[str, str], goals: Sequence[Goal]) -> None:
    """One table per case, then what is the same for all cases, then the goals."""
    console = Console(width=118)
    for case, text in cases.items():
        console.print(_case_table(targets, case, text))
    if any(target.perf_per_s or PERF_CLIENT in target.failures for target in targets):
        console.print(_perf_table(targets))
    console.print(_process_table(targets))
    console.print(goal_table(goals))


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", min_width=min(len(title), 110))
    table.add_column(columns[0], no_wrap=True)
    for column in columns[1:]:
        table.add_column(column, justify="right")
    return table


def _case_table(targets: Sequence[Target], case: str, text: str) -> Table:
    latency = case == "latency"
    own = next((target.median(case, "per_s") for target in targets if target.name == "understudy"), None)
    table = _table(
        f"{case}: {text}", "broker", "messages/s", "lowest", "highest", "we are", "p50 us", "p99 us",
        "CPU us", "driver us", "MiB",
    )  # fmt: skip
    for target in targets:
        if target.skipped or case in target.failures:
            table.add_row(
                target.name, f"skipped: {target.skipped}" if target.skipped else f"FAILED: {target.failures[case]}"
            )
            continue
        rate = target.median(case, "per_s")
        if rate is None:
            continue
        rates = [outcome.per_s for outcome in target.samples[case]]
        ratio = f"{own / rate:.2f}x" if own and not latency and target.name != "understudy" else ""
        table.add_row(
            target.name, f"{rate:,.0f}", f"{min(rates):,.0f}", f"{max(rates):,.0f}", ratio,
            f"{target.median(case, 'p50_us'):,.0f}", f"{target.median(case, 'p99_us'):,.0f}",
            f"{target.median(case, 'broker_cpu_us'):.1f}", f"{target.median(case, 'driver_cpu_us'):.1f}",
            f"{target.median(case, 'resident_mib'):.0f}",
        )  # fmt: skip
    return table


def _perf_table(targets: Sequence[Target]) -> Table:
    table = _table(
        f"{PERF_CLIENT}: 1,000 uncompleted, the Java client is part of what is measured", "broker", "messages/s"
    )
    for target in targets:
        if PERF_CLIENT in target.failures:
            table.add_row(target.name, f"FAILED: {target.failures[PERF_CLIENT]}")
        elif target.perf_per_s:
            table.add_row(target.name, f"{statistics.median(target.perf_per_s):,.0f}")
    return table


def _process_table(targets: Sequence[Target]) -> Table:
    table = _table("the process", "broker", "start-up s", "idle MiB")
    for target in targets:
        if not target.skipped:
            table.add_row(target.name, f"{target.broker.started_s:.2f}", f"{target.broker.idle_mib:.0f}")
    return table


def goal_table(goals: Sequence[Goal]) -> Table:
    """What was wanted and what was found."""
    table = _table("goals", "what", "wanted", "found", "")
    for goal in goals:
        table.add_row(goal.text, goal.wanted, goal.found, {True: "met", False: "MISSED", None: "-"}[goal.met])
    return table
