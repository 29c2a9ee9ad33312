"""``python -m interop.suites091 --sources DIRECTORY [SUITE...]``: run it from ``broker/tests``, or by ``make suites``.

Outside test suites of AMQP 0-9-1 against a started node. What a suite needs from package registries is brought first;
the suites and the node then run in a network namespace of their own, as several suites insist on port 5672.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from interop.suites091.definitions import Suite, suites
from interop.suites091.preparing import NotHad, prepare
from interop.suites091.results import Verdict, judge, skip_list
from interop.suites091.running import BROKERS, run

HERE = Path(__file__).parent
SCRATCH = Path(__file__).parents[4] / ".scratch" / "suites091"
#: Set in the process that runs in its own network namespace.
_INSIDE = "UNDERSTUDY_SUITES_INSIDE"


def _prepare(chosen: list[Suite], sources: Path) -> dict[str, str]:
    """Prepare the suites. Returns the reason why a suite cannot be run, by its name."""
    missing: dict[str, str] = {}
    for suite in chosen:
        try:
            prepare(suite, sources, SCRATCH)
        except NotHad as error:
            missing[suite.name] = str(error)
    return missing


def _show(verdicts: list[Verdict], missing: dict[str, str]) -> None:
    table = Table("suite", "passed", "as listed", "left out by the suite", "failed", "listed, but passed")
    for each in verdicts:
        table.add_row(
            each.suite,
            str(len(each.passed)),
            str(len(each.listed)),
            str(len(each.left_out)),
            str(len(each.failed)),
            str(len(each.needless)),
        )
    console = Console(width=160)
    console.print(table)
    for each in verdicts:
        for name in each.failed:
            console.print(f"{each.suite} failed: {name}", markup=False)
        for line in each.needless:
            console.print(f"{each.suite} passes, so the line can go: {line}", markup=False)
    for name, reason in missing.items():
        console.print(f"{name} not run: {reason}", markup=False)


@click.command(
    epilog="Example: python -m interop.suites091 --sources /srv/suites --broker rabbitmq celery kombu",
)
@click.argument("names", nargs=-1)
@click.option(
    "--sources", type=click.Path(path_type=Path, exists=True), required=True, help="Directory with a folder per suite."
)
@click.option(
    "--broker", type=click.Choice(BROKERS), default=BROKERS[0], show_default=True,
    help="rabbitmq: Debian's, to see which tests fail there, too. The list of skipped tests is not used then.",
)  # fmt: skip
def main(names: tuple[str, ...], sources: Path, broker: str) -> None:
    """Outside suites of AMQP 0-9-1 against a node. Exit code 1: a test failed that is not listed."""
    known = suites(HERE / "suites.toml")
    unknown = set(names) - known.keys()
    if unknown:
        raise click.UsageError(f"no suite {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    chosen = [each for each in known.values() if not names or each.name in names]
    if _INSIDE not in os.environ:
        missing = _prepare(chosen, sources)
        command = ["unshare", "--net", sys.executable, "-m", "interop.suites091", *sys.argv[1:]]
        os.execvpe(command[0], command, {**os.environ, _INSIDE: json.dumps(missing)})
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    missing = json.loads(os.environ[_INSIDE])
    skips = skip_list(HERE / "skipped.txt", known) if broker == BROKERS[0] else {name: [] for name in known}
    ready = [each for each in chosen if each.name not in missing]
    verdicts = [judge(each.name, run(each, SCRATCH, broker), skips[each.name]) for each in ready]
    _show(verdicts, missing)
    sys.exit(1 if any(each.failed or each.needless for each in verdicts) else 0)


if __name__ == "__main__":
    main()
