"""The tables of the peer benchmark, for a terminal and as in docs/build/benchmarks.md."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks.cases import ALL, SIZES
from benchmarks.content import SHAPES
from benchmarks.goals import Goal
from benchmarks.perf_client import PERF_CLIENT

if TYPE_CHECKING:
    from benchmarks.peers import Plan, Target

_WIDTH = 118


def show(targets: Sequence[Target], plan: Plan, goals: Sequence[Goal]) -> None:
    """One table per case and shape, one of all sizes per shape, the values that are equal for all cases, then the
    goals.
    """
    console = Console(width=_WIDTH)
    for case, shape, run in plan.runs():
        if case not in SIZES:
            title = f"{case}: {ALL[case][0]}; {shape} messages ({SHAPES[shape].text})"
            console.print(_case_table(targets, run, title))
    for shape in plan.shapes:
        sizes = [case for case in plan.cases if case in SIZES]
        if sizes:
            title = f"sizes: as pipelined; {shape} messages ({SHAPES[shape].text})"
            console.print(_grid(title, _SIZE_COLUMNS, _size_rows(targets, sizes, shape)))
    if any(target.perf_per_s or PERF_CLIENT in target.failures for target in targets):
        console.print(_perf_table(targets))
    console.print(_grid("the process", _PROCESS_COLUMNS, _process_rows(targets)))
    console.print(goal_table(goals))
    for line in _failures(targets):
        console.print(line, highlight=False, markup=False)


def markdown(targets: Sequence[Target], plan: Plan, goals: Sequence[Goal]) -> str:
    """One table of all cases per shape, one of sizes per shape, the process, then the goals."""
    parts = []
    cases = [case for case in plan.cases if case in ALL and case not in SIZES]
    sizes = [case for case in plan.cases if case in SIZES]
    for shape in plan.shapes:
        about = f"{shape} messages ({SHAPES[shape].text})"
        if cases:
            parts += [f"Messages/s, broker CPU µs per message, ratio of us to it; {about}:"]
            parts += [markdown_table(("broker", *cases), _summary_rows(targets, cases, shape))]
        if sizes:
            names = [target.name for target in targets if not target.skipped]
            parts += [f"MB/s, broker CPU µs per KiB of body; {about}:"]
            parts += [markdown_table(("size", *names), _size_summary_rows(targets, sizes, shape))]
    columns = (*_PROCESS_COLUMNS, f"{PERF_CLIENT}, messages/s")
    rows = [
        (*row, f"{statistics.median(target.perf_per_s):,.0f}" if target.perf_per_s else "")
        for row, target in zip(_process_rows(targets), (each for each in targets if not each.skipped), strict=True)
    ]
    parts += [markdown_table(columns, rows)]
    parts += [markdown_table(*_goal_table(goals))]
    return "\n\n".join([*parts, *_failures(targets)])


def _failures(targets: Sequence[Target]) -> list[str]:
    skipped = [f"{target.name} skipped: {target.skipped}" for target in targets if target.skipped]
    return skipped + [
        f"{target.name} FAILED, {run}: {why}" for target in targets for run, why in target.failures.items()
    ]


# --- rows --------------------------------------------------------------------------------------------------------

_PROCESS_COLUMNS = ("broker", "start-up s", "idle MiB")
_SIZE_COLUMNS = ("size", "broker", "messages/s", "MB/s", "we are", "CPU us", "us per KiB", "driver us per KiB", "MiB")


def _own(targets: Sequence[Target], run: str) -> float | None:
    return next((target.median(run, "per_s") for target in targets if target.name == "understudy"), None)


def _times(own: float | None, rate: float, target: Target) -> str:
    return f"{own / rate:.2f}x" if own and target.name != "understudy" else ""


def _summary_rows(targets: Sequence[Target], cases: Sequence[str], shape: str) -> list[tuple[str, ...]]:
    rows = []
    for target in targets:
        if target.skipped:
            continue
        cells = [target.name]
        for case in cases:
            run = f"{case}/{shape}"
            rate = target.median(run, "per_s")
            if rate is None:
                cells.append("failed" if run in target.failures else "")
            elif case == "latency":
                cells.append(f"{target.median(run, 'p50_us'):,.0f} / {target.median(run, 'p99_us'):,.0f} µs")
            else:
                text = f"{rate:,.0f} ({target.median(run, 'broker_cpu_us'):.1f})"
                cells.append(f"{text} {_times(_own(targets, run), rate, target)}".rstrip())
        rows.append(tuple(cells))
    return rows


def _size_rows(targets: Sequence[Target], cases: Sequence[str], shape: str) -> list[tuple[str, ...]]:
    rows = []
    for case in cases:
        run, body_bytes, size = f"{case}/{shape}", ALL[case][1].body_bytes, _size_name(case)
        for target in targets:
            rate = target.median(run, "per_s")
            if rate is None:
                if run in target.failures:
                    rows.append((size, target.name, "FAILED", *[""] * (len(_SIZE_COLUMNS) - 3)))
                continue
            cpu_us, driver_us = target.median(run, "broker_cpu_us"), target.median(run, "driver_cpu_us")
            assert cpu_us is not None
            assert driver_us is not None
            kib = body_bytes / 1024
            rows.append(
                (size, target.name, f"{rate:,.0f}", f"{rate * body_bytes / 1e6:,.0f}",
                 _times(_own(targets, run), rate, target), f"{cpu_us:,.1f}", f"{cpu_us / kib:.2f}",
                 f"{driver_us / kib:.2f}", f"{target.median(run, 'resident_mib'):.0f}")
            )  # fmt: skip
    return rows


def _size_summary_rows(targets: Sequence[Target], cases: Sequence[str], shape: str) -> list[tuple[str, ...]]:
    rows = []
    for case in cases:
        run, body_bytes = f"{case}/{shape}", ALL[case][1].body_bytes
        cells = [_size_name(case)]
        for target in targets:
            if target.skipped:
                continue
            rate, cpu_us = target.median(run, "per_s"), target.median(run, "broker_cpu_us")
            if rate is None or cpu_us is None:
                cells.append("failed" if run in target.failures else "")
                continue
            mb_per_s = rate * body_bytes / 1e6
            cells.append(f"{mb_per_s:.{1 if mb_per_s < 10 else 0}f} ({cpu_us / body_bytes * 1024:,.1f})")
        rows.append(tuple(cells))
    return rows


def _size_name(case: str) -> str:
    return case.removeprefix("size-").replace("-", " ")


def _process_rows(targets: Sequence[Target]) -> list[tuple[str, ...]]:
    return [
        (target.name, f"{target.broker.started_s:.2f}", f"{target.broker.idle_mib:.0f}")
        for target in targets
        if not target.skipped
    ]


def _goal_table(goals: Sequence[Goal]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Columns and rows; the share of the floor only where there are figures of one."""
    if any(goal.share for goal in goals):
        columns = ("goal", "wanted", "found", "of the floor", "met")
        return columns, [(goal.text, goal.wanted, goal.found, goal.share, _verdict(goal)) for goal in goals]
    return ("goal", "wanted", "found", "met"), [(goal.text, goal.wanted, goal.found, _verdict(goal)) for goal in goals]


def _verdict(goal: Goal) -> str:
    verdict = {True: "met", False: "MISSED", None: "-"}[goal.met]
    if goal.unreachable:
        verdict = f"not reachable on this machine in this run ({goal.unreachable})"
    return verdict


# --- tables ------------------------------------------------------------------------------------------------------


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose columns after the first one are aligned to the right."""
    marks = ["---", *["---:"] * (len(columns) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, marks, *rows)).replace("| --- ", "|---").replace(
        "| ---: ", "|---:"
    )  # fmt: skip


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", min_width=min(len(title), _WIDTH - 8))
    table.add_column(columns[0], no_wrap=True)
    for column in columns[1:]:
        table.add_column(column, justify="right")
    return table


def _grid(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = _table(title, *columns)
    for row in rows:
        table.add_row(*row)
    return table


def _case_table(targets: Sequence[Target], run: str, title: str) -> Table:
    table = _table(
        title, "broker", "messages/s", "lowest", "highest", "we are", "p50 us", "p99 us", "CPU us", "driver us", "MiB"
    )
    for target in targets:
        if target.skipped or run in target.failures:
            table.add_row(target.name, "skipped" if target.skipped else "FAILED")
            continue
        rate = target.median(run, "per_s")
        if rate is None:
            continue
        rates = [outcome.per_s for outcome in target.samples[run]]
        ratio = "" if run.startswith("latency/") else _times(_own(targets, run), rate, target)
        table.add_row(
            target.name, f"{rate:,.0f}", f"{min(rates):,.0f}", f"{max(rates):,.0f}", ratio,
            f"{target.median(run, 'p50_us'):,.0f}", f"{target.median(run, 'p99_us'):,.0f}",
            f"{target.median(run, 'broker_cpu_us'):.1f}", f"{target.median(run, 'driver_cpu_us'):.1f}",
            f"{target.median(run, 'resident_mib'):.0f}",
        )  # fmt: skip
    return table


def _perf_table(targets: Sequence[Target]) -> Table:
    table = _table(f"{PERF_CLIENT}: 1,000 uncompleted, the time of the Java client is included", "broker", "messages/s")
    for target in targets:
        if PERF_CLIENT in target.failures:
            table.add_row(target.name, "FAILED")
        elif target.perf_per_s:
            table.add_row(target.name, f"{statistics.median(target.perf_per_s):,.0f}")
    return table


def goal_table(goals: Sequence[Goal]) -> Table:
    """The goals and the figures that were measured."""
    return _grid("goals", *_goal_table(goals))
