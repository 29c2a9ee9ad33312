"""``make plant BUG=NAME``: runs seeds of the simulation with a planted bug.

Without other options these are the seeds of the scenarios in which it must be found.
"""

from __future__ import annotations

import sys
from typing import TextIO

import click

from planted.bugs import BUGS
from understudy.testing.scenarios.scenarios import SCENARIOS
from understudy.testing.simulate import Request, parse_seeds, simulate


def _seeds(context: click.Context, parameter: click.Parameter, value: str | None) -> range | None:
    if value is None:
        return None
    try:
        return parse_seeds(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("planted")
@click.argument("bug", type=click.Choice(sorted(BUGS)))
@click.option(
    "--seeds", callback=_seeds, help="First and last seed; otherwise those within which the bug must be found."
)
@click.option("--seed", type=int, help="One seed; prints its plan.")
@click.option("--scenario", type=click.Choice(list(SCENARIOS)), help="One scenario; otherwise those of the bug.")
@click.option("--trace", type=click.File("w"), help="Write everything that happens in --seed to a file.")
@click.option("--without", multiple=True, type=int, help="Leave out the fault of this number, with --seed.")
@click.option("--shrink/--no-shrink", default=True, show_default=True, help="Leave out faults of failing seeds.")
def main(
    bug: str,
    seeds: range | None,
    seed: int | None,
    scenario: str | None,
    trace: TextIO | None,
    without: tuple[int, ...],
    shrink: bool,
) -> None:
    """Run seeds with a planted bug. Exit code 1: the bug was found.

    Example: python -m planted lost-lease-not-noticed --seeds 0-9
    """
    planted = BUGS[bug]
    click.echo(f"planted: {planted.text}")
    scenarios = {
        name: seeds or planted.seeds.get(name, range(10)) for name in ([scenario] if scenario else planted.seeds)
    }
    with planted.planted() as run_class:
        request = Request(
            scenarios, seed, trace, without, shrink=shrink, run_class=run_class, command=f"python -m planted {bug}"
        )
        sys.exit(simulate(request))


if __name__ == "__main__":
    main()
