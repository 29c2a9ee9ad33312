"""Consumers and browsers of the asyncio client.

Not here: buffers, credits and acknowledgements (``core.consumer``, ``core.consumers``).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import cast

from understudy.client.aio.bodies import Received
from understudy.client.aio.link import Link, Signal, exclusive, run_handler
from understudy.client.core.consumer.state import ConsumerState, ReceivedMessage
from understudy.client.core.session.rate import rate_limit
from understudy.client.core.session.state import SessionState
from understudy.errors import ObjectClosed


class Consumer:
    """Receives messages of a queue, one by one or as an asynchronous iterator, which ends when it is closed.

    Made by ``Session.consumer`` and ``Session.subscriber``. In AUTO mode a message is acknowledged when the next one is
    asked for (artemis-core s. 6.4). A ``with`` block that is left by an error gives the message in work back; a loop
    that ends otherwise, also by ``break``, has finished it (docs/use/client.md).
    """

    def __init__(self, owner: object, link: Link, session_state: SessionState, state: ConsumerState) -> None:
        self._owner = owner  # the session, and so the connection, lives as long as the consumer
        self._link = link
        self._session_state = session_state
        self._state = state
        self._rate = rate_limit(link.core.options.consumer_max_rate)
        self._changed = Signal(link)
        # Not a method of the consumer: one without references to it, and its connection, must be seen to be forgotten.
        state.on_change = self._changed.set

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            await self._return_unfinished()
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
        """Number of messages that have arrived and that ``take`` would return without waiting."""
        return self._state.buffered

    @exclusive
    def take(self) -> Received | None:
        """Take the next message that has arrived. Does not ask the broker for one and does not wait.

        Returns:
            The message; None if none has arrived or consumerMaxRate does not allow one now.

        Raises:
            LimitExceeded: a compressed message too large to be put together was skipped.
            RemoteProtocolError: a message that cannot be read was skipped.

        Failover: messages that had arrived and were not taken are dropped; the broker delivers them again.

        Concurrency: any task may call it; each message is returned once.
        """
        rate = self._rate
        now_ms = 0.0
        if rate is not None:
            now_ms = self._link.now_ms()
            if rate.delay_ms(now_ms):
                return None
        state = self._state
        received = cast("Received | None", state.take())
        if received is None and self._link.poll():
            received = cast("Received | None", state.take())
        if received is not None:
            if rate is not None:
                rate.count(now_ms)
            received._arrives_by(self._link, self._session_state.settlements)
        return received

    async def _paced(self, deadline_s: float | None) -> None:
        """Wait until consumerMaxRate allows one more, at most until the deadline."""
        if self._rate is not None:
            delay_ms = self._rate.delay_ms(self._link.now_ms())
            if delay_ms:
                left_ms = delay_ms if deadline_s is None else max(0.0, (deadline_s - self._link.now_s()) * 1000)
                await self._link.sleep(min(delay_ms, left_ms))

    @exclusive
    async def receive(self, timeout_s: float | None = None) -> Received | None:
        """Wait for the next message.

        Args:
            timeout_s: Seconds to wait; None for no limit.

        Returns:
            The message; None when none came within ``timeout_s``.

        Raises:
            ObjectClosed: the consumer, session or connection was closed.
            QueueNotFound: the queue was deleted.
            ConnectionLost, FailoverTimedOut: the connection was lost and no other came back.
            LimitExceeded: a compressed message too large to be put together was skipped.
            RemoteProtocolError: a message that cannot be read was skipped.

        Failover: the call goes on waiting, also for longer than the failover takes; ``timeout_s`` includes it. What was
        received before and not acknowledged is delivered again, with a higher ``delivery_count``.

        Concurrency: several tasks may wait; each message is returned to one of them. A call that is cancelled while it
        waits loses no message.

        Source: artemis-core s. 6.3 and 6.4.
        """
        state = self._state
        deadline_s = None if timeout_s is None else self._link.now_s() + timeout_s
        while True:
            await self._paced(deadline_s)
            received = self.take()
            if received is not None:
                return received
            if state.ended is not None:
                raise state.ended
            if deadline_s is not None and self._link.now_s() >= deadline_s:
                state.receive_cancelled()
                return None
            state.ask()
            await self._wait(deadline_s)

    @exclusive
    async def receive_nowait(self) -> Received | None:
        """Ask the broker whether the queue has a message for this consumer, and wait for its answer only.

        Returns:
            The next message; None if the broker has none for this consumer now.

        Raises:
            ObjectClosed: the consumer, session or connection was closed.
            QueueNotFound: the queue was deleted.
            ConnectionLost, FailoverTimedOut: the connection was lost and no other came back.
            LimitExceeded: a compressed message too large to be put together was skipped.
            RemoteProtocolError: a message that cannot be read was skipped.

        Failover: the question is asked again at the new connection.

        Concurrency: any task may call it; each message is returned once. A call that is cancelled while it waits loses
        no message.

        Source: artemis-core s. 6.3 (SESS_FORCE_CONSUMER_DELIVERY).
        """
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
            state.receive_cancelled()
            if state.ended is not None:
                raise state.ended
        return received

    async def handle(self, handler: Callable[[Received], object]) -> None:
        """Call the handler for every message, in the calling task, until the consumer is closed.

        In AUTO mode a message is acknowledged when its handler has returned. The message of a handler that raises an
        error is given back and its delivery counted (docs/use/client.md).

        Args:
            handler: Called with each message, one at a time; its result is awaited.

        Raises:
            Exception: any error of the handler, which ends the loop.
            QueueNotFound: the queue was deleted.
            ConnectionLost, FailoverTimedOut: the connection was lost and no other came back.

        Failover: the loop goes on; messages that were not acknowledged come again.

        Concurrency: the handler may use the session, and may close the consumer to end the loop.
        """
        async for received in self:
            try:
                with self._link.tracing.processing(received, self.queue):
                    await run_handler(handler, received)
            except BaseException:
                await self._return_unfinished()
                raise

    async def acknowledge(self, message: ReceivedMessage) -> bool:
        """Acknowledge a message as the session's mode says: CLIENT, everything that the session has received;
        INDIVIDUAL, this message. In the other modes nothing is waited for.

        Args:
            message: A message that this session received.

        Returns:
            True once the broker has confirmed it; at once in modes without a confirmation. False if the message was
            received before a failover, or its consumer or connection was lost before the answer: expect it again.

        Raises:
            CallTimedOut: no answer within callTimeout, or no failover within callFailoverTimeout.

        Failover: returns False, since the broker delivers the message again.

        Concurrency: any task of the session may acknowledge. CLIENT mode covers messages received by other tasks, too.

        Source: artemis-core s. 6.1 and 6.4.
        """
        answer: bool = await self._link.ask(lambda waiter: self._session_state.settlements.acknowledge(message, waiter))
        return answer

    async def close(self) -> None:
        """Close the consumer and wait for the broker's answer. Messages that arrived and were not received go back to
        the queue; in AUTO, DUPS_OK and transacted mode received messages are acknowledged first. Closing twice does
        nothing.

        Raises:
            CallTimedOut: no answer within callTimeout, or no failover within callFailoverTimeout.

        Failover: the call returns; the consumer is not made again.

        Concurrency: any task may close it; tasks that wait in ``receive`` get ``ObjectClosed``.

        Source: artemis-core s. 6.4.
        """
        await self._link.ask(lambda waiter: self._session_state.consumers.close(self._state, waiter))

    async def _return_unfinished(self) -> None:
        """Called when an error ended the work on the last message."""
        await self._link.ask(lambda waiter: self._session_state.transaction.work_failed(self._state, waiter))

    async def _wait(self, deadline_s: float | None) -> None:
        try:
            await self._changed.wait(deadline_s)
        except BaseException:
            self._state.receive_cancelled()
            raise


class Browser:
    """Shows the messages of a queue and consumes none. Made by ``Session.browser``.

    Each iteration starts at the first message and ends at the last, with a consumer of its own; after a failover it
    starts at the first message again.
    """

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
