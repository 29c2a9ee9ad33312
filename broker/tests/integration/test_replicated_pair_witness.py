"""A replicated pair with a real witness: an active node that is stopped beyond its lease (ADR 0055, 0057)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from support import zookeeper
from support.processes import Node
from support.replicated import (
    ReplicatedPair,
    Traffic,
    consume,
    logged,
    produce,
    property_of,
    wait_logged,
    wait_until,
)
from support.witnesses import WitnessProcess

LEASE_MS = 2_000
#: Time without the witness, and the longest time without a confirmation that counts as no interruption.
OFF_S = 25.0
LONGEST_GAP_S = 1.0


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
    """Process id of the process that releases the locks of a node (``runtime.locks.release``)."""
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


@pytest.mark.long
def test_a_pair_in_sync_serves_while_its_witness_is_off(site: Witnessed, tmp_path: Path) -> None:
    """The witness is killed for 25 s, more than four leases; afterwards the active node holds its lock again."""
    load = Traffic(site.pair.url, tmp_path, None, rate=200)
    try:
        load.wait_confirmed(200)
        site.witness.end(signal.SIGKILL)
        gaps, lines, last_s = [0.0], load.lines, time.monotonic()
        end_s, told = last_s + OFF_S, None
        while time.monotonic() < end_s:
            if load.lines > lines:
                gaps.append(time.monotonic() - last_s)
                lines, last_s = load.lines, time.monotonic()
            node = site.pair.primary.get("/api/v1/node")[1]
            assert node["ha"]["state"] == "active"
            told = node["ha"]["without_lock_manager"] or told
            time.sleep(0.02)
        assert told is not None
        assert told["manager"] == f"witness {site.witness.address}"
        assert told["for_ms"] > 15_000
        print(f"longest time without a confirmation: {max(gaps):.2f} s; on the promise for {told['for_ms']} ms")
        assert max(gaps) < LONGEST_GAP_S
        site.witness.start("--lease-max-ms", str(LEASE_MS))
        wait_logged(site.pair.primary, "the lock is held again")
        load.stop()
        load.check(site.pair.primary)
        assert logged(site.pair.primary, "the pair runs on the promise of the replica") == 1
        assert logged(site.pair.backup, "permission to activate") == 0
        # nothing is promised any more: the replica takes over at once
        time.sleep(3 * LEASE_MS / 1000)
        site.pair.primary.kill()
        site.pair.backup.wait_ready("active")
    finally:
        load.end()


@pytest.mark.long
@pytest.mark.skipif(not zookeeper.installed(), reason="no ZooKeeper on this machine")
def test_a_pair_in_sync_serves_while_zookeeper_is_off(tmp_path: Path) -> None:
    ensemble = zookeeper.Ensemble(tmp_path, 1)
    ensemble.start()
    properties = (("connect-string", ensemble.connect_string), ("session-ms", 4_000), ("namespace", "n"))
    values = "".join(property_of(key, value) for key, value in properties)
    manager = f"<class-name>zookeeper</class-name><properties>{values}</properties>"
    pair = ReplicatedPair(tmp_path, manager=manager, connection_ttl_ms=3_000)
    load = None
    try:
        pair.start()
        load = Traffic(pair.url, tmp_path, None, rate=100)
        load.wait_confirmed(100)
        ensemble.kill()
        end_s = time.monotonic() + 15
        while time.monotonic() < end_s:
            load.wait_more(10)
        ensemble.start()
        wait_logged(pair.primary, "the lock is held again")
        load.stop()
        load.check(pair.primary)
        assert logged(pair.backup, "permission to activate") == 0
    finally:
        if load is not None:
            load.end()
        pair.end()
        ensemble.kill()
