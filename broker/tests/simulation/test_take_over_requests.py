"""Goal: between the lock of the store and the first client a node does only work that the client needs.

Each operation on the store is one request or several on a network file system. The requests are counted that the node
makes of its disk, with virtual time, from the moment it takes the store until its acceptors listen;
docs/build/reliability.md has the requests of a real mount. ``integration/test_take_over_requests.py`` counts
system calls.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from understudy.ha.shared.policy import SharedStorePolicy
from understudy.message import Message
from understudy.routing.response_order import ResponseOrder
from understudy.runtime.net.acceptor import Acceptor
from understudy.testing.runs.cluster import SimCluster
from understudy.testing.runs.cluster_configuration import PAIR, QUEUE, STORE, PairOptions, cluster_configurations
from understudy.testing.sim.environment import Skew
from understudy.testing.sim.loop import SimLoop
from understudy.testing.sim.network import Conditions, SimNetwork
from understudy.testing.sim.storage import ProcessDisk, ProcessFile, SharedStorage, StorageConditions
from understudy.testing.simulate import quiet_logging

OPERATIONS = {
    ProcessDisk: (
        "open", "list", "exists", "make_directory", "rename", "remove", "sync_directory", "space", "modified_ns",
        "touch", "within",
    ),
    ProcessFile: ("size", "read", "data_ranges", "write", "allocate", "truncate", "sync"),
}  # fmt: skip
#: A log that is still in its first segment: see the list in docs/build/reliability.md.
REQUESTS_MAX = 28
#: More, when the first segment of the epoch is another one than that in which the log ends.
REQUESTS_OF_A_LONG_LOG = 2


class Requests:
    """The requests of host ``b`` to the store from its decision to take it until its acceptors listen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        self._counting = False
        for of, names in OPERATIONS.items():
            for name in names:
                monkeypatch.setattr(of, name, self._counted(name, getattr(of, name)))
        # requests while the node waits for the proof of the last holder to end cost no time
        monkeypatch.setattr(SharedStorePolicy, "_take", self._begins(SharedStorePolicy._take))
        monkeypatch.setattr(Acceptor, "open", self._ends(Acceptor.open))

    def _counted(self, name: str, operation: Callable[..., object]) -> Callable[..., object]:
        def count(subject: object, *arguments: object, **options: object) -> object:
            process = SimLoop.current_process()
            path = arguments[0] if isinstance(subject, ProcessDisk) else getattr(subject, "path", "")
            if self._counting and process is not None and process.host == "b" and str(path).startswith(STORE):
                self.counts[name] += 1
            return operation(subject, *arguments, **options)

        return count

    def _begins(self, operation: Callable[[SharedStorePolicy], None]) -> Callable[[SharedStorePolicy], None]:
        def take(policy: SharedStorePolicy) -> None:
            process = SimLoop.current_process()
            self._counting = process is not None and process.host == "b"
            operation(policy)

        return take

    def _ends(self, operation: Callable[[Acceptor], object]) -> Callable[[Acceptor], object]:
        def open_acceptor(acceptor: Acceptor) -> object:
            self._counting = False
            return operation(acceptor)

        return open_acceptor


@pytest.mark.parametrize("messages", [0, 1, 300])
def test_a_take_over_asks_little_of_the_store(messages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = Requests(monkeypatch)
    loop = SimLoop(1)
    network, storage = SimNetwork(loop, Conditions()), SharedStorage(loop, StorageConditions())
    configurations = cluster_configurations(PAIR, PairOptions())
    cluster = SimCluster(loop, network, [storage] * 2, configurations, (Skew(), Skew()))
    cluster.supervised = False
    segments: list[str] = []

    async def story() -> None:
        cluster.start("a")
        while cluster.nodes["a"].state != "active":
            await asyncio.sleep(0.1)
        fill(cluster, messages)
        cluster.start("b")
        await asyncio.sleep(30)
        segments.extend(path for path in storage.volume.paths() if "/segment-" in path)
        cluster.kill("a")
        while cluster.nodes["b"].state != "active":
            await asyncio.sleep(0.01)

    try:
        with quiet_logging():
            task = loop.create_task(story())
            loop.run_until(task.done, deadline=200.0)
        task.result()
    finally:
        loop.close()
    long = len(segments) > 2
    assert long == (messages == 300)
    counts = requests.counts
    assert 20 < counts.total() <= REQUESTS_MAX + long * REQUESTS_OF_A_LONG_LOG, counts
    # the lock files, the last segment twice (to read and to write), the new one, the prepared one
    assert counts["open"] <= 5 + long, counts
    # the removal of older epochs waits until clients are served
    assert not counts["remove"], counts
    assert not counts["truncate"], counts
    assert counts["sync"] == 2, counts
    assert counts["sync_directory"] == 1, counts


def fill(cluster: SimCluster, messages: int) -> None:
    """Put messages of 1 KiB into the queue of the active node."""
    server = cluster.nodes["a"].server
    assert server is not None
    assert server.broker is not None
    for _ in range(messages):
        server.broker.post_office.send(Message(bytes(1024), address=QUEUE), ResponseOrder())
