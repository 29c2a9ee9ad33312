"""All sessions of a node: by name, and by the metadata that only one of them may carry.

``jms-client-id`` is such metadata (artemis-core s. 6.1): two connections with one client id would share its
durable subscriptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from understudy.config.model import ResourceLimits
from understudy.errors import DuplicateMetadata, NotAuthorized, SessionRejected
from understudy.session.upload_slots import UploadSlots

if TYPE_CHECKING:
    from understudy.routing.queues.queue import Queue
    from understudy.session.session import ServerSession


class SessionListener(Protocol):
    """Called when sessions are added and removed."""

    def session_added(self, session: ServerSession) -> None: ...

    def session_removed(self, session: ServerSession) -> None: ...


class SessionRegistry:
    """Sessions that are open."""

    def __init__(self, limits: Mapping[str, ResourceLimits] | None = None) -> None:
        """``limits``: of users that have some, by name (manual, "Resource Limits")."""
        self._limits = limits or {}
        self.listeners: list[SessionListener] = []
        self.uploads = UploadSlots()
        """Their unfinished large messages."""
        self.total = 0
        """Sessions made since the activation."""
        self._by_name: dict[str, ServerSession] = {}
        self._unique: dict[tuple[str, str], ServerSession] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[ServerSession]:
        return iter(list(self._by_name.values()))

    def check_sessions(self, user: str) -> None:
        """Whether a user may have one more session. Raises SessionRejected."""
        limits = self._limits.get(user)
        if limits is not None and limits.max_sessions >= 0:
            count = sum(session.security.user == user for session in self._by_name.values())
            if count >= limits.max_sessions:
                raise SessionRejected(f"user {user!r} has {count} sessions, limit {limits.max_sessions}")

    def check_queues(self, user: str, queues: Iterable[Queue]) -> None:
        """Whether a user may make one more queue beside these. Raises NotAuthorized, as Artemis does."""
        limits = self._limits.get(user)
        if limits is not None and limits.max_queues >= 0:
            count = sum(queue.configuration.user == user for queue in queues)
            if count >= limits.max_queues:
                raise NotAuthorized(f"user {user!r} has made {count} queues, limit {limits.max_queues}")

    def get(self, name: str) -> ServerSession | None:
        """The session of a name."""
        return self._by_name.get(name)

    def add(self, session: ServerSession) -> None:
        """A new one; a name that is taken goes to the newer session."""
        self._by_name[session.name] = session
        self.total += 1
        for listener in self.listeners:
            listener.session_added(session)

    def remove(self, session: ServerSession) -> None:
        """It closed; its unique metadata is free again."""
        if self._by_name.get(session.name) is session:
            del self._by_name[session.name]
        for pair in [pair for pair, owner in self._unique.items() if owner is session]:
            del self._unique[pair]
        for listener in self.listeners:
            listener.session_removed(session)

    def claim(self, session: ServerSession, key: str, value: str) -> None:
        """The pair is this session's alone; to be asked for with ``check_free`` before."""
        self._unique[key, value] = session

    def check_free(self, session: ServerSession, key: str, value: str) -> None:
        """Raises DuplicateMetadata if another session carries the pair, unique or not."""
        owner = self._unique.get((key, value))
        if owner is None:
            owner = next((other for other in self if other.metadata.get(key) == value), None)
        if owner is not None and owner is not session:
            raise DuplicateMetadata(f"session {owner.alias} has {key}={value!r}")
