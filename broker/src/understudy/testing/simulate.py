"""``python -m understudy.testing.simulate``: run seeds of a scenario, report, say how to replay.

Exit code 0 when every seed kept every promise, 1 when one did not, 2 for wrong usage.
"""

from __future__ import annotations

import logging
import multiprocessing
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TextIO

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from understudy.testing import shared_store_pair
from understudy.testing.pair_plan import draw_plan
from understudy.testing.planted_bugs import BUGS
from understudy.testing.shared_store_pair import Outcome, PairRun, run_seed
from understudy.testing.sim_loop import SimLoop

SCENARIOS = {shared_store_pair.NAME: run_seed}


class _TraceHandler(logging.Handler):
    """Adds log lines of the nodes to the trace, with virtual time and process."""

    def __init__(self, out: TextIO) -> None:
        super().__init__()
        self._out = out

    def emit(self, record: logging.LogRecord) -> None:
        process = SimLoop.current_process()
        usual = logging.makeLogRecord({}).__dict__
        extra = {key: value for key, value in record.__dict__.items() if key not in usual and key != "message"}
        line = f"               {process.label if process else '-'} {record.levelname} {record.getMessage()}"
        self._out.write(f"{line} {extra or ''}".rstrip() + "\n")
        if record.exc_info and record.exc_info[1] is not None:
            self._out.write(logging.Formatter().formatException(record.exc_info) + "\n")


@contextmanager
def quiet_logging(out: TextIO | None = None) -> Iterator[None]:
    """Keep the broker's log off the terminal; into ``out`` if given."""
    logger = logging.getLogger("understudy")
    level, propagate = logger.level, logger.propagate
    handler: logging.Handler = _TraceHandler(out) if out is not None else logging.NullHandler()
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.DEBUG if out is not None else logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
        logger.setLevel(level)


def run_quietly(
    scenario: str, without: frozenset[int], seed: int, *, run_class: type[PairRun] | None = None
) -> tuple[Outcome, float]:
    """One seed and the seconds it took; top level, so that worker processes can be asked."""
    options = {} if run_class is None else {"run_class": run_class}
    began = time.perf_counter()
    with quiet_logging():
        outcome = SCENARIOS[scenario](seed, without=without, **options)
    return outcome, time.perf_counter() - began


def parse_seeds(text: str) -> range:
    """``7`` or ``0-99``.

    Raises:
        ValueError: neither.
    """
    first, dash, last = text.partition("-")
    return range(int(first), int(last if dash else first) + 1)


def _seeds_option(context: click.Context, parameter: click.Parameter, value: str) -> range:
    try:
        seeds = parse_seeds(value)
    except ValueError:
        raise click.BadParameter("give a number or first-last") from None
    if not seeds:
        raise click.BadParameter("that is no seed at all")
    return seeds


@click.command(help=__doc__)
@click.option("--seeds", default="0-99", callback=_seeds_option, help="First and last seed.", show_default=True)
@click.option("--seed", type=int, help="One seed; prints its plan.")
@click.option("--scenario", type=click.Choice(sorted(SCENARIOS)), default=shared_store_pair.NAME, show_default=True)
@click.option("--jobs", default=1, show_default=True, help="Processes at work.")
@click.option("--trace", type=click.File("w"), help="Write everything that happens in --seed to a file.")
@click.option("--without", multiple=True, type=int, help="Leave out the fault of this number, with --seed.")
@click.option("--plant", type=click.Choice(sorted(BUGS)), help="Plant this bug, in one process.")
@click.option("--all", "show_all", is_flag=True, help="List every seed, not only violations.")
def main(
    seeds: range,
    seed: int | None,
    scenario: str,
    jobs: int,
    trace: TextIO | None,
    without: tuple[int, ...],
    plant: str | None,
    show_all: bool,
) -> None:
    """Run seeds of a scenario, report, and say how to replay."""
    if plant is not None:
        jobs = 1
        click.echo(f"planted: {BUGS[plant].text}")
    with nullcontext(None) if plant is None else BUGS[plant].planted() as run_class:
        if seed is None:
            if trace or without:
                raise click.UsageError("--trace and --without need --seed")
            outcomes = _run_all(scenario, seeds, jobs, run_class)
        else:
            plan = draw_plan(seed)
            click.echo("\n".join(plan.describe()))
            options = {} if run_class is None else {"run_class": run_class}
            write_trace = trace.write if trace is not None else None
            with quiet_logging(trace):
                outcomes = [SCENARIOS[scenario](seed, without=without, write_trace=write_trace, **options)]
            show_all = True
    _report(scenario, outcomes, show_all)
    sys.exit(0 if all(outcome.ok for outcome in outcomes) else 1)


def _run_all(scenario: str, seeds: range, jobs: int, run_class: type[PairRun] | None) -> list[Outcome]:
    began = time.perf_counter()
    run = partial(run_quietly, scenario, frozenset[int](), run_class=run_class)
    outcomes: list[Outcome] = []
    seconds = 0.0
    console = Console(stderr=True)
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) if jobs > 1 else nullcontext()
    with pool as workers, Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(scenario, total=len(seeds))
        results = workers.map(run, seeds, chunksize=4) if workers is not None else map(run, seeds)
        for outcome, took in results:
            outcomes.append(outcome)
            seconds += took
            progress.advance(task)
            if not outcome.ok:
                progress.console.print(f"seed {outcome.seed}: {outcome.violations[0]}", markup=False)
    elapsed = time.perf_counter() - began
    click.echo(f"{len(outcomes)} seeds in {elapsed:.1f} s ({seconds / len(outcomes):.3f} s each)")
    return outcomes


def _report(scenario: str, outcomes: list[Outcome], show_all: bool) -> None:
    bad = [outcome for outcome in outcomes if not outcome.ok]
    table = Table("seed", "hash", "sent", "confirmed", "delivered", "epochs", "faults", "steps", "seconds", "verdict")
    for outcome in outcomes if show_all else bad:
        verdict = ", ".join(sorted({violation.check for violation in outcome.violations})) or "ok"
        table.add_row(
            *map(str, (outcome.seed, outcome.digest[:12], outcome.sent, outcome.confirmed, outcome.delivered)),
            *map(str, (outcome.activations, outcome.faults, outcome.steps, f"{outcome.virtual_s:.1f}", verdict)),
        )
    if table.row_count:
        Console().print(table)
    for outcome in bad:
        click.echo(f"\nseed {outcome.seed}:")
        for violation in outcome.violations:
            click.echo(f"  {violation}")
        click.echo(
            f"  replay: python -m understudy.testing.simulate --scenario {scenario} --seed {outcome.seed}"
            f" --trace seed-{outcome.seed}.txt"
        )
    total = len(outcomes)
    click.echo(f"{total - len(bad)} of {total} seeds kept every promise")


if __name__ == "__main__":
    main()
