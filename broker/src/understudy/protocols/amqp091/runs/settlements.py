"""Settlements of single deliveries of one channel that came together: one settlement.

A run is made of neighbouring basic.ack, basic.nack and basic.reject of one delivery each (ADR 0207). Nothing is refused
here: a settlement with which something is wrong is taken by its frame (``channel``), which has the errors.
"""

from __future__ import annotations

from typing import Final

from understudy.protocols.amqp091.deliveries import RETURNED, ChannelDeliveries
from understudy.protocols.amqp091.publisher import ChannelPublisher
from understudy.protocols.amqp091.runs.ways import Run
from understudy.session.outcomes import ACCEPTED, REJECTED
from understudy.wire.amqp091.frames import FrameDecoder
from understudy.wire.amqp091.methods import BasicAck, BasicNack, BasicReject

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
