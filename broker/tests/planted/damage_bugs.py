"""Planted bugs that break the promises about damaged records (ADR 0020)."""

from __future__ import annotations

import logging
from array import array
from typing import Any

from planted.planting import Patch, planted
from understudy.errors import MessageUnreadable
from understudy.kernel.log import Run, crc32
from understudy.message import Message
from understudy.routing.lifecycle.quarantine import DamagedMessages
from understudy.routing.queues import delivery
from understudy.routing.queues.queue import Queue
from understudy.store.log.segment import seed_of
from understudy.store.messages import read_back, stored_runs
from understudy.store.messages.reference import MessageReference, References
from understudy.store.quarantine import KnownDamage, Quarantine, QuarantineEntry
from understudy.testing.runs.scenario_run import ScenarioRun
from understudy.testing.scenarios.damaged_pair import DamagedPairRun

log = logging.getLogger(__name__)

_NEIGHBOURS = "only the damaged message is set aside"


@planted(
    "seed-not-checked",
    promise="records of an earlier use of a segment's file are no part of the log",
    checks=["store"],
    seeds=range(2),
)
def _seed_not_checked(patch: Patch) -> None:
    """Records of each segment have the same seed, so those of an earlier use of its file are valid."""

    def constant(number: int, epoch: int) -> int:
        return 0

    # the function itself is imported by name in many modules
    patch.replace(seed_of, "__code__", constant.__code__)


@planted("neighbour-of-damage-dropped", promise=_NEIGHBOURS, checks=["lost"], seeds=range(4))
def _neighbour_of_damage_dropped(patch: Patch) -> type[ScenarioRun]:
    """The message after a damaged one is removed from its queue together with it."""

    def quarantine(self: DamagedMessages, queue: Queue, reference: MessageReference, error: MessageUnreadable) -> None:
        old(self, queue, reference, error)
        level = queue.pending.first_level()
        neighbour = level.pop() if level is not None else None
        if neighbour is not None:
            only = References((neighbour,))
            queue.log_acknowledges(only)
            queue.forget(only)

    old = patch.replace(DamagedMessages, "quarantine", quarantine)
    return DamagedPairRun


@planted("neighbour-of-damage-set-aside", promise=_NEIGHBOURS, checks=["quarantine"], seeds=range(4))
def _neighbour_of_damage_set_aside(patch: Patch) -> type[ScenarioRun]:
    """The message after a damaged one is set aside together with it."""

    def quarantine(self: DamagedMessages, queue: Queue, reference: MessageReference, error: MessageUnreadable) -> None:
        old(self, queue, reference, error)
        level = queue.pending.first_level()
        neighbour = level.pop() if level is not None else None
        if neighbour is not None:
            old(self, queue, neighbour, error)

    old = patch.replace(DamagedMessages, "quarantine", quarantine)
    return DamagedPairRun


@planted(
    "damaged-message-skipped",
    promise="a damaged message is in the quarantine list",
    checks=["left-over"],
    seeds=range(4),
)
def _damaged_message_skipped(patch: Patch) -> type[ScenarioRun]:
    """The delivery of a damaged message ends with a line in the log; the message counts as delivered permanently."""

    def read_taken(queue: Queue, reference: MessageReference) -> Message | None:
        try:
            return queue.read(reference)
        except MessageUnreadable as error:
            log.info("delivery failed", extra={"error": str(error)})
            queue.delivering_count += 1
            return None

    patch.replace(delivery, "_read_taken", read_taken)
    return DamagedPairRun


@planted(
    "damage-not-listed", promise="a damaged message is in the quarantine list", checks=["lost"], seeds=range(4),
)  # fmt: skip
def _damage_not_listed(patch: Patch) -> type[ScenarioRun]:
    """A damaged message is removed from its queue, and its entry is not written."""

    def keep(self: Quarantine, entry: QuarantineEntry, raw: Any, done: Any) -> None:
        done(None)

    patch.replace(Quarantine, "keep", keep)
    return DamagedPairRun


class _AnyChecksum(int):
    """A checksum that is equal to all others."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


@planted("damaged-message-served", promise="corruption is never served", checks=["corrupted"], seeds=range(4))
def _damaged_message_served(patch: Patch) -> type[ScenarioRun]:
    """The checksum of a message that is read back is not compared."""
    patch.replace(read_back, "crc32", lambda data, seed: _AnyChecksum())
    return DamagedPairRun


@planted("damaged-run-served", promise="corruption is never served", checks=["corrupt"], seeds=range(6))
def _damaged_run_served(patch: Patch) -> type[ScenarioRun]:
    """The checksums of messages that are read from the log as a run always fit: each is computed anew before."""

    def read_run(data: bytes, place: tuple[int, int, int], ids: bytes, offsets: bytes, lengths: bytes) -> Run | None:
        fitting = bytearray(data)
        for offset, length in zip(array("I", offsets), array("I", lengths), strict=True):
            start = offset - place[1]
            crc = crc32(bytes(fitting[start + 4 : start + length]), place[2])
            fitting[start : start + 4] = crc.to_bytes(4, "little")
        found: Run | None = old(bytes(fitting), place, ids, offsets, lengths)
        return found

    old = patch.replace(stored_runs, "read_run", read_run)
    return DamagedPairRun


@planted("damage-ends-the-node", promise="one damaged record ends no node", checks=["ended"], seeds=range(4))
def _damage_ends_the_node(patch: Patch) -> type[ScenarioRun]:
    """A damaged message that a consumer meets is an error of the store."""

    def read(self: DamagedMessages, queue: Queue, reference: MessageReference) -> Message:
        return self._paging.read(queue, reference)

    patch.replace(DamagedMessages, "read", read)
    return DamagedPairRun


@planted("known-damage-refused", promise="one damaged record ends no restart", checks=["ended"], seeds=range(1, 4))
def _known_damage_refused(patch: Patch) -> type[ScenarioRun]:
    """A node that starts does not pass over the records that the quarantine names."""
    patch.replace(KnownDamage, "length_at", lambda self, number, epoch, offset: 0)
    return DamagedPairRun
