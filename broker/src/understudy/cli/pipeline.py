"""``understudy pipeline``: the Spark jobs. Needs the extra ``spark``; says so when it is missing."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import click

from understudy.cli.ledger import refuse_twice
from understudy.cli.report import console, exit_code_of_report, print_report
from understudy.errors import BrokerError, ConfigError, LedgerDamaged
from understudy.ledger import WINDOW_MS
from understudy.spark.session import open_session, require_spark


@click.group()
def pipeline() -> None:
    """Analyse ledgers with Spark, on this machine or on a cluster."""


@pipeline.command()
@click.argument(
    "ledgers",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="LEDGER...",
)
@click.option("--master", default="local[*]", show_default=True, help="Spark master; LEDGERs must be visible to it.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option(
    "--window-ms",
    type=click.IntRange(min=0),
    default=WINDOW_MS,
    show_default=True,
    help="Pauses between confirmations of a producer longer than this are windows without service.",
)
@click.option(
    "--clock-skew-ms",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="How far consumers' clocks differ.",
)
@click.option(
    "--remaining-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON lines with producer and number of ALL messages the queues held in the end.",
)
@click.option(
    "--work-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where Spark spills; default: the system's temporary directory.",
)
def audit(
    ledgers: tuple[Path, ...],
    master: str,
    as_json: bool,
    window_ms: int,
    clock_skew_ms: int,
    remaining_file: Path | None,
    work_dir: Path | None,
) -> None:
    """Check LEDGERs together, as ``understudy ledger check`` does, at any size.

    Exit codes: 0 every promise kept, 1 a promise broken, 2 a file or Spark cannot be used, 3 nothing broken,
    but messages are unresolved.
    """
    refuse_twice(ledgers)
    require_spark()
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from understudy.spark import jobs

    with tempfile.TemporaryDirectory(prefix="understudy-spark-", dir=work_dir) as directory:
        spark = open_session(master, work_directory=directory, name="understudy audit")
        try:
            found = jobs.audit(
                spark, ledgers, window_ms=window_ms, clock_skew_ms=clock_skew_ms, remaining=remaining_file
            )
        except LedgerDamaged as error:
            raise ConfigError(str(error)) from error
        except (PySparkException, Py4JError) as error:
            raise BrokerError(f"Spark failed: {str(error).strip().splitlines()[0]}") from error
        finally:
            spark.stop()
    if as_json:
        click.echo(json.dumps(found.report.to_json() | {"torn": found.torn}, indent=2))
    else:
        print_report(console(), found.report, found.torn)
    if not found.report.ok:
        raise SystemExit(exit_code_of_report(found.report))
