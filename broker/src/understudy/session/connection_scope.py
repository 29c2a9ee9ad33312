"""What the sessions of one connection share: the queues that go when the connection goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy.errors import QueueNotFound

if TYPE_CHECKING:
    from understudy.routing.post_office import PostOffice


class ConnectionScope:
    """One client connection, as sessions see it."""

    def __init__(self, connection_id: str, *, client_id: str | None = None, remote_address: str = "") -> None:
        self.connection_id = connection_id
        self.client_id = client_id
        self.remote_address = remote_address
        self.temporary_queues: dict[str, None] = {}
        """Names, in the order they were made."""

    def adopt(self, other: ConnectionScope) -> None:
        """The client has come back on this connection: what went with the other stays with this."""
        if other is self:
            return
        self.temporary_queues |= other.temporary_queues
        other.temporary_queues.clear()
        if self.client_id is None:
            self.client_id = other.client_id

    def delete_temporary_queues(self, office: PostOffice) -> None:
        """The connection is gone, and all its sessions are closed."""
        for name in list(self.temporary_queues):
            del self.temporary_queues[name]
            try:
                office.directory.delete_queue(name, disconnect=True)
            except QueueNotFound:
                # Deleted before, by its client or by the management.
                continue
