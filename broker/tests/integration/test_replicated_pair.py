"""A replicated pair as real processes: kill -9, clean stops, restarts; the ledger judges (ADR 0022, 0057)."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from support import forked
from support.processes import COMMAND
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
from support.transports import TRANSPORTS, url_by
from understudy.client.sync import connect
from understudy.errors import BrokerError
from understudy.ha.replication.policy import IN_LINE

MakeTraffic = Callable[..., Traffic]


@pytest.fixture
def traffic(tmp_path: Path) -> Iterator[MakeTraffic]:
    """Makes a producer and a consumer."""
    made: list[Traffic] = []

    def make(pair: ReplicatedPair, count: int, transport: str = "core") -> Traffic:
        made.append(Traffic(url_by(transport, pair.url), tmp_path, count))
        return made[-1]

    yield make
    for each in made:
        each.end()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_backup_that_came_into_sync_under_load_serves_after_a_kill(
    make_pair: Callable[..., ReplicatedPair], traffic: MakeTraffic, transport: str
) -> None:
    pair = make_pair()
    pair.primary.start().wait_ready("active")
    load = traffic(pair, 3_000, transport)
    load.wait_confirmed(200)
    pair.backup.start()
    wait_in_sync(pair.primary, pair.backup)
    for node, role, other in ((pair.primary, "backup", pair.backup), (pair.backup, "primary", pair.primary)):
        place = f"{other.host}:{other.port}"
        assert node.facts()["peer"] == {"role": role, "connector": place, "name": other.role}
    load.wait_more(100)
    pair.primary.kill()
    pair.backup.wait_ready("active")
    vanished = f"took over from primary ({pair.primary.host}:{pair.primary.port}), which vanished: epoch 2, "
    assert logged(pair.backup, vanished) == 1
    load.check(pair.backup)


@pytest.mark.long
@pytest.mark.parametrize(
    ("allow_failback", "transport"), [(True, "core"), (False, "core"), (True, "amqp091"), (False, "amqp091")]
)
def test_a_clean_stop_hands_over_and_the_old_node_returns(
    make_pair: Callable[..., ReplicatedPair], traffic: MakeTraffic, allow_failback: bool, transport: str
) -> None:
    pair = make_pair(allow_failback=allow_failback).start()
    load = traffic(pair, 1_500, transport)
    load.wait_confirmed(200)
    assert pair.primary.terminate() == 0
    pair.backup.wait_ready("active")
    assert logged(pair.backup, f"({pair.primary.host}:{pair.primary.port}), which stopped: epoch 2, ") == 1
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
    wait_until(lambda: second.get("/health/ready")[0] == 200, second)
    assert second.get("/health/ready")[1]["reason"] == IN_LINE
    pair.backup.kill()
    wait_in_sync(pair.primary, second, 2)
    wait_until(lambda: logged(second, "AMQ221024") == 1, second)


def test_the_contract_of_an_address_decides_whether_a_confirmation_waits_for_a_paused_replica(
    make_pair: Callable[..., ReplicatedPair],
) -> None:
    contract = "<durability-contract>local</durability-contract>"
    settings = f'<address-settings><address-setting match="fast">{contract}</address-setting></address-settings>'
    pair = make_pair(extra=settings, replication="<replica-silence>-1</replica-silence>").start()
    confirmed: list[str] = []

    def send_safe() -> None:
        safe.send("waits for the disk of the replica")
        confirmed.append("safe")

    with connect(pair.url) as connection, connection.session() as one, connection.session() as other:
        fast, safe = one.producer("fast"), other.producer("safe")
        fast.send("both nodes")
        safe.send("both nodes")
        pair.backup.pause()
        waiting = threading.Thread(target=send_safe)
        waiting.start()
        for number in range(20):
            fast.send(f"the active node {number}")
        assert confirmed == []
        assert logged(pair.primary, "replica lost") == 0
        # the replica is dropped: its connection ends
        pair.backup.kill()
        waiting.join(30)
        assert confirmed == ["safe"]
    assert logged(pair.primary, "the node goes on without a replica") == 1


@pytest.mark.long
def test_a_returning_node_keeps_the_common_part_of_its_log(make_pair: Callable[..., ReplicatedPair]) -> None:
    contracts = (("fast", "local"), ("both", "replica-disk"))
    settings = "".join(
        f'<address-setting match="{match}"><durability-contract>{contract}</durability-contract></address-setting>'
        for match, contract in contracts
    )
    extra = f"<journal-file-size>1048576</journal-file-size><address-settings>{settings}</address-settings>"
    pair = make_pair(extra=extra, replication="<replica-silence>-1</replica-silence>").start()
    produce(pair.url, 600, size=15_000)
    primary_only = f"tcp://127.0.0.1:{pair.primary.port}?reconnectAttempts=0"
    with suppress(BrokerError), connect(primary_only) as connection, connection.session() as session:
        # Confirmed from the replica's disk: everything before it is there when the replica is paused.
        session.producer("both").send("both nodes")
        fast = session.producer("fast")
        pair.backup.pause()
        for number in range(20):
            fast.send(f"only the first active node {number}")
        pair.primary.kill()
        pair.backup.kill()
    pair.backup.start().wait_ready("active")
    produce(pair.url, 20, size=1_000)
    times = logged(pair.backup, "replica in sync") + 1
    pair.primary.start()
    wait_in_sync(pair.backup, pair.primary, times)
    journal = pair.primary.directory / "data" / "journal"
    log_bytes = sum(path.stat().st_size for path in journal.glob("segment-*"))
    copied = [json.loads(line)["bytes"] for line in pair.primary.log.read_text().splitlines() if '"copied"' in line]
    assert copied
    assert 0 < sum(copied) < log_bytes / 4
    _, node = pair.primary.get("/api/v1/node")
    earlier = node["earlier_data"]
    assert isinstance(earlier, dict)
    assert earlier["messages"] == 20
    command = [str(COMMAND), "data", "compare", "--json", earlier["directory"], str(journal)]
    report = json.loads(forked.run(command, stdout=subprocess.PIPE, check=False).stdout)
    (between,) = report["pairs"]
    assert between["sequence"] == earlier["sequence"]
    assert between["left_only"]["messages"] == 20
    consume(pair.url, 620)


@pytest.mark.long
def test_a_returning_node_raises_no_alarm_about_records_that_the_active_node_had_and_trimmed(
    make_pair: Callable[..., ReplicatedPair],
) -> None:
    pair = make_pair(extra="<journal-file-size>1M</journal-file-size>").start()
    produce(pair.url, 3_000, size=2_000)
    consume(pair.url, 3_000)
    pair.primary.kill()
    pair.backup.wait_ready("active")
    assert list((pair.primary.directory / "data" / "journal").glob("segment-*-0000000001.log"))
    journal = pair.backup.directory / "data" / "journal"
    # until all segments that both had are trimmed
    while list(journal.glob("segment-*-0000000001.log")):
        produce(pair.url, 1_000, size=2_000)
        consume(pair.url, 1_000)
    times = logged(pair.backup, "replica in sync") + 1
    pair.primary.start()
    wait_in_sync(pair.backup, pair.primary, times)
    _, node = pair.primary.get("/api/v1/node")
    earlier = node["earlier_data"]
    assert isinstance(earlier, dict)
    assert earlier["messages"] == 0


@pytest.mark.long
@pytest.mark.parametrize("restarted", [False, True], ids=["same-epoch", "next-epoch"])
def test_a_replica_that_was_away_raises_no_alarm_about_records_that_the_active_node_has_trimmed(
    make_pair: Callable[..., ReplicatedPair], *, restarted: bool
) -> None:
    pair = make_pair(extra="<journal-file-size>1M</journal-file-size>").start()
    produce(pair.url, 1_500, size=2_000)
    consume(pair.url, 1_500)
    pair.backup.terminate()
    shared = {path.name for path in (pair.backup.directory / "data" / "journal").glob("segment-*")}
    produce(pair.url, 200, size=2_000)
    consume(pair.url, 200)
    if restarted:
        pair.primary.terminate()
        pair.primary.start().wait_ready("active")
    journal = pair.primary.directory / "data" / "journal"
    while shared.intersection(path.name for path in journal.glob("segment-*")):
        produce(pair.url, 1_000, size=2_000)
        consume(pair.url, 1_000)
    times = logged(pair.primary, "replica in sync") + 1
    pair.backup.start()
    wait_in_sync(pair.primary, pair.backup, times)
    _, node = pair.backup.get("/api/v1/node")
    earlier = node["earlier_data"]
    assert isinstance(earlier, dict)
    assert (earlier["records"], earlier["messages"]) == (0, 0)
