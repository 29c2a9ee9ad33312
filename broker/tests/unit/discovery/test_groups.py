"""Discovery and broadcast groups over a carrier in memory."""

from __future__ import annotations

import pytest

from understudy.cluster.discovery.broadcaster import Broadcaster, BroadcastEvent, BroadcastSettings, BroadcastState
from understudy.cluster.discovery.carriers import Multicast, Receive
from understudy.cluster.discovery.entries import Entries, Outcome
from understudy.cluster.discovery.group import REOPEN_MS, DiscoverySettings, Group, GroupEvent, GroupState
from understudy.errors import MachineError
from understudy.limits import BROADCAST_CONNECTORS_MAX, BROADCAST_NODES_MAX, BROADCAST_NODES_PER_SOURCE_MAX
from understudy.machine import ILLEGAL
from understudy.testing.manual_time import ManualTime
from understudy.wire.core.broadcast import Broadcast
from understudy.wire.core.transport import TransportConfiguration

CARRIER = Multicast("231.7.7.7", 9876)


def connector(host: str, port: str = "5") -> TransportConfiguration:
    return TransportConfiguration("c", parameters={"host": host, "port": port})


def datagram(node_id: str = "n", *hosts: str, unique: str = "u") -> bytes:
    return Broadcast(node_id, unique, tuple(map(connector, hosts or ("a",)))).encode()


class Wire:
    """A carrier in memory; implements ``Endpoint``."""

    def __init__(self) -> None:
        self.receivers: list[Receive] = []
        self.sent: list[bytes] = []
        self.broken = False
        self.sender_open = False

    def listen(self, receive: Receive) -> None:
        self._check()
        self.receivers.append(receive)

    def open_sender(self) -> None:
        self._check()
        self.sender_open = True

    def send(self, datagram: bytes, name: str) -> None:
        self._check()
        self.sent.append(datagram)
        for each in self.receivers:
            each(datagram, "10.0.0.1")

    def close_sender(self) -> None:
        self.sender_open = False

    def close(self) -> None:
        self.receivers.clear()

    def _check(self) -> None:
        if self.broken:
            raise OSError("no route")


class World:
    def __init__(self, **settings: int) -> None:
        self.time = ManualTime()
        self.wire = Wire()
        self.group = Group(DiscoverySettings("d", CARRIER, **settings), "own", self.wire, self.time, self.time)
        self.changes: list[list[str]] = []
        self.group.listen(lambda: self.changes.append(self.hosts()))

    def hosts(self) -> list[str]:
        return [each.host for each in self.group.connectors()]

    def broadcaster(self, unique: str, *hosts: str, period_ms: int = 2_000) -> Broadcaster:
        settings = BroadcastSettings("b", CARRIER, list(map(connector, hosts)), period_ms)
        return Broadcaster(settings, unique, self.wire, self.time)

    def run(self, duration_ms: int) -> None:
        for _ in range(0, duration_ms, 100):
            self.time.advance(100)


@pytest.mark.parameter("discovery-group/refresh-timeout", "broadcast-group/broadcast-period")
def test_a_broadcast_adds_an_entry_that_expires_without_another() -> None:
    world = World()
    world.group.start()
    node = world.broadcaster("u", "a")
    node.start("A")
    assert world.hosts() == ["a"]
    world.run(30_000)
    assert world.changes == [["a"]], "repeated broadcasts change nothing"
    assert node.sent == 16, "one at the start, one per period"
    node.stop()
    assert not world.wire.sender_open
    world.run(9_900)
    assert world.hosts() == ["a"]
    world.run(100)
    assert world.changes == [["a"], []]


def test_own_broadcasts_are_ignored() -> None:
    world = World()
    world.group.start()
    world.broadcaster("own", "a").start("A")
    assert world.hosts() == []
    assert world.group.entries.outcomes == {Outcome.OWN: 1}


def test_the_entry_of_a_node_is_replaced_and_its_last_connector_is_used() -> None:
    world = World()
    world.group.start()
    world.group.receive(datagram("A", "a", "b"), "")
    assert world.hosts() == ["b"]
    assert [len(each.connectors) for each in world.group.entries.all()] == [2]
    world.group.receive(datagram("A", "c"), "")
    world.group.receive(datagram("B", "d"), "")
    assert world.changes == [["b"], ["c"], ["c", "d"]]


def test_a_connector_that_cannot_be_dialled_is_left_out() -> None:
    world = World()
    world.group.start()
    in_vm = TransportConfiguration("vm", parameters={"serverId": 0})
    world.group.receive(Broadcast("A", "u", (connector("a"), in_vm)).encode(), "")
    world.group.receive(Broadcast("B", "u", (in_vm,)).encode(), "")
    assert world.hosts() == ["a"]
    assert world.group.entries.outcomes[Outcome.UNUSABLE] == 1


def test_two_broadcasters_of_one_node_id_give_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """AMQ212034: at the first change, and then once per refresh timeout."""
    world = World()
    world.group.start()
    for _ in range(25):
        world.group.receive(datagram("A", unique="one"), "")
        world.group.receive(datagram("A", unique="two"), "")
        world.run(1_000)
    warned = [each for each in caplog.records if getattr(each, "id", None) == "AMQ212034"]
    assert len(warned) == 3
    assert getattr(warned[0], "node_id") == "A"  # noqa: B009  # of the record's extra
    assert world.group.entries.duplicates == 49


def test_a_broadcast_of_the_own_node_id_gives_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.group.start()
    world.group.receive(datagram("A"), "")
    assert not world.group.entries.duplicates, "a backup hears its active node"
    world.group.entries.own_node_id = "A"
    world.group.receive(datagram("A"), "")
    assert world.group.entries.duplicates == 1
    assert "same node id" in caplog.text


def test_damaged_datagrams_are_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.group.start()
    whole = datagram("A")
    for size in range(len(whole)):
        world.group.receive(whole[:size], "10.9.9.9")
    assert world.hosts() == []
    assert world.group.entries.outcomes == {Outcome.DAMAGED: len(whole)}
    assert len([each for each in caplog.records if "no broadcast" in each.message]) == 1


def test_one_sender_cannot_fill_the_table() -> None:
    entries = Entries("d", 1_000)
    for number in range(BROADCAST_NODES_PER_SOURCE_MAX + 20):
        entries.receive(datagram(f"forged-{number}"), "10.9.9.9", 0)
    assert entries.outcomes[Outcome.REJECTED] == 20
    assert entries.receive(datagram("A"), "10.0.0.1", 0) is Outcome.ADDED
    for number in range(BROADCAST_NODES_MAX):
        entries.receive(datagram(f"more-{number}"), f"10.9.9.{number}", 0)
    assert len(entries.all()) == BROADCAST_NODES_MAX
    assert entries.receive(datagram("A"), "10.0.0.1", 0) is Outcome.REFRESHED, "known nodes stay known"
    assert entries.expire(1_000)
    assert entries.all() == []


@pytest.mark.parameter("discovery-group/initial-wait-timeout")
def test_a_silent_network_gives_a_warning_after_the_initial_wait(caplog: pytest.LogCaptureFixture) -> None:
    world = World(initial_wait_timeout_ms=3_000)
    world.group.start()
    world.run(2_900)
    assert "no other node" not in caplog.text
    world.run(100)
    assert "no other node was discovered" in caplog.text
    assert world.group.waited
    heard = World(initial_wait_timeout_ms=3_000)
    heard.group.start()
    heard.group.receive(datagram("A"), "")
    assert not heard.group.waited, "further nodes may be heard"
    caplog.clear()
    heard.run(5_000)
    assert "no other node" not in caplog.text


def test_a_carrier_that_cannot_be_opened_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.wire.broken = True
    world.group.start()
    node = world.broadcaster("u", "a")
    node.start("A")
    world.run(12_000)
    assert (world.group.state, node.state) == (GroupState.OPENING, BroadcastState.OPENING)
    assert [getattr(each, "id", "") for each in caplog.records].count("AMQ222116") == 1
    assert world.group.error == node.error == "no route"
    world.wire.broken = False
    world.run(REOPEN_MS)
    assert world.hosts() == ["a"]
    assert (world.group.error, node.error) == (None, None)


def test_a_broadcast_that_cannot_be_sent_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    node = world.broadcaster("u", "a")
    node.start("A")
    world.wire.broken = True
    world.run(10_000)
    assert [getattr(each, "id", "") for each in caplog.records].count("AMQ224033") == 1
    world.wire.broken = False
    world.run(2_000)
    assert (node.sent, node.failed, node.error) == (2, 5, None)


def test_too_many_connectors_are_an_error_of_the_group_only() -> None:
    world = World()
    node = world.broadcaster("u", *(f"h{number}" for number in range(BROADCAST_CONNECTORS_MAX + 1)))
    node.start("A")
    assert world.wire.sent == []
    assert str(BROADCAST_CONNECTORS_MAX) in str(node.error)


def test_a_stopped_group_forgets_and_hears_nothing() -> None:
    world = World()
    world.group.start()
    world.group.receive(datagram("A"), "")
    world.group.stop()
    world.group.receive(datagram("B"), "")
    assert world.hosts() == []
    assert world.wire.receivers == []
    world.run(30_000)
    assert world.changes == [["a"]]


@pytest.mark.parametrize("state", list(GroupState))
@pytest.mark.parametrize("event", list(GroupEvent))
def test_every_pair_of_a_group_is_written(state: GroupState, event: GroupEvent) -> None:
    group = World().group
    group._state = state
    if Group.TABLE[state, event] is ILLEGAL:
        with pytest.raises(MachineError):
            group.fire(event)
    else:
        group.fire(event)


@pytest.mark.parametrize("state", list(BroadcastState))
@pytest.mark.parametrize("event", list(BroadcastEvent))
def test_every_pair_of_a_broadcaster_is_written(state: BroadcastState, event: BroadcastEvent) -> None:
    node = World().broadcaster("u", "a")
    node._state = state
    if Broadcaster.TABLE[state, event] is ILLEGAL:
        with pytest.raises(MachineError):
            node.fire(event)
    else:
        node.fire(event)
