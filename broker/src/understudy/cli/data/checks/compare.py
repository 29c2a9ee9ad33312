"""``understudy data compare``: which copy of a store is newest, where copies diverge, and what to do.

Exit codes: 0 all are identical or one the beginning of the other, 1 some went different ways or one
is damaged, 2 usage (also: not of one node), 3 one cannot be read.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from enum import Enum
from typing import Any, Final

import click

from understudy.cli.data.stores import STORE, open_store
from understudy.cli.tables import Column, Kind, Page, Table, View, view_options
from understudy.cli.tables import console as make_console
from understudy.cli.terminal import echo
from understudy.errors import DiskFailed, StoreVersionUnsupported, WrongNode
from understudy.tools.compare import Comparison, Pair, Place, Relation, Side, compare
from understudy.tools.log_copy import CopyState

COPIES: Final = Table(
    "copies",
    (
        Column("newest", Kind.NAME, "Whether no other copy is newer."),
        Column("directory", Kind.NAME, "Directory of the copy.", title="copy"),
        Column("epoch", Kind.NUMBER, "Epoch of its last record."),
        Column("first_sequence", Kind.NUMBER, "Sequence of its first record.", title="first", optional=True),
        Column("last_sequence", Kind.NUMBER, "Sequence of its last record.", title="last"),
        Column("segments", Kind.NUMBER, "Number of its segments.", optional=True),
        Column("live_messages", Kind.NUMBER, "Messages in its queues.", title="live"),
        Column("state", Kind.NAME, "Whether it is whole."),
    ),
)


@click.command("compare")
@click.argument("directories", nargs=-1, required=True, type=STORE)
@click.option("--full", is_flag=True, help="Check every byte of sealed segments too, instead of trusting their seals.")
@click.option(
    "--list",
    "sample",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Messages of each replay set to list with --json.",
)
@view_options(COPIES)
@click.pass_context
def compare_stores(context: click.Context, directories: tuple[str, ...], full: bool, sample: int, view: View) -> None:
    """Compare copies of one node's journal: DIRECTORY DIRECTORY [DIRECTORY ...].

    Newest is decided by epoch and sequence, never by file times. Nothing is changed.

    \b
    Example: understudy data compare /srv/a/data/journal /mnt/b/data/journal
    """
    if len(directories) < 2 or len(set(directories)) < len(directories):
        raise click.UsageError("at least two different directories are required")
    disk = open_store(*directories)
    console = make_console(err=True)
    quiet = view.as_json or not console.is_terminal
    try:
        with nullcontext() if quiet else console.status("comparing") as status:
            comparison = compare(
                disk,
                directories,
                full=full,
                sample=sample,
                progress=(lambda doing: None) if status is None else status.update,
            )
    except WrongNode as error:
        raise click.UsageError(str(error)) from error
    except (StoreVersionUnsupported, DiskFailed, OSError) as error:
        echo(f"understudy: {error}", err=True)
        context.exit(3)
    plan = plan_of(comparison)
    if view.as_json:
        values = {**plain_comparison(comparison), "plan": plan}
        view.rows(COPIES, values["copies"], shape=lambda rows: {**values, "copies": rows})
    else:
        print_comparison(comparison, plan, view)
    context.exit(1 if comparison.diverged or comparison.damaged else 0)


def plain_comparison(comparison: Comparison) -> dict[str, Any]:
    """A comparison as ``--json`` prints it, without the plan."""
    values = asdict(comparison, dict_factory=lambda items: {k: v.value if isinstance(v, Enum) else v for k, v in items})
    directories = [copy.directory for copy in comparison.copies]
    values["newest"] = [directories[index] for index in comparison.newest]
    for index, plain in enumerate(values["copies"]):
        plain["newest"] = index in comparison.newest
    for pair, plain in zip(comparison.pairs, values["pairs"], strict=True):
        plain["left"], plain["right"] = directories[pair.left], directories[pair.right]
        plain["left_only"]["replay_messages"] = pair.left_only.replay_messages
        plain["right_only"]["replay_messages"] = pair.right_only.replay_messages
    return values


# --- the plan -----------------------------------------------------------------------------------------


def plan_of(comparison: Comparison) -> list[str]:
    """Recommended steps, as text."""
    copies, plan = comparison.copies, list[str]()
    plan += [
        f"{copy.directory} is damaged ({copy.problem.file} at offset {copy.problem.offset}: {copy.problem.message})."
        " Only the records before that are valid; look for an intact copy, and keep this one."
        for copy in copies
        if copy.state == CopyState.DAMAGED.value and copy.problem is not None
    ]
    best = _to_start(comparison)
    if best is None:
        plan.append(
            "No copy is newest: two of them end at the same epoch and sequence and differ. Choose by the messages that"
            " only one of them has, start that one, and transfer the others as below."
        )
        best = comparison.newest[0]
    base = copies[best].directory
    twins = [
        copies[pair.left + pair.right - best].directory for pair in _pairs_of(comparison, best, Relation.IDENTICAL)
    ]
    same = f" ({', '.join(twins)}: the same, record by record)" if twins else ""
    plan.append(
        f"Start from {base}{same}: it ends at epoch {copies[best].epoch}, sequence {copies[best].last_sequence}."
    )
    problem = copies[best].problem
    if copies[best].state == CopyState.SHORT.value and problem is not None:
        plan.append(
            f"A node refuses to start from {base} ({problem.message}): the copy was interrupted. Copy it"
            " again from its source."
        )
    exported: list[str] = []
    for pair in comparison.pairs:
        if best not in (pair.left, pair.right) or pair.relation is Relation.IDENTICAL:
            continue
        other = pair.left + pair.right - best
        side, facing = (pair.left_only, pair.right_only) if pair.left == other else (pair.right_only, pair.left_only)
        plan += _steps(comparison, pair, base, copies[other].directory, side, facing, exported)
    return plan


def exports_of(comparison: Comparison) -> list[tuple[str, tuple[str, ...]]]:
    """The copies whose messages the plan transfers, each with those whose messages are left out."""
    best = _to_start(comparison)
    base = comparison.newest[0] if best is None else best
    found: list[tuple[str, tuple[str, ...]]] = []
    for pair in comparison.pairs:
        if base not in (pair.left, pair.right) or pair.relation is not Relation.DIVERGED:
            continue
        other = pair.left + pair.right - base
        side = pair.left_only if pair.left == other else pair.right_only
        if side.replay_messages:
            before = (comparison.copies[base].directory, *(directory for directory, _ in found))
            found.append((comparison.copies[other].directory, before))
    return found


def _to_start(comparison: Comparison) -> int | None:
    """The newest copy, of several the least damaged one; None if they contradict each other."""
    newest = comparison.newest
    for pair in comparison.pairs:
        if pair.left in newest and pair.right in newest and pair.relation is not Relation.IDENTICAL:
            return None
    order = [CopyState.WHOLE, CopyState.CUT, CopyState.SHORT, CopyState.DAMAGED]
    return min(newest, key=lambda index: order.index(CopyState(comparison.copies[index].state)))


def _pairs_of(comparison: Comparison, index: int, relation: Relation) -> list[Pair]:
    return [pair for pair in comparison.pairs if index in (pair.left, pair.right) and pair.relation is relation]


def _steps(
    comparison: Comparison, pair: Pair, base: str, other: str, side: Side, facing: Side, exported: list[str]
) -> list[str]:
    if pair.relation is Relation.UNKNOWN:
        return [
            (
                f"{other} has no record in common with {base}: one begins after the end of the other. Nothing proves"
                " that it is an older state of the same log; keep it until you know."
            )
        ]
    if pair.relation is not Relation.DIVERGED:
        return [f"{other} is the beginning of {base} and has no further records: it is not needed."]
    steps = [
        (
            f"{other} diverged at sequence {pair.sequence}: {side.messages} messages,"
            f" {side.acknowledgements} acknowledgements and {side.commits} commits are only there."
        )
    ]
    if side.replay_messages:
        without = " ".join(f"--only-in-not {directory}" for directory in (base, *exported))
        steps.append(
            f"Transfer the {side.replay_messages} live messages that only {other} has:"
            f" understudy data export {other} {without} -o FILE, then, with the broker running,"
            " understudy data import FILE --url URL. A repeated import adds nothing."
        )
        exported.append(other)
    if facing.settled:
        steps.append(
            f"{facing.settled} messages that are live in {base} have left their queue in {other}: consumers have"
            " acknowledged them there, and will get them again."
        )
    steps.append(f"Keep {other} until that is done; never start a node from it afterwards.")
    return steps


# --- for people -----------------------------------------------------------------------------------------


def print_comparison(comparison: Comparison, plan: list[str], view: View | None = None) -> None:
    """Print a comparison for people."""
    view = view or View()
    view.rows(COPIES, plain_comparison(comparison)["copies"])
    for pair in comparison.pairs:
        _print_pair(view.page, comparison, pair)
    view.page.line()
    for number, step in enumerate(plan, 1):
        view.page.line(f"{number}. {step}")


def _print_pair(page: Page, comparison: Comparison, pair: Pair) -> None:
    left, right = comparison.copies[pair.left].directory, comparison.copies[pair.right].directory
    words = {
        Relation.IDENTICAL: f"{left} and {right} are identical",
        Relation.PREFIX: f"{left} is a prefix of {right}, which goes on from sequence {pair.sequence}",
        Relation.EXTENSION: f"{right} is a prefix of {left}, which goes on from sequence {pair.sequence}",
        Relation.DIVERGED: f"{left} and {right} diverged at sequence {pair.sequence}",
        Relation.UNKNOWN: f"{left} and {right} have no record in common",
    }
    page.line()
    page.line(words[pair.relation], "bold")
    for directory, place, side in ((left, pair.left_place, pair.left_only), (right, pair.right_place, pair.right_only)):
        if place is not None:
            _print_side(page, directory, place, side)


def _print_side(page: Page, directory: str, place: Place, side: Side) -> None:
    page.line(
        f"  only in {directory}, from epoch {place.epoch}, {place.file} at byte {place.offset}: {side.records:,}"
        f" records: {side.messages:,} messages, {side.acknowledgements:,} acknowledgements,"
        f" {side.commits:,} commits, {side.rollbacks:,} rollbacks, {side.prepares:,} prepared"
    )
    for share in side.replay:
        page.line(
            f"    live only there: {share.messages:,} messages, {share.size_bytes:,} bytes, queue {share.queue!a}"
        )
