"""A pair of real processes on loopback whose disks fail and lose their power when told to."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rounds.disk import DiskFaults, Lost, build
from support.processes import Pair
from support.replicated import ReplicatedPair, property_of
from support.witnesses import WitnessProcess

#: Before a node that has ended is started again, as a supervisor does.
_RESTART_S: Final = 0.5
_POLL_S: Final = 0.05
#: Lease of the lock, and the longest lease of the witness. Milliseconds.
_LEASE_MS: Final = 2_000
#: Few bodies stay in memory, so that consumers make the node read its log.
#: Small segments and caches of duplicate ids, so that segments are removed, and their files used again, within a round.
_SETTINGS: Final = """
    <journal-file-size>128K</journal-file-size>
    <journal-compact-min-files>2</journal-compact-min-files>
    <id-cache-size>2000</id-cache-size>
    <address-settings>
      <address-setting match="#">
        <max-size-bytes>65536</max-size-bytes>
        <auto-delete-queues>false</auto-delete-queues>
        <auto-delete-addresses>false</auto-delete-addresses>
      </address-setting>
    </address-settings>
"""


class Site:
    """Two nodes, each with a disk of its own for faults; ``shared`` or ``replicated``, the latter with a witness."""

    def __init__(self, kind: str, directory: Path, *, power: bool) -> None:
        """Nothing is started.

        Args:
            kind: ``shared`` or ``replicated``.
            directory: Scratch directory.
            power: Whether nodes will lose their power, for which their changes are logged.
        """
        self.kind = kind
        self.witness: WitnessProcess | None = None
        library = build(directory)
        if kind == "shared":
            shared = Pair(directory, extra=_SETTINGS)
            self.nodes = [shared.primary, shared.backup]
            self.url = shared.url
            self.stores = [shared.store]
        else:
            self.witness = WitnessProcess(directory)
            witness = self.witness
            properties = (("addresses", witness.address), ("secret-file", witness.secret), ("lease-ms", _LEASE_MS))
            values = "".join(property_of(key, value) for key, value in properties)
            manager = f"<class-name>witness</class-name><properties>{values}</properties>"
            replicated = ReplicatedPair(
                directory, manager=manager, call_timeout_ms=3_000, connection_ttl_ms=3_000, extra=_SETTINGS
            )
            self.nodes = list(replicated.nodes)
            self.url = replicated.url
            self.stores = [node.directory / "data" for node in self.nodes]
        self.disks: list[DiskFaults] = []
        for node in self.nodes:
            store = self.stores[0] if kind == "shared" else node.directory / "data"
            roots = [store, node.directory / "run"]
            for root in roots:
                root.mkdir(parents=True, exist_ok=True)
            disk = DiskFaults(library, directory / f"{node.directory.name}-faults", roots, logs=power)
            node.command = (*disk.prefix, *node.command)
            self.disks.append(disk)
        self._down_at: dict[int, float] = {}

    # --- looking -------------------------------------------------------------------------------------

    def running(self, index: int) -> bool:
        """Whether the process of a node is alive."""
        process = self.nodes[index].process
        return process is not None and process.poll() is None

    def state(self, index: int) -> tuple[int, str]:
        """Status of ``/health/ready`` and the state of a node; (0, "") if it does not answer."""
        status, answer = self.nodes[index].get("/health/ready") if self.running(index) else (0, {})
        return status, str(answer.get("state", ""))

    def active(self) -> int | None:
        """The node that serves."""
        return next((index for index in range(2) if self.state(index) == (200, "active")), None)

    def whole(self) -> bool:
        """Whether one node serves and the other one may take over at any time."""
        states = [self.state(index) for index in range(2)]
        if sorted(states) != [(200, "active"), (200, "passive")]:
            return False
        return self.nodes[states.index((200, "active"))].facts().get("peer") is not None

    # --- doing ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything and wait until the pair is whole."""
        if self.witness is not None:
            self.witness.start("--lease-max-ms", str(_LEASE_MS))
        self.start_node(0)
        self.nodes[0].wait_ready("active")
        self.start_node(1)
        self.wait_whole(60.0)

    def start_node(self, index: int) -> None:
        """Start a node that has ended."""
        self.disks[index].begin()
        self.nodes[index].start()

    def supervise(self) -> None:
        """Start nodes again that have ended a moment ago."""
        for index in range(2):
            if self.running(index):
                self._down_at.pop(index, None)
            elif time.monotonic() - self._down_at.setdefault(index, time.monotonic()) > _RESTART_S:
                del self._down_at[index]
                self.start_node(index)

    def wait(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Wait under supervision; whether the condition was met within the time."""
        end = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > end:
                return False
            self.supervise()
            time.sleep(_POLL_S)
        return True

    def wait_whole(self, limit_s: float) -> bool:
        """Wait until the pair is whole; whether it was within the time."""
        return self.wait(self.whole, limit_s)

    def lose_power(self, indexes: list[int], stream: random.Random) -> list[Lost]:
        """The hosts of these nodes lose their power at the same moment. The other node stands still until the changes
        that no sync covers are gone: they never were on a disk that it reads.
        """
        for index in range(2):
            if self.running(index):
                self.nodes[index].pause()
        for index in indexes:
            if self.running(index):
                self.nodes[index].kill()
        lost = [self.disks[index].lose_power(stream) for index in indexes]
        for index in range(2):
            if index not in indexes and self.running(index):
                self.nodes[index].resume()
        return lost

    def expire_lock(self) -> None:
        """Take the lock of a shared store away from the active node, as a file server does when a lease ends. That of a
        replicated pair ends by itself while its holder is stopped.
        """
        if self.kind == "shared":
            lock = self.stores[0] / "journal" / "serverlock.1"
            lock.rename(lock.with_suffix(".old"))

    def end(self) -> None:
        """End every process."""
        for node in self.nodes:
            node.end()
        if self.witness is not None:
            self.witness.end(signal.SIGKILL)

    def tails(self) -> str:
        """The ends of the logs."""
        return "\n---\n".join(node.tail() for node in self.nodes)

    def node_name(self, index: int) -> str:
        """Name for reports: the role for which the node is configured."""
        return self.nodes[index].directory.name
