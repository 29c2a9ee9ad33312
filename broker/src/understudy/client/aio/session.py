"""Sessions of the asyncio client."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Final, Unpack, cast

from understudy.client.aio.bodies import Received
from understudy.client.aio.consumer import Browser, Consumer
from understudy.client.aio.link import Link, exclusive, run_handler
from understudy.client.aio.producer import Producer
from understudy.client.aio.requests import TransactionBlock, ask, close_session, converse
from understudy.client.aio.xa import XaBranches
from understudy.client.core.consumer.state import ConsumerSettings, ConsumerState, ReceivedMessage
from understudy.client.core.session.send_options import MessageOptions, reply_options, request_options
from understudy.client.core.session.state import SessionState
from understudy.client.core.url.destinations import (
    QueueAttributes,
    Request,
    RoutingType,
    create_address,
    create_queue,
    create_shared_queue,
    ensure_address,
    ensure_queue,
    query_address,
    query_queue,
    queue_request,
    routing_type,
    split_name,
    subscription_queue,
)
from understudy.client.core.url.jms_names import ProducerTarget, producer_target, queue_name, topic_name
from understudy.client.sources import Body
from understudy.errors import AddressNotFound, CallTimedOut, IllegalState
from understudy.ids import uuid_text
from understudy.wire.core.packets import (
    BindingQueryResponse,
    CreateSharedQueueV2,
    DeleteQueue,
    NullResponse,
    QueueQueryResponse,
)

DEFAULT_WINDOW: Final = 500
"""Sends without an outcome up to which ``Producer.wait_sendable`` does not wait."""


class Session:
    """Producers, consumers and, if transacted, one transaction after the other. Made by ``Connection.session``.

    A session is one conversation with the broker. Several tasks may use one, but its transaction, and what CLIENT mode
    acknowledges, are common to all of them; tasks that work on their own use sessions of their own.
    """

    def __init__(self, connection: object, link: Link, state: SessionState, created_at: str) -> None:
        self._connection = connection  # the task lives as long as the session
        self._link = link
        self._state = state
        state.created_at = created_at
        self.created_at = created_at
        """File and line that made it, for the warning about a session that was never closed."""

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close(failed=kind is not None)

    def __del__(self) -> None:
        if self._state.closed is None and self._link.core.closed is None and self._link.usable:
            warnings.warn(f"session made at {self.created_at} was never closed", ResourceWarning, 2, self)
            self._link.soon(self._link.forget_session, self._state)

    def __repr__(self) -> str:
        state = self._state
        mode = "xa" if state.options.xa else state.options.mode.value
        counts = f"producers: {len(state.producers)}, consumers: {len(state.consumers)}"
        return f"<Session {mode}, {'open' if state.closed is None else 'closed'}, {counts}>"

    @property
    def rollback_only(self) -> bool:
        """Whether a failover has undone work of the open transaction or branch, so that its commit will fail."""
        return self._state.rollback_only

    @property
    def xa(self) -> XaBranches:
        """The branches of an XA session (``Connection.session(xa=True)``)."""
        return XaBranches(self, self._link, self._state)

    async def close(self) -> None:
        """Wait for unconfirmed sends, at most callTimeout, then close the session. In AUTO and DUPS_OK mode received
        messages are acknowledged, unless an error leaves a ``with`` block: it gives the messages in work back
        (docs/use/client.md). Open work is rolled back. Closing twice does nothing.

        Raises:
            CallTimedOut: no answer within callTimeout, or no failover within callFailoverTimeout.

        Failover: the call waits for its end and closes the session at the new connection.

        Concurrency: any task may close it; calls of other tasks that wait raise ``ObjectClosed``.
        """
        await self._close(failed=False)

    @exclusive
    async def _close(self, *, failed: bool) -> None:
        await close_session(self._link, self._state, failed=failed)

    @exclusive
    def start(self) -> None:
        """Let the broker deliver again after ``stop``. A new session is started.
        Failover: the session is started at the new connection.

        Concurrency: any task may call it.

        Source: artemis-core s. 6.1.
        """
        self._state.start()

    async def stop(self) -> None:
        """Let the broker stop delivering, and wait for its answer. Messages that have arrived can still be received.

        Raises:
            ObjectClosed: the session is closed.
            CallTimedOut: no answer within callTimeout, or no failover within callFailoverTimeout.

        Failover: the call returns; the session is not started at the new connection.

        Concurrency: any task may call it; tasks that wait in ``receive`` go on waiting.

        Source: artemis-core s. 6.1.
        """
        await self._link.ask(self._state.stop)

    async def commit(self) -> None:
        """Commit: messages become visible, received ones are acknowledged, and the next transaction begins.

        Raises:
            TransactionRolledBack: everything in it was undone, as by a failover, or when the broker closed a consumer.
            CommitOutcomeUnknown: the connection was lost before the answer. The same transaction again with the same
                duplicate ids commits, or fails with ``DuplicateIdRejected`` because it had committed.
            DuplicateIdRejected: the broker already knew the duplicate id of one of its messages.
            IllegalState: the session is not transacted.
            ObjectClosed: the session is closed.
            CallTimedOut: no failover within callFailoverTimeout.

        Failover: a commit that was sent raises ``CommitOutcomeUnknown`` at once; one that was not sent yet, or that
        follows a failover in the middle of the transaction, rolls back and raises ``TransactionRolledBack``.

        Concurrency: one task at a time; the transaction has the work of all tasks that use the session.

        Source: artemis-core s. 6.4 and 8.3.
        """
        await self._link.ask(self._state.commit)

    async def rollback(self) -> None:
        """Undo the transaction; the messages received in it are delivered again. The next transaction begins.

        Raises:
            IllegalState: the session is not transacted.
            ObjectClosed: the session is closed.
            CallTimedOut: no answer within callTimeout, or no failover within callFailoverTimeout.

        Failover: the call returns; the broker has rolled back.

        Concurrency: one task at a time; the transaction has the work of all tasks that use the session.

        Source: artemis-core s. 6.4.
        """
        await self._link.ask(self._state.rollback)

    def transaction(self) -> TransactionBlock:
        """A block that is one transaction: its end commits, an error that leaves it rolls back.

        Returns:
            The block, for ``async with``; more than one may follow each other.

        Raises:
            IllegalState: the session is not transacted (when the block begins).
            TransactionRolledBack, CommitOutcomeUnknown, DuplicateIdRejected: the commit at its end failed.

        Failover and concurrency: as of ``commit`` and ``rollback``.
        """
        return TransactionBlock(self._link, self._state)

    async def request(
        self, address: str, body: Body = None, *, timeout_s: float = 30.0, **options: Unpack[MessageOptions]
    ) -> Received:
        """Send a request and wait for its answer, which comes to a temporary queue of its own.

        Args:
            address: Where the request is sent.
            body: The same as for ``Producer.send``.
            timeout_s: Seconds to wait for the answer.
            options: The same as for ``Producer.send``; ``correlation_id`` is made if it is not given.

        Returns:
            The answer, with its whole body. It needs no acknowledgement.

        Raises:
            CallTimedOut: no answer within ``timeout_s``.
            IllegalState: the session is transacted: a request would be sent with the commit only.
            and what ``Producer.send`` and ``consumer`` raise.

        Failover: the call goes on. An answer that the broker had before the failover is lost with the temporary queue;
        then the call times out.

        Concurrency: any task may call it, and several requests may be under way.
        """
        if not self._state.options.auto_commit_sends:
            raise IllegalState("a request in a transaction would be sent with its commit only")
        place = await self.create_temporary_queue()
        try:
            async with await self.consumer(place, auto_create=False) as answers:
                async with await self.producer(address) as producer:
                    await producer.send(body, **request_options(options, place, uuid_text(self._link.entropy(16))))
                answer = await answers.receive(timeout_s)
                if answer is None:
                    raise CallTimedOut(f"no answer from {address} within {timeout_s} s", hint="is a responder running?")
                await answer.read_content()
        finally:
            if self._state.closed is None:
                await self.delete_queue(place)
        return answer

    async def reply(self, request: ReceivedMessage, body: Body = None, **options: Unpack[MessageOptions]) -> bool:
        """Send the answer to a request, which may come from a JMS client, with the correlation id that it expects.

        Args:
            request: A received message.
            body: The same as for ``Producer.send``.
            options: The same as for ``Producer.send``.

        Returns:
            Whether it was sent; False if the request wants no answer, or its requester has gone.

        Raises:
            Exception: what ``Producer.send`` and ``producer`` raise.

        Failover and concurrency: as of ``Producer.send``.
        """
        if request.reply_to is None:
            return False
        try:
            async with await self.producer(request.reply_to) as producer:
                await producer.send(body, **reply_options(options, request.correlation_id or request.jms_message_id))
        except AddressNotFound:
            return False
        return True

    async def respond(self, queue: str, responder: Callable[[Received], object]) -> None:
        """Answer every request of a queue, one at a time, until the session is closed.

        Args:
            queue: Where the requests come.
            responder: Called with each request; its result, which is awaited if it can be, is the body of the answer.

        Raises:
            Exception: any error of the responder or of the answer, which ends the loop and gives the request back, its
                delivery counted.
            QueueNotFound: the queue was deleted.
            ConnectionLost, FailoverTimedOut: the connection was lost and no other came back.

        Failover: the loop goes on; a request that was not finished comes again, and is answered again.

        Concurrency: several tasks may answer requests of one queue, each with a session of its own.
        """
        async with await self.consumer(queue) as requests:
            async for request in requests:
                async with request.process():
                    await self.reply(request, cast(Body, await run_handler(responder, request)))

    async def acknowledge(self, message: ReceivedMessage) -> bool:
        """Acknowledge a message as the session's mode says: CLIENT, everything that the session has received;
        INDIVIDUAL, this message. In the other modes nothing is waited for.

        Args:
            message: A message that this session received.

        Returns:
            True once the broker has confirmed it; at once in modes without a confirmation. False if the message was
            received before a failover, or its consumer or connection was lost before the answer: expect it again.

        Raises:
            TransactionRolledBack: the broker had closed a consumer: expect the messages again.
            CallTimedOut: no answer within callTimeout, or no failover within callFailoverTimeout.

        Failover: returns False, since the broker delivers the message again.

        Concurrency: any task of the session may acknowledge. CLIENT mode covers messages received by other tasks, too.

        Source: artemis-core s. 6.1 and 6.4.
        """
        answer: bool = await self._link.ask(lambda waiter: self._state.settlements.acknowledge(message, waiter))
        return answer

    async def add_metadata(self, key: str, value: str, *, unique: bool = False) -> None:
        """Attach a key and a value to the session, shown by management.

        Args:
            key: Key of the pair.
            value: Value of the pair.
            unique: No other session of the broker may have the same pair.

        Raises:
            DuplicateMetadata: ``unique``, and another session has the same pair.
            ObjectClosed: the session is closed.
            CallTimedOut: no answer within callTimeout, or no failover within callFailoverTimeout.

        Failover: the call goes on; the pair is attached again at the new connection.

        Concurrency: any task may call it.
        """
        await self._link.ask(lambda waiter: self._state.add_metadata(key, value, unique, waiter))

    async def query_queue(self, name: str) -> QueueQueryResponse:
        """Ask the broker for the attributes of a queue.

        Args:
            name: Name of the queue.

        Returns:
            The answer; its ``exists`` says whether there is such a queue.

        Raises:
            NotAuthorized: the user may not ask.
            ObjectClosed: the session is closed.
            CallTimedOut: no answer within callTimeout, or no failover within callFailoverTimeout.

        Failover: the call goes on; the question is asked again.

        Concurrency: any task may call it.
        """
        answer: QueueQueryResponse = await ask(self._link, self._state, query_queue(name))
        return answer

    async def query_address(self, name: str) -> BindingQueryResponse:
        """Ask the broker for the attributes of an address and its queues.

        Args:
            name: Name of the address.

        Returns:
            The answer; its ``exists`` says whether there is such an address.

        Raises:
            NotAuthorized: the user may not ask.
            ObjectClosed: the session is closed.
            CallTimedOut: no answer within callTimeout, or no failover within callFailoverTimeout.

        Failover: the call goes on; the question is asked again.

        Concurrency: any task may call it.
        """
        answer: BindingQueryResponse = await ask(self._link, self._state, query_address(name))
        return answer

    async def create_address(
        self, name: str, routing: RoutingType | str = RoutingType.ANYCAST, *more: RoutingType | str
    ) -> None:
        """Create an address.

        Args:
            name: Name of the address.
            routing: ``RoutingType`` or its name, "anycast" or "multicast".
            more: Further ones.

        Raises:
            AddressExists: it exists and the broker refuses that; Understudy and Artemis 2.44 do not.
            ConfigError: no such routing type.
            NotAuthorized: the user may not create it.
            ObjectClosed: the session is closed.
            CallTimedOut: no answer within callTimeout, or no failover within callFailoverTimeout.

        Failover: the call goes on; an address that exists when asked again counts as created.

        Concurrency: any task may call it.
        """
        await ask(self._link, self._state, create_address(name, *map(routing_type, (routing, *more))))

    @exclusive
    async def create_queue(
        self,
        name: str,
        *,
        address: str | None = None,
        routing: RoutingType | str = RoutingType.ANYCAST,
        filter: str | None = None,  # noqa: A002  # the field's standard name
        durable: bool = True,
        temporary: bool = False,
        **attributes: Unpack[QueueAttributes],
    ) -> None:
        """Create a queue, and its address if it does not exist.

        Args:
            name: Name of the queue.
            address: Address of the queue; None for the name of the queue.
            routing: ``RoutingType`` or its name, "anycast" or "multicast".
            filter: Selector; only matching messages are routed to the queue.
            durable: Whether it outlives a restart.
            temporary: Whether it is deleted with the connection.
            attributes: Further properties (``QueueAttributes``); address settings give the rest.

        Raises:
            QueueExists: a queue of this name exists.
            InvalidSelector: the filter cannot be parsed.
            ConfigError: no such routing type.
            TypeError: no such attribute.
            NotAuthorized: the user may not create it.
            ObjectClosed: the session is closed.
            CallTimedOut: no answer within callTimeout, or no failover within callFailoverTimeout.

        Failover: the call goes on; a queue that exists when asked again counts as created. A temporary queue is
        created again at the new connection.

        Concurrency: any task may call it.
        """
        packet = queue_request(
            name, address or name, routing_type(routing), filter, durable=durable, temporary=temporary, **attributes
        )
        await ask(self._link, self._state, create_queue(packet))
        if temporary:
            self._state.temporary_queue_created(packet)

    async def create_temporary_queue(self) -> str:
        """Create a queue with a name of its own that is deleted with the connection.

        Returns:
            Its name.

        Raises:
            NotAuthorized: the user may not create it.
            ObjectClosed: the session is closed.
            CallTimedOut: no answer within callTimeout, or no failover within callFailoverTimeout.

        Failover: the call goes on; the queue is created again, empty, at the new connection.

        Concurrency: any task may call it.
        """
        name = uuid_text(self._link.entropy(16))
        await self.create_queue(name, durable=False, temporary=True)
        return name

    @exclusive
    async def delete_queue(self, name: str) -> None:
        """Delete a queue with its messages.

        Args:
            name: Name of the queue.

        Raises:
            QueueNotFound: it does not exist.
            IllegalState: it has a consumer.
            NotAuthorized: the user may not delete it.
            ObjectClosed: the session is closed.
            CallTimedOut: no answer within callTimeout, or no failover within callFailoverTimeout.

        Failover: the call goes on; asked again, it raises ``QueueNotFound`` if the first request was carried out.

        Concurrency: any task may call it.
        """
        await ask(self._link, self._state, Request(f"delete queue {name}", DeleteQueue(name), NullResponse))
        self._state.queue_deleted(name)

    async def producer(
        self,
        address: str | None = None,
        *,
        routing: RoutingType | str | None = RoutingType.ANYCAST,
        window: int = DEFAULT_WINDOW,
        duplicate_ids: bool = True,
        auto_create: bool = True,
    ) -> Producer:
        """Make a producer.

        Args:
            address: Where it sends, also as in ``ReceivedMessage.reply_to``; None for one given with each message.
            routing: Kind of queues its messages go to: ``RoutingType`` or its name; None for any.
            window: Number of sends without an outcome up to which ``wait_sendable`` does not wait; at least 1.
            duplicate_ids: Give every message a duplicate id, so that it can be sent again after a failover without
                being delivered twice. Without it such a send raises ``SendOutcomeUnknown``. In a transaction messages
                have only the ids that ``send`` is given.
            auto_create: Create the address, and an anycast queue, if they do not exist.

        Returns:
            The producer.

        Raises:
            AddressNotFound, QueueNotFound: it does not exist and the broker does not create it on demand.
            IllegalState: the window is smaller than 1.
            ConfigError: no such routing type.
            NotAuthorized: the user may not create it.
            ObjectClosed: the session is closed.
            CallTimedOut: no answer within callTimeout, or no failover within callFailoverTimeout.

        Failover: the call goes on; the producer works at the new connection.

        Concurrency: any task may call it, and several may use the producer.

        Source: artemis-core s. 6.1.
        """
        if window < 1:
            raise IllegalState(f"a window of {window} sends")
        kind = None if routing is None else routing_type(routing)
        if address is not None:
            target = producer_target(address, kind, auto_create=auto_create)
            if target.conversation is not None:
                await converse(self._link, self._state, target.conversation)
            return self._producer(target, window, duplicate_ids)
        return self._producer(ProducerTarget(None, kind), window, duplicate_ids)

    @exclusive
    def _producer(self, target: ProducerTarget, window: int, duplicate_ids: bool) -> Producer:
        marked = duplicate_ids and self._state.options.auto_commit_sends
        by_id = self._link.core.link.codec.duplicate_ids
        on_demand = target.routing if target.on_demand else None
        state = self._state.open_producer(target.address, window, repeats=marked and not by_id, on_demand=on_demand)
        prefix = uuid_text(self._link.entropy(16)) + ":" if marked and by_id else None
        return Producer(self, self._link, self._state, state, target.routing, prefix)

    async def consumer(
        self,
        queue: str,
        *,
        filter: str | None = None,  # noqa: A002  # the field's standard name
        priority: int = 0,
        window_bytes: int | None = None,
        routing: RoutingType | str = RoutingType.ANYCAST,
        auto_create: bool = True,
    ) -> Consumer:
        """Make a consumer of a queue.

        Args:
            queue: Name of the queue, or ``address::queue``.
            filter: Selector; only matching messages are delivered.
            priority: Messages go to consumers of a higher priority first.
            window_bytes: Bytes that may arrive before they are received; 0 for one message at a time, -1 for no limit,
                None for the URL's consumerWindowSize.
            routing: Kind of the queue: ``RoutingType`` or its name.
            auto_create: Create the queue if it does not exist.

        Returns:
            The consumer; messages arrive at once if the session is started.

        Raises:
            QueueNotFound, AddressNotFound: it does not exist and may not be created.
            UnexpectedRoutingType: the queue has the other routing type.
            InvalidSelector: the filter cannot be parsed.
            MaxConsumersExceeded: the queue has all the consumers that it may have.
            ConfigError: no such routing type.
            NotAuthorized: the user may not consume from it.
            ObjectClosed: the session is closed.
            CallTimedOut: no answer within callTimeout, or no failover within callFailoverTimeout.

        Failover: the call goes on; a consumer is made again at the new connection, and so is its queue if it was
        created on demand.

        Concurrency: any task may call it. A call that is cancelled while it waits leaves no consumer open.

        Source: artemis-core s. 6.1 and 6.3.
        """
        queue = queue_name(queue)
        if auto_create:
            await converse(self._link, self._state, ensure_queue(queue, routing_type(routing)))
        settings = ConsumerSettings(filter, False, priority, window_bytes, auto_create)
        return await self._consumer(queue, settings)

    async def subscriber(
        self,
        address: str,
        *,
        name: str | None = None,
        shared: bool = False,
        durable: bool = True,
        filter: str | None = None,  # noqa: A002  # the field's standard name
        window_bytes: int | None = None,
    ) -> Consumer:
        """Make a consumer of a multicast address. Its queue has the name that JMS clients give it, so both kinds of
        clients can share a subscription.

        Args:
            address: Address of the messages; created if it does not exist.
            name: Name of the subscription; with the client id, if there is one, that of its queue. None for a
                subscription that ends with the consumer.
            shared: Other consumers may use the subscription at the same time.
            durable: A named subscription outlives its consumers. One that does not must be shared.
            filter: Selector; only matching messages come to the subscription.
            window_bytes: The same as for ``consumer``.

        Returns:
            The consumer.

        Raises:
            IllegalState: named, but neither durable nor shared; or shared without a name.
            SharedQueueMismatch: a shared subscription of this name has another address or filter.
            and what ``consumer`` raises.

        Failover: as for ``consumer``; the queue of a subscription without a name is created again, empty.

        Concurrency: any task may call it. A call that is cancelled while it waits leaves no consumer open.

        Source: artemis-core s. 6.1 step 7.
        """
        if (name is None and shared) or (name is not None and not durable and not shared):
            raise IllegalState("a subscription has a name and is durable or shared, or has neither")
        address = topic_name(address)
        await converse(self._link, self._state, ensure_address(address, RoutingType.MULTICAST))
        if name is None:
            queue = uuid_text(self._link.entropy(16))
            await self.create_queue(
                queue, address=address, routing=RoutingType.MULTICAST, filter=filter, durable=False, temporary=True
            )
            return await self._consumer(queue, ConsumerSettings(window_bytes=window_bytes))
        queue = self.subscription_queue(name, durable=durable)
        if not shared:
            if not (await self.query_queue(queue)).exists:
                await self.create_queue(queue, address=address, routing=RoutingType.MULTICAST, filter=filter)
            return await self._consumer(queue, ConsumerSettings(window_bytes=window_bytes))
        packet = CreateSharedQueueV2(address, queue, filter, durable, int(RoutingType.MULTICAST))
        await ask(self._link, self._state, create_shared_queue(packet))
        return await self._consumer(queue, ConsumerSettings(window_bytes=window_bytes), packet)

    def subscription_queue(self, name: str, *, durable: bool = True) -> str:
        """The name of the queue of a named subscription, as JMS clients call it.

        Args:
            name: Name of the subscription.
            durable: Whether the subscription is durable.

        Returns:
            The client id, if there is one, and the name, joined by a dot; ``nonDurable.`` before it if it is not.

        Failover and concurrency: no effect; nothing is sent.

        Source: artemis-core s. 6.1 step 7.
        """
        return subscription_queue(name, self._link.core.options.client_id, durable=durable)

    async def unsubscribe(self, name: str) -> None:
        """End a durable subscription and delete its queue with the messages in it.

        Args:
            name: Name of the subscription.

        Raises:
            QueueNotFound: the subscription does not exist.
            IllegalState: it has a consumer.
            ObjectClosed: the session is closed.
            CallTimedOut: no answer within callTimeout, or no failover within callFailoverTimeout.

        Failover: the call goes on; asked again, it raises ``QueueNotFound`` if the first request was carried out.

        Concurrency: any task may call it.
        """
        await self.delete_queue(self.subscription_queue(name))

    async def browser(
        self,
        queue: str,
        *,
        filter: str | None = None,  # noqa: A002  # the field's standard name
    ) -> Browser:
        """Make a browser, which shows the messages of a queue and consumes none. It can be iterated several times.

        Args:
            queue: Name of the queue, or ``address::queue``.
            filter: Selector; only matching messages are shown.

        Returns:
            The browser. Errors of the queue and the filter are raised when it is iterated.

        Raises:
            NotAuthorized: the user may not ask for the queue.
            ObjectClosed: the session is closed.
            CallTimedOut: no answer within callTimeout, or no failover within callFailoverTimeout.

        Failover: an iteration under way starts at the first message again.

        Concurrency: any task may call it; each iteration has a consumer of its own.
        """
        queue = queue_name(queue)
        await self.query_queue(queue)
        return Browser(lambda: self._consumer(queue, ConsumerSettings(filter, browse_only=True)))

    async def _consumer(
        self,
        queue: str,
        settings: ConsumerSettings,
        shared: CreateSharedQueueV2 | None = None,
    ) -> Consumer:
        state: ConsumerState = await self._link.ask(
            lambda waiter: self._state.consumers.open(
                split_name(queue)[1],
                waiter,
                settings,
                make_received=Received,
                shared=shared,
            )
        )
        return Consumer(self, self._link, self._state, state)
