"""Sessions of the asyncio client. Part of ``aio``."""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, Final, Unpack

from understudy.client.aio.bodies import Received
from understudy.client.aio.endpoints import Browser, Consumer, Producer
from understudy.client.aio.link import LoopLink, resolve
from understudy.client.aio.xa import XaBranches
from understudy.client.core.consumer import ConsumerState, MakeReceived, ReceivedMessage
from understudy.client.core.destinations import (
    Conversation,
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
from understudy.client.core.session import SessionState
from understudy.errors import BrokerError, IllegalState
from understudy.ids import uuid_text
from understudy.wire.core.packets import (
    BindingQueryResponse,
    CreateSharedQueueV2,
    DeleteQueue,
    NullResponse,
    QueueQueryResponse,
)

DEFAULT_WINDOW: Final = 500


def creation_place() -> str:
    """File and line of the first caller outside this package and asyncio, for warnings."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if not module.startswith(("understudy.client", "asyncio", "concurrent", "threading")):
            break
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


async def close_session(link: LoopLink, session: SessionState) -> None:
    """Wait for unconfirmed sends, at most callTimeout, then close it."""
    deadline = link.loop.time() + link.core.options.call_timeout_ms / 1000
    while session.sends.busy and session.closed is None and link.loop.time() < deadline:
        waiter: asyncio.Future[None] = link.loop.create_future()
        session.sends.on_idle = lambda waiter=waiter: resolve(waiter)
        timer = link.loop.call_at(deadline, resolve, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
    await link.ask(session.close)


class Session:
    """Producers, consumers and, if transacted, one transaction after the other.

    Not for several tasks at once where order matters: it is one conversation.
    """

    def __init__(self, connection: object, link: LoopLink, state: SessionState, created_at: str) -> None:
        self._connection = connection  # lives as long as we do
        self._link = link
        self._state = state
        self.created_at = created_at
        """File and line, for the warning about a session that was never closed."""
        self.make_received: MakeReceived = Received
        """Makes what consumers give; ``sync`` has its own."""

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        if self._state.closed is None and self._link.core.closed is None and not self._link.loop.is_closed():
            warnings.warn(f"session made at {self.created_at} was never closed", ResourceWarning, 2, self)
            self._link.loop.call_soon_threadsafe(self._link.forget_session, self._state)

    @property
    def rollback_only(self) -> bool:
        """Whether a failover undid the work of the open transaction."""
        return self._state.rollback_only

    @property
    def xa(self) -> XaBranches:
        """Branches of an XA session (``Connection.session(xa=True)``)."""
        return XaBranches(self, self._link, self._state)

    async def close(self) -> None:
        """Wait for unconfirmed sends, at most callTimeout, then close; open work is rolled back."""
        await close_session(self._link, self._state)

    def start(self) -> None:
        """Let deliveries come again after ``stop``."""
        self._state.start()

    async def stop(self) -> None:
        """Stop deliveries; what already arrived can still be received."""
        await self._link.ask(self._state.stop)

    async def commit(self) -> None:
        """Raises:
        TransactionRolledBack: everything in it was undone, for instance by a failover.
        CommitOutcomeUnknown: the connection was lost before the answer.
        DuplicateIdRejected: one of its messages had been sent before.
        """
        await self._link.ask(self._state.commit)

    async def rollback(self) -> None:
        """Undo the transaction; its messages are delivered again."""
        await self._link.ask(self._state.rollback)

    async def acknowledge(self, message: ReceivedMessage) -> bool:
        """Acknowledge as the session's mode says; True once the broker confirmed it.

        False: it came before a failover, or the connection was lost under way; expect it again.
        In AUTO and TRANSACTED mode there is nothing to wait for and the answer is True.
        """
        answer: bool = await self._link.ask(lambda future: self._state.consumers.acknowledge(message, future))
        return answer

    async def add_metadata(self, key: str, value: str, *, unique: bool = False) -> None:
        """Label the session as management of the broker shows it.

        Raises:
            DuplicateMetadata: ``unique``, and another session has this pair.
        """
        await self._link.ask(lambda future: self._state.add_metadata(key, value, unique, future))

    async def _request(self, request: Request) -> Any:
        return await self._link.ask(
            lambda future: self._state.request(
                request.name, request.packet, request.expected, future, tolerated=request.tolerated
            )
        )

    async def _converse(self, conversation: Conversation) -> None:
        """Drive a conversation to its end."""
        step: Callable[[], Request] = conversation.__next__
        while True:
            try:
                request = step()
            except StopIteration:
                return
            try:
                answer = await self._request(request)
            except BrokerError as error:
                step = _thrower(conversation, error)
            else:
                step = _sender(conversation, answer)

    async def query_queue(self, name: str) -> QueueQueryResponse:
        """What the broker knows of a queue; ``exists`` says whether there is one."""
        answer: QueueQueryResponse = await self._request(query_queue(name))
        return answer

    async def query_address(self, name: str) -> BindingQueryResponse:
        """What the broker knows of an address and its queues."""
        answer: BindingQueryResponse = await self._request(query_address(name))
        return answer

    async def create_address(self, name: str, routing: RoutingType | str = RoutingType.ANYCAST) -> None:
        """Raises:
        AddressExists: there is one already, and the broker minds; Understudy and Artemis 2.44 do not.
        """
        await self._request(create_address(name, routing_type(routing)))

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
        """Create a queue, and its address if there is none.

        Args:
            attributes: What else it is (``QueueAttributes``); the address settings say the rest.

        Raises:
            QueueExists: there is one already.
        """
        packet = queue_request(
            name, address or name, routing_type(routing), filter, durable=durable, temporary=temporary, **attributes
        )
        await self._request(create_queue(packet))
        if temporary:
            self._state.temporary_queue_created(packet)

    async def create_temporary_queue(self) -> str:
        """The name of a new queue that lives as long as the connection, failovers included."""
        name = uuid_text(self._link.entropy(16))
        await self.create_queue(name, durable=False, temporary=True)
        return name

    async def delete_queue(self, name: str) -> None:
        """Raises:
        QueueNotFound: there is none.
        """
        await self._request(Request(f"delete queue {name}", DeleteQueue(name), NullResponse))
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
        """A producer for one address, or, with None, for addresses given with each message.

        Args:
            window: Unconfirmed sends up to which ``wait_sendable`` does not wait.
            duplicate_ids: Mark every message so that it can be sent again after a failover
                without being doubled. Without it such a send raises ``SendOutcomeUnknown``. In a
                transaction messages carry only the ids that ``send`` is given.
            auto_create: Ask for the address, and an anycast queue, if there is none.
        """
        if window < 1:
            raise IllegalState(f"a window of {window} sends")
        kind = None if routing is None else routing_type(routing)
        if address is not None and auto_create and kind is not None:
            if kind is RoutingType.ANYCAST:
                await self._converse(ensure_queue(address, kind, producing=True))
            else:
                await self._converse(ensure_address(split_name(address)[0], kind))
        state = self._state.open_producer(address, window)
        marked = duplicate_ids and self._state.options.auto_commit_sends
        prefix = uuid_text(self._link.entropy(16)) + ":" if marked else None
        return Producer(self, self._link, self._state, state, kind, prefix)

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
        """A consumer of a queue.

        Args:
            window_bytes: Instead of the URL's consumerWindowSize.
            auto_create: Create the queue if there is none.
        """
        if auto_create:
            await self._converse(ensure_queue(queue, routing_type(routing)))
        return await self._consumer(queue, filter, priority, window_bytes, browse=False)

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
        """A consumer of a multicast address. Its queue has the name that JMS clients give it, so both
        kinds can share a subscription (artemis-core s. 6.1 step 7).

        Args:
            name: Of the subscription; with the client id, if there is one, that of its queue. None
                for one of our own that ends with us.
            shared: Others may consume from it at the same time.
            durable: Of a named one: it outlives its consumers. One that is not must be shared.

        Raises:
            IllegalState: named, but neither durable nor shared; or shared without a name.
        """
        if (name is None and shared) or (name is not None and not durable and not shared):
            raise IllegalState("a subscription has a name and is durable or shared, or has neither")
        await self._converse(ensure_address(address, RoutingType.MULTICAST))
        if name is None:
            queue = uuid_text(self._link.entropy(16))
            await self.create_queue(
                queue, address=address, routing=RoutingType.MULTICAST, filter=filter, durable=False, temporary=True
            )
            return await self._consumer(queue, None, 0, window_bytes, browse=False)
        queue = self.subscription_queue(name, durable=durable)
        if not shared:
            if not (await self.query_queue(queue)).exists:
                await self.create_queue(queue, address=address, routing=RoutingType.MULTICAST, filter=filter)
            return await self._consumer(queue, None, 0, window_bytes, browse=False)
        packet = CreateSharedQueueV2(address, queue, filter, durable, int(RoutingType.MULTICAST))
        await self._request(create_shared_queue(packet))
        return await self._consumer(queue, None, 0, window_bytes, browse=False, shared=packet)

    def subscription_queue(self, name: str, *, durable: bool = True) -> str:
        """The queue of a named subscription."""
        return subscription_queue(name, self._link.core.options.client_id, durable=durable)

    async def unsubscribe(self, name: str) -> None:
        """End a durable subscription: its queue is deleted with what is in it.

        Raises:
            QueueNotFound: there is none.
            IllegalState: it has a consumer.
        """
        await self.delete_queue(self.subscription_queue(name))

    async def browser(
        self,
        queue: str,
        *,
        filter: str | None = None,  # noqa: A002  # the field's standard name
    ) -> Browser:
        """A look at a queue's messages that takes none; iterate over it, several times if wanted.

        Raises:
            QueueNotFound: there is none.
        """
        await self.query_queue(queue)
        return Browser(lambda: self._consumer(queue, filter, 0, None, browse=True))

    async def _consumer(
        self,
        queue: str,
        filter_text: str | None,
        priority: int,
        window_bytes: int | None,
        *,
        browse: bool,
        shared: CreateSharedQueueV2 | None = None,
    ) -> Consumer:
        state: ConsumerState = await self._link.ask(
            lambda future: self._state.consumers.open(
                split_name(queue)[1],
                future,
                filter_text=filter_text,
                browse_only=browse,
                priority=priority,
                window_bytes=window_bytes,
                make_received=self.make_received,
                shared=shared,
            )
        )
        return Consumer(self, self._link, self._state, state)


def _thrower(conversation: Generator[Request, Any, None], error: BrokerError) -> Callable[[], Request]:
    return lambda: conversation.throw(error)


def _sender(conversation: Generator[Request, Any, None], answer: Any) -> Callable[[], Request]:
    return lambda: conversation.send(answer)
