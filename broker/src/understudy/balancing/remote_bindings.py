"""All queues of other nodes that this node knows, and the addresses that balance over them. Implements
``routing.directory.RoutingListener`` and ``routing.directory.AddressesElsewhere``.

Source: artemis-ha s. 7.5.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from understudy.config.model import MessageLoadBalancing, RoutingType
from understudy.limits import REMOTE_BINDINGS_MAX
from understudy.routing.address import Address
from understudy.routing.directory import Directory
from understudy.routing.queues.consumer import Consumer
from understudy.routing.queues.queue import Queue
from understudy.routing.remote import Balancer, RemoteBinding

log = logging.getLogger(__name__)


class RemoteListener(Protocol):
    """Called with every change, after it."""

    def remote_binding_added(self, binding: RemoteBinding) -> None:
        """A queue of another node is known from now on."""

    def remote_binding_removed(self, binding: RemoteBinding) -> None:
        """A queue of another node is gone."""

    def remote_consumer_added(self, binding: RemoteBinding, selector: str | None) -> None:
        """A queue of another node has one consumer more, with this filter."""

    def remote_consumer_removed(self, binding: RemoteBinding, selector: str | None) -> None:
        """A queue of another node has one consumer less, which had this filter."""

    def remote_connected(self, binding: RemoteBinding) -> None:
        """Whether its node can be reached has changed."""


class RemoteBindings:
    """Those of a node, by cluster name."""

    def __init__(self, directory: Directory, mode: MessageLoadBalancing) -> None:
        self._directory = directory
        self._mode = mode
        self.by_name: dict[str, RemoteBinding] = {}
        self._balancers: dict[str, Balancer] = {}
        """By address, whether this node has the address or not."""
        self.listeners: list[RemoteListener] = []
        self._full = False
        self._made: set[str] = set()
        """Addresses of this node that exist only because of queues elsewhere."""
        directory.listeners.append(self)
        directory.elsewhere = self

    def add(self, binding: RemoteBinding) -> bool:
        """Returns whether it is routed to from now on: not if another node has reported the same queue, or if there are
        too many.
        """
        if binding.name in self.by_name:
            log.warning(
                "two nodes report the same queue: max-hops is higher than the cluster needs",
                extra={"queue": binding.name},
            )
            return False
        if len(self.by_name) >= REMOTE_BINDINGS_MAX:
            if not self._full:
                log.error("queues of other nodes are left aside", extra={"limit": REMOTE_BINDINGS_MAX})
            self._full = True
            return False
        self.by_name[binding.name] = binding
        balancer = self._balancers.get(binding.address)
        if balancer is None:
            balancer = self._balancers[binding.address] = Balancer(self._mode)
        balancer.add(binding)
        address = self._directory.addresses.get(binding.address)
        if address is not None and address.balancer is not balancer:
            address.balance_by(balancer)
        self.tell(lambda listener: listener.remote_binding_added(binding))
        return True

    def remove(self, binding: RemoteBinding) -> None:
        """Route nothing to it any more."""
        del self.by_name[binding.name]
        self._full = False
        balancer = self._balancers[binding.address]
        balancer.remove(binding.name)
        if not balancer.remote:
            del self._balancers[binding.address]
            address = self._directory.addresses.get(binding.address)
            if address is not None:
                address.balance_by(None)
            if binding.address in self._made:
                self._made.discard(binding.address)
                if address is not None and not address.bindings:
                    self._directory.delete_address(binding.address)
        self.tell(lambda listener: listener.remote_binding_removed(binding))

    def make(self, name: str) -> Address | None:
        """See ``routing.directory.AddressesElsewhere``."""
        balancer = self._balancers.get(name)
        if balancer is None:
            return None
        anycast = any(binding.routing_name == name for binding in balancer.remote.values())
        routing_types = {RoutingType.ANYCAST, RoutingType.MULTICAST} if anycast else {RoutingType.MULTICAST}
        self._made.add(name)
        return self._directory.create_address(name, routing_types, auto_created=True, durable=False)

    def tell(self, call: Callable[[RemoteListener], None]) -> None:
        """Call each listener."""
        for listener in self.listeners:
            call(listener)

    def queues_of(self, binding: RemoteBinding) -> list[Queue]:
        """Queues of this node that share the messages of an address with it."""
        address = self._directory.addresses.get(binding.address)
        return [] if address is None else [each.queue for each in address.bindings.values()]

    def close(self) -> None:
        """Route to no other node any more."""
        for name in self._balancers:
            address = self._directory.addresses.get(name)
            if address is not None:
                address.balance_by(None)
        self._balancers.clear()
        self._directory.elsewhere = None
        self.by_name.clear()

    # -- RoutingListener --------------------------------------------------------------------------

    def address_added(self, address: Address) -> None:
        """Balance it, if other nodes have queues of it."""
        balancer = self._balancers.get(address.name)
        if balancer is not None:
            address.balance_by(balancer)

    def address_removed(self, address: Address) -> None:
        """The next address of this name is balanced again."""

    def queue_added(self, queue: Queue) -> None:
        """The address refreshes its balancer."""

    def queue_removed(self, queue: Queue) -> None:
        """The address refreshes its balancer."""

    def consumer_added(self, queue: Queue, consumer: Consumer) -> None:
        """Looked up when a message is routed."""

    def consumer_removed(self, queue: Queue, consumer: Consumer) -> None:
        """Looked up when a message is routed."""

    def settings_changed(self, address: Address) -> None:
        """Settings do not matter."""
