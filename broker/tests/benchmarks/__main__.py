"""``python -m benchmarks [NAME [OPTIONS]] ...``: run all benchmarks or those named, one after the other."""

from __future__ import annotations

from collections.abc import Callable

import click

from benchmarks.backlog import backlog
from benchmarks.blocking import blocking
from benchmarks.bodies import bodies
from benchmarks.body_files import body_files
from benchmarks.calls import calls
from benchmarks.celery_tasks import celery
from benchmarks.cluster import cluster
from benchmarks.consolidation import consolidation
from benchmarks.failover import failover
from benchmarks.fairness import fairness
from benchmarks.group_commit import group_commit
from benchmarks.growth import growth
from benchmarks.jms import jms
from benchmarks.journal_source import journal_source
from benchmarks.logins import logins
from benchmarks.machine import as_installed, describe
from benchmarks.management_pages import management_pages
from benchmarks.member_steps import member_steps
from benchmarks.memory import memory
from benchmarks.pair_revisions import pair_revisions
from benchmarks.peers import peers
from benchmarks.recovery import recovery
from benchmarks.replication import replication
from benchmarks.soak import soak
from benchmarks.spark_jobs import spark_jobs
from benchmarks.stalls import stalls
from benchmarks.takeover import takeover

BENCHMARKS: dict[str, click.Command | Callable[..., None]] = {
    "backlog": backlog,
    "blocking": blocking,
    "bodies": bodies,
    "body-files": body_files,
    "calls": calls,
    "celery": celery,
    "cluster": cluster,
    "consolidation": consolidation,
    "failover": failover,
    "fairness": fairness,
    "group-commit": group_commit,
    "growth": growth,
    "jms": jms,
    "journal-source": journal_source,
    "logins": logins,
    "management-pages": management_pages,
    "member-steps": member_steps,
    "memory": memory,
    "pair-revisions": pair_revisions,
    "peers": peers,
    "recovery": recovery,
    "replication": replication,
    "soak": soak,
    "spark-jobs": spark_jobs,
    "stalls": stalls,
    "takeover": takeover,
}


def _command(name: str, benchmark: click.Command | Callable[..., None]) -> click.Command:
    if isinstance(benchmark, click.Command):
        return benchmark
    as_json = click.Option(["--json", "as_json"], is_flag=True, help="One JSON object instead of a table.")
    return click.Command(name, callback=benchmark, params=[as_json], help=benchmark.__doc__)


@click.group(
    invoke_without_command=True,
    chain=True,
    commands={name: _command(name, benchmark) for name, benchmark in BENCHMARKS.items()},
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per benchmark, when all are run.")
@click.pass_context
def main(context: click.Context, as_json: bool) -> None:
    """Run benchmarks side by side in one run, all of them or those named; prints medians and ratios."""
    as_installed()
    for line in describe():
        # standard output may be one JSON object
        click.echo(line, err=True)
    if context.invoked_subcommand is None:
        assert isinstance(context.command, click.Group)
        for _, command in sorted(context.command.commands.items()):
            command.main(["--json"] if as_json else [], standalone_mode=False)


if __name__ == "__main__":
    main()
