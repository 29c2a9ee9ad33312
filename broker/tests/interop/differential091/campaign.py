"""Starts both brokers, and compares their answers to a program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.targets import RabbitMq
from interop.differential.compare import Difference, first_difference, shrink
from interop.differential091.runner import Runner
from interop.differential091.steps import Program
from support.nodes import nodes_in
from support.processes import Node


class Ports(NamedTuple):
    """Ports of both brokers."""

    ours: int
    theirs: int


@contextmanager
def brokers(directory: Path) -> Iterator[Ports]:
    """Start both brokers in a directory. Raises CannotRun: RabbitMQ cannot be had."""
    peer = RabbitMq(directory / "rabbitmq")
    with nodes_in(directory / "ours") as nodes:
        try:
            peer.prepare()
            peer.start()
            ours = nodes.target().node
            assert isinstance(ours, Node)
            yield Ports(ours.port, peer.port)
        finally:
            peer.stop()


def difference(ports: Ports, steps: Program, other: Program | None = None) -> Difference | None:
    """The first difference between both brokers; ``other``: a program for RabbitMQ in the place of ``steps``."""
    ours, theirs = (Runner(port) for port in ports)
    return first_difference(steps, ours.run(steps), theirs.run(other or steps))  # type: ignore[arg-type]  # steps of another kind


def judge(ports: Ports, steps: Program, *, shrinking: bool) -> Difference | None:
    """The first difference that comes a second time; ``shrinking``: of the smallest program that has it."""
    found = difference(ports, steps)
    if found is None or (found := difference(ports, steps)) is None:
        return None
    return shrink(found, lambda fewer: difference(ports, fewer)) if shrinking else found  # type: ignore[arg-type]  # likewise
