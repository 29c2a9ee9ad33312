"""The methods of AMQP 0-9-1 with the extensions of RabbitMQ, as one table of classes.

Fields that the specification reserves are sent as zero or empty, and ignored when received.
"""

from __future__ import annotations

from dataclasses import field

from understudy.wire.amqp091.layout import U16, U32, U64, Bit, Fields, LongBytes, Method, Octet, ShortText, method


@method(10, 10, "connection.start")
class ConnectionStart(Method):
    """The broker begins."""

    version_major: Octet = 0
    version_minor: Octet = 9
    server_properties: Fields = field(default_factory=dict)
    mechanisms: LongBytes = b""
    """SASL mechanisms, separated by spaces."""
    locales: LongBytes = b"en_US"


@method(10, 11, "connection.start-ok", client=True)
class ConnectionStartOk(Method):
    """The client chooses a mechanism."""

    client_properties: Fields
    mechanism: ShortText
    response: LongBytes
    locale: ShortText


@method(10, 20, "connection.secure")
class ConnectionSecure(Method):
    """A challenge of the mechanism."""

    challenge: LongBytes


@method(10, 21, "connection.secure-ok", client=True)
class ConnectionSecureOk(Method):
    """The response to a challenge."""

    response: LongBytes


@method(10, 30, "connection.tune")
class ConnectionTune(Method):
    """Limits that the broker offers."""

    channel_max: U16
    frame_max: U32
    """Bytes of a frame, 0 for no limit."""
    heartbeat: U16
    """Interval in seconds, 0 for none."""


@method(10, 31, "connection.tune-ok", client=True)
class ConnectionTuneOk(Method):
    """Limits that the client chooses."""

    channel_max: U16
    frame_max: U32
    heartbeat: U16


@method(10, 40, "connection.open", client=True)
class ConnectionOpen(Method):
    """The client chooses a virtual host."""

    virtual_host: ShortText
    reserved_1: ShortText = ""
    reserved_2: Bit = False


@method(10, 41, "connection.open-ok")
class ConnectionOpenOk(Method):
    """The connection is open."""

    known_hosts: ShortText = ""


@method(10, 50, "connection.close", client=True)
class ConnectionClose(Method):
    """Either side ends the connection."""

    reply_code: U16
    reply_text: ShortText
    failing_class: U16 = 0
    failing_method: U16 = 0


@method(10, 51, "connection.close-ok", client=True)
class ConnectionCloseOk(Method):
    """The end of the connection is confirmed."""


@method(10, 60, "connection.blocked")
class ConnectionBlocked(Method):
    """Publishing is paused."""

    reason: ShortText


@method(10, 61, "connection.unblocked")
class ConnectionUnblocked(Method):
    """Publishing goes on."""


@method(10, 70, "connection.update-secret", client=True)
class ConnectionUpdateSecret(Method):
    """A new secret of the user."""

    new_secret: LongBytes
    reason: ShortText


@method(10, 71, "connection.update-secret-ok")
class ConnectionUpdateSecretOk(Method):
    """The new secret was taken."""


@method(20, 10, "channel.open", client=True)
class ChannelOpen(Method):
    """Open a channel."""

    reserved_1: ShortText = ""


@method(20, 11, "channel.open-ok")
class ChannelOpenOk(Method):
    """The channel is open."""

    reserved_1: LongBytes = b""


@method(20, 20, "channel.flow", client=True)
class ChannelFlow(Method):
    """Pause or resume deliveries."""

    active: Bit


@method(20, 21, "channel.flow-ok", client=True)
class ChannelFlowOk(Method):
    """Answer of channel.flow."""

    active: Bit


@method(20, 40, "channel.close", client=True)
class ChannelClose(Method):
    """Either side ends a channel."""

    reply_code: U16
    reply_text: ShortText
    failing_class: U16 = 0
    failing_method: U16 = 0


@method(20, 41, "channel.close-ok", client=True)
class ChannelCloseOk(Method):
    """The end of the channel is confirmed."""


@method(40, 10, "exchange.declare", client=True)
class ExchangeDeclare(Method):
    """Make an exchange, or check one that exists."""

    reserved_1: U16
    exchange: ShortText
    type: ShortText
    passive: Bit = False
    durable: Bit = False
    auto_delete: Bit = False
    internal: Bit = False
    no_wait: Bit = False
    arguments: Fields = field(default_factory=dict)


@method(40, 11, "exchange.declare-ok")
class ExchangeDeclareOk(Method):
    """The exchange exists."""


@method(40, 20, "exchange.delete", client=True)
class ExchangeDelete(Method):
    """Delete an exchange."""

    reserved_1: U16
    exchange: ShortText
    if_unused: Bit = False
    no_wait: Bit = False


@method(40, 21, "exchange.delete-ok")
class ExchangeDeleteOk(Method):
    """The exchange is gone."""


@method(40, 30, "exchange.bind", client=True)
class ExchangeBind(Method):
    """Bind an exchange to another one."""

    reserved_1: U16
    destination: ShortText
    source: ShortText
    routing_key: ShortText
    no_wait: Bit = False
    arguments: Fields = field(default_factory=dict)


@method(40, 31, "exchange.bind-ok")
class ExchangeBindOk(Method):
    """The binding exists."""


@method(40, 40, "exchange.unbind", client=True)
class ExchangeUnbind(Method):
    """Remove the binding of an exchange."""

    reserved_1: U16
    destination: ShortText
    source: ShortText
    routing_key: ShortText
    no_wait: Bit = False
    arguments: Fields = field(default_factory=dict)


@method(40, 51, "exchange.unbind-ok")
class ExchangeUnbindOk(Method):
    """The binding is gone."""


@method(50, 10, "queue.declare", client=True)
class QueueDeclare(Method):
    """Make a queue, or check one that exists."""

    reserved_1: U16
    queue: ShortText
    passive: Bit = False
    durable: Bit = False
    exclusive: Bit = False
    auto_delete: Bit = False
    no_wait: Bit = False
    arguments: Fields = field(default_factory=dict)


@method(50, 11, "queue.declare-ok")
class QueueDeclareOk(Method):
    """The queue exists."""

    queue: ShortText
    message_count: U32
    consumer_count: U32


@method(50, 20, "queue.bind", client=True)
class QueueBind(Method):
    """Bind a queue to an exchange."""

    reserved_1: U16
    queue: ShortText
    exchange: ShortText
    routing_key: ShortText
    no_wait: Bit = False
    arguments: Fields = field(default_factory=dict)


@method(50, 21, "queue.bind-ok")
class QueueBindOk(Method):
    """The binding exists."""


@method(50, 30, "queue.purge", client=True)
class QueuePurge(Method):
    """Drop all waiting messages of a queue."""

    reserved_1: U16
    queue: ShortText
    no_wait: Bit = False


@method(50, 31, "queue.purge-ok")
class QueuePurgeOk(Method):
    """Number of messages that were dropped."""

    message_count: U32


@method(50, 40, "queue.delete", client=True)
class QueueDelete(Method):
    """Delete a queue with its messages."""

    reserved_1: U16
    queue: ShortText
    if_unused: Bit = False
    if_empty: Bit = False
    no_wait: Bit = False


@method(50, 41, "queue.delete-ok")
class QueueDeleteOk(Method):
    """Number of messages that were dropped."""

    message_count: U32


@method(50, 50, "queue.unbind", client=True)
class QueueUnbind(Method):
    """Remove the binding of a queue."""

    reserved_1: U16
    queue: ShortText
    exchange: ShortText
    routing_key: ShortText
    arguments: Fields = field(default_factory=dict)


@method(50, 51, "queue.unbind-ok")
class QueueUnbindOk(Method):
    """The binding is gone."""


@method(60, 10, "basic.qos", client=True)
class BasicQos(Method):
    """Limit the deliveries that are not acknowledged."""

    prefetch_size: U32
    """Bytes; 0 for no limit."""
    prefetch_count: U16
    """Messages; 0 for no limit."""
    for_channel: Bit = False
    """The bit ``global``: one limit for all consumers of the channel."""


@method(60, 11, "basic.qos-ok")
class BasicQosOk(Method):
    """The limit holds."""


@method(60, 20, "basic.consume", client=True)
class BasicConsume(Method):
    """Begin a consumer."""

    reserved_1: U16
    queue: ShortText
    consumer_tag: ShortText
    no_local: Bit = False
    no_ack: Bit = False
    exclusive: Bit = False
    no_wait: Bit = False
    arguments: Fields = field(default_factory=dict)


@method(60, 21, "basic.consume-ok")
class BasicConsumeOk(Method):
    """The consumer exists."""

    consumer_tag: ShortText


@method(60, 30, "basic.cancel", client=True)
class BasicCancel(Method):
    """End a consumer; sent by the broker when its queue is gone."""

    consumer_tag: ShortText
    no_wait: Bit = False


@method(60, 31, "basic.cancel-ok", client=True)
class BasicCancelOk(Method):
    """The consumer has ended."""

    consumer_tag: ShortText


@method(60, 40, "basic.publish", client=True, content=True)
class BasicPublish(Method):
    """A message for an exchange."""

    reserved_1: U16
    exchange: ShortText
    routing_key: ShortText
    mandatory: Bit = False
    immediate: Bit = False


@method(60, 50, "basic.return", content=True)
class BasicReturn(Method):
    """A message that could not be routed."""

    reply_code: U16
    reply_text: ShortText
    exchange: ShortText
    routing_key: ShortText


@method(60, 60, "basic.deliver", content=True)
class BasicDeliver(Method):
    """A message for a consumer."""

    consumer_tag: ShortText
    delivery_tag: U64
    redelivered: Bit
    exchange: ShortText
    routing_key: ShortText


@method(60, 70, "basic.get", client=True)
class BasicGet(Method):
    """Ask for one message."""

    reserved_1: U16
    queue: ShortText
    no_ack: Bit = False


@method(60, 71, "basic.get-ok", content=True)
class BasicGetOk(Method):
    """The message that was asked for."""

    delivery_tag: U64
    redelivered: Bit
    exchange: ShortText
    routing_key: ShortText
    message_count: U32
    """Messages that are left in the queue."""


@method(60, 72, "basic.get-empty")
class BasicGetEmpty(Method):
    """The queue has no message."""

    reserved_1: ShortText = ""


@method(60, 80, "basic.ack", client=True)
class BasicAck(Method):
    """Accept deliveries, or confirm publishes."""

    delivery_tag: U64
    multiple: Bit = False


@method(60, 90, "basic.reject", client=True)
class BasicReject(Method):
    """Refuse one delivery."""

    delivery_tag: U64
    requeue: Bit = False


@method(60, 100, "basic.recover-async", client=True)
class BasicRecoverAsync(Method):
    """Return all deliveries, without an answer."""

    requeue: Bit = False


@method(60, 110, "basic.recover", client=True)
class BasicRecover(Method):
    """Return all deliveries."""

    requeue: Bit = False


@method(60, 111, "basic.recover-ok")
class BasicRecoverOk(Method):
    """The deliveries were returned."""


@method(60, 120, "basic.nack", client=True)
class BasicNack(Method):
    """Refuse deliveries, or say that publishes were not taken."""

    delivery_tag: U64
    multiple: Bit = False
    requeue: Bit = False


@method(85, 10, "confirm.select", client=True)
class ConfirmSelect(Method):
    """Confirm the publishes of the channel."""

    no_wait: Bit = False


@method(85, 11, "confirm.select-ok")
class ConfirmSelectOk(Method):
    """Publishes are confirmed from now on."""


@method(90, 10, "tx.select", client=True)
class TxSelect(Method):
    """Publish and acknowledge in transactions."""


@method(90, 11, "tx.select-ok")
class TxSelectOk(Method):
    """The channel is transacted."""


@method(90, 20, "tx.commit", client=True)
class TxCommit(Method):
    """Commit the open transaction."""


@method(90, 21, "tx.commit-ok")
class TxCommitOk(Method):
    """The transaction is committed."""


@method(90, 30, "tx.rollback", client=True)
class TxRollback(Method):
    """Roll the open transaction back."""


@method(90, 31, "tx.rollback-ok")
class TxRollbackOk(Method):
    """The transaction is rolled back."""
