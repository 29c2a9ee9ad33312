"""Scenarios that the reference tests over replication, with real processes (its tests BackupSync*, ReplicatedFailback,
NettyReplicationStop, BackupAuthentication, paging and large messages).
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from support import forked
from support.processes import Node, invoke
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
from understudy.client.sync import connect
from understudy.errors import BrokerError

pytestmark = pytest.mark.long

MakePair = Callable[..., ReplicatedPair]


def data(node: Node, kind: str) -> Path:
    """A directory of the store of a node."""
    return node.directory / "data" / kind


def take_over(pair: ReplicatedPair) -> None:
    """SIGKILL of the active primary; returns when the backup is active."""
    pair.primary.kill()
    pair.backup.wait_ready("active")


def body(number: int, size_bytes: int) -> bytes:
    """A body that differs for each number."""
    return hashlib.sha256(str(number).encode()).digest() * (size_bytes // 32)


def bodies(pair: ReplicatedPair, queue: str) -> list[bytes]:
    """Receive and acknowledge all messages of a queue."""
    found = []
    with connect(pair.url) as connection, connection.session() as session, session.consumer(queue) as consumer:
        while (received := consumer.receive(2)) is not None:
            found.append(received.read_body())
            consumer.acknowledge(received)
    return found


def test_both_nodes_have_the_node_id_and_the_replica_keeps_it_in_its_lock_file(make_pair: MakePair) -> None:
    pair = make_pair().start()
    node_id = str(pair.primary.facts()["node_id"])
    take_over(pair)
    assert pair.backup.facts()["node_id"] == node_id
    stored = (data(pair.backup, "journal") / "server.lock").read_bytes()
    assert stored[3:19].hex() == node_id.replace("-", "")


def test_a_replica_with_scale_down_and_without_another_member_serves_its_messages(make_pair: MakePair) -> None:
    """A replica that found no other node was active before without an open acceptor."""
    pair = make_pair()
    text = pair.backup.config.read_text()
    assert "</backup>" in text
    pair.backup.config.write_text(
        text.replace("</backup>", "<scale-down><enabled>true</enabled></scale-down></backup>")
    )
    pair.start()
    produce(pair.url, 20)
    take_over(pair)
    consume(pair.url, 20)


@pytest.mark.parametrize("moment", ["before", "during"])
def test_large_messages_are_copied_and_removed_at_the_replica(make_pair: MakePair, moment: str) -> None:
    """A large message that is received before the end of the copy is not at the replica afterwards."""
    pair, size_bytes = make_pair(), 1_000_000
    pair.primary.start().wait_ready("active")
    with connect(pair.url) as connection, connection.session() as session:
        producer = session.producer("large")
        for number in range(6):
            producer.send(body(number, size_bytes))
        consumer = session.consumer("large")
        if moment == "during":
            pair.backup.start()
        for number in range(3):
            received = consumer.receive(30)
            assert received is not None
            assert received.read_body() == body(number, size_bytes)
            consumer.acknowledge(received)
        consumer.close()
        if moment == "before":
            pair.backup.start()
        wait_in_sync(pair.primary, pair.backup)
        producer.send(body(6, size_bytes))
    take_over(pair)
    assert bodies(pair, "large") == [body(number, size_bytes) for number in (3, 4, 5, 6)]
    wait_until(lambda: not list(data(pair.backup, "large-messages").iterdir()), pair.backup)


def test_a_replica_that_starts_while_a_large_message_arrives_has_all_of_it(make_pair: MakePair) -> None:
    pair, piece, begun, go_on = make_pair(), 200_000, threading.Event(), threading.Event()

    class Slow:
        """A body whose second half waits."""

        def __init__(self) -> None:
            self.left = 20

        def read(self, size: int = -1) -> bytes:
            if self.left == 0:
                return b""
            self.left -= 1
            if self.left == 10:
                begun.set()
                assert go_on.wait(60)
            return body(self.left, piece)[: size if size > 0 else None]

    pair.primary.start().wait_ready("active")
    with connect(pair.url) as connection, connection.session() as session:
        producer = session.producer("large")
        sending = threading.Thread(target=lambda: producer.send(Slow()))  # type: ignore[arg-type]
        sending.start()
        assert begun.wait(60)
        pair.backup.start()
        wait_in_sync(pair.primary, pair.backup)
        go_on.set()
        sending.join(60)
        assert not sending.is_alive()
    take_over(pair)
    found = bodies(pair, "large")
    assert len(found) == 1
    assert len(found[0]) > 10 * 100_000


def test_messages_of_a_paged_address_survive_failover_and_failback(make_pair: MakePair) -> None:
    pages = (
        '<address-settings><address-setting match="#"><max-size-bytes>100000</max-size-bytes>'
        "<page-size-bytes>50000</page-size-bytes></address-setting></address-settings>"
    )
    pair = make_pair(allow_failback=True, extra=pages).start()
    produce(pair.url, 2_000, size=500)
    queue = pair.primary.queue("q")
    assert queue is not None
    assert queue["paging"]
    consume(pair.url, 200)
    take_over(pair)
    queue = pair.backup.queue("q")
    assert queue is not None
    assert queue["message_count"] == 1_800
    consume(pair.url, 300)
    produce(pair.url, 100, size=500)
    pair.primary.start().wait_ready("active")
    wait_in_sync(pair.primary, pair.backup, 2)
    consume(pair.url, 1_600)
    queue = pair.primary.queue("q")
    assert queue is None or queue["message_count"] == 0


def test_messages_removed_before_the_copy_do_not_come_back(make_pair: MakePair) -> None:
    pair = make_pair()
    pair.primary.start().wait_ready("active")
    with connect(pair.url) as connection, connection.session() as session:
        session.create_queue("kept")
        producer = session.producer("kept")
        for number in range(100):
            producer.send(str(number))
    assert invoke(pair.primary, "queue.kept", "removeAllMessages") == (200, 100)
    pair.backup.start()
    wait_in_sync(pair.primary, pair.backup)
    take_over(pair)
    queue = pair.backup.queue("kept")
    assert queue is not None
    assert queue["message_count"] == 0


@pytest.mark.parametrize("moment", ["before the copy", "in sync"])
def test_a_queue_purged_without_consumers_is_empty_at_the_replica(make_pair: MakePair, moment: str) -> None:
    pair = make_pair()
    pair.primary.start().wait_ready("active")
    if moment == "in sync":
        pair.backup.start()
        wait_in_sync(pair.primary, pair.backup)
    with connect(pair.url) as connection, connection.session() as session:
        session.create_queue("purged", purge_on_no_consumers=True)
        with session.consumer("purged") as consumer:
            producer = session.producer("purged")
            for number in range(40):
                producer.send(str(number))
            for _ in range(20):
                received = consumer.receive(30)
                assert received is not None
                consumer.acknowledge(received)
        # the consumer was the only one: the messages that it has not received are removed
        wait_until(lambda: (pair.primary.queue("purged") or {"message_count": 0})["message_count"] == 0, pair.primary)
    if moment == "before the copy":
        pair.backup.start()
        wait_in_sync(pair.primary, pair.backup)
    take_over(pair)
    queue = pair.backup.queue("purged")
    assert queue is None or queue["message_count"] == 0


def test_the_primary_fails_back_as_often_as_it_was_killed(make_pair: MakePair, tmp_path: Path) -> None:
    """More often than max-saved-replicated-journals-size (2): the oldest copies are removed, nothing stops."""
    pair = make_pair(allow_failback=True).start()
    load = Traffic(pair.url, tmp_path, None, rate=200)
    try:
        for _ in range(4):
            load.wait_more(100)
            take_over(pair)
            load.wait_more(100)
            in_sync = logged(pair.primary, "replica in sync")
            pair.primary.start().wait_ready("active")
            # as a standby it says so itself once, as the active node once of its replica
            wait_in_sync(pair.primary, pair.backup, in_sync + 2)
        load.stop()
        report = load.check(pair.primary)
        names = {f"127.0.0.1:{node.port}": node.directory.name for node in pair.nodes}
        confirmed = [names[place] for epoch in report["confirmed_by"]["epochs"] for place in epoch["nodes"]]
        assert report["confirmed_by"]["ok"]
        assert confirmed == ["primary", "backup"] * 4 + ["primary"]
    finally:
        load.end()
    for node in pair.nodes:
        assert len(list(data(node, "journal").glob("oldreplica.*"))) <= 2


def test_no_send_is_confirmed_by_a_node_that_stops_while_its_replica_does_not_answer(make_pair: MakePair) -> None:
    pair = make_pair().start()
    place = f"tcp://127.0.0.1:{pair.primary.port}"
    produce(pair.url, 10)
    pair.backup.pause()
    confirmed: list[int] = []
    begun = threading.Barrier(11)

    def send(number: int) -> None:
        try:
            with connect(place) as connection, connection.session() as session:
                producer = session.producer("q", auto_create=False)
                begun.wait(60)
                producer.send(str(number))
                confirmed.append(number)
        except BrokerError:
            return

    threads = [threading.Thread(target=send, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    begun.wait(60)
    pair.primary.terminate()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert confirmed == []


def test_a_node_with_another_cluster_password_gets_no_copy(make_pair: MakePair) -> None:
    pair = make_pair()
    text = pair.backup.config.read_text()
    pair.backup.config.write_text(text.replace("a-secret-of-this-test", "another"))
    pair.primary.start().wait_ready("active")
    produce(pair.url, 10)
    pair.backup.start()
    # the acceptor proves its knowledge of the password first, so the dialler is the node that notices
    wait_logged(pair.backup, "does not know the cluster password")
    assert logged(pair.primary, "replica registered") == 0
    pair.backup.kill()
    pair.backup.config.write_text(text)
    pair.backup.start()
    wait_in_sync(pair.primary, pair.backup)


def test_a_replica_whose_network_check_fails_does_not_activate(make_pair: MakePair) -> None:
    """Port 9 of this address is never reached: TEST-NET-1 is not routed."""
    pair = make_pair()
    check = (
        "<network-check-list>192.0.2.77</network-check-list><network-check-period>200</network-check-period>"
        "<network-check-timeout>200</network-check-timeout>"
    )
    text = pair.backup.config.read_text()
    pair.backup.config.write_text(text.replace("<ha-policy>", check + "<ha-policy>"))
    pair.primary.start().wait_ready("active")
    produce(pair.url, 10)
    pair.backup.start()
    wait_logged(pair.backup, "ISOLATED")
    pair.primary.kill()
    assert pair.backup.get("/health/ready")[1].get("state") in ("isolated", "stopping")
    pair.backup.kill()
    pair.primary.start().wait_ready("active")
    pair.backup.config.write_text(text)
    # the replica may have been in sync before its first check failed
    times = logged(pair.primary, "replica in sync") + 1
    pair.backup.start()
    wait_in_sync(pair.primary, pair.backup, times)
    take_over(pair)
    consume(pair.url, 10)


def test_sessions_of_users_log_in_again_at_the_replica(make_pair: MakePair) -> None:
    """The files of users and roles of both nodes are the same; a failover needs no further login of the application."""
    roles = "".join(
        f'<permission type="{name}" roles="staff"/>'
        for name in ("send", "consume", "createAddress", "createDurableQueue")
    )
    rules = f'<security-settings><security-setting match="#">{roles}</security-setting></security-settings>'
    pair = make_pair(extra=rules)
    for node in pair.nodes:
        node.config.write_text(node.config.read_text().replace("<security-enabled>false", "<security-enabled>true"))
        hashed = forked.run(
            [*node.command, "user", "hash", "bob"], input="secret of bob\n", capture_output=True, text=True, check=True
        )
        users = node.config.with_name("artemis-users.properties")
        users.write_text(hashed.stdout)
        users.chmod(0o600)
        node.config.with_name("artemis-roles.properties").write_text("staff = bob\n")
    pair.start()
    with connect(pair.url, user="bob", password="secret of bob") as connection, connection.session() as session:
        producer = session.producer("q")
        producer.send("before")
        take_over(pair)
        producer.send("after")
        consumer = session.consumer("q")
        received = [consumer.receive(30) for _ in range(2)]
        assert [each.text for each in received if each is not None] == ["before", "after"]


def test_each_node_starts_alone_after_it_has_served_alone(make_pair: MakePair) -> None:
    """The backup stops and returns twice without being used; later it is the only node left."""
    pair = make_pair().start()
    produce(pair.url, 50)
    for times in (2, 3):
        pair.backup.terminate()
        wait_logged(pair.primary, "the node goes on without a replica", times - 1)
        consume(pair.url, 25)
        pair.backup.start()
        wait_in_sync(pair.primary, pair.backup, times)
    pair.backup.terminate()
    wait_logged(pair.primary, "the node goes on without a replica", 3)
    produce(pair.url, 50)
    pair.primary.terminate()
    pair.primary.start().wait_ready("active")
    pair.backup.start()
    wait_in_sync(pair.primary, pair.backup, 4)
    take_over(pair)
    produce(pair.url, 50)
    pair.backup.terminate()
    pair.backup.start().wait_ready("active")
    consume(pair.url, 100)
