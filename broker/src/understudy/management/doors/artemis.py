"""One row per queue, address, connection, session, consumer or producer, for every list of them.

The JSON names are those of Artemis' management. Values that this broker does not count (bytes delivered,
time of the last delivery) are omitted. Sessions are identified by alias: their names are secret
(ADR 0009).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from understudy.management.controls import QueueFacts, ReaderFacts, ReadersFacts
from understudy.protocols.registry import ClientConnection
from understudy.protocols.services import ProtocolServices
from understudy.routing.address import Address
from understudy.routing.queues.queue import Queue
from understudy.session.consumer import ServerConsumer
from understudy.session.session import ServerSession
from understudy.store.message_store import MessageStore
from understudy.store.named_readers import NamedReader

#: Class of every connection in Artemis' management.
IMPLEMENTATION: Final = "RemotingConnectionImpl"
#: Status of every listed consumer, which always has a connection.
STATUS: Final = "OK"


def queue_facts(queue: Queue) -> QueueFacts:
    """Values of a queue for the HTTP interface and the metrics."""
    return QueueFacts(
        name=queue.name,
        address=queue.address.name,
        routing_type=queue.routing_type.name,
        durable=queue.durable,
        temporary=queue.temporary,
        message_count=queue.message_count,
        delivering_count=queue.delivering_count,
        consumer_count=queue.consumers.count,
        messages_added=queue.messages_added,
        messages_acknowledged=queue.messages_acknowledged,
        messages_expired=queue.messages_expired,
        messages_killed=queue.messages_killed,
        messages_replaced=queue.messages_replaced,
        paging=queue.address.paging,
        memory_bytes=queue.address.memory_bytes,
        spilled_count=queue.pending.spilled_count,
        measured=queue.address.settings.enable_metrics,
    )


def queue_row(queue: Queue) -> dict[str, object]:
    """A row of ``listQueues``."""
    facts, full = queue_facts(queue), queue.configuration
    return {
        "id": queue.queue_id,
        "name": facts.name,
        "address": facts.address,
        "filter": queue.filter.text if queue.filter is not None else "",
        "durable": facts.durable,
        "paused": queue.paused,
        "persistedPause": bool(full.paused),
        "temporary": facts.temporary,
        "purgeOnNoConsumers": queue.purge_on_no_consumers,
        "consumerCount": facts.consumer_count,
        "maxConsumers": -1 if full.max_consumers is None else full.max_consumers,
        "autoCreated": full.auto_created,
        "user": full.user,
        "routingType": facts.routing_type,
        "messagesAdded": facts.messages_added,
        "messageCount": facts.message_count,
        "messagesAcked": facts.messages_acknowledged,
        "messagesExpired": facts.messages_expired,
        "deliveringCount": facts.delivering_count,
        "messagesKilled": facts.messages_killed,
        "directDeliver": False,
        "exclusive": queue.exclusive,
        "lastValue": bool(full.last_value),
        "lastValueKey": full.last_value_key or "",
        "scheduledCount": queue.scheduled_count,
        "groupRebalance": bool(full.group_rebalance),
        "groupRebalancePauseDispatch": bool(full.group_rebalance_pause_dispatch),
        "groupBuckets": -1 if full.group_buckets is None else full.group_buckets,
        "groupFirstKey": full.group_first_key or "",
        "enabled": full.enabled is not False,
        "ringSize": -1 if full.ring_size is None else full.ring_size,
        "consumersBeforeDispatch": full.consumers_before_dispatch or 0,
        "delayBeforeDispatch": -1 if full.delay_before_dispatch is None else full.delay_before_dispatch,
        "autoDelete": bool(full.auto_delete),
        "internalQueue": queue.internal,
    }


def limit_percent(address: Address, global_max_size_bytes: int) -> int:
    """Used memory in percent of max-size-bytes, or of the limit of the node if that is not set."""
    limit = address.settings.max_size_bytes
    if limit < 0:
        limit = global_max_size_bytes
    return address.memory_bytes * 100 // limit if limit > 0 else 0


def page_count(address: Address) -> int:
    """Number of page files of an address."""
    return address.pages.file_count if address.pages is not None else 0


def prefetch(wanted: int, read_at_once: int) -> int:
    """A prefetch setting; if not set, the read-ahead of the address."""
    return wanted if wanted >= 0 else read_at_once


def address_row(address: Address, global_max_size_bytes: int) -> dict[str, object]:
    """A row of ``listAddresses``."""
    settings = address.settings
    return {
        "id": address.address_id,
        "name": address.name,
        "routingTypes": routing_types(address),
        "queueCount": len(address.bindings),
        "internal": address.internal,
        "temporary": not address.stored and not address.internal,
        "autoCreated": address.auto_created,
        "paused": address.paused,
        "currentDuplicateIdCacheSize": len(address.duplicate_ids),
        "retroactiveResource": address.retroactive_resource,
        "unroutedMessageCount": address.messages_unrouted,
        "routedMessageCount": address.messages_routed,
        "messageCount": address.message_count,
        "addressLimitPercent": limit_percent(address, global_max_size_bytes),
        "numberOfPages": page_count(address),
        "addressSize": address.size_bytes,
        "maxPageReadBytes": settings.max_read_page_bytes,
        "maxPageReadMessages": settings.max_read_page_messages,
        "prefetchPageBytes": prefetch(settings.prefetch_page_bytes, settings.max_read_page_bytes),
        "prefetchPageMessages": prefetch(settings.prefetch_page_messages, settings.max_read_page_messages),
        "numberOfBytesPerPage": settings.page_size_bytes,
        "paging": address.paging,
    }


def routing_types(address: Address) -> str:
    """``["ANYCAST"]``, ``["MULTICAST","ANYCAST"]``."""
    return "[" + ",".join(f'"{kind.name}"' for kind in sorted(address.routing_types)) + "]"


def connection_row(connection: ClientConnection) -> dict[str, object]:
    """A row of ``listConnections``."""
    sessions = connection.open_sessions()
    return {
        "connectionID": connection.scope.connection_id,
        "remoteAddress": connection.scope.remote_address,
        "users": ",".join(sorted({session.security.user for session in sessions})),
        "creationTime": date_text(connection.scope.created_ms),
        "implementation": IMPLEMENTATION,
        "protocol": connection.scope.protocol,
        "clientID": connection.scope.client_id or "",
        "localAddress": "",
        "proxyAddress": "",
        "proxyProtocolVersion": "",
        "certificateSubject": connection.scope.certificate_subject or "",
        "sessionCount": len(sessions),
    }


def session_row(session: ServerSession) -> dict[str, object]:
    """A row of ``listSessions``."""
    return {
        "id": session.alias,
        "user": session.security.user,
        "validatedUser": session.security.user,
        "creationTime": date_text(session.created_ms),
        "consumerCount": len(session.consumers),
        "producerCount": len(session.sends.producers),
        "connectionID": session.connection.connection_id,
        "clientID": session.connection.client_id or "",
    }


def consumer_row(consumer: ServerConsumer) -> dict[str, object]:
    """A row of ``listConsumers``."""
    session, queue = consumer.session, consumer.queue
    return {
        "id": consumer.consumer_id,
        "session": session.alias,
        "clientID": session.connection.client_id or "",
        "user": session.security.user,
        "validatedUser": session.security.user,
        "protocol": session.connection.protocol,
        "queue": queue.name,
        "queueType": queue.routing_type.name.lower(),
        "filter": consumer.filter.text if consumer.filter is not None else "",
        "address": queue.address.name,
        "localAddress": "",
        "remoteAddress": session.connection.remote_address,
        "creationTime": date_text(consumer.created_ms),
        "messagesInTransit": len(consumer.delivering),
        "messagesInTransitSize": _held_bytes(consumer),
        "messagesDelivered": consumer.messages_delivered,
        "messagesAcknowledged": consumer.messages_acknowledged,
        "status": STATUS,
    }


def _held_bytes(consumer: ServerConsumer) -> int:
    return sum(reference.size_bytes for reference in consumer.delivering.values())


def consumer_json(consumer: ServerConsumer) -> dict[str, object]:
    """An entry of the queue's ``listConsumersAsJSON``, whose names are older than those of ``listConsumers``."""
    session = consumer.session
    return {
        "consumerID": consumer.consumer_id,
        "sequentialId": consumer.consumer_id,
        "connectionID": session.connection.connection_id,
        "sessionID": session.alias,
        "browseOnly": consumer.browse_only,
        "creationTime": consumer.created_ms,
        "messagesInTransit": len(consumer.delivering),
        "messagesInTransitSize": _held_bytes(consumer),
        "messagesDelivered": consumer.messages_delivered,
        "messagesAcknowledged": consumer.messages_acknowledged,
        "status": STATUS,
    }


def consumer_of_queue_json(consumer: ServerConsumer) -> dict[str, object]:
    """An entry of the broker's ``listConsumersAsJSON``: with the names of its queue and address."""
    filtered = {"filter": consumer.filter.text} if consumer.filter is not None else {}
    return (
        consumer_json(consumer)
        | {"queueName": consumer.queue.name, "deliveringCount": len(consumer.delivering)}
        | filtered
    )


def session_json(session: ServerSession) -> dict[str, object]:
    """An entry of ``listSessionsAsJSON``."""
    user = session.security.user
    named: dict[str, object] = {"validatedUser": user, "principal": user} if user else {}
    return {
        "sessionID": session.alias,
        "creationTime": session.created_ms,
        "consumerCount": len(session.consumers),
        **named,
        **({"metadata": dict(session.metadata)} if session.metadata else {}),
    }


def producer_rows(session: ServerSession) -> Iterator[dict[str, object]]:
    """Rows of ``listProducers``: one per producer that the client registered."""
    for producer in session.sends.producers.values():
        yield {
            "id": producer.producer_id,
            "name": str(producer.producer_id),
            "session": session.alias,
            "clientID": session.connection.client_id or "",
            "user": session.security.user,
            "validatedUser": session.security.user,
            "protocol": session.connection.protocol,
            "address": producer.address or session.options.default_address or "",
            "localAddress": "",
            "remoteAddress": session.connection.remote_address,
            "creationTime": producer.created_ms,
        }


def producer_json(session: ServerSession) -> Iterator[dict[str, object]]:
    """Entries of ``listProducersInfoAsJSON``."""
    for row in producer_rows(session):
        yield {
            "id": str(row["id"]),
            "name": row["name"],
            "connectionID": session.connection.connection_id,
            "sessionID": row["session"],
            "creationTime": str(row["creationTime"]),
            "destination": row["address"],
        }


def consumers(services: ProtocolServices) -> Iterator[ServerConsumer]:
    """Every consumer and browser of every session."""
    for session in services.sessions.registry:
        yield from session.consumers.values()


def date_text(wall_ms: int) -> str:
    """A date in the format of Java's Date, in UTC."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")


def reader_facts(store: MessageStore, reader: NamedReader) -> ReaderFacts:
    """Facts of one reader."""
    return ReaderFacts(
        reader.name,
        reader.position.epoch,
        reader.position.sequence,
        reader.bytes_max,
        store.readers.held_bytes(reader),
        reader.registered_ms,
        reader.committed_ms,
        reader.dropped,
    )


def readers_facts(store: MessageStore) -> ReadersFacts:
    """Facts of all readers of a store."""
    readers = store.readers
    found = [reader_facts(store, reader) for reader in readers]
    return ReadersFacts(store.node_id, readers.confirmed, readers.earliest, found, readers.dropped_count)
