"""``python -m benchmarks [NAME ...]``: run all benchmarks or those named."""

from __future__ import annotations

import click

from benchmarks.logins import logins
from benchmarks.peers import CASES, PERF_CLIENT, TARGETS, peers
from benchmarks.soak import soak
from benchmarks.takeover import takeover

BENCHMARKS = ("logins", "peers", "soak", "takeover")


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(BENCHMARKS))
@click.option("--json", "as_json", is_flag=True, help="One JSON object per benchmark instead of a table.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="Of peers.")
@click.option("--cases", default="", help=f"Of peers, with commas: {', '.join((*CASES, PERF_CLIENT))}.")
@click.option("--peers", "targets", default="", help=f"Whom peers runs, with commas: {', '.join(TARGETS)}.")
@click.option("--quick", is_flag=True, help="One short round of peers: whether it works, not how fast.")
def main(names: tuple[str, ...], as_json: bool, rounds: int, cases: str, targets: str, quick: bool) -> None:
    """Run benchmarks side by side in one run; prints medians and ratios."""
    chosen_cases = _chosen(cases, (*CASES, PERF_CLIENT))
    chosen_targets = _chosen(targets, TARGETS)
    for name in names or BENCHMARKS:
        if name == "peers":
            peers(as_json=as_json, rounds=rounds, cases=chosen_cases, targets=chosen_targets, quick=quick)
        else:
            {"logins": logins, "soak": soak, "takeover": takeover}[name](as_json=as_json)


def _chosen(text: str, known: tuple[str, ...]) -> list[str]:
    chosen = [name for name in text.split(",") if name]
    for name in chosen:
        if name not in known:
            raise click.UsageError(f"{name!r} is none of {', '.join(known)}")
    return chosen


if __name__ == "__main__":
    main()
