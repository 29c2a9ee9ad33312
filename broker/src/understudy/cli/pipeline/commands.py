"""``understudy pipeline``: the Spark jobs. Needs the extra ``spark``; says so when it is missing."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from understudy.cli.data.checks.compare import exports_of, plain_comparison, plan_of, print_comparison
from understudy.cli.data.ledger import refuse_twice
from understudy.cli.data.stores import STORE, open_store
from understudy.cli.data.transfer import export_copy
from understudy.cli.messages.report import exit_code_of_report, print_report
from understudy.cli.pipeline.archive import archive_command
from understudy.cli.pipeline.consolidate import consolidate_command
from understudy.cli.pipeline.flow import flow_command
from understudy.cli.pipeline.replay import replay_command
from understudy.cli.pipeline.spark_job import (
    JSON,
    MASTER,
    WORK_DIRECTORY,
    job_session,
    make_directory,
    progress,
    write_whole,
)
from understudy.cli.terminal import Commands, echo
from understudy.ledger import WINDOW_MS
from understudy.spark.base.pages import audit_page
from understudy.spark.ledger.evidence import chain, describe_input, sections_of, verify

if TYPE_CHECKING:
    from understudy.spark.jobs.jobs import Audit
    from understudy.spark.jobs.verdicts import Verdict

_OUTPUT = click.Path(dir_okay=False, path_type=Path)


@click.group(cls=Commands)
def pipeline() -> None:
    """Analyse ledgers and journals with Spark, on this machine or on a cluster."""


pipeline.add_command(archive_command)
pipeline.add_command(consolidate_command)
pipeline.add_command(flow_command)
pipeline.add_command(replay_command)

# --- audit ------------------------------------------------------------------------------------------------------------


@pipeline.command()
@click.argument(
    "ledgers",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="LEDGER...",
)
@MASTER
@JSON
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
    "--journal",
    "journals",
    multiple=True,
    type=STORE,
    help="Journal of a stopped node; given for ALL nodes, their live messages are those that the queues held.",
)
@click.option(
    "--members",
    is_flag=True,
    help="Messages moved between members of a cluster: another message id alone is no duplicate, order is not judged.",
)
@click.option("--report", "report_file", type=_OUTPUT, help="Write a hash-chained report (JSON lines).")
@click.option("--html", "html_file", type=_OUTPUT, help="Write an HTML page with plots.")
@WORK_DIRECTORY
def audit(
    ledgers: tuple[Path, ...],
    master: str,
    as_json: bool,
    window_ms: int,
    clock_skew_ms: int,
    remaining_file: Path | None,
    journals: tuple[str, ...],
    members: bool,
    report_file: Path | None,
    html_file: Path | None,
    work_dir: Path | None,
) -> None:
    """Check LEDGERs together, as ``understudy ledger check`` does, at any size.

    \b
    Example: understudy pipeline audit sent.jsonl received.jsonl --html audit.html

    Exit codes: 0 every promise kept, 1 a promise broken, 2 a file or Spark cannot be used, 3 nothing broken,
    but messages are unresolved.
    """
    refuse_twice(ledgers)
    with job_session("audit", master, work_dir) as spark:
        from understudy.spark.jobs import jobs

        found = jobs.audit(
            spark,
            ledgers,
            window_ms=window_ms,
            clock_skew_ms=clock_skew_ms,
            remaining=jobs.RemainingMessages(remaining_file, journals),
            members=members,
            with_rates=html_file is not None,
        )
    inputs = [*ledgers, *([] if remaining_file is None else [remaining_file])]
    _write_reports(found, inputs, journals, report_file, html_file)
    if as_json:
        echo(json.dumps(found.to_json(), indent=2))
    else:
        print_report(found.report, found.torn)
        for finding in found.confirmed_by.findings:
            echo(f"two-confirming: {finding}")
    if not found.ok:
        raise SystemExit(exit_code_of_report(found.report) if found.confirmed_by.ok else 1)


def _write_reports(
    found: Audit, inputs: list[Path], journals: tuple[str, ...], report_file: Path | None, html_file: Path | None
) -> None:
    if report_file is None and html_file is None:
        return
    report: dict[str, Any] = found.to_json()
    verdict = report["verdict"] if found.confirmed_by.ok else "broken"
    sections = [("journals", list(journals)), *sections_of(report)]
    lines = chain([describe_input(path) for path in inputs], sections, verdict)
    if report_file is not None:
        write_whole(report_file, "".join(f"{line}\n" for line in lines))
    if html_file is not None:
        windows = [(window.start_ms, window.end_ms) for window in found.report.windows]
        fingerprint = json.loads(lines[-1])["hash"]
        write_whole(html_file, audit_page(report, found.rates, windows, found.bucket_ms, fingerprint))


@pipeline.command("verify-report")
@click.argument("report", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def verify_report(report: Path) -> None:
    """Check that a hash-chained REPORT is complete and unchanged; prints its hash.

    \b
    Example: understudy pipeline verify-report audit.json

    Exit codes: 0 unchanged, 2 changed, cut or no report.
    """
    echo(verify(report))


# --- verdict ----------------------------------------------------------------------------------------------------------


@pipeline.command("verdict")
@click.argument("directories", nargs=-1, required=True, type=STORE, metavar="DIRECTORY...")
@MASTER
@JSON
@click.option(
    "--list",
    "sample",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Messages of each replay set to list with --json.",
)
@click.option("--in-use", is_flag=True, help="Read copies although a broker runs on them.")
@click.option(
    "--export",
    "export_directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the messages that only one side has, for ``understudy data import``; made if missing.",
)
@WORK_DIRECTORY
@click.pass_context
def verdict_command(
    context: click.Context,
    directories: tuple[str, ...],
    master: str,
    as_json: bool,
    sample: int,
    in_use: bool,
    export_directory: Path | None,
    work_dir: Path | None,
) -> None:
    """Compare copies of one node's journal, with every byte checked: DIRECTORY DIRECTORY [DIRECTORY ...].

    Newest is decided by epoch and sequence. The copies are only read.

    \b
    Example: understudy pipeline verdict /srv/a/data/journal /mnt/b/data/journal --export only-there

    Exit codes: 0 all are identical or one the beginning of the other, 1 some diverged or one is damaged, or an export
    is not complete, 2 usage, or not of one node, or one cannot be read.
    """
    if len(directories) < 2 or len(set(directories)) < len(directories):
        raise click.UsageError("at least two different directories are required")
    disk = open_store(*directories)
    with job_session("verdict", master, work_dir) as spark:
        from understudy.spark.jobs import verdicts

        found = verdicts.verdict(
            spark, disk, directories, sample=sample, in_use=in_use, progress=progress(quiet=as_json)
        )
    exports, complete = _export(found, export_directory)
    plan = plan_of(found.comparison)
    if as_json:
        checked = {
            "checked": [asdict(each) for each in found.checked],
            "damage": [asdict(each) for each in found.damage],
        }
        echo(json.dumps({**plain_comparison(found.comparison), "plan": plan, **checked, "exports": exports}))
    else:
        print_comparison(found.comparison, plan)
        for copy in found.checked:
            echo(
                f"checked: {copy.directory}: {copy.segments:,} segments, {copy.records:,} records, "
                f"{copy.record_bytes:,} bytes, {copy.damaged} damaged places"
            )
        for place in found.damage:
            echo(f"damaged: {place.directory}: {place.file} at offset {place.offset}: {place.message}")
        for export in exports:
            echo(f"exported: {export['messages']:,} messages of {export['directory']} to {export['file']}")
    context.exit(0 if found.ok and complete else 1)


def _export(found: Verdict, directory: Path | None) -> tuple[list[dict[str, Any]], bool]:
    """The files of the replay sets, one for each copy that has messages alone."""
    if directory is None:
        return [], True
    make_directory(directory)
    summaries, whole = [], True
    for number, (source, others) in enumerate(exports_of(found.comparison), 1):
        file = str(directory / f"{number}-{Path(source).name}.jsonl")
        summary, complete = export_copy(source, others, file, allow_damage=True)
        summaries.append(summary)
        whole = whole and complete
    return summaries, whole
