"""``python -m interop.differential091 --seeds 0-99`` in ``broker/tests``, or ``make differential-amqp``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from benchmarks.load import CannotRun
from interop.differential091.campaign import brokers, judge
from interop.differential091.generator import program


def _seeds(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found


@click.command()
@click.option("--seeds", default="0-99", show_default=True, help="Seeds of the programs, such as 0-999 or 3,17.")
@click.option("--shrink/--no-shrink", "shrinking", default=True, help="Make the programs that differ small.")
def main(seeds: str, shrinking: bool) -> None:
    """The same programs at RabbitMQ and at this broker. Exit code 1: there was a difference."""
    different = []
    with tempfile.TemporaryDirectory(prefix="differential091-") as directory:
        try:
            with brokers(Path(directory)) as ports:
                for seed in _seeds(seeds):
                    found = judge(ports, program(seed), shrinking=shrinking)
                    if found is not None:
                        different.append(seed)
                        click.echo(f"\nseed {seed}: {found.sort}\n{found.describe()}")
        except CannotRun as error:
            raise click.ClickException(f"RabbitMQ cannot be had: {error}") from None
    click.echo(f"\n{len(_seeds(seeds)) - len(different)} of {len(_seeds(seeds))} programs were the same at both")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
