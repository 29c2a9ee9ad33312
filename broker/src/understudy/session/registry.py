"""All sessions of a node: by name, and by the metadata that only one of them may carry; and their unfinished uploads.

``jms-client-id`` is such metadata (artemis-core s. 6.1): two connections with one client id would share its durable
subscriptions. An unfinished large message keeps a file of the node open, and the node has a limited number of files
(``LARGE_MESSAGES_UNFINISHED_MAX``): without limits for each connection and user, one client could take all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

from understudy.errors import DuplicateMetadata, LimitExceeded, NotAuthorized, SessionRejected
from understudy.limits import LARGE_MESSAGES_UNFINISHED_OF_CONNECTION_MAX, LARGE_MESSAGES_UNFINISHED_OF_USER_MAX
from understudy.routing.queues.queue import Queue
from understudy.session.callback import SessionSecurity
from understudy.terms import ResourceLimits


class Permitted(Protocol):
    """The sending side of a session, as the registry uses it."""

    def forget_permissions(self) -> None:
        """Ask for permission before the next message to each address."""


class Identified(Protocol):
    """The state of a session, as the registry uses it."""

    name: str
    metadata: dict[str, str]
    security: SessionSecurity

    @property
    def alias(self) -> str:
        """Name for display."""
        ...


class Registered(Protocol):
    """A session, as the registry uses it."""

    @property
    def state(self) -> Identified:
        """Name, metadata and user of the session."""
        ...

    @property
    def sends(self) -> Permitted:
        """The sending side of the session."""
        ...


S = TypeVar("S", bound=Registered)
L = TypeVar("L", bound=Registered, contravariant=True)


class SessionListener(Protocol[L]):
    """Called when sessions are added and removed."""

    def session_added(self, session: L) -> None:
        """Called when a session was created."""

    def session_removed(self, session: L) -> None:
        """Called when a session has ended."""


class SessionRegistry(Generic[S]):
    """The open sessions of a node."""

    def __init__(self, limits: Mapping[str, ResourceLimits] | None = None) -> None:
        """``limits``: per user name, of users that have resource limits (manual, "Resource Limits")."""
        self._limits = limits or {}
        self.listeners: list[SessionListener[S]] = []
        self.uploads = UploadSlots()
        """Unfinished large messages of all sessions."""
        self.total = 0
        """Number of sessions created since the activation."""
        self._by_name: dict[str, S] = {}
        self._unique: dict[tuple[str, str], Identified] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[S]:
        return iter(list(self._by_name.values()))

    def forget_permissions(self) -> None:
        """Make every session ask for permission again before its next message: an answer may be another one now."""
        for session in self._by_name.values():
            session.sends.forget_permissions()

    def check_sessions(self, user: str) -> None:
        """Whether a user may have one more session. Raises SessionRejected."""
        limits = self._limits.get(user)
        if limits is not None and limits.max_sessions >= 0:
            count = sum(session.state.security.user == user for session in self._by_name.values())
            if count >= limits.max_sessions:
                raise SessionRejected(f"user {user!r} has {count} sessions, limit {limits.max_sessions}")

    def check_queues(self, user: str, queues: Iterable[Queue]) -> None:
        """Whether a user may make one more queue beside these. Raises NotAuthorized, as Artemis does."""
        limits = self._limits.get(user)
        if limits is not None and limits.max_queues >= 0:
            count = sum(queue.configuration.user == user for queue in queues)
            if count >= limits.max_queues:
                raise NotAuthorized(f"user {user!r} has made {count} queues, limit {limits.max_queues}")

    def get(self, name: str) -> S | None:
        """The session of a name."""
        return self._by_name.get(name)

    def add(self, session: S) -> None:
        """Add a new session; a name that is taken goes to the newer one."""
        self._by_name[session.state.name] = session
        self.total += 1
        for listener in self.listeners:
            listener.session_added(session)

    def remove(self, session: S) -> None:
        """Remove a closed session; its unique metadata is free again."""
        if self._by_name.get(session.state.name) is session:
            del self._by_name[session.state.name]
        for pair in [pair for pair, owner in self._unique.items() if owner is session.state]:
            del self._unique[pair]
        for listener in self.listeners:
            listener.session_removed(session)

    def claim(self, state: Identified, key: str, value: str) -> None:
        """The pair is this session's alone; to be asked for with ``check_free`` before."""
        self._unique[key, value] = state

    def check_free(self, state: Identified, key: str, value: str) -> None:
        """Raises DuplicateMetadata if another session carries the pair, unique or not."""
        owner = self._unique.get((key, value))
        if owner is None:
            owner = next((other.state for other in self if other.state.metadata.get(key) == value), None)
        if owner is not None and owner is not state:
            raise DuplicateMetadata(f"session {owner.alias} has {key}={value!r}")


class UploadSlots:
    """Unfinished large messages of a node, counted by connection and by user."""

    def __init__(self) -> None:
        self._counts: Counter[Hashable] = Counter()

    def take(self, connection_id: str, user: str, node_max: int) -> UploadSlot:
        """Called when a large message is announced.

        Args:
            node_max: How many may be unfinished on the node; one user may have half of them.

        Raises:
            LimitExceeded: the connection or the user has too many.
        """
        of_user = min(LARGE_MESSAGES_UNFINISHED_OF_USER_MAX, max(node_max // 2, 1))
        keys = {
            ("connection", connection_id): min(LARGE_MESSAGES_UNFINISHED_OF_CONNECTION_MAX, of_user),
            ("user", user): of_user,
        }
        for key, maximum in keys.items():
            if self._counts[key] >= maximum:
                raise LimitExceeded(f"{maximum} unfinished large messages of one {key[0]}", hint="try again later")
        self._counts.update(keys.keys())
        return UploadSlot(self._counts, tuple(keys))


class UploadSlot:
    """Slot of one unfinished large message."""

    __slots__ = ("_counts", "_keys")

    def __init__(self, counts: Counter[Hashable], keys: tuple[Hashable, ...]) -> None:
        self._counts = counts
        self._keys = keys

    def release(self) -> None:
        """Free the slot of an upload that is finished or given up. Does nothing the second time."""
        for key in self._keys:
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]
        self._keys = ()
