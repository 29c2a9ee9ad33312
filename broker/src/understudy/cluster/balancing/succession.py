"""Messages that are kept for a node that was scaled down go to the queues of the same names at the node that has its
messages now (artemis-ha s. 6).

A message of which the node that was scaled down may have had a copy already keeps the id by which a bridge sent it: the
other node has the duplicate ids of that node and drops the second copy.

A queue that is not known there yet is looked for again. When nothing is left, the flow to the node that was scaled down
ends, and its store-and-forward queue is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import Final

from understudy.cluster.balancing.cluster_bridge import bridge_id
from understudy.cluster.balancing.flows import FlowObserver, MessageFlows
from understudy.cluster.balancing.member_flow import MemberFlow
from understudy.errors import BrokerError
from understudy.message import BRIDGE_DUPLICATE_ID, ROUTE_TO, Message
from understudy.ports import Timer, Timers
from understudy.routing.lifecycle.duplicate_ids import forwarded_id_bytes
from understudy.routing.moves import MessageCopy
from understudy.routing.post_office import PostOffice
from understudy.routing.queues.queue import Queue
from understudy.routing.queues.waiting_messages import act_on, one_by_one, requeue
from understudy.routing.remote import RemoteBinding, addressed_to, queue_ids, without_routes
from understudy.store.messages.reference import MessageReference, parts_of

log = logging.getLogger(__name__)

#: Wait before messages whose queue is not known at the other node are looked at again.
RETRY_MS: Final = 500


class Succession:
    """The end of the flow to one node."""

    def __init__(
        self,
        flow: MemberFlow,
        successor: Callable[[], MemberFlow | None],
        office: PostOffice,
        node_id: str,
        timers: Timers,
        ended: Callable[[], None],
    ) -> None:
        """Begin to watch for the end of the other node at once.

        Args:
            flow: To the node that was scaled down.
            successor: The flow to the node that has its messages; returns None if that is this node.
            ended: Called when no message is left.
        """
        self._flow = flow
        self._successor = successor
        self._office = office
        self._node_id = node_id
        self._timers = timers
        self._ended = ended
        self._timer: Timer | None = None
        self._walk: Generator[None, None, int] | None = None
        self._there: dict[tuple[str, str], RemoteBinding] = {}
        """Queues of the other node, by name and address."""
        self._name = ROUTE_TO + flow.queue.name
        # messages that are under way to the old node are given back first
        flow.bridge.close()
        self._later(0)

    def close(self) -> None:
        """Move nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _later(self, delay_ms: int) -> None:
        self._timer = self._timers.call_later(delay_ms, self._go)

    def _go(self) -> None:
        queue, successor = self._flow.queue, self._successor()
        if queue.deleted:
            self._ended()
            return
        if self._walk is None:
            known = () if successor is None else successor.bindings.values()
            self._there = {(each.queue_name, each.address): each for each in known}
            self._walk = act_on(queue, lambda reference: True, lambda taken: one_by_one(queue, taken, self._move))
        try:
            next(self._walk)
        except StopIteration:
            self._walk = None
        except BrokerError as error:
            self._walk = None
            log.warning("messages that were kept for another node", extra={"error": str(error)})
        if self._walk is not None:
            self._later(0)
        elif queue.message_count or queue.incoming:
            # messages of open transactions come later
            self._later(RETRY_MS)
        else:
            self._ended()

    def _move(self, reference: MessageReference) -> bool:
        queue, acceptance = self._flow.queue, self._office.acceptance
        message = queue.read(reference)
        wanted = set(queue_ids(message.properties.get(self._name)))
        meant = [each for each in self._flow.bindings.values() if each.remote_id in wanted]
        address = self._office.directory.find_for_member(message.address or "")
        successor = self._successor()
        if successor is None:
            queues = [each for each in map(self._local, meant) if each is not None]
            bindings: list[RemoteBinding] = []
        else:
            there = (self._there.get((each.queue_name, each.address)) for each in meant)
            bindings = [each for each in there if each is not None]
            queues = [successor.queue] if bindings else []
        found = len(queues) if successor is None else len(bindings)
        if address is None or not meant or found < len(meant):
            requeue(queue, (reference,))
            return False
        known = message.properties.get(BRIDGE_DUPLICATE_ID)
        original = known if isinstance(known, bytes) else bridge_id(self._node_id, reference.message_id)
        if successor is None and forwarded_id_bytes(original) in address.duplicate_ids:
            # the node that was scaled down had it, and has moved it here
            copies: tuple[MessageCopy, ...] = ()
        else:
            copy = addressed_to(self._copy(message, None if successor is None else original), bindings)
            copies = (MessageCopy(copy, address, tuple(dict.fromkeys(queues)), reference),)
        acceptance.move(queue, parts_of((reference,)), copies)
        return True

    def _copy(self, message: Message, original: bytes | None) -> Message:
        properties = without_routes(message.properties)
        if original is not None:
            properties[BRIDGE_DUPLICATE_ID] = original
        return message.replace(properties=properties, message_id=self._office.acceptance.store.next_id())

    def _local(self, binding: RemoteBinding) -> Queue | None:
        found = self._office.directory.queues.get(binding.queue_name)
        return found if found is not None and found.address.name == binding.address else None


class Successions(FlowObserver):
    """The nodes that were scaled down, as this node learns it."""

    def __init__(self, flows: MessageFlows, office: PostOffice, node_id: str, timers: Timers) -> None:
        self._flows = flows
        self._office = office
        self._node_id = node_id
        self._timers = timers
        self._targets: dict[str, str] = {}
        """Nodes that were scaled down, and the nodes that have their messages."""
        self._under_way: dict[str, Succession] = {}
        """Successions by the id of the node that was scaled down."""

    def close(self) -> None:
        """Called when the node is not active any more."""
        for each in self._under_way.values():
            each.close()
        self._under_way.clear()

    def node_scaled_down(self, node_id: str, target_id: str) -> None:
        """A node has moved its messages to another one, perhaps this: messages that are kept for it follow.

        Args:
            node_id: Node id of the node that was scaled down.
            target_id: Node id of the node that has its messages.
        """
        flow = self._flows.by_node.get(node_id)
        if flow is not None:
            self._targets[node_id] = target_id
            self.node_left(flow)

    def node_joined(self, node_id: str) -> None:
        """Cancel moving the messages of a member that has become active to other members; messages of members that were
        scaled down to it are sent to it.
        """
        self._targets.pop(node_id, None)
        succession = self._under_way.pop(node_id, None)
        if succession is not None:
            succession.close()
        for gone in [each for each, target_id in self._targets.items() if target_id == node_id]:
            flow = self._flows.by_node.get(gone)
            if flow is not None:
                self.node_left(flow)

    def node_left(self, flow: MemberFlow) -> None:
        """Begin if the node was scaled down."""
        target_id = self._targets.get(flow.node_id)
        if target_id is None or flow.node_id in self._under_way or flow.link is not None:
            return
        if target_id != self._node_id and target_id not in self._flows.by_node:
            log.warning("the node that has the messages of another one is not known", extra={"node_id": target_id})
            return
        self._under_way[flow.node_id] = Succession(
            flow,
            lambda: None if target_id == self._node_id else self._flows.by_node.get(target_id),
            self._office,
            self._node_id,
            self._timers,
            lambda: self._end(flow.node_id),
        )

    def _end(self, node_id: str) -> None:
        del self._targets[node_id]
        self._under_way.pop(node_id).close()
        self._flows.end_flow(node_id)
