"""``python -m benchmarks [NAME ...]``: run all benchmarks or those named."""

from __future__ import annotations

import click

from benchmarks.consolidation import consolidation
from benchmarks.logins import logins
from benchmarks.recovery import recovery
from benchmarks.soak import soak
from benchmarks.takeover import takeover

BENCHMARKS = {
    "consolidation": consolidation,
    "logins": logins,
    "recovery": recovery,
    "soak": soak,
    "takeover": takeover,
}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(sorted(BENCHMARKS)))
@click.option("--json", "as_json", is_flag=True, help="One JSON object per benchmark instead of a table.")
def main(names: tuple[str, ...], as_json: bool) -> None:
    """Run benchmarks side by side in one run; prints medians and ratios."""
    for name in names or sorted(BENCHMARKS):
        BENCHMARKS[name](as_json=as_json)


if __name__ == "__main__":
    main()
