"""``python -m interop.differential --seeds 0-999``: run it from ``broker/tests``, or by ``make differential``."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from interop.differential.campaign import Verdict, judge
from interop.differential.compare import Difference
from interop.differential.configuration import start
from interop.differential.generator import PROFILES
from interop.differential.restarts import judge_restarts

ROOT = Path(__file__).parents[4]
SCRATCH = ROOT / ".scratch" / "interop"

#: Programs for one restart.
_BATCH = 40


def _artemis() -> Path:
    found = sorted(SCRATCH.glob("apache-artemis-*/bin/artemis"))
    if not found:
        raise click.UsageError(f"no Artemis in {SCRATCH}: the interop tests bring it (make interop)")
    return found[-1]


def _seeds(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found


@click.command()
@click.option("--seeds", default="0-99", show_default=True, help="Seeds of the programs, such as 0-999 or 3,17.")
@click.option("--restarts", is_flag=True, help="Programs with a restart of the broker in them.")
@click.option("--profile", type=click.Choice([each.__name__.strip("_") for each in PROFILES]), help="Only its seeds.")
@click.option(
    "--artemis",
    type=click.Path(path_type=Path, exists=True),
    help="Command of Artemis; default: the one that the tests downloaded.",
)
@click.option("--shrink/--no-shrink", "shrinking", default=True, help="Make the programs that differ small.")
@click.option("--seconds", type=float, help="Begin no seed after that time.")
@click.option("--json", "as_json", is_flag=True, help="One object on the standard output.")
def main(
    seeds: str,
    restarts: bool,
    profile: str | None,
    artemis: Path | None,
    shrinking: bool,
    seconds: float | None,
    as_json: bool,
) -> None:
    """The same programs at both brokers. Exit code 1: there was a difference."""
    names = [each.__name__.strip("_") for each in PROFILES]
    chosen = [seed for seed in _seeds(seeds) if profile in (None, names[seed % len(names)])]
    command = artemis or _artemis()
    began = time.monotonic()
    verdicts: list[Verdict] = []
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="differential-") as directory:
        targets = []
        try:
            targets.append(start("understudy", Path(directory) / "understudy", command, restarted=restarts))
            targets.append(start("artemis", Path(directory) / "artemis", command, restarted=restarts))
            ports = [target.node.port for target in targets]
            with Progress(console=console, disable=not console.is_terminal) as progress:
                task = progress.add_task("programs", total=len(chosen))
                size = _BATCH if restarts else 1
                for number, at in enumerate(range(0, len(chosen), size)):
                    if seconds is not None and time.monotonic() - began > seconds:
                        break
                    seeds_now = chosen[at : at + size]
                    if restarts:
                        found = judge_restarts(seeds_now, *targets, killed=number % 2 == 1)
                    else:
                        found = [judge(seed, ports[0], ports[1], shrinking=shrinking) for seed in seeds_now]
                    verdicts.extend(found)
                    progress.advance(task, len(found))
                    for verdict in found:
                        if verdict.difference is not None:
                            progress.console.print(f"seed {verdict.seed}: {verdict.difference.sort}", markup=False)
        finally:
            for target in targets:
                target.end()
    _report(verdicts, time.monotonic() - began, as_json)
    sys.exit(any(verdict.difference is not None for verdict in verdicts))


def _report(verdicts: list[Verdict], seconds: float, as_json: bool) -> None:
    different: dict[int, Difference] = {
        verdict.seed: verdict.difference for verdict in verdicts if verdict.difference is not None
    }
    unstable = [verdict.seed for verdict in verdicts if verdict.unstable is not None]
    sorts = Counter(difference.sort for difference in different.values())
    if as_json:
        click.echo(
            json.dumps(
                {
                    "programs": len(verdicts),
                    "seconds": round(seconds, 1),
                    "unstable": unstable,
                    "differences": [
                        {"seed": seed, "sort": each.sort, "program": [repr(step) for step in each.program],
                         "where": each.where, "understudy": repr(each.ours), "artemis": repr(each.theirs)}
                        for seed, each in different.items()
                    ],
                }
            )
        )  # fmt: skip
        return
    for seed, difference in different.items():
        click.echo(f"\nseed {seed}: {difference.sort}\n{difference.describe()}")
    if sorts:
        click.echo("\ndifferences by sort:")
        for sort, count in sorts.most_common():
            click.echo(f"{count:5}  {sort}")
    click.echo(
        f"\n{len(verdicts) - len(different)} of {len(verdicts)} programs were the same at both in {seconds:.0f} s;"
        f" {len(unstable)} were not the same twice at one of them"
    )


if __name__ == "__main__":
    main()
