"""Requests about queues and exchanges, on a channel of their own: a request that fails closes its channel.

One request is under way at a time. After a failure the channel is opened again and the next request follows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import fields
from typing import Final

from understudy.client.amqp091.messages import not_possible
from understudy.client.amqp091.output import Output
from understudy.dataclass import dataclass
from understudy.errors import QueueNotFound
from understudy.wildcards import is_wild
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.codes import ReplyCode
from understudy.wire.amqp091.layout import Method
from understudy.wire.core.packets import (
    BindingQuery,
    BindingQueryResponseV5,
    CreateAddress,
    CreateQueueV2,
    CreateSharedQueueV2,
    DeleteQueue,
    NullResponse,
    QueueQuery,
    QueueQueryResponseV2,
)

#: Number of the channel at the broker.
CHANNEL: Final = 1
_MULTICAST: Final = 0
#: Attributes of a queue that are said by the methods themselves, or that say nothing.
_SAID: Final = frozenset(
    {"address", "name", "durable", "temporary", "requires_response", "auto_created", "routing_type"}
)
_DEFAULTS: Final = CreateQueueV2("", "")

Done = Callable[[Method | None, m.ChannelClose | None], None]
"""Called with the answer, or with the method by which the broker refused."""


@dataclass(slots=True)
class _Request:
    method: Method
    done: Done


class Declarations:
    """The requests of one connection."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._line: deque[_Request] = deque()
        self._open = False
        self._asked = False

    def begin(self) -> None:
        """The connection is open: open the channel."""
        self._out.send(m.ChannelOpen(), CHANNEL)

    def lost(self) -> None:
        """The connection is gone, and every request with it."""
        self._line.clear()
        self._open = self._asked = False

    def receive(self, method: Method) -> None:
        """A method of the channel has come."""
        if isinstance(method, m.ChannelOpenOk):
            self._open = True
        elif isinstance(method, m.ChannelClose):
            self._out.send(m.ChannelCloseOk(), CHANNEL)
            self._open = False
            self._out.send(m.ChannelOpen(), CHANNEL)
            if self._asked:
                self._asked = False
                self._line.popleft().done(None, method)
        elif self._asked:
            self._asked = False
            self._line.popleft().done(method, None)
        self._advance()

    def ask(self, method: Method, done: Done) -> None:
        """Send a request when it has its turn."""
        self._line.append(_Request(method, done))
        self._advance()

    def _advance(self) -> None:
        if self._open and not self._asked and self._line:
            self._asked = True
            self._out.send(self._line[0].method, CHANNEL)

    def make(self, name: str, done: Callable[[m.ChannelClose | None], None], *, multicast: bool) -> None:
        """Make a durable queue, or a durable fanout exchange, unless there is something of this name.

        Args:
            name: Name of the queue or exchange.
            done: Called with None, or with the method by which the broker refused.
            multicast: Whether to make an exchange.
        """

        def declare(*, passive: bool) -> Method:
            if multicast:
                return m.ExchangeDeclare(0, name, "fanout", passive=passive, durable=not passive)
            return m.QueueDeclare(0, name, passive=passive, durable=not passive)

        def looked(method: Method | None, refused: m.ChannelClose | None) -> None:
            if refused is None or refused.reply_code != ReplyCode.NOT_FOUND:
                # one that the user may not look at, such as an exclusive queue of another connection, is there
                done(None)
                return
            self.ask(declare(passive=False), lambda method, refused: done(refused))

        self.ask(declare(passive=True), looked)

    # requests of the client

    def queue_exists(
        self,
        queue: str,
        done: Callable[[m.QueueDeclareOk | None], None],
        channel_id: int,
        *,
        to_consume: bool = False,
    ) -> None:
        """Ask for a queue. An error other than that there is none is given to the client.

        Args:
            queue: Name of the queue.
            done: Called with the answer; None: there is no such queue.
            channel_id: Number of the channel of the session that asks.
            to_consume: Whether an exclusive queue of another connection is an error.
        """

        def answered(method: Method | None, refused: m.ChannelClose | None) -> None:
            if refused is not None and refused.reply_code == ReplyCode.RESOURCE_LOCKED and not to_consume:
                # it takes messages, such as the answers to requests of the other connection
                done(m.QueueDeclareOk(queue, 0, 0))
            elif refused is not None and refused.reply_code != ReplyCode.NOT_FOUND:
                self._out.refuse_code(channel_id, refused.reply_code, refused.reply_text)
            else:
                done(method if isinstance(method, m.QueueDeclareOk) else None)

        self.ask(m.QueueDeclare(0, queue, passive=True), answered)

    def query_queue(self, request: QueueQuery, channel_id: int) -> None:
        """Answer the question for a queue."""
        self.queue_exists(
            request.name, lambda found: self._out.report(channel_id, queue_info(request.name, found)), channel_id
        )

    def query_address(self, request: BindingQuery, channel_id: int) -> None:
        """Answer the question for an address: an exchange, or a queue of this name."""

        def answer(exists: bool) -> None:
            packet = BindingQueryResponseV5(exists, (), True, True, supports_multicast=True, supports_anycast=True)
            self._out.report(channel_id, packet)

        def no_exchange(method: Method | None, refused: m.ChannelClose | None) -> None:
            if refused is None:
                answer(True)
            else:
                self.queue_exists(request.address, lambda found: answer(found is not None), channel_id)

        self.ask(m.ExchangeDeclare(0, request.address, "fanout", passive=True), no_exchange)

    def create_address(self, request: CreateAddress, channel_id: int) -> None:
        """Make a fanout exchange of a multicast address; one of anycast is its queue."""
        if _MULTICAST not in request.routing_types:
            self._out.report(channel_id, NullResponse())
            return
        method = m.ExchangeDeclare(0, request.address, "fanout", durable=True)
        self.ask(method, self._simple(channel_id, request.requires_response))

    def create_queue(self, request: CreateQueueV2 | CreateSharedQueueV2, channel_id: int) -> None:
        """Make a queue, and bind it to the exchange of a multicast address."""
        temporary = isinstance(request, CreateQueueV2) and request.temporary
        method = m.QueueDeclare(0, request.name, durable=request.durable and not temporary, exclusive=temporary)
        simple = self._simple(channel_id, request.requires_response)
        if request.routing_type != _MULTICAST:
            self.ask(method, simple)
            return

        binding = m.QueueBind(0, request.name, request.address, "")

        def bound(answer: Method | None, refused: m.ChannelClose | None) -> None:
            if refused is not None and refused.reply_code == ReplyCode.NOT_FOUND:
                # the exchange was there when the application asked for the subscription
                self.make(request.address, lambda refused: self.ask(binding, simple), multicast=True)
            else:
                simple(answer, refused)

        def declared(answer: Method | None, refused: m.ChannelClose | None) -> None:
            if refused is not None:
                simple(answer, refused)
            else:
                self.ask(binding, bound)

        self.ask(method, declared)

    def delete_queue(self, request: DeleteQueue, channel_id: int) -> None:
        """Delete a queue without consumers."""

        def checked(found: m.QueueDeclareOk | None) -> None:
            if found is None:
                self._out.refuse(channel_id, QueueNotFound(f"queue {request.name} does not exist"))
            else:
                self.ask(m.QueueDelete(0, request.name, if_unused=True), self._simple(channel_id, True))

        self.queue_exists(request.name, checked, channel_id)

    def _simple(self, channel_id: int, wanted: bool) -> Done:
        """Gives the client an answer without contents, or the error."""

        def done(method: Method | None, refused: m.ChannelClose | None) -> None:
            if not wanted:
                return
            if refused is None:
                self._out.report(channel_id, NullResponse())
            else:
                self._out.refuse_code(channel_id, refused.reply_code, refused.reply_text)

        return done


def queue_info(name: str, found: m.QueueDeclareOk | None) -> QueueQueryResponseV2:
    """The answer about a queue, in a form without the flags of the queue, which the protocol does not tell."""
    if found is None:
        return QueueQueryResponseV2(False, name=name, address=name, auto_create_queues=True)
    return QueueQueryResponseV2(
        True,
        durable=True,
        consumer_count=found.consumer_count,
        message_count=found.message_count,
        name=name,
        address=name,
        auto_create_queues=True,
    )


def check_queue(request: CreateQueueV2 | CreateSharedQueueV2) -> None:
    """Check that a queue can be made. Raises LocalProtocolError: it has something that the protocol does not have."""
    if request.filter:
        raise not_possible("a queue with a filter")
    if request.routing_type != _MULTICAST and request.address != request.name:
        raise not_possible("a queue whose address has another name")
    if request.routing_type == _MULTICAST and is_wild(request.address):
        raise not_possible(f"a subscription of the wildcard address {request.address!r}")
    for each in fields(request):
        if each.name in _SAID or each.name == "filter":
            continue
        if getattr(request, each.name) not in (None, getattr(_DEFAULTS, each.name)):
            raise not_possible(f"a queue with {each.name}")
