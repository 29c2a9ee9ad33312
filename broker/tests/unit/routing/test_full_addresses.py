"""Goal: each limit of memory and of paging does under each policy what the documents say, and lets in again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

import pytest

from support.routing import World, callback_of, text
from support.sends import sends_of
from understudy.errors import AddressFull, BrokerError
from understudy.session.session import ServerSession
from understudy.store.messages.pages import Pages
from understudy.terms import DivertDefinition, RoutingType
from understudy.testing.sim.disk import SimVolume

BODY = "x" * 1000
SIZE = text(BODY).encode_size
#: Room for three, said in each way that there is: settings of the address, or of the node.
LIMITS: dict[str, tuple[dict[str, object], dict[str, int]]] = {
    "max-size-bytes": ({"max_size_bytes": 3 * SIZE}, {}),
    "max-size-messages": ({"max_size_messages": 3}, {}),
    "global-max-size": ({}, {"global_max_size_bytes": 3 * SIZE}),
    "global-max-size, exceeded by the third": ({}, {"global_max_size_bytes": 3 * SIZE - 1}),
    "global-max-messages": ({}, {"global_max_messages": 3}),
}


class Full:
    """An address at its limit."""

    def __init__(self, settings: dict[str, object], node: dict[str, int]) -> None:
        pages = Pages(SimVolume().disk("a"), "/paging", 1)
        self.world = World({"#": settings}, pages=pages, **node)  # type: ignore[arg-type]
        self.queue = self.world.queue()
        self.producer = self.world.session()
        self.producer.sends.request_credits("q", 100)
        for number in range(3):
            assert self.send(f"fits {number}") is None

    def send(self, name: str, *, durable: bool = True) -> object:
        """The error that it was answered with."""
        self.producer.sends.send(text(BODY, durable=durable), self.world.answers.of(name))
        return self.world.answers.error(name)

    def reader(self) -> ServerSession:
        reader = self.world.session()
        reader.consumers.create(0, "q")
        reader.consumers.receive_credits(0, -1)
        self.world.turn()
        return reader

    def drain(self) -> int:
        """Everything that waits is taken; how much that was."""
        reader = self.reader()
        delivered = callback_of(reader).delivered
        if delivered:
            reader.acknowledge(0, delivered[-1][1].message_id)
        self.world.turn()
        return len(delivered)


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("limit", LIMITS)
def test_page(limit: str, durable: bool) -> None:
    """Everything is taken, and no more is in memory than may be."""
    settings, node = LIMITS[limit]
    full = Full({"address_full_policy": "PAGE", **settings}, node)
    for number in range(20):
        assert full.send(f"paged {number}", durable=durable) is None
    assert full.queue.message_count == 23
    assert full.world.office.memory.held_count <= 4
    assert full.queue.address.memory_bytes <= 4 * SIZE
    assert full.drain() == 23
    assert (full.world.office.memory.held_bytes, full.world.office.memory.held_count) == (0, 0)


@pytest.mark.parametrize("limit", LIMITS)
def test_drop(limit: str) -> None:
    """Confirmed and gone, and counted."""
    settings, node = LIMITS[limit]
    full = Full({"address_full_policy": "DROP", **settings}, node)
    assert full.send("dropped") is None
    assert (full.queue.message_count, full.queue.address.messages_dropped) == (3, 1)
    assert full.drain() == 3
    full.send("fits again")
    assert (full.queue.message_count, full.queue.address.messages_dropped) == (1, 1)


@pytest.mark.parametrize("limit", LIMITS)
def test_fail(limit: str) -> None:
    """Refused, and the producer gets an error."""
    settings, node = LIMITS[limit]
    full = Full({"address_full_policy": "FAIL", **settings}, node)
    assert isinstance(full.send("refused"), AddressFull)
    full.producer.sends.request_credits("q", 100)
    assert callback_of(full.producer).refused == [("q", 100)]
    assert full.drain() == 3
    assert full.send("fits again") is None


@pytest.mark.parametrize("limit", LIMITS)
def test_block(limit: str) -> None:
    """Credits are withheld until the address is below its limit."""
    settings, node = LIMITS[limit]
    full = Full({"address_full_policy": "BLOCK", **settings}, node)
    full.producer.sends.request_credits("q", 70)
    full.world.turn()
    assert callback_of(full.producer).credits == [("q", 100)]
    assert full.drain() == 3
    assert callback_of(full.producer).credits == [("q", 100), ("q", 70)]


@pytest.mark.parametrize("policy", ["PAGE", "DROP", "FAIL", "BLOCK"])
def test_blocked_by_an_operator(policy: str) -> None:
    """Credits are withheld with every policy, whatever the address holds, until the operator ends it."""
    full = Full({"address_full_policy": policy}, {})
    full.queue.address.blocked = True
    full.producer.sends.request_credits("q", 70)
    assert full.drain() == 3
    assert callback_of(full.producer).credits == [("q", 100)]
    full.queue.address.blocked = False
    full.world.turn()
    assert callback_of(full.producer).credits == [("q", 100), ("q", 70)]


PAGE_LIMITS: dict[str, dict[str, object]] = {
    "page-limit-bytes": {"max_size_bytes": SIZE, "page_limit_bytes": 2 * SIZE},
    "page-limit-bytes, below max-size-bytes": {"max_size_bytes": 2 * SIZE, "page_limit_bytes": SIZE},
    "page-limit-messages": {"max_size_bytes": SIZE, "page_limit_messages": 3},
    "page-limit-messages, max-size-messages": {"max_size_messages": 2, "page_limit_messages": 1},
}


@pytest.mark.parametrize("policy", ["DROP", "FAIL"])
@pytest.mark.parametrize("limit", PAGE_LIMITS)
def test_page_full(limit: str, policy: str) -> None:
    """The paged messages of an address are limited, beside those in memory; consumers that take some allow more."""
    settings: dict[str, object] = {"address_full_policy": "PAGE", "page_full_policy": policy}
    full = Full(settings | PAGE_LIMITS[limit], {})
    assert full.queue.address.paged_count >= 1
    error = full.send("too many")
    assert isinstance(error, AddressFull) if policy == "FAIL" else error is None
    assert (full.queue.message_count, full.queue.address.messages_dropped) == (3, int(policy == "DROP"))
    assert full.drain() == 3
    assert full.send("fits again") is None
    assert full.queue.message_count == 1


def test_a_page_limit_without_a_policy_is_no_limit() -> None:
    full = Full({"max_size_bytes": SIZE, "page_limit_messages": 3}, {})
    assert full.send("more") is None
    assert full.queue.message_count == 4


@pytest.mark.parametrize("away", ["address", "temporary queue"])
def test_producers_of_an_address_that_goes_stop_waiting(away: str) -> None:
    world = World({"#": {"address_full_policy": "BLOCK", "max_size_bytes": 1}})
    world.queue(temporary=away != "address", durable=False)
    producer = world.session()
    producer.sends.request_credits("q", 100)
    producer.sends.send(text(BODY))
    producer.sends.request_credits("q", 70)
    world.turn()
    assert callback_of(producer).credits == [("q", 100)]
    if away == "address":
        world.office.directory.delete_address("q", force=True)
    else:
        world.office.directory.delete_queue("q")
    assert "q" not in world.office.directory.addresses
    assert callback_of(producer).credits == [("q", 100), ("q", 70)]
    assert not world.office.memory.starved


def test_a_request_granted_before_a_waiting_one_answers_both() -> None:
    full = Full({"address_full_policy": "BLOCK", "max_size_bytes": 3 * SIZE}, {})
    full.producer.sends.request_credits("q", 70)
    full.queue.purge()
    full.producer.sends.request_credits("q", 50)
    full.world.turn()
    assert callback_of(full.producer).credits == [("q", 100), ("q", 120)]
    full.producer.close(failed=True)
    assert not any(full.world.office.memory.starved.values())


def full_disk(policy: str | None) -> tuple[World, ServerSession]:
    """A world whose disk is full, and a session that may send."""
    world = World({"#": {} if policy is None else {"disk_full_policy": policy}})
    world.queue()
    session = world.session()
    world.store.full = True
    return world, session


@pytest.mark.parametrize("durable", [True, False])
def test_a_full_disk_drops(durable: bool) -> None:
    world, session = full_disk("DROP")
    address = world.office.directory.addresses["q"]
    session.sends.send(text("m", durable=durable), world.answers.of("dropped"))
    session.sends.send_batch(sends_of([text("m", durable=durable)] * 2), 0, None)
    session.sends.request_credits("q", 70)
    assert world.answers.error("dropped") is None
    assert (world.office.queues()[0].message_count, address.messages_dropped) == (0, 3)
    assert callback_of(session).credits == [("q", 70)]
    world.store.full = False
    session.sends.send(text("fits again", durable=durable))
    assert world.office.queues()[0].message_count == 1


@pytest.mark.parametrize("durable", [True, False])
def test_a_full_disk_fails(durable: bool) -> None:
    world, session = full_disk("FAIL")
    session.sends.send(text("m", durable=durable), world.answers.of("refused"))
    session.sends.request_credits("q", 70)
    assert isinstance(world.answers.error("refused"), AddressFull)
    assert callback_of(session).refused == [("q", 70)]
    assert world.office.queues()[0].message_count == 0


@pytest.mark.parametrize("policy", [None, "BLOCK"])
def test_a_full_disk_makes_producers_wait(policy: str | None) -> None:
    world, session = full_disk(policy)
    session.sends.request_credits("q", 70)
    assert callback_of(session).credits == []
    session.sends.send(text("durable"), world.answers.of("durable"))
    assert isinstance(world.answers.error("durable"), AddressFull)
    session.sends.send(text("not durable", durable=False), world.answers.of("not durable"))
    assert world.answers.error("not durable") is None
    world.store.full = False
    world.turn()
    assert callback_of(session).credits == [("q", 70)]


def test_a_copy_of_a_divert_meets_the_policy_of_its_own_address() -> None:
    world = World({"copy": {"disk_full_policy": "DROP"}})
    queue = world.queue(durable=False)
    world.queue("copy")
    world.office.diverts.create(DivertDefinition("d", "q", "copy"))
    world.store.full = True
    world.session().sends.send(text("m", durable=False), world.answers.of("sent"))
    assert world.answers.error("sent") is None
    assert queue.message_count == 1
    assert world.office.directory.addresses["copy"].messages_dropped == 1


# --- several addresses that hold a message --------------------------------------------------------


class Holders:
    """Queues of two addresses, one of them with a wildcard, that all get the messages for ``wild.a``."""

    def __init__(self, policy: str, node: dict[str, int], *, transacted: bool) -> None:
        pages = Pages(SimVolume().disk("a"), "/paging", 1)
        self.world = World({"#": {"address_full_policy": policy}}, pages=pages, **node)  # type: ignore[arg-type]
        for name, address in (("w1", "wild.#"), ("w2", "wild.a"), ("w3", "wild.a")):
            self.world.queue(name, address=address, routing_type=RoutingType.MULTICAST)
        self.producer = self.world.session(transacted=transacted)
        # without it the first message would ask for permission and go alone
        self.producer.sends.permit("wild.a")
        self.answers: list[tuple[int, str]] = []

    def answer_run(self, numbers: Sequence[int], error: BrokerError | None = None) -> None:
        self.answers += [(number, type(error).__name__) for number in numbers]

    def figures(self) -> object:
        self.world.turn()
        office = self.world.office
        addresses = office.directory.addresses.values()
        return (
            (office.memory.held_bytes, office.memory.held_count),
            {each.name: (each.size_bytes, each.memory_bytes, each.message_count) for each in addresses},
            {each.name: (each.paged_count, each.messages_dropped) for each in addresses},
            {queue.name: (queue.message_count, queue.incoming, len(queue.pending)) for queue in office.queues()},
            sorted(self.answers),
        )


@pytest.mark.parametrize("transacted", [False, True])
@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("policy", ["PAGE", "DROP", "FAIL", "BLOCK"])
@pytest.mark.parametrize("limited", ["bytes", "messages"])
@pytest.mark.parametrize(("body", "count"), [(BODY, 20), ("x" * 30_000, 5)], ids=["small", "large"])
def test_each_address_that_holds_a_message_counts_it_for_the_limit_of_the_node(
    body: str, count: int, limited: str, policy: str, durable: bool, transacted: bool
) -> None:
    """Messages that come together fill the node as they do one by one: two addresses hold each of them."""
    size = text(body, address="wild.a").encode_size
    node = {"global_max_size_bytes": 7 * size} if limited == "bytes" else {"global_max_messages": 7}
    messages = [text(body, address="wild.a", durable=durable) for _ in range(count)]
    together, single = (Holders(policy, node, transacted=transacted) for _ in range(2))
    for first, stop in ((0, 1), (1, count)):
        sends = sends_of(messages[first:stop], range(first, stop))
        assert together.producer.sends.send_batch(sends, 0, together) == stop - first
        for number in range(first, stop):
            single.producer.sends.send(messages[number], partial(single.answer_run, (number,)))
        assert together.figures() == single.figures()
    office = single.world.office
    taken = office.directory.addresses["wild.a"].message_count
    assert taken == (count if policy == "PAGE" else 4), "the fourth one takes the node beyond its maximum"
    assert office.memory.held_count <= (7 if policy == "PAGE" else 8)
    for each in (together, single):
        if transacted:
            each.producer.commit(partial(each.answer_run, (-1,)))
    assert together.figures() == single.figures()


def reasons(records: list[logging.LogRecord]) -> list[str]:
    return [each.__dict__["reason"] for each in records if each.getMessage() == "producers blocked"]


@pytest.mark.parametrize(
    ("settings", "node", "reason"),
    [
        ({"max_size_bytes": 3 * SIZE}, {}, f"the address holds its maximum: {3 * SIZE} bytes in 3 messages"),
        ({}, {"global_max_messages": 3}, f"the node holds its maximum: {3 * SIZE} bytes in 3 messages"),
    ],
)
def test_the_log_names_the_limit_that_makes_producers_wait(
    settings: dict[str, object], node: dict[str, int], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    full = Full({"address_full_policy": "BLOCK", **settings}, node)
    full.producer.sends.request_credits("q", 70)
    assert reasons(caplog.records) == [reason]


def test_the_log_says_that_the_disk_or_an_operator_makes_producers_wait(caplog: pytest.LogCaptureFixture) -> None:
    _, session = full_disk("BLOCK")
    session.sends.request_credits("q", 70)
    assert reasons(caplog.records)[0].startswith("the disk is full: ")
    caplog.clear()
    full = Full({"address_full_policy": "BLOCK"}, {})
    full.queue.address.blocked = True
    full.producer.sends.request_credits("q", 70)
    assert reasons(caplog.records) == ["an operator has blocked the address"]
