"""Events of an active broker for ``understudy events``: queues, addresses, diverts, slow consumers (ADR 0162).

They are logged by a logger of their own, which the lines of the log leave out, because a broker with temporary queues
has thousands of them each second. A process that keeps no events pays one comparison for each. Implements
``routing.addresses.listeners.RoutingListener``, ``routing.lifecycle.diverts.DivertListener`` and
``session.slow_consumers.SlowConsumerListener``.
"""

from __future__ import annotations

import logging
from typing import Final

from understudy.routing.addresses.address import Address
from understudy.routing.addresses.divert import Divert
from understudy.routing.queues.consumer import Consumer
from understudy.routing.queues.queue import Queue
from understudy.session.consumer import ServerConsumer

#: Name of the logger of events that are not lines of the log.
LOGGER: Final = "understudy.events"

log = logging.getLogger(LOGGER)


class NodeEvents:
    """Listener that logs the events of one broker."""

    def address_added(self, address: Address) -> None:
        """Log a new address."""
        if log.isEnabledFor(logging.DEBUG):
            log.debug("address created", extra={"address": address.name})

    def address_removed(self, address: Address) -> None:
        """Log a deleted address."""
        if log.isEnabledFor(logging.DEBUG):
            log.debug("address deleted", extra={"address": address.name})

    def queue_added(self, queue: Queue) -> None:
        """Log a new queue."""
        if log.isEnabledFor(logging.DEBUG):
            log.debug("queue created", extra={"queue": queue.name, "address": queue.address.name})

    def queue_removed(self, queue: Queue) -> None:
        """Log a deleted queue."""
        if log.isEnabledFor(logging.DEBUG):
            log.debug("queue deleted", extra={"queue": queue.name, "address": queue.address.name})

    def queue_updated(self, queue: Queue) -> None:
        """Log another filter of a queue."""
        if log.isEnabledFor(logging.DEBUG):
            text = None if queue.filter is None else queue.filter.text
            log.debug("queue has another filter", extra={"queue": queue.name, "filter": text})

    def consumer_added(self, queue: Queue, consumer: Consumer) -> None:
        """Do nothing: consumers come and go too often."""

    def consumer_removed(self, queue: Queue, consumer: Consumer) -> None:
        """Do nothing, as for a new consumer."""

    def settings_changed(self, address: Address) -> None:
        """Do nothing: the log has the operation that changed them."""

    def divert_added(self, divert: Divert) -> None:
        """Log a new divert."""
        if log.isEnabledFor(logging.DEBUG):
            log.debug("divert created", extra={"divert": divert.name, "address": divert.configuration.address})

    def divert_removed(self, divert: Divert) -> None:
        """Log a destroyed divert."""
        if log.isEnabledFor(logging.DEBUG):
            log.debug("divert destroyed", extra={"divert": divert.name, "address": divert.configuration.address})

    def consumer_slow(self, queue: Queue, consumer: ServerConsumer) -> None:
        """Log a slow consumer."""
        if log.isEnabledFor(logging.DEBUG):
            connection = consumer.session.connection
            log.debug(
                "consumer is slower than slow-consumer-threshold",
                extra={"queue": queue.name, "session": consumer.session.alias, "peer": connection.remote_address},
            )
