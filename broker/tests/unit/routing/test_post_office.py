"""Sends through the post office: the order of durability, duplicates, limits, paging, on demand."""

from __future__ import annotations

import pytest

from support.routing import FakeCallback, World, callback_of, text
from understudy.errors import AddressFull, AddressNotFound
from understudy.limits import PAGING_SLACK_BYTES
from understudy.message import DUPLICATE_ID, ROUTING_TYPE, LargeMessage, Message
from understudy.store.messages import read_back
from understudy.store.messages.pages import Pages
from understudy.terms import RoutingType
from understudy.testing.sim.disk import SimVolume


def consumer(world: World, queue: str = "q") -> FakeCallback:
    session = world.session()
    session.consumers.create(0, queue)
    session.consumers.receive_credits(0, -1)
    return callback_of(session)


def test_a_durable_message_is_visible_and_confirmed_only_when_durable() -> None:
    world = World(automatic=False)
    world.queue()
    world.store.sync()
    seen = consumer(world)
    session = world.session()
    session.sends.send(text("a"), world.answers.of("a"))
    world.turn()
    assert seen.delivered == []
    assert world.answers.names == []
    world.sync()
    assert seen.bodies() == [b"a"]
    assert world.answers.names == ["a"]


def test_a_non_durable_message_waits_for_nothing_but_its_own_session() -> None:
    world = World(automatic=False)
    world.queue()
    world.store.sync()
    seen = consumer(world)
    busy, free = world.session(), world.session()
    busy.sends.send(text("durable"), world.answers.of("1"))
    busy.sends.send(text("after", durable=False), world.answers.of("2"))
    free.sends.send(text("free", durable=False), world.answers.of("3"))
    world.turn()
    assert seen.bodies() == [b"free"]
    assert world.answers.names == ["3"]
    world.sync()
    assert seen.bodies() == [b"free", b"durable", b"after"]
    assert world.answers.names == ["3", "1", "2"]


def test_a_session_keeps_its_order_when_it_waits_for_another_one() -> None:
    world = World(automatic=False)
    world.queue()
    world.store.sync()
    seen = consumer(world)
    one, other = world.session(), world.session()
    one.sends.send(text("1"))
    first = world.store.last_sequence
    other.sends.send(text("x"))
    one.sends.send(text("2", durable=False))
    world.store.context.advance(first)
    one.sends.send(text("3", durable=False))
    world.turn()
    world.sync()
    assert [body for body in seen.bodies() if body != b"x"] == [b"1", b"2", b"3"]


def test_nothing_is_said_after_the_log_failed() -> None:
    world = World(automatic=False)
    world.queue()
    session = world.session()
    session.sends.send(text("a"), world.answers.of("a"))
    world.store.context.fail(OSError("gone"))
    session.sends.send(text("b"), world.answers.of("b"))
    world.sync()
    assert world.answers.names == []


@pytest.mark.parametrize("duplicate", ["id-1", b"\x00\x01"], ids=["string", "bytes"])
def test_a_duplicate_is_dropped_and_confirmed_after_its_original(duplicate: str | bytes) -> None:
    world = World(automatic=False)
    queue = world.queue()
    world.store.sync()
    first, second = world.session(), world.session()
    first.sends.send(text("a", properties={DUPLICATE_ID: duplicate}), world.answers.of("original"))
    second.sends.send(text("a", properties={DUPLICATE_ID: duplicate}), world.answers.of("duplicate"))
    assert world.answers.names == []
    world.sync()
    assert world.answers.seen == [("original", None), ("duplicate", None)]
    assert queue.message_count == 1


def test_duplicate_ids_of_other_addresses_do_not_matter() -> None:
    world = World()
    world.queue("a")
    world.queue("b")
    for address in ("a", "b"):
        world.session().sends.send(text("m", address, properties={DUPLICATE_ID: "x"}))
    assert [queue.message_count for queue in world.office.queues()] == [1, 1]


def test_ids_of_messages_that_are_not_logged_are_logged_alone() -> None:
    world = World()
    world.queue()
    world.session().sends.send(text("m", durable=False, properties={DUPLICATE_ID: "x"}))
    assert [list(ids) for ids in world.store.found().duplicate_ids.values()] == [[b"x"]]
    world = World(persist_id_cache=False)
    world.queue()
    for _ in range(2):
        world.session().sends.send(text("m", durable=False, properties={DUPLICATE_ID: "x"}))
    assert not any(world.store.found().duplicate_ids.values())
    assert world.office.queues()[0].message_count == 1


def test_addresses_and_queues_are_made_on_demand() -> None:
    world = World()
    session = world.session()
    session.sends.send(text("m", "orders", properties={ROUTING_TYPE: 1}), world.answers.of("anycast"))
    session.sends.send(text("m", "news", properties={ROUTING_TYPE: 0}), world.answers.of("multicast"))
    directory = world.office.directory
    assert directory.queues["orders"].message_count == 1
    assert directory.queues["orders"].configuration.auto_created
    assert directory.addresses["news"].auto_created
    assert directory.addresses["news"].routing_types == {RoutingType.MULTICAST}
    assert directory.addresses["news"].messages_unrouted == 1
    assert world.answers.seen == [("anycast", None), ("multicast", None)]


@pytest.mark.parametrize("taken", list(RoutingType))
def test_a_message_is_refused_whose_queue_cannot_be_made_for_its_name_is_taken(taken: RoutingType) -> None:
    world = World()
    queue = world.queue("orders", address="elsewhere", routing_type=taken)
    session = world.session()
    session.sends.send(text("m", "orders", properties={ROUTING_TYPE: 1}), world.answers.of("refused"))
    assert isinstance(world.answers.error("refused"), AddressNotFound)
    assert (queue.message_count, "orders" in world.office.directory.addresses) == (0, False)
    session.sends.send(text("m", "orders", properties={ROUTING_TYPE: 0}), world.answers.of("no queue"))
    assert world.answers.error("no queue") is None


def test_the_settings_may_forbid_it() -> None:
    world = World({"#": {"auto_create_addresses": False, "auto_create_queues": False}})
    session = world.session()
    session.sends.send(text("m", "orders"), world.answers.of("missing"))
    assert isinstance(world.answers.error("missing"), AddressNotFound)
    world.office.directory.create_address("q", {RoutingType.ANYCAST})
    session.sends.send(text("m", "q", properties={ROUTING_TYPE: 0}), world.answers.of("type"))
    assert isinstance(world.answers.error("type"), AddressNotFound)
    for name in ("q", "q::missing"):
        session.sends.send(text("m", name, properties={ROUTING_TYPE: 1}), world.answers.of(name))
        assert isinstance(world.answers.error(name), AddressNotFound)


@pytest.mark.parametrize("known", [False, True])
def test_a_queue_that_is_named_and_missing_is_not_made(known: bool) -> None:
    """Artemis does the same: the address gets the queue that any message would make there, and the message is not
    routed.
    """
    world = World()
    if known:
        world.office.directory.create_address("a", {RoutingType.MULTICAST})
    session = world.session()
    session.sends.send(text("m", "a::missing", properties={ROUTING_TYPE: 1}), world.answers.of("anycast"))
    assert world.answers.error("anycast") is None
    address = world.office.directory.addresses["a"]
    assert (address.queue_names(), address.messages_unrouted) == (["a"], 1)
    assert RoutingType.ANYCAST in address.routing_types
    session.sends.send(text("m", "a::other", properties={ROUTING_TYPE: 1}), world.answers.of("beside a queue"))
    assert world.answers.error("beside a queue") is None
    assert [queue.name for queue in world.office.queues()] == ["a"]
    assert world.office.queues()[0].message_count == 0


@pytest.mark.parametrize("asked", [None, RoutingType.ANYCAST, RoutingType.MULTICAST])
@pytest.mark.parametrize("named", ["a1", "m1", "absent"])
def test_a_fully_qualified_name_is_one_queue_of_the_routing_type_asked_for(
    named: str, asked: RoutingType | None
) -> None:
    """Goal: what Artemis does with each routing type (seen at 2.44); no other queue of the address gets it."""
    world = World()
    for name in ("a1", "a2", "m1", "m2"):
        world.queue(name, address="t", routing_type=RoutingType.ANYCAST if name[0] == "a" else RoutingType.MULTICAST)
    session = world.session()
    session.sends.send(text("plain", "t"))
    before = {queue.name: queue.message_count for queue in world.office.queues()}
    properties = {} if asked is None else {ROUTING_TYPE: int(asked)}
    session.sends.send(text("m", f"t::{named}", properties=properties), world.answers.of("sent"))
    assert world.answers.seen == [("sent", None)]
    gained = {queue.name for queue in world.office.queues() if queue.message_count > before[queue.name]}
    fits = asked is None or asked is (RoutingType.ANYCAST if named == "a1" else RoutingType.MULTICAST)
    assert gained == ({named} if fits and named != "absent" else set())
    assert world.office.directory.addresses["t"].messages_unrouted == (0 if gained else 1)


def test_what_names_a_queue_that_is_not_there_may_go_to_the_dead_letters() -> None:
    world = World({"#": {"send_to_dla_on_no_route": True, "dead_letter_address": "dead"}})
    dead = world.queue("dead")
    world.queue("a", address="t", routing_type=RoutingType.MULTICAST)
    for address in ("t::absent", "elsewhere::a"):
        world.session().sends.send(text("m", address, properties={ROUTING_TYPE: int(RoutingType.MULTICAST)}))
    assert dead.message_count == 2
    assert "elsewhere" in world.office.directory.addresses, "made on demand, as for a plain name"


def test_a_fully_qualified_name_of_no_address_that_may_be_made_is_refused() -> None:
    world = World({"#": {"auto_create_addresses": False}})
    world.session().sends.send(text("m", "elsewhere::a"), world.answers.of("refused"))
    assert isinstance(world.answers.error("refused"), AddressNotFound)


def test_wildcard_addresses_get_messages_of_the_addresses_they_cover() -> None:
    world = World()
    every = world.queue("every", address="news.#", routing_type=RoutingType.MULTICAST)
    session = world.session()
    session.sends.send(text("m", "news.eu", properties={ROUTING_TYPE: 0}))
    europe = world.queue("europe", address="news.eu", routing_type=RoutingType.MULTICAST)
    session.sends.send(text("m", "news.eu", properties={ROUTING_TYPE: 0}))
    session.sends.send(text("m", "weather", properties={ROUTING_TYPE: 0}))
    assert (every.message_count, europe.message_count) == (2, 1)
    consumers = [consumer(world, name) for name in ("every", "europe")]
    world.turn()
    assert [len(seen.delivered) for seen in consumers] == [2, 1]
    for name in ("every", "europe"):
        world.office.directory.delete_queue(name, disconnect=True)
    assert world.office.memory.held_bytes == 0
    assert [address.size_bytes for address in world.office.directory.addresses.values()] == [0, 0, 0]


@pytest.mark.parametrize("known", [False, True])
def test_a_fully_qualified_name_may_name_a_queue_of_a_wildcard_address(known: bool) -> None:
    world = World()
    queues = {name: world.queue(name, address="news.#", routing_type=RoutingType.MULTICAST) for name in ("one", "two")}
    if known:
        world.office.directory.create_address("news.eu", {RoutingType.MULTICAST})
    world.session().sends.send(text("m", "news.eu::one", properties={ROUTING_TYPE: int(RoutingType.MULTICAST)}))
    assert {name: queue.message_count for name, queue in queues.items()} == {"one": 1, "two": 0}


def test_anycast_queues_of_a_wildcard_address_take_turns_among_themselves() -> None:
    world = World()
    covering = [world.queue(name, address="news.*") for name in ("first", "second")]
    session = world.session()
    for number in range(4):
        session.sends.send(text(str(number), "news.eu", properties={ROUTING_TYPE: 1}))
    own = world.office.directory.queues["news.eu"]
    assert [queue.message_count for queue in (own, *covering)] == [4, 2, 2]


def test_the_turn_begins_again_after_the_last_queue_also_if_another_one_is_added_then() -> None:
    """Artemis distributes the messages in the same way."""
    world = World()
    world.office.directory.create_address("a", {RoutingType.ANYCAST, RoutingType.MULTICAST})
    first = world.queue("first", address="a")
    session = world.session()
    session.sends.send(text("1", "a"))
    second = world.queue("second", address="a")
    session.sends.send(text("2", "a"))
    assert (first.message_count, second.message_count) == (2, 0)
    session.sends.send(text("3", "a"))
    assert (first.message_count, second.message_count) == (2, 1)


@pytest.mark.parametrize(("sent", "bound"), [(0, RoutingType.ANYCAST), (1, RoutingType.MULTICAST)])
def test_queues_of_a_wildcard_address_get_messages_of_their_routing_type(sent: int, bound: RoutingType) -> None:
    world = World()
    queue = world.queue("every", address="news.*", routing_type=bound)
    session = world.session()
    session.sends.send(text("m", "news.eu", properties={ROUTING_TYPE: sent}))
    assert queue.message_count == 0
    session.sends.send(text("m", "news.eu", properties={ROUTING_TYPE: 1 - sent}))
    assert queue.message_count == 1


def test_a_failing_address_answers_with_an_error() -> None:
    world = World({"#": {"address_full_policy": "FAIL", "max_size_messages": 1}})
    queue = world.queue()
    session = world.session()
    session.sends.request_credits("q", 1000)
    session.sends.send(text("1"), world.answers.of("1"))
    session.sends.send(text("2"), world.answers.of("2"))
    session.sends.request_credits("q", 1000)
    assert world.answers.error("1") is None
    assert isinstance(world.answers.error("2"), AddressFull)
    assert queue.message_count == 1
    assert callback_of(session).credits == [("q", 1000)]
    assert callback_of(session).refused == [("q", 1000)]


def test_a_dropping_address_confirms_and_drops() -> None:
    world = World({"#": {"address_full_policy": "DROP", "max_size_messages": 1}})
    queue = world.queue()
    session = world.session()
    for name in ("1", "2"):
        session.sends.send(text(name), world.answers.of(name))
    assert world.answers.seen == [("1", None), ("2", None)]
    assert queue.message_count == 1
    assert queue.address.messages_dropped == 1


def test_a_blocking_address_withholds_credits_until_it_is_below_its_limit() -> None:
    world = World({"#": {"address_full_policy": "BLOCK", "max_size_messages": 1}})
    world.queue()
    seen = consumer(world)
    producer = world.session()
    granted = callback_of(producer)
    producer.sends.request_credits("q", 500)
    producer.sends.send(text("1"), world.answers.of("1"))
    producer.sends.request_credits("q", 300)
    producer.sends.request_credits("q", 200)
    world.turn()
    assert granted.credits == [("q", 500)]
    # Within its credits a producer is never refused, full or not.
    producer.sends.send(text("2"), world.answers.of("2"))
    assert world.answers.error("2") is None
    reader = next(session for session in world.registry if session.consumers.by_id)
    world.turn()
    reader.acknowledge(0, seen.delivered[-1][1].message_id)
    world.turn()
    assert granted.credits == [("q", 500), ("q", 500)]


def test_a_blocking_address_refuses_producers_that_go_on_without_credits() -> None:
    world = World({"#": {"address_full_policy": "BLOCK", "max_size_messages": 1}})
    world.queue()
    session = world.session()
    session.sends.send(text("1"), world.answers.of("1"))
    session.sends.send(text("2"), world.answers.of("2"))
    assert isinstance(world.answers.error("2"), AddressFull)


def test_a_closed_session_gets_no_credits_any_more() -> None:
    world = World({"#": {"address_full_policy": "BLOCK", "max_size_messages": 1}})
    queue = world.queue()
    session = world.session()
    session.sends.send(text("1"))
    session.sends.request_credits("q", 100)
    session.close(failed=True)
    queue.purge()
    world.turn()
    assert callback_of(session).credits == []


def test_a_full_disk_is_an_error_and_withholds_credits() -> None:
    world = World()
    queue = world.queue()
    session = world.session()
    world.store.full = True
    session.sends.send(text("1"), world.answers.of("1"))
    session.sends.request_credits("q", 100)
    assert isinstance(world.answers.error("1"), AddressFull)
    assert callback_of(session).credits == []
    assert queue.message_count == 0
    assert queue.incoming == 0
    assert world.office.memory.held_bytes == 0
    world.store.full = False
    world.turn()
    assert callback_of(session).credits == [("q", 100)]


def test_paging_keeps_bodies_in_the_log_only() -> None:
    size = text("x" * 100).encode_size
    world = World({"#": {"max_size_bytes": 2 * size}})
    queue = world.queue()
    session = world.session()
    for number in range(6):
        session.sends.send(text(f"{number:0100}"))
    assert queue.address.memory_bytes == 2 * size
    assert world.office.memory.held_bytes == 2 * size
    assert queue.address.size_bytes == 6 * size
    seen = consumer(world)
    world.turn()
    assert seen.bodies() == [f"{number:0100}".encode() for number in range(6)]
    assert world.store.reads == 4
    reader = next(session for session in world.registry if session.consumers.by_id)
    reader.acknowledge(0, seen.delivered[-1][1].message_id)
    assert (queue.address.memory_bytes, world.office.memory.held_bytes, queue.address.size_bytes) == (0, 0, 0)


def test_paging_by_the_global_maximum_and_for_several_queues() -> None:
    size = text("x" * 100, "t").encode_size
    world = World(global_max_size_bytes=size)
    for name in ("a", "b"):
        world.queue(name, address="t", routing_type=RoutingType.MULTICAST)
    session = world.session()
    for number in range(3):
        session.sends.send(text(f"{number:0100}", "t"))
    assert world.office.memory.held_bytes == size
    seen = [consumer(world, name) for name in ("a", "b")]
    world.turn()
    assert [len(each.delivered) for each in seen] == [3, 3]
    for reader in world.registry:
        for delivered in callback_of(reader).delivered[-1:]:
            reader.acknowledge(0, delivered[1].message_id)
    assert world.office.memory.held_bytes == 0


def test_non_durable_messages_are_paged_too_and_never_to_the_log() -> None:
    size = text("x" * 100, durable=False).encode_size
    world = World({"#": {"max_size_bytes": size}}, pages=Pages(SimVolume().disk("a"), "/paging", 1))
    queue = world.queue()
    session = world.session()
    for _ in range(4):
        session.sends.send(text("x" * 100, durable=False))
    assert queue.message_count == 4
    assert queue.address.memory_bytes <= size
    assert queue.address.paged_count == 3
    assert world.store.survivors(queue) == []
    reader = consumer(world, "q")
    world.turn()
    assert reader.bodies() == [b"x" * 100] * 4


def test_a_paged_message_keeps_its_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    class Foreign(Message):
        """A message of another protocol."""

        __slots__ = ()

        encoding = 5

    decoded: list[bytes] = []

    def decode(encoded: bytes) -> Message:
        decoded.append(encoded)
        return Message.decode(encoded)

    monkeypatch.setitem(read_back.DECODERS, 5, (decode, LargeMessage.decode))
    world = World({"#": {"max_size_bytes": 0}}, pages=Pages(SimVolume().disk("a"), "/paging", 1))
    queue = world.queue()
    session = world.session()
    for number in range(3):
        session.sends.send(Foreign(str(number).encode(), address="q", durable=False))
    session.sends.send(Message(b"3", address="q", durable=False))
    assert queue.address.paged_count == 4
    reader = consumer(world, "q")
    world.turn()
    assert [bytes(message.body) for _, message, _ in reader.delivered] == [b"0", b"1", b"2", b"3"]
    assert len(decoded) == 3, "the CORE message has its own decoder"


def test_an_address_that_cannot_page_blocks_producers() -> None:
    world = World({"#": {"max_size_bytes": 1000}})
    queue = world.queue("t", durable=False, routing_type=RoutingType.MULTICAST)
    session = world.session()
    address = queue.address
    assert world.office.memory.blocks_producers(address) is None
    for _ in range(17):
        session.sends.send(text("x" * 1024 * 1024, "t"))
    assert address.memory_bytes > 1000 + PAGING_SLACK_BYTES
    session.sends.request_credits("t", 100)
    assert callback_of(session).credits == []
    queue.purge()
    world.turn()
    assert callback_of(session).credits == [("t", 100)]


def test_waking_once_for_many_dirty_queues() -> None:
    woken: list[int] = []
    world = World(wake=lambda: woken.append(1))
    for name in ("a", "b"):
        world.queue(name)
        consumer(world, name)
    world.turn()
    woken.clear()
    session = world.session()
    for name in ("a", "b", "a"):
        session.sends.send(text("m", name))
    assert woken == [1]
    world.turn()
    assert world.office.dirty == []
    session.sends.send(text("m", "a"))
    assert woken == [1, 1]


def test_closing_ends_all_timers() -> None:
    world = World()
    queue = world.queue()
    world.session().sends.send(text("m", properties={"_AMQ_SCHED_DELIVERY": world.clock.now_ms + 50}))
    assert world.clock.pending() > 0
    world.office.close()
    assert world.clock.pending() == 0
    assert queue.scheduled_count == 1


def test_a_message_on_its_way_to_a_deleted_queue_leaves_no_trace() -> None:
    world = World(automatic=False)
    queue = world.queue()
    session = world.session()
    session.sends.send(text("m"), world.answers.of("m"))
    session.sends.send(text("s", properties={"_AMQ_SCHED_DELIVERY": world.clock.now_ms + 50}), world.answers.of("s"))
    assert queue.incoming == 2
    world.office.directory.delete_queue("q")
    world.sync()
    assert world.answers.names == ["m", "s"]
    assert (world.office.memory.held_bytes, queue.incoming, queue.message_count) == (0, 0, 0)
    assert queue.address.size_bytes == 0


def test_a_queue_that_is_made_for_a_message_gets_it_where_the_message_names_it() -> None:
    world = World()
    world.session().sends.send(text("m", address="a::a", properties={ROUTING_TYPE: int(RoutingType.ANYCAST)}))
    world.turn()
    assert [(queue.name, queue.message_count) for queue in world.office.queues()] == [("a", 1)]
