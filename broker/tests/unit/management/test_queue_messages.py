"""Operations of management on messages: none is lost or duplicated, and the log agrees with the queue."""

from __future__ import annotations

import json

import pytest

from support.managed import ManagedWorld, outcome, request
from support.routing import FakeSecurity, World, text
from understudy.management.operations import invocation, queue_messages
from understudy.message import Message
from understudy.properties import PropertyValue
from understudy.routing.queues.queue import Queue
from understudy.routing.queues.waiting_messages import SLICE_MESSAGES
from understudy.terms import Permission

MANY = SLICE_MESSAGES * 2 + 7


def loaded(count: int = 5, **settings: object) -> tuple[ManagedWorld, Queue]:
    """A queue of messages numbered by the property ``n``, every second one of colour red."""
    node = ManagedWorld(world=World({"#": settings}) if settings else None)
    queue = node.world.queue()
    producer = node.world.session()
    for number in range(count):
        producer.sends.send(numbered(number))
    return node, queue


def numbered(number: int, **more: PropertyValue) -> Message:
    colour = "red" if number % 2 else "blue"
    return text(str(number), properties={"n": number, "colour": colour, **more})


def numbers(queue: Queue) -> list[int]:
    return [int(queue.read(reference).properties["n"]) for _, reference in queue.browse((9, -1))]


def ids(queue: Queue) -> list[int]:
    return [reference.message_id for _, reference in queue.browse((9, -1))]


def whole(node: ManagedWorld, queue: Queue) -> None:
    """The counts are those of the messages in the queue, and the log has the same."""
    assert queue.message_count == len(ids(queue)) + queue.scheduled_count + queue.delivering_count
    if queue.durable and not queue.delivering_count:
        scheduled = [reference.message_id for reference in node.office.scheduled.of(queue)]
        assert sorted(ids(queue) + scheduled) == node.store.survivors(queue)


def test_listing_shows_properties_and_header() -> None:
    node, _ = loaded(2)
    first, second = node.ask("queue.q", "listMessages", None)
    assert first["n"] == 0
    assert first["colour"] == "blue"
    assert first["address"] == "q"
    assert first["durable"] is True
    assert first["priority"] == 4
    assert second["messageID"] > first["messageID"]
    assert json.loads(node.ask("queue.q", "listMessagesAsJSON", "colour = 'red'")) == [second]


def test_listing_ends_at_the_page_size_and_values_are_cut() -> None:
    node, queue = loaded(0, management_browse_page_size=3, management_message_attribute_size_limit=4)
    for number in range(5):
        node.world.session().sends.send(numbered(number, long="abcdefgh", raw=b"\x00\xff\x01\x02\x03"))
    shown = node.ask("queue.q", "listMessages", "")
    assert [entry["n"] for entry in shown] == [0, 1, 2]
    assert shown[0]["long"] == "abcd, + 4 more"
    assert shown[0]["raw"] == [0, -1, 1, 2]
    assert [entry["n"] for entry in node.ask("queue.q", "browse", 2, 2)] == [2, 3]
    assert [entry["n"] for entry in node.ask("queue.q", "browse", "colour = 'red'")] == [1, 3]
    assert "with 1 to 3 messages" in node.refused("queue.q", "browse", 1, 4)
    assert len(numbers(queue)) == 5


def test_counting() -> None:
    node, _ = loaded(MANY)
    assert node.ask("queue.q", "countMessages") == MANY
    assert node.ask("queue.q", "countMessages", "colour = 'red'") == MANY // 2
    by_colour = json.loads(node.ask("queue.q", "countMessages", None, "colour"))
    assert by_colour == {"blue": MANY - MANY // 2, "red": MANY // 2}
    assert json.loads(node.ask("queue.q", "countMessages", None, "missing")) == {"null": MANY}
    assert "position 9" in node.refused("queue.q", "countMessages", "colour = ")


def test_groups_of_a_count_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_messages, "GROUPS_MAX", 3)
    node, _ = loaded(4)
    assert "more than 3 values of 'n'" in node.refused("queue.q", "countMessages", None, "n")


def test_removing_by_selector_id_and_all() -> None:
    node, queue = loaded(MANY)
    assert node.ask("queue.q", "removeMessages", "colour = 'red'") == MANY // 2
    assert all(number % 2 == 0 for number in numbers(queue))
    whole(node, queue)
    first = ids(queue)[0]
    assert node.ask("queue.q", "removeMessage", first) is True
    assert node.ask("queue.q", "removeMessage", first) is False
    whole(node, queue)
    left = len(numbers(queue))
    assert node.ask("queue.q", "removeAllMessages") == left
    assert queue.message_count == 0
    assert queue.messages_killed == MANY
    assert queue.address.size_bytes == 0
    whole(node, queue)


def test_messages_being_delivered_are_left_alone() -> None:
    node, queue = loaded(3)
    session = node.world.session()
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, 1)
    node.world.turn()
    assert queue.delivering_count == 1
    assert node.ask("queue.q", "countDeliveringMessages", None) == 1
    held = node.ask("queue.q", "listDeliveringMessages")
    assert [entry["n"] for entries in held.values() for entry in entries] == [0]
    assert session.state.name not in json.dumps(held)
    assert node.ask("queue.q", "removeAllMessages") == 2
    assert queue.message_count == 1
    session.close(failed=False)
    assert numbers(queue) == [0]
    whole(node, queue)


def test_scheduled_messages_are_listed_released_and_removed() -> None:
    node, queue = loaded(0)
    producer = node.world.session()
    for number in range(4):
        producer.sends.send(numbered(number, _AMQ_SCHED_DELIVERY=node.world.clock.now_ms + 60_000 + number))
    assert [entry["n"] for entry in node.ask("queue.q", "listScheduledMessages")] == [0, 1, 2, 3]
    node.ask("queue.q", "deliverScheduledMessages", "colour = 'red'")
    assert numbers(queue) == [1, 3]
    assert node.ask("queue.q", "removeMessages", "n = 0") == 1
    assert (queue.scheduled_count, queue.message_count) == (1, 3)
    whole(node, queue)
    assert node.ask("queue.q", "removeAllMessages") == 3
    whole(node, queue)
    node.world.clock.advance(120_000)
    assert queue.message_count == 0


def test_moving_keeps_every_message_once() -> None:
    node, queue = loaded(MANY)
    target = node.world.queue("other")
    assert node.ask("queue.q", "moveMessages", "colour = 'red'", "other") == MANY // 2
    assert len(numbers(queue)) == MANY - MANY // 2
    assert numbers(target) == [number for number in range(MANY) if number % 2]
    moved = node.ask("queue.other", "listMessages", None)[0]
    assert (moved["_AMQ_ORIG_ADDRESS"], moved["_AMQ_ORIG_QUEUE"], moved["address"]) == ("q", "q", "other")
    whole(node, queue)
    whole(node, target)
    assert node.ask("queue.q", "moveMessages", 1000, None, "other", False, 3) == 3
    assert node.ask("queue.q", "moveMessage", ids(queue)[0], "other") is True
    assert node.ask("queue.q", "moveMessage", 1, "other") is False
    whole(node, queue)
    whole(node, target)
    assert "is where the messages are" in node.refused("queue.q", "moveMessages", None, "q")
    assert "no queue 'nowhere'" in node.refused("queue.q", "moveMessages", None, "nowhere")


@pytest.mark.parametrize("operation", ["retryMessages", "retryMessage", "moveMessages", "moveMessage", "copyMessage"])
def test_messages_go_only_where_the_requester_may_send(operation: str) -> None:
    """An operator that may manage a queue gets no message past the permissions of another address."""
    node, queue = loaded(3)
    target = node.world.queue("other")
    if operation.startswith("retry"):
        node.ask("queue.q", "moveMessages", None, "other")
        queue, target = target, queue
    before = numbers(queue)
    security = FakeSecurity(Permission.SEND)
    arguments: dict[str, tuple[object, ...]] = {
        "retryMessages": (),
        "retryMessage": (ids(queue)[1],),
        "moveMessages": (None, "other"),
        "moveMessage": (ids(queue)[1], "other"),
        "copyMessage": (ids(queue)[1], "other"),
    }
    session = node.world.session(security=security)
    message = request(f"queue.{queue.name}", operation, *arguments[operation])
    assert node.reply_to(message, session) == (False, f"AMQ229032: send on {target.name}")
    assert security.asked == [(Permission.SEND, target.name, target.name)]
    assert (numbers(queue), numbers(target)) == (before, [])
    whole(node, queue)


def test_a_move_that_cannot_be_written_leaves_the_message() -> None:
    node, queue = loaded(3)
    target = node.world.queue("other")
    node.store.full = True
    assert "the disk of the broker is full" in node.refused("queue.q", "moveMessages", None, "other")
    assert (numbers(queue), numbers(target)) == ([0, 1, 2], [])
    whole(node, queue)
    node.store.full = False
    assert node.ask("queue.q", "moveMessages", None, "other") == 3
    whole(node, queue)
    whole(node, target)


def test_moved_messages_go_back_where_they_came_from() -> None:
    node, queue = loaded(4)
    target = node.world.queue("other")
    node.world.session().sends.send(text("never moved", "other"))
    node.ask("queue.q", "moveMessages", None, "other")
    assert node.ask("queue.other", "retryMessages", "colour = 'red'") == 2
    assert numbers(queue) == [1, 3]
    assert node.ask("queue.other", "retryMessages") == 2
    assert numbers(queue) == [1, 3, 0, 2]
    assert "_AMQ_ORIG_ADDRESS" not in node.ask("queue.q", "listMessages", None)[0]
    assert target.message_count == 1
    whole(node, queue)
    whole(node, target)


def test_duplicates_are_rejected_only_when_wanted() -> None:
    node, queue = loaded(0)
    target = node.world.queue("other")
    producer = node.world.session()
    for _ in range(2):
        # both in the queue: another address has seen neither
        node.office.directory.addresses["q"].duplicate_ids = type(queue.address.duplicate_ids)(10, ())
        producer.sends.send(numbered(1, _AMQ_DUPL_ID="same"))
    assert node.ask("queue.q", "moveMessage", ids(queue)[0], "other", True) is True
    assert "has received" in node.refused("queue.q", "moveMessages", None, "other", True)
    assert (len(ids(queue)), len(ids(target))) == (1, 1)
    assert node.ask("queue.q", "moveMessages", None, "other", False) == 1
    assert len(ids(target)) == 2
    whole(node, queue)
    whole(node, target)


def test_the_priority_of_present_messages_changes_once() -> None:
    node, queue = loaded(MANY)
    assert node.ask("queue.q", "changeMessagesPriority", None, 2) == MANY
    assert len(numbers(queue)) == MANY
    assert {reference.priority for _, reference in queue.browse((9, -1))} == {2}
    whole(node, queue)
    assert node.ask("queue.q", "changeMessagePriority", ids(queue)[5], 9) is True
    assert numbers(queue)[0] == 5
    assert "0 to 9" in node.refused("queue.q", "changeMessagesPriority", None, 10)
    whole(node, queue)


def test_expiring_and_dead_letters() -> None:
    node, queue = loaded(4, expiry_address="expired", dead_letter_address="dead")
    expired, dead = node.world.queue("expired"), node.world.queue("dead")
    assert node.ask("queue.q", "expireMessages", "colour = 'red'") == 2
    assert node.ask("queue.q", "sendMessagesToDeadLetterAddress", "n = 0") == 1
    assert node.ask("queue.q", "sendMessageToDeadLetterAddress", ids(queue)[0]) is True
    assert (numbers(expired), numbers(dead), queue.message_count) == ([1, 3], [0, 2], 0)
    assert (queue.messages_expired, queue.messages_killed) == (2, 2)
    for each in (queue, expired, dead):
        whole(node, each)


def test_a_copy_leaves_the_original() -> None:
    node, queue = loaded(2)
    target = node.world.queue("other")
    assert node.ask("queue.q", "copyMessage", ids(queue)[1], "other") is True
    assert node.ask("queue.q", "copyMessage", 1, "other") is False
    assert (numbers(queue), numbers(target)) == ([0, 1], [1])
    whole(node, target)


def test_deep_queues_do_not_hold_up_the_broker() -> None:
    """Between two slices other work is done: a message that is sent meanwhile is taken, and left alone."""
    node, queue = loaded(MANY)
    answers: list[object] = []
    requester_session = node.session()
    node.requests.handle(
        request("queue.q", "removeAllMessages"),
        requester_session.state.security,
        "h:1",
        lambda reply: answers.append(reply),
    )
    assert not answers, "it takes several slices"
    assert 0 < len(numbers(queue)) < MANY
    node.world.session().sends.send(numbered(99_999))
    node.settle()
    assert len(answers) == 1
    assert numbers(queue) == [99_999]
    whole(node, queue)


def test_a_queue_deleted_meanwhile_ends_the_request() -> None:
    node, queue = loaded(MANY)
    answers: list[Message] = []
    node.requests.handle(
        request("queue.q", "countMessages", "n >= 0"), node.session().state.security, "h:1", answers.append
    )
    node.office.directory.delete_queue("q")
    node.settle()
    succeeded, why = outcome(answers[0])
    assert not succeeded
    assert "deleted meanwhile" in why
    assert queue.deleted


def test_requests_under_way_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invocation, "MANAGEMENT_REQUESTS_MAX", 1)
    node, _ = loaded(MANY)
    answers: list[Message] = []
    for _ in range(2):
        node.requests.handle(
            request("queue.q", "countMessages", "n >= 0"), node.session().state.security, "h:1", answers.append
        )
    assert "requests are already running" in outcome(answers[0])[1]
    node.settle()
    assert outcome(answers[1]) == (True, MANY)
    assert node.ask("queue.q", "countMessages", "n >= 0") == MANY, "its place is free again"


def test_an_operator_expires_messages_without_expiration() -> None:
    """The message reports the time of its expiry, not its expiration of 0."""
    node, queue = loaded(1, expiry_address="gone")
    node.world.queue("gone")
    assert node.ask("queue.q", "expireMessage", ids(queue)[0])
    (expired,) = node.ask("queue.gone", "listMessages", None)
    assert expired["_AMQ_ACTUAL_EXPIRY"] == node.world.clock.wall_ms()


def test_a_copy_is_a_message_of_its_own() -> None:
    """The copy names no origin that the message did not have before."""
    node, queue = loaded(1)
    node.world.queue("r")
    assert node.ask("queue.q", "copyMessage", ids(queue)[0], "r")
    (copy,) = node.ask("queue.r", "listMessages", None)
    assert not [name for name in copy if name.startswith("_AMQ_ORIG")]
    assert (copy["address"], copy["n"]) == ("r", 0)


def test_messages_being_delivered_as_json_are_listed_by_consumer() -> None:
    node, _ = loaded(2)
    assert json.loads(node.ask("queue.q", "listDeliveringMessagesAsJSON")) == []
    session = node.world.session()
    session.consumers.create(1, "q")
    session.consumers.receive_credits(1, 1_000_000)
    node.world.turn()
    (held,) = json.loads(node.ask("queue.q", "listDeliveringMessagesAsJSON"))
    assert held["consumerName"].endswith(":1")
    assert [message["n"] for message in held["elements"]] == [0, 1]
    assert node.ask("queue.q", "getDurableDeliveringCount") == 2
    counted = node.ask("queue.q", "countDeliveringMessages", None, "colour")
    assert json.loads(counted) == {"blue": 1, "red": 1}
    assert json.loads(node.ask("queue.q", "countDeliveringMessages", "n = 1", "absent")) == {"null": 1}
    assert node.ask("queue.q", "getDeliveringSize") == node.ask("queue.q", "getPersistentSize") > 0


def test_the_first_message_of_an_empty_queue_is_an_empty_object() -> None:
    node, _ = loaded(0)
    assert node.ask("queue.q", "getFirstMessageAsJSON") == "[{}]"
    assert node.ask("queue.q", "peekFirstMessageAsJSON") == "null"
    assert node.ask("queue.q", "peekFirstScheduledMessageAsJSON") == "null"


def test_durable_messages_and_their_bytes_are_counted_wherever_they_are() -> None:
    node, _ = loaded(MANY)
    producer = node.world.session()
    producer.sends.send(text("x", durable=False))
    producer.sends.send(text("later", properties={"_AMQ_SCHED_DELIVERY": node.world.clock.wall_ms() + 1_000}))
    assert node.ask("queue.q", "getDurableMessageCount") == MANY + 1
    assert node.ask("queue.q", "getDurableScheduledCount") == 1
    assert node.ask("queue.q", "getScheduledSize") == node.ask("queue.q", "getDurableScheduledSize") > 0
    assert json.loads(node.ask("queue.q", "peekFirstScheduledMessageAsJSON"))["address"] == "q"
    assert 0 < node.ask("queue.q", "getDurablePersistentSize") < node.ask("queue.q", "getPersistentSize")


def test_a_disabled_queue_takes_no_messages() -> None:
    node, queue = loaded(1)
    node.ask("queue.q", "disable")
    assert node.ask("queue.q", "isEnabled") is False
    node.world.session().sends.send(numbered(1))
    assert numbers(queue) == [0]
    node.ask("queue.q", "enable")
    node.world.session().sends.send(numbered(2))
    assert numbers(queue) == [0, 2]


@pytest.mark.parametrize("operation", ["moveMessages", "moveMessage", "copyMessage", "retryMessages"])
def test_a_moved_or_copied_message_has_the_expiration_of_its_new_address(operation: str) -> None:
    node = ManagedWorld(world=World({"other": {"expiry_delay": 5_000}, "kept": {"no_expiry": True}}))
    queue, other = node.world.queue(), node.world.queue("other")
    node.world.session().sends.send(text("m", properties={"n": 0}))
    if operation == "retryMessages":
        node.world.session().sends.send(text("m", "other", properties={"n": 0}))
        node.ask("queue.other", "moveMessages", None, "q")
        node.ask("queue.q", "removeMessage", ids(queue)[0])
        node.ask("queue.q", operation)
    elif operation == "moveMessages":
        node.ask("queue.q", operation, None, "other")
    else:
        node.ask("queue.q", operation, ids(queue)[0], "other")
    ((_, reference),) = other.browse((9, -1))
    assert reference.expiration == other.read(reference).expiration == node.world.clock.now_ms + 5_000
    kept = node.world.queue("kept")
    node.ask("queue.other", "moveMessages", None, "kept")
    assert [reference.expiration for _, reference in kept.browse((9, -1))] == [0]


@pytest.mark.parametrize(("limit", "moved"), [(0, 5), (-1, 5), (2, 2)])
def test_moving_at_most_0_messages_moves_all(limit: int, moved: int) -> None:
    node, queue = loaded()
    other = node.world.queue("other")
    assert node.ask("queue.q", "moveMessages", 100, None, "other", False, limit) == moved
    assert (queue.message_count, other.message_count) == (5 - moved, moved)


def test_a_retry_with_a_delay_is_counted_and_delivered_later() -> None:
    node, queue = loaded(2)
    target = node.world.queue("other")
    node.ask("queue.q", "moveMessages", None, "other")
    first, second = ids(target)
    assert "0 ms or more" in node.refused("queue.other", "retryMessage", first, -1)
    assert node.ask("queue.other", "retryMessage", first, 0)
    assert node.ask("queue.q", "listMessages", None)[0]["_UNDERSTUDY_RETRIES"] == 1
    assert node.ask("queue.other", "retryMessage", second, 5_000)
    assert (queue.message_count, queue.scheduled_count) == (2, 1)
    node.ask("queue.q", "deliverScheduledMessages", None)
    assert [each["_UNDERSTUDY_RETRIES"] for each in node.ask("queue.q", "listMessages", None)] == [1, 1]
    node.ask("queue.q", "moveMessages", None, "other")
    assert node.ask("queue.other", "retryMessage", ids(target)[0], 0)
    assert node.ask("queue.q", "listMessages", None)[0]["_UNDERSTUDY_RETRIES"] == 2
    assert not node.ask("queue.other", "retryMessage", 12345, 0), "there is no such message"
    whole(node, queue)
    whole(node, target)
