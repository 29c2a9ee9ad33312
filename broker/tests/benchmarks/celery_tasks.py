"""``python -m benchmarks celery``: tasks of Celery with results over this broker and over RabbitMQ, in turn.

An application sends tasks, a worker with Celery's defaults and ``acks_late`` carries them out, and each result comes
back over the broker (``rpc://``). Celery itself takes about a millisecond of processor time for a task, so the rates of
brokers are near to each other; the processor time of the broker for a task shows their difference. Every result is
checked.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console

from benchmarks.case_report import CaseReport
from benchmarks.celery_app import NEXT, application
from benchmarks.goals import judge_celery
from benchmarks.load import CannotRun, RunFailed
from benchmarks.peers import Chosen
from benchmarks.targets import Broker, RabbitMq, Understudy, family
from benchmarks.usage import process_cpu_seconds

_OURS: Final = "understudy"
_RABBITMQ: Final = "rabbitmq"
CASES: Final[dict[str, str]] = {
    "plain": "tasks are published without confirms, as Celery does by default",
    "confirms": "the application and the worker wait for the confirm of each publish",
}
#: Tasks before the measured ones: the worker is there, and every process of its has worked.
_WARMUP: Final = 50
#: Longest time until the result of a task comes.
_RESULT_S: Final = 60
_WORKER_END_S: Final = 20


@dataclass(frozen=True)
class Figures:
    """One run."""

    per_s: float
    """Tasks whose results came back in a second, from the first send to the last result."""
    broker_cpu_us: float
    """Processor time of the broker for a task."""
    worker_cpu_us: float
    """Processor time of the worker for a task."""


@dataclass
class Row:
    """A broker and its figures."""

    name: str
    broker: Broker
    samples: dict[str, list[Figures]] = field(default_factory=dict)
    """Figures of each run, by case."""
    failures: dict[str, str] = field(default_factory=dict)
    """Reason of the failed run of a case, by case."""

    def median(self, run: str, figure: str) -> float | None:
        """The median of a figure over the rounds of a case; None if no round has it."""
        values = [float(getattr(each, figure)) for each in self.samples.get(run, ())]
        return statistics.median(values) if values else None


@dataclass(frozen=True)
class Plan:
    """Cases, brokers and rounds of a run of the command."""

    cases: Sequence[str]
    names: Sequence[str]
    """Names of the brokers."""
    baseline: str
    """A commit of this broker for a row of its own; empty: none."""
    rounds: int
    tasks: int

    def brokers(self) -> dict[str, Callable[[Path], Broker]]:
        """How to make each broker, by the name of its row."""
        known: dict[str, Callable[[Path], Broker]] = {_OURS: Understudy, _RABBITMQ: RabbitMq}
        chosen = {name: known[name] for name in self.names}
        if self.baseline:
            chosen[f"{_OURS}-{self.baseline[:7]}"] = partial(Understudy, revision=self.baseline)
        return chosen


@click.command("celery", epilog="Example: python -m benchmarks celery --cases plain --rounds 5 --baseline HEAD~1")
@click.option(
    "--cases", type=Chosen(tuple(CASES), tuple(CASES)), default="", metavar="NAMES", help=f"{', '.join(CASES)}. [all]"
)
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="Medians are printed.")
@click.option("--tasks", default=1000, show_default=True, type=click.IntRange(1), help="Tasks of a run.")
@click.option(
    "--peers", type=Chosen((_RABBITMQ,), ()), default=_RABBITMQ, show_default=True, help="rabbitmq, or empty for none."
)
@click.option("--baseline", default="", metavar="REV", help="A row more: the sources of this commit.")
@click.option("--markdown", "as_markdown", is_flag=True, help="The table as in docs/build/benchmarks.md.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
def celery(
    *,
    cases: tuple[str, ...],
    rounds: int,
    tasks: int,
    peers: tuple[str, ...],
    baseline: str,
    as_markdown: bool,
    as_json: bool,
) -> None:
    """Compare with RabbitMQ through Celery; exits with 1 if this broker failed anywhere.

    A whole run takes about a minute and a half on a quiet machine.
    """
    plan = Plan(cases, (_OURS, *peers), baseline, rounds, tasks)
    console = Console(stderr=True)
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(f"[{time.monotonic() - began:4.0f} s] {text}", highlight=False, markup=False)

    report = CaseReport("celery", CASES, cases, "worker", decimals=0)
    rows = measure(plan, report, say)
    goals = judge_celery(rows, cases)
    report.print(rows, goals, rounds=rounds, as_json=as_json, as_markdown=as_markdown)
    if any(row.failures for row in rows if row.name.startswith(_OURS)):
        raise SystemExit(1)


def measure(plan: Plan, report: CaseReport, say: Callable[[str], None]) -> list[Row]:
    """All rounds of all cases for all brokers. Raises CannotRun if the broker of this tree does not start."""
    with tempfile.TemporaryDirectory(prefix="understudy-celery-") as name, ExitStack() as stack:
        directory = Path(name)
        rows = []
        for row_name, make in plan.brokers().items():
            broker = make(directory / row_name)
            stack.callback(broker.stop)
            try:
                broker.prepare()
                broker.start()
            except CannotRun as error:
                if row_name == _OURS:
                    raise
                say(f"{row_name} skipped: {error}")
                continue
            rows.append(Row(row_name, broker))
        for number in range(plan.rounds):
            for case in plan.cases:
                for row in rows[number % len(rows) :] + rows[: number % len(rows)]:
                    if case not in row.failures:
                        _one(row, case, plan.tasks)
                        say(f"round {number + 1} of {plan.rounds}: {case}: {row.name}: {report.last(row, case)}")
        return rows


def _one(row: Row, case: str, tasks: int) -> None:
    try:
        row.samples.setdefault(case, []).append(run(row.broker, tasks, confirms=case == "confirms"))
    except RunFailed as error:
        row.failures[case] = str(error)


def run(broker: Broker, tasks: int, *, confirms: bool) -> Figures:
    """One run with a worker of its own. Raises RunFailed."""
    url = f"amqp://guest:guest@127.0.0.1:{broker.port}//"
    app = application(url, confirms=confirms)
    try:
        with _worker(url, broker.directory / "worker.log", confirms=confirms) as worker:
            _carry_out(app, _WARMUP)
            before = _cpu_s(broker.pids()), _cpu_s(family(worker))
            began = time.monotonic()
            _carry_out(app, tasks)
            took_s = time.monotonic() - began
            after = _cpu_s(broker.pids()), _cpu_s(family(worker))
    finally:
        app.close()
    return Figures(tasks / took_s, *((end - start) * 1e6 / tasks for start, end in zip(before, after, strict=True)))


def _carry_out(app: Any, tasks: int) -> None:
    """Send tasks and wait for all results. Raises RunFailed."""
    try:
        results = [app.send_task(NEXT, (number,)) for number in range(tasks)]
        found = [each.get(timeout=_RESULT_S) for each in results]
    except Exception as error:
        # whatever Celery, kombu and py-amqp raise: the run has failed, and others go on
        raise RunFailed(f"{type(error).__name__}: {error}") from error
    if found != [number + 1 for number in range(tasks)]:
        raise RunFailed("results are not those of the tasks")


@contextmanager
def _worker(url: str, log: Path, *, confirms: bool) -> Iterator[int]:
    """A worker; its process id."""
    command = [sys.executable, "-m", "benchmarks.celery_app", url, *(["--confirms"] if confirms else [])]
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, cwd=Path(__file__).parents[1], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            env={**os.environ, "C_FORCE_ROOT": "1"}, start_new_session=True,
        )  # fmt: skip
    try:
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(_WORKER_END_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _cpu_s(pids: Sequence[int]) -> float:
    return sum(process_cpu_seconds(each) for each in pids)
