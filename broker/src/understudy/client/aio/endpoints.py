"""Producers, consumers and browsers of the asyncio client. Part of ``aio``."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, cast

from understudy.client.aio.bodies import Body, Received, is_stream, large_send, open_source, split_if_large
from understudy.client.aio.link import LoopLink, resolve, take_all
from understudy.client.core.bodies import build_message, complete_message, delivery_properties
from understudy.client.core.consumer import ConsumerState, ReceivedMessage
from understudy.client.core.destinations import RoutingType
from understudy.client.core.large_sends import BytesSource, LargeBodySend, Readable, without_body
from understudy.client.core.rate import rate_limit
from understudy.client.core.sends import ProducerState
from understudy.client.core.session import SessionState
from understudy.errors import IllegalState, ObjectClosed
from understudy.ids import uuid_text
from understudy.message import Message
from understudy.properties import PropertyValue


class Producer:
    """Sends messages; order is kept, also across failovers."""

    def __init__(
        self,
        owner: object,
        link: LoopLink,
        session_state: SessionState,
        state: ProducerState,
        routing: RoutingType | None,
        id_prefix: str | None,
    ) -> None:
        self._owner = owner  # the session, and so the connection, lives as long as we do
        self._link = link
        self._session_state = session_state
        self._state = state
        self._routing = routing
        self._id_prefix = id_prefix
        self._count = 0
        self._room: list[asyncio.Future[None]] = []
        options = link.core.options
        self._group_id = uuid_text(link.entropy(16)) if options.auto_group else options.group_id
        self._rate = rate_limit(options.producer_max_rate)

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def in_flight(self) -> int:
        """Sends whose outcome is open."""
        return self._state.in_flight

    async def send(self, body: Body, **fields: Any) -> None:
        """Send and wait for the broker's confirmation; arguments as for ``send_nowait``.

        Raises:
            SendOutcomeUnknown: no connection came back, or ``duplicate_ids`` is off and the
                connection was lost before the confirmation; or the body of a large message cannot
                be read again after a failover, being neither bytes nor a path, a file that can be
                sought or something that can be iterated again.
            AddressFull: the address is full and its policy is to fail.
        """
        await self.wait_sendable()
        await self.send_nowait(body, **fields)

    def send_nowait(
        self,
        body: Body,
        *,
        address: str | None = None,
        properties: Mapping[str, PropertyValue] | None = None,
        durable: bool = True,
        priority: int = 4,
        time_to_live_ms: int = 0,
        deliver_at_ms: int = 0,
        group_id: str | None = None,
        last_value_key: str | None = None,
        duplicate_id: str | bytes | None = None,
    ) -> asyncio.Future[None]:
        """Send; the future is done when the broker has confirmed (durable, see the URL's
        blockOnDurableSend), or else when it is written.

        Args:
            body: A whole ``Message``; bytes, text or a map to make one of; or a stream: a path, an
                open binary file or an iterable of bytes, which makes a large message of bytes. A
                body larger than minLargeMessageSize travels as a large message, in pieces; a stream
                is read piece by piece, on the loop's thread, while it is sent.
            address: For a producer without one.
            time_to_live_ms: After which it expires; 0 for never.
            deliver_at_ms: Wall time, epoch ms, before which it is not delivered; 0 for at once.
            group_id: Messages of one group go to one consumer, in order. Instead of the URL's groupID.
            last_value_key: In a last-value queue it takes the place of the message with this key.
            duplicate_id: The broker drops (in a transaction: refuses at the commit, with
                ``DuplicateIdRejected``) what carries an id that it knows. Chosen by the application,
                it says after a ``CommitOutcomeUnknown`` whether the transaction had committed.

        Raises:
            ObjectClosed: the producer is closed.
            IllegalState: no address, or far more sends wait than the window.
        """
        if duplicate_id is None and self._id_prefix is not None:
            self._count += 1
            duplicate_id = f"{self._id_prefix}{self._count}"
        if group_id is None:
            group_id = self._group_id
        if deliver_at_ms or group_id is not None or last_value_key is not None:
            given = body.properties if isinstance(body, Message) else properties
            properties = delivery_properties(
                given, deliver_at_ms=deliver_at_ms, group_id=group_id, last_value_key=last_value_key
            )
            if isinstance(body, Message):
                body = body.replace(properties=properties)
        target = (body.address if isinstance(body, Message) else None) or address or self._state.address
        if target is None:
            raise IllegalState("a message without an address, from a producer without one")
        options = self._link.core.options
        whole = isinstance(body, bytes) and len(body) + 4 > options.min_large_message_size
        streamed = is_stream(body)
        if isinstance(body, Message):
            message = complete_message(body, address=target, routing=self._routing, duplicate_id=duplicate_id)
        else:
            now_ms = self._link.clock.wall_ms()
            message = build_message(
                b"" if whole or streamed else body,  # type: ignore[arg-type]  # not a stream here
                address=target,
                routing=self._routing,
                duplicate_id=duplicate_id,
                timestamp_ms=now_ms,
                properties=properties,
                durable=durable,
                priority=priority,
                expiration_ms=now_ms + time_to_live_ms if time_to_live_ms else 0,
            )
        if self._rate is not None:
            self._rate.count(self._link.loop.time() * 1000)
        future: asyncio.Future[None] = self._link.loop.create_future()
        if streamed:
            self._send_stream(message, body, future)
            return future
        large: LargeBodySend | None = None
        if whole:
            message, large = large_send(message, BytesSource(cast(bytes, body)), options)
        elif message.header_offset > options.min_large_message_size:
            message, large = split_if_large(message, options)
        self._session_state.send(self._state, message, future, large)
        return future

    def send_large_nowait(self, message: Message, body: Readable | Iterable[bytes]) -> asyncio.Future[None]:
        """Send a whole message as a large one; arguments and outcome otherwise as for ``send_nowait``.

        Args:
            message: Everything but the body; one it has is not sent.
            body: An open binary file or an iterable of bytes, read piece by piece while it is sent.

        Raises:
            ObjectClosed: the producer is closed.
            IllegalState: no address, or its properties alone are larger than a piece.
        """
        target = message.address or self._state.address
        if target is None:
            raise IllegalState("a message without an address, from a producer without one")
        header = complete_message(without_body(message), address=target, routing=self._routing, duplicate_id=None)
        future: asyncio.Future[None] = self._link.loop.create_future()
        header, large = large_send(header, open_source(body)[0], self._link.core.options)
        self._session_state.send(self._state, header, future, large)
        return future

    def _send_stream(self, header: Message, body: Body, future: asyncio.Future[None]) -> None:
        source, file = open_source(body)
        try:
            message, large = large_send(header, source, self._link.core.options)
            self._session_state.send(self._state, message, future, large)
        except BaseException:
            if file is not None:
                file.close()
            raise
        if file is not None:
            future.add_done_callback(lambda _: file.close())

    async def wait_sendable(self) -> None:
        """Wait until fewer sends than the window are open, the socket takes bytes and producerMaxRate
        allows one more.

        Raises:
            ObjectClosed: the producer is closed.
        """
        state = self._state
        while True:
            if state.closed is not None:
                raise state.closed
            if not self._link.writable:
                await self._link.wait_writable()
            elif not state.has_room:
                future: asyncio.Future[None] = self._link.loop.create_future()
                self._room.append(future)
                state.on_room = self._wake
                await future
            elif self._rate is not None and (delay_ms := self._rate.delay_ms(self._link.loop.time() * 1000)):
                await asyncio.sleep(delay_ms / 1000)
            else:
                return

    def _wake(self) -> None:
        for future in take_all(self._room):
            resolve(future)

    def close(self) -> None:
        """Take no more; what was sent is still carried out."""
        self._session_state.close_producer(self._state)


class Consumer:
    """Receives messages, one by one or as an asynchronous iterator."""

    def __init__(self, owner: object, link: LoopLink, session_state: SessionState, state: ConsumerState) -> None:
        self._owner = owner
        self._link = link
        self._session_state = session_state
        self._state = state
        self._waiters: list[asyncio.Future[None]] = []
        self._rate = rate_limit(link.core.options.consumer_max_rate)
        # Weak: a consumer without references to it, and its connection, must be seen to be forgotten.
        wake = weakref.WeakMethod(self._wake)
        state.on_change = lambda: _call_if_alive(wake)

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Received]:
        return self

    async def __anext__(self) -> Received:
        received = self.take()
        if received is not None:
            return received
        try:
            received = await self.receive()
        except ObjectClosed:
            received = None
        if received is None:
            raise StopAsyncIteration
        return received

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return self._state.queue

    @property
    def buffered(self) -> int:
        """Messages that ``take`` would give without waiting."""
        return self._state.buffered

    def take(self) -> Received | None:
        """The next message if one is here, and consumerMaxRate allows it; sends no request."""
        rate = self._rate
        if rate is None:
            return cast("Received | None", self._state.take())
        now_ms = self._link.loop.time() * 1000
        if rate.delay_ms(now_ms):
            return None
        received = self._state.take()
        if received is not None:
            rate.count(now_ms)
        return cast("Received | None", received)

    async def _paced(self, deadline: float | None) -> None:
        """Wait until consumerMaxRate allows one more, at most until the deadline."""
        if self._rate is not None:
            now = self._link.loop.time()
            delay_s = self._rate.delay_ms(now * 1000) / 1000
            if delay_s:
                await asyncio.sleep(delay_s if deadline is None else max(0.0, min(delay_s, deadline - now)))

    async def receive(self, timeout_s: float | None = None) -> Received | None:
        """The next message; None when nothing came within ``timeout_s`` seconds.

        Waits through failovers.

        Raises:
            ObjectClosed: the consumer was closed.
            QueueNotFound: its queue was deleted.
            LimitExceeded: a compressed message too large to be put together was skipped.
        """
        state = self._state
        deadline = None if timeout_s is None else self._link.loop.time() + timeout_s
        while True:
            await self._paced(deadline)
            received = self.take()
            if received is not None:
                return received
            if state.ended is not None:
                raise state.ended
            if deadline is not None and self._link.loop.time() >= deadline:
                state.give_up()
                return None
            state.ask()
            await self._wait(deadline)

    async def receive_nowait(self) -> Received | None:
        """The next message, or None if the broker says that the queue has none for us."""
        state = self._state
        await self._paced(None)
        received = self.take()
        if received is not None:
            return received
        state.ask()
        sequence = state.force()
        while not state.drained(sequence) and not state.buffered and state.ended is None:
            await self._wait(None)
        received = self.take()
        if received is None:
            state.give_up()
            if state.ended is not None:
                raise state.ended
        return received

    async def handle(self, handler: Callable[[Received], Awaitable[None] | None]) -> None:
        """Call (and await) the handler for every message until the consumer is closed.

        In AUTO mode a message is acknowledged when its handler returned. An error of the handler
        ends this and goes to the caller; the message stays unacknowledged.
        """
        async for received in self:
            result = handler(received)
            if result is not None:
                await result

    async def acknowledge(self, message: ReceivedMessage) -> bool:
        """See ``Session.acknowledge``."""
        answer: bool = await self._link.ask(lambda future: self._session_state.consumers.acknowledge(message, future))
        return answer

    async def close(self) -> None:
        """Stop; what arrived and was not received goes back to the queue."""
        await self._link.ask(lambda future: self._session_state.consumers.close(self._state, future))

    async def _wait(self, deadline: float | None) -> None:
        future: asyncio.Future[None] = self._link.loop.create_future()
        self._waiters.append(future)
        timer = None if deadline is None else self._link.loop.call_at(deadline, resolve, future)
        try:
            await future
        except asyncio.CancelledError:
            self._state.give_up()
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        for future in take_all(self._waiters):
            resolve(future)


def _call_if_alive(method: weakref.WeakMethod[Callable[[], None]]) -> None:
    call = method()
    if call is not None:
        call()


class Browser:
    """The messages of a queue; each iteration starts at the top, as does one after a failover."""

    def __init__(self, open_consumer: Callable[[], Awaitable[Consumer]]) -> None:
        self._open_consumer = open_consumer

    async def __aiter__(self) -> AsyncGenerator[Received, None]:
        consumer = await self._open_consumer()
        try:
            while True:
                received = await consumer.receive_nowait()
                if received is None:
                    return
                yield received
        finally:
            await consumer.close()
