"""The link of a channel whose client has no connection: what the channel sends is dropped (ADR 0195)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from understudy.protocols.amqp091.link import Amqp091Services, ConnectionLink, HeldInput, Peer
from understudy.protocols.amqp091.runs.ways import Ways
from understudy.routing.memory import AddressMemory
from understudy.session.connection_scope import ConnectionScope
from understudy.wire.amqp091.codes import Amqp091Error
from understudy.wire.amqp091.frames import FrameDecoder
from understudy.wire.amqp091.layout import Method

log = logging.getLogger(__name__)


class AbsentLink:
    """Implements ``ConnectionLink``. An error for which a connection would end ends the channel."""

    def __init__(self, link: ConnectionLink, scope: ConnectionScope, end: Callable[[], None]) -> None:
        """Take the place of a connection.

        Args:
            link: The connection that has ended.
            scope: Scope of the session.
            end: Ends the channel.
        """
        self.services: Amqp091Services = link.services
        self.scope = scope
        self.peer: Peer = link.peer
        shared = link.services.shared
        # nothing is read
        self.held = HeldInput(FrameDecoder(0), shared.sessions.post_office.timers, shared.clock, lambda: None)
        self.ways = Ways()
        self._end = end

    def send_bytes(self, data: bytes) -> None:
        """Do nothing: there is no client."""

    def send(self, method: Method, channel: int) -> None:
        """Do nothing: there is no client."""

    def writable(self) -> bool:
        return False

    def refuse(self, error: Amqp091Error, method: Method | None) -> None:
        self.kill(str(error))

    def abort(self) -> None:
        """Do nothing: there is no socket."""

    def kill(self, reason: str) -> None:
        log.warning("channel ended without its client", extra={"peer": self.scope.remote_address, "reason": reason})
        # the caller may be one of the objects that end with the channel
        self.services.shared.sessions.post_office.timers.call_later(0, self._end)

    def internal_error(self, bug: Exception) -> None:
        log.error("channel ended: internal error", extra={"peer": self.scope.remote_address}, exc_info=bug)
        self.services.shared.sessions.post_office.timers.call_later(0, self._end)

    def block(self, address: AddressMemory) -> None:
        """Do nothing: nothing is read."""

    def unblock(self) -> None:
        """Do nothing: nothing is read."""

    def channel_ended(self, number: int) -> None:
        """Do nothing: the session has the channel."""
