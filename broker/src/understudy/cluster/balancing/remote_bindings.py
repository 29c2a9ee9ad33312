"""All queues of other nodes that this node knows, and the addresses that balance over them. Implements
``routing.addresses.listeners.RoutingListener`` and ``routing.addresses.listeners.AddressesElsewhere``.

Source: artemis-ha s. 7.5.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from understudy.cluster.balancing.groups import Groups
from understudy.limits import REMOTE_BINDINGS_MAX
from understudy.routing.addresses.address import Address
from understudy.routing.addresses.directory import Directory
from understudy.routing.grouping import GroupDecisions
from understudy.routing.queues.consumer import Consumer
from understudy.routing.queues.queue import Queue
from understudy.routing.remote import Balancer, RemoteBinding
from understudy.terms import MessageLoadBalancing, RoutingType
from understudy.wildcards import is_wild, matches

log = logging.getLogger(__name__)


class RemoteListener(Protocol):
    """Called with every change, after it."""

    def remote_binding_added(self, binding: RemoteBinding) -> None:
        """Called when another node has reported a queue."""

    def remote_binding_removed(self, binding: RemoteBinding) -> None:
        """Called when a queue of another node does not exist any more."""

    def remote_consumer_added(self, binding: RemoteBinding, selector: str | None) -> None:
        """Called when a queue of another node has one more consumer, with this filter."""

    def remote_consumer_removed(self, binding: RemoteBinding, selector: str | None) -> None:
        """Called when a queue of another node has one consumer less, which had this filter."""

    def remote_connected(self, binding: RemoteBinding) -> None:
        """Called when the node of a remote binding is reached again or lost."""


class RemoteBindings:
    """The remote bindings of a node, by cluster name. Implements ``AddressesElsewhere``."""

    def __init__(self, directory: Directory, mode_of: Callable[[str], MessageLoadBalancing]) -> None:
        """Args:
        mode_of: ``message-load-balancing`` of the cluster connection that takes the messages of an address.
        """
        self._directory = directory
        self._mode_of = mode_of
        self.by_name: dict[str, RemoteBinding] = {}
        self._by_address: dict[str, dict[str, RemoteBinding]] = {}
        """Remote bindings by their address, then by cluster name."""
        self._wild: dict[str, dict[str, RemoteBinding]] = {}
        """The part of ``_by_address`` whose addresses have wildcards."""
        self._by_flow: dict[Queue, dict[str, RemoteBinding]] = {}
        """The bindings by the store-and-forward queue that leads to their node, and by their cluster name."""
        self._balancers: dict[str, Balancer] = {}
        """Balancers of the addresses of this node that have queues at other nodes, by name."""
        self.decisions: GroupDecisions | None = None
        """See ``AddressesElsewhere``; set before messages come."""
        self.groups: Groups | None = None
        """The grouping handler of this node, which hears the notifications of others."""
        self.listeners: list[RemoteListener] = []
        self._full = False
        self._made: set[str] = set()
        """Addresses of this node that exist only because of queues elsewhere."""
        directory.listeners.append(self)
        directory.elsewhere = self

    def of_flow(self, queue: Queue) -> dict[str, RemoteBinding]:
        """The bindings to which a store-and-forward queue leads, by cluster name; it is changed as they come and go."""
        return self._by_flow.setdefault(queue, {})

    def forget_flow(self, queue: Queue) -> None:
        """A store-and-forward queue leads to no node any more."""
        self._by_flow.pop(queue, None)

    def add(self, binding: RemoteBinding) -> bool:
        """Returns whether it is routed to from now on: not if the queue was reported by another node or on the links of
        another cluster connection before, or if there are too many.
        """
        if binding.name in self.by_name:
            log.warning(
                "a queue is reported twice: max-hops is higher than the cluster needs,"
                " or two cluster connections take its address",
                extra={"queue": binding.name},
            )
            return False
        if len(self.by_name) >= REMOTE_BINDINGS_MAX:
            if not self._full:
                log.error("queues of other nodes are left aside", extra={"limit": REMOTE_BINDINGS_MAX})
            self._full = True
            return False
        self.by_name[binding.name] = binding
        self.of_flow(binding.queue)[binding.name] = binding
        name = binding.address
        self._by_address.setdefault(name, {})[binding.name] = binding
        if self._directory.wildcard_routing and is_wild(name, self._directory.settings.wildcards):
            self._wild[name] = self._by_address[name]
        exact = self._directory.addresses.get(name)
        for address in ([] if exact is None else [exact]) + self._directory.covered_by(name):
            balancer = self._balancers.get(address.name)
            if balancer is None:
                self._balance(address)
            else:
                balancer.add(binding)
        self.tell(lambda listener: listener.remote_binding_added(binding))
        return True

    def _balance(self, address: Address) -> None:
        """Balance an address over the queues that other nodes have of it, if there are any."""
        if self._of(address.name):
            self._make_balancer(address)

    def _make_balancer(self, address: Address) -> Balancer:
        balancer = self._balancers[address.name] = Balancer(self._mode_of(address.name), self.decisions)
        # queues of this node came before those of others, or the balancer would exist: so they take their turn first
        address.balance_by(balancer)
        for binding in self._of(address.name):
            balancer.add(binding)
        return balancer

    def balancer_of(self, address: Address) -> Balancer:
        return address.balancer or self._make_balancer(address)

    def _of(self, name: str) -> list[RemoteBinding]:
        """Queues that get messages of an address: its own, and those of wildcard addresses that cover it."""
        found = list(self._by_address.get(name, {}).values())
        for wild, bindings in self._wild.items():
            if wild != name and matches(wild, name, self._directory.settings.wildcards):
                found += bindings.values()
        return found

    def remove(self, binding: RemoteBinding) -> None:
        """Route no more messages to a queue of another node."""
        del self.by_name[binding.name]
        del self._by_flow[binding.queue][binding.name]
        self._full = False
        same = self._by_address[binding.address]
        del same[binding.name]
        if not same:
            del self._by_address[binding.address]
            wild = self._wild.pop(binding.address, None) is not None
        else:
            wild = binding.address in self._wild
        for name in list(self._balancers) if wild else [binding.address]:
            balancer = self._balancers.get(name)
            if balancer is not None and binding.name in balancer.remote:
                balancer.remove(binding.name)
                if not balancer.remote:
                    self._leave(name)
        self.tell(lambda listener: listener.remote_binding_removed(binding))

    def _leave(self, name: str) -> None:
        """Forget an address of which no other node has a queue any more."""
        address = self._directory.addresses.get(name)
        made = name in self._made
        self._made.discard(name)
        if address is None or self.decisions is None:
            # message groups still need the balancer
            del self._balancers[name]
        if address is not None:
            if self.decisions is None:
                address.balance_by(None)
            if made and not address.bindings:
                self._directory.delete_address(name)

    def make(self, name: str) -> Address | None:
        found = self._of(name)
        if not found:
            return None
        anycast = any(binding.routing_name == binding.address for binding in found)
        routing_types = {RoutingType.ANYCAST, RoutingType.MULTICAST} if anycast else {RoutingType.MULTICAST}
        self._made.add(name)
        return self._directory.create_address(name, routing_types, auto_created=True, durable=False)

    def forget(self, name: str) -> None:
        for binding in list(self._by_address.get(name, {}).values()):
            self.remove(binding)

    def tell(self, call: Callable[[RemoteListener], None]) -> None:
        """Make a call at each listener."""
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
        self._by_address.clear()
        self._wild.clear()
        self._directory.elsewhere = None
        self.by_name.clear()

    # -- RoutingListener --------------------------------------------------------------------------

    def address_added(self, address: Address) -> None:
        """Make a balancer for the address if other nodes have queues of it."""
        self._balance(address)

    def address_removed(self, address: Address) -> None:
        """Forget a deleted address, so that a new one of its name is balanced again."""
        self._balancers.pop(address.name, None)
        self._made.discard(address.name)

    def queue_added(self, queue: Queue) -> None:
        """Do nothing: the address refreshes its balancer."""

    def queue_removed(self, queue: Queue) -> None:
        """Do nothing: the address refreshes its balancer."""

    def consumer_added(self, queue: Queue, consumer: Consumer) -> None:
        """Looked up when a message is routed."""

    def consumer_removed(self, queue: Queue, consumer: Consumer) -> None:
        """Looked up when a message is routed."""

    def queue_updated(self, queue: Queue) -> None:
        """Filters do not matter."""

    def settings_changed(self, address: Address) -> None:
        """Settings do not matter."""
