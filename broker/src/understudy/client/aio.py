"""The asyncio client: a thin shell over ``state``, on any event loop, a simulated one included.

All decisions are made in the pure modules. Here, in ``aio_link`` and in ``aio_endpoints`` are
transports, one timer, futures and the classes an application sees; ``sync`` has the same names
without ``await``. Wall time and randomness can be injected.

A connection belongs to the loop it was made on and is not safe to use from other threads.
"""

from __future__ import annotations

import asyncio
import os
import sys
import warnings
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, Final

from understudy.client.aio_bodies import Body, Received
from understudy.client.aio_endpoints import Browser, Consumer, Producer
from understudy.client.aio_link import LoopLink, resolve, system_wall_ms
from understudy.client.aio_xa import XaBranches
from understudy.client.consumer_state import AcknowledgeMode, ConsumerState, MakeReceived, ReceivedMessage
from understudy.client.destinations import (
    Conversation,
    Request,
    RoutingType,
    create_address,
    create_queue,
    ensure_address,
    ensure_queue,
    query_address,
    query_queue,
    routing_type,
    split_name,
)
from understudy.client.session_state import SessionOptions, SessionState
from understudy.client.state import FailureListener
from understudy.client.url import ClientUrl, Connector, parse_url
from understudy.errors import BrokerError, IllegalState
from understudy.ids import uuid_text
from understudy.wire.core.packets import (
    BindingQueryResponse,
    CreateQueueV2,
    DeleteQueue,
    NullResponse,
    QueueQueryResponse,
)

__all__ = [
    "DEFAULT_WINDOW",
    "Body",
    "Browser",
    "Connection",
    "ConnectionFactory",
    "Consumer",
    "Producer",
    "Received",
    "Session",
    "connect",
]

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


class ConnectionFactory:
    """Makes connections to one URL, spread over its connectors and what their topology taught."""

    def __init__(
        self,
        url: str | ClientUrl,
        user: str | None = None,
        password: str | None = None,
        *,
        wall_ms: Callable[[], int] = system_wall_ms,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """Raises:
        ConfigError: the URL cannot be used.
        """
        self._url = parse_url(url) if isinstance(url, str) else url
        self._user = user
        self._password = password
        self._wall_ms = wall_ms
        self._entropy = entropy
        self._count = int.from_bytes(entropy(2), "big")
        self._learnt: tuple[Connector, ...] = ()

    async def connect(self) -> Connection:
        """A new connection, once it works.

        Raises:
            Unreachable: nobody answered in ``initialConnectAttempts`` rounds.
            IncompatibleVersion: the broker is too old.
        """
        policy = self._url.options.load_balancing_policy
        if policy == "Random":
            self._count = int.from_bytes(self._entropy(2), "big")
        start = 0 if policy == "FirstElement" else self._count
        if policy == "RoundRobin":
            self._count += 1
        url = self._url
        if self._learnt and url.options.use_topology_for_load_balancing:
            known = {each.place for each in self._learnt}
            others = tuple(each for each in url.connectors if each.place not in known)
            turn = start % len(self._learnt)
            url = ClientUrl(self._learnt[turn:] + self._learnt[:turn] + others, url.options)
            start = 0
        link = LoopLink(url, self._user, self._password, self._wall_ms, self._entropy, start)
        try:
            await link.ask(link.core.connect)
        except BaseException:
            link.close()
            raise
        self._learnt = tuple(node.primary for node in link.core.topology if node.primary is not None)
        return Connection(link, creation_place())


async def connect(
    url: str | ClientUrl,
    user: str | None = None,
    password: str | None = None,
    *,
    wall_ms: Callable[[], int] = system_wall_ms,
    entropy: Callable[[int], bytes] = os.urandom,
) -> Connection:
    """One connection to ``url``; see ``ConnectionFactory.connect``.

    Args:
        wall_ms: Wall time, epoch milliseconds, for time stamps and expiry.
        entropy: That many random bytes, for names and duplicate ids.
    """
    return await ConnectionFactory(url, user, password, wall_ms=wall_ms, entropy=entropy).connect()


class Connection:
    """A connection that fails over as its URL says; close it, or use it as a context."""

    def __init__(self, link: LoopLink, created_at: str) -> None:
        self._link = link
        self.created_at = created_at
        """File and line, for the warning about a connection that was never closed."""
        self._closed = False

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        self.warn_if_open()
        if not self._closed and not self._link.loop.is_closed():
            self._link.loop.call_soon_threadsafe(self._link.close)

    def warn_if_open(self) -> None:
        """ResourceWarning with the place of creation, unless it was closed."""
        if not self._closed:
            warnings.warn(f"connection made at {self.created_at} was never closed", ResourceWarning, 2, self)

    @property
    def node_id(self) -> str | None:
        """Id of the node that carries our sessions."""
        return self._link.core.node_id

    @property
    def connector(self) -> Connector | None:
        """Where the connection is, or is being tried."""
        return self._link.core.connector

    @property
    def failovers(self) -> int:
        """Failovers completed so far."""
        return self._link.core.failovers

    @property
    def failing_over(self) -> bool:
        return self._link.core.failing_over

    def add_failure_listener(self, listener: FailureListener) -> None:
        """Call ``listener(error, failed_over)`` after each failure: True when a new connection
        works, False when none is left and everything is closed.
        """
        self._link.core.add_failure_listener(listener)

    def remove_failure_listener(self, listener: FailureListener) -> None:
        self._link.core.remove_failure_listener(listener)

    async def session(
        self, acknowledge: AcknowledgeMode | str = AcknowledgeMode.AUTO, *, transacted: bool = False, xa: bool = False
    ) -> Session:
        """A new session, started.

        Args:
            acknowledge: "auto", "client", "individual" or "transacted".
            transacted: The same as ``acknowledge="transacted"``.
            xa: Its transactions are the branches of ``Session.xa``.

        Raises:
            AuthenticationFailed: user or password are wrong.
        """
        mode = AcknowledgeMode.TRANSACTED if transacted or xa else AcknowledgeMode(acknowledge)
        core = self._link.core
        state: SessionState = await self._link.ask(lambda future: core.open_session(SessionOptions(mode, xa), future))
        return Session(self, self._link, state)

    async def close(self) -> None:
        """Close its sessions and the transport. While failing over nothing is waited for."""
        if self._closed:
            return
        self._closed = True
        core = self._link.core
        try:
            for session in tuple(core.sessions.values()):
                if core.closed is None and not core.failing_over:
                    await _close_session(self._link, session)
        finally:
            self._link.close()

    def abandon(self) -> None:
        """Drop the transport now, without a word to the broker, which rolls back and delivers again."""
        self._closed = True
        self._link.close()


async def _close_session(link: LoopLink, session: SessionState) -> None:
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

    def __init__(self, connection: Connection, link: LoopLink, state: SessionState) -> None:
        self._connection = connection
        self._link = link
        self._state = state
        self.make_received: MakeReceived = Received
        """Makes what consumers give; ``sync`` has its own."""

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def rollback_only(self) -> bool:
        """Whether a failover undid the work of the open transaction."""
        return self._state.rollback_only

    @property
    def xa(self) -> XaBranches:
        """Branches of an XA session (``Connection.session(xa=True)``)."""
        return XaBranches(self._link, self._state)

    async def close(self) -> None:
        """Wait for unconfirmed sends, at most callTimeout, then close; open work is rolled back."""
        await _close_session(self._link, self._state)

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
        """Label the session for those who look at the broker.

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
        AddressExists: there is one already.
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
        max_consumers: int = -1,
        purge_on_no_consumers: bool = False,
    ) -> None:
        """Raises:
        QueueExists: there is one already.
        """
        packet = CreateQueueV2(address or name, name, filter, durable, temporary, True, False)
        packet.routing_type = int(routing_type(routing))
        packet.max_consumers = max_consumers
        packet.purge_on_no_consumers = purge_on_no_consumers
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
                without being doubled. Without it such a send raises ``SendOutcomeUnknown``.
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
        filter: str | None = None,  # noqa: A002  # the field's standard name
        window_bytes: int | None = None,
    ) -> Consumer:
        """A consumer of a multicast address.

        Args:
            name: Of a durable subscription's queue, which outlives us; None for one that does not.
        """
        await self._converse(ensure_address(address, RoutingType.MULTICAST))
        if name is None:
            queue = uuid_text(self._link.entropy(16))
            await self.create_queue(
                queue, address=address, routing=RoutingType.MULTICAST, filter=filter, durable=False, temporary=True
            )
        else:
            queue = name
            if not (await self.query_queue(name)).exists:
                await self.create_queue(name, address=address, routing=RoutingType.MULTICAST, filter=filter)
        return await self._consumer(queue, None, 0, window_bytes, browse=False)

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
        self, queue: str, filter_text: str | None, priority: int, window_bytes: int | None, *, browse: bool
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
            )
        )
        return Consumer(self, self._link, self._state, state)


def _thrower(conversation: Generator[Request, Any, None], error: BrokerError) -> Callable[[], Request]:
    return lambda: conversation.throw(error)


def _sender(conversation: Generator[Request, Any, None], answer: Any) -> Callable[[], Request]:
    return lambda: conversation.send(answer)
