"""A replicated pair with a real witness: an active node that is stopped beyond its lease (ADR 0055, 0057)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from support.processes import Node
from support.replicated import ReplicatedPair, Traffic, consume, produce, property_of, wait_until
from support.witnesses import WitnessProcess

LEASE_MS = 2_000


class Witnessed(NamedTuple):
    """A pair in sync, and its lock manager."""

    pair: ReplicatedPair
    witness: WitnessProcess

    def releases(self) -> int:
        """Requests to release a lock that the witness has had."""
        counts = self.witness.status()["counts"]
        assert isinstance(counts, dict)
        return int(counts.get("release", 0))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Witnessed]:
    """A pair in sync; its lock manager is a witness."""
    witness = WitnessProcess(tmp_path)
    witness.start("--lease-max-ms", str(LEASE_MS))
    properties = (("addresses", witness.address), ("secret-file", witness.secret), ("lease-ms", LEASE_MS))
    values = "".join(property_of(key, value) for key, value in properties)
    manager = f"<class-name>witness</class-name><properties>{values}</properties>"
    pair = ReplicatedPair(tmp_path, manager=manager, connection_ttl_ms=3_000)
    try:
        yield Witnessed(pair.start(), witness)
    finally:
        pair.end()
        witness.end(signal.SIGKILL)


@pytest.fixture
def witnessed(site: Witnessed) -> ReplicatedPair:
    """The pair."""
    return site.pair


def releaser_of(node: Node) -> int:
    """Process id of the process that releases the locks of a node (``runtime.lock_release``)."""
    assert node.process is not None
    children = Path(f"/proc/{node.process.pid}/task/{node.process.pid}/children").read_text().split()
    found = [int(pid) for pid in children if b"lock_release" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(found) == 1, children
    return found[0]


@pytest.mark.long
def test_an_active_node_that_was_stopped_beyond_its_lease_confirms_nothing(
    witnessed: ReplicatedPair, tmp_path: Path
) -> None:
    load = Traffic(witnessed.url, tmp_path, 3_000)
    try:
        load.wait_confirmed(200)
        witnessed.primary.pause()
        # the backup notices the silence when the time to live of its connection is over
        witnessed.backup.wait_ready("active")
        witnessed.primary.resume()
        process = witnessed.primary.process
        assert process is not None

        def gone() -> bool:
            return process.poll() is not None or witnessed.primary.get("/health/ready")[1].get("state") == "passive"

        wait_until(gone, witnessed.primary)
        load.check(witnessed.backup)
    finally:
        load.end()


@pytest.mark.long
def test_the_lock_of_a_killed_node_is_released_before_its_lease_ends(site: Witnessed, tmp_path: Path) -> None:
    """The witness keeps an ended lease in its status, and a released lock not."""
    load = Traffic(site.pair.url, tmp_path, 2_000)
    try:
        load.wait_confirmed(300)
        assert site.releases() == 0
        site.pair.primary.kill()
        site.pair.backup.wait_ready("active")
        assert site.releases() == 1
        load.check(site.pair.backup)
    finally:
        load.end()


@pytest.mark.long
def test_without_a_releaser_the_lease_of_a_killed_node_ends_by_itself(site: Witnessed) -> None:
    produce(site.pair.url, 100)
    os.kill(releaser_of(site.pair.primary), signal.SIGKILL)
    site.pair.primary.kill()
    site.pair.backup.wait_ready("active")
    assert site.releases() == 0
    consume(site.pair.url, 100)


@pytest.mark.long
def test_the_lock_of_a_stopped_node_is_not_released(site: Witnessed) -> None:
    """A stopped process may go on: only its lease ends its permission."""
    produce(site.pair.url, 100)
    pid = releaser_of(site.pair.primary)
    site.pair.primary.pause()
    site.pair.backup.wait_ready("active")
    assert site.releases() == 0
    site.pair.primary.kill()
    wait_until(lambda: not Path(f"/proc/{pid}").exists() or site.releases() == 1, site.pair.backup)
    # the lock of the backup has another token
    assert site.pair.backup.get("/health/ready")[1]["state"] == "active"
    consume(site.pair.url, 100)
