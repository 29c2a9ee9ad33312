"""Time without service as clients see it: planned switch, SIGKILL, silent cut of the active node, and the failback.

Two clients send without a pause, ours and the stock one of Artemis (Java), each with a consumer. The time without
service of a client is the longest time between two of its confirmed sends, of a consumer that between two messages.
Silent cuts need network namespaces (root).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.table import Table

from benchmarks.failover_pairs import DEFAULTS, NODES, THIRD, TUNED, FailoverPair, Kind
from benchmarks.load import CannotRun, RunFailed
from benchmarks.targets import artemis_home
from support.networks import Network, why_not
from support.processes import COMMAND

FAULTS: Final = ("planned", "kill", "cut", "cut-tuned")
KINDS: Final = {
    each.name: each
    for each in (
        Kind("understudy", "shared-store"),
        Kind("understudy", "witness"),
        Kind("understudy", "zookeeper"),
        Kind("understudy", "file"),
        Kind("understudy", "votes"),
        Kind("artemis", "shared-store"),
        Kind("artemis", "votes"),
    )
}
#: Milliseconds; of a kill: of shared storage, of replication.
GOALS_MS: Final = {
    "planned": (1_000, 1_000),
    "kill": (1_000, 2_000),
    "cut": (10_000, 10_000),
    "cut-tuned": (5_000, 5_000),
}
#: Of our observer; the Java one waits as long between two sends.
_PAUSE_MS: Final = 10
#: Service goes on without a gap that is longer than ``_STEADY_GAP_MS`` for so long.
_STEADY_MS: Final = 1_500
_STEADY_GAP_MS: Final = 400
#: Only against a hang: a client that does not get service again.
_SERVICE_S_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class Sample:
    """One round of one fault. Milliseconds."""

    kind: str
    fault: str
    active_ms: float
    """Milliseconds from the fault until the other node is active, as its log says."""
    gaps_ms: dict[str, float]
    """Time without service by client: ``send`` and ``receive`` of this client, ``java-send``, ``java-receive``."""


class Observer:
    """A client and the times of its events, read from its log."""

    def __init__(self, name: str, log: Path, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        self.name = name
        self._log = log
        self._processes = processes
        self._offset = 0
        self._rest = b""
        self.times: dict[str, list[int]] = {}
        """When each event of a kind was, in milliseconds since 1970."""

    def read(self) -> None:
        """Take what the client has written since the last call."""
        if self._log.exists():
            with self._log.open("rb") as file:
                file.seek(self._offset)
                text = file.read()
            self._offset += len(text)
            *lines, self._rest = (self._rest + text).split(b"\n")
            for line in lines:
                self._take(line)

    def _take(self, line: bytes) -> None:
        raise NotImplementedError

    def end(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.kill()
            process.wait()


class _Ours(Observer):
    """``understudy produce`` and ``consume`` with one ledger."""

    _KINDS: Final = {"CONFIRMED": "send", "ACKNOWLEDGED": "receive"}

    def _take(self, line: bytes) -> None:
        row = json.loads(line)
        name = self._KINDS.get(row["kind"])
        if name is not None:
            self.times.setdefault(name, []).append(row["at_ms"])


class _Java(Observer):
    """``driver/Observer.java`` with the client of the Artemis distribution."""

    _KINDS: Final = {b"s": "java-send", b"r": "java-receive"}

    def _take(self, line: bytes) -> None:
        kind, _, time_ms = line.partition(b" ")
        if kind in self._KINDS:
            self.times.setdefault(self._KINDS[kind], []).append(int(time_ms))


def _ours(url: str, directory: Path) -> list[Observer]:
    """The two commands with a ledger each."""
    started: list[Observer] = []
    for command, options in (
        ("produce", ["--blocking", "--rate", str(1000 / _PAUSE_MS), "--size", "100"]),
        ("consume", ["--follow"]),
    ):
        ledger = directory / f"{command}.jsonl"
        with (directory / f"{command}.out").open("wb") as out:
            process = subprocess.Popen(
                [str(COMMAND), command, "--url", url, "--queue", "ours", "--ledger", str(ledger), *options],
                stdout=out, stderr=out, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        started.append(_Ours(command, ledger, [process]))
    return started


def _java(url: str, directory: Path) -> list[Observer]:
    """Raises CannotRun: there is no Java compiler, or no distribution."""
    libraries = f"{artemis_home()}/lib/*"
    source = Path(__file__).parent / "driver" / "Observer.java"
    try:
        compiled = subprocess.run(
            ["javac", "-d", str(directory), "-cp", libraries, str(source)], capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise CannotRun("javac is not installed") from error
    if compiled.returncode:
        raise CannotRun(compiled.stderr[-400:])
    log = directory / "observer.out"
    with log.open("wb") as out, (directory / "observer.err").open("wb") as err:
        process = subprocess.Popen(
            ["java", "-Xmx128m", "-XX:+UseSerialGC", "-cp", f"{directory}:{libraries}", "Observer", url, "java",
             str(_PAUSE_MS)],
            stdout=out, stderr=err, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    return [_Java("java", log, [process])]


@contextmanager
def _observing(url: str, directory: Path, java: bool) -> Iterator[list[Observer]]:
    started: list[Observer] = []
    try:
        started += _ours(url, directory)
        if java:
            started += _java(url, directory)
        yield started
    finally:
        for each in started:
            each.end()


def wait_steady(observers: Sequence[Observer], since_ms: float) -> None:
    """Wait until every client has had service without a gap for ``_STEADY_MS``, all of it after a time."""
    end = time.monotonic() + _SERVICE_S_MAX
    while True:
        late: list[str] = []
        for observer in observers:
            observer.read()
            if len(observer.times) < (2 if observer.name == "java" else 1):
                late.append(observer.name)
            late += [name for name, times in observer.times.items() if not _steady(times, since_ms)]
        if not late:
            return
        if time.monotonic() > end:
            raise RunFailed(f"no service for {', '.join(late)} after {_SERVICE_S_MAX} s")
        time.sleep(0.1)


def _steady(times: Sequence[int], since_ms: float) -> bool:
    now_ms = time.time() * 1000
    recent = [each for each in times[-1000:] if each >= max(since_ms, now_ms - 2 * _STEADY_MS)]
    if len(recent) < 2 or recent[-1] - recent[0] < _STEADY_MS:
        return False
    last = [each for each in recent if each >= recent[-1] - _STEADY_MS]
    return all(after - before <= _STEADY_GAP_MS for before, after in pairwise(last))


def longest_gap_ms(times: Sequence[int], since_ms: float, until_ms: float) -> float:
    """The longest time between two events, of which the second one is between the two times."""
    gaps = [
        after - before for before, after in pairwise(times) if since_ms < after <= until_ms
    ]  # fmt: skip
    return float(max(gaps, default=until_ms - since_ms))


class Rounds:
    """Rounds of faults of one pair, under the same clients."""

    def __init__(self, pair: FailoverPair, network: Network | None, observers: Sequence[Observer]) -> None:
        self._pair, self._network, self._observers = pair, network, observers

    def run(self, fault: str) -> list[Sample]:
        """One fault and the failback."""
        pair = self._pair
        wait_steady(self._observers, time.time() * 1000)
        began_ms = time.time() * 1000
        if fault == "planned":
            pair.switch()
        elif fault == "kill":
            pair.nodes["primary"].kill()
        else:
            assert self._network is not None
            self._network.isolate("primary")
        pair.wait_active("backup")
        wait_steady(self._observers, pair.active_at_s("backup") * 1000)
        samples = [self._sample(fault, "backup", began_ms)]
        if self._network is not None and fault.startswith("cut"):
            # an isolated node of Artemis goes on, and would be a second active one
            pair.nodes["primary"].end()
            self._network.heal()
        began_ms = time.time() * 1000
        pair.start_node("primary")
        pair.wait_ready()
        wait_steady(self._observers, pair.active_at_s("primary") * 1000)
        return [*samples, self._sample("failback", "primary", began_ms)]

    def _sample(self, fault: str, to: str, began_ms: float) -> Sample:
        now_ms = time.time() * 1000
        gaps = {
            name: longest_gap_ms(times, began_ms, now_ms)
            for observer in self._observers
            for name, times in observer.times.items()
        }
        return Sample(self._pair.kind.name, fault, self._pair.active_at_s(to) * 1000 - began_ms, gaps)


def measure(kind: Kind, faults: Sequence[str], rounds: int, java: bool, network: Network | None) -> Iterator[Sample]:
    """All rounds of one kind; a pair for the faults without a cut, one for each kind of cut. Raises CannotRun."""
    groups = [[each for each in faults if not each.startswith("cut")]]
    groups += [[each] for each in faults if each.startswith("cut") and network is not None]
    for group in groups:
        if not group:
            continue
        with tempfile.TemporaryDirectory(prefix="understudy-bench-", ignore_cleanup_errors=True) as name:
            tuning = TUNED if group == ["cut-tuned"] else DEFAULTS
            pair = FailoverPair(Path(name) / "pair", kind, network, tuning)
            try:
                pair.start()
                with _observing(pair.url, Path(name), java) as observers:
                    turns = Rounds(pair, network, observers)
                    for _ in range(rounds):
                        for fault in group:
                            yield from turns.run(fault)
            finally:
                pair.end()
                if network is not None:
                    network.heal()


@dataclass(frozen=True, slots=True)
class Plan:
    """The measurements of a run."""

    kinds: Sequence[str]
    faults: Sequence[str]
    rounds: int
    cut_rounds: int
    turns: int
    """Every pair is measured in each turn, so that other load of the machine meets all of them."""
    java: bool

    def parts(self) -> Iterator[tuple[str, list[str], int]]:
        """A pair, its faults, and the rounds of each of them."""
        for turn in range(self.turns):
            for name in self.kinds:
                for some, total in (
                    ([each for each in self.faults if not each.startswith("cut")], self.rounds),
                    ([each for each in self.faults if each.startswith("cut")], self.cut_rounds),
                ):
                    count = (turn + 1) * total // self.turns - turn * total // self.turns
                    if some and count:
                        yield name, some, count


def run(plan: Plan, network: Network | None) -> tuple[list[Sample], dict[str, str]]:
    """All measurements, and why some are missing; closes the network."""
    samples: list[Sample] = []
    skipped: dict[str, str] = {}
    try:
        for name, faults, count in plan.parts():
            try:
                for sample in measure(KINDS[name], faults, count, plan.java, network):
                    samples.append(sample)
                    click.echo(json.dumps(asdict(sample) | {"load": os.getloadavg()[0]}), err=True)
            except (CannotRun, RunFailed) as error:
                skipped[f"{name}, {', '.join(faults)}"] = str(error)
                click.echo(f"{name}: {error}", err=True)
    finally:
        if network is not None:
            network.close()
    return samples, skipped


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that so many percent of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


_HEADERS: Final = (
    "pair", "fault", "rounds", "our client p50", "p95", "stock client p50", "p95", "consumers p50", "p95",
    "other node active p50", "goal",
)  # fmt: skip


def rows(samples: Sequence[Sample]) -> Iterator[list[str]]:
    """One row for each kind and fault, in milliseconds."""
    groups = dict.fromkeys((each.kind, each.fault) for each in samples)
    for kind, fault in groups:
        chosen = [each for each in samples if (each.kind, each.fault) == (kind, fault)]
        cells = [kind, fault, str(len(chosen))]
        sends: list[float] = []
        for names in (("send",), ("java-send",), ("receive", "java-receive")):
            values = [each.gaps_ms[name] for each in chosen for name in names if name in each.gaps_ms]
            sends += values if names[0].endswith("send") else []
            cells += [f"{percentile(values, 50):.0f}", f"{percentile(values, 95):.0f}"] if values else ["", ""]
        cells.append(f"{statistics.median(each.active_ms for each in chosen):.0f}")
        goal_ms = GOALS_MS.get(fault, (0, 0))[not KINDS[kind].shared]
        met = percentile(sends, 95) <= goal_ms
        cells.append(f"{goal_ms / 1000:.0f} s: {'met' if met else 'MISSED'}" if goal_ms else "")
        yield cells


@click.command()
@click.option("--rounds", default=20, show_default=True, type=click.IntRange(1), help="Rounds of each fault.")
@click.option(
    "--cut-rounds", default=None, type=click.IntRange(1), help="Rounds of each silent cut; default: --rounds."
)
@click.option("--turns", default=4, show_default=True, type=click.IntRange(1), help="The rounds go in so many turns.")
@click.option("--faults", default=",".join(FAULTS), show_default=True, help="Faults, with commas between them.")
@click.option(
    "--pairs", "kinds", default=",".join(KINDS), show_default=True, help="Kinds of pairs, with commas between them."
)
@click.option("--java/--no-java", default=True, show_default=True, help="Run the stock client beside ours.")
@click.option("--markdown", "as_markdown", is_flag=True, help="The table as in docs/build/reliability.md.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def failover(
    *,
    rounds: int,
    cut_rounds: int | None,
    turns: int,
    faults: str,
    kinds: str,
    java: bool,
    as_markdown: bool,
    as_json: bool,
) -> None:
    """Time without service as clients see it, of a planned switch, SIGKILL and a silent cut of the active node."""
    chosen = [each for each in faults.split(",") if each]
    for each in chosen:
        if each not in FAULTS:
            raise click.BadParameter(f"{each!r} is none of {', '.join(FAULTS)}")
    if unknown := {each for each in kinds.split(",") if each} - set(KINDS):
        raise click.BadParameter(f"{', '.join(sorted(unknown))}: none of {', '.join(KINDS)}")
    reason = why_not()
    if reason:
        click.echo(f"silent cuts are left out: {reason}", err=True)
    plan = Plan([each for each in kinds.split(",") if each], chosen, rounds, cut_rounds or rounds, turns, java)
    samples, skipped = run(plan, None if reason else Network(*NODES, THIRD))
    if as_json:
        found = {"benchmark": "failover", "samples": [asdict(each) for each in samples], "skipped": skipped}
        print(json.dumps(found))
        return
    _print(samples, skipped, rounds, as_markdown)


def _print(samples: Sequence[Sample], skipped: dict[str, str], rounds: int, as_markdown: bool) -> None:
    if as_markdown:
        print(f"| {' | '.join(_HEADERS)} |\n|{'---|' * 2}{'---:|' * (len(_HEADERS) - 3)}---|")
        for cells in rows(samples):
            print(f"| {' | '.join(cells)} |")
    else:
        table = Table(title=f"Milliseconds without service, {rounds} rounds, {datetime.now():%Y-%m-%d}")
        for header in _HEADERS:
            table.add_column(header, justify="right")
        for cells in rows(samples):
            table.add_row(*cells)
        Console(width=160).print(table)
    for name, reason in skipped.items():
        print(f"not measured: {name}: {reason.splitlines()[0]}")
