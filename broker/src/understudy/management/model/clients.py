"""Connections, sessions, consumers and producers of clients, and transactions."""

from __future__ import annotations

from typing import Annotated, Literal

from understudy.management.model.figure import Item, Natural, figure


class Connection(Item, frozen=True, kw_only=True):
    """A connection of a client."""

    id: Annotated[str, figure("Id of the connection.", artemis="connectionID")]
    remote_address: Annotated[str, figure("Address of the client.", artemis="remoteAddress")]
    users: Annotated[list[str], figure("Users of the sessions.", artemis="users")]
    created_ms: Annotated[int, figure("Time of the connect.", "ms since 1970", artemis="creationTime")]
    protocol: Annotated[str, figure("Protocol of the client.", artemis="protocol")]
    client_id: Annotated[str | None, figure("Client id.", artemis="clientID")]
    certificate_subject: Annotated[
        str | None, figure("Subject of the certificate of the client.", artemis="certificateSubject")
    ]
    session_count: Annotated[Natural, figure("Open sessions.", artemis="sessionCount")]


class Session(Item, frozen=True, kw_only=True):
    """A session of a client. The id is an alias: names of sessions are secret (ADR 0009)."""

    id: Annotated[str, figure("Alias of the session.", artemis="id")]
    user: Annotated[str, figure("User of the session.", artemis="user")]
    created_ms: Annotated[int, figure("Time of the creation.", "ms since 1970", artemis="creationTime")]
    consumer_count: Annotated[Natural, figure("Consumers and browsers.", artemis="consumerCount")]
    producer_count: Annotated[Natural, figure("Registered producers.", artemis="producerCount")]
    connection: Annotated[str, figure("Id of the connection.", artemis="connectionID")]
    client_id: Annotated[str | None, figure("Client id.", artemis="clientID")]
    metadata: Annotated[dict[str, str], figure("Metadata that the client has set.")]


class Consumer(Item, frozen=True, kw_only=True):
    """A consumer or browser. Ids are unique within a session."""

    id: Annotated[Natural, figure("Id of the consumer in its session.", artemis="id")]
    session: Annotated[str, figure("Alias of the session.", artemis="session")]
    client_id: Annotated[str | None, figure("Client id.", artemis="clientID")]
    user: Annotated[str, figure("User of the session.", artemis="user")]
    protocol: Annotated[str, figure("Protocol of the client.", artemis="protocol")]
    queue: Annotated[str, figure("Queue that is consumed.", artemis="queue")]
    routing_type: Annotated[Literal["ANYCAST", "MULTICAST"], figure("Routing type of the queue.", artemis="queueType")]
    filter: Annotated[str | None, figure("Selector; null: all messages.", artemis="filter")]
    address: Annotated[str, figure("Address of the queue.", artemis="address")]
    remote_address: Annotated[str, figure("Address of the client.", artemis="remoteAddress")]
    created_ms: Annotated[int, figure("Time of the creation.", "ms since 1970", artemis="creationTime")]
    delivering_count: Annotated[
        Natural, figure("Messages delivered and not acknowledged.", "messages", artemis="messagesInTransit")
    ]
    delivering_bytes: Annotated[Natural, figure("Size of these messages.", "bytes", artemis="messagesInTransitSize")]
    messages_delivered: Annotated[
        Natural, figure("Messages delivered since the creation.", "messages", artemis="messagesDelivered")
    ]
    messages_acknowledged: Annotated[
        Natural, figure("Messages acknowledged since the creation.", "messages", artemis="messagesAcknowledged")
    ]
    browses: Annotated[bool, figure("Whether the consumer leaves messages in the queue.")]
    connection: Annotated[str, figure("Id of the connection.")]


class Producer(Item, frozen=True, kw_only=True):
    """A registered producer. Ids are unique within a session."""

    id: Annotated[Natural, figure("Id of the producer in its session.", artemis="id")]
    name: Annotated[str, figure("Name of the producer.", artemis="name")]
    session: Annotated[str, figure("Alias of the session.", artemis="session")]
    client_id: Annotated[str | None, figure("Client id.", artemis="clientID")]
    user: Annotated[str, figure("User of the session.", artemis="user")]
    protocol: Annotated[str, figure("Protocol of the client.", artemis="protocol")]
    address: Annotated[str | None, figure("Address of the messages; null: named by each message.", artemis="address")]
    remote_address: Annotated[str, figure("Address of the client.", artemis="remoteAddress")]
    created_ms: Annotated[int, figure("Time of the registration.", "ms since 1970", artemis="creationTime")]
    connection: Annotated[str, figure("Id of the connection.")]


class Transaction(Item, frozen=True, kw_only=True):
    """A transaction that is open, prepared, or was ended by an operator and not forgotten by its manager."""

    id: Annotated[str, figure("Name of an XA branch in Base64, or the alias of the session.")]
    kind: Annotated[Literal["xa", "session"], figure("Whether a transaction manager decides, or the session.")]
    state: Annotated[str, figure("State (docs/build/machines/branch.md); OPEN for a transaction of a session.")]
    xid: Annotated[str | None, figure("The XA id as text.")]
    session: Annotated[str | None, figure("Alias of the session.")]
    since_ms: Annotated[int | None, figure("Time of the beginning; null if unknown.", "ms since 1970")]
