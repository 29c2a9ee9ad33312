"""Connections, sessions, consumers, producers and transactions of an active broker."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Final

from understudy.ids import Xid
from understudy.management.model import clients
from understudy.management.operations.invocation import ManagedNode
from understudy.management.snapshot.rows import Rows
from understudy.protocols.registry import ClientConnection
from understudy.session.branch import Branch, Kind
from understudy.session.consumer import ServerConsumer
from understudy.session.send_requests import ServerProducer
from understudy.session.session import ServerSession

CONNECTION: Final[Mapping[str, Callable[[ClientConnection], object]]] = {
    "id": lambda connection: connection.scope.connection_id,
    "remote_address": lambda connection: connection.scope.remote_address,
    "users": lambda connection: sorted({session.state.security.user for session in connection.open_sessions()}),
    "created_ms": lambda connection: connection.scope.created_ms,
    "protocol": lambda connection: connection.scope.protocol,
    "client_id": lambda connection: connection.scope.client_id,
    "certificate_subject": lambda connection: connection.scope.certificate_subject,
    "session_count": lambda connection: len(connection.open_sessions()),
}

SESSION: Final[Mapping[str, Callable[[ServerSession], object]]] = {
    "id": lambda session: session.state.alias,
    "user": lambda session: session.state.security.user,
    "created_ms": lambda session: session.state.created_ms,
    "consumer_count": lambda session: len(session.consumers.by_id),
    "producer_count": lambda session: len(session.sends.producers),
    "connection": lambda session: session.state.connection.connection_id,
    "client_id": lambda session: session.state.connection.client_id,
    "metadata": lambda session: dict(session.state.metadata),
}

CONSUMER: Final[Mapping[str, Callable[[ServerConsumer], object]]] = {
    "id": lambda consumer: consumer.consumer_id,
    "session": lambda consumer: consumer.session.alias,
    "client_id": lambda consumer: consumer.session.connection.client_id,
    "user": lambda consumer: consumer.session.security.user,
    "protocol": lambda consumer: consumer.session.connection.protocol,
    "queue": lambda consumer: consumer.queue.name,
    "routing_type": lambda consumer: consumer.queue.routing_type.name,
    "filter": lambda consumer: None if consumer.filter is None else consumer.filter.text,
    "address": lambda consumer: consumer.queue.address.name,
    "remote_address": lambda consumer: consumer.session.connection.remote_address,
    "created_ms": lambda consumer: consumer.created_ms,
    "delivering_count": lambda consumer: len(consumer.delivering),
    "delivering_bytes": lambda consumer: sum(each.size_bytes for each in consumer.delivering.values()),
    "messages_delivered": lambda consumer: consumer.messages_delivered,
    "messages_acknowledged": lambda consumer: consumer.messages_acknowledged,
    "browses": lambda consumer: consumer.browse_only,
    "connection": lambda consumer: consumer.session.connection.connection_id,
}

#: Readers of a producer with its session.
PRODUCER: Final[Mapping[str, Callable[[tuple[ServerSession, ServerProducer]], object]]] = {
    "id": lambda pair: pair[1].producer_id,
    "name": lambda pair: str(pair[1].producer_id),
    "session": lambda pair: pair[0].state.alias,
    "client_id": lambda pair: pair[0].state.connection.client_id,
    "user": lambda pair: pair[0].state.security.user,
    "protocol": lambda pair: pair[0].state.connection.protocol,
    "address": lambda pair: pair[1].address or pair[0].state.options.default_address,
    "remote_address": lambda pair: pair[0].state.connection.remote_address,
    "created_ms": lambda pair: pair[1].created_ms,
    "connection": lambda pair: pair[0].state.connection.connection_id,
}


def sessions_of(node: ManagedNode, connection_id: str | None = None) -> list[ServerSession]:
    """Sessions of a connection; None: all sessions."""
    return [
        session
        for session in node.services.sessions.registry
        if connection_id is None or session.state.connection.connection_id == connection_id
    ]


def connection_rows(node: ManagedNode) -> Rows[clients.Connection]:
    """Rows of the connections of clients."""
    return Rows(clients.Connection, list(node.services.connections.connections), CONNECTION)


def session_rows(node: ManagedNode) -> Rows[clients.Session]:
    """Rows of the sessions of clients."""
    return Rows(clients.Session, sessions_of(node), SESSION)


def consumer_rows(node: ManagedNode) -> Rows[clients.Consumer]:
    """Consumers and browsers of all sessions."""
    found = [consumer for session in sessions_of(node) for consumer in session.consumers.by_id.values()]
    return Rows(clients.Consumer, found, CONSUMER)


def producer_rows(node: ManagedNode) -> Rows[clients.Producer]:
    """Registered producers of all sessions."""
    found = [(session, each) for session in sessions_of(node) for each in session.sends.producers.values()]
    return Rows(clients.Producer, found, PRODUCER)


def branch_name(xid: Xid) -> str:
    """Name of an XA branch as Artemis has it: Base64 of branch qualifier, global transaction id and format id (four
    bytes, the lowest first).
    """
    number = xid.format_id & 0xFFFF_FFFF
    return base64.b64encode(xid.branch_qualifier + xid.global_transaction_id + number.to_bytes(4, "little")).decode()


def transaction_rows(node: ManagedNode) -> Rows[clients.Transaction]:
    """Rows of XA branches, of branches that an operator decided and did not forget, and of transactions of sessions."""
    sessions, clock = node.services.sessions, node.services.clock
    offset_ms = clock.wall_ms() - clock.monotonic_ms()

    def since(started_ms: int) -> int | None:
        return started_ms + offset_ms if started_ms else None

    def xa(xid: Xid, state: str, since_ms: int | None) -> clients.Transaction:
        return clients.Transaction(
            id=branch_name(xid), kind="xa", state=state, xid=str(xid), session=None, since_ms=since_ms
        )

    branches: list[Branch] = list(sessions.resources)
    found = [xa(each.xid, each.state.name, since(each.transaction.started_ms)) for each in branches]
    for kind in (Kind.HEURISTICALLY_COMMITTED, Kind.HEURISTICALLY_ROLLED_BACK):
        found += [xa(xid, kind.name, None) for xid in sessions.resources.heuristic(kind)]
    seen = {id(each.transaction) for each in branches}
    for session in sessions.registry:
        transaction = session.state.transaction
        if transaction is not None and id(transaction) not in seen:
            alias, since_ms = session.state.alias, since(transaction.started_ms)
            found.append(
                clients.Transaction(id=alias, kind="session", state="OPEN", xid=None, session=alias, since_ms=since_ms)
            )
    return Rows.of_items(clients.Transaction, found)
