"""``python -m fuzz``: run it from ``broker/tests``, or by ``make fuzz``."""

from __future__ import annotations

import importlib.util
import logging
import random
import sys
from pathlib import Path

import click

from fuzz.campaign import guide_for, measure, mutate_for, target_name
from fuzz.catalogue import TARGETS


@click.command()
@click.option("--seconds", default=600.0, show_default=True, help="Time for all targets together.")
@click.option("--seed", type=int, help="Seed of the generator; drawn and printed if it is not given.")
@click.option("--target", "names", multiple=True, type=click.Choice(sorted(TARGETS)), help="Only these; default: all.")
@click.option(
    "--engine", type=click.Choice(["coverage", "mutation"]), help="Default: coverage if atheris is installed."
)
@click.option("--replay", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="A kept input, alone.")
def main(seconds: float, seed: int | None, names: tuple[str, ...], engine: str | None, replay: Path | None) -> None:
    """Feed random and changed inputs to every decoder. Exit code 1: an input caused an undocumented error."""
    # each refusal is logged; the texts are of no use here
    logging.getLogger("understudy").setLevel(logging.CRITICAL)
    if replay is not None:
        measure(TARGETS[names[0] if names else target_name(replay)], replay.read_bytes())
        click.echo(f"{replay}: taken as it should be")
        return
    if engine is None:
        engine = "coverage" if importlib.util.find_spec("atheris") else "mutation"
    seed = random.SystemRandom().randrange(1, 1 << 31) if seed is None else seed
    chosen = [TARGETS[name] for name in names] or list(TARGETS.values())
    click.echo(f"{len(chosen)} targets, {seconds:g} s, engine {engine}, --seed {seed}")
    run = guide_for if engine == "coverage" else mutate_for
    failures = []
    for target in chosen:
        outcome = run(target, seconds * target.weight / sum(each.weight for each in chosen), seed)
        failure = outcome.failure
        click.echo(f"  {target.name:24} {outcome.inputs:>10,} inputs  {outcome.seconds:6.1f} s")
        if failure is not None:
            failures.append(failure)
            click.echo(f"FAILED {target.name}\n{failure.text}\n  replay: make fuzz-replay INPUT={failure.path}")
    click.echo(f"{len(chosen) - len(failures)} of {len(chosen)} targets took everything as they should")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
