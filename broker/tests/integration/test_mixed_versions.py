"""Goal: nodes of this version and of earlier ones. Nodes of a release before 0.2.0 do not link with those of this one,
and the logs of both name the release that is needed (ADR 0111); over a shared store one still takes over from the
other; an older passive node refuses a log that it cannot read (ADR 0088). Nodes with replication protocols 3 and 4
replicate to each other. After the update of both nodes everything is there. The earlier versions are run from the
history of this repository.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.earlier import PREVIOUS, REPLICATION_PROTOCOL_3, Earlier, run_present
from support.processes import READY_S, Node, Pair, assert_serves, invoke
from support.replicated import ReplicatedPair, consume, logged, produce, wait_in_sync, wait_logged, wait_until
from understudy.kernel.log import crc32
from understudy.store.log.format_version import FORMAT_VERSION

#: In the logs of both nodes, whichever of them dials.
NEEDED = "links only with"
NEWER = "format version {}, this Understudy reads up to {}"


@pytest.fixture(scope="session")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Earlier:
    return Earlier(PREVIOUS, tmp_path_factory.mktemp("previous"))


@pytest.fixture(scope="session")
def protocol_3(tmp_path_factory: pytest.TempPathFactory) -> Earlier:
    return Earlier(REPLICATION_PROTOCOL_3, tmp_path_factory.mktemp("protocol_3"))


def join(active: Node, replica: Node) -> None:
    """Start a node; returns when it is in sync."""
    before = logged(active, "replica in sync")
    replica.start()
    wait_until(lambda: logged(active, "replica in sync") > before, active, replica)


@pytest.mark.parametrize("older", ["primary", pytest.param("backup", marks=pytest.mark.long)])
def test_a_replicated_pair_is_updated_as_a_whole(
    make_pair: Callable[..., ReplicatedPair], previous: Earlier, older: str
) -> None:
    """A node whose partner has an earlier release serves without a replica, and nothing is lost by the update."""
    pair = make_pair()
    earlier = pair.primary if older == "primary" else pair.backup
    previous.run(earlier)
    pair.primary.start().wait_ready("active")
    produce(pair.url, 300)
    pair.backup.start()
    for node in (pair.primary, pair.backup):
        wait_logged(node, NEEDED)
    assert logged(pair.primary, "replica registered") == 0
    consume(pair.url, 100)
    assert pair.backup.terminate() == 0
    assert pair.primary.terminate() == 0
    run_present(earlier)
    pair.primary.start().wait_ready("active")
    join(pair.primary, pair.backup)
    pair.primary.kill()
    pair.backup.wait_ready("active")
    consume(pair.url, 200)


@pytest.mark.parametrize("older", [pytest.param("primary", marks=pytest.mark.long), "backup"])
def test_a_pair_replicates_between_protocols_3_and_4(
    make_pair: Callable[..., ReplicatedPair], protocol_3: Earlier, older: str
) -> None:
    """Each node is copied from the other one and serves its messages; so it is after the update of the older node."""
    pair = make_pair(allow_failback=True)
    earlier = protocol_3.run(pair.primary if older == "primary" else pair.backup)
    pair.primary.start().wait_ready("active")
    produce(pair.url, 300)
    join(pair.primary, pair.backup)
    produce(pair.url, 100)
    pair.primary.kill()
    pair.backup.wait_ready("active")
    consume(pair.url, 100)
    produce(pair.url, 50)
    # The primary is copied from the backup, and takes the service back.
    pair.primary.start().wait_ready("active")
    wait_in_sync(pair.primary, pair.backup, 2)
    consume(pair.url, 100)
    assert pair.backup.terminate() == 0
    assert pair.primary.terminate() == 0
    run_present(earlier)
    pair.primary.start().wait_ready("active")
    join(pair.primary, pair.backup)
    pair.primary.kill()
    pair.backup.wait_ready("active")
    consume(pair.url, 250)


@pytest.mark.long
@pytest.mark.parametrize("older", ["primary", "backup"])
def test_a_pair_of_two_versions_on_a_shared_store(pair: Pair, previous: Earlier, older: str) -> None:
    """The backup is not announced, but follows the store and takes over."""
    earlier = previous.run(pair.primary if older == "primary" else pair.backup)
    pair.primary.start().wait_ready("active")
    pair.backup.start()
    wait_logged(pair.primary, NEEDED)
    wait_logged(pair.backup, NEEDED)
    produce(pair.url, 300)
    pair.primary.kill()
    pair.backup.wait_ready("active")
    consume(pair.url, 100)
    produce(pair.url, 50)
    assert pair.backup.terminate() == 0
    run_present(earlier)
    pair.start()
    consume(pair.url, 250)


@pytest.mark.long
def test_a_backup_of_an_earlier_version_ends_at_a_log_that_it_cannot_read(pair: Pair, previous: Earlier) -> None:
    previous.run(pair.backup)
    pair.primary.start().wait_ready("active")
    pair.backup.start()
    wait_logged(pair.backup, NEEDED)
    produce(pair.url, 100)
    # the backup is not linked: nothing shows that the pair has another node
    assert invoke(pair.primary, "broker", "registerReader", "r")[0] == 200
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
    """Rewrite the header of the first segment of the newest epoch as a later version of Understudy would have written
    it.
    """
    epochs = {path: path.stem.rsplit("-", 1)[1] for path in sorted(journal.glob("segment-*.log"))}
    path = next(path for path, epoch in epochs.items() if epoch == max(epochs.values()))
    with path.open("r+b") as file:
        block = bytearray(file.read(4096))
        block[8:10] = (FORMAT_VERSION + 1).to_bytes(2, "little")
        block[12:16] = bytes(4)
        block[12:16] = crc32(bytes(block)).to_bytes(4, "little")
        file.seek(0)
        file.write(block)
