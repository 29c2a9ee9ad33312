"""``python -m benchmarks peers``: this broker and its peers under the same driver, in the same run, in turn.

1 KiB messages, every one confirmed; six cases, then start-up, memory and Artemis's own load client. Every run checks
that each message was confirmed once and delivered once, in its producer's order: a fast wrong run is a failed run.
Rounds go target by target, so that what else the machine does meets all of them; trust the ratios of the medians.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click
from rich.console import Console

from benchmarks.amqp_link import AmqpLink
from benchmarks.goals import judge
from benchmarks.load import CannotRun, Link, Load, Outcome, RunFailed, build_driver, run
from benchmarks.perf_client import PERF_CLIENT, perf_client
from benchmarks.report import show
from benchmarks.targets import REPOSITORY, ActiveMq, Artemis, Broker, RabbitMq, Understudy

CASES: dict[str, tuple[str, Load]] = {
    "pipelined": ("1 producer, 1 consumer, 1,000 unconfirmed, acknowledged by 50", Load(backlog_max=10_000)),
    "blocking": ("1 producer that waits for each confirmation", Load(in_flight=1, consume_during=False)),
    "blocking-16": ("16 producers that wait", Load(producers=16, in_flight=1, consume_during=False)),
    "latency": ("confirmation latency at 1,000 a second", Load(rate=1_000, consume_during=False)),
    "non-durable": ("as pipelined, messages not durable", Load(durable=False, backlog_max=10_000)),
    "queues-100": (
        "100 queues of 1 producer (100 unconfirmed) and 1 consumer",
        Load(queues=100, in_flight=100, backlog_max=1_000),
    ),
}
_BROKERS: dict[str, type[Broker]] = {
    "understudy": Understudy,
    "artemis": Artemis,
    "rabbitmq-quorum": RabbitMq,
    "rabbitmq-classic": RabbitMq,
    "activemq": ActiveMq,
}
TARGETS = tuple(_BROKERS)
#: Load before the first round, so that nobody is measured while it still compiles its code.
_PRIMING_MS = 6_000


@dataclass
class Target:
    """One name in the tables."""

    name: str
    broker: Broker
    samples: dict[str, list[Outcome]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    perf_per_s: list[float] = field(default_factory=list)
    skipped: str = ""
    """Why it could not run at all."""

    def link(self) -> Link:
        return AmqpLink(self.broker.port, "quorum") if self.name == "rabbitmq-quorum" else self.broker.link()

    def median(self, case: str, figure: str) -> float | None:
        """Of the rounds of a case; None if there is none."""
        values = [float(getattr(outcome, figure)) for outcome in self.samples.get(case, [])]
        return statistics.median(values) if values else None

    def facts(self) -> dict[str, object]:
        """Everything, for --json."""
        return {
            "skipped": self.skipped,
            "start_s": self.broker.started_s,
            "idle_mib": self.broker.idle_mib,
            "failures": self.failures,
            "samples": {case: [asdict(each) for each in outcomes] for case, outcomes in self.samples.items()},
            PERF_CLIENT: self.perf_per_s,
        }


@dataclass(frozen=True)
class Plan:
    """What to run."""

    cases: Sequence[str]
    targets: Sequence[str]
    rounds: int = 3
    quick: bool = False

    @property
    def warmup_ms(self) -> int:
        return 200 if self.quick else 1_000

    @property
    def window_ms(self) -> int:
        return 400 if self.quick else 3_000


class Chosen(click.ParamType):
    """Some of the names it was made with, with commas."""

    name = "names"

    def __init__(self, known: Sequence[str]) -> None:
        self._known = tuple(known)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        chosen = tuple(name for name in str(value).split(",") if name)
        for name in chosen:
            if name not in self._known:
                self.fail(f"{name!r} is none of {', '.join(self._known)}", param, ctx)
        return chosen or self._known


@click.command("peers")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="Medians are printed.")
@click.option("--cases", type=Chosen((*CASES, PERF_CLIENT)), default="", help=f"{', '.join((*CASES, PERF_CLIENT))}.")
@click.option("--peers", "targets", type=Chosen(tuple(TARGETS)), default="", help=f"{', '.join(TARGETS)}.")
@click.option("--quick", is_flag=True, help="One short round: whether it works, not how fast.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
def peers(*, as_json: bool, rounds: int, cases: tuple[str, ...], targets: tuple[str, ...], quick: bool) -> None:
    """The same load on this broker and on its peers, in turn; exits with 1 if this broker failed anywhere."""
    plan = Plan(cases, targets, 1 if quick else rounds, quick)
    console = Console(stderr=True)
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(f"[{time.monotonic() - began:4.0f} s] {text}", highlight=False, markup=False)

    found = measure(plan, say)
    goals = judge(found)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "benchmark": "peers",
                    "rounds": plan.rounds,
                    "quick": plan.quick,
                    "targets": {target.name: target.facts() for target in found},
                    "goals": [asdict(goal) for goal in goals],
                }
            )
        )
    else:
        show(found, {case: CASES[case][0] for case in plan.cases if case in CASES}, goals)
    ours = [target for target in found if target.name == "understudy"]
    if any(target.skipped or target.failures for target in ours):
        raise SystemExit(1)


def measure(plan: Plan, say: Callable[[str], None]) -> list[Target]:
    """All rounds of all cases for all targets."""
    with tempfile.TemporaryDirectory(prefix="understudy-peers-") as name, ExitStack() as stack:
        directory = Path(name)
        say("setting up")
        packages = REPOSITORY / ".ci" / "benchmark-packages"
        if packages.exists() and any(target.startswith(("rabbitmq", "activemq")) for target in plan.targets):
            subprocess.run([str(packages)], check=False, stdout=subprocess.DEVNULL)
        driver = build_driver(directory)
        found = _started(plan, directory, stack, say)
        running = [target for target in found if not target.skipped]
        if not plan.quick:
            for target in running:
                say(f"priming {target.name}")
                _prime(driver, target)
        for number in range(plan.rounds):
            for case in plan.cases:
                for target in _turned(running, number):
                    if case in target.failures:
                        continue
                    if case == PERF_CLIENT:
                        _perf(target, plan, directory, say)
                    else:
                        _one(driver, target, case, number, plan, say)
        return found


def _turned(targets: list[Target], number: int) -> list[Target]:
    first = number % len(targets) if targets else 0
    return targets[first:] + targets[:first]


def _started(plan: Plan, directory: Path, stack: ExitStack, say: Callable[[str], None]) -> list[Target]:
    brokers: dict[type[Broker], Broker] = {}
    reasons: dict[type[Broker], str] = {}
    found = []
    for name in plan.targets:
        kind = _BROKERS[name]
        if kind not in brokers:
            broker = brokers[kind] = kind(directory / kind.name)
            stack.callback(broker.stop)
            try:
                broker.prepare()
                broker.start()
                say(f"{broker.name} answers after {broker.started_s:.2f} s")
            except (CannotRun, RunFailed, OSError, subprocess.TimeoutExpired) as error:
                reasons[kind] = str(error) or type(error).__name__
                say(f"{name} skipped: {reasons[kind]}")
        found.append(Target(name, brokers[kind], skipped=reasons.get(kind, "")))
    if found:
        time.sleep(0.2 if plan.quick else 3)
    for target in found:
        if not target.skipped:
            target.broker.idle_mib = target.broker.resident_mib()
    return found


def _prime(driver: Path, target: Target) -> None:
    try:
        load = CASES["pipelined"][1]
        run(driver, target.link(), load, "prime", target.broker.pids(), warmup_ms=0, window_ms=_PRIMING_MS)
    except (RunFailed, OSError) as error:
        target.failures["priming"] = str(error)


def _one(driver: Path, target: Target, case: str, number: int, plan: Plan, say: Callable[[str], None]) -> None:
    queue = f"{case}.{target.name}.{number}"
    try:
        outcome = run(
            driver, target.link(), CASES[case][1], queue, target.broker.pids(),
            warmup_ms=plan.warmup_ms, window_ms=plan.window_ms,
        )  # fmt: skip
    except (RunFailed, OSError) as error:
        target.failures[case] = str(error)
        say(f"round {number + 1} of {plan.rounds}: {case}: {target.name} FAILED: {error}")
        return
    target.samples.setdefault(case, []).append(outcome)
    say(f"round {number + 1} of {plan.rounds}: {case}: {target.name}: {outcome.per_s:,.0f}/s")


def _perf(target: Target, plan: Plan, directory: Path, say: Callable[[str], None]) -> None:
    if target.name not in ("understudy", "artemis"):
        return
    try:
        per_s = perf_client(target.broker.port, directory, quick=plan.quick)
    except (CannotRun, RunFailed, subprocess.TimeoutExpired) as error:
        target.failures[PERF_CLIENT] = str(error)
        say(f"{PERF_CLIENT}: {target.name} FAILED: {error}")
        return
    target.perf_per_s.append(per_s)
    say(f"{PERF_CLIENT}: {target.name}: {per_s:,.0f}/s")
