"""Queues, addresses, bindings and waiting messages."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import field

from understudy.management.model.figure import Item, Natural, figure

RoutingTypeName = Literal["ANYCAST", "MULTICAST"]


class Queue(Item, frozen=True, kw_only=True):
    """A queue with its settings and its counters since the activation.

    The order of the fields is that of Artemis' lists.
    """

    id: Annotated[Natural, figure("Id of the queue in the store.", artemis="id")]
    name: Annotated[str, figure("Name of the queue.", artemis="name")]
    address: Annotated[str, figure("Address of the queue.", artemis="address")]
    filter: Annotated[str | None, figure("Selector of the messages that the queue takes; null: all.", artemis="filter")]
    durable: Annotated[bool, figure("Whether the queue survives a restart.", artemis="durable")]
    paused: Annotated[bool, figure("Whether deliveries are paused.", artemis="paused")]
    persisted_pause: Annotated[bool, figure("Whether the pause survives a restart.", artemis="persistedPause")]
    temporary: Annotated[bool, figure("Whether the queue is deleted with its connection.", artemis="temporary")]
    purge_on_no_consumers: Annotated[
        bool, figure("Whether the queue is purged when its last consumer is closed.", artemis="purgeOnNoConsumers")
    ]
    consumer_count: Annotated[
        Natural, figure("Consumers of the queue.", artemis="consumerCount", metric="understudy_queue_consumers")
    ]
    max_consumers: Annotated[int | None, figure("Maximum number of consumers; null: no limit.", artemis="maxConsumers")]
    auto_created: Annotated[bool, figure("Whether a client's use created the queue.", artemis="autoCreated")]
    user: Annotated[str, figure("User whose client created the queue.", artemis="user")]
    routing_type: Annotated[RoutingTypeName, figure("How messages of the address are routed.", artemis="routingType")]
    messages_added: Annotated[
        Natural,
        figure(
            "Messages routed to the queue since the activation.",
            "messages",
            artemis="messagesAdded",
            total="understudy_queue_messages_added",
        ),
    ]
    message_count: Annotated[
        Natural,
        figure(
            "Messages in the queue, those being delivered included.",
            "messages",
            artemis="messageCount",
            metric="understudy_queue_messages",
        ),
    ]
    messages_acknowledged: Annotated[
        Natural,
        figure(
            "Messages acknowledged since the activation.",
            "messages",
            artemis="messagesAcked",
            total="understudy_queue_messages_acknowledged",
        ),
    ]
    messages_expired: Annotated[
        Natural,
        figure(
            "Messages expired since the activation.",
            "messages",
            artemis="messagesExpired",
            total="understudy_queue_messages_expired",
        ),
    ]
    delivering_count: Annotated[
        Natural,
        figure(
            "Messages handed to consumers and not acknowledged.",
            "messages",
            artemis="deliveringCount",
            metric="understudy_queue_delivering",
        ),
    ]
    messages_killed: Annotated[
        Natural,
        figure(
            "Messages past max-delivery-attempts.",
            "messages",
            artemis="messagesKilled",
            total="understudy_queue_messages_killed",
        ),
    ]
    messages_replaced: Annotated[
        Natural,
        figure(
            "Messages replaced by newer ones, in a last-value queue or a ring queue.",
            "messages",
            total="understudy_queue_messages_replaced",
        ),
    ]
    exclusive: Annotated[bool, figure("Whether one consumer at a time gets all messages.", artemis="exclusive")]
    last_value: Annotated[
        bool, figure("Whether the queue keeps only the last message of each key.", artemis="lastValue")
    ]
    last_value_key: Annotated[
        str | None, figure("Property that is the key of a last-value queue.", artemis="lastValueKey")
    ]
    non_destructive: Annotated[bool, figure("Whether messages stay after their delivery.")]
    scheduled_count: Annotated[Natural, figure("Scheduled messages.", "messages", artemis="scheduledCount")]
    group_rebalance: Annotated[
        bool, figure("Whether a new consumer causes message groups to be assigned anew.", artemis="groupRebalance")
    ]
    group_rebalance_pause_dispatch: Annotated[
        bool, figure("Whether deliveries pause meanwhile.", artemis="groupRebalancePauseDispatch")
    ]
    group_buckets: Annotated[int | None, figure("Buckets of message groups; null: none.", artemis="groupBuckets")]
    group_first_key: Annotated[
        str | None, figure("Property set on the first message of a group.", artemis="groupFirstKey")
    ]
    enabled: Annotated[bool, figure("Whether messages are routed to the queue.", artemis="enabled")]
    ring_size: Annotated[int | None, figure("Maximum number of messages; null: no limit.", artemis="ringSize")]
    consumers_before_dispatch: Annotated[
        int, figure("Consumers required before deliveries begin.", artemis="consumersBeforeDispatch")
    ]
    delay_before_dispatch: Annotated[
        int | None, figure("Longest wait for these consumers; null: no limit.", "ms", artemis="delayBeforeDispatch")
    ]
    auto_delete: Annotated[
        bool, figure("Whether the queue is deleted when it is empty and unused.", artemis="autoDelete")
    ]
    internal: Annotated[bool, figure("Whether the queue belongs to the broker.", artemis="internalQueue")]
    paging: Annotated[
        bool,
        figure("Whether the address holds messages whose bodies are not in memory.", metric="understudy_queue_paging"),
    ]
    memory_bytes: Annotated[
        Natural,
        figure(
            "Bytes of bodies that the address has in memory.", "bytes", metric="understudy_queue_address_memory_bytes"
        ),
    ]
    spilled_count: Annotated[
        Natural,
        figure("References of the queue that are in page files.", "messages", metric="understudy_queue_spilled"),
    ]
    waiting_count: Annotated[
        Natural,
        figure(
            "Messages that wait for a consumer: neither scheduled nor being delivered.",
            "messages",
            metric="understudy_queue_waiting",
        ),
    ]
    group_count: Annotated[Natural, figure("Message groups that have a consumer.")]
    oldest_age_ms: Annotated[
        Natural | None,
        figure(
            "Time since the oldest message that waits for a consumer came, to half a second or 2.5 %; one that "
            "came before the activation counts from the activation. Null: no message waits.",
            "ms",
            metric="understudy_queue_oldest_message_age_seconds",
        ),
    ]
    virtual_host: Annotated[
        str | None, figure("Virtual host of a queue of AMQP 0-9-1; null: the queue was created in another way.")
    ]
    arguments: Annotated[
        dict[str, Any] | None,
        figure("Arguments of queue.declare of AMQP 0-9-1; null: the queue was created in another way."),
    ]
    measured: Annotated[bool, figure("Whether the queue has metrics of its own (enable-metrics).")]


class Address(Item, frozen=True, kw_only=True):
    """An address with its counters since the activation."""

    id: Annotated[Natural, figure("Id of the address in the store.", artemis="id")]
    name: Annotated[str, figure("Name of the address.", artemis="name")]
    routing_types: Annotated[list[RoutingTypeName], figure("Routing types of the address.", artemis="routingTypes")]
    queue_count: Annotated[Natural, figure("Queues of the address.", artemis="queueCount")]
    internal: Annotated[bool, figure("Whether the address belongs to the broker.", artemis="internal")]
    temporary: Annotated[bool, figure("Whether the address ends with its temporary queue.", artemis="temporary")]
    auto_created: Annotated[bool, figure("Whether a client's use created the address.", artemis="autoCreated")]
    paused: Annotated[
        bool, figure("Whether the queues of the address are paused, those bound later included.", artemis="paused")
    ]
    duplicate_id_count: Annotated[
        Natural, figure("Cached duplicate ids of the address.", artemis="currentDuplicateIdCacheSize")
    ]
    retroactive_resource: Annotated[
        bool, figure("Whether the address keeps messages of a retroactive address.", artemis="retroactiveResource")
    ]
    unrouted_message_count: Annotated[
        Natural, figure("Messages that were routed to no queue.", "messages", artemis="unroutedMessageCount")
    ]
    routed_message_count: Annotated[
        Natural, figure("Messages that went to a queue since the activation.", "messages", artemis="routedMessageCount")
    ]
    message_count: Annotated[
        Natural,
        figure(
            "Messages in the queues; one that is in several queues counts once.", "messages", artemis="messageCount"
        ),
    ]
    limit_percent: Annotated[
        Natural, figure("Used part of the memory limit of the address.", "percent", artemis="addressLimitPercent")
    ]
    page_count: Annotated[Natural, figure("Page files of the address.", artemis="numberOfPages")]
    size_bytes: Annotated[
        Natural, figure("Bytes of the messages that the address holds.", "bytes", artemis="addressSize")
    ]
    max_read_page_bytes: Annotated[
        int, figure("Bytes read from page files at once.", "bytes", artemis="maxPageReadBytes")
    ]
    max_read_page_messages: Annotated[
        int, figure("Messages read at once; -1 is no limit.", "messages", artemis="maxPageReadMessages")
    ]
    prefetch_page_bytes: Annotated[int, figure("Bytes read ahead.", "bytes", artemis="prefetchPageBytes")]
    prefetch_page_messages: Annotated[
        int, figure("Messages read ahead; -1 is no limit.", "messages", artemis="prefetchPageMessages")
    ]
    page_size_bytes: Annotated[Natural, figure("Bytes of a page file.", "bytes", artemis="numberOfBytesPerPage")]
    paging: Annotated[
        bool, figure("Whether the address holds messages whose bodies are not in memory.", artemis="paging")
    ]
    memory_bytes: Annotated[Natural, figure("Bytes of bodies that the address has in memory.", "bytes")]


class Binding(Item, frozen=True, kw_only=True):
    """One destination of messages that are sent to an address."""

    address: Annotated[str, figure("Address of the messages.")]
    kind: Annotated[Literal["queue", "divert", "remote"], figure("Kind of the destination.")]
    name: Annotated[str, figure("Name of the queue or divert.")]
    routing_type: Annotated[RoutingTypeName | None, figure("Routing type of the queue; null for other kinds.")] = None
    filter: Annotated[str | None, figure("Selector of the messages; null: all.")]
    exclusive: Annotated[bool, figure("Whether other destinations do not get the message.")] = False
    consumer_count: Annotated[Natural, figure("Consumers of the queue; 0 for a divert.")] = 0
    node_id: Annotated[str | None, figure("Node id of the other member of the cluster; null: this node.")] = None


class Message(Item, frozen=True, kw_only=True):
    """A waiting message; of one that cannot be read only the id is known."""

    message_id: Annotated[Natural, figure("Id of the message in the store.")]
    unreadable: Annotated[bool, figure("Whether the message is damaged and cannot be read.")] = False
    address: Annotated[str, figure("Address that the message was sent to.")] = ""
    type: Annotated[Natural, figure("Type of the body: 0 default, 2 object, 3 text, 4 bytes, 5 map, 6 stream.")] = 0
    durable: Annotated[bool, figure("Whether the message survives a restart.")] = False
    priority: Annotated[Natural, figure("Priority, 0 to 9.")] = 4
    timestamp_ms: Annotated[int, figure("Time of the send, as its client has set it.", "ms since 1970")] = 0
    expiration_ms: Annotated[int, figure("Time at which the message expires; 0: never.", "ms since 1970")] = 0
    user_id: Annotated[str | None, figure("Message id that the client has set.")] = None
    size_bytes: Annotated[Natural, figure("Encoded size; of a large message without its body.", "bytes")] = 0
    large: Annotated[bool, figure("Whether the body is in a file of its own.")] = False
    properties: Annotated[
        dict[str, Any], figure("Properties; long values are cut (management-message-attribute-size-limit).")
    ] = field(default_factory=dict)
    text: Annotated[str | None, figure("Text of a text message, cut like properties; null for other types.")] = None
