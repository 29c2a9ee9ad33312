"""The artemis command line of the distribution against a real Artemis and against this broker, with the same output."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.artemis_commands import ArtemisCommands
from support.command_lines import MANAGING, MESSAGES, PERFORMANCE, arguments_of, said
from support.targets import Target, start_target

pytestmark = [pytest.mark.maven, pytest.mark.long]

Outcome = tuple[list[str], int, str]


class Side:
    """One of both brokers, with a command line of its own."""

    def __init__(self, target: Target, artemis: Path, directory: Path) -> None:
        self.target = target
        self.commands = ArtemisCommands(artemis)
        self.file = str(directory / f"{target.name}.xml")

    def run(self, text: str) -> list[Outcome]:
        return [
            (arguments, *self.commands.run(*arguments)) for arguments in arguments_of(text, self.target.url, self.file)
        ]

    def end(self) -> None:
        self.commands.end()
        self.target.end()


@pytest.fixture(scope="module")
def sides(artemis: Path, instances: Path) -> Iterator[tuple[Side, Side]]:
    """Artemis and ours."""
    made: list[Side] = []
    try:
        for name in ("artemis", "understudy"):
            target = start_target(name, instances / f"commanded-{name}", artemis)
            made.append(Side(target, artemis, instances))
        yield made[0], made[1]
    finally:
        for side in made:
            side.end()


def differing(sides: tuple[Side, Side], text: str, *, numbers: bool = True) -> list[str]:
    """Lines that differ, command by command; both brokers are tested at the same time."""
    with ThreadPoolExecutor(2) as pool:
        there, here = pool.map(lambda side: side.run(text), sides)
    found = []
    for (arguments, code, printed), (_, other_code, other_printed) in zip(there, here, strict=True):
        theirs, ours = (said(each, numbers=numbers) for each in (printed, other_printed))
        if code != other_code or theirs != ours:
            found.append(f"## {' '.join(arguments)}: exit {code} there, {other_code} here")
            found += list(difflib.unified_diff(theirs, ours, "there", "here", n=0, lineterm=""))[3:]
    return found


@pytest.mark.feature("artemis queue")
def test_managing_says_the_same(sides: tuple[Side, Side]) -> None:
    found = differing(sides, MANAGING)
    assert not found, "\n".join(found)


@pytest.mark.feature("artemis producer, browser, transfer, consumer")
def test_messages_come_and_go_the_same(sides: tuple[Side, Side]) -> None:
    found = differing(sides, MESSAGES)
    assert not found, "\n".join(found)


@pytest.mark.feature("artemis perf")
def test_performance_runs_report_the_same(sides: tuple[Side, Side]) -> None:
    found = differing(sides, PERFORMANCE, numbers=False)
    assert not found, "\n".join(found)
