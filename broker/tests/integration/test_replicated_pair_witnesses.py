"""A replicated pair with three real witnesses: one is killed, one is replaced by one without state (ADR 0117)."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from support.replicated import ReplicatedPair, Traffic, logged, property_of
from support.witnesses import WitnessProcess

LEASE_MS = 2_000
LONGEST_GAP_S = 1.0


class Grouped(NamedTuple):
    """A pair in sync, and its witnesses."""

    pair: ReplicatedPair
    witnesses: Sequence[WitnessProcess]

    @property
    def members(self) -> str:
        """Property ``members``."""
        return ",".join(witness.address for witness in self.witnesses)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Grouped]:
    """A pair in sync; a group of three witnesses is its lock manager."""
    witnesses: list[WitnessProcess] = []
    for number in range(3):
        (tmp_path / f"w{number}").mkdir()
        secret = witnesses[0].secret if witnesses else None
        witnesses.append(WitnessProcess(tmp_path / f"w{number}", secret=secret))
        witnesses[-1].start("--lease-max-ms", str(LEASE_MS))
    members = ",".join(witness.address for witness in witnesses)
    formed = WitnessProcess.command("form", members, "--secret-file", str(witnesses[0].secret))
    assert formed.returncode == 0, formed.stderr
    again = WitnessProcess.command("form", members, "--secret-file", str(witnesses[0].secret))
    assert again.stdout == formed.stdout, "the command can be repeated"
    properties = (("members", f"witness://{members}"), ("secret-file", witnesses[0].secret), ("lease-ms", LEASE_MS))
    values = "".join(property_of(key, value) for key, value in properties)
    manager = f"<class-name>witness</class-name><properties>{values}</properties>"
    pair = ReplicatedPair(tmp_path, manager=manager, connection_ttl_ms=3_000)
    try:
        yield Grouped(pair.start(), witnesses)
    finally:
        pair.end()
        for witness in witnesses:
            if witness.process is not None and witness.process.poll() is None:
                witness.end(signal.SIGKILL)


def longest_gap_s(load: Traffic, duration_s: float) -> float:
    """Longest time without a confirmation. Seconds."""
    gaps, lines, last_s = [0.0], load.lines, time.monotonic()
    end_s = last_s + duration_s
    while time.monotonic() < end_s:
        if load.lines > lines:
            gaps.append(time.monotonic() - last_s)
            lines, last_s = load.lines, time.monotonic()
        time.sleep(0.01)
    return max(gaps)


@pytest.mark.long
def test_a_pair_serves_while_each_of_three_witnesses_is_killed_and_one_is_replaced(
    site: Grouped, tmp_path: Path
) -> None:
    pair, witnesses = site
    load = Traffic(pair.url, tmp_path, None, rate=200)
    gaps = []
    try:
        load.wait_confirmed(200)
        for witness in witnesses:
            witness.end(signal.SIGKILL)
            gaps.append(longest_gap_s(load, 2.5 * LEASE_MS / 1000))
            witness.start("--lease-max-ms", str(LEASE_MS))
            gaps.append(longest_gap_s(load, 2.0 * LEASE_MS / 1000))
        lost = witnesses[1]
        lost.end(signal.SIGKILL)
        shutil.rmtree(lost.state.parent)
        lost.start("--lease-max-ms", str(LEASE_MS))
        gaps.append(longest_gap_s(load, LEASE_MS / 1000))
        arguments = ("replace", site.members, lost.address, "--secret-file", str(lost.secret))
        replaced = WitnessProcess.command(*arguments)
        assert replaced.returncode == 0, replaced.stderr
        assert WitnessProcess.command(*arguments).returncode == 2, "it has joined already"
        gaps.append(longest_gap_s(load, 3.0 * LEASE_MS / 1000))
        assert lost.status()["configuration"] == 2
        # the new member counts: the pair goes on with it and one other
        witnesses[0].end(signal.SIGKILL)
        gaps.append(longest_gap_s(load, 2.5 * LEASE_MS / 1000))
        print(f"longest times without a confirmation: {[round(gap, 2) for gap in gaps]} s")
        assert max(gaps) < LONGEST_GAP_S
        assert logged(pair.primary, "the pair runs on the promise of the replica") == 0
        load.stop()
        load.check(pair.primary)
        pair.primary.kill()
        pair.backup.wait_ready("active")
    finally:
        load.end()


@pytest.mark.long
def test_without_two_of_three_witnesses_no_node_takes_over(site: Grouped) -> None:
    for witness in site.witnesses[:2]:
        witness.end(signal.SIGKILL)
    site.pair.primary.kill()
    time.sleep(3 * LEASE_MS / 1000)
    assert site.pair.backup.get("/health/ready")[1]["state"] == "passive"
    site.witnesses[0].start("--lease-max-ms", str(LEASE_MS))
    site.pair.backup.wait_ready("active")
