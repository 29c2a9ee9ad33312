"""Diverts: messages are copied or moved once, all or nothing."""

from __future__ import annotations

import json
import random

import pytest

from support.large import Node, body_of, header_of, named
from support.routing import World, callback_of, text
from support.store import StoreHarness
from understudy.errors import (
    AddressFull,
    AddressNotFound,
    DivertExists,
    DivertNotFound,
    DuplicateIdRejected,
    InvalidQueueConfiguration,
    InvalidSelector,
    LimitExceeded,
)
from understudy.message import DUPLICATE_ID, ROUTING_TYPE, SCHEDULED_DELIVERY, Message
from understudy.properties import BYTE, Properties
from understudy.routing.lifecycle.diverts import Divert
from understudy.routing.queues.queue import Queue
from understudy.routing.restore import restore
from understudy.terms import ADD_HEADERS_TRANSFORMER, DivertDefinition, DivertRouting, RoutingType


def divert(world: World, name: str, source: str = "q", target: str = "copy", **options: object) -> Divert:
    return world.office.diverts.create(DivertDefinition(name, source, target, **options))  # type: ignore[arg-type]


def waits(queue: Queue) -> list[bytes]:
    return [queue.read(reference).body for _, reference in queue.browse((9, -1))]


def messages(queue: Queue) -> list[Message]:
    return [queue.read(reference) for _, reference in queue.browse((9, -1))]


def send(world: World, body: str = "m", name: str | None = None, **options: object) -> None:
    done = world.answers.of(name) if name is not None else None
    world.session().sends.send(text(body, **options), done)


def test_a_copy_says_where_it_came_from() -> None:
    world = World()
    queue, copies = world.queue(), world.queue("copy")
    divert(world, "d")
    expiration = world.clock.now_ms + 1000
    send(world, properties={"a": 1}, expiration=expiration, priority=7)
    (original,), (copy,) = messages(queue), messages(copies)
    assert "_AMQ_ORIG_ADDRESS" not in original.properties
    assert copy.message_id != original.message_id
    assert (copy.address, copy.body, copy.priority, copy.expiration) == ("copy", b"m", 7, expiration)
    assert dict(copy.properties) == {
        "a": 1,
        "_AMQ_ORIG_ADDRESS": "q",
        "_AMQ_ORIG_QUEUE": "d",
        "_AMQ_ORIG_MESSAGE_ID": original.message_id,
    }


def test_an_exclusive_divert_moves_and_no_other_gets_anything() -> None:
    world = World()
    queue, moved, copies = world.queue(), world.queue("moved"), world.queue("copy")
    divert(world, "copying")
    divert(world, "moving", target="moved", exclusive=True, filter="region = 'EU'")
    send(world, "eu", properties={"region": "EU"})
    send(world, "us", properties={"region": "US"})
    assert (waits(queue), waits(moved), waits(copies)) == ([b"us"], [b"eu"], [b"us"])


def test_every_exclusive_divert_gets_one() -> None:
    world = World()
    queue, first, second = world.queue(), world.queue("a"), world.queue("b")
    divert(world, "a", target="a", exclusive=True)
    divert(world, "b", target="b", exclusive=True)
    send(world)
    assert (waits(queue), waits(first), waits(second)) == ([], [b"m"], [b"m"])


def test_an_exclusive_divert_takes_messages_without_a_queue_too() -> None:
    world = World({"q": {"auto_create_queues": False}, "nowhere": {"auto_create_addresses": False}})
    queue = world.queue()
    divert(world, "d", target="nowhere", exclusive=True)
    send(world, name="m")
    assert world.answers.error("m") is None
    assert (queue.message_count, queue.address.messages_unrouted) == (0, 1)


@pytest.mark.parametrize("exclusive", [False, True])
def test_what_asks_for_a_routing_type_is_refused_where_its_divert_leads_nowhere(exclusive: bool) -> None:
    world = World({"q": {"auto_create_queues": False}, "nowhere": {"auto_create_addresses": False}})
    queue = world.queue()
    divert(world, "d", target="nowhere", exclusive=exclusive, routing_type=DivertRouting.ANYCAST)
    send(world, name="m")
    assert isinstance(world.answers.error("m"), AddressNotFound)
    assert queue.message_count == 0


def test_several_addresses() -> None:
    world = World()
    targets = [world.queue(name) for name in ("dallas", "chicago", "denver")]
    queue = world.queue()
    divert(world, "d", target="dallas, chicago,denver")
    send(world)
    assert [waits(each) for each in (queue, *targets)] == [[b"m"]] * 4
    assert len({messages(each)[0].message_id for each in (queue, *targets)}) == 4


@pytest.mark.parametrize(
    ("routing", "given"),
    [
        (DivertRouting.STRIP, None),
        (DivertRouting.PASS, 1),
        (DivertRouting.ANYCAST, 1),
        (DivertRouting.MULTICAST, 0),
    ],
)
def test_routing_types(routing: DivertRouting, given: int | None) -> None:
    world = World()
    world.queue()
    anycast = world.queue("any", address="copy")
    multicast = world.queue("multi", address="copy", routing_type=RoutingType.MULTICAST)
    divert(world, "d", routing_type=routing)
    properties = Properties()
    properties.set_typed(ROUTING_TYPE, BYTE, 1)
    send(world, properties=properties)
    assert (anycast.message_count, multicast.message_count) == (int(given != 0), int(given != 1))
    copy = messages(multicast if given == 0 else anycast)[0]
    assert copy.properties.get(ROUTING_TYPE) == given
    assert copy.properties.get("_AMQ_ORIG_ROUTING_TYPE") == 1


def test_diverts_of_one_routing_name_take_turns() -> None:
    world = World()
    queue, first, second, own = (world.queue(name) for name in ("q", "a", "b", "own"))
    divert(world, "a", target="a", routing_name="shared")
    divert(world, "b", target="b", routing_name="shared", filter="everywhere IS NULL")
    divert(world, "own", target="own")
    for number in range(4):
        send(world, str(number))
    send(world, "4", properties={"everywhere": True})
    assert (len(waits(queue)), len(waits(own))) == (5, 5)
    assert (waits(first), waits(second)) == ([b"0", b"2", b"4"], [b"1", b"3"])


def test_diverts_apply_on_the_way_and_a_circle_ends() -> None:
    world = World()
    queues = [world.queue(name) for name in "abc"]
    for source, target in ("ab", "bc", "ca"):
        divert(world, source + target, source, target)
    divert(world, "self", "a", "a")
    send(world, address="a")
    assert [queue.message_count for queue in queues] == [3, 1, 1], "sent, by itself, and around"
    last = [message for message in messages(queues[0]) if message.properties.get("_AMQ_ORIG_QUEUE") == "ca"]
    assert [message.properties["_AMQ_ORIG_ADDRESS"] for message in last] == ["c"]


def test_wildcard_addresses() -> None:
    world = World()
    copies = world.queue("copy")
    divert(world, "d", "orders.#")
    for address in ("orders.eu", "orders", "other"):
        send(world, address, address=address)
    assert waits(copies) == [b"orders.eu", b"orders"]
    assert [message.properties["_AMQ_ORIG_ADDRESS"] for message in messages(copies)] == ["orders.eu", "orders"]


def test_a_message_sent_to_a_named_queue_is_diverted_too() -> None:
    world = World()
    queue, copies, moved = world.queue(), world.queue("copy"), world.queue("moved")
    divert(world, "copying")
    send(world, address="q::q")
    assert (queue.message_count, copies.message_count) == (1, 1)
    divert(world, "moving", target="moved", exclusive=True)
    send(world, address="q::q")
    assert (queue.message_count, copies.message_count, moved.message_count) == (1, 1, 1)


def test_nothing_is_visible_or_confirmed_before_everything_is_durable() -> None:
    world = World(automatic=False)
    queue, copies = world.queue(), world.queue("copy")
    divert(world, "d")
    world.sync()
    send(world, name="m")
    assert world.answers.names == []
    assert (queue.message_count, copies.message_count) == (0, 0)
    world.sync()
    assert world.answers.names == ["m"]
    assert (queue.message_count, copies.message_count) == (1, 1)
    assert world.store.found().transactions == {}
    assert len(world.store.survivors(queue)) == len(world.store.survivors(copies)) == 1


def test_in_a_transaction_the_copies_come_and_go_with_it() -> None:
    world = World()
    queue, copies = world.queue(), world.queue("copy")
    divert(world, "d")
    session = world.session(transacted=True)
    session.sends.send(text("never"))
    session.rollback()
    session.sends.send(text("m"))
    assert (queue.message_count, copies.message_count) == (0, 0)
    assert world.store.survivors(queue) == []
    session.commit()
    assert (waits(queue), waits(copies)) == ([b"m"], [b"m"])
    assert (queue.incoming, copies.incoming, world.office.memory.held_count) == (0, 0, 2)


@pytest.mark.parametrize("exclusive", [False, True])
def test_a_duplicate_is_diverted_once(exclusive: bool) -> None:
    world = World()
    world.queue()
    copies = world.queue("copy")
    divert(world, "d", exclusive=exclusive)
    divert(world, "e", exclusive=exclusive)
    for name in ("first", "again"):
        send(world, name=name, properties={DUPLICATE_ID: "id"})
    assert world.answers.names == ["first", "again"]
    assert copies.message_count == 2, "one by each divert"
    (source,) = [record.address_id for record in world.store.found().addresses.values() if record.name == "q"]
    assert {address: list(ids) for address, ids in world.store.found().duplicate_ids.items()} == {source: [b"id"]}
    transacted = world.session(transacted=True)
    transacted.sends.send(text("m", properties={DUPLICATE_ID: "id"}), world.answers.of("transacted"))
    transacted.commit(world.answers.of("commit"))
    assert world.answers.error("transacted") is None, "it is the commit that fails"
    assert isinstance(world.answers.error("commit"), DuplicateIdRejected)


def test_a_full_forwarding_address_fails_or_drops_by_its_policy() -> None:
    full = {"max_size_messages": 1}
    world = World({"fails": {**full, "address_full_policy": "FAIL"}, "drops": {**full, "address_full_policy": "DROP"}})
    queue, drops, fails = world.queue(), world.queue("drops"), world.queue("fails")
    divert(world, "dropping", target="drops")
    for _ in range(2):
        send(world)
    assert (queue.message_count, drops.message_count) == (2, 1)
    divert(world, "failing", target="fails")
    send(world, name="third")
    send(world, name="fourth")
    assert world.answers.error("third") is None
    assert isinstance(world.answers.error("fourth"), AddressFull)
    assert (queue.message_count, drops.message_count, fails.message_count) == (3, 1, 1)
    assert (queue.incoming, fails.incoming) == (0, 0)


def test_a_full_disk_takes_nothing() -> None:
    world = World()
    queue, copies = world.queue(), world.queue("copy")
    divert(world, "d")
    take, taken = world.store.store_message, []

    def second_fails(message: Message, *arguments: object, **options: object) -> int:
        world.store.full = len(taken) == 1
        taken.append(message)
        return take(message, *arguments, **options)  # type: ignore[arg-type]

    world.store.store_message = second_fails  # type: ignore[method-assign]
    send(world, name="m")
    assert isinstance(world.answers.error("m"), AddressFull)
    assert (queue.message_count, copies.message_count, queue.incoming, copies.incoming) == (0, 0, 0, 0)
    assert (world.office.memory.held_count, queue.address.message_count) == (0, 0)
    assert world.store.survivors(queue) == world.store.survivors(copies) == []
    assert world.store.found().transactions == {}


def test_scheduled_copies_and_settings_of_the_forwarding_address() -> None:
    world = World({"copy": {"expiry_delay": 50, "enable_ingress_timestamp": True}})
    queue, copies = world.queue(), world.queue("copy")
    divert(world, "d")
    now = world.clock.now_ms
    send(world, properties={SCHEDULED_DELIVERY: now + 10})
    assert (queue.scheduled_count, copies.scheduled_count) == (1, 1)
    world.clock.advance(10)
    (copy,) = messages(copies)
    assert (copy.expiration, copy.properties["_AMQ_INGRESS_TIMESTAMP"]) == (now + 50, now)


def test_unrouted_messages_go_to_the_dead_letter_address_if_configured() -> None:
    world = World({"copy": {"send_to_dla_on_no_route": True, "dead_letter_address": "DLQ"}})
    queue, dead = world.queue(), world.queue("DLQ")
    world.queue("never", address="copy", filter="a = 1")
    divert(world, "d")
    send(world)
    assert (queue.message_count, dead.message_count) == (1, 1)
    assert messages(dead)[0].properties["_AMQ_ORIG_ADDRESS"] == "copy"


def test_diverts_made_by_an_operator_last_until_they_are_destroyed() -> None:
    world = World()
    world.queue("copy")
    divert(world, "d", "new", filter="a = 1", exclusive=True, routing_type=DivertRouting.PASS, routing_name="n")
    divert(world, "gone", "new")
    world.office.diverts.destroy("gone")
    successor = World(store=world.store)
    restore(successor.office, world.store.found())
    (restored,) = successor.office.diverts.by_name.values()
    assert restored.configuration == world.office.diverts.by_name["d"].configuration
    assert [each.name for each in successor.office.directory.addresses["new"].diverts] == ["d"]
    send(successor, address="new", properties={"a": 1})
    assert successor.office.directory.queues["copy"].message_count == 1
    successor.office.directory.delete_address("new")
    assert successor.office.diverts.by_name == {}


def test_diverts_that_cannot_be_created_or_destroyed() -> None:
    world = World()
    divert(world, "d")
    with pytest.raises(DivertExists):
        divert(world, "d")
    with pytest.raises(InvalidQueueConfiguration, match="forwarding address has no name"):
        divert(world, "e", target="a,,b")
    with pytest.raises(InvalidSelector):
        divert(world, "e", filter="a =")
    with pytest.raises(LimitExceeded, match="1001 addresses"):
        divert(world, "e", target=",".join(map(str, range(1001))))
    with pytest.raises(DivertNotFound):
        world.office.diverts.destroy("e")
    assert list(world.office.diverts.by_name) == ["d"]


def test_an_address_with_diverts_is_not_deleted_for_being_unused() -> None:
    world = World({"#": {"auto_delete_addresses_skip_usage_check": True}}, address_queue_scan_period_ms=100)
    world.office.directory.create_address("kept", {RoutingType.ANYCAST}, auto_created=True)
    world.office.directory.create_address("unused", {RoutingType.ANYCAST}, auto_created=True)
    divert(world, "d", "kept")
    world.clock.advance(500)
    assert set(world.office.directory.addresses) == {"kept"}


def test_listeners_are_called_for_created_and_destroyed_diverts() -> None:
    world, heard = World(), []

    class Listener:
        def divert_added(self, divert: Divert) -> None:
            heard.append(("added", divert.name))

        def divert_removed(self, divert: Divert) -> None:
            heard.append(("removed", divert.name))

    world.office.diverts.listeners.append(Listener())
    divert(world, "d")
    divert(world, "e")
    world.office.diverts.destroy("d")
    world.office.directory.delete_address("q")
    assert heard == [("added", "d"), ("added", "e"), ("removed", "d"), ("removed", "e")]


def test_large_messages_share_one_body_that_goes_with_the_last_reference() -> None:
    node = Node(StoreHarness(random.Random(4)), "a")
    world = node.world
    world.queue()
    world.queue("copy")
    divert(world, "d")
    node.settle()
    node.send(world.session(), header_of("one"), body_of("one"))
    node.settle()
    assert len(node.files()) == 1
    first = node.consumer("q")
    node.settle()
    first.acknowledge(0, callback_of(first).large[0][1].message_id)
    node.outlive()
    assert node.files() == node.expected_files()
    assert len(node.files()) == 1
    second = node.consumer("copy")
    node.settle()
    (copy,) = callback_of(second).large
    assert (named(copy[1]), callback_of(second).large_bodies) == ("one", [body_of("one")])
    assert copy[1].properties["_AMQ_ORIG_ADDRESS"] == "q"
    second.acknowledge(0, copy[1].message_id)
    node.outlive()
    assert node.files() == []


def test_a_divert_adds_headers_to_the_copy_alone() -> None:
    """They win over what the message has (AddHeadersTransformer), and last over a restart."""
    world = World()
    queue, copies = world.queue(), world.queue("copy")
    divert(
        world,
        "d",
        transformer_class_name=ADD_HEADERS_TRANSFORMER,
        transformer_properties={"colour": "red", "_AMQ_ORIG_QUEUE": "theirs"},
    )
    send(world, properties={"colour": "blue", "n": 1})
    (original,), (copy,) = messages(queue), messages(copies)
    assert dict(original.properties) == {"colour": "blue", "n": 1}
    assert (copy.properties["colour"], copy.properties["n"], copy.properties["_AMQ_ORIG_QUEUE"]) == ("red", 1, "theirs")
    again = World()
    again.office.diverts.restore(json.loads(json.dumps(world.office.diverts.kept_for("q"))))
    assert again.office.diverts.by_name["d"].configuration == world.office.diverts.by_name["d"].configuration


def test_a_message_whose_divert_has_no_address_is_refused_in_a_transaction_that_has_failed() -> None:
    """Artemis does the same, with error 106 for each message (differential program 347 with a restart)."""
    world = World({"q": {"auto_create_queues": False}, "missing": {"auto_create_addresses": False}})
    queue = world.queue("q")
    divert(world, "d", target="missing", routing_type=DivertRouting.ANYCAST)
    session = world.session(transacted=True)
    for name in ("first", "second"):
        session.sends.send(text("m", "q"), world.answers.of(name))
    assert isinstance(world.answers.error("first"), AddressNotFound)
    assert isinstance(world.answers.error("second"), AddressNotFound)
    assert queue.message_count == 0


def test_two_exclusive_diverts_to_their_own_address_change_the_message_and_do_not_double_it() -> None:
    world = World()
    queue = world.queue()
    for name in ("a", "b"):
        added = {"seen-by": name, f"by-{name}": "yes"}
        world.office.diverts.create(DivertDefinition(name, "q", "q", exclusive=True, transformer_properties=added))
    world.session().sends.send(text("m", properties={DUPLICATE_ID: b"1"}))
    ((_, reference),) = queue.browse((9, -1))
    properties = queue.read(reference).properties
    assert [properties[name] for name in ("by-a", "by-b", "seen-by")] == ["yes", "yes", "b"]
    world.session().sends.send(text("m", properties={DUPLICATE_ID: b"1"}))
    assert queue.message_count == 1
