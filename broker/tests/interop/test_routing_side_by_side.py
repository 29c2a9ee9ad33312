"""Queues that are created automatically, message groups and names of queues: the same tests against a real Artemis
broker and against ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from support.targets import Target
from understudy.client.sync import Connection, Session, connect
from understudy.errors import AddressNotFound, BrokerError
from understudy.routing.queues.groups import bucket_key

pytestmark = [pytest.mark.maven, pytest.mark.long]

#: Queues of ``gone`` are deleted when they are not needed any more, at most two scans later.
_GONE = """
      <address-setting match="gone.#">
        <auto-delete-queues>true</auto-delete-queues>
        <auto-delete-addresses>true</auto-delete-addresses>
      </address-setting>
"""
_SCAN_PERIOD_MS = 200


def exists(url: str, queue: str) -> bool:
    with connect(url) as connection, connection.session() as session:
        return session.query_queue(queue).exists


def wait_until_gone(url: str, queue: str, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while exists(url, queue):
        assert time.monotonic() < deadline, queue
        time.sleep(0.1)


def received(session: Session, queue: str) -> str | None:
    consumer = session.consumer(queue, auto_create=False)
    message = consumer.receive(10)
    consumer.close()
    return None if message is None else message.text


@pytest.mark.feature("queue attributes: max-consumers, exclusive, purge, auto-delete")
def test_a_queue_that_was_used_without_a_consumer_is_deleted(make_broker: Callable[..., Target]) -> None:
    """A queue whose only message expired is deleted; a queue whose message still waits stays."""
    broker = make_broker(settings=_GONE, scan_period_ms=_SCAN_PERIOD_MS)
    with connect(broker.url) as connection, connection.session() as session:
        session.producer("gone.used").send("x", ttl_s=0.05)
        session.producer("gone.kept").send("x")
    wait_until_gone(broker.url, "gone.used")
    assert exists(broker.url, "gone.kept")


@pytest.mark.feature("queue attributes: max-consumers, exclusive, purge, auto-delete")
def test_a_restart_deletes_empty_addresses_and_queues(make_broker: Callable[..., Target]) -> None:
    broker = make_broker(settings=_GONE, scan_period_ms=3_600_000)
    with connect(broker.url) as connection, connection.session() as session:
        for name in ("gone.empty", "gone.full", "kept.empty"):
            session.producer(name).send(name)
        for name in ("gone.empty", "kept.empty"):
            assert received(session, name) == name
        session.create_queue("gone.made")
    assert exists(broker.url, "gone.empty")
    broker.node.terminate()
    broker.node.start().wait_ready("active")
    found = {name: exists(broker.url, name) for name in ("gone.empty", "gone.full", "kept.empty", "gone.made")}
    assert found == {"gone.empty": False, "gone.full": True, "kept.empty": True, "gone.made": True}


@pytest.mark.feature("message groups")
def test_groups_of_a_bucket_share_a_consumer(connection: Connection, queue: str) -> None:
    """The buckets are those of Artemis, whichever groups there are."""
    groups = [f"group {number}" for number in range(30)] + ["\u20ac\u00ff", "\U0001f600"]
    with connection.session() as session, connection.session() as second, connection.session() as third:
        session.create_queue(queue, group_buckets=3)
        consumers = [each.consumer(queue) for each in (session, second, third)]
        producer = session.producer(queue)
        for group in groups:
            producer.send(group, group_id=group)
        owners: dict[str, set[int]] = {}
        found: dict[int, set[str]] = {}
        deadline = time.monotonic() + 60
        while sum(map(len, found.values())) < len(groups):
            assert time.monotonic() < deadline, found
            for index, consumer in enumerate(consumers):
                while (message := consumer.receive(0.05)) is not None:
                    group = str(message.text)
                    found.setdefault(index, set()).add(group)
                    owners.setdefault(bucket_key(group, 3), set()).add(index)
        assert sorted(map(len, owners.values())) == [1, 1, 1], owners
        assert len(found) == 3


@pytest.mark.feature("message groups")
def test_a_rebalance_starts_over_at_the_first_consumer(connection: Connection, queue: str) -> None:
    with connection.session() as session, connection.session() as second, connection.session() as third:
        session.create_queue(queue, group_rebalance=True)
        consumers = [each.consumer(queue) for each in (session, second)]
        producer = session.producer(queue)
        producer.send("a", group_id="a")
        message = consumers[0].receive(30)
        assert message is not None
        assert message.text == "a"
        consumers.append(third.consumer(queue))
        for group in ("b", "c", "d"):
            producer.send(group, group_id=group)
            # one at a time: whose turn it is at Artemis depends on how many wait when it looks
            index = "bcd".index(group)
            message = consumers[index].receive(30)
            assert message is not None
            assert message.text == group


@pytest.mark.feature("fully qualified queue names")
def test_a_queue_named_without_its_address(session: Session, queue: str) -> None:
    session.create_queue(f"{queue}.q", address=queue)
    session.producer(queue).send("x")
    assert session.query_queue(f"::{queue}.q").address == queue
    assert received(session, f"::{queue}.q") == "x"
    session.delete_queue(f"::{queue}.q")
    assert not session.query_queue(f"{queue}.q").exists


@pytest.mark.feature("creating and deleting queues and addresses")
def test_a_routing_type_that_the_address_lacks_and_may_not_get(session: Session, queue: str) -> None:
    name = f"closed.{queue}"
    session.create_address(name, "anycast")
    with pytest.raises(BrokerError) as caught:
        session.create_queue(name, routing="multicast")
    assert type(caught.value) is BrokerError, "code 0"
    for target in (name, f"{name}::missing"):
        with pytest.raises(AddressNotFound):
            session.producer(target, auto_create=False).send("x")
