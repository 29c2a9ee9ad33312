"""Goal: nodes of this version and of earlier ones serve together, over a shared store and over replication, whichever
of them is active; a newer active node writes nothing that an older passive one cannot read, and an older one refuses a
log that it cannot read (ADR 0088). The earlier versions are run from the history of this repository.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.earlier import BEFORE_READERS, PREVIOUS, Earlier, run_present
from support.processes import READY_S, Node, Pair, assert_serves, invoke
from support.replicated import ReplicatedPair, consume, logged, produce, wait_logged, wait_until
from understudy.kernel import crc32
from understudy.store.log.format_version import FORMAT_VERSION

REFUSED = "the log has format version 2, this backup is of an earlier version"
NEWER = "format version {}, this Understudy reads up to {}"


@pytest.fixture(scope="session")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Earlier:
    return Earlier(PREVIOUS, tmp_path_factory.mktemp("previous"))


@pytest.fixture(scope="session")
def before_readers(tmp_path_factory: pytest.TempPathFactory) -> Earlier:
    return Earlier(BEFORE_READERS, tmp_path_factory.mktemp("before-readers"))


def join(active: Node, replica: Node) -> None:
    """Start a node; returns when it is in sync."""
    before = logged(active, "replica in sync")
    replica.start()
    wait_until(lambda: logged(active, "replica in sync") > before, active, replica)


@pytest.mark.long
@pytest.mark.parametrize("older", ["primary", "backup"])
def test_a_replicated_pair_of_two_versions(
    make_pair: Callable[..., ReplicatedPair], previous: Earlier, older: str
) -> None:
    pair = make_pair()
    previous.run(pair.primary if older == "primary" else pair.backup)
    pair.primary.start().wait_ready("active")
    produce(pair.url, 300)
    join(pair.primary, pair.backup)
    produce(pair.url, 200)
    pair.primary.kill()
    pair.backup.wait_ready("active")
    consume(pair.url, 100)
    join(pair.backup, pair.primary)
    produce(pair.url, 50)
    pair.backup.kill()
    pair.primary.wait_ready("active")
    consume(pair.url, 450)


@pytest.mark.long
@pytest.mark.parametrize("older", ["primary", "backup"])
def test_a_pair_of_two_versions_on_a_shared_store(pair: Pair, previous: Earlier, older: str) -> None:
    previous.run(pair.primary if older == "primary" else pair.backup)
    pair.start()
    produce(pair.url, 300)
    pair.primary.kill()
    pair.backup.wait_ready("active")
    consume(pair.url, 100)
    produce(pair.url, 50)
    pair.primary.start().wait_ready("active")
    pair.backup.wait_ready("passive")
    consume(pair.url, 250)


@pytest.mark.parametrize("version", ["previous", pytest.param("before_readers", marks=pytest.mark.long)])
def test_a_replica_of_an_earlier_version_gets_nothing_that_it_cannot_read(
    make_pair: Callable[..., ReplicatedPair], request: pytest.FixtureRequest, version: str
) -> None:
    pair = make_pair()
    earlier = request.getfixturevalue(version)
    earlier.run(pair.backup)
    pair.start()
    produce(pair.url, 100)
    status, text = invoke(pair.primary, "broker", "registerReader", "r")
    assert status != 200
    assert "the replica backup is of an earlier version" in str(text)
    pair.primary.kill()
    pair.backup.wait_ready("active")
    consume(pair.url, 100)
    produce(pair.url, 20)
    # the older node is updated last: it is without its partner, then with it
    join(pair.backup, pair.primary)
    assert pair.backup.terminate() == 0
    pair.primary.wait_ready("active")
    assert invoke(pair.primary, "broker", "registerReader", "r")[0] == 200
    pair.backup.start()
    wait_logged(pair.primary, REFUSED)
    assert pair.backup.facts()["ha"]["state"] == "passive"  # type: ignore[index]
    consume(pair.url, 20)
    pair.backup.end()
    join(pair.primary, run_present(pair.backup))
    produce(pair.url, 10)
    pair.primary.kill()
    pair.backup.wait_ready("active")
    consume(pair.url, 10)
    assert '"r"' in str(invoke(pair.backup, "broker", "listReadersAsJSON"))


@pytest.mark.long
def test_a_backup_of_an_earlier_version_on_a_shared_store(pair: Pair, previous: Earlier) -> None:
    previous.run(pair.backup)
    pair.start()
    produce(pair.url, 100)
    status, text = invoke(pair.primary, "broker", "registerReader", "r")
    assert status != 200
    assert "is of an earlier version" in str(text)
    pair.backup.end()
    # it is not connected any more: nothing shows that the pair has another node
    wait_until(lambda: pair.primary.facts()["peer"] is None, pair.primary)
    assert invoke(pair.primary, "broker", "registerReader", "r")[0] == 200
    pair.backup.start()
    wait_logged(pair.backup, NEWER.format(2, 1))
    pair.primary.kill()
    # the older node gets the lock, cannot read the log, and ends
    assert pair.backup.process is not None
    assert pair.backup.process.wait(READY_S) != 0
    pair.primary.start().wait_ready("active")
    consume(pair.url, 100)
    run_present(pair.backup).start().wait_ready("passive")


def test_a_passive_node_ends_at_a_log_of_a_later_version(pair: Pair) -> None:
    pair.start()
    produce(pair.url, 10)
    assert pair.backup.terminate() == 0
    _state_later_version(pair.store / "journal")
    pair.backup.start()
    assert pair.backup.process is not None
    assert pair.backup.process.wait(READY_S) != 0
    assert logged(pair.backup, NEWER.format(FORMAT_VERSION + 1, FORMAT_VERSION))
    assert_serves(pair.primary)


def _state_later_version(journal: Path) -> None:
    """As if a later version of Understudy had written the first segment of the newest epoch."""
    epochs = {path: path.stem.rsplit("-", 1)[1] for path in sorted(journal.glob("segment-*.log"))}
    path = next(path for path, epoch in epochs.items() if epoch == max(epochs.values()))
    with path.open("r+b") as file:
        block = bytearray(file.read(4096))
        block[8:10] = (FORMAT_VERSION + 1).to_bytes(2, "little")
        block[12:16] = bytes(4)
        block[12:16] = crc32(bytes(block)).to_bytes(4, "little")
        file.seek(0)
        file.write(block)
