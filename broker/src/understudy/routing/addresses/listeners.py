"""Ports of the directory: listeners of its changes, and the queues of other nodes of the cluster."""

from __future__ import annotations

from typing import Protocol

from understudy.routing.addresses.address import Address
from understudy.routing.grouping import GroupDecisions
from understudy.routing.queues.consumer import Consumer
from understudy.routing.queues.queue import Queue
from understudy.routing.remote import Balancer


class RoutingListener(Protocol):
    """Called when addresses and queues are added and removed: for notifications, cluster, metrics."""

    def address_added(self, address: Address) -> None:
        """An address exists from now on."""
        ...

    def address_removed(self, address: Address) -> None:
        """Called when an address was deleted."""
        ...

    def queue_added(self, queue: Queue) -> None:
        """A queue exists from now on."""
        ...

    def queue_removed(self, queue: Queue) -> None:
        """Called when a queue was deleted."""
        ...

    def consumer_added(self, queue: Queue, consumer: Consumer) -> None:
        """Called when a consumer or browser was created on a queue."""
        ...

    def consumer_removed(self, queue: Queue, consumer: Consumer) -> None:
        """A consumer or browser of a queue was closed."""
        ...

    def queue_updated(self, queue: Queue) -> None:
        """Called when a queue has got another filter."""
        ...

    def settings_changed(self, address: Address) -> None:
        """Called when an address has other settings from now on."""
        ...


class AddressesElsewhere(Protocol):
    """Addresses of which other nodes of the cluster have queues."""

    decisions: GroupDecisions | None
    """About message groups; None: there is no grouping handler."""

    def balancer_of(self, address: Address) -> Balancer:
        """The balancer of an address, made if it has none: messages of groups come to it."""
        ...

    def forget(self, name: str) -> None:
        """An address was deleted by force: queues that other nodes have of it get no messages of this node, until they
        are announced again.
        """
        ...

    def make(self, name: str) -> Address | None:
        """The address, made here without a queue so that messages can be sent to it; None: no other node has one.

        Raises:
            LimitExceeded: there are too many addresses.
        """
        ...
