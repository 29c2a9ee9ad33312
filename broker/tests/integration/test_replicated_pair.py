"""A replicated pair as real processes: kill -9, clean stops, restarts; the ledger judges (ADR 0022, 0057)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.replicated import (
    ReplicatedPair,
    Traffic,
    consume,
    logged,
    produce,
    wait_in_sync,
    wait_logged,
    wait_until,
)

MakeTraffic = Callable[[ReplicatedPair, int], Traffic]


@pytest.fixture
def make_pair(tmp_path: Path) -> Iterator[Callable[..., ReplicatedPair]]:
    """Makes a pair that is configured and not started."""
    made: list[ReplicatedPair] = []

    def make(**settings: object) -> ReplicatedPair:
        made.append(ReplicatedPair(tmp_path, **settings))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for pair in made:
        pair.end()


@pytest.fixture
def traffic(tmp_path: Path) -> Iterator[MakeTraffic]:
    """Makes a producer and a consumer."""
    made: list[Traffic] = []

    def make(pair: ReplicatedPair, count: int) -> Traffic:
        made.append(Traffic(pair.url, tmp_path, count))
        return made[-1]

    yield make
    for each in made:
        each.end()


def test_a_backup_that_came_into_sync_under_load_serves_after_a_kill(
    make_pair: Callable[..., ReplicatedPair], traffic: MakeTraffic
) -> None:
    pair = make_pair()
    pair.primary.start().wait_ready("active")
    load = traffic(pair, 3_000)
    load.wait_confirmed(200)
    pair.backup.start()
    wait_in_sync(pair.primary, pair.backup)
    load.wait_more(100)
    pair.primary.kill()
    pair.backup.wait_ready("active")
    load.check(pair.backup)


@pytest.mark.long
@pytest.mark.parametrize("allow_failback", [True, False])
def test_a_clean_stop_hands_over_and_the_old_node_returns(
    make_pair: Callable[..., ReplicatedPair], traffic: MakeTraffic, allow_failback: bool
) -> None:
    pair = make_pair(allow_failback=allow_failback).start()
    load = traffic(pair, 1_500)
    load.wait_confirmed(200)
    assert pair.primary.terminate() == 0
    pair.backup.wait_ready("active")
    pair.primary.start()
    if allow_failback:
        pair.primary.wait_ready("active")
        wait_in_sync(pair.primary, pair.backup, 2)
        load.check(pair.primary)
    else:
        wait_in_sync(pair.backup, pair.primary, 2)
        load.check(pair.backup)
        assert pair.primary.facts()["ha"]["state"] == "passive"  # type: ignore[index]


@pytest.mark.long
def test_a_killed_backup_comes_back_into_sync_by_itself(
    make_pair: Callable[..., ReplicatedPair], traffic: MakeTraffic
) -> None:
    pair = make_pair().start()
    load = traffic(pair, 4_000)
    load.wait_confirmed(200)
    pair.backup.kill()
    wait_logged(pair.primary, "the node goes on without a replica")
    load.wait_more(100)
    pair.backup.start()
    wait_in_sync(pair.primary, pair.backup, 2)
    pair.primary.kill()
    pair.backup.wait_ready("active")
    load.check(pair.backup)


@pytest.mark.parametrize("alone", ["primary", "backup"])
@pytest.mark.long
def test_either_node_alone_serves_everything_after_both_were_killed_in_sync(
    make_pair: Callable[..., ReplicatedPair], alone: str
) -> None:
    pair = make_pair().start()
    produce(pair.url, 300)
    # both are stopped first, so that neither notices the end of the other and goes on alone
    pair.primary.pause()
    pair.backup.pause()
    pair.primary.kill()
    pair.backup.kill()
    node = pair.primary if alone == "primary" else pair.backup
    node.start().wait_ready("active")
    consume(pair.url, 300)


def test_a_backup_that_was_left_behind_does_not_serve(make_pair: Callable[..., ReplicatedPair]) -> None:
    pair = make_pair().start()
    produce(pair.url, 100)
    pair.backup.kill()
    wait_logged(pair.primary, "the node goes on without a replica")
    produce(pair.url, 100)
    pair.primary.kill()
    pair.backup.start()
    wait_logged(pair.backup, "not active")
    said = pair.backup.tail()
    assert "the data of this node has the activation sequence 1; the newest is 2" in said, said
    assert pair.backup.get("/health/ready")[1].get("state") != "active"
    pair.primary.start().wait_ready("active")
    wait_in_sync(pair.primary, pair.backup, 2)
    consume(pair.url, 200)


@pytest.mark.long
def test_a_backup_that_makes_no_progress_is_dropped_and_attaches_again(
    make_pair: Callable[..., ReplicatedPair], traffic: MakeTraffic
) -> None:
    pair = make_pair(call_timeout_ms=1_000).start()
    load = traffic(pair, 2_000)
    load.wait_confirmed(100)
    pair.backup.pause()
    wait_logged(pair.primary, "AMQ222207")
    load.wait_more(100)
    pair.backup.resume()
    wait_in_sync(pair.primary, pair.backup, 2)
    load.check(pair.primary)


@pytest.mark.long
@pytest.mark.parametrize(("saved_max", "kept"), [(0, 0), (1, 1), (-1, 3)])
def test_old_replicas_are_kept_as_configured(
    make_pair: Callable[..., ReplicatedPair], tmp_path: Path, saved_max: int, kept: int
) -> None:
    pair = make_pair(saved_max=saved_max).start()
    for round_number in range(1, 4):
        # other bytes near the start of each file: the data is not a prefix of that of the active node any more
        pair.backup.terminate()
        journal = tmp_path / "backup" / "data" / "journal"
        for segment in journal.iterdir():
            if segment.is_file() and segment.stat().st_size > 4096:
                with segment.open("r+b") as file:
                    file.seek(64)
                    file.write(b"damaged")
        wait_logged(pair.primary, "the node goes on without a replica", round_number)
        pair.backup.start()
        wait_in_sync(pair.primary, pair.backup, round_number + 1)
    assert len(list((tmp_path / "backup" / "data" / "journal").glob("oldreplica.*"))) == kept


@pytest.mark.long
def test_a_second_backup_attaches_when_the_first_one_is_gone(make_pair: Callable[..., ReplicatedPair]) -> None:
    pair = make_pair(backups=2).start()
    second = pair.nodes[2].start()
    wait_logged(pair.primary, "the node has a replica")
    pair.backup.kill()
    wait_in_sync(pair.primary, second, 2)
    wait_until(lambda: logged(second, "AMQ221024") == 1, second)
