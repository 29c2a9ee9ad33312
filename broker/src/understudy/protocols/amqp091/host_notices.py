"""Messages of the exchange amq.qpid: the known hosts, for queues and exchanges that are bound with the key cluster.

A new binding brings the present list at once, and each change a message, at most one in a second for each destination:
of several changes in it only the last one is sent. A message has no body; its headers are::

    qpid.known.hosts        string, the entries one after the other, each with its length in one byte before it
    qpid.known.hosts.list   array of strings, the same entries
    qpid.cluster.version    number that grows with each message, across failovers too

A message belongs to no connection, so entries with TLS are listed for all clients.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from understudy.errors import BrokerError, forget_frames
from understudy.ports import Clock, Timers
from understudy.protocols.amqp091.known_hosts import KnownHosts
from understudy.protocols.amqp091.messages import Publish, ranked, to_message
from understudy.routing.exchanges.exchange import KNOWN_HOSTS, Exchange, ExchangeBinding
from understudy.routing.exchanges.publishing import Published
from understudy.routing.post_office import PostOffice
from understudy.routing.response_order import ResponseOrder
from understudy.wire.amqp091.properties import BasicProperties, encode_properties

log = logging.getLogger(__name__)

#: Routing key of bindings whose destinations get the list.
CLUSTER_KEY: Final = "cluster"
_INTERVAL_MS: Final = 1_000
#: Bits of a version below the epoch of the node.
_EPOCH_SHIFT: Final = 32


class HostNotices:
    """Sends the known hosts of one active node to the destinations of amq.qpid. Implements ``BindingListener``."""

    def __init__(self, hosts: KnownHosts, office: PostOffice, clock: Clock, timers: Timers, epoch: int) -> None:
        """Send the list to the restored bindings.

        Args:
            hosts: The list.
            office: Has the exchanges.
            clock: Used for the interval between two messages.
            timers: Send messages whose interval has passed.
            epoch: Epoch of the node, which grows with each activation of the pair.
        """
        self._hosts = hosts
        self._office = office
        self._clock = clock
        self._timers = timers
        self._version = epoch << _EPOCH_SHIFT
        self._order = ResponseOrder()
        self._sent_ms: dict[ExchangeBinding, int] = {}
        """Time of the last message for each binding."""
        self._waiting: set[ExchangeBinding] = set()
        """Bindings with a change that is not sent yet."""
        self._closed = False
        exchanges = office.routing.exchanges
        exchanges.listener = self
        hosts.listen(self._changed)
        for exchange in list(exchanges.by_name.values()):
            if exchange.read_only:
                for binding in exchange.bindings:
                    self.bound(exchange, binding)

    def close(self) -> None:
        """Send nothing more."""
        self._closed = True

    # --- BindingListener ---------------------------------------------------------------------------

    def bound(self, exchange: Exchange, binding: ExchangeBinding) -> None:
        """Send the present list to a new destination, in the next turn."""
        if exchange.read_only and binding.key == CLUSTER_KEY:
            self._waiting.add(binding)
            self._timers.call_later(0, partial(self._send, exchange, binding))

    def unbound(self, exchange: Exchange, binding: ExchangeBinding) -> None:
        """Forget a destination."""
        self._sent_ms.pop(binding, None)
        self._waiting.discard(binding)

    # --- sending -----------------------------------------------------------------------------------

    def _changed(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for exchange in list(self._office.routing.exchanges.by_name.values()):
            if exchange.read_only:
                for binding in exchange.bindings:
                    if binding.key == CLUSTER_KEY and binding not in self._waiting:
                        self._waiting.add(binding)
                        wait_ms = max(0, self._sent_ms.get(binding, now_ms - _INTERVAL_MS) + _INTERVAL_MS - now_ms)
                        self._timers.call_later(wait_ms, partial(self._send, exchange, binding))

    def _send(self, exchange: Exchange, binding: ExchangeBinding) -> None:
        if self._closed or binding not in self._waiting or binding not in exchange.bindings:
            return
        self._waiting.discard(binding)
        self._sent_ms[binding] = self._clock.monotonic_ms()
        self._version += 1
        host = exchange.name.removesuffix(KNOWN_HOSTS)
        entries = self._hosts.entries(tls=True)
        properties = BasicProperties(
            headers={
                "qpid.known.hosts": "".join(chr(len(each.encode())) + each for each in entries),
                "qpid.known.hosts.list": entries,
                "qpid.cluster.version": self._version,
            }
        )
        publish = Publish(KNOWN_HOSTS, CLUSTER_KEY, properties, encode_properties(properties), b"")
        routing = self._office.routing
        target = routing.exchanges.find(binding.destination if binding.to_exchange else host)
        if target is None:
            return
        key = CLUSTER_KEY if binding.to_exchange else binding.destination.removeprefix(host)
        message = to_message(publish, host + KNOWN_HOSTS, self._clock.wall_ms())
        published = Published(message, target, (key,), properties.headers or {}, ranked(properties))
        try:
            routing.publishing.publish(published, self._order, None, None)
        except BrokerError as error:
            forget_frames(error)
            log.info(
                "a list of known hosts is not sent", extra={"destination": binding.destination, "error": str(error)}
            )
