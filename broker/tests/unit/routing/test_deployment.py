"""After an activation addresses and queues of the configuration exist as it says, and no queue was moved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.routing import World, callback_of, text
from understudy.config.model import AddressConfiguration, ConfigDeletionPolicy
from understudy.config.model import QueueConfiguration as DeployedQueue
from understudy.message import ROUTING_TYPE
from understudy.routing.addresses.deployment import deploy
from understudy.terms import DivertDefinition, RoutingType

ANYCAST = RoutingType.ANYCAST


def anycast(*queues: DeployedQueue) -> AddressConfiguration:
    return AddressConfiguration(queues[0].address, frozenset({ANYCAST}), queues)


def test_deploying_makes_what_is_missing_and_moves_nothing() -> None:
    world = World()
    wanted = [
        AddressConfiguration("orders", frozenset({RoutingType.ANYCAST}), (
            DeployedQueue("orders", "orders", RoutingType.ANYCAST, max_consumers=3, filter="a = 1"),
        )),
        AddressConfiguration("news", frozenset({RoutingType.MULTICAST})),
    ]  # fmt: skip
    deploy(world.office, wanted)
    queue = world.office.directory.queues["orders"]
    assert queue.configuration.max_consumers == 3
    assert queue.configuration.configuration_managed
    assert not queue.configuration.auto_delete
    before = world.store.last_sequence
    deploy(world.office, wanted)
    assert world.store.last_sequence == before
    elsewhere = AddressConfiguration(
        "other", frozenset({RoutingType.ANYCAST}), (DeployedQueue("orders", "other", RoutingType.ANYCAST),)
    )
    (refused,) = deploy(world.office, [elsewhere])
    assert "not 'other'" in str(refused)


def test_an_activation_leaves_out_a_queue_that_cannot_be_made(caplog: pytest.LogCaptureFixture) -> None:
    """A backup whose file has the queue on another address than the store has it serves everything else."""
    world = World({"a": {"config_delete_addresses": ConfigDeletionPolicy.FORCE}})
    world.office.directory.create_address("a", {ANYCAST})
    world.queue("q", address="a")
    wanted = [
        AddressConfiguration("b", frozenset({ANYCAST}), (
            DeployedQueue("q", "b", ANYCAST),
            DeployedQueue("bad", "b", ANYCAST, filter="("),
            DeployedQueue("good", "b", ANYCAST),
        )),
        anycast(DeployedQueue("last", "last", ANYCAST)),
    ]  # fmt: skip
    refused = deploy(world.office, wanted)
    queues = {name: queue.address.name for name, queue in world.office.directory.queues.items()}
    assert queues == {"q": "a", "good": "b", "last": "last"}
    assert [(record.address, record.item) for record in caplog.records] == [("b", "q"), ("b", "bad")]  # type: ignore[attr-defined]
    assert "exists on address 'a', not 'b'" in caplog.records[0].error  # type: ignore[attr-defined]
    assert [str(each).split(" is left out")[0] for each in refused] == ["'q' of address 'b'", "'bad' of address 'b'"]


def test_a_queue_that_is_there_becomes_what_the_configuration_says() -> None:
    world = World({"q": {"default_max_consumers": 7}})
    queue = world.queue(filter="a = 1", ring_size=5)
    world.session().sends.send(text("kept", properties={"a": 1}))
    entry = DeployedQueue("q", "q", ANYCAST, exclusive=True, ring_size=2, non_destructive=True)
    deploy(world.office, [anycast(entry)])
    full = queue.configuration
    assert (full.exclusive, full.ring_size, full.non_destructive, full.filter) == (True, 2, True, None)
    assert (full.max_consumers, full.configuration_managed) == (7, True)
    assert queue.filter is None
    assert queue.message_count == 1
    kept = world.store.found().queues[queue.queue_id].settings
    assert (kept["ring_size"], kept["non_destructive"], kept["exclusive"]) == (2, True, True)
    written = world.store.last_sequence
    deploy(world.office, [anycast(entry)])
    assert world.store.last_sequence == written, "the same again writes nothing"
    deploy(world.office, [anycast(replace(entry, non_destructive=None))])
    assert queue.configuration.non_destructive is False, "what the file no longer says is as the settings say"


def test_queues_gone_from_the_configuration_go_only_if_that_is_asked_for() -> None:
    world = World({"gone": {"config_delete_queues": ConfigDeletionPolicy.FORCE}})
    deploy(world.office, [anycast(DeployedQueue("gone", "gone", ANYCAST)), anycast(DeployedQueue("q", "q", ANYCAST))])
    world.queue("by hand", address="gone")
    deploy(world.office, [])
    assert set(world.office.directory.queues) == {"q", "by hand"}


def test_addresses_gone_from_the_configuration_go_with_their_queues_only_if_that_is_asked_for() -> None:
    world = World({"gone.#": {"config_delete_addresses": ConfigDeletionPolicy.FORCE}})
    entries = [anycast(DeployedQueue(name, name, ANYCAST)) for name in ("gone.a", "gone.b", "kept")]
    deploy(world.office, entries)
    world.queue("by hand", address="gone.a")
    world.session().sends.send(text("m", "gone.a::by hand"))
    world.session().sends.send(text("m", "gone.on.demand", properties={ROUTING_TYPE: int(ANYCAST)}))
    world.office.directory.create_address("gone.internal", [RoutingType.ANYCAST], internal=True)
    deploy(world.office, entries)
    assert {"gone.a", "gone.b", "kept"} < set(world.office.directory.addresses)
    deploy(world.office, entries[1:2])
    assert set(world.office.directory.addresses) == {"gone.b", "kept", "gone.on.demand", "gone.internal"}
    assert set(world.office.directory.queues) == {"gone.b", "kept", "gone.on.demand"}
    assert len(world.store.found().addresses) == 4, "it is gone from the log, too"


def test_configured_diverts_are_made_anew_and_not_stored() -> None:
    world = World()
    wanted = [DivertDefinition("d", "q", "copy")]
    deploy(world.office, [], wanted)
    queue, copies = world.queue(), world.queue("copy")
    deploy(world.office, [], wanted)
    session = world.session()
    session.sends.send(text("m"))
    assert (queue.message_count, copies.message_count) == (1, 1)
    assert not any(record.settings for record in world.store.found().addresses.values())
    assert callback_of(session).errors == []


def test_a_changed_configuration_removes_its_diverts_and_leaves_those_of_management() -> None:
    world = World()
    world.queue("target")
    diverts = world.office.diverts
    diverts.create(DivertDefinition("by-hand", "source", "target"))
    first = [DivertDefinition("gone", "source", "target"), DivertDefinition("kept", "source", "target")]
    deploy(world.office, [], first)
    diverts.by_name["kept"].messages_diverted = 3
    deploy(world.office, [], [DivertDefinition("kept", "source", "target", filter="a = 1")])
    assert set(diverts.by_name) == {"by-hand", "kept"}
    kept = diverts.by_name["kept"]
    assert (kept.configuration.filter, kept.messages_diverted) == ("a = 1", 3)
    deploy(world.office, [], [DivertDefinition("kept", "source", "target", exclusive=True)])
    assert diverts.by_name["kept"].configuration.exclusive
    assert diverts.by_name["kept"].messages_diverted == 0


def test_an_address_routes_as_configured_unless_a_queue_needs_another_way() -> None:
    world = World()
    both = frozenset({RoutingType.ANYCAST, RoutingType.MULTICAST})
    deploy(world.office, [AddressConfiguration("a", both), AddressConfiguration("b", both)])
    world.queue("topic", address="b", routing_type=RoutingType.MULTICAST)
    deploy(
        world.office, [AddressConfiguration("a", frozenset({ANYCAST})), AddressConfiguration("b", frozenset({ANYCAST}))]
    )
    addresses = world.office.directory.addresses
    assert addresses["a"].routing_types == {ANYCAST}
    assert addresses["b"].routing_types == both


def test_one_conflict_keeps_no_other_change_of_a_configuration_back() -> None:
    world = World()
    world.queue("q")
    session = world.session()
    for number in range(2):
        session.consumers.create(number, "q")
    refused = deploy(
        world.office,
        [
            AddressConfiguration("other", frozenset({ANYCAST}), (DeployedQueue("q", "other", ANYCAST),)),
            anycast(DeployedQueue("new", "new", ANYCAST)),
        ],
        [DivertDefinition("bad", "a", "b", filter="a ="), DivertDefinition("good", "a", "b")],
    )
    assert ["not 'other'" in str(refused[0]), "'bad' of address 'a'" in str(refused[1])] == [True, True]
    assert "new" in world.office.directory.queues
    assert set(world.office.diverts.by_name) == {"good"}
    (refused_queue,) = deploy(world.office, [anycast(DeployedQueue("q", "q", ANYCAST, max_consumers=1))])
    assert "2 consumers, more than 1" in str(refused_queue)


def test_a_queue_that_moves_to_another_address_is_made_anew_only_if_its_deletion_is_asked_for() -> None:
    world = World({"forced": {"config_delete_queues": ConfigDeletionPolicy.FORCE}})
    for address in ("forced", "kept"):
        deploy(world.office, [anycast(DeployedQueue(address, address, ANYCAST))])
        world.session().sends.send(text("m", address))

    def elsewhere(name: str) -> AddressConfiguration:
        return AddressConfiguration("other", frozenset({ANYCAST}), (DeployedQueue(name, "other", ANYCAST),))

    assert deploy(world.office, [elsewhere("forced"), anycast(DeployedQueue("kept", "kept", ANYCAST))]) == ()
    queues = world.office.directory.queues
    assert (queues["forced"].address.name, queues["forced"].message_count) == ("other", 0)
    (refused,) = deploy(world.office, [elsewhere("kept")])
    assert "config-delete-queues" in str(refused)
    assert (queues["kept"].address.name, queues["kept"].message_count) == ("kept", 1)
