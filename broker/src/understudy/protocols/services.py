"""Services given to the connections of every protocol; created by ``broker``."""

from __future__ import annotations

from dataclasses import field

from understudy.dataclass import dataclass
from understudy.ports import Clock, Connection, Entropy
from understudy.protocols.access import Access
from understudy.protocols.registry import ConnectionRegistry
from understudy.session.connection_scope import ConnectionScope
from understudy.session.error_texts import ErrorTexts
from understudy.session.services import SessionServices


@dataclass(slots=True)
class ProtocolServices:
    """Services of an active node that do not depend on a protocol."""

    node_id: str
    clock: Clock
    entropy: Entropy
    sessions: SessionServices
    """Objects that all sessions share; each ``ServerSession`` gets them."""
    access: Access
    connections: ConnectionRegistry = field(default_factory=ConnectionRegistry)
    error_texts: ErrorTexts = field(default_factory=ErrorTexts)
    connection_ttl_override_ms: int = -1
    """Connection TTL of all clients (connection-ttl-override); -1: each client chooses."""
    epoch: int = 0
    """Epoch in which the node serves, stated to each client that makes a session; 0: none."""

    def new_scope(self, protocol: str, connection: Connection) -> ConnectionScope:
        """The scope of a new connection.

        Args:
            protocol: Name for management.
        """
        subject = connection.certificate_subject
        return ConnectionScope(
            self.entropy.token(8).hex(),
            protocol=protocol,
            remote_address=connection.peer,
            certificate_subject=subject.text if subject is not None else None,
            created_ms=self.clock.wall_ms(),
        )
