"""Producers of the asyncio client: arguments of the application to messages that are sent.

Credits, confirmations and repetitions after a failover are in ``core.sends``.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Unpack, cast

from understudy.client.aio.link import Link, Signal, end_span, exclusive
from understudy.client.core.consumer.bodies import build_message, complete_message, delivery_properties
from understudy.client.core.session.large_sends import (
    BytesSource,
    LargeBodySend,
    Readable,
    large_send,
    split_if_large,
    without_body,
)
from understudy.client.core.session.rate import rate_limit
from understudy.client.core.session.send_options import NOT_GIVEN, SendOptions, delivery_ms, expiration_ms, json_text
from understudy.client.core.session.sends import ProducerState
from understudy.client.core.session.state import SessionState
from understudy.client.core.url.jms_names import read_destination, reply_text
from understudy.client.sources import Body, is_stream, open_source, plain_body
from understudy.errors import IllegalState
from understudy.ids import uuid_text
from understudy.message import Message
from understudy.properties import PropertyValue


class Producer:
    """Sends messages to one address, or to the address that is given with each. Made by ``Session.producer``.

    Messages to one address are sent, and after a failover sent again, in the order in which they were given.
    """

    def __init__(
        self,
        owner: object,
        link: Link,
        session_state: SessionState,
        state: ProducerState,
        routing: int | None,
        id_prefix: str | None,
    ) -> None:
        self._owner = owner  # the session, and so the connection, lives as long as the producer
        self._link = link
        self._session_state = session_state
        self._state = state
        self._routing = routing
        self._id_prefix = id_prefix
        self._count = 0
        self._sendable = Signal(link)
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
        """Number of sends without an outcome: waiting for credits, for a connection or for their confirmation."""
        return self._state.in_flight

    @exclusive
    async def send(self, body: Body = None, **options: Unpack[SendOptions]) -> None:
        """Send a message and wait for its outcome: for the broker's confirmation if the message is durable (the URL's
        ``blockOnDurableSend``; ``blockOnNonDurableSend`` for others), else until it is written to the socket.
        A transacted session does not wait: errors come with the commit (artemis-core s. 6.2).

        Args:
            body: The same as for ``send_nowait``.
            options: The other arguments of ``send_nowait`` (``SendOptions``).

        Raises:
            SendOutcomeUnknown: the connection was lost before the confirmation, and the message cannot be sent again:
                no connection came back, ``duplicate_ids`` is off, or the body of a large message cannot be read again
                (it is neither bytes nor a path, a file that can be sought or an iterable that is not an iterator).
            AddressFull: the address is full and its policy is FAIL.
            AddressNotFound: the address was deleted, and may not be created.
            NotAuthorized: the user may not send to the address.
            IllegalState: no address, or properties that are too large.
            ObjectClosed: the producer, session or connection is closed.
            OSError: the file that is the body cannot be read.

        Failover: the call goes on. The message is sent again with the same duplicate id, which the broker drops if it
        had the first copy.

        Concurrency: several tasks may send with one producer; the order of their messages is that of their calls. If
        the call is cancelled while it waits, the message may or may not have been sent.
        """
        await self.wait_sendable()
        await self.send_nowait(body, **options)

    @exclusive
    def send_nowait(
        self,
        body: Body = None,
        *,
        json: object = NOT_GIVEN,
        address: str | None = None,
        properties: Mapping[str, PropertyValue] | None = None,
        durable: bool = True,
        priority: int = 4,
        ttl_s: float | None = None,
        delay_s: float | None = None,
        deliver_at: datetime | float | None = None,
        group_id: str | None = None,
        last_value_key: str | None = None,
        duplicate_id: str | bytes | None = None,
        reply_to: str | None = None,
        correlation_id: str | bytes | None = None,
    ) -> Future[None]:
        """Send a message without waiting. ``wait_sendable`` before each call bounds the memory of waiting messages.

        Args:
            body: A whole ``Message``; bytes, text, a map or a list of values to make one of; or a stream: a path, an
                open binary file or an iterable of bytes, which makes a large message of bytes. A body larger than
                minLargeMessageSize travels as a large message, in pieces; a stream is read piece by piece while it is
                sent.
            json: A value whose JSON document is the text of the message, instead of a body.
            address: Where to send it; needed for a producer without an address. May be a destination as in
                ``ReceivedMessage.reply_to``.
            properties: Properties of the message; those of a whole ``Message`` are its own.
            durable: Whether the broker keeps it through restarts.
            priority: 0 to 9; higher ones are delivered first.
            ttl_s: Seconds from now until it expires; None for never.
            delay_s: Seconds from now before which it is not delivered.
            deliver_at: The time before which it is not delivered: a datetime, or seconds as of ``time.time()``.
            group_id: Messages of one group go to one consumer, in order. Replaces the URL's groupID.
            last_value_key: The key of the message that it replaces in a last-value queue.
            duplicate_id: The broker drops a message with an id that it knows. Replaces the id that the producer makes.
            reply_to: Where the answer is sent: the name of a queue, or a destination such as ``topic://name``.
            correlation_id: Joins a request and its answer (``JMSCorrelationID``).

        Returns:
            A future that is done when the broker has confirmed the message (durable messages, see ``send``), or else
            when it is written to the socket. It has the errors of ``send`` that come later than the call.

        Raises:
            ObjectClosed: the producer, session or connection is closed.
            IllegalState: no address, properties that are too large, or far more sends wait than the window.
            ConfigError: a destination without a name.
            LocalProtocolError: a property or field that cannot be sent.
            TypeError, ValueError: an argument that has no meaning, or a value without a JSON document.
            OSError: the file that is the body cannot be opened.

        Failover: messages without an outcome are sent again in order, as for ``send``.

        Concurrency: several tasks may send with one producer; the order of their messages is that of their calls.

        Source: artemis-core s. 3.3, 5.1 and 6.2.
        """
        body = plain_body(body) if json is NOT_GIVEN else json_text(json, body)
        now_ms = self._link.clock.wall_ms()
        deliver_at_ms = delivery_ms(deliver_at, delay_s, now_ms)
        expires_ms = expiration_ms(ttl_s, now_ms)
        duplicate_id = self._next_id() if duplicate_id is None else duplicate_id
        group_id = self._group_id if group_id is None else group_id
        reply_to = self._reply_place(reply_to)
        target, routing = self._target(body.address if isinstance(body, Message) else None, address)
        given = body.properties if isinstance(body, Message) else properties
        traced, ended = self._link.tracing.sending(target, given)
        if ended is not None or deliver_at_ms or not (group_id is last_value_key is reply_to is correlation_id is None):
            properties = delivery_properties(
                traced,
                deliver_at_ms=deliver_at_ms,
                group_id=group_id,
                last_value_key=last_value_key,
                reply_to=reply_to,
                correlation_id=correlation_id,
            )
            if isinstance(body, Message):
                body = body.replace(properties=properties)
        whole = isinstance(body, bytes) and len(body) + 4 > self._link.core.options.min_large_message_size
        streamed = is_stream(body)
        if isinstance(body, Message):
            message = complete_message(body, address=target, routing=routing, duplicate_id=duplicate_id)
        else:
            message = build_message(
                b"" if whole or streamed else body,  # type: ignore[arg-type]  # not a stream here
                address=target,
                routing=routing,
                duplicate_id=duplicate_id,
                timestamp_ms=now_ms,
                properties=properties,
                durable=durable,
                priority=priority,
                expiration_ms=expires_ms,
            )
        if self._rate is not None:
            self._rate.count(self._link.now_ms())
        future: Future[None] = self._link.new_future()
        if ended is not None:
            end_span(future, ended)
        if streamed:
            self._send_stream(message, body, future)
            return future
        self._send_whole(message, cast(bytes, body) if whole else None, future)
        return future

    @exclusive
    def send_large_nowait(self, message: Message, body: Readable | Iterable[bytes]) -> Future[None]:
        """Send a message with all its fields as a large one whose body is read from a stream.

        Args:
            message: Everything but the body; a body that it has is not sent, and no duplicate id is added.
            body: An open binary file or an iterable of bytes, read piece by piece while it is sent.

        Returns:
            A future as of ``send_nowait``.

        Raises:
            ObjectClosed: the producer, session or connection is closed.
            IllegalState: no address, or its properties alone are larger than a piece (minLargeMessageSize).

        Failover: the message is sent again from its beginning if it has a duplicate id and the body can be read again;
        else the future has ``SendOutcomeUnknown``.

        Concurrency: several tasks may send with one producer; the order of their messages is that of their calls.

        Source: artemis-core s. 6.2.
        """
        target, routing = self._target(message.address, None)
        header = complete_message(without_body(message), address=target, routing=routing, duplicate_id=None)
        future: Future[None] = self._link.new_future()
        header, large = large_send(header, open_source(body)[0], self._link.core.options)
        self._session_state.send(self._state, header, future, large)
        return future

    def _next_id(self) -> str | None:
        """The duplicate id of the next message; None if it gets none."""
        if self._id_prefix is None:
            return None
        self._count += 1
        return f"{self._id_prefix}{self._count}"

    def _reply_place(self, reply_to: str | None) -> str | None:
        """The place for an answer as JMS clients write it."""
        if reply_to is None:
            return None
        return reply_text(reply_to, temporary=self._session_state.has_temporary_queue(reply_to))

    def _target(self, of_message: str | None, given: str | None) -> tuple[str, int | None]:
        """Address and routing type of a message. Raises IllegalState: there is no address."""
        target = of_message or given
        if target is None:
            if self._state.address is None:
                raise IllegalState("a message without an address, from a producer without one")
            return self._state.address, self._routing
        destination = read_destination(target)
        if destination is None:
            return target, self._routing
        # a temporary one is there or its owner has gone: without a routing type the broker creates none
        return destination.name, None if destination.temporary else destination.routing

    def _send_whole(self, message: Message, body: bytes | None, future: Future[None]) -> None:
        """Send a message whose body is in memory: ``body``, or that of the message."""
        options = self._link.core.options
        large: LargeBodySend | None = None
        if body is not None:
            message, large = large_send(message, BytesSource(body), options)
        elif message.header_offset > options.min_large_message_size:
            message, large = split_if_large(message, options)
        self._session_state.send(self._state, message, future, large)

    def _send_stream(self, header: Message, body: Body, future: Future[None]) -> None:
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

    @exclusive
    async def wait_sendable(self) -> None:
        """Wait until fewer sends than the window have no outcome, the socket takes bytes and producerMaxRate allows
        one more message.

        Raises:
            ObjectClosed: the producer, session or connection is closed.
            ConnectionLost, FailoverTimedOut: no connection came back.

        Failover: the call goes on, and returns when the sends before it have an outcome at the new connection.

        Concurrency: several tasks may wait. Each that returns may send one message.
        """
        state = self._state
        while True:
            if state.closed is not None:
                raise state.closed
            if not self._link.writable:
                await self._link.wait_writable()
            elif not state.has_room:
                state.on_room = self._sendable.set
                await self._sendable.wait()
            elif self._rate is not None and (delay_ms := self._rate.delay_ms(self._link.now_ms())):
                await self._link.sleep(delay_ms)
            else:
                return

    @exclusive
    def close(self) -> None:
        """Accept no more messages. Those that were sent are still carried out. Closing twice does nothing.

        Failover: has no effect on this call.

        Concurrency: any task may close it; tasks in ``wait_sendable`` go on to their next send, which raises
        ``ObjectClosed``.
        """
        self._session_state.close_producer(self._state)
