"""Publishes of one channel that came together: batches of sends, without an object per message.

A run is made of neighbouring publishes with equal method frames, so their exchange and routing key are read and routed
once (ADR 0193). Short runs that follow each other and go to different queues are taken queue by queue (ADR 0207).
Nothing is refused here: a publish that needs more than a place in queues, or with which something is wrong, is taken by
its frames (``channel``), which has the errors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from understudy.kernel import DURABLE, Sends
from understudy.kernel.amqp091 import PublishLimits, PublishTarget, split_publishes
from understudy.limits import AMQP091_CONTENTS_OF_CONNECTION_BYTES_MAX, AMQP091_WAYS_MAX
from understudy.protocols.amqp091.link import ConnectionLink
from understudy.protocols.amqp091.publisher import ChannelPublisher
from understudy.protocols.amqp091.runs.methods import PUBLISH, PublishMethod, method_of, utf16
from understudy.protocols.amqp091.runs.ways import Run, Way
from understudy.routing.addresses.address import Address
from understudy.routing.batch import Answered
from understudy.routing.exchanges.exchange import Exchange
from understudy.routing.exchanges.publishing import ONE_PRIORITY
from understudy.routing.queues.queue import Queue
from understudy.session.send_requests import SendRoute
from understudy.session.session import ServerSession
from understudy.wire.amqp091.frames import FrameDecoder, FrameType

#: Bytes of a frame before its payload.
_HEAD_BYTES: Final = 7
#: Bytes for which a publish that has not come whole is waited for before its frames are taken one by one.
_AWAITED_BYTES_MAX: Final = 32 * 1024


_NONE: Final = Run(0, awaits=False)
#: ``SendRoute(...)`` without the Python-level call.
_send_route: Final[Callable[[tuple[Address, tuple[Queue, ...], Answered | None]], SendRoute]] = partial(
    tuple.__new__, SendRoute
)
#: Bytes of a frame up to the end of its channel.
_CHANNEL_END: Final = 3
#: Publishes of a run that are taken queue by queue with others; longer runs gain nothing from that.
_PARTED_MAX: Final = 8
_UNLIMITED: Final = 1 << 62


class _Publishes(NamedTuple):
    """Publishes that go one way, as messages."""

    way: Way
    sends: Sends
    awaits: bool
    """Whether more bytes are needed for the publish after them."""


class PublishRuns:
    """Runs of one channel."""

    def __init__(self, link: ConnectionLink, session: ServerSession, publisher: ChannelPublisher) -> None:
        self._link = link
        self._session = session
        self._publisher = publisher
        self._office = session.state.office
        self._longest_bytes = self._office.store.settings.run_message_bytes_max
        self._limits = PublishLimits(0, 0, self._longest_bytes)
        self._wall_ms = session.state.services.clock.wall_ms
        self._exchanges = self._office.routing.exchanges
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
        link, publisher = self._link, self._publisher
        if (
            self._single_count
            # each publish of such a channel has its number in the log
            or publisher.record is not None
            or publisher.transacted
            or link.peer.content_bytes + decoder.more() > AMQP091_CONTENTS_OF_CONNECTION_BYTES_MAX
        ):
            return _NONE
        ways = link.ways
        if ways.changes != self._exchanges.changes:
            ways.found.clear()
            ways.changes = self._exchanges.changes
        limits = self._limits
        if limits.count_max != count_max or limits.payload_max != decoder.payload_max:
            limits = self._limits = PublishLimits(decoder.payload_max, count_max, self._longest_bytes)
        start, first = decoder.offset, publisher.next_number
        next_one = self._split(decoder, frame, limits, first)
        if isinstance(next_one, Run):
            return next_one
        if next_one.sends.end < len(decoder.data) and self._may_part(next_one):
            parts = self._parts(decoder, limits, first, next_one)
            if len(parts) > 1:
                return self._take_apart(parts, first)
        return self._take(decoder, start, next_one, first)

    def _split(self, decoder: FrameDecoder, frame: bytes, limits: PublishLimits, first: int) -> _Publishes | Run:
        """The publishes that come next and go one way, as messages; a result without one: the first one is not taken.

        Args:
            decoder: The input of the connection, which is not changed.
            frame: The method frame.
            limits: Limits of the messages.
            first: Number of the first one.
        """
        data, start, now_ms = decoder.data, decoder.offset, self._wall_ms()
        ways = self._link.ways.found
        way, sends, cut = ways.get(frame), None, False
        if way is not None:
            if not self._session.sends.permits_plain(way.name):
                return _NONE
        else:
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
            if len(ways) >= AMQP091_WAYS_MAX:
                ways.clear()
            ways[frame] = way
            if way.target is not target or (sends is not None and data.startswith(frame, sends.end)):
                sends = None
        if sends is None:
            sends, cut = split_publishes(data, start, limits, way.target, now_ms, first)
        awaits = cut and len(data) - (sends.end if sends is not None else start) <= _AWAITED_BYTES_MAX
        return _Publishes(way, sends, awaits) if sends is not None else Run(0, awaits)

    def _take(self, decoder: FrameDecoder, start: int, publishes: _Publishes, first: int) -> Run:
        """Take publishes that go one way; they begin at ``start``. Raises StoreError."""
        publisher, (way, sends, awaits) = self._publisher, publishes
        answered = publisher.answer_run if publisher.confirms else None
        # messages that are safe at once are confirmed within the call
        publisher.go_on_from(first + sends.count)
        route = _send_route((way.route.address, way.route.queues, answered))
        context = self._office.store.context
        before = context.appended
        count = self._session.sends.send_routed(sends, 0, route)
        if answered is None and context.appended > before:
            context.resting.add_unanswered(before, context.appended)
        decoder.offset = sends.end
        if count < sends.count:
            # the others are looked at one by one: trying again for each would cost every one of them
            decoder.offset = _start_of(decoder.data, start, count)
            self._single_count = sends.count - count
            publisher.go_on_from(first + count)
            awaits = False
        if not count:
            return _NONE
        way.exchange.messages_in += count
        self._check_room(way)
        return Run(count, awaits)

    def _check_room(self, way: Way) -> None:
        """Read nothing more from a connection that has filled an address."""
        link, office = self._link, self._office
        for queue in way.route.queues:
            if office.memory.blocks_producers(queue.address) is not None:
                full = office.routing.publishing.when_room(way.route.queues, link, link.unblock)
                if full is not None:
                    link.block(full)
                return

    def _may_part(self, publishes: _Publishes) -> bool:
        """Whether publishes may be taken before or after those of other queues that came with them: they are few, and
        nothing can keep one of them from being taken.
        """
        way, sends, awaits = publishes
        queues, store = way.route.queues, self._office.store
        if (
            sends.count > _PARTED_MAX or awaits or len(queues) > 1 or not queues[0].durable
            or queues[0].address.limited or store.full
        ):  # fmt: skip
            return False
        count, _, kind = sends.alike(0, self._longest_bytes, queues[0].routing_type, _UNLIMITED, _UNLIMITED)
        return count == sends.count and kind & DURABLE > 0

    def _parts(
        self, decoder: FrameDecoder, limits: PublishLimits, first: int, publishes: _Publishes
    ) -> list[_Publishes]:
        """These publishes and those of the channel that follow, go ways that are known, and may be taken apart from
        them. The decoder goes on after all of them.
        """
        parts, count = [publishes], publishes.sends.count
        head, ways = decoder.data[decoder.offset : decoder.offset + _CHANNEL_END], self._link.ways.found
        decoder.offset = publishes.sends.end
        while count < limits.count_max:
            frame = decoder.method_frame(PUBLISH)
            if frame is None or frame not in ways or not frame.startswith(head):
                break
            count_max = min(limits.count_max - count, _PARTED_MAX + 1)
            further = self._split(
                decoder, frame, PublishLimits(limits.payload_max, count_max, limits.body_max), first + count
            )
            if isinstance(further, Run) or not self._may_part(further):
                break
            parts.append(further)
            count += further.sends.count
            decoder.offset = further.sends.end
        return parts

    def _take_apart(self, parts: list[_Publishes], first: int) -> Run:
        """Take publishes queue by queue. All are confirmed together, when the last one is safe. Raises StoreError."""
        publisher = self._publisher
        by_queue: dict[Queue, list[_Publishes]] = {}
        for each in parts:
            by_queue.setdefault(each.way.route.queues[0], []).append(each)
        count = sum([each.sends.count for each in parts])
        publisher.go_on_from(first + count)
        for of_queue in by_queue.values():
            for way, sends, _ in of_queue:
                taken = self._session.sends.send_routed(
                    sends, 0, _send_route((way.route.address, way.route.queues, None))
                )
                assert taken == sends.count, f"{taken} of {sends.count} taken"
                way.exchange.messages_in += taken
            self._check_room(way)
        if publisher.confirms:
            publisher.answer(first + count - 1)
        return Run(count, awaits=False)

    def _aim(self, frame: bytes) -> tuple[Exchange, PublishMethod, PublishTarget] | None:
        """The exchange of a publish that can be taken together with others, and the values of its message if its queues
        ignore priorities.
        """
        method = method_of(frame[_HEAD_BYTES:-1])
        if method is None:
            return None
        peer = self._link.peer
        exchange = self._session.exchanges.find(peer.host + method.exchange)
        if exchange is None or exchange.configuration.internal or exchange.read_only:
            return None
        # through the default exchange the message has the address of its queue, which most often has its name
        name = peer.host + (method.exchange or method.routing_key)
        target = PublishTarget(
            utf16(name), method.encoded_exchange, method.encoded_key, ONE_PRIORITY, peer.user.encode()
        )
        return exchange, method, target

    def _way(self, exchange: Exchange, method: PublishMethod, target: PublishTarget) -> Way | None:
        """The way of publishes; None: each of them has to be looked at."""
        route = self._office.routing.publishing.route_of_key(exchange, method.routing_key)
        if route is None:
            return None
        host = self._link.peer.host
        name = host + method.exchange if method.exchange else route.queues[0].address.name
        if not self._session.sends.permits_plain(name):
            return None
        if not method.exchange and name != host + method.routing_key:
            target = target._replace(address=utf16(name))
        if route.priority != target.priority:
            target = target._replace(priority=route.priority)
        return Way(exchange, route, target, name)


def _start_of(data: bytes, offset: int, number: int) -> int:
    """Offset of a publish in a run, by its number."""
    while number or data[offset] != FrameType.METHOD:
        offset += _HEAD_BYTES + int.from_bytes(data[offset + 3 : offset + _HEAD_BYTES], "big") + 1
        number -= data[offset] == FrameType.METHOD
    return offset
