"""State that the sessions of one connection share: temporary queues that are deleted with it, and the text that its
sessions make the broker keep.

The text is metadata, addresses of producers and the names of sessions. None of it needs a permission, so it is bounded
for each session and for all sessions of a connection. The unit is characters, with ``ENTRY_CHARACTERS`` for the objects
around each text. Not here: messages and the content of queues, which permissions and address settings bound.
"""

from __future__ import annotations

from typing import Final

from understudy.errors import LimitExceeded
from understudy.limits import NAMES_OF_CONNECTION_CHARACTERS_MAX, NAMES_OF_SESSION_CHARACTERS_MAX
from understudy.routing.lifecycle.auto_deletion import delete_unbound
from understudy.routing.post_office import PostOffice
from understudy.routing.queues.queue import Queue


class ConnectionScope:
    """One client connection of any protocol, for its sessions and for management."""

    def __init__(
        self,
        connection_id: str,
        *,
        protocol: str = "CORE",
        client_id: str | None = None,
        remote_address: str = "",
        certificate_subject: str | None = None,
        created_ms: int = 0,
    ) -> None:
        self.connection_id = connection_id
        self.protocol = protocol
        """Name of the protocol as management displays it."""
        self.client_id = client_id
        self.remote_address = remote_address
        self.certificate_subject = certificate_subject
        """Distinguished name of the verified certificate of the client; None: it has presented none."""
        self.created_ms = created_ms
        """Wall time in ms at which the connection was made."""
        self.held_characters = 0
        """Characters of names and metadata of its sessions (``connection_scope``)."""
        self.temporary_queues: dict[str, Queue] = {}
        """Queues by name, in the order of creation; deleted with the connection."""
        self.keeps_left_queues = False
        """Whether queues that go with their last consumer are kept for a client that may come back."""
        self.left_queues: dict[str, Queue] = {}
        """Such queues by name, since their last consumer has left."""

    def adopt(self, other: ConnectionScope) -> None:
        """The client has reattached from the other connection: move its temporary queues and client id here."""
        if other is self:
            return
        self.temporary_queues |= other.temporary_queues
        other.temporary_queues.clear()
        if self.client_id is None:
            self.client_id = other.client_id

    def delete_temporary_queues(self, office: PostOffice) -> None:
        """Called when the connection was lost and all its sessions are closed."""
        queues, self.temporary_queues = self.temporary_queues, {}
        for name, queue in queues.items():
            # the queue may have been deleted before, and another one may have its name now
            if office.directory.queues.get(name) is queue:
                office.directory.delete_queue(name, disconnect=True)
                delete_unbound(office.directory, queue.address.name)

    def delete_left_queues(self, office: PostOffice) -> None:
        """Called when the client does not come back: delete the queues that were kept for it and have no consumer."""
        queues, self.left_queues = self.left_queues, {}
        for name, queue in queues.items():
            if office.directory.queues.get(name) is queue and not queue.consumers.count:
                office.directory.delete_queue(name)
                delete_unbound(office.directory, queue.address.name)


#: What the objects around one text cost, in characters.
ENTRY_CHARACTERS: Final = 100


class HeldNames:
    """Texts that one session makes the broker keep."""

    __slots__ = ("_scope", "characters")

    def __init__(self, scope: ConnectionScope) -> None:
        self._scope = scope
        self.characters = 0

    def has_space(self, length: int) -> bool:
        """Whether a text of ``length`` characters would be within the limits."""
        cost = length + ENTRY_CHARACTERS
        return (
            self.characters + cost <= NAMES_OF_SESSION_CHARACTERS_MAX
            and self._scope.held_characters + cost <= NAMES_OF_CONNECTION_CHARACTERS_MAX
        )

    def hold(self, length: int) -> None:
        """Count a text of ``length`` characters.

        Raises:
            LimitExceeded: the session or its connection holds too much; nothing was counted.
        """
        if not self.has_space(length):
            raise LimitExceeded(
                f"names and metadata of {self.characters} characters in a session and {self._scope.held_characters} in "
                f"its connection, limits {NAMES_OF_SESSION_CHARACTERS_MAX} and {NAMES_OF_CONNECTION_CHARACTERS_MAX}"
            )
        self.characters += length + ENTRY_CHARACTERS
        self._scope.held_characters += length + ENTRY_CHARACTERS

    def release(self, length: int) -> None:
        """A text of ``length`` characters that was counted is gone."""
        self.characters -= length + ENTRY_CHARACTERS
        self._scope.held_characters -= length + ENTRY_CHARACTERS

    def move(self, scope: ConnectionScope) -> None:
        """Called when the session goes on at another connection, which may exceed its limit by this until it ends."""
        self._scope.held_characters -= self.characters
        self._scope = scope
        scope.held_characters += self.characters

    def close(self) -> None:
        """Called when the session has ended."""
        self._scope.held_characters -= self.characters
        self.characters = 0
