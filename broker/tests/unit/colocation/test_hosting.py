"""The backups that a node hosts: whom it accepts, and how they outlive a restart (artemis-ha s. 5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from understudy.cluster.colocation.hosting import RESTART_MS_MAX, Hosting
from understudy.cluster.membership.backup_host import Requester
from understudy.config.colocated import HostedBackup
from understudy.config.high_availability import (
    ColocatedConfiguration,
    HighAvailabilityPolicy,
    ReplicationConfiguration,
    Role,
)
from understudy.errors import DiskFailed
from understudy.testing.manual_time import ManualTime
from understudy.wire.core.packets import BackupRequest, BackupVote
from understudy.wire.core.transport import TransportConfiguration

SHARED = ColocatedConfiguration(
    HighAvailabilityPolicy(Role.BACKUP), max_backups=2, backup_request_retry_interval_ms=1000
)
REPLICAS = replace(
    SHARED, backup=HighAvailabilityPolicy(Role.BACKUP, replication=ReplicationConfiguration(group_name="g"))
)


class World:
    """Notes and starter of one host, and the hosts that use them one after the other."""

    def __init__(self, colocated: ColocatedConfiguration = SHARED) -> None:
        self.colocated = colocated
        self.place = "/i/notes"
        self.data: bytes | None = None
        self.fails = False
        self.reason: str | None = None
        self.started: list[HostedBackup] = []
        self.ended: dict[str, Callable[[bool], None]] = {}
        self.time = ManualTime()
        self.host = self.restart()

    def restart(self) -> Hosting:
        self.host = Hosting(self.colocated, lambda: "me", self, self, self.time)
        return self.host

    def read(self) -> bytes | None:
        return self.data

    def write(self, data: bytes) -> None:
        if self.fails:
            raise DiskFailed("full")
        self.data = data

    def refusal(self, backup: HostedBackup) -> str | None:
        return self.reason

    def start(self, backup: HostedBackup, ended: Callable[[bool], None]) -> None:
        self.started.append(backup)
        self.ended[backup.node_id] = ended

    def ask(self, node: str, size: int = 0, group: str | None = None, *, shared: bool = True) -> str | None:
        connector = TransportConfiguration("n", parameters={"host": node, "port": "7", "sslEnabled": "true"})
        directories = ("/j", "/b", "/l", "/p") if shared else ()
        return self.host.host(Requester(node, connector, group), BackupRequest(size, *directories, node_id=node))


def test_a_request_is_accepted_and_noted() -> None:
    world = World()
    assert world.ask("a") is None
    [backup] = world.started
    assert (backup.place, backup.name, backup.node_id) == (0, "colocated_backup_01", "a")
    assert (backup.requester.host, backup.requester.port) == ("a", 7)
    assert backup.requester.parameters == {"sslEnabled": "true"}
    assert world.data is not None


def test_votes_count_backups_and_prefer_the_present_host() -> None:
    world = World()
    world.ask("a")
    assert world.host.vote("b") == BackupVote(1, "me", available=True)
    assert world.host.vote(None) == BackupVote(1, "me", available=True)
    assert world.host.vote("a") == BackupVote(0, "me", available=True)
    world.ask("b", 1)
    assert world.host.vote("c") == BackupVote(2, "me", available=False)


@pytest.mark.parametrize(("node", "size", "reason"), [
    ("me", 1, "node id of this node"), ("b", 0, "the request expects 0"), ("b", 2, "the request expects 2"),
])  # fmt: skip
def test_refusals(node: str, size: int, reason: str) -> None:
    world = World()
    world.ask("a")
    refusal = world.ask(node, size)
    assert refusal is not None
    assert reason in refusal


def test_max_backups_is_the_limit() -> None:
    world = World()
    assert [world.ask(node, size) for size, node in enumerate("ab")] == [None, None]
    assert "max-backups is 2" in str(world.ask("c", 2))
    assert world.ask("a", 2) is None, "it is hosted already"
    assert len(world.started) == 2


def test_stores_and_groups_must_fit() -> None:
    assert "names no directories" in str(World().ask("a", shared=False))
    replicas = World(REPLICAS)
    assert "are replicas" in str(replicas.ask("a", group="g"))
    assert "group-name" in str(replicas.ask("a", group="h", shared=False))
    assert replicas.ask("a", group="g", shared=False) is None
    assert replicas.started[0].directories is None


def test_a_backup_that_cannot_be_started_or_noted_has_no_place() -> None:
    world = World()
    world.reason = "not the store"
    assert world.ask("a") == "not the store"
    world.reason, world.fails = None, True
    assert "full" in str(world.ask("a"))
    assert (world.started, world.host.vote("b").backups) == ([], 0)


def test_after_a_restart_the_same_backups_are_started_in_the_same_places() -> None:
    world = World()
    world.ask("a")
    world.ask("b", 1)
    world.ended["a"](True)
    before = [each for each in world.started if each.node_id == "b"]
    world.started.clear()
    world.restart().restore()
    assert world.started == before
    assert world.ask("c", 1) is None
    assert world.started[-1].place == 0, "the first free place, not the number of backups"


def test_a_failed_backup_keeps_its_place_and_is_started_again_later_each_time() -> None:
    world = World()
    world.ask("a")
    for wait_ms in (1000, 2000, 4000):
        world.ended["a"](False)
        count = len(world.started)
        world.time.advance(wait_ms - 1)
        assert len(world.started) == count
        world.time.advance(1)
        assert len(world.started) == count + 1
    for _ in range(40):
        world.ended["a"](False)
        world.time.advance(RESTART_MS_MAX)
    assert world.host.running == {"a"}
    world.ended["a"](False)
    world.host.close()
    world.time.advance(RESTART_MS_MAX)
    assert not world.host.running


@pytest.mark.parametrize("data", [
    b"{", b"[]", b'{"version": 2, "backups": []}', b'{"version": 1, "backups": [{}]}',
    b'{"version": 1, "backups": [{"place": "x", "node_id": "a", "requester": {}, "directories": null}]}',
])  # fmt: skip
def test_a_damaged_file_is_kept_and_no_backup_is_accepted(data: bytes) -> None:
    world = World()
    world.data = data
    world.host.restore()
    assert world.started == []
    assert not world.host.vote("a").available
    assert str(world.ask("a")).startswith("/i/notes: ")
    assert world.data == data


def test_an_empty_file_is_one_without_backups() -> None:
    world = World()
    world.data = bytes(16)
    world.host.restore()
    assert world.started == []
