"""Messages that a session sends to the management address: requests, never queued.

The session asks for the manage permission, and for the permission to send to the reply address,
before anything is done; the reply goes out when everything that was done is durable. It takes no
part in the session's transaction: its effects cannot be rolled back either.

Not here: what a request asks for (``understudy.management``, which implements the port).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from understudy.errors import BrokerError
from understudy.message import REPLY_TO, Message
from understudy.routing.post_office import Done, PostOffice, ResponseOrder
from understudy.session.connection_scope import ConnectionScope
from understudy.session.security import SessionSecurity
from understudy.terms import Permission

#: How JMS clients write the kind of a destination before its name (artemis-core s. 10.1).
_PREFIXES: Final = ("queue://", "topic://", "temp-queue://", "temp-topic://")


class Management(Protocol):
    """Executes the requests."""

    address: str
    """The management address."""

    def handle(
        self, request: Message, security: SessionSecurity, remote_address: str, reply: Callable[[Message], None]
    ) -> None:
        """Carry out a request and give its reply, now or later; without an address."""
        ...


class ManagingSession(Protocol):
    """The session that sent a request."""

    security: SessionSecurity
    connection: ConnectionScope
    order: ResponseOrder

    def reply_failed(self, error: BrokerError) -> None:
        """The reply could not be sent."""


def manage(
    session: ManagingSession,
    office: PostOffice,
    permit: Callable[[str], object],
    management: Management,
    request: Message,
    done: Done | None,
) -> None:
    """Execute a request of a session.

    Args:
        office: Sends the reply.
        permit: Checks that the session may send to an address.
        management: Executes the request.
        request: The message.
        done: Called when the effects of the request are durable.

    Raises:
        NotAuthorized: the session may not manage, or not send the reply; nothing was done.
    """
    session.security.check(Permission.MANAGE, management.address)
    reply_to = _reply_address(request)
    if reply_to is not None:
        permit(reply_to)

    def reply(message: Message) -> None:
        if reply_to is None:
            return
        # what the reply reports must be durable
        session.order.sequence = max(session.order.sequence, office.store.context.appended)
        try:
            office.send(message.replace(address=reply_to), session.order)
        except BrokerError as error:
            session.reply_failed(error)

    management.handle(request, session.security, session.connection.remote_address, reply)
    office.acceptance.answer(session.order, done, office.store.context.appended)


def _reply_address(request: Message) -> str | None:
    address = request.properties.get(REPLY_TO)
    if not isinstance(address, str):
        return None
    for prefix in _PREFIXES:
        if address.startswith(prefix):
            return address.removeprefix(prefix)
    return address
