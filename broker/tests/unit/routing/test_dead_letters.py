"""Expiry and dead letter addresses: moved or dropped, never both, never neither."""

from __future__ import annotations

from typing import Any

import pytest

from support.routing import World, callback_of, text
from understudy.errors import AddressFull, DiskFailed
from understudy.message import DUPLICATE_ID, ROUTING_TYPE, Message
from understudy.routing.addresses import directory
from understudy.routing.lifecycle import redelivery
from understudy.routing.queues.queue import Queue
from understudy.routing.response_order import ResponseOrder
from understudy.session.outcomes import EXPIRED
from understudy.terms import RoutingType

DEAD = {"#": {"dead_letter_address": "DLQ", "max_delivery_attempts": 2, "expiry_address": "EXP"}}


def fail_once(world: World, times: int = 1) -> None:
    """Deliver the first message and roll it back."""
    for _ in range(times):
        session = world.session(transacted=True)
        session.consumers.create(0, "q")
        session.consumers.receive_credits(0, 1)
        world.turn()
        (consumer_id, message, _) = callback_of(session).delivered[0]
        session.acknowledge(consumer_id, message.message_id)
        session.rollback()
        session.close(failed=False)


def only(world: World, queue: Queue) -> Message:
    session = world.session()
    session.consumers.create(0, queue.name)
    session.consumers.receive_credits(0, 1)
    world.turn()
    ((_, message, _),) = callback_of(session).delivered
    session.close(failed=False)
    return message


def test_tried_too_often_goes_to_the_dead_letters_with_its_origin(caplog: pytest.LogCaptureFixture) -> None:
    world = World(DEAD)
    queue, dead = world.queue(), world.queue("DLQ")
    world.session().sends.send(text("m", properties={"colour": "red", ROUTING_TYPE: 1}))
    original = only(world, queue).message_id
    fail_once(world)
    assert (queue.message_count, dead.message_count) == (1, 0)
    fail_once(world)
    assert (queue.message_count, dead.message_count, queue.messages_killed) == (0, 1, 1)
    assert (queue.delivering_count, queue.address.size_bytes) == (0, 0)
    copy = only(world, dead)
    found: dict[str, Any] = dict(copy.properties)
    assert found == {
        "colour": "red",
        "_AMQ_ORIG_ADDRESS": "q",
        "_AMQ_ORIG_QUEUE": "q",
        "_AMQ_ORIG_MESSAGE_ID": original,
        "_AMQ_ORIG_ROUTING_TYPE": 1,
    }
    assert (copy.address, copy.body, copy.expiration) == ("DLQ", b"m", 0)
    assert "message dropped" not in caplog.text
    assert world.store.survivors(queue) == []
    assert world.store.survivors(dead) == [copy.message_id]


def test_a_move_is_one_transaction_of_the_log() -> None:
    world = World(DEAD, automatic=False)
    queue, dead = world.queue(), world.queue("EXP")
    world.session().sends.send(text("m", expiration=world.clock.now_ms + 1))
    world.sync()
    world.clock.advance(1)
    queue.expire_overdue(world.clock.now_ms)
    assert world.store.found().transactions == {}
    assert (world.store.live(queue), len(world.store.live(dead))) == ([], 1)
    assert dead.message_count == 0, "visible only when durable"
    world.sync()
    assert dead.message_count == 1


def test_expired_messages_carry_their_expiry() -> None:
    world = World(DEAD)
    queue, expired = world.queue(), world.queue("EXP")
    at = world.clock.now_ms + 1
    world.session().sends.send(text("m", expiration=at))
    world.clock.advance(1)
    queue.expire_overdue(world.clock.now_ms)
    copy = only(world, expired)
    assert copy.properties["_AMQ_ACTUAL_EXPIRY"] == at
    assert copy.properties["_AMQ_ORIG_QUEUE"] == "q"
    assert copy.expiration == 0


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # settings of the message's own address count, those of the queue's do not
        ({"w.a": {"expiry_address": "EXP"}}, 1),
        ({"w.*": {"expiry_address": "EXP"}, "w.a": {"expiry_address": ""}}, 0),
    ],
)
def test_a_message_of_a_wildcard_queue_expires_by_its_own_address(
    settings: dict[str, dict[str, Any]], expected: int
) -> None:
    world = World(settings)
    queue, target = world.queue("all", address="w.*", routing_type=RoutingType.MULTICAST), world.queue("EXP")
    world.queue("other", address="w.a", routing_type=RoutingType.MULTICAST, filter="no = 1")
    world.session().sends.send(text("m", address="w.a", expiration=world.clock.now_ms + 1))
    assert queue.message_count == 1
    world.clock.advance(1)
    queue.expire_overdue(world.clock.now_ms)
    assert (queue.message_count, target.message_count) == (0, expected)
    if expected:
        assert only(world, target).properties["_AMQ_ORIG_ADDRESS"] == "w.a"


def test_without_a_target_the_message_ends_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    world = World({"#": {"max_delivery_attempts": 1}})
    queue = world.queue()
    world.session().sends.send(text("m"))
    fail_once(world)
    assert (queue.message_count, queue.messages_killed, world.office.memory.held_bytes) == (0, 1, 0)
    assert world.store.survivors(queue) == []
    (dropped,) = (record for record in caplog.records if "message dropped" in record.message)
    assert (dropped.__dict__["queue"], dropped.__dict__["deliveries"]) == ("q", 1)


def test_a_target_without_a_queue_ends_it_too(caplog: pytest.LogCaptureFixture) -> None:
    world = World(DEAD)
    queue = world.queue()
    world.office.directory.create_address("DLQ", {RoutingType.ANYCAST})
    world.session().sends.send(text("m"))
    fail_once(world, 2)
    assert (queue.message_count, queue.messages_killed) == (0, 1)
    assert world.office.directory.addresses["DLQ"].messages_unrouted == 1
    assert "message dropped" in caplog.text


def test_dead_letters_that_die_on_their_own_address_stay_there() -> None:
    """Most installations have one dead letter address for all addresses; a consumer that fails on dead letters must not
    lose them.
    """
    settings = {"dead_letter_address": "q", "max_delivery_attempts": 1, "auto_create_dead_letter_resources": True}
    world = World({"#": settings})
    queue = world.queue()
    for name in ("m", "n"):
        # dead letters of another address: a client could not write where they come from (ADR 0025)
        world.office.send(text(name, properties={"_AMQ_ORIG_ADDRESS": "source"}), ResponseOrder())
    fail_once(world)
    fail_once(world)
    assert (queue.message_count, queue.delivering_count, queue.messages_killed) == (2, 0, 2)
    assert len(world.store.survivors(queue)) == 2
    assert [each.name for each in world.office.queues()] == ["q"]
    copy = only(world, queue)
    assert (copy.body, dict(copy.properties)) == (b"m", {"_AMQ_ORIG_ADDRESS": "source"})
    queue.purge()
    assert queue.address.size_bytes == 0


def test_what_expires_on_the_expiry_address_stays_there() -> None:
    world = World({"#": {"expiry_address": "q"}})
    queue = world.queue()
    world.session().sends.send(text("m", expiration=world.clock.now_ms + 1))
    world.clock.advance(2)
    assert (only(world, queue).body, queue.messages_expired) == (b"m", 1)
    assert (queue.message_count, queue.expiring_count) == (1, 0)


@pytest.mark.parametrize("way", ["delivery", "search", "found by its consumer"])
def test_on_a_full_disk_nothing_expires_until_there_is_space(way: str) -> None:
    world = World({"#": {"expiry_address": "EXP"}}, message_expiry_scan_period_ms=100 if way == "search" else -1)
    queue, expired = world.queue(), world.queue("EXP")
    session = world.session()
    for name in ("m", "n"):
        session.sends.send(text(name, expiration=world.clock.now_ms + 50 if name == "m" else 0))
    session.consumers.create(0, "q")
    if way == "found by its consumer":
        session.consumers.receive_credits(0, 1)
        world.turn()
    world.store.full = True
    world.clock.advance(200)
    if way == "found by its consumer":
        session.settle(0, callback_of(session).delivered[0][1].message_id, EXPIRED)
    session.consumers.receive_credits(0, -1)
    world.turn()
    assert callback_of(session).bodies()[-1] == b"n", "messages after it are delivered"
    assert (queue.message_count, queue.scheduled_count, queue.messages_expired, expired.message_count) == (2, 1, 0, 0)
    assert len(world.store.survivors(queue)) == 2
    world.store.full = False
    world.clock.advance(redelivery.TRY_AGAIN_MS)
    world.turn()
    assert (queue.message_count, queue.scheduled_count, queue.messages_expired, expired.message_count) == (1, 0, 1, 1)
    assert queue.address.message_count == 1


def test_on_a_full_disk_nothing_is_a_dead_letter_until_there_is_space() -> None:
    world = World(DEAD)
    queue, dead = world.queue(), world.queue("DLQ")
    world.session().sends.send(text("m"))
    fail_once(world)
    world.store.full = True
    fail_once(world)
    assert (queue.message_count, queue.delivering_count, queue.scheduled_count) == (1, 0, 1)
    world.store.full = False
    world.clock.advance(redelivery.TRY_AGAIN_MS)
    fail_once(world)
    assert (queue.message_count, queue.delivering_count, queue.scheduled_count, dead.message_count) == (0, 0, 0, 1)


def test_too_many_queues_keep_dead_letters_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({"#": {**DEAD["#"], "auto_create_dead_letter_resources": True}})
    queue = world.queue()
    world.session().sends.send(text("m"))
    monkeypatch.setattr(directory, "QUEUES_MAX", 1)
    fail_once(world, 2)
    assert (queue.message_count, queue.scheduled_count, queue.messages_killed) == (1, 1, 0)


def test_an_error_of_a_failed_store_is_raised_and_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(DEAD)
    world.queue()
    world.queue("DLQ")
    world.session().sends.send(text("m"))
    fail_once(world)

    def fails(*_: object, **__: object) -> int:
        raise DiskFailed("gone")

    monkeypatch.setattr(world.store, "store_message", fails)
    with pytest.raises(DiskFailed):
        fail_once(world)


def test_resources_are_made_when_the_settings_say_so() -> None:
    world = World({"#": {**DEAD["#"], "auto_create_dead_letter_resources": True, "auto_create_expiry_resources": True}})
    world.queue()
    session = world.session()
    session.sends.send(text("m"))
    fail_once(world, 2)
    session.sends.send(text("e", expiration=world.clock.now_ms + 1))
    world.clock.advance(60_000)
    queues = world.office.directory.queues
    assert queues["DLQ.q"].address.name == "DLQ"
    assert (queues["DLQ.q"].message_count, queues["EXP.q"].message_count) == (1, 1)
    assert queues["DLQ.q"].routing_type is RoutingType.MULTICAST


def test_unlimited_attempts() -> None:
    world = World({"#": {"max_delivery_attempts": -1, "dead_letter_address": "DLQ"}})
    queue = world.queue()
    world.session().sends.send(text("m"))
    fail_once(world, 15)
    assert queue.message_count == 1


def test_unrouted_messages_may_go_to_the_dead_letters() -> None:
    world = World({"#": {"dead_letter_address": "DLQ", "send_to_dla_on_no_route": True}})
    dead = world.queue("DLQ")
    session = world.session()
    session.sends.send(text("m", "nowhere", properties={ROUTING_TYPE: 0}), world.answers.of("m"))
    assert world.answers.error("m") is None
    assert dead.message_count == 1
    copy = only(world, dead)
    assert copy.properties["_AMQ_ORIG_ADDRESS"] == "nowhere"
    assert "_AMQ_ORIG_QUEUE" not in copy.properties


def test_paged_messages_are_read_back_to_be_moved() -> None:
    world = World({"#": DEAD["#"] | {"max_size_bytes": 0}})
    queue, expired = world.queue(), world.queue("EXP")
    world.session().sends.send(text("m", expiration=world.clock.now_ms + 1))
    assert queue.address.memory_bytes == 0
    world.clock.advance(1)
    queue.expire_overdue(world.clock.now_ms)
    assert only(world, expired).body == b"m"


def test_a_non_durable_message_is_moved_without_a_transaction() -> None:
    world = World(DEAD)
    queue, expired = world.queue(), world.queue("EXP")
    world.session().sends.send(text("m", durable=False, expiration=world.clock.now_ms + 1))
    world.clock.advance(1)
    queue.expire_overdue(world.clock.now_ms)
    assert expired.message_count == 1
    assert world.store.survivors(expired) == []


def test_a_refused_message_without_a_queue_may_be_sent_again_with_its_duplicate_id() -> None:
    """The duplicate id is logged after the dead letter: otherwise the second attempt would be a duplicate of a lost
    message.
    """
    world = World({"#": {"dead_letter_address": "DLQ", "send_to_dla_on_no_route": True}})
    dead = world.queue("DLQ")
    session = world.session()
    world.office.directory.create_address("nowhere", {RoutingType.MULTICAST})
    world.store.full = True
    for name in ("first", "again", "and again"):
        session.sends.send(text("m", "nowhere", properties={DUPLICATE_ID: "1"}), world.answers.of(name))
        world.store.full = False
    assert isinstance(world.answers.error("first"), AddressFull)
    assert (world.answers.error("again"), world.answers.error("and again")) == (None, None)
    assert dead.message_count == 1


WEEK_MS = 7 * 24 * 3_600_000


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({"expiry_delay": WEEK_MS}, WEEK_MS), ({"min_expiry_delay": 500}, 500), ({"max_expiry_delay": 900}, 900)],
)
def test_a_dead_letter_has_the_expiration_of_its_new_address(settings: dict[str, object], expected: int) -> None:
    world = World({**DEAD, "DLQ": settings})
    world.queue()
    dead = world.queue("DLQ")
    world.session().sends.send(text("m", expiration=world.clock.now_ms + 50_000))
    fail_once(world, 2)
    assert only(world, dead).expiration == world.clock.now_ms + expected


def test_a_retry_queue_with_a_delay_gives_expired_messages_back_after_it() -> None:
    """Dead letters wait in a queue without consumers, whose expiration leads back to the queue of the work."""
    world = World(
        {
            "q": {"dead_letter_address": "retry", "max_delivery_attempts": 1},
            "retry": {"expiry_delay": 5_000, "expiry_address": "q"},
        }
    )
    queue, retry = world.queue(), world.queue("retry")
    world.session().sends.send(text("m"))
    fail_once(world)
    assert (queue.message_count, retry.message_count) == (0, 1)
    world.clock.advance(4_999)
    assert retry.expire_overdue(world.clock.now_ms) == 0
    world.clock.advance(1)
    assert retry.expire_overdue(world.clock.now_ms) == 1
    assert (queue.message_count, retry.message_count) == (1, 0)
    assert only(world, queue).expiration == 0


def test_an_expired_message_takes_the_expiration_of_the_expiry_address_and_does_not_expire_again_there() -> None:
    world = World({"#": {**DEAD["#"], "expiry_delay": 100}})
    queue, expired = world.queue(), world.queue("EXP")
    world.session().sends.send(text("m"))
    world.clock.advance(100)
    queue.expire_overdue(world.clock.now_ms)
    assert only(world, expired).expiration == world.clock.now_ms + 100
    world.clock.advance(100)
    expired.expire_overdue(world.clock.now_ms)
    assert (expired.message_count, only(world, expired).expiration) == (1, 0)


def test_a_message_that_no_queue_wanted_has_the_expiration_of_the_dead_letter_address() -> None:
    world = World({"#": {**DEAD["#"], "send_to_dla_on_no_route": True}, "DLQ": {"expiry_delay": 100}})
    world.office.directory.create_address("empty", {RoutingType.MULTICAST})
    dead = world.queue("DLQ")
    world.session().sends.send(text("m", "empty"))
    assert only(world, dead).expiration == world.clock.now_ms + 100


def test_dead_letters_are_those_of_every_dead_letter_address() -> None:
    world = World({"#": DEAD["#"], "other": {"dead_letter_address": "DLQ2"}, "third": {"dead_letter_address": "none"}})
    world.queue(), world.queue("DLQ"), world.queue("DLQ2")
    assert world.office.directory.dead_letter_count() == 0
    for address in ("DLQ", "DLQ", "DLQ2", "q"):
        world.session().sends.send(text("m", address))
    world.turn()
    assert world.office.directory.dead_letter_count() == 3
