"""``python -m benchmarks management-pages``: pages of a node with many queues, and how long one step holds the loop.

The node is in this process, with its store and its queues, and the garbage collector is set as in a node. Each kind of
page is made several times, step by step as the management server makes it; the time of every step is processor time, so
that other work of the machine does not count.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from benchmarks.goals import Goal
from benchmarks.report import goal_table
from support.managed import ManagedWorld
from understudy.management.doors import artemis
from understudy.management.doors.http import COLLECTIONS, node_text, page_text, parse_page
from understudy.management.doors.listing import PageRequest, page_of
from understudy.management.doors.metrics import families
from understudy.management.snapshot.routing import queue_rows
from understudy.runtime.process import interpreter
from understudy.testing.fake_node import FakeNodeView

QUEUES: Final = 50_000
ROUNDS: Final = 5
#: Goal: no step holds the loop longer. Milliseconds.
STEP_MS_MAX: Final = 5.0
_COLLECTION: Final = COLLECTIONS["queues"]


@dataclass
class Page:
    """Cost of one kind of page; least of the rounds, so that a pause of the machine does not count. Milliseconds."""

    name: str
    total_ms: float
    longest_step_ms: float
    steps: int


class _View(FakeNodeView):
    """A fake node with the queues of a real one."""

    world: ManagedWorld

    def rows(self, collection: str) -> Any:
        return queue_rows(self.world.managed) if collection == "queues" else super().rows(collection)


@click.command("management-pages")
@click.option("--queues", default=QUEUES, show_default=True, help="Number of queues.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def management_pages(queues: int, as_json: bool) -> None:
    """Pages of many queues: time of each, and of the longest step between two pauses."""
    world = ManagedWorld()
    for number in range(queues):
        queue = world.world.queue(f"queue.{number * 7919 % queues:06}")
        queue.messages_added = number % 100
    interpreter.keep_what_exists()
    view = _View()
    view.world = world
    found = [_measure(name, make) for name, make in _kinds(view)]
    longest = max(each.longest_step_ms for each in found)
    goal = Goal("longest step", f"at most {STEP_MS_MAX:.0f} ms", f"{longest:.1f} ms", longest <= STEP_MS_MAX)
    if as_json:
        pages = [asdict(each) for each in found]
        print(json.dumps({"benchmark": "management-pages", "queues": queues, "pages": pages, "met": goal.met}))
        return
    table = Table("page", "ms", "longest step, ms", "steps", title=f"pages of a node with {queues:,} queues")
    for each in found:
        table.add_row(each.name, f"{each.total_ms:.0f}", f"{each.longest_step_ms:.2f}", str(each.steps))
    Console().print(table)
    Console().print(goal_table([goal]))


def _kinds(view: _View) -> list[tuple[str, Callable[[], Generator[None, None, object]]]]:
    def page(*parameters: tuple[str, str]) -> Callable[[], Generator[None, None, object]]:
        query = parse_page(_COLLECTION, parameters)
        return lambda: page_text(_COLLECTION, view.rows("queues"), query)

    artemis_page = PageRequest('{"sortField":"messagesAdded","sortOrder":"desc"}', 3, 100)
    return [
        ("by name, first", page(("size", "100"))),
        ("by counter, descending", page(("size", "500"), ("sort", "-messages_added"))),
        ("by name, last", page(("size", "500"), ("page", "100"))),
        ("with a condition", page(("size", "100"), ("filter", "name~99"), ("sort", "messages_added"))),
        ("listQueues, by counter", lambda: page_of(view.rows("queues"), artemis.QUEUES, artemis_page)),
        ("all queues of the node", lambda: node_text(view)),
        ("metrics", lambda: families(view)),
    ]


def _measure(name: str, make: Callable[[], Generator[None, None, object]]) -> Page:
    rounds = [_steps(make()) for _ in range(ROUNDS)]
    # the same step of each round: the least is that without an interruption
    least = [min(each) for each in zip(*rounds, strict=True)]
    return Page(name, sum(least), max(least), len(least))


def _steps(work: Generator[None, None, object]) -> list[float]:
    found = []
    while True:
        begun = time.process_time_ns()
        ended = next(work, work) is work
        found.append((time.process_time_ns() - begun) / 1e6)
        if ended:
            return found
