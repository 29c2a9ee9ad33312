"""Implementations of the ports for a real machine; the simulation has its own."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Callable
from dataclasses import field

from understudy.cluster.discovery.carriers import Carrier, Endpoint
from understudy.dataclass import dataclass
from understudy.ha.life.network_check import Prober
from understudy.ha.locks.distributed_lock import LockManager
from understudy.limits import LDAP_LOOKUPS_MAX, WAITING_BODIES_BYTES_MIN, WAITING_BODIES_SHARE
from understudy.ports import (
    Clock,
    Disk,
    Entropy,
    Executor,
    Fence,
    FileLock,
    HoldableLogWriter,
    OperationApplier,
    Streams,
    Timer,
    Timers,
    Worker,
)
from understudy.runtime.base.datagrams import make_endpoint
from understudy.runtime.base.disk import RealDisk
from understudy.runtime.base.journal_writer import ThreadLogWriter
from understudy.runtime.base.network_probe import NetworkProber, ProbeOptions
from understudy.runtime.base.turn import Turn
from understudy.runtime.base.worker import ThreadWorker
from understudy.runtime.locks.file_lock import RealFileLock
from understudy.runtime.net.streams import LoopStreams
from understudy.runtime.process.critical_analyzer import CriticalPath
from understudy.runtime.process.descriptors import Descriptors
from understudy.runtime.replica.runner import ReplicaRunner, WorkerRunner
from understudy.store.durations import StoreTimes
from understudy.store.replication.replica_log import Runner
from understudy.wire.core.packets_replication import REPLICATION_PROTOCOL


@dataclass(frozen=True, slots=True)
class Environment:
    """The ports of a node, except for the loop on which it runs."""

    clock: Clock
    timers: Timers
    entropy: Entropy
    disk: Disk
    log_writer: Callable[[Executor, OperationApplier, Fence], HoldableLogWriter]
    """Creates the log writer of an activation; its batches end with an error if the fence objects."""
    file_lock: Callable[[str], FileLock]
    """Creates the lock of a file."""
    worker: Callable[[Executor], Worker]
    """Creates the worker of an activation."""
    lookups: Callable[[Executor], Worker]
    """Creates the worker that asks directories of users, whose threads wait for answers."""
    memory_bytes: int = 1 << 30
    """Memory that the node may use, in bytes."""
    nodes: int = 1
    """Number of nodes in the process; each has an equal share of its descriptors."""
    lock_manager: Callable[..., LockManager] | None = None
    """Creates the lock manager instead of ``runtime.locks.providers.make_lock_manager``; for the simulation."""
    lock_clock: Clock | None = None
    """Clock for the age of the proof of the lock; None: ``clock``."""
    network_prober: Callable[[ProbeOptions], Prober] | None = None
    """Creates the prober of the network check; None: the network is not checked."""
    discovery_endpoint: Callable[[Carrier, Turn], Endpoint] | None = None
    """Creates the access to a carrier of broadcasts; None: discovery and broadcast groups are not used."""
    replica_runner: Callable[[Worker, Executor], Runner] = lambda worker, executor: WorkerRunner(worker)
    """Creates the runner of the operations that a replica receives."""
    streams: Callable[[], Streams] = LoopStreams
    """Creates the reader of an acceptor."""
    replication_protocol: int = REPLICATION_PROTOCOL
    """Newest version of the replication protocol that the node speaks; older ones are for the simulation."""
    descriptors: Descriptors | None = None
    """Descriptors of the process; None: they are not limited, and listening sockets get any number."""
    critical_paths: list[CriticalPath] = field(default_factory=list)
    """Paths of this node for the critical analyzer; each log writer adds one."""
    times: StoreTimes | None = None
    """Durations of batches; None: they are not measured."""

    @property
    def waiting_bodies_bytes(self) -> int:
        """Limit for bodies of waiting messages in memory if global-max-size is not set, in bytes."""
        return max(self.memory_bytes // WAITING_BODIES_SHARE, WAITING_BODIES_BYTES_MIN)

    @property
    def large_messages_max(self) -> int | None:
        """Maximum number of unfinished large messages, each of which keeps a file open; None: no limit."""
        return self.descriptors.large_messages_max // self.nodes if self.descriptors is not None else None


class SystemClock:
    """The clocks of the machine. Implements ``ports.Clock``."""

    wall_ns = staticmethod(time.time_ns)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class BootClock(SystemClock):
    """The clocks of the machine; the monotonic one advances while the machine is suspended (``CLOCK_BOOTTIME``)."""

    def monotonic_ms(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class LoopTimers:
    """Timers of an asyncio loop, real or simulated. Implements ``ports.Timers``."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        return self._loop.call_later(delay_ms / 1000, callback)


class SystemEntropy:
    """Random bytes of the kernel. Implements ``ports.Entropy``."""

    def token(self, length_bytes: int) -> bytes:
        return os.urandom(length_bytes)


def system_environment(
    loop: asyncio.AbstractEventLoop, descriptors: Descriptors | None = None, nodes: int = 1
) -> Environment:
    """Environment of one node with the real disk, clock and network.

    Args:
        descriptors: Descriptors of the process; None: they are not counted.
        nodes: Nodes of the process: each has an equal share of memory and descriptors.
    """
    disk = RealDisk(descriptors)
    paths: list[CriticalPath] = []
    times = StoreTimes(time.monotonic_ns)

    def log_writer(executor: Executor, applier: OperationApplier, fence: Fence) -> HoldableLogWriter:
        # a writer of an earlier activation is not used any more
        path = CriticalPath(f"writer {len(paths) + 1} of the store")
        paths.append(path)
        return ThreadLogWriter(loop, executor, applier, path, fence, times.writes)

    def replica_runner(worker: Worker, executor: Executor) -> Runner:
        path = CriticalPath(f"replica {len(paths) + 1} of the store")
        paths.append(path)
        return ReplicaRunner(worker, loop, executor, path)

    return Environment(
        clock=SystemClock(),
        lock_clock=BootClock(),
        timers=LoopTimers(loop),
        entropy=SystemEntropy(),
        disk=disk,
        log_writer=log_writer,
        file_lock=lambda path: RealFileLock(path, descriptors),
        worker=lambda executor: ThreadWorker(loop, executor),
        lookups=lambda executor: ThreadWorker(loop, executor, LDAP_LOOKUPS_MAX),
        memory_bytes=available_memory_bytes() // nodes,
        nodes=nodes,
        network_prober=lambda options: NetworkProber(loop, options),
        discovery_endpoint=lambda carrier, turn: make_endpoint(carrier, loop, turn),
        critical_paths=paths,
        times=times,
        replica_runner=replica_runner,
        streams=lambda: LoopStreams(descriptors),
        descriptors=descriptors,
    )


def available_memory_bytes() -> int:
    """Memory of the machine, or the limit of the service or process if that is lower."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        limits.append(soft)
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path) as file:
                text = file.read().strip()
        except OSError:
            continue
        if text.isdecimal():
            limits.append(int(text))
    return min(limits)
