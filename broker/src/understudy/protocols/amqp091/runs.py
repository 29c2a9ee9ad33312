"""Publishes of one channel that came together and go the same way: a batch of sends, without an object per message. And
settlements of single deliveries that came together: one settlement.

A run of publishes is made of neighbouring publishes with equal method frames, so their exchange and routing key are read and routed
once (ADR 0193). A run of settlements is made of neighbouring basic.ack, basic.nack and basic.reject of one delivery each
(ADR 0207). Nothing is refused here: a publish that needs more than a place in queues, or what something is wrong with, is
left for the way of single frames (``channel``), which has the errors.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from understudy.kernel.amqp091 import PublishLimits, PublishTarget, split_publishes
from understudy.limits import AMQP091_CONTENTS_OF_CONNECTION_BYTES_MAX
from understudy.protocols.amqp091 import names
from understudy.protocols.amqp091.deliveries import RETURNED, ChannelDeliveries
from understudy.protocols.amqp091.link import ConnectionLink, Way
from understudy.protocols.amqp091.publisher import REPLY_PREFIX, ChannelPublisher
from understudy.routing.exchanges.exchange import Exchange
from understudy.routing.exchanges.publishing import ONE_PRIORITY
from understudy.session.outcomes import ACCEPTED, REJECTED
from understudy.session.send_requests import SendRoute
from understudy.session.session import ServerSession
from understudy.wire.amqp091.codes import Amqp091Error
from understudy.wire.amqp091.frames import FrameDecoder, FrameType
from understudy.wire.amqp091.layout import decode_method, encode_method
from understudy.wire.amqp091.methods import BasicAck, BasicNack, BasicPublish, BasicReject

#: Encoded class and method of a publish.
PUBLISH: Final = encode_method(BasicPublish(0, "", ""))[:4]
#: Bytes of a frame before its payload.
_HEAD_BYTES: Final = 7
#: Bytes for which a publish that has not come whole is waited for before its frames are taken one by one.
_AWAITED_BYTES_MAX: Final = 32 * 1024


class Run(NamedTuple):
    """Result of an attempt to take publishes or settlements together."""

    taken: int
    """Number of publishes or settlements."""
    awaits: bool
    """Whether more bytes are needed for the next publish."""


_NONE: Final = Run(0, awaits=False)


class _Method(NamedTuple):
    """A method frame that was read."""

    exchange: str
    routing_key: str
    encoded_exchange: bytes
    """Exchange in UTF-16."""
    encoded_key: bytes


@lru_cache(maxsize=1024)
def _method_of(payload: bytes) -> _Method | None:
    """The publish in a payload; None: it cannot be read, or every such publish needs a look of its own."""
    try:
        method = decode_method(payload)
        assert isinstance(method, BasicPublish)
        names.check_exchange(method.exchange)
    except Amqp091Error:
        return None
    exchange, key = method.exchange, method.routing_key
    if method.immediate or (not exchange and key.startswith(REPLY_PREFIX)):
        return None
    return _Method(exchange, key, _utf16(exchange), _utf16(key))


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-le")


class PublishRuns:
    """Runs of one channel."""

    def __init__(self, link: ConnectionLink, session: ServerSession, publisher: ChannelPublisher) -> None:
        self._link = link
        self._session = session
        self._publisher = publisher
        self._office = session.state.office
        self._single_count = 0
        """Number of publishes that come next and are taken one by one, because the first of them had to be."""

    def move(self, link: ConnectionLink) -> None:
        """Use another connection."""
        self._link = link
        self._single_count = 0

    def single(self) -> None:
        """A publish was taken by its frames."""
        self._single_count = max(0, self._single_count - 1)

    def receive(self, decoder: FrameDecoder, frame: bytes, count_max: int) -> Run:
        """Take the publishes that come next, as far as they go the same way.

        Args:
            decoder: The input of the connection; next comes the method frame of a publish on this channel.
            frame: The method frame, which is whole.
            count_max: Most publishes.

        Raises:
            StoreError: the journal has failed.
        """
        state, link, publisher = self._session.state, self._link, self._publisher
        if (
            self._single_count
            # each publish of such a channel has its number in the log
            or publisher.record is not None
            or state.sending_transaction is not None
            or link.peer.content_bytes + decoder.held_bytes > AMQP091_CONTENTS_OF_CONNECTION_BYTES_MAX
        ):
            return _NONE
        decoder.more()
        data, start, first, now_ms = decoder.data, decoder.offset, publisher.next_number, state.wall_ms()
        limits = PublishLimits(decoder.payload_max, count_max, self._office.store.settings.run_message_bytes_max)
        way, sends, cut = link.ways.get(frame), None, False
        if way is None:
            aim = self._aim(frame)
            if aim is None:
                return _NONE
            exchange, method, target = aim
            if method.exchange:
                # an exchange may have many bindings: only a publish that can be taken is compared with them here
                sends, cut = split_publishes(data, start, limits._replace(count_max=1), target, now_ms, first)
                if sends is None:
                    return Run(0, cut and len(data) - start <= _AWAITED_BYTES_MAX)
            way = self._way(exchange, method, target)
            if way is None:
                return _NONE
            link.ways[frame] = way
            if way.target is not target or (sends is not None and data.startswith(frame, sends.end)):
                sends = None
        if sends is None:
            sends, cut = split_publishes(data, start, limits, way.target, now_ms, first)
        awaits = cut and len(data) - (sends.end if sends is not None else start) <= _AWAITED_BYTES_MAX
        if sends is None:
            return Run(0, awaits)
        exchange, route = way.exchange, way.route
        answered = publisher.answer_run if publisher.confirms else None
        # messages that are safe at once are confirmed within the call
        publisher.go_on_from(first + sends.count)
        count = self._session.sends.send_routed(sends, 0, SendRoute(route.address, route.queues, answered))
        decoder.offset = sends.end
        if count < sends.count:
            # the others are looked at one by one: trying again for each would cost every one of them
            decoder.offset = _start_of(data, start, count)
            self._single_count = sends.count - count
            publisher.go_on_from(first + count)
            awaits = False
        if not count:
            return _NONE
        exchange.messages_in += count
        full = self._office.routing.publishing.when_room(route.queues, link, link.unblock)
        if full is not None:
            link.block(full)
        return Run(count, awaits)

    def _aim(self, frame: bytes) -> tuple[Exchange, _Method, PublishTarget] | None:
        """The exchange of a publish that can be taken together with others, and the values of its message if its queues
        ignore priorities.
        """
        method = _method_of(frame[_HEAD_BYTES:-1])
        if method is None:
            return None
        peer = self._link.peer
        name = peer.host + method.exchange
        exchange = self._session.exchanges.find(name)
        if exchange is None or exchange.configuration.internal or exchange.read_only:
            return None
        target = PublishTarget(
            _utf16(name), method.encoded_exchange, method.encoded_key, ONE_PRIORITY, peer.user.encode()
        )
        return exchange, method, target

    def _way(self, exchange: Exchange, method: _Method, target: PublishTarget) -> Way | None:
        """The way of publishes; None: each of them has to be looked at."""
        route = self._office.routing.publishing.route_of_key(exchange, method.routing_key)
        if route is None:
            return None
        name = self._link.peer.host + method.exchange
        if not method.exchange:
            name = route.queues[0].address.name
            target = target._replace(address=_utf16(name))
        if not self._session.sends.permits_plain(name):
            return None
        if route.priority != target.priority:
            target = target._replace(priority=route.priority)
        return Way(exchange, route, target)


#: What settles one delivery: number of the method in class basic, and its bits.
_SETTLINGS: Final = {
    (BasicAck.method_id, 0): ACCEPTED,
    (BasicReject.method_id, 0): REJECTED,
    (BasicReject.method_id, 1): RETURNED,
    (BasicNack.method_id, 0): REJECTED,
    (BasicNack.method_id, 2): RETURNED,
}


class SettlementRuns:
    """Runs of settlements of one channel. Nothing is settled together in a group but neighbours that do the same, so
    the order of the client holds.
    """

    def __init__(self, deliveries: ChannelDeliveries, publisher: ChannelPublisher) -> None:
        self._deliveries = deliveries
        self._publisher = publisher
        self._single_count = 0
        """Number of frames that come next and are taken one by one, because the first of them had to be."""

    def single(self) -> None:
        """A method was taken by its frame."""
        self._single_count = max(0, self._single_count - 1)

    def receive(self, decoder: FrameDecoder, count_max: int) -> Run | None:
        """Take the settlements that come next, up to one that is to be refused or ignored.

        Args:
            decoder: The input of the connection; next comes a frame of this channel.
            count_max: Most settlements.

        Raises:
            StoreError: the journal has failed.
        """
        if self._single_count:
            return None
        count = 0
        for outcome, tags in decoder.settlements(_SETTLINGS, count_max):
            settled = self._deliveries.settle_each(tags, outcome, transacted=self._publisher.transacted)
            count += settled
            if settled < len(tags):
                # trying again for each of them would cost every one of them
                self._single_count = len(tags) - settled
                break
        decoder.skip_settlements(count)
        return Run(count, awaits=False)


def _start_of(data: bytes, offset: int, number: int) -> int:
    """Offset of a publish in a run, by its number."""
    while number or data[offset] != FrameType.METHOD:
        offset += _HEAD_BYTES + int.from_bytes(data[offset + 3 : offset + _HEAD_BYTES], "big") + 1
        number -= data[offset] == FrameType.METHOD
    return offset
