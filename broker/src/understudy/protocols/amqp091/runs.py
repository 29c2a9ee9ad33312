"""Publishes of one channel that came together and go the same way: a batch of sends, without an object per message.

A run is made of neighbouring publishes with equal method frames, so their exchange and routing key are read and routed
once (ADR 0193). Nothing is refused here: a publish that needs more than a place in queues, or that something is wrong
with, is left for the way of single frames (``channel``), which has the errors.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from understudy.kernel.amqp091 import PublishLimits, PublishTarget, split_publishes
from understudy.limits import AMQP091_CONTENTS_OF_CONNECTION_BYTES_MAX
from understudy.protocols.amqp091 import names
from understudy.protocols.amqp091.link import ConnectionLink
from understudy.protocols.amqp091.publisher import REPLY_PREFIX, ChannelPublisher
from understudy.session.send_requests import SendRoute
from understudy.session.session import ServerSession
from understudy.wire.amqp091.codes import Amqp091Error
from understudy.wire.amqp091.frames import FrameDecoder, FrameType
from understudy.wire.amqp091.layout import decode_method, encode_method
from understudy.wire.amqp091.methods import BasicPublish

#: Encoded class and method of a publish.
PUBLISH: Final = encode_method(BasicPublish(0, "", ""))[:4]
#: Bytes of a frame before its payload.
_HEAD_BYTES: Final = 7
#: Bytes for which a publish that has not come whole is waited for before its frames are taken one by one.
_AWAITED_BYTES_MAX: Final = 32 * 1024


class Run(NamedTuple):
    """Result of an attempt to take publishes together."""

    taken: int
    """Number of publishes."""
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
        peer = link.peer
        method = _method_of(frame[_HEAD_BYTES:-1])
        if (
            method is None
            or self._single_count
            # each publish of such a channel has its number in the log
            or publisher.record is not None
            or state.sending_transaction is not None
            or peer.content_bytes + decoder.held_bytes > AMQP091_CONTENTS_OF_CONNECTION_BYTES_MAX
        ):
            return _NONE
        exchange = self._session.exchanges.find(peer.host + method.exchange)
        if exchange is None or exchange.configuration.internal or exchange.read_only:
            return _NONE
        decoder.more()
        limits = PublishLimits(decoder.payload_max, count_max, self._office.store.settings.run_message_bytes_max)
        user = peer.user.encode()
        address = peer.host + method.exchange
        start, first, now_ms = decoder.offset, publisher.next_number, state.wall_ms()
        if method.exchange:
            # an exchange may have many bindings: only a publish that can be taken is compared with them here
            target = PublishTarget(_utf16(address), method.encoded_exchange, method.encoded_key, -1, user)
            sends, cut = split_publishes(decoder.data, start, limits._replace(count_max=1), target, now_ms, first)
            if sends is None:
                return Run(0, cut and len(decoder.data) - start <= _AWAITED_BYTES_MAX)
        publishing = self._office.routing.publishing
        route = publishing.route_of_key(exchange, method.routing_key)
        if route is None:
            return _NONE
        if not method.exchange:
            address = route.queues[0].address.name
        if not self._session.sends.permits_plain(address):
            return _NONE
        target = PublishTarget(_utf16(address), method.encoded_exchange, method.encoded_key, route.priority, user)
        sends, cut = split_publishes(decoder.data, start, limits, target, now_ms, first)
        awaits = cut and len(decoder.data) - (sends.end if sends is not None else start) <= _AWAITED_BYTES_MAX
        if sends is None:
            return Run(0, awaits)
        answered = publisher.answer_run if publisher.confirms else None
        # messages that are safe at once are confirmed within the call
        publisher.go_on_from(first + sends.count)
        count = self._session.sends.send_routed(sends, 0, SendRoute(route.address, route.queues, answered))
        decoder.offset = sends.end
        if count < sends.count:
            # the others are looked at one by one: trying again for each would cost every one of them
            decoder.offset = _start_of(decoder.data, start, count)
            self._single_count = sends.count - count
            publisher.go_on_from(first + count)
            awaits = False
        if not count:
            return _NONE
        exchange.messages_in += count
        full = publishing.when_room(route.queues, link, link.unblock)
        if full is not None:
            link.block(full)
        return Run(count, awaits)


def _start_of(data: bytes, offset: int, number: int) -> int:
    """Offset of a publish in a run, by its number."""
    while number or data[offset] != FrameType.METHOD:
        offset += _HEAD_BYTES + int.from_bytes(data[offset + 3 : offset + _HEAD_BYTES], "big") + 1
        number -= data[offset] == FrameType.METHOD
    return offset
