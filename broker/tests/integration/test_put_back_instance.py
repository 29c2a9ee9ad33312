"""One node of a real replicated pair whose whole directory is put back from a snapshot: store, lock files and notes.

The copy is made while the pair runs, as the snapshot of a virtual machine is. Both nodes are killed at once, so their
activation sequences are equal, and the node with the older state is started first. ADR 0118.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import forked
from support.processes import COMMAND, READY_S, Node
from support.replicated import ReplicatedPair, consume, logged, produce, property_of, wait_logged, wait_until
from support.witnesses import WitnessProcess
from understudy.runtime.base.disk import RealDisk
from understudy.store.log.reading.follower import recover
from understudy.store.seen import position_of

pytestmark = pytest.mark.long


class Site:
    """A pair in sync with a witness, and a snapshot of one of its nodes."""

    def __init__(self, directory: Path) -> None:
        self.witness = WitnessProcess(directory)
        self.witness.start("--lease-max-ms", "2000")
        properties = (("addresses", self.witness.address), ("secret-file", self.witness.secret), ("lease-ms", 2_000))
        values = "".join(property_of(key, value) for key, value in properties)
        manager = f"<class-name>witness</class-name><properties>{values}</properties>"
        self.pair = ReplicatedPair(directory, manager=manager, connection_ttl_ms=3_000)
        self._snapshot = directory / "snapshot"

    def snapshot(self, node: Node) -> None:
        """Copy everything that the node has while it runs."""
        shutil.copytree(node.directory, self._snapshot)

    def kill_both_and_put_back(self, node: Node) -> None:
        """Both nodes end at the same moment; then the node has the copied state."""
        for each in self.pair.nodes:
            each.pause()
        for each in self.pair.nodes:
            each.kill()
        shutil.move(node.directory, node.directory.with_suffix(".newer"))
        shutil.copytree(self._snapshot, node.directory)

    def node_id(self) -> str:
        return str(self.pair.primary.facts()["node_id"])

    def noted(self) -> int:
        """The sequence that the witness has noted for the store of the pair."""
        numbers = self.witness.status()["numbers"]
        assert isinstance(numbers, dict)
        return next((value for key, value in numbers.items() if key.endswith(".position-sequence")), 0)

    def set_noted(self, node_id: str, sequence: int) -> None:
        """Let the witness know less, as within the time between two notes."""
        done = self.witness.command(
            "set", self.witness.address, f"{node_id}.position-sequence", str(sequence),
            "--secret-file", str(self.witness.secret),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def end(self) -> None:
        self.pair.end()
        self.witness.end(signal.SIGKILL)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    try:
        site.pair.start()
        yield site
    finally:
        site.end()


def run(*arguments: object) -> str:
    done = forked.run([str(COMMAND), *map(str, arguments)], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def proved_by(replica: Node) -> int:
    """The sequence that the copy of the replica proves (``run/store-position.json``)."""
    path = replica.directory / "run" / "store-position.json"
    return int(json.loads(path.read_text())["sequence"]) if path.exists() else 0


def saved(node: Node) -> list[str]:
    return sorted(path.name for path in (node.directory / "data" / "journal").glob("oldreplica.*"))


@pytest.mark.parametrize("which", ["primary", "backup"])
def test_the_node_is_refused_and_the_other_one_serves_every_message(site: Site, which: str) -> None:
    pair = site.pair
    node, other = (pair.primary, pair.backup) if which == "primary" else (pair.backup, pair.primary)
    produce(pair.url, 100)
    site.snapshot(node)
    before = proved_by(pair.backup)
    produce(pair.url, 200)
    wait_until(lambda: site.noted() > before + 150, *pair.nodes)
    site.kill_both_and_put_back(node)
    node.start()
    assert node.process is not None
    assert node.process.wait(READY_S) == 1
    for text in ("store-behind", "has noted epoch 1, sequence", "understudy accept-store --instance"):
        assert text in node.tail()
    other.start().wait_ready("active")
    node.start()
    wait_logged(other, "replica in sync", 2 if which == "backup" else 1)
    consume(pair.url, 300)
    assert (saved(node), saved(other)) == ([], [])


def test_a_clean_stop_notes_the_exact_end_of_the_log(site: Site) -> None:
    pair = site.pair
    pair.backup.terminate()
    produce(pair.url, 50)
    pair.primary.terminate()
    follower = recover(RealDisk(), str(pair.primary.directory / "data" / "journal"))
    follower.close()
    assert site.noted() == position_of(follower).sequence


def test_an_operator_accepts_the_older_state(site: Site) -> None:
    primary = site.pair.primary
    produce(site.pair.url, 100)
    site.snapshot(primary)
    before = proved_by(site.pair.backup)
    produce(site.pair.url, 200)
    wait_until(lambda: site.noted() > before + 150, *site.pair.nodes)
    site.kill_both_and_put_back(primary)
    run("accept-store", "--instance", primary.directory)
    primary.start().wait_ready("active")
    consume(site.pair.url, 100)
    # the complete copy comes too late: it becomes the replica, and its rest is kept
    site.pair.backup.start()
    wait_until(lambda: saved(site.pair.backup) == ["oldreplica.1"], *site.pair.nodes)
    assert primary.get("/health/ready")[1]["state"] == "active"


def test_the_copy_of_the_replica_proves_it_when_the_witness_cannot(site: Site) -> None:
    pair = site.pair
    produce(pair.url, 100)
    node_id = site.node_id()
    site.snapshot(pair.primary)
    before = proved_by(pair.backup)
    produce(pair.url, 200)
    wait_until(lambda: proved_by(pair.backup) > before + 150, *pair.nodes)
    site.kill_both_and_put_back(pair.primary)
    site.set_noted(node_id, 0)
    pair.primary.start().wait_ready("active")
    pair.backup.start()
    assert pair.primary.process is not None
    assert pair.primary.process.wait(READY_S) == 1
    assert "as the copy of its replica proves: an older state of its disk was put back" in pair.primary.tail()
    wait_logged(pair.backup, "the active node has lost records of this one")
    # started again it does not serve, and waits for an active node
    pair.primary.start()
    wait_logged(pair.primary, "let the other node serve: `understudy promote --accept-data-loss` there")
    assert saved(pair.backup) == []
    wait_until(lambda: "understudy promote" in str(pair.backup.facts().get("ha")), pair.backup)
    # the log of the backup has the line for each time that it was the replica, too
    synced = logged(pair.backup, "replica in sync")
    run("promote", "--instance", pair.backup.directory, "--accept-data-loss", "--yes")
    pair.backup.wait_ready("active")
    consume(pair.url, 300)
    wait_logged(pair.backup, "replica in sync", synced + 1)
    assert (saved(pair.primary), saved(pair.backup)) == (["oldreplica.1"], [])
