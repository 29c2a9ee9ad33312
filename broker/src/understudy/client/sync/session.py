"""Sessions of the blocking client. Part of ``sync``."""

from __future__ import annotations

from types import TracebackType
from typing import Unpack

from understudy.client import aio
from understudy.client.aio.session import DEFAULT_WINDOW
from understudy.client.core.consumer import ReceivedMessage
from understudy.client.core.destinations import QueueAttributes, RoutingType
from understudy.client.sync.endpoints import Browser, Consumer, Producer
from understudy.client.sync.thread import LoopThread
from understudy.client.sync.xa import XaBranches
from understudy.wire.core.packets import BindingQueryResponse, QueueQueryResponse


class Session:
    """A blocking session, safe from any thread; if transacted, one transaction follows the other."""

    def __init__(self, thread: LoopThread, session: aio.Session) -> None:
        self._thread = thread
        self._session = session

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def rollback_only(self) -> bool:
        """Whether a failover has undone the work of the open transaction, so that a commit will fail."""
        return self._session.rollback_only

    @property
    def xa(self) -> XaBranches:
        """Branches of an XA session (``Connection.session(xa=True)``)."""
        return XaBranches(self._thread, self._session.xa)

    def close(self) -> None:
        """Wait for unconfirmed sends, at most callTimeout, then close; open work is rolled back."""
        self._thread.run(self._session.close())

    def start(self) -> None:
        """Resume deliveries after ``stop``."""
        self._thread.call(self._session.start)

    def stop(self) -> None:
        """Pause deliveries; messages that have arrived can still be received."""
        self._thread.run(self._session.stop())

    def commit(self) -> None:
        """Commit the transaction and begin the next one.

        Raises:
            TransactionRolledBack: everything in it was undone, for instance by a failover.
            CommitOutcomeUnknown: the connection was lost before the answer.
            DuplicateIdRejected: the broker already knew the duplicate id of one of its messages.
        """
        self._thread.run(self._session.commit())

    def rollback(self) -> None:
        """Undo the transaction; its messages are delivered again."""
        self._thread.run(self._session.rollback())

    def acknowledge(self, message: ReceivedMessage) -> bool:
        """Acknowledge a message as the session's mode says; True once the broker has confirmed it.

        False: the message was delivered before a failover, or the connection was lost before the answer; it will be
        delivered again.
        """
        return self._thread.run(self._session.acknowledge(message))

    def add_metadata(self, key: str, value: str, *, unique: bool = False) -> None:
        """Attach a key and a value to the session, shown by management.

        Raises:
            DuplicateMetadata: ``unique``, and another session has the same pair.
        """
        self._thread.run(self._session.add_metadata(key, value, unique=unique))

    def query_queue(self, name: str) -> QueueQueryResponse:
        """What the broker knows of a queue; ``exists`` says whether there is one."""
        return self._thread.run(self._session.query_queue(name))

    def query_address(self, name: str) -> BindingQueryResponse:
        """What the broker knows of an address and its queues."""
        return self._thread.run(self._session.query_address(name))

    def create_address(self, name: str, routing: RoutingType | str = RoutingType.ANYCAST) -> None:
        """Create an address.

        Raises:
            AddressExists: it exists already and the broker refuses that; Understudy and Artemis 2.44 do not.
        """
        self._thread.run(self._session.create_address(name, routing))

    def create_queue(
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
            address: None: the name of the queue.
            attributes: Further properties of the queue (``QueueAttributes``); address settings give the rest.

        Raises:
            QueueExists: a queue of this name exists.
        """
        self._thread.run(
            self._session.create_queue(
                name,
                address=address,
                routing=routing,
                filter=filter,
                durable=durable,
                temporary=temporary,
                **attributes,
            )
        )

    def create_temporary_queue(self) -> str:
        """Create a queue that is deleted with the connection and survives failovers; returns its name."""
        return self._thread.run(self._session.create_temporary_queue())

    def delete_queue(self, name: str) -> None:
        """Delete a queue with its messages.

        Raises:
            QueueNotFound: it does not exist.
        """
        self._thread.run(self._session.delete_queue(name))

    def producer(
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
            window: Number of unconfirmed sends from which ``wait_sendable`` waits.
            duplicate_ids: Give every message a duplicate id, so that it can be sent again after a failover
                without being delivered twice.
            auto_create: Create the address, and an anycast queue, if they do not exist.
        """
        producer = self._thread.run(
            self._session.producer(
                address, routing=routing, window=window, duplicate_ids=duplicate_ids, auto_create=auto_create
            )
        )
        return Producer(self._thread, producer)

    def consumer(
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
            filter: Selector; only matching messages are delivered.
            window_bytes: Replaces the URL's consumerWindowSize.
            auto_create: Create the queue if it does not exist.

        Raises:
            QueueNotFound: it does not exist and may not be created.
            InvalidSelector: the filter cannot be parsed.
        """
        consumer = self._thread.run(
            self._session.consumer(
                queue,
                filter=filter,
                priority=priority,
                window_bytes=window_bytes,
                routing=routing,
                auto_create=auto_create,
            )
        )
        return Consumer(self._thread, consumer)

    def subscriber(
        self,
        address: str,
        *,
        name: str | None = None,
        shared: bool = False,
        durable: bool = True,
        filter: str | None = None,  # noqa: A002  # the field's standard name
        window_bytes: int | None = None,
    ) -> Consumer:
        """A consumer of a multicast address. Its queue has the name that JMS clients give it, so both can share it.

        Args:
            name: Of the subscription; None for one of its own that ends with the consumer.
            shared: Other consumers may use the subscription at the same time.
            durable: A named subscription outlives its consumers. One that does not must be shared.

        Raises:
            IllegalState: named, but neither durable nor shared; or shared without a name.
        """
        consumer = self._thread.run(
            self._session.subscriber(
                address, name=name, shared=shared, durable=durable, filter=filter, window_bytes=window_bytes
            )
        )
        return Consumer(self._thread, consumer)

    def subscription_queue(self, name: str, *, durable: bool = True) -> str:
        """The name of the queue of a named subscription."""
        return self._session.subscription_queue(name, durable=durable)

    def unsubscribe(self, name: str) -> None:
        """End a durable subscription and delete its queue with the messages in it.

        Raises:
            QueueNotFound: the subscription does not exist.
            IllegalState: it has a consumer.
        """
        self._thread.run(self._session.unsubscribe(name))

    def browser(
        self,
        queue: str,
        *,
        filter: str | None = None,  # noqa: A002  # the field's standard name
    ) -> Browser:
        """A browser, which shows the messages of a queue and consumes none. It can be iterated several times.

        Raises:
            QueueNotFound: the queue does not exist.
        """
        return Browser(self._thread, self._thread.run(self._session.browser(queue, filter=filter)))
