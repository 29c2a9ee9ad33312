"""State that the sessions of one connection share, such as the temporary queues that are deleted with it."""

from __future__ import annotations

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
        """Characters of names and metadata of its sessions (``held_names``)."""
        self.temporary_queues: dict[str, Queue] = {}
        """Queues by name, in the order of creation; deleted with the connection."""

    def adopt(self, other: ConnectionScope) -> None:
        """The client has reattached from the other connection: move its temporary queues and client id here."""
        if other is self:
            return
        self.temporary_queues |= other.temporary_queues
        other.temporary_queues.clear()
        if self.client_id is None:
            self.client_id = other.client_id

    def delete_temporary_queues(self, office: PostOffice) -> None:
        """The connection was lost and all its sessions are closed."""
        queues, self.temporary_queues = self.temporary_queues, {}
        for name, queue in queues.items():
            # it may have been deleted before, and another queue may have its name by now
            if office.directory.queues.get(name) is queue:
                office.directory.delete_queue(name, disconnect=True)
                delete_unbound(office.directory, queue.address.name)
