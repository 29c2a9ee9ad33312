"""Queues made later get the last messages of their address (retroactive-message-count)."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from support.large import Node
from support.routing import World, text
from support.store import StoreHarness
from understudy.config.model import AddressSettingsConfiguration
from understudy.errors import DiskFull
from understudy.message import ROUTING_TYPE
from understudy.routing.lifecycle.retroactive import Retroactive
from understudy.routing.queues.queue import Queue
from understudy.terms import RoutingType

PREFIX = "$.internal."
MULTICAST, ANYCAST = RoutingType.MULTICAST, RoutingType.ANYCAST


def retroactive(settings: Mapping[str, Mapping[str, object]] | None = None, **options: int) -> World:
    world = World(settings or {"news": {"retroactive_message_count": 3}}, **options)
    Retroactive(world.office, PREFIX)
    return world


def news(world: World, *bodies: str, kind: RoutingType = MULTICAST) -> None:
    session = world.session()
    for body in bodies:
        session.sends.send(text(body, "news", properties={ROUTING_TYPE: int(kind), "body": body}))
    world.turn()


def waits(queue: Queue) -> list[bytes]:
    return [queue.read(reference).body for _, reference in queue.browse((9, -1))]


def test_a_new_queue_gets_the_last_messages_that_its_filter_takes() -> None:
    world = retroactive()
    news(world, *"abcd")
    first = world.queue("first", address="news", routing_type=MULTICAST)
    filtered = world.queue("filtered", address="news", routing_type=MULTICAST, filter="body <> 'c'")
    assert (waits(first), waits(filtered)) == ([b"b", b"c", b"d"], [b"b", b"d"])
    news(world, "e")
    later = world.queue("later", address="news", routing_type=MULTICAST)
    assert (waits(first), waits(later)) == ([b"b", b"c", b"d", b"e"], [b"c", b"d", b"e"])
    world.queue("elsewhere")
    assert world.office.directory.queues["elsewhere"].message_count == 0


def test_each_routing_type_has_its_own() -> None:
    world = retroactive()
    news(world, "m")
    queue = world.queue("q", address="news", routing_type=ANYCAST)
    assert waits(queue) == []
    news(world, "a", kind=ANYCAST)
    assert waits(queue) == [b"a"]
    other = world.queue("p", address="news", routing_type=ANYCAST)
    assert waits(other) == [b"a"]


def test_names_are_those_of_artemis_and_go_with_the_address() -> None:
    world = retroactive()
    news(world, "a")
    directory = world.office.directory
    assert sorted(directory.addresses) == ["$.internal.news.address.retro", "news"]
    assert sorted(directory.queues) == ["$.internal.news.queue.anycast.retro", "$.internal.news.queue.multicast.retro"]
    assert list(world.office.diverts.by_name) == ["$.internal.news.divert.retro"]
    ring = directory.queues["$.internal.news.queue.multicast.retro"].configuration
    assert (ring.ring_size, ring.max_consumers, ring.durable) == (3, 0, True)
    assert directory.addresses["$.internal.news.address.retro"].retroactive_resource
    directory.delete_address("news")
    assert (directory.addresses, directory.queues, world.office.diverts.by_name) == ({}, {}, {})


def test_settings_that_change_make_them_and_change_the_rings() -> None:
    world = retroactive({"other": {}})
    world.office.directory.create_address("news", {MULTICAST})
    assert list(world.office.directory.addresses) == ["news"]
    for count, kept in ((2, [b"b", b"c"]), (4, [b"c", b"a", b"b", b"c"])):
        world.office.directory.settings.add(AddressSettingsConfiguration("news", retroactive_message_count=count))
        world.office.apply_settings()
        news(world, *"abc")
        queue = world.queue(f"q{count}", address="news", routing_type=MULTICAST)
        assert waits(queue) == kept


def test_an_address_made_on_demand_is_deleted_with_its_resources_when_these_are_empty() -> None:
    world = retroactive({"#": {"retroactive_message_count": 3}}, address_queue_scan_period_ms=100)
    world.queue("q", address="news", routing_type=MULTICAST)
    world.office.directory.delete_queue("q")
    world.clock.advance(1000)
    assert (world.office.directory.addresses, world.office.directory.queues) == ({}, {})


def test_an_address_made_on_demand_keeps_its_history_after_the_last_subscriber() -> None:
    world = retroactive({"#": {"retroactive_message_count": 3}}, address_queue_scan_period_ms=100)
    world.queue("q", address="news", routing_type=MULTICAST)
    news(world, *"abcd")
    world.office.directory.delete_queue("q")
    world.clock.advance(1000)
    later = world.queue("later", address="news", routing_type=MULTICAST)
    assert waits(later) == [b"b", b"c", b"d"]
    world.office.directory.delete_queue("later")
    ring = world.office.directory.queues["$.internal.news.queue.multicast.retro"]
    ring.purge()
    world.clock.advance(1000)
    assert (world.office.directory.addresses, world.office.directory.queues) == ({}, {})


def test_temporary_addresses_and_the_resources_themselves_have_none() -> None:
    world = retroactive({"#": {"retroactive_message_count": 3}})
    world.queue("temporary", temporary=True, durable=False)
    assert list(world.office.directory.addresses) == ["temporary"]
    world.office.directory.create_address("news", {MULTICAST})
    assert sorted(world.office.directory.addresses) == ["$.internal.news.address.retro", "news", "temporary"]


def test_a_full_disk_leaves_messages_out_and_makes_the_queue(caplog: pytest.LogCaptureFixture) -> None:
    world = retroactive()
    news(world, "a")
    world.store.full = True
    queue = world.queue("q", address="news", routing_type=MULTICAST)
    assert waits(queue) == []
    assert "retroactive messages left out" in caplog.text


def test_a_retroactive_queue_that_cannot_be_created_is_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = retroactive()

    def refuse(record: object) -> int:
        raise DiskFull("disk full")

    monkeypatch.setattr(world.store, "store_queue", refuse)
    world.office.directory.create_address("news", {MULTICAST})
    assert "no retroactive resources" in caplog.text


def test_the_next_activation_finds_them() -> None:
    rig = StoreHarness(random.Random(1))
    settings = {"news": {"retroactive_message_count": 2}}
    before = Node(rig, "a", settings)
    Retroactive(before.world.office, PREFIX)
    news(before.world, *"abc")
    before.settle()
    rig.die(power_loss=True)
    after = Node(rig, "b", settings)
    Retroactive(after.world.office, PREFIX)
    assert sorted(after.world.office.directory.addresses) == ["$.internal.news.address.retro", "news"]
    assert len(after.world.office.directory.queues) == 2
    queue = after.world.queue("q", address="news", routing_type=MULTICAST)
    after.settle()
    assert waits(queue) == [b"b", b"c"]
    news(after.world, "d")
    after.settle()
    assert waits(queue) == [b"b", b"c", b"d"]
