"""The end of bridges that lead in a circle (ADR 0123).

``_AMQ_ORIG_HOPS`` says at how many brokers that have core bridges themselves a message has arrived by a bridge. One
that arrived too often becomes a dead letter of its address.
"""

from __future__ import annotations

import logging
from typing import Final

from understudy.limits import BRIDGE_HOPS_MAX
from understudy.message import BRIDGE_DUPLICATE_ID, HOPS, Message, Transfer
from understudy.properties import INT
from understudy.routing.post_office import PostOffice
from understudy.routing.response_order import ResponseOrder, RoutingTransaction
from understudy.routing.transit import transfer_of

log = logging.getLogger(__name__)

_INT_MAX: Final = (1 << 31) - 1


class CountedHops:
    """Count of the brokers that a message has passed, kept by one node. Implements
    ``routing.acceptance.MessageHops``."""

    def __init__(self, office: PostOffice) -> None:
        self._office = office

    def counted(self, message: Message, order: ResponseOrder, transaction: RoutingTransaction | None) -> Message | None:
        if BRIDGE_DUPLICATE_ID not in message.properties and not transfer_of(message) & Transfer.FORWARDED:
            return message
        earlier = message.properties.get(HOPS)
        hops = min(max(earlier, 0), _INT_MAX - 1) + 1 if isinstance(earlier, int) else 1
        if hops <= BRIDGE_HOPS_MAX:
            properties = message.properties.copy()
            properties.set_typed(HOPS, INT, hops)
            return message.with_properties(properties)
        self._end(message, hops, order, transaction)
        return None

    def _end(self, message: Message, hops: int, order: ResponseOrder, transaction: RoutingTransaction | None) -> None:
        office = self._office
        address = office.directory.find_address((message.address or "").partition("::")[0])
        message.assign_id(office.store.next_id())
        taken = address is not None and office.dead_letters.no_route(address, message, order, transaction)
        log.error(
            "bridges lead in a circle: a message is not forwarded any more"
            + ("; it is a dead letter now" if taken else " and dropped, because no dead-letter-address takes it"),
            extra={"address": message.address, "hops": hops, "message_id": message.message_id},
        )
