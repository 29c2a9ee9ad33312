"""``understudy sim``, also ``python -m understudy.testing.simulate``: run seeds of scenarios and report."""

from __future__ import annotations

import json
import logging
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, Final, TextIO

import click
from rich.console import Console
from rich.progress import Progress

from understudy.cli.tables import Column, Kind, Page
from understudy.dataclass import dataclass
from understudy.testing.runs.fault_plan import FaultKind
from understudy.testing.runs.scenario_run import ScenarioRun
from understudy.testing.scenarios.scenario import Outcome, Scenario
from understudy.testing.scenarios.scenarios import SCENARIOS
from understudy.testing.sim.loop import SimLoop

_COLUMNS: Final = (
    Column("scenario", Kind.NAME, "Name of the scenario."),
    Column("seed", Kind.NUMBER, "The seed."),
    Column("digest", Kind.NAME, "Beginning of the digest of the run.", "hash", lambda run: run["digest"][:12]),
    Column("sent", Kind.NUMBER, "Messages sent."),
    Column("confirmed", Kind.NUMBER, "Messages confirmed."),
    Column("delivered", Kind.NUMBER, "Messages delivered."),
    Column("activations", Kind.NUMBER, "Activations of nodes.", title="epochs"),
    Column("injected", Kind.NUMBER, "Faults with an effect.", "faults", lambda run: sum(run["injected"].values())),
    Column("violations", Kind.TEXT, "Broken promises.", "verdict", lambda run: _verdict(run)),
)


def _verdict(run: Mapping[str, Any]) -> str:
    return ", ".join(sorted({each["check"] for each in run["violations"]})) or "ok"


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


@dataclass(frozen=True, slots=True)
class Block:
    """Runs of one scenario."""

    scenario: str
    outcomes: list[Outcome]
    seconds: float
    """Wall time of all of them."""


@dataclass(frozen=True, slots=True)
class Request:
    """Seeds of scenarios that are to be run, and the form of the report."""

    scenarios: Mapping[str, range]
    """The seeds of each scenario."""
    seed: int | None = None
    """Seed of the only run of each scenario, whose plan is printed; None: as many runs as asked for."""
    trace: TextIO | None = None
    """File of everything that happens in ``seed``."""
    without: tuple[int, ...] = ()
    """Numbers of faults that ``seed`` leaves out."""
    jobs: int = 1
    """Processes at work."""
    shrink: bool = True
    """Whether faults that a violation does not need are left out of the report."""
    show_all: bool = False
    as_json: bool = False
    run_class: type[ScenarioRun] | None = None
    """The run to use instead of that of each scenario."""
    command: str = "understudy sim"
    """The command that replays a seed."""


def run_quietly(
    scenario: str, without: frozenset[int], seed: int, *, run_class: type[ScenarioRun] | None = None
) -> tuple[Outcome, float]:
    """Run one seed; returns its result and the seconds that it took. A function of the module, as worker processes call
    it."""
    began = time.perf_counter()
    with quiet_logging():
        outcome = SCENARIOS[scenario].run_seed(seed, without=without, run_class=run_class)
    return outcome, time.perf_counter() - began


def parse_seeds(text: str) -> range:
    """Parse the option ``--seeds``, such as ``7`` or ``0-99``.

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
        raise click.BadParameter("the range of seeds is empty")
    return seeds


_HELP: Final = """Run the deterministic simulation: brokers, clients, network and storage on one loop with virtual time.

A seed decides everything in a run: its plan, its faults and the order of all events. The same seed gives the same run
in every process. A failing seed is printed with its fault plan and the faults that can be left out.

Scenarios:

\b
{scenarios}

Exit codes: 0 every seed kept every promise, 1 one did not, 2 wrong usage.

\b
Example: understudy sim --scenario replication --seeds 0-9
"""


@click.command(
    "sim",
    help=_HELP.format(scenarios="\n".join(f"  {each.name}: {each.text}" for each in SCENARIOS.values())),
)
@click.option("--seeds", default="0-99", callback=_seeds_option, help="First and last seed.", show_default=True)
@click.option("--seed", type=int, help="One seed; prints its plan.")
@click.option("--scenario", type=click.Choice(list(SCENARIOS)), help="One scenario; otherwise all are run.")
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(1, 256), help="Processes at work.")
@click.option("--trace", type=click.File("w"), help="Write everything that happens in --seed to a file.")
@click.option("--without", multiple=True, type=int, help="Leave out the fault of this number, with --seed.")
@click.option("--shrink/--no-shrink", default=True, show_default=True, help="Leave out faults of failing seeds.")
@click.option("--all", "show_all", is_flag=True, help="List every seed, not only violations.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def main(
    seeds: range,
    seed: int | None,
    scenario: str | None,
    jobs: int,
    trace: TextIO | None,
    without: tuple[int, ...],
    shrink: bool,
    show_all: bool,
    as_json: bool,
) -> None:
    """Run seeds, report, and say how to replay."""
    scenarios = dict.fromkeys([scenario] if scenario is not None else SCENARIOS, seeds)
    sys.exit(
        simulate(Request(scenarios, seed, trace, without, jobs, shrink=shrink, show_all=show_all, as_json=as_json))
    )


def simulate(request: Request) -> int:
    """Run the seeds of a request and print the report. Returns the exit code: 1 if a seed broke a promise.

    Raises:
        click.UsageError: an option needs another one.
    """
    if request.seed is None and (request.trace or request.without):
        raise click.UsageError("--trace and --without need --seed")
    if request.seed is not None and request.trace is not None and len(request.scenarios) > 1:
        raise click.UsageError("--trace needs --scenario")
    blocks = [
        _run_one(SCENARIOS[name], request, request.seed) if request.seed is not None else _run_all(name, each, request)
        for name, each in request.scenarios.items()
    ]
    shown: list[dict[str, Any]] = []
    for block in blocks:
        for outcome in block.outcomes:
            if outcome.ok:
                continue
            spare = frozenset(request.without)
            if request.shrink and not request.without:
                with quiet_logging():
                    spare = SCENARIOS[block.scenario].shrink(outcome, request.run_class)
            shown.append(_failing_seed(outcome, spare, request.command))
    if request.as_json:
        click.echo(json.dumps(_to_json(blocks, shown), indent=2))
    else:
        _report(blocks, shown, request.show_all or request.seed is not None)
    return 1 if shown else 0


def _run_one(scenario: Scenario, request: Request, seed: int) -> Block:
    if not request.as_json:
        click.echo("\n".join((f"scenario {scenario.name}, seed {seed}", *scenario.draw(seed).describe())))
    began = time.perf_counter()
    write_trace = request.trace.write if request.trace is not None else None
    with quiet_logging(request.trace):
        outcome = scenario.run_seed(seed, without=request.without, write_trace=write_trace, run_class=request.run_class)
    return Block(scenario.name, [outcome], time.perf_counter() - began)


def _run_all(scenario: str, seeds: range, request: Request) -> Block:
    began = time.perf_counter()
    run = partial(run_quietly, scenario, frozenset[int](), run_class=request.run_class)
    outcomes: list[Outcome] = []
    console = Console(stderr=True)
    pool = (
        ProcessPoolExecutor(request.jobs, multiprocessing.get_context("spawn")) if request.jobs > 1 else nullcontext()
    )
    with pool as workers, Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(scenario, total=len(seeds))
        results = workers.map(run, seeds, chunksize=4) if workers is not None else map(run, seeds)
        for outcome, _ in results:
            outcomes.append(outcome)
            progress.advance(task)
            if not outcome.ok:
                progress.console.print(f"{scenario} seed {outcome.seed}: {outcome.violations[0]}", markup=False)
    return Block(scenario, outcomes, time.perf_counter() - began)


def _failing_seed(outcome: Outcome, spare: frozenset[int], command: str) -> dict[str, Any]:
    """The report of a failing seed: violations, its faults, and how to replay it."""
    plan = SCENARIOS[outcome.scenario].draw(outcome.seed)
    left_out = "".join(f" --without {number}" for number in sorted(spare))
    return {
        "scenario": outcome.scenario,
        "seed": outcome.seed,
        "violations": [str(violation) for violation in outcome.violations],
        "plan": [str(fault) for fault in plan.faults],
        "needed": [str(fault) for fault in plan.faults if fault.number not in spare],
        "replay": f"{command} --scenario {outcome.scenario} --seed {outcome.seed}{left_out}"
        f" --trace seed-{outcome.seed}.txt",
    }


def _injected(blocks: list[Block]) -> dict[str, int]:
    """Faults with an effect by kind, over all runs."""
    counts: Counter[str] = Counter()
    for block in blocks:
        for outcome in block.outcomes:
            counts.update(outcome.injected)
    return {kind.value: counts[kind.value] for kind in FaultKind}


def _to_json(blocks: list[Block], failing: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "scenarios": {
            block.scenario: {
                "seeds": len(block.outcomes),
                "kept": sum(outcome.ok for outcome in block.outcomes),
                "seconds": round(block.seconds, 3),
                "restored_s_max": round(max(outcome.restored_s for outcome in block.outcomes), 3),
                "promotions": sum(outcome.promotions for outcome in block.outcomes),
                "seeds_per_minute": round(len(block.outcomes) / block.seconds * 60, 1),
            }
            for block in blocks
        },
        "faults": _injected(blocks),
        "violations": dict(
            Counter(
                violation.check for block in blocks for outcome in block.outcomes for violation in outcome.violations
            )
        ),
        "failing": failing,
        "runs": [outcome.to_json() for block in blocks for outcome in block.outcomes],
    }


def _report(blocks: list[Block], failing: list[dict[str, Any]], show_all: bool) -> None:
    outcomes = [outcome for block in blocks for outcome in block.outcomes if show_all or not outcome.ok]
    if outcomes:
        Page().table(_COLUMNS, [outcome.to_json() for outcome in outcomes])
    for each in failing:
        click.echo(f"\n{each['scenario']} seed {each['seed']}:")
        for line in each["violations"]:
            click.echo(f"  {line}")
        click.echo("  faults of its plan (* = needed for the violation):")
        for line in each["plan"]:
            click.echo(f"  {'*' if line in each['needed'] else ' '} {line}")
        click.echo(f"  replay: {each['replay']}")
    counts = ", ".join(f"{kind} {count}" for kind, count in _injected(blocks).items() if count)
    click.echo(f"faults: {counts or 'none'}")
    for block in blocks:
        total, kept = len(block.outcomes), sum(outcome.ok for outcome in block.outcomes)
        rate = total / block.seconds * 60
        restored_s = max(outcome.restored_s for outcome in block.outcomes)
        promotions = sum(outcome.promotions for outcome in block.outcomes)
        click.echo(
            f"{block.scenario}: {kept} of {total} seeds kept every promise ({rate:.0f} seeds a minute); "
            f"served {restored_s:.1f} s after healing at the latest"
            + (f", {promotions} promotions by an operator" if promotions else "")
        )


if __name__ == "__main__":
    main()
