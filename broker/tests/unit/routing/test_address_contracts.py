"""Durability contracts of addresses: what a producer, a session and a transaction wait for (ADR 0065)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from support.routing import FakeCallback, World, callback_of, text
from understudy.config.model import AddressSettingsConfiguration
from understudy.message import DUPLICATE_ID
from understudy.routing.response_order import strictest
from understudy.store.log.operation_context import Contract, Voter
from understudy.terms import DivertDefinition, DivertRouting, DurabilityContract

LOCAL, MEMORY, DISK = DurabilityContract.LOCAL, DurabilityContract.REPLICA_MEMORY, DurabilityContract.REPLICA_DISK
CONTRACTS = {"fast": LOCAL, "memory": MEMORY, "safe": DISK}


class Pair(World):
    """An active node with a replica in sync that has confirmed nothing since."""

    def __init__(
        self, common: DurabilityContract = DISK, contracts: Mapping[str, DurabilityContract] = CONTRACTS
    ) -> None:
        settings = {address: {"durability_contract": contract} for address, contract in contracts.items()}
        super().__init__(settings, automatic=False, durability_contract=common)
        for name in ("plain", *CONTRACTS):
            self.queue(name)
        self.store.sync()
        self.store.context.attach_replica()

    def sync_local(self) -> None:
        """The local disk has everything."""
        self.sync()

    def received(self) -> None:
        """The replica has everything in memory."""
        self.store.context.advance(self.store.context.appended, Voter.REPLICA_MEMORY)

    def executed(self) -> None:
        """The replica has everything on its disk."""
        self.store.context.advance(self.store.context.appended, Voter.REPLICA_DISK)

    def steps(self) -> list[list[str]]:
        """Requests answered by each of these, in order."""
        found, seen = [], len(self.answers.names)
        for step in (self.sync_local, self.received, self.executed):
            step()
            found.append(self.answers.names[seen:])
            seen = len(self.answers.names)
        return found

    def send(self, *addresses: str, durable: bool = True) -> None:
        """Each from a session of its own."""
        for address in addresses:
            self.session().sends.send(text("x", address, durable=durable), self.answers.of(address))


def reader(world: World, queue: str) -> FakeCallback:
    session = world.session()
    session.consumers.create(0, queue)
    session.consumers.receive_credits(0, -1)
    return callback_of(session)


def test_each_message_waits_for_the_contract_of_its_address() -> None:
    world = Pair()
    world.send("plain", "safe", "memory", "fast")
    assert world.steps() == [["fast"], ["memory"], ["plain", "safe"]]


@pytest.mark.parametrize(
    ("common", "steps"),
    [
        (LOCAL, [["plain", "fast"], ["memory"], ["safe"]]),
        (MEMORY, [["fast"], ["plain", "memory"], ["safe"]]),
    ],
)
def test_the_contract_of_an_address_may_be_stricter_than_that_of_the_node(
    common: DurabilityContract, steps: list[list[str]]
) -> None:
    world = Pair(common)
    world.send("plain", "safe", "memory", "fast")
    assert [sorted(step) for step in world.steps()] == [sorted(step) for step in steps]


def test_a_message_is_delivered_when_the_contract_of_its_address_is_met() -> None:
    world = Pair()
    fast, safe = reader(world, "fast"), reader(world, "safe")
    world.send("safe", "fast")
    world.sync_local()
    assert (fast.bodies(), safe.bodies()) == ([b"x"], [])
    world.received()
    world.executed()
    world.turn()
    assert safe.bodies() == [b"x"]


def test_answers_of_a_session_do_not_overtake_each_other() -> None:
    world = Pair()
    session = world.session()
    for address in ("fast", "memory", "fast", "safe", "memory", "fast"):
        session.sends.send(text("x", address), world.answers.of(f"{address} {len(world.answers.names)}"))
    session.sends.send(text("x", "fast", durable=False), world.answers.of("not durable"))
    assert world.steps() == [
        ["fast 0"],
        ["memory 0", "fast 0"],
        ["safe 0", "memory 0", "fast 0", "not durable"],
    ]


def test_a_session_whose_stricter_requests_are_answered_waits_only_for_the_next_contract() -> None:
    world = Pair()
    session = world.session()
    session.sends.send(text("1", "safe"), world.answers.of("1"))
    assert world.steps()[2] == ["1"]
    session.sends.send(text("2", "fast"), world.answers.of("2"))
    world.sync_local()
    session.sends.send(text("3", "plain", durable=False), world.answers.of("3"))
    assert world.answers.names == ["1", "2", "3"]


def test_a_message_to_a_plain_address_comes_after_an_earlier_one_of_its_session() -> None:
    world = Pair()
    session = world.session()
    session.sends.send(text("1", "fast"), world.answers.of("1"))
    session.sends.send(text("2", "plain"), world.answers.of("2"))
    session.sends.send(text("3", "fast"), world.answers.of("3"))
    assert world.steps() == [["1"], [], ["2", "3"]]


@pytest.mark.parametrize(
    ("addresses", "answered"),
    [(["fast"], 0), (["fast", "memory"], 1), (["fast", "plain"], 2), (["memory", "safe", "fast"], 2)],
)
def test_a_transaction_waits_for_the_strictest_contract_of_its_addresses(addresses: list[str], answered: int) -> None:
    world = Pair()
    session = world.session(transacted=True)
    for address in addresses:
        session.sends.send(text("x", address))
    session.commit(world.answers.of("commit"))
    assert world.steps()[answered] == ["commit"]


def test_a_transaction_waits_for_the_contract_of_the_messages_that_it_acknowledges() -> None:
    world = Pair()
    world.send("safe")
    world.steps()
    session = world.session(transacted=True)
    session.consumers.create(0, "safe")
    session.consumers.receive_credits(0, -1)
    world.turn()
    session.acknowledge(0, callback_of(session).delivered[0][1].message_id)
    session.sends.send(text("x", "fast"))
    session.commit(world.answers.of("commit"))
    assert world.steps() == [[], [], ["commit"]]


def test_a_divert_to_a_stricter_address_makes_the_producer_wait_for_that() -> None:
    world = Pair()
    world.office.diverts.create(
        DivertDefinition("d", "fast", "safe", routing_name="d", exclusive=False, routing_type=DivertRouting.STRIP)
    )
    world.send("fast")
    assert world.steps() == [[], [], ["fast"]]


def test_a_repeated_message_is_answered_when_the_original_is_safe_by_every_contract() -> None:
    world = Pair()
    message = text("x", "fast", properties={DUPLICATE_ID: "1"})
    world.session().sends.send(message, world.answers.of("original"))
    world.session().sends.send(text("x", "fast", properties={DUPLICATE_ID: "1"}), world.answers.of("repeated"))
    assert world.steps() == [["original"], [], ["repeated"]]


def test_changed_settings_apply_to_addresses_that_exist() -> None:
    world = Pair(contracts={})
    world.send("fast")
    world.settings.configure([AddressSettingsConfiguration("fast", durability_contract=LOCAL)])
    world.office.apply_settings()
    world.session().sends.send(text("x", "fast"), world.answers.of("after"))
    assert world.steps() == [["after"], [], ["fast"]]
    world.settings.configure([])
    world.office.apply_settings()
    world.send("fast")
    assert world.steps() == [[], [], ["fast"]]


def test_without_a_replica_every_contract_is_the_local_disk() -> None:
    world = Pair()
    world.store.context.detach_replica()
    world.send("plain", "safe", "memory", "fast")
    assert len(world.steps()[0]) == 4


def test_a_lost_replica_delays_every_contract_until_the_node_may_go_on_alone() -> None:
    world = Pair()
    world.store.context.hold()
    world.send("safe", "fast")
    assert world.steps() == [[], [], []]
    world.store.context.detach_replica()
    assert sorted(world.answers.names) == ["fast", "safe"]


def test_messages_of_an_address_without_a_contract_of_its_own_are_still_gathered() -> None:
    world = Pair()
    addresses = world.office.directory.addresses
    assert addresses["plain"].plain_queues
    assert addresses["safe"].plain_queues
    assert not addresses["fast"].plain_queues


def test_the_strictest_of_several_lanes_is_found_in_any_order() -> None:
    context = Pair().store.context
    fast, memory = context.lane(Contract.LOCAL), context.lane(Contract.REPLICA_MEMORY)
    assert strictest({fast, memory}) is memory
    assert strictest({fast}) is fast
    assert strictest({fast, memory, None}) is None
    assert strictest(set()) is None
