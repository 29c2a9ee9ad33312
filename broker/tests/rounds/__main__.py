"""``python -m rounds``: rounds of faults on real pairs on loopback, each judged by the ledgers of its clients."""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from rounds.engine import BROKEN, KINDS, Rounds, Row
from rounds.sites import Site
from support.processes import COMMAND

PAIRS = ("shared", "replicated")


@click.command()
@click.option(
    "--rounds", default=10, show_default=True, type=click.IntRange(min=1), help="Rounds of each kind and pair."
)
@click.option(
    "--faults",
    default=1,
    show_default=True,
    type=click.IntRange(min=1),
    help="Faults of a round, one after the other while its clients go on; their ledgers are judged at its end.",
)
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Default: all.")
@click.option("--pair", "pairs", multiple=True, type=click.Choice(PAIRS), help="Default: both.")
@click.option("--seed", default=1, show_default=True, help="Draws nodes, faults and moments.")
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), help="Keep the files of failed rounds here.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def main(
    rounds: int,
    faults: int,
    kinds: tuple[str, ...],
    pairs: tuple[str, ...],
    seed: int,
    keep: Path | None,
    as_json: bool,
) -> None:
    """Kill nodes (kill), cut their power with the loss of everything unsynced (power), let the operations of one disk
    fail (disk), stop the active node while the other one takes its lock (pause), under load; a C compiler is needed.
    After the rounds of a pair `understudy data verify` reads its journals.

    Exit codes: 0 every promise was kept, 1 one was not, a pair did not serve again, or a journal is damaged.
    """
    rows: list[Row] = []
    for pair in pairs or PAIRS:
        for kind in kinds or KINDS:
            rows += _run(pair, kind, rounds, faults, seed, keep)
    if as_json:
        click.echo(json.dumps({"seed": seed, "rounds": [row.to_json() for row in rows], "table": _summary(rows)}))
    else:
        _print(rows)
    if not all(row.ok for row in rows):
        raise SystemExit(1)


def _run(pair: str, kind: str, rounds: int, faults: int, seed: int, keep: Path | None) -> list[Row]:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="rounds-") as scratch:
        directory = Path(scratch) if keep is None else keep / f"{pair}-{kind}"
        directory.mkdir(parents=True, exist_ok=True)
        site = Site(pair, directory, power=kind == "power")
        try:
            site.start()
            for row in Rounds(site, directory, seed, faults).run(kind, rounds):
                rows.append(row)
                click.echo(_line(row), err=True)
                if not row.ok:
                    click.echo(site.tails(), err=True)
        finally:
            site.end()
        for store in site.stores:
            verified = subprocess.run(
                [COMMAND, "data", "verify", str(store / "journal")], capture_output=True, text=True, check=False
            )
            click.echo(f"{pair} {kind}: data verify of {store}: exit code {verified.returncode}", err=True)
            if rows and verified.returncode and not rows[-1].error:
                rows[-1].error = f"data verify of {store}: {verified.stdout}{verified.stderr}"
    return rows


def _line(row: Row) -> str:
    text = (
        f"{row.pair} {row.kind} {row.number}: {row.fault}; {row.confirmed} confirmed, {row.gap_ms} ms without service"
    )
    if row.faults > 1:
        text += f", the last of {row.faults} faults"
    if row.quarantined:
        text += f", {row.quarantined} in quarantine, {row.elsewhere} of them right on a disk"
    if row.replaced:
        text += f", {row.replaced} clients replaced"
    if row.findings:
        text += f", {row.findings}"
    return text + (", ok" if row.ok else f", FAILED {row.error}")


def _summary(rows: list[Row]) -> list[dict[str, Any]]:
    found = []
    for key in dict.fromkeys((row.pair, row.kind) for row in rows):
        of = [row for row in rows if (row.pair, row.kind) == key]
        gaps = sorted(row.gap_ms for row in of)
        totals = {name: sum(row.findings.get(name, 0) for row in of) for name in (*BROKEN, "two-confirming")}
        found.append({
            "pair": key[0], "kind": key[1], "rounds": len(of), "faults": sum(row.faults for row in of),
            "failed": sum(not row.ok for row in of),
            "confirmed": sum(row.confirmed for row in of), **totals,
            "quarantined": sum(row.quarantined for row in of), "elsewhere": sum(row.elsewhere for row in of),
            "gap_median_ms": statistics.median(gaps), "gap_max_ms": gaps[-1],
        })  # fmt: skip
    return found


def _print(rows: list[Row]) -> None:
    table = Table()
    columns = {
        **{name: name for name in ("pair", "kind", "rounds", "faults", "failed", "confirmed", *BROKEN[:3], "other")},
        "quarantined": "quarantined", "elsewhere": "right on a disk",
        "gap_median_ms": "without service, median ms", "gap_max_ms": "at most ms",
    }  # fmt: skip
    for title in columns.values():
        table.add_column(title, justify="right")
    for each in _summary(rows):
        each["other"] = sum(each[name] for name in (*BROKEN[3:], "two-confirming"))
        table.add_row(*(str(each[name]) for name in columns))
    Console(width=180).print(table)


if __name__ == "__main__":
    main()
