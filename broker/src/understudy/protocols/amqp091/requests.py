"""The requests of a channel beside basic.publish: one function for each method of a client."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from understudy.errors import BrokerError, forget_frames
from understudy.protocols.amqp091 import names
from understudy.protocols.amqp091.channel import Amqp091Channel, Event
from understudy.protocols.amqp091.deliveries import RETURNED
from understudy.protocols.amqp091.resumption.kept_consumer import KeptConsumer
from understudy.routing.exchanges.exchange import ExchangeBinding
from understudy.routing.queues.queue import Queue
from understudy.session.outcomes import ACCEPTED, REJECTED, Outcome
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode
from understudy.wire.amqp091.layout import Method


def _not_served(text: str) -> Amqp091Error:
    return Amqp091Error(ReplyCode.NOT_IMPLEMENTED, text)


# --- channel -------------------------------------------------------------------------------------


def _flow(channel: Amqp091Channel, method: m.ChannelFlow) -> None:
    if not method.active:
        raise _not_served("channel.flow with active=false is not served: use basic.qos")
    channel.answer(m.ChannelFlowOk(True), wrote=False)


def _close(channel: Amqp091Channel, method: m.ChannelClose) -> None:
    def close() -> None:
        channel.output.send(m.ChannelCloseOk())
        channel.fire(Event.CLOSE)

    # confirms of earlier publishes come before the end
    channel.in_order(method, close)


# --- exchanges -----------------------------------------------------------------------------------


def _declare_exchange(channel: Amqp091Channel, method: m.ExchangeDeclare) -> None:
    host, name = channel.link.peer.host, names.plain(method.exchange)
    if not name:
        raise Amqp091Error(ReplyCode.ACCESS_REFUSED, "the default exchange cannot be declared")
    names.check_exchange(name)
    if method.passive:
        channel.session.exchanges.exchange(host + name)
    else:
        configuration = names.exchange_configuration(method, host)
        if not names.is_predeclared(name):
            names.check_new(name)
        channel.session.exchanges.declare_exchange(configuration)
        if not method.no_wait:

            def repeat() -> None:
                channel.session.exchanges.declare_exchange(configuration)
                channel.output.send(m.ExchangeDeclareOk())

            _remember(channel, repeat)
    channel.answer(m.ExchangeDeclareOk(), wanted=not method.no_wait)


def _delete_exchange(channel: Amqp091Channel, method: m.ExchangeDelete) -> None:
    name = names.plain(method.exchange)
    names.check_exchange(name)
    channel.session.exchanges.delete_exchange(channel.link.peer.host + name, if_unused=method.if_unused)
    channel.answer(m.ExchangeDeleteOk(), wanted=not method.no_wait)


def _exchange_binding(channel: Amqp091Channel, method: m.ExchangeBind | m.ExchangeUnbind) -> ExchangeBinding:
    if not method.source or not method.destination:
        raise Amqp091Error(ReplyCode.ACCESS_REFUSED, "the default exchange cannot be bound")
    host, source, destination = channel.link.peer.host, names.plain(method.source), names.plain(method.destination)
    names.check_exchange(source)
    names.check_exchange(destination)
    return ExchangeBinding(
        host + source,
        host + destination,
        True,
        method.routing_key,
        names.binding_arguments(method.arguments),
    )


def _bind_exchange(channel: Amqp091Channel, method: m.ExchangeBind) -> None:
    channel.session.exchanges.bind(_exchange_binding(channel, method))
    channel.answer(m.ExchangeBindOk(), wanted=not method.no_wait)


def _unbind_exchange(channel: Amqp091Channel, method: m.ExchangeUnbind) -> None:
    channel.session.exchanges.unbind(_exchange_binding(channel, method))
    channel.answer(m.ExchangeUnbindOk(), wanted=not method.no_wait)


# --- queues --------------------------------------------------------------------------------------


def _queue_name(channel: Amqp091Channel, name: str) -> str:
    """The name of a queue with its prefix; without a name the one that was declared last is meant."""
    name = names.plain(name)
    if not name:
        if not channel.declares.last_name:
            raise Amqp091Error(ReplyCode.NOT_FOUND, "no queue was declared on the channel")
        name = channel.declares.last_name
    return channel.link.peer.host + name


def _declare_queue(channel: Amqp091Channel, method: m.QueueDeclare) -> None:
    name = names.plain(method.queue)
    if name.startswith(names.REPLIES):
        _declare_replies(channel, method, name)
        return
    existing: Queue | None
    if method.passive:
        existing = queue = channel.session.exchanges.queue(_queue_name(channel, name))
        name = queue.name.removeprefix(channel.link.peer.host)
    else:
        if name:
            existing = channel.session.state.office.directory.queues.get(channel.link.peer.host + name)
            if existing is None:
                names.check_new(name)
            else:
                # before the arguments are looked at, as RabbitMQ does
                channel.session.exchanges.check_exclusive(existing, exclusive=method.exclusive)
        else:
            existing = None
            name = f"amq.gen-{channel.link.services.shared.entropy.token(16).hex()}"
        configuration = names.queue_configuration(method, name, channel.link.peer.host)
        queue = channel.session.exchanges.declare_queue(configuration)
    channel.declares.last_name = name
    if existing is None:
        channel.declares.known_id = 0 if method.no_wait else queue.queue_id
        channel.answer(m.QueueDeclareOk(name, 0, 0), wanted=not method.no_wait)
    elif not method.no_wait:
        _answer_declare(channel, method, name, queue)


def _answer_declare(channel: Amqp091Channel, method: m.QueueDeclare, name: str, queue: Queue) -> None:
    """Answer a declare of a queue that exists."""
    declares = channel.declares

    def answered() -> m.QueueDeclareOk:
        return m.QueueDeclareOk(name, len(queue.pending), queue.consumers.count)

    def answer() -> None:
        declares.known_id = queue.queue_id
        channel.answer(answered())

    if not method.passive and declares.knows(queue.queue_id):
        # Celery declares the queue before each publish: the answer does not wait for the sync of the one before
        # (ADR 0206)
        channel.output.send(answered())
        _answer_repeated(channel, queue, name, answered)
    else:
        # earlier publishes count, later ones do not
        channel.in_order(method, answer)


def _answer_repeated(
    channel: Amqp091Channel, queue: Queue, name: str, answered: Callable[[], m.QueueDeclareOk]
) -> None:
    """Answer the same declare without reading it when it comes again."""
    if queue.temporary:
        # of the connection, which may change
        return
    declares, expiry = channel.declares, channel.session.state.office.routing.expiry

    def repeat() -> None:
        expiry.used(queue)
        declares.last_name = name
        channel.output.send(answered())

    _remember(channel, repeat, lambda: not queue.deleted and declares.knows(queue.queue_id))


def _remember(channel: Amqp091Channel, repeat: Callable[[], None], holds: Callable[[], bool] = lambda: True) -> None:
    """Have ``repeat`` answer the request that is carried out when it comes again, while ``holds`` is true, no exchange,
    binding or queue has changed and no answer waits that another one could overtake (ADR 0211).
    """
    declares, exchanges = channel.declares, channel.session.state.office.routing.exchanges
    changes = exchanges.changes

    def repeated() -> bool:
        if exchanges.changes == changes and not declares.waiting and holds():
            try:
                repeat()
            except BrokerError as error:
                # carried out by its method, it has the same error
                forget_frames(error)
            else:
                return True
        return False

    declares.remember(repeated)


def _declare_replies(channel: Amqp091Channel, method: m.QueueDeclare, name: str) -> None:
    """Whether a reply address has its consumer."""
    token = name.removeprefix(f"{names.REPLIES}.")
    if name != names.REPLIES and token not in channel.link.services.replies:
        raise Amqp091Error(ReplyCode.NOT_FOUND, f"there is no consumer of replies at {name!r}")
    count = 1 if name != names.REPLIES else 0
    channel.answer(m.QueueDeclareOk(name, 0, count), wanted=not method.no_wait, wrote=False)


def _queue_binding(channel: Amqp091Channel, method: m.QueueBind | m.QueueUnbind) -> ExchangeBinding:
    queue = _queue_name(channel, method.queue)
    if not method.exchange:
        raise Amqp091Error(ReplyCode.ACCESS_REFUSED, "bindings of the default exchange cannot be changed")
    exchange, key = names.plain(method.exchange), method.routing_key
    names.check_exchange(exchange)
    if not method.queue and not key:
        # the specification, queue.bind: the name of the queue that was declared last is the key too
        key = channel.declares.last_name
    return ExchangeBinding(
        channel.link.peer.host + exchange,
        queue,
        False,
        key,
        names.binding_arguments(method.arguments),
    )


def _bind_queue(channel: Amqp091Channel, method: m.QueueBind) -> None:
    binding = _queue_binding(channel, method)
    channel.session.exchanges.bind(binding)
    channel.answer(m.QueueBindOk(), wanted=not method.no_wait)
    if method.queue and not method.no_wait:

        def repeat() -> None:
            channel.session.exchanges.bind(binding)
            channel.output.send(m.QueueBindOk())

        _remember(channel, repeat)


def _unbind_queue(channel: Amqp091Channel, method: m.QueueUnbind) -> None:
    channel.session.exchanges.unbind(_queue_binding(channel, method))
    channel.answer(m.QueueUnbindOk())


def _purge(channel: Amqp091Channel, method: m.QueuePurge) -> None:
    name = _queue_name(channel, method.queue)

    def purge() -> None:
        count = channel.session.exchanges.purge(name)
        channel.answer(m.QueuePurgeOk(count), wanted=not method.no_wait)

    channel.in_order(method, purge)


def _delete_queue(channel: Amqp091Channel, method: m.QueueDelete) -> None:
    name = _queue_name(channel, method.queue)

    def delete() -> None:
        count = channel.session.exchanges.delete_queue(name, if_unused=method.if_unused, if_empty=method.if_empty)
        channel.answer(m.QueueDeleteOk(count), wanted=not method.no_wait)

    channel.in_order(method, delete)


# --- basic ---------------------------------------------------------------------------------------


def _qos(channel: Amqp091Channel, method: m.BasicQos) -> None:
    if method.prefetch_size:
        raise _not_served("basic.qos with a prefetch size is not served")
    channel.deliveries.limit(method.prefetch_count, for_channel=method.for_channel)
    channel.save()
    channel.answer(m.BasicQosOk(), wrote=channel.publisher.record is not None)


def _consume(channel: Amqp091Channel, method: m.BasicConsume) -> None:
    tag = method.consumer_tag or f"amq.ctag-{channel.link.services.shared.entropy.token(16).hex()}"
    channel.deliveries.check_tag(tag)
    if method.queue == names.REPLIES:
        _consume_replies(channel, method, tag)
        return
    name = _queue_name(channel, method.queue)

    record, prefetch = channel.publisher.record, channel.deliveries.prefetch_count

    def consume() -> None:
        if record is not None:
            record.awaited.pop(tag, None)
        channel.deliveries.check_tag(tag)
        channel.deliveries.consume(method, channel.session.exchanges.queue(name), tag, prefetch)
        if not method.no_wait:
            channel.output.send(m.BasicConsumeOk(tag))

    if record is not None:
        # deliveries follow the answer, which follows the record
        record.awaited[tag] = KeptConsumer.of(method, tag, name.removeprefix(channel.link.peer.host), prefetch)
        channel.save()
    channel.in_order(method, consume, durable=record is not None)


def _consume_replies(channel: Amqp091Channel, method: m.BasicConsume, tag: str) -> None:
    if not method.no_ack:
        raise names.refused("replies are consumed with no-ack")
    if channel.reply_tag is not None:
        raise names.refused("the channel consumes replies already")
    token = channel.link.services.shared.entropy.token(16).hex()
    channel.reply_tag, channel.publisher.reply_token = tag, token
    channel.link.services.replies[token] = channel
    channel.answer(m.BasicConsumeOk(tag), wanted=not method.no_wait, wrote=False)


def _cancel(channel: Amqp091Channel, method: m.BasicCancel) -> None:
    record = channel.publisher.record

    def cancel() -> None:
        # in order, as a basic.consume before it may still wait
        if method.consumer_tag == channel.reply_tag:
            channel.link.services.replies.pop(channel.publisher.reply_token or "", None)
            channel.reply_tag = channel.publisher.reply_token = None
        else:
            channel.deliveries.cancel(method.consumer_tag)
            channel.save()
        channel.answer(m.BasicCancelOk(method.consumer_tag), wanted=not method.no_wait)

    channel.in_order(method, cancel, durable=record is not None and method.consumer_tag in record.awaited)


def _get(channel: Amqp091Channel, method: m.BasicGet) -> None:
    name = _queue_name(channel, method.queue)

    def get() -> None:
        queue = channel.session.exchanges.queue(name)
        held = channel.link.held
        held.hold(channel)
        try:
            channel.deliveries.get(method, queue, partial(held.go_on, channel))
        except BrokerError:
            held.go_on(channel)
            raise

    channel.in_order(method, get)


def _ack(channel: Amqp091Channel, method: m.BasicAck) -> None:
    _settle(channel, method.delivery_tag, ACCEPTED, multiple=method.multiple)


def _nack(channel: Amqp091Channel, method: m.BasicNack) -> None:
    outcome = RETURNED if method.requeue else REJECTED
    _settle(channel, method.delivery_tag, outcome, multiple=method.multiple)


def _reject(channel: Amqp091Channel, method: m.BasicReject) -> None:
    _settle(channel, method.delivery_tag, RETURNED if method.requeue else REJECTED, multiple=False)


def _settle(channel: Amqp091Channel, tag: int, outcome: Outcome, *, multiple: bool) -> None:
    channel.deliveries.settle(tag, outcome, multiple=multiple, transacted=channel.publisher.transacted)


def _recover(channel: Amqp091Channel, method: m.BasicRecover) -> None:
    _check_recover(method)

    def recover() -> None:
        # the deliveries that come again follow the answer
        channel.output.send(m.BasicRecoverOk())
        channel.deliveries.recover()

    channel.in_order(method, recover)


def _recover_async(channel: Amqp091Channel, method: m.BasicRecoverAsync) -> None:
    _check_recover(method)
    channel.deliveries.recover()


def _check_recover(method: m.BasicRecover | m.BasicRecoverAsync) -> None:
    if not method.requeue:
        raise _not_served("basic.recover without requeue is not served")


# --- confirm, tx ---------------------------------------------------------------------------------


def _select_confirms(channel: Amqp091Channel, method: m.ConfirmSelect) -> None:
    if channel.publisher.transacted:
        raise names.refused("the channel is transacted")
    if not channel.publisher.confirms:
        channel.publisher.select(confirms=True)
        channel.save()
    channel.answer(m.ConfirmSelectOk(), wanted=not method.no_wait)


def _select_transactions(channel: Amqp091Channel, method: m.TxSelect) -> None:
    if channel.publisher.confirms:
        raise names.refused("publishes of the channel are confirmed")
    if not channel.publisher.transacted:
        channel.publisher.select(confirms=False)
        channel.session.begin_transactions()
        channel.save()
    channel.answer(m.TxSelectOk())


def _commit(channel: Amqp091Channel, method: m.TxCommit) -> None:
    _check_transacted(channel)
    if channel.publisher.rolled_back:
        raise names.refused("the transaction was rolled back without its client: tx.rollback begins a new one")
    channel.deliveries.settle_deferred()
    channel.publisher.count_commit()

    def done(error: BrokerError | None) -> None:
        channel.link.held.go_on(channel)
        if not channel.answers:
            return
        if error is not None:
            channel.publisher.drop_returns()
            channel.refuse(error, method)
            return
        channel.publisher.send_returns()
        channel.output.send(m.TxCommitOk())

    # requests after a commit that fails are not carried out
    channel.link.held.hold(channel)
    channel.session.commit(done)


def _rollback(channel: Amqp091Channel, method: m.TxRollback) -> None:
    _check_transacted(channel)
    channel.deliveries.restore_deferred()
    channel.publisher.drop_returns()
    channel.publisher.rolled_back = False
    channel.session.undo()
    channel.answer(m.TxRollbackOk())


def _check_transacted(channel: Amqp091Channel) -> None:
    if not channel.publisher.transacted:
        raise names.refused("the channel is not transacted")


HANDLERS: Final[dict[type[Method], Callable[[Amqp091Channel, Any], None]]] = {
    m.ChannelFlow: _flow,
    m.ChannelFlowOk: lambda channel, method: None,
    m.ChannelClose: _close,
    m.ExchangeDeclare: _declare_exchange,
    m.ExchangeDelete: _delete_exchange,
    m.ExchangeBind: _bind_exchange,
    m.ExchangeUnbind: _unbind_exchange,
    m.QueueDeclare: _declare_queue,
    m.QueueBind: _bind_queue,
    m.QueueUnbind: _unbind_queue,
    m.QueuePurge: _purge,
    m.QueueDelete: _delete_queue,
    m.BasicQos: _qos,
    m.BasicConsume: _consume,
    m.BasicCancel: _cancel,
    m.BasicCancelOk: lambda channel, method: None,
    m.BasicGet: _get,
    m.BasicAck: _ack,
    m.BasicNack: _nack,
    m.BasicReject: _reject,
    m.BasicRecover: _recover,
    m.BasicRecoverAsync: _recover_async,
    m.ConfirmSelect: _select_confirms,
    m.TxSelect: _select_transactions,
    m.TxCommit: _commit,
    m.TxRollback: _rollback,
}
