"""``python -m benchmarks jms``: what the stock JMS client of Artemis gets from this broker and from Artemis, in turn.

One Java process is the client of all brokers; its processor time, 10 to 30 us for a message, is part of every rate, so
ratios are nearer to 1 than those of ``peers``. Every message is checked: it arrives once, in the order of its producer
and with the body that was sent. Cases that begin with ``beside-`` run on further nodes with ``global-max-size`` of 64
MiB, in which 150,000 messages wait in another queue.

Other peers have no client of this kind; ``peers`` has cases for them.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from benchmarks.backlog import DEEP, Row, start
from benchmarks.case_report import CaseReport
from benchmarks.goals import judge_jms
from benchmarks.growth import fill
from benchmarks.jms_client import JmsClient
from benchmarks.load import CannotRun, RunFailed
from benchmarks.peers import Chosen

_OURS: Final = "understudy"
_BODY_BYTES: Final = 1024
#: The nodes of the cases beside a backlog.
_LIMIT_MIB: Final = 64
_WAITING: Final = 150_000
_PAGED: Final = (
    '<address-setting match="paged.#"><max-size-bytes>10485760</max-size-bytes>'
    "<address-full-policy>PAGE</address-full-policy></address-setting>"
)
#: How the names of cases begin that run on a node above its limit of memory.
BESIDE: Final = "beside-"
CASES: Final[dict[str, str]] = {
    "async": "asynchronous sends, each message acknowledged",
    "tx-1": "sent and received in transactions of 1",
    "tx-100": "sent and received in transactions of 100",
    "tx-500": "sent and received in transactions of 500",
    "xa-1": "sent in XA transactions of 1, two phases",
    "lone-64": "64 connections with a lone send each",
    "client-ack": "acknowledged by the client one by one",
    "scheduled": "20,000 messages with a delay",
    "browse": "a queue of 500 messages is browsed",
    "selectors-100": "100 consumers with selectors on one queue",
    "topic-10": "durable topic, 10 subscribers (deliveries)",
    "topic-100": "durable topic, 100 subscribers (deliveries)",
    "large-500-kB": "bodies of 500 kB, 4 producers that wait",
    "large-10-MB": "bodies of 10 MB, 2 producers that wait",
    "stream-500-kB": "bodies of 500 kB as streams, 4 producers that wait",
    "stream-10-MB": "bodies of 10 MB as streams, 2 producers that wait",
    "paged": "60,000 messages of an address with a limit of 10 MiB are consumed",
    "beside-async": "async, node above its limit of memory",
    "beside-tx-500": "tx-500, node above its limit of memory",
    "beside-topic-10": "topic-10, node above its limit of memory",
    "beside-topic-100": "topic-100, node above its limit of memory",
}


@dataclass(frozen=True)
class _Plan:
    cases: Sequence[str]
    names: Sequence[tuple[str, str]]
    """Name of a row, and the commit whose sources it runs."""
    rounds: int
    window_s: float

    @property
    def warmup_s(self) -> float:
        return self.window_s / 4


@click.command(
    "jms",
    epilog="Example: python -m benchmarks jms --cases tx-1,lone-64 --rounds 5 --baseline HEAD~1",
)
@click.option(
    "--cases", type=Chosen(tuple(CASES), tuple(CASES)), default="", metavar="NAMES", help=f"{', '.join(CASES)}. [all]"
)
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="Medians are printed.")
@click.option(
    "--window-s", default=2.0, show_default=True, type=click.FloatRange(0.1), help="Seconds of each run that count."
)
@click.option(
    "--peers", type=Chosen(("artemis",), ()), default="artemis", show_default=True, help="artemis, or empty for none."
)
@click.option("--baseline", default="", metavar="REV", help="A row more: the sources of this commit.")
@click.option("--markdown", "as_markdown", is_flag=True, help="The table as in docs/build/benchmarks.md.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
def jms(
    *,
    cases: tuple[str, ...],
    rounds: int,
    window_s: float,
    peers: tuple[str, ...],
    baseline: str,
    as_markdown: bool,
    as_json: bool,
) -> None:
    """Compare with Artemis through its stock JMS client; exits with 1 if this broker failed anywhere.

    A whole run takes about 8 minutes on a quiet machine.
    """
    names = [(_OURS, ""), *((peer, "") for peer in peers)]
    if baseline:
        names.append((f"{_OURS}-{baseline[:7]}", baseline))
    plan = _Plan(cases, names, rounds, window_s)
    console = Console(stderr=True)
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(f"[{time.monotonic() - began:4.0f} s] {text}", highlight=False, markup=False)

    report = CaseReport("jms", CASES, cases, "client", decimals=1)
    rows = measure(plan, report, say)
    goals = judge_jms(rows, cases)
    report.print(rows, goals, rounds=rounds, as_json=as_json, as_markdown=as_markdown)
    if any(row.failures for row in rows if row.name.startswith(_OURS)):
        raise SystemExit(1)


def measure(plan: _Plan, report: CaseReport, say: Callable[[str], None]) -> list[Row]:
    """All rounds of all cases for all brokers. Raises CannotRun if there is no client or no broker of this tree."""
    with tempfile.TemporaryDirectory(prefix="understudy-jms-") as name, ExitStack() as stack:
        directory = Path(name)
        client = JmsClient(directory)
        stack.callback(client.end)
        usual: list[Row] = []
        above: dict[str, Row] = {}
        for row_name, revision in plan.names:
            try:
                for beside in {each.startswith(BESIDE) for each in plan.cases}:
                    made = _started(row_name, directory, revision, stack, beside=beside)
                    if beside:
                        above[row_name] = made
                    else:
                        usual.append(made)
            except CannotRun as error:
                if not revision and row_name == _OURS:
                    raise
                say(f"{row_name} skipped: {error}")
        rows = usual or list(above.values())
        for case in plan.cases[:1]:
            for row in rows:
                say(f"priming {row.name}")
                _one(client, row, row, case, "prime", plan)
                row.samples.clear()
        for number in range(plan.rounds):
            for case in plan.cases:
                for row in _turned(rows, number):
                    if case in row.failures:
                        continue
                    node = above[row.name] if case.startswith(BESIDE) else row
                    _one(client, row, node, case, str(number), plan)
                    say(f"round {number + 1} of {plan.rounds}: {case}: {row.name}: {report.last(row, case)}")
        return rows


def _started(name: str, directory: Path, revision: str, stack: ExitStack, *, beside: bool) -> Row:
    """A running node, above its limit of memory if it is for the cases beside a backlog."""
    waiting, limit_mib = (_WAITING, _LIMIT_MIB) if beside else (0, 0)
    broker = start(name, directory / f"{name}-{waiting}", limit_mib, revision, _PAGED)
    stack.callback(broker.stop)
    if waiting:
        fill(broker.port, DEEP, waiting, _BODY_BYTES)
    return Row(name, limit_mib, waiting, broker)


def _turned(rows: list[Row], number: int) -> list[Row]:
    first = number % len(rows)
    return rows[first:] + rows[:first]


def _one(client: JmsClient, row: Row, node: Row, case: str, number: str, plan: _Plan) -> None:
    address = f"{case}.{row.name}.{number}"
    try:
        figures = client.run(
            case.removeprefix(BESIDE), node.broker, address, warmup_s=plan.warmup_s, window_s=plan.window_s
        )
    except RunFailed as error:
        row.failures[case] = str(error)
        return
    row.samples.setdefault(case, []).append(figures)
