"""Operations of ``broker`` on connections, sessions, consumers and producers of clients.

Closing is done after the reply, so that a client that closes its own connection receives it.
Sessions are identified by an alias: their names are secret (ADR 0009).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Final

from understudy.errors import ManagementError
from understudy.management.doors import artemis
from understudy.management.doors.listing import PageRequest, page_of
from understudy.management.json_text import to_json
from understudy.management.operations.invocation import Control
from understudy.management.operations.table import Operation, flag, integer, operation, text
from understudy.management.snapshot.clients import (
    connection_rows,
    consumer_rows,
    producer_rows,
    session_rows,
    sessions_of,
)
from understudy.protocols.registry import ClientConnection
from understudy.session.consumer import ServerConsumer

Steps = Generator[None, None, str]
"""A text that is made in slices."""


def _connections(control: Control) -> list[ClientConnection]:
    return list(control.node.services.connections.connections)


def _consumers(control: Control) -> Sequence[ServerConsumer]:
    return consumer_rows(control.node).sources


# -- pages --------------------------------------------------------------------------------------------


def page_of_connections(control: Control, options: str | None, page: int, page_size: int) -> Steps:
    """A page of the rows of connections, as JSON."""
    request, rows = PageRequest(options, page, page_size), connection_rows(control.node)
    return page_of(rows, artemis.CONNECTIONS, request, sort="connectionID", texts=False)


def page_of_sessions(control: Control, options: str | None, page: int, page_size: int) -> Steps:
    """A page of the rows of sessions, as JSON."""
    request, rows = PageRequest(options, page, page_size), session_rows(control.node)
    return page_of(rows, artemis.SESSIONS, request, sort="id", texts=False)


def page_of_consumers(control: Control, options: str | None, page: int, page_size: int) -> Steps:
    """A page of the rows of consumers, as JSON."""
    return page_of(consumer_rows(control.node), artemis.CONSUMERS, PageRequest(options, page, page_size), sort="id")


def page_of_producers(control: Control, options: str | None, page: int, page_size: int) -> Steps:
    """A page of the rows of producers, as JSON."""
    return page_of(producer_rows(control.node), artemis.PRODUCERS, PageRequest(options, page, page_size), sort="id")


# -- lists --------------------------------------------------------------------------------------------


def connections_as_json(control: Control) -> str:
    """All connections as JSON."""
    return to_json(list(map(artemis.connection_json, connection_rows(control.node).items())))


def sessions_as_json(control: Control, connection_id: str | None = None) -> str:
    """Sessions as JSON: of one connection, or all."""
    rows = session_rows(control.node)
    found = [each for each in rows.items() if connection_id in (None, each.connection)]
    return to_json(list(map(artemis.session_json, found)))


def consumers_as_json(control: Control, connection_id: str | None = None) -> str:
    """Consumers as JSON: of one connection, or all."""
    rows = consumer_rows(control.node)
    found = [each for each in rows.items() if connection_id in (None, each.connection)]
    return to_json(list(map(artemis.consumer_of_queue_json, found)))


def producers_as_json(control: Control) -> str:
    """All registered producers as JSON."""
    return to_json(list(map(artemis.producer_json, producer_rows(control.node).items())))


def remote_addresses(control: Control, host: str = "") -> list[str]:
    """Remote addresses of the connections that begin with ``host``."""
    return [
        connection.scope.remote_address
        for connection in _connections(control)
        if connection.scope.remote_address.startswith(host)
    ]


def session_ids(control: Control, connection_id: str) -> list[str]:
    """Aliases of the sessions of a connection."""
    return [session.state.alias for session in sessions_of(control.node, connection_id)]


# -- closing ------------------------------------------------------------------------------------------


def _close_connections(control: Control, chosen: Iterable[ClientConnection]) -> bool:
    closing = list(chosen)
    for connection in closing:
        _behind_the_answer(control, partial(connection.fail, ManagementError("closed by an operator")))
    return bool(closing)


def _behind_the_answer(control: Control, call: Callable[[], None]) -> None:
    control.node.timers.call_later(0, call)


def close_for_address(control: Control, host: str) -> bool:
    """Close the connections whose remote address begins with ``host``."""
    if not host:
        raise ManagementError("no address was given")
    return _close_connections(
        control, (each for each in _connections(control) if each.scope.remote_address.startswith(host))
    )


def close_consumers_of_address(control: Control, address: str) -> bool:
    """Close the connections that consume from an address."""
    chosen = {
        consumer.session.connection.connection_id
        for consumer in _consumers(control)
        if consumer.queue.address.name == address
    }
    return _close_connections(control, (each for each in _connections(control) if each.scope.connection_id in chosen))


def close_for_user(control: Control, user: str) -> bool:
    """Close the connections that have a session of a user."""
    chosen = {
        session.state.connection.connection_id
        for session in sessions_of(control.node)
        if session.state.security.user == user
    }
    return _close_connections(control, (each for each in _connections(control) if each.scope.connection_id in chosen))


def close_connection(control: Control, connection_id: str) -> bool:
    """Close the connection with an id; whether there was one."""
    return _close_connections(
        control, (each for each in _connections(control) if each.scope.connection_id == connection_id)
    )


def close_session(control: Control, connection_id: str, session_id: str, force: bool = False) -> bool:
    """Close a session: consumers are notified, open transactions rolled back. ``force`` has no effect."""
    for connection in _connections(control):
        if connection.scope.connection_id != connection_id:
            continue
        for session in connection.open_sessions():
            if session.state.alias == session_id:
                _behind_the_answer(control, partial(connection.end_session, session))
                return True
    return False


def close_consumer(control: Control, session_id: str, consumer_id: str) -> bool:
    """Close a consumer of a session; whether there was one."""
    for session in sessions_of(control.node):
        if session.state.alias == session_id:
            for consumer in session.consumers.by_id.values():
                if str(consumer.consumer_id) == consumer_id:
                    _behind_the_answer(control, consumer.disconnect)
                    return True
    return False


_OPTIONS: Final = (text("options", nullable=True), integer("pageNumber"), integer("pageSize"))
_CONNECTION: Final = text("connectionID")

OPERATIONS: Final[tuple[Operation, ...]] = (
    operation("getConnectionCount", lambda c: len(_connections(c)), "Open connections.", returns=int),
    operation("getSessionCount", lambda c: len(sessions_of(c.node)), "Open sessions.", returns=int),
    operation("getTotalConnectionCount", lambda c: c.node.services.connections.total, "Connections so far.",
              returns=int),
    operation("getTotalSessionCount", lambda c: c.node.services.sessions.registry.total, "Sessions so far.",
              returns=int),
    operation("getTotalConsumerCount", lambda c: len(_consumers(c)), "Consumers and browsers.", returns=int),
    operation("listConnections", page_of_connections, "A page of connections (options below).", *_OPTIONS),
    operation("listSessions", page_of_sessions, "A page of sessions (options below).", *_OPTIONS),
    operation("listSessions", session_ids, "Aliases of the sessions of a connection.", _CONNECTION),
    operation("listConsumers", page_of_consumers, "A page of consumers (options below).", *_OPTIONS),
    operation("listProducers", page_of_producers, "A page of registered producers (options below).", *_OPTIONS),
    operation("listConnectionIDs", lambda c: [each.scope.connection_id for each in _connections(c)], "Ids.",
              returns=list[str]),
    operation("listRemoteAddresses", remote_addresses, "Remote addresses of the connections."),
    operation("listRemoteAddresses", remote_addresses, "Remote addresses that begin with a text.", text("ipAddress")),
    operation("listConnectionsAsJSON", connections_as_json, "Connections, as JSON."),
    operation("listSessionsAsJSON", sessions_as_json, "Sessions of a connection, as JSON.", _CONNECTION),
    operation("listAllSessionsAsJSON", sessions_as_json, "All sessions, as JSON."),
    operation("listConsumersAsJSON", consumers_as_json, "Consumers of a connection, as JSON.", _CONNECTION),
    operation("listAllConsumersAsJSON", consumers_as_json, "All consumers, as JSON."),
    operation("listProducersInfoAsJSON", producers_as_json, "Registered producers, as JSON."),
    operation("closeConnectionsForAddress", close_for_address, "Close connections by the beginning of their address.",
              text("ipAddress")),
    operation("closeConsumerConnectionsForAddress", close_consumers_of_address,
              "Close connections that consume from an address.", text("address")),
    operation("closeConnectionsForUser", close_for_user, "Close the connections of a user.", text("userName")),
    operation("closeConnectionWithID", close_connection, "Close one connection.", text("ID")),
    operation("closeSessionWithID", close_session, "Close one session.", _CONNECTION, text("ID")),
    operation("closeSessionWithID", close_session, "The same.", _CONNECTION, text("ID"), flag("force")),
    operation("closeConsumerWithID", close_consumer, "Close one consumer.", text("sessionID"), text("ID")),
)  # fmt: skip
