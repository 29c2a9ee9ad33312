"""The scenario of disks that return wrong bytes: a replicated pair of which a node reads wrong for a while, or has a
damaged body or segment on its disk.

Some messages are large, so their bodies are files; messages leave memory early and consumers begin late, so they are
read from the disk. Only files that do not change any more are hit, and only segments that the newest snapshot stands
for, so that a node reads right bytes at its start. A file is damaged on one node only, and one node at a time reads
wrong. So everything can be repaired: at the end nothing is in the quarantine and both copies are equal.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar, Final

from understudy.store.log.segment import HEADER_BLOCK_BYTES
from understudy.testing.runs.checkers import Violation
from understudy.testing.runs.cluster import SimNode
from understudy.testing.runs.cluster_configuration import PAIR, QUEUE, NodeRole
from understudy.testing.runs.fault_plan import PASSIVE, Fault, FaultKind, draw_faults
from understudy.testing.runs.plan import Plan
from understudy.testing.runs.strikes import Strikes
from understudy.testing.runs.witnessed_run import WitnessedRun
from understudy.testing.runs.witnessed_strikes import WitnessedStrikes
from understudy.testing.runs.workload import ClientPlan, ProducerJob
from understudy.testing.scenarios.scenario import Scenario
from understudy.testing.scenarios.settled_files import checked_bytes, settled_files
from understudy.testing.sim.loop import SimLoop, SimProcess

#: Kinds of faults, and how often each is drawn, relative to the others.
WRONG_READS_KINDS: Final = {
    FaultKind.WRONG_READS: 6,
    FaultKind.DAMAGED_FILE: 6,
    FaultKind.KILL: 2,
    FaultKind.STOP: 1,
    FaultKind.CRASH_IN_COPY: 2,
}
#: Virtual seconds after which consumers and faults begin: the large messages are in the store.
_BEGIN_S: Final = 3.0
#: Pause of a consumer that was closed in the middle of a damaged large message. Seconds.
_AGAIN_S: Final = 0.5
#: Texts of errors that a consumer gets for a message that cannot be read.
_CLOSED: Final = ("closed the consumer", "has no consumer", "MessageUnreadable")
#: Bits that read wrong in each file.
_BITS_MAX: Final = 3


class WrongReadsStrikes(WitnessedStrikes):
    """The faults of a pair whose disks return wrong bytes."""

    def inject(self, fault: Fault) -> bool:
        if fault.kind not in (FaultKind.WRONG_READS, FaultKind.DAMAGED_FILE):
            return super().inject(fault)
        node = self.cluster.active() if fault.choice < 0.6 else self.cluster.target(PASSIVE)
        if node is None:
            return False
        stream = self.loop.random(f"wrong bytes {fault.number}")
        hit = self._damage_file if fault.kind is FaultKind.DAMAGED_FILE else self._read_wrong
        return hit(node, stream, fault)

    def _read_wrong(self, node: SimNode, stream: random.Random, fault: Fault) -> bool:
        """Have a node read wrong bits: from its cache until that is dropped, or from the disk for a while."""
        self._end_wrong_reads()
        volume, cached = node.storage.volume, stream.random() < 0.5
        # what a node reads at its start is read again past the cache
        paths = [path for path in settled_files(volume, first=cached) if path not in self._damaged_paths()]
        for path in paths:
            # the header of the first segment is read at each start, and any segment may become the first one meanwhile
            begin = HEADER_BLOCK_BYTES if path.endswith(".log") and not cached else 0
            size_bytes = checked_bytes(volume, path)
            for _ in range(stream.randint(1, _BITS_MAX)):
                at = stream.randrange(begin, size_bytes)
                volume.wrong_reads.add(path, at, stream.randrange(8), cached=cached)
        if paths:
            self.loop.record(f"{node.name} reads {len(paths)} files wrong, cached {cached}")
            self.later(fault.duration_s, volume.wrong_reads.end)
        return bool(paths)

    def _damage_file(self, node: SimNode, stream: random.Random, fault: Fault) -> bool:
        """Flip a bit of a file on the disk of a node; the other node has the file as it was."""
        volume = node.storage.volume
        (other,) = (each.storage.volume for each in self.cluster.nodes.values() if each is not node)
        paths = [
            path
            for path in settled_files(volume)
            if path in other.paths() and other.content(path) == volume.content(path)
        ]
        if not paths:
            return False
        path = stream.choice(paths)
        volume.flip_bit(path, stream.randrange(checked_bytes(volume, path)), stream.randrange(8))
        self.loop.record(f"{node.name} has a wrong bit in {path}")
        return True

    def _damaged_paths(self) -> set[str]:
        """Files that differ between the nodes, of which only one may be right."""
        one, other = (node.storage.volume for node in self.cluster.nodes.values())
        common = set(one.paths()) & set(other.paths())
        return {path for path in common if one.content(path) != other.content(path)}

    def _end_wrong_reads(self) -> None:
        for node in self.cluster.nodes.values():
            node.storage.volume.wrong_reads.end()

    def heal(self) -> None:
        """See ``Strikes``; damaged files are for the nodes to find."""
        super().heal()
        self._end_wrong_reads()


class WrongReadsRun(WitnessedRun):
    """One run of a pair whose disks return wrong bytes."""

    strikes_class: ClassVar[type[Strikes]] = WrongReadsStrikes

    async def _work(self, plan: ClientPlan, name: str) -> None:
        """See ``ScenarioRun``; a consumer that was closed in the middle of a large message begins again."""
        await super()._work(plan, name)
        ended = [each for each in self.violations if each.check == "client" and each.text.startswith(f"{name} ")]
        closed = [each for each in ended if any(text in each.text for text in _CLOSED)]
        if closed and name in self._consumers:
            self.violations = [each for each in self.violations if each not in closed]
            self.loop.call_later(_AGAIN_S, partial(self._begin_again, self._clients[name], name))

    def _begin_again(self, process: SimProcess, name: str) -> None:
        if self._clients[name] is process:
            process.kill()
            self._start_client(name)

    def judge(self) -> tuple[Violation, ...]:
        """See ``ScenarioRun``. A message that had to wait for the other node was overtaken by later ones."""
        found = super().judge()
        return tuple(each for each in found if each.check != "reordered" or not self._a_node_was_alone())

    def _a_node_was_alone(self) -> bool:
        kinds = (FaultKind.KILL, FaultKind.STOP, FaultKind.CRASH_IN_COPY)
        return any(self.strikes.injected[kind] for kind in kinds)


class UnscrubbedRun(WrongReadsRun):
    """A run without a scrubber, which would find damage before anything reads it."""

    liveness_s = 30.0

    def __init__(self, plan: Plan, loop: SimLoop) -> None:
        super().__init__(replace(plan, pair=replace(plan.pair, scrub_period_ms=86_400_000)), loop)


class UndamagedRun(UnscrubbedRun):
    """A run without damaged files: its disks are right, and only reads of them are wrong."""

    def __init__(self, plan: Plan, loop: SimLoop) -> None:
        faults = tuple(fault for fault in plan.faults if fault.kind is not FaultKind.DAMAGED_FILE)
        super().__init__(replace(plan, faults=faults), loop)


class CopiedRun(UndamagedRun):
    """A run whose replica is down while large messages are sent, and copies them while the active node reads wrong."""

    def __init__(self, plan: Plan, loop: SimLoop) -> None:
        faults = (
            Fault(0, 0.3, FaultKind.KILL, "b", 7.0, 0.9, 0),
            Fault(1, 6.0, FaultKind.WRONG_READS, "", 5.0, 0.3, 0),
        )
        consumers = tuple(replace(job, begins_s=30.0) for job in plan.consumers)
        super().__init__(replace(plan, faults=faults, consumers=consumers, heal_s=15.0), loop)


class DamagedFilesRun(UnscrubbedRun):
    """A run whose active node has damaged files, which it finds when it delivers their messages."""

    def __init__(self, plan: Plan, loop: SimLoop) -> None:
        faults = tuple(Fault(at, 4.0 + at, FaultKind.DAMAGED_FILE, "", 1.0, 0.3, 0) for at in range(4))
        consumers = tuple(replace(job, begins_s=9.0) for job in plan.consumers)
        super().__init__(replace(plan, faults=faults, consumers=consumers, heal_s=12.0), loop)


class WrongReads(Scenario):
    """A replicated pair whose disks return wrong bytes."""

    name = "wrong-reads"
    text = "a replicated pair that reads wrong bytes for a while, or has damaged files on one disk"
    run_class = WrongReadsRun

    def nodes(self, seed: int) -> tuple[NodeRole, ...]:
        return PAIR

    def configure(self, plan: Plan) -> Plan:
        stream = random.Random(f"{plan.seed}/{self.name}")
        return with_wrong_reads(plan, stream, WRONG_READS_KINDS)


def with_wrong_reads(plan: Plan, stream: random.Random, kinds: Mapping[FaultKind, int]) -> Plan:
    """The plan with large messages, messages that wait on the disk, a scrubber, and faults of these kinds."""
    pair = replace(
        plan.pair,
        replicated=True,
        allow_failback=True,
        quarantine=False,
        max_size_bytes=stream.choice((2_000, 20_000)),
        compact_min_files=1,
        scrub_period_ms=2_000,
    )
    producers: Sequence[ProducerJob] = (
        *plan.producers,
        ProducerJob("large", QUEUE, count=12, size_bytes=150_000, pause_s=0.05),
    )
    heal_s = max(plan.heal_s, _BEGIN_S + 4.0)
    consumers = tuple(replace(job, begins_s=stream.uniform(_BEGIN_S, heal_s)) for job in plan.consumers)
    faults = draw_faults(stream, begin_s=_BEGIN_S, end_s=heal_s, count=stream.randint(3, 9), weights=kinds)
    return replace(plan, pair=pair, producers=tuple(producers), consumers=consumers, faults=faults, heal_s=heal_s)
