"""Work in slices, done at once, and the text of the metrics of a node."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar, cast

from prometheus_client import CollectorRegistry, generate_latest

from understudy.management.doors.metrics import families
from understudy.management.view import NodeView

T = TypeVar("T")


def finish(work: Generator[None, None, T]) -> T:
    """The result of work in slices."""
    return counted(work)[0]


def counted(work: Generator[None, None, T]) -> tuple[T, int]:
    """The result of work in slices, and the number of pauses."""
    pauses = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            return cast(T, end.value), pauses
        pauses += 1


def exposed(view: NodeView) -> str:
    """Metrics in the text format of Prometheus."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(finish(families(view)))
    return generate_latest(registry).decode()
