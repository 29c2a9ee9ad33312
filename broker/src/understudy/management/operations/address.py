"""The operations of ``address.<name>`` (Artemis: AddressControl)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from understudy.dataclass import dataclass
from understudy.errors import ResourceNotFound
from understudy.management.doors import artemis
from understudy.management.json_text import to_json
from understudy.management.model import queues
from understudy.management.operations import queue_messages as messages
from understudy.management.operations.broker import BrokerControl
from understudy.management.operations.invocation import Control, ManagedNode, Requester
from understudy.management.operations.queue import Steps
from understudy.management.operations.sending import SENDING_PARAMETERS, send
from understudy.management.operations.table import Operations, flag, operation
from understudy.management.snapshot.routing import address_readers
from understudy.routing.addresses.address import Address
from understudy.routing.addresses.updates import pause_address, resume_address


@dataclass(frozen=True, slots=True)
class AddressControl(Control):
    """One address, with the permissions of one requester."""

    address: Address

    def names(self) -> list[str]:
        """Names of the queues that get its messages: its own, and those of wildcard addresses that cover it."""
        return [name for each in (self.address, *self.address.linked) for name in each.bindings]

    def roles(self) -> list[dict[str, object]]:
        """Permissions of each role on the address."""
        return BrokerControl(self.node, self.requester).roles(self.address.name)

    def role_rows(self) -> list[list[object]]:
        """Permissions of each role as lists."""
        return BrokerControl(self.node, self.requester).role_rows(self.address.name)

    def purge(self) -> Steps[int]:
        """Remove the messages of all its queues; returns their number."""
        office = self.node.services.sessions.post_office
        total = 0
        for binding in list(self.address.bindings.values()):
            queue = binding.queue
            total += yield from messages.remove(office, queue, messages.wanted_by(queue, None))
        return total

    def pause(self, persist: bool = False) -> None:
        """Pause the queues of the address. Raises DiskFull."""
        pause_address(self.node.services.sessions.post_office, self.address, persist=persist)

    def resume(self) -> None:
        """Resume the queues of the address. Raises DiskFull."""
        resume_address(self.node.services.sessions.post_office, self.address)

    def block(self) -> bool:
        """Give producers no credits until ``unblock`` or the end of the activation."""
        self.address.blocked = True
        return True

    def unblock(self) -> None:
        """Give producers credits again; those that wait get them in the next turn."""
        self.address.blocked = False

    def send(self, *arguments: Any) -> Steps[str]:
        """Send a message to the address; returns its id."""
        return send(self, self.address.name, *arguments)


def _field(name: str) -> Callable[[AddressControl], object]:
    """A value of the address' row."""
    column = artemis.ADDRESSES[name]

    def read(control: AddressControl) -> object:
        return artemis.attribute(column, address_readers(control.node.global_max_size_bytes), control.address)

    return read


_ATTRIBUTES: Final = (
    ("getId", "id", "Id of the address."),
    ("getAddress", "name", "Its name."),
    ("getMessageCount", "messageCount", "Messages in its queues; a message in several queues counts once."),
    ("getNumberOfMessages", "messageCount", "The same."),
    ("getRoutedMessageCount", "routedMessageCount", "Messages that went to a queue since the activation."),
    ("getUnRoutedMessageCount", "unroutedMessageCount", "Messages that were routed to no queue."),
    ("getAddressSize", "addressSize", "Bytes of the messages it holds."),
    ("getAddressLimitPercent", "addressLimitPercent", "Used part of its memory limit in percent."),
    ("getNumberOfPages", "numberOfPages", "Number of its page files."),
    ("getNumberOfBytesPerPage", "numberOfBytesPerPage", "Bytes of a page file."),
    ("getMaxPageReadBytes", "maxPageReadBytes", "Bytes read from page files at once."),
    ("getMaxPageReadMessages", "maxPageReadMessages", "Messages read at once; -1 is no limit."),
    ("getPrefetchPageBytes", "prefetchPageBytes", "Bytes read ahead."),
    ("getPrefetchPageMessages", "prefetchPageMessages", "Messages read ahead; -1 is no limit."),
    ("isPaging", "paging", "Whether it holds messages whose bodies are not in memory."),
    ("isPaused", "paused", "Whether its queues are paused, those bound later included."),
    ("isAutoCreated", "autoCreated", "Whether it was auto-created."),
    ("isInternal", "internal", "Whether it belongs to the broker."),
    ("isTemporary", "temporary", "Whether it is deleted with a connection."),
    ("isRetroactiveResource", "retroactiveResource", "Whether it keeps messages of a retroactive address."),
    ("getCurrentDuplicateIdCacheSize", "currentDuplicateIdCacheSize", "Duplicate ids in its cache."),
)
_C = AddressControl


class AddressControls:
    """Controls of addresses, by name."""

    operations = Operations(
        "address",
        "An address, by name.",
        [
            *(
                operation(name, _field(field), doc, returns=artemis.attribute_type(queues.Address, field))
                for name, field, doc in _ATTRIBUTES
            ),
            operation("getRoutingTypes", lambda c: [kind.name for kind in sorted(c.address.routing_types)], "How.",
                      returns=list[str]),
            operation("getRoutingTypesAsJSON", _field("routingTypes"), "The same as JSON.", returns=str),
            operation("getQueueNames", _C.names, "Queues of it and of wildcard addresses that cover it."),
            operation("getAllQueueNames", _C.names, "The same: queues of other nodes are not bound here."),
            operation("getBindingNames", _C.names, "The same."),
            operation("getQueueCount", lambda control: len(control.names()), "Number of the queues that it names.",
                      returns=int),
            operation("getRemoteQueueNames", lambda control: [], "Queues of other nodes; none are bound here.",
                      returns=list[str]),
            operation("getRoles", _C.role_rows, "Permissions of each role on it."),
            operation("getRolesAsJSON", lambda c: to_json(c.roles()), "The same as JSON.", returns=str),
            operation("sendMessage", _C.send, "Send a message to it; its id.", *SENDING_PARAMETERS),
            operation("sendMessage", _C.send, "The same, optionally with a JMS message id.", *SENDING_PARAMETERS,
                      flag("createMessageId")),
            operation("pause", _C.pause, "Pause all its queues, later ones included, until resume or a restart."),
            operation("pause", _C.pause, "The same; persist: also over a restart or failover.", flag("persist")),
            operation("resume", _C.resume, "End the pause of the address and of all its queues."),
            operation("block", _C.block, "Give producers no credits until unblock or a restart."),
            operation("isBlocked", lambda c: c.address.blocked, "Whether its producers get no credits.", returns=bool),
            operation("unblock", _C.unblock, "Give producers credits again."),
            operation("purge", _C.purge, "Remove the messages of all its queues; returns their number."),
        ],
    )  # fmt: skip

    def __call__(self, node: ManagedNode, requester: Requester, name: str) -> AddressControl:
        address = node.services.sessions.post_office.directory.addresses.get(name)
        if address is None:
            raise ResourceNotFound(f"no address {name!r}")
        return AddressControl(node, requester, address)
