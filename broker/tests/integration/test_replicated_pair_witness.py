"""A replicated pair with a real witness: an active node that is stopped beyond its lease (ADR 0055, 0057)."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.replicated import ReplicatedPair, Traffic, consume, produce, property_of, wait_until
from support.witnesses import WitnessProcess

LEASE_MS = 2_000


@pytest.fixture
def witnessed(tmp_path: Path) -> Iterator[ReplicatedPair]:
    """A pair in sync; its lock manager is a witness."""
    witness = WitnessProcess(tmp_path)
    witness.start("--lease-max-ms", str(LEASE_MS))
    properties = (("addresses", witness.address), ("secret-file", witness.secret), ("lease-ms", LEASE_MS))
    values = "".join(property_of(key, value) for key, value in properties)
    manager = f"<class-name>witness</class-name><properties>{values}</properties>"
    pair = ReplicatedPair(tmp_path, manager=manager, connection_ttl_ms=3_000)
    try:
        yield pair.start()
    finally:
        pair.end()
        witness.end(signal.SIGKILL)


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
def test_a_killed_active_node_is_replaced_by_permission_of_the_witness(witnessed: ReplicatedPair) -> None:
    produce(witnessed.url, 100)
    witnessed.primary.kill()
    witnessed.backup.wait_ready("active")
    consume(witnessed.url, 100)
