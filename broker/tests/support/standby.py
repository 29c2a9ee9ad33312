"""A node that is not active, around its machine, moved by a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.replica_links import ManualAuthority
from understudy.errors import ActivationRefused, BrokerError
from understudy.ha.replication.moved_store import LogEnd, MovedStore
from understudy.ha.replication.ports import Found
from understudy.ha.replication.standby_life import StandbyLife, Surroundings
from understudy.testing.manual_time import ManualTime

MOVED = MovedStore("node", 8, LogEnd(5, 700, 600))


class ManualReplica:
    """Implements ``ha.replication.ports.Replica``."""

    def __init__(self) -> None:
        self.seeks = 0
        self.ended: list[Callable[[], None]] = []
        self.found = Found.NOTHING
        self.missing: list[str] = []
        """Members that gave no answer."""

        self.others_missing: list[str] = []
        """Members with other node ids that gave no answer."""

    def others_not_asked(self) -> list[str]:
        return list(self.others_missing)

    def not_asked(self) -> list[str]:
        return list(self.missing)

    def seek(self) -> None:
        self.seeks += 1

    def end(self, ended: Callable[[], None]) -> None:
        self.ended.append(ended)


class ManualListener:
    """Notes calls. Implements ``ha.replication.ports.Listener``."""

    def __init__(self, listening: list[bool]) -> None:
        self.listening = listening

    def open(self) -> None:
        self.listening.append(True)

    def close(self) -> None:
        self.listening.append(False)


class ManualEmptyStart:
    """Implements ``ha.replication.ports.EmptyStart``."""

    def __init__(self) -> None:
        self.pending = self.closed = False
        self.heard: MovedStore | None = None
        self.begun: list[MovedStore | None] = []
        self.ended: Callable[[BrokerError | None], None] = lambda error: None
        self.lacking = False

    def lacks(self, moved: MovedStore) -> bool:
        return self.lacking

    def hear(self, moved: MovedStore) -> None:
        self.heard = moved

    def is_pending(self) -> bool:
        return self.pending

    def begin(self, moved: MovedStore | None, ended: Callable[[BrokerError | None], None]) -> None:
        self.begun.append(moved)
        self.ended = ended

    def close(self) -> None:
        self.closed = True


class Node:
    """The node around the machine: records the decisions, and implements ``Decisions`` and ``Standby`` in part."""

    def __init__(self, *, complete: bool = True, empties: bool = False, **around: Any) -> None:
        """
        Args:
            empties: Whether the data is set aside when its messages have moved.
            around: Other ``Surroundings`` of the machine.
        """
        self.time = ManualTime()
        self.authority = ManualAuthority(complete=complete)
        self.replica = ManualReplica()
        self.calls: list[str] = []
        self.watching = 0
        """Calls of ``watch_cluster``."""
        self.empty = ManualEmptyStart()
        surroundings = Surroundings(empty_start=self.empty if empties else None, **around)
        self.life = StandbyLife(
            self,
            self,
            self.authority,
            self.time,
            lambda life: self.replica,
            surroundings,
            retry_wait_ms=2_000,  # type: ignore[arg-type]
        )

    def take_place(self) -> None:
        self.calls.append("take place")

    def activate(self) -> None:
        self.calls.append("activate")

    def queue_again(self) -> None:
        self.calls.append("queue again")

    def fail(self, error: BrokerError) -> None:
        self.calls.append(f"fail: {error}")

    def watch_cluster(self) -> None:
        self.watching += 1

    def announce(self) -> None:
        self.calls.append("announce")

    def follow(self) -> None:
        self.calls.append("follow")

    def set_aside(self) -> None:
        """All messages of the node have moved, as another node says and its authority finds out."""
        self.life.hear_moved(MOVED)
        self.authority.moved = MOVED

    def in_sync(self) -> None:
        """Get it into sync."""
        self.life.begin()
        if self.authority.requested is not None:
            self.authority.answer(ActivationRefused("stale"))
        self.life.accepted()
        self.life.in_sync()
        assert self.calls == ["take place", "follow"]
        self.calls.clear()
