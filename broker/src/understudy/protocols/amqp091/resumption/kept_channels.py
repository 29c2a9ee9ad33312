"""The channels of a session while their client has no connection, and how it finds them again (ADR 0195)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from understudy.errors import BrokerError, forget_frames
from understudy.limits import AMQP091_SESSION_BYTES_MAX
from understudy.protocols.amqp091.channel import Amqp091Channel, Event, State
from understudy.protocols.amqp091.deliveries import GENERATION_SHIFT
from understudy.protocols.amqp091.link import ConnectionLink
from understudy.protocols.amqp091.resumption.absent_link import AbsentLink
from understudy.protocols.amqp091.resumption.records import ChannelRecord, ChannelValues
from understudy.protocols.amqp091.resumption.request import ChannelRequest
from understudy.protocols.amqp091.resumption.status import encoded_status
from understudy.protocols.amqp091.sessions import ClientSession
from understudy.session.connection_scope import ConnectionScope
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode

#: Nominal memory of a channel without its consumers, of a delivery, and of the number of a publish. Bytes.
_CHANNEL_BYTES: Final = 1_024
_DELIVERY_BYTES: Final = 24
_NUMBER_BYTES: Final = 8


class KeptChannels:
    """The kept channels of one session. Implements ``SessionChannels``."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._kept: dict[int, Amqp091Channel] = {}

    @classmethod
    def of(cls, session: ClientSession) -> KeptChannels:
        """The kept channels of a session, which has none before its first connection."""
        found = session.channels
        if not isinstance(found, cls):
            found = session.channels = cls(session)
        return found

    # --- the connection has ended ------------------------------------------------------------------

    def keep(self, channels: Mapping[int, Amqp091Channel], link: ConnectionLink, scope: ConnectionScope) -> None:
        """Keep the channels of a connection that has ended.

        Args:
            channels: Open channels.
            link: The connection.
            scope: Scope of the session while it has no connection.
        """
        for number, channel in channels.items():
            channel.fire(Event.DETACH, AbsentLink(link, scope, partial(self.drop, number)))
            self._kept[number] = channel
        if self.state_bytes > AMQP091_SESSION_BYTES_MAX:
            generation = self._session.next_generation()
            for channel in self._kept.values():
                channel.lose_deliveries(generation)
        while self.state_bytes > AMQP091_SESSION_BYTES_MAX:
            self.drop(max(self._kept))

    @property
    def state_bytes(self) -> int:
        """Nominal memory of all kept channels. Bytes."""
        return sum(map(_state_bytes, self._kept.values()))

    def drop(self, number: int) -> None:
        """End a channel, if it is kept."""
        channel = self._kept.pop(number, None)
        if channel is not None:
            channel.fire(Event.LOSE)
        if self._session.records is not None:
            self._session.records.save_channel(number, None)

    def end(self) -> None:
        """End all channels: the session ends."""
        while self._kept:
            self.drop(next(iter(self._kept)))

    # --- the session moves to another node ---------------------------------------------------------

    def decide(self, done: Callable[[], None]) -> None:
        """Make a call, perhaps at once, when everything that was sent on the channels is decided."""
        waiting = len(self._kept)
        if not waiting:
            done()
            return

        def decided() -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting:
                done()

        for channel in list(self._kept.values()):
            channel.session.state.when_durable(decided)

    def release(self) -> None:
        """End all channels, and leave their records for the node that goes on with the session. Raises Amqp091Error."""
        try:
            for channel in self._kept.values():
                record = channel.publisher.record
                if record is not None:
                    channel.save()
                    record.store_number(channel.publisher.last_number)
        finally:
            # numbers are in the log already, but for those of messages without a record
            while self._kept:
                self._kept.popitem()[1].fire(Event.LOSE)

    # --- the client is back ------------------------------------------------------------------------

    def begin(self, number: int, channel: Amqp091Channel) -> None:
        """Have a new channel, if the client knows how to resume channels. Raises Amqp091Error."""
        session = self._session
        if not session.keeps_channels:
            return
        record = None
        if session.records is not None:
            incarnation = int.from_bytes(channel.link.services.shared.entropy.token(4), "big")
            record = ChannelRecord(session.records, number, incarnation)
        _join(channel, session.generation, record)
        channel.save()

    def resume(
        self,
        number: int,
        request: ChannelRequest | None,
        link: ConnectionLink,
        channels: dict[int, Amqp091Channel],
        make: Callable[[], Amqp091Channel],
    ) -> bool:
        """Resume a channel if the client asks for that and it is kept. Otherwise the kept one ends.

        Args:
            number: Number of the channel.
            request: What the client asks for; None: a new channel.
            link: The connection of the client.
            channels: Open channels of the connection, which gets the resumed one.
            make: Makes a channel, for one that an earlier active node had.

        Returns:
            Whether the channel is resumed; channel.open-ok follows.

        Raises:
            Amqp091Error: PRECONDITION_FAILED: the client has seen a delivery that was not sent, or has sent fewer
                publishes than came.
        """
        if request is None or not request.resume:
            self.drop(number)
            return False
        channel = self._kept.get(number) or self._restored(number, request, make)
        if channel is None:
            return False
        last = channel.deliveries.last_tag
        if request.tag > last and request.tag >> GENERATION_SHIFT == last >> GENERATION_SHIFT:
            raise _contradiction(f"delivery {request.tag} was not sent, the last one was {last}")
        if request.publishes < channel.publisher.received:
            raise _contradiction(f"{channel.publisher.received} publishes came, more than {request.publishes}")
        channels[number] = channel
        del self._kept[number]
        channel.fire(Event.RESUME, link, request.tag, partial(self.status, channel, channels, resumed=True))
        return True

    def _restored(
        self, number: int, request: ChannelRequest, make: Callable[[], Amqp091Channel]
    ) -> Amqp091Channel | None:
        """A channel that an earlier active node had, without its deliveries; it is kept. None: there was none."""
        session, records = self._session, self._session.records
        values = None if records is None else records.channels.get(number)
        if records is None or values is None:
            return None
        channel = make()
        link = channel.link
        channel.fire(Event.DETACH, AbsentLink(link, link.scope, partial(self.drop, number)))
        self._kept[number] = channel
        _join(channel, session.generation, ChannelRecord(records, number, values.incarnation))
        _restore(channel, values, records.accepted(number), session.last_restored_id)
        channel.publisher.assume(request.publishes)
        return channel

    def status(self, channel: Amqp091Channel, channels: Mapping[int, Amqp091Channel], *, resumed: bool) -> bytes:
        """The status of a channel (``encoded_status``). Raises Amqp091Error.

        Args:
            channel: Channel whose status is wanted.
            channels: Open channels of the connection.
            resumed: Whether the channel was kept.
        """
        numbers = {number for number, each in channels.items() if each.state is not State.CLOSING}
        numbers |= self._kept.keys()
        if self._session.records is not None:
            numbers |= self._session.records.channels.keys()
        return encoded_status(self._session, channel, numbers, resumed=resumed)


def _contradiction(text: str) -> Amqp091Error:
    return Amqp091Error(ReplyCode.PRECONDITION_FAILED, text, closes_connection=True)


def _state_bytes(channel: Amqp091Channel) -> int:
    deliveries, publisher = channel.deliveries, channel.publisher
    return (
        _CHANNEL_BYTES
        + sum(each.state_bytes for each in deliveries.kept)
        + sum(each.state_bytes for each, _ in deliveries.cancelled.values())
        + _DELIVERY_BYTES * deliveries.unacknowledged_count
        + _NUMBER_BYTES * (len(publisher.returned) + len(publisher.rejected))
    )


def _join(channel: Amqp091Channel, generation: int, record: ChannelRecord | None) -> None:
    """Have a session keep a channel.

    Args:
        channel: A channel without deliveries.
        generation: Generation of its delivery tags.
        record: Record of the channel; None: the next active node does not know it.
    """
    channel.deliveries.keeps = True
    channel.deliveries.begin(generation)
    channel.publisher.record = record
    if record is not None:
        record.values = partial(_values, channel, record)


def _values(channel: Amqp091Channel, record: ChannelRecord) -> ChannelValues:
    publisher, deliveries = channel.publisher, channel.deliveries
    consumers = {each.tag: each for each in deliveries.kept} | record.awaited
    return ChannelValues(
        record.incarnation,
        publisher.mode,
        deliveries.prefetch_count,
        deliveries.prefetch.limit,
        tuple(consumers.values()),
        tuple(publisher.returned),
        tuple(publisher.rejected),
    )


def _restore(channel: Amqp091Channel, values: ChannelValues, accepted: int, id_before_activation: int) -> None:
    """Make a channel as an earlier active node has left it, but without deliveries and open transaction.

    Args:
        channel: A new channel.
        values: Record of the earlier one.
        accepted: Number of the last publish, or of the last commit, that the log has.
        id_before_activation: Messages up to this id may have been delivered before a failover.
    """
    publisher, deliveries, services = channel.publisher, channel.deliveries, channel.link.services
    channel.lost = True
    deliveries.id_before_activation = id_before_activation
    deliveries.limit(values.prefetch_of_channel, for_channel=True)
    deliveries.limit(values.prefetch, for_channel=False)
    if values.mode == "confirm":
        publisher.select(confirms=True)
    elif values.mode == "tx":
        publisher.select(confirms=False)
        channel.session.begin_transactions()
    publisher.restore(accepted)
    publisher.returned.extend(values.returned)
    publisher.rejected.extend(values.rejected)
    for each in values.consumers:
        try:
            queue = channel.session.exchanges.queue(channel.link.peer.host + each.queue)
            deliveries.consume(each.method(), queue, each.tag, each.prefetch)
        except BrokerError as error:
            forget_frames(error)
            deliveries.note_cancelled(each, services.shared.error_texts.remote(error))
