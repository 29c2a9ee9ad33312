"""``python -m benchmarks peers``: this broker and its peers under the same driver, in the same run, in turn.

Each case runs in each shape of messages (``content``). Every run checks that each message was confirmed once and
delivered once, in its producer's order: a fast wrong run is a failed run. Rounds go target by target, so that other
load of the machine meets all of them; trust the ratios of the medians.
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
from functools import partial
from pathlib import Path

import click
from rich.console import Console

from benchmarks.amqp_link import AmqpLink
from benchmarks.cases import ALL, CASES, FAMILIES
from benchmarks.content import PLAIN, SHAPES
from benchmarks.goals import OURS_AMQP, judge
from benchmarks.load import CannotRun, Link, Outcome, RunFailed, build_driver, run
from benchmarks.perf_client import PERF_CLIENT, perf_client
from benchmarks.report import markdown, show
from benchmarks.targets import REPOSITORY, ActiveMq, Artemis, Broker, Floor, Nats, RabbitMq, Understudy

_OURS = "understudy"
_BROKERS: dict[str, Callable[[Path], Broker]] = {
    _OURS: Understudy,
    OURS_AMQP: Understudy,
    "artemis": Artemis,
    "rabbitmq-quorum": RabbitMq,
    "rabbitmq-classic": RabbitMq,
    "activemq": ActiveMq,
    "nats": Nats,
    Floor.name: Floor,
}
TARGETS = tuple(_BROKERS)
KERNELS = ("native", "python")
#: Load before the first round, so that no target is measured while it still compiles its code.
_PRIMING_MS = 6_000


@dataclass
class Target:
    """One name in the tables."""

    name: str
    broker: Broker
    samples: dict[str, list[Outcome]] = field(default_factory=dict)
    """Outcomes of the rounds by case and shape, see ``Plan.runs``."""
    failures: dict[str, str] = field(default_factory=dict)
    """Text of the error by case and shape."""
    perf_per_s: list[float] = field(default_factory=list)
    skipped: str = ""
    """Why it could not run at all."""

    def link(self) -> Link:
        if self.name == OURS_AMQP:
            return AmqpLink(self.broker.port, "classic")
        return AmqpLink(self.broker.port, "quorum") if self.name == "rabbitmq-quorum" else self.broker.link()

    def takes(self, case: str) -> bool:
        """Whether the bodies of the case are not too large for it, and its protocol has the case."""
        most = self.broker.body_bytes_max
        if ALL[case][1].of_amqp and self.link().protocol != AmqpLink.protocol:
            return False
        return most is None or ALL[case][1].body_bytes <= most

    def median(self, run: str, figure: str) -> float | None:
        """The median of a figure over the rounds of a case in a shape; None if no round has it."""
        values = [float(getattr(outcome, figure)) for outcome in self.samples.get(run, [])]
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
    """The cases and targets of a run."""

    cases: Sequence[str]
    targets: Sequence[str]
    rounds: int = 3
    quick: bool = False
    shapes: Sequence[str] = (PLAIN.name,)
    kernels: Sequence[str] = ()
    """A row of this broker for each; none: one row with the kernel of this process."""
    baseline: str = ""
    """A commit of this broker for a row of its own."""

    @property
    def warmup_ms(self) -> int:
        return 200 if self.quick else 1_000

    @property
    def window_ms(self) -> int:
        return 800 if self.quick else 3_000

    def runs(self) -> list[tuple[str, str, str]]:
        """Case, shape and the name of the two together."""
        return [(case, shape, f"{case}/{shape}") for case in self.cases if case in ALL for shape in self.shapes]

    def brokers(self) -> dict[str, tuple[str, Callable[[Path], Broker]]]:
        """The process and how to make it, by the name of each row; two rows may share a process."""
        chosen: dict[str, tuple[str, Callable[[Path], Broker]]] = {}
        for name in self.targets:
            if name != _OURS:
                process = name
                for shared in ("rabbitmq", _OURS):
                    if name.startswith(shared):
                        process = shared
                chosen[name] = (process, _BROKERS[name])
                continue
            for kernel in self.kernels or ("",):
                row = f"{_OURS}-{kernel}" if chosen.get(_OURS) else _OURS
                chosen[row] = (row, partial(Understudy, kernel=kernel))
        if self.baseline:
            row = f"{_OURS}-{self.baseline[:7]}"
            chosen[row] = (row, partial(Understudy, revision=self.baseline))
        return chosen


class Chosen(click.ParamType):
    """Some of the names it was made with, with commas; a family stands for several."""

    name = "names"

    def __init__(self, known: Sequence[str], default: Sequence[str]) -> None:
        self._known = tuple(known)
        self._default = tuple(default)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        chosen: list[str] = []
        for name in str(value).split(","):
            if name in FAMILIES:
                chosen += FAMILIES[name]
            elif name in self._known:
                chosen.append(name)
            elif name:
                self.fail(f"{name!r} is none of {', '.join(self._known)}", param, ctx)
        return tuple(dict.fromkeys(chosen)) or self._default


_CASES = Chosen((*ALL, PERF_CLIENT), (*CASES, PERF_CLIENT))


@click.command("peers")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="Medians are printed.")
@click.option(
    "--cases", type=_CASES, default="", help=f"{', '.join((*CASES, PERF_CLIENT))}; or the family 'sizes', on request."
)
@click.option("--peers", "targets", type=Chosen(TARGETS, TARGETS), default="", help=f"{', '.join(TARGETS)}.")
@click.option(
    "--shapes", type=Chosen(tuple(SHAPES), ("plain", "jms")), default="", help="plain, properties, jms. [plain,jms]"
)
@click.option("--kernels", type=Chosen(KERNELS, ()), default="", help="native,python: a row of this broker for each.")
@click.option("--baseline", default="", metavar="REV", help="A row more: the sources of this commit.")
@click.option("--quick", is_flag=True, help="One short round in one shape: whether it works, not how fast.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Tables as in docs/build/benchmarks.md.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
def peers(
    *,
    rounds: int,
    cases: tuple[str, ...],
    targets: tuple[str, ...],
    shapes: tuple[str, ...],
    kernels: tuple[str, ...],
    baseline: str,
    quick: bool,
    as_markdown: bool,
    as_json: bool,
) -> None:
    """The same load on this broker and on its peers, in turn; exits with 1 if this broker failed anywhere."""
    plan = Plan(cases, targets, 1 if quick else rounds, quick, shapes[-1:] if quick else shapes, kernels, baseline)
    console = Console(stderr=True)
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(f"[{time.monotonic() - began:4.0f} s] {text}", highlight=False, markup=False)

    found = measure(plan, say)
    goals = judge(found, plan.shapes)
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
    elif as_markdown:
        click.echo(markdown(found, plan, goals))
    else:
        show(found, plan, goals)
    ours = [target for target in found if target.name.startswith(_OURS)]
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
                _prime(driver, target, plan)
        for number in range(plan.rounds):
            for case, shape, run_name in plan.runs():
                for target in _turned(running, number):
                    if run_name not in target.failures and target.takes(case):
                        _one(driver, target, case, shape, number, plan, say)
            if PERF_CLIENT in plan.cases:
                for target in _turned(running, number):
                    if PERF_CLIENT not in target.failures:
                        _perf(target, plan, directory, say)
        return found


def _turned(targets: list[Target], number: int) -> list[Target]:
    first = number % len(targets) if targets else 0
    return targets[first:] + targets[:first]


def _started(plan: Plan, directory: Path, stack: ExitStack, say: Callable[[str], None]) -> list[Target]:
    brokers: dict[str, Broker] = {}
    reasons: dict[str, str] = {}
    found = []
    for name, (process, make) in plan.brokers().items():
        if process not in brokers:
            broker = brokers[process] = make(directory / process)
            stack.callback(broker.stop)
            try:
                broker.prepare()
                broker.start()
                say(f"{process} answers after {broker.started_s:.2f} s")
            except (CannotRun, RunFailed, OSError, subprocess.SubprocessError) as error:
                reasons[process] = str(error) or type(error).__name__
                say(f"{name} skipped: {reasons[process]}")
        found.append(Target(name, brokers[process], skipped=reasons.get(process, "")))
    if found:
        time.sleep(0.2 if plan.quick else 3)
    for target in found:
        if not target.skipped:
            target.broker.idle_mib = target.broker.resident_mib()
    return found


def _prime(driver: Path, target: Target, plan: Plan) -> None:
    load = CASES["pipelined"][1]
    for shape in plan.shapes:
        try:
            run(
                driver, target.link(), load, f"prime.{target.name}.{shape}", target.broker.pids(),
                warmup_ms=0, window_ms=_PRIMING_MS // len(plan.shapes), shape=SHAPES[shape],
            )  # fmt: skip
        except (RunFailed, OSError) as error:
            target.failures[f"priming/{shape}"] = str(error)


def _one(
    driver: Path, target: Target, case: str, shape: str, number: int, plan: Plan, say: Callable[[str], None]
) -> None:
    run_name = f"{case}/{shape}"
    queue = f"{case}.{shape}.{target.name}.{number}"
    try:
        outcome = run(
            driver, target.link(), ALL[case][1], queue, target.broker.pids(),
            warmup_ms=plan.warmup_ms, window_ms=plan.window_ms, shape=SHAPES[shape],
        )  # fmt: skip
    except (RunFailed, OSError) as error:
        target.failures[run_name] = str(error)
        say(f"round {number + 1} of {plan.rounds}: {run_name}: {target.name} FAILED: {error}")
        return
    target.samples.setdefault(run_name, []).append(outcome)
    say(f"round {number + 1} of {plan.rounds}: {run_name}: {target.name}: {outcome.per_s:,.0f}/s")


def _perf(target: Target, plan: Plan, directory: Path, say: Callable[[str], None]) -> None:
    if target.name not in (_OURS, "artemis"):
        return
    try:
        per_s = perf_client(target.broker.port, directory, quick=plan.quick)
    except (CannotRun, RunFailed, subprocess.TimeoutExpired) as error:
        target.failures[PERF_CLIENT] = str(error)
        say(f"{PERF_CLIENT}: {target.name} FAILED: {error}")
        return
    target.perf_per_s.append(per_s)
    say(f"{PERF_CLIENT}: {target.name}: {per_s:,.0f}/s")
