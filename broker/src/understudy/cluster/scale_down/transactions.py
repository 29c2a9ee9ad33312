"""Prepared transactions on their way to the target, where they are prepared again under the same name.

A message that the transaction has acknowledged goes with ``_AMQ_ACK_ROUTE_TO``: the target keeps it out of its queues
unless the transaction is rolled back there.

Source: artemis-ha s. 6.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import Final

from understudy.cluster.bridges.target import TargetSession
from understudy.cluster.scale_down.messages import MovingMessages, message_of_third
from understudy.cluster.scale_down.remote_queues import RemoteQueues
from understudy.cluster.scale_down.work import Ask, Pause, Steps
from understudy.errors import MessageUnreadable, RemoteProtocolError, XaCode
from understudy.ids import Xid
from understudy.message import ACK_ROUTE_TO, ROUTE_TO, Message
from understudy.routing.queues.queue import Queue
from understudy.routing.remote import without_routes
from understudy.session.branch import Branch
from understudy.session.resource_manager import ResourceManager
from understudy.store.messages.reference import MessageReference
from understudy.wire.core import packets

log = logging.getLogger(__name__)

_I64: Final = struct.Struct(">q")


class _Entry:
    """One message of an XA branch."""

    def __init__(self, queue: Queue, reference: MessageReference) -> None:
        self.queue = queue
        self.reference = reference
        self.ids = b""
        self.acknowledged = b""


class BranchMoves:
    """The prepared branches of a node on their way to the target."""

    def __init__(
        self, target: TargetSession, remote: RemoteQueues, moving: MovingMessages, kept: Callable[[str], bool | None]
    ) -> None:
        """Args:
        target: Ready, with an XA session.
        remote: Queues there.
        moving: Sends the messages.
        kept: Whether a queue of this node keeps messages for the target; None: it is an ordinary queue.
        """
        self._target = target
        self._remote = remote
        self._moving = moving
        self._kept = kept

    def move(self, resources: ResourceManager, node_id: str) -> Steps[None]:
        """Move all prepared branches. One whose messages cannot be read, or whose queue cannot be made, stays here.

        Args:
            resources: The branches of this node.

        Raises:
            RemoteProtocolError: the target refuses a branch.
        """
        prepared = list(resources.prepared())
        known = (yield from self._in_doubt()) if prepared else frozenset()
        for branch in prepared:
            # an earlier transfer was cut off after the target had prepared it; it may have been decided there since
            known_there = branch.xid in known and resources.may_be_at(branch.xid, node_id)
            if not known_there:
                entries = yield from self._entries(branch)
                messages = None if entries is None else self._messages(entries)
                if messages is None:
                    log.error("a prepared transaction stays here", extra={"xid": str(branch.xid)})
                    continue
                known_there = yield from self._prepare(branch, messages)
            resources.hand_over(branch)
            self._moving.progress += 1
            log.info("a prepared transaction was moved", extra={"xid": str(branch.xid), "known_there": known_there})

    def _in_doubt(self) -> Steps[frozenset[Xid]]:
        """The branches that are in doubt at the target, or that this node has moved there."""
        answer = yield Ask(packets.XaInDoubt(), (packets.XaInDoubtResponse,))
        assert isinstance(answer, packets.XaInDoubtResponse)
        return frozenset(answer.xids)

    def _entries(self, branch: Branch) -> Steps[list[_Entry] | None]:
        """The messages of a branch; None: the target has no queue for one of them."""
        sends, acknowledged = branch.transaction.content()
        entries: dict[tuple[int, str, int], _Entry] = {}
        for queue, reference in sends:
            # a message that is kept for another node goes by itself
            key = (reference.message_id, "" if self._kept(queue.name) is None else queue.name, 0)
            remote_id = yield from self._id_of(queue)
            if remote_id is None:
                return None
            entries.setdefault(key, _Entry(queue, reference)).ids += _I64.pack(remote_id)
        for queue, references in acknowledged.items():
            remote_id = yield from self._id_of(queue)
            if remote_id is None:
                return None
            for reference in references:
                key = (reference.message_id, "", reference.delivery_count)
                entry = entries.setdefault(key, _Entry(queue, reference))
                entry.ids += _I64.pack(remote_id)
                entry.acknowledged += _I64.pack(remote_id)
        return list(entries.values())

    def _id_of(self, queue: Queue) -> Steps[int | None]:
        for_target = self._kept(queue.name)
        if for_target is None:
            return (yield from self._remote.id_of(queue))
        # messages for the target name their queues themselves
        return 0 if for_target else (yield from self._remote.find(queue.name))

    def _messages(self, entries: list[_Entry]) -> list[tuple[_Entry, Message]] | None:
        """Messages of the branch in the form in which they are sent; None: one of them cannot be read."""
        found: list[tuple[_Entry, Message]] = []
        for entry in entries:
            try:
                message = entry.queue.read(entry.reference)
            except MessageUnreadable:
                return None
            for_target = self._kept(entry.queue.name)
            if for_target is not None:
                kept = message_of_third(message, entry.queue, leads_to_target=for_target)
                if kept is None:
                    return None
                found.append((entry, kept))
                continue
            deliveries = entry.reference.delivery_count if entry.acknowledged else 0
            properties = without_routes(message.properties, deliveries)
            properties[ROUTE_TO] = entry.ids
            if entry.acknowledged:
                properties[ACK_ROUTE_TO] = entry.acknowledged
            found.append((entry, message.replace(address=entry.queue.address.name, properties=properties)))
        return found

    def _prepare(self, branch: Branch, messages: list[tuple[_Entry, Message]]) -> Steps[bool]:
        """Returns whether the target had the branch already: an earlier scale-down was interrupted after that."""
        answer = yield Ask(packets.XaStart(branch.xid), (packets.XaResponse,))
        assert isinstance(answer, packets.XaResponse)
        if answer.error and answer.response_code == XaCode.DUPLICATE_XID:
            if branch.xid in (yield from self._in_doubt()):
                return True
            # of a connection that the target has not lost yet: it will be rolled back there, and is sent again then
            raise RemoteProtocolError("the target still has the unfinished transaction of an earlier connection")
        _check(answer)
        for entry, message in messages:
            yield from self._moving.send(self._target, message, entry.reference, ())
        yield Pause.CONFIRMED
        for request in (packets.XaEnd(branch.xid), packets.XaPrepare(branch.xid)):
            answer = yield Ask(request, (packets.XaResponse,))
            assert isinstance(answer, packets.XaResponse)
            _check(answer)
        return False


def _check(answer: packets.XaResponse) -> None:
    if answer.error:
        raise RemoteProtocolError(
            f"the target refused a prepared transaction: {answer.message or answer.response_code}"
        )
