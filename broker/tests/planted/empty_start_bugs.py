"""Planted bugs of replicas that move their messages, and of primaries that return without them (ADR 0126)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from planted.planting import Patch, planted
from understudy.ha.replication.moved_store import MovedNumbers
from understudy.runtime.replica import empty_start
from understudy.store.replication import empty_store
from understudy.store.replication.empty_store import EmptyPlan
from understudy.store.state import StoreState

_SCENARIO: Final = "scaled-replicas"


@planted(
    "moved-record-forgotten",
    promise="clients are served again once everything has healed",
    checks=["not-in-sync", "no-service", "stuck"],
    elsewhere={_SCENARIO: range(1, 4)},
)
def _moved_record_forgotten(patch: Patch) -> None:
    """A replica that has moved its messages leaves no record at the lock manager, and its primary never activates."""
    patch.replace(MovedNumbers, "write", lambda self, sequence, end, answer: answer(None))


@planted(
    "empty-epoch-kept",
    promise="the epochs of a store only grow",
    checks=["epoch", "ended", "lost"],
    elsewhere={_SCENARIO: range(1, 6)},
)
def _empty_epoch_kept(patch: Patch) -> None:
    """An empty store begins with its own earlier epoch, so its next one is that of the replica."""

    def plan(*arguments: Any) -> EmptyPlan:
        planned = old(*arguments)
        return replace(planned, epoch=planned.epoch - 2)

    old: Callable[..., EmptyPlan] = patch.replace(empty_start, "plan", plan)


@planted(
    "empty-store-forgets",
    promise="no message is stored twice",
    checks=["duplicated"],
    elsewhere={_SCENARIO: range(41, 50)},
)
def _empty_store_forgets(patch: Patch) -> None:
    """A primary that returns does not remember the duplicate ids of messages that its replica has moved."""
    patch.replace(empty_store, "_kept", lambda directories, planned, node_id, size: StoreState(size))
