"""Prepared transactions on their way to the target, where they are prepared again under the same name.

A message that the transaction has acknowledged goes with ``_AMQ_ACK_ROUTE_TO``: the target keeps it out of its queues
unless the transaction is rolled back there.

Source: artemis-ha s. 6.
"""

from __future__ import annotations

import logging
import struct
from typing import Final

from understudy.bridges.target import TargetSession
from understudy.errors import MessageUnreadable, RemoteProtocolError, XaCode
from understudy.message import ACK_ROUTE_TO, ROUTE_TO, LargeMessage, Message
from understudy.routing.queues.queue import Queue
from understudy.scale_down.messages import MovingMessages
from understudy.scale_down.remote_queues import RemoteQueues
from understudy.scale_down.work import Ask, Pause, Steps
from understudy.session.branch import Branch
from understudy.session.resource_manager import ResourceManager
from understudy.store.reference import MessageReference
from understudy.wire.core import packets

log = logging.getLogger(__name__)

_I64: Final = struct.Struct(">q")


class _Entry:
    """One message of a branch."""

    def __init__(self, queue: Queue, reference: MessageReference) -> None:
        self.queue = queue
        self.reference = reference
        self.ids = b""
        self.acknowledged = b""


def move_branches(
    target: TargetSession, remote: RemoteQueues, moving: MovingMessages, resources: ResourceManager
) -> Steps[None]:
    """Move all prepared branches. One whose messages cannot be read, or whose queue cannot be made, stays here.

    Args:
        target: Ready, with an XA session.
        remote: Queues there.
        moving: Sends the messages.
        resources: The branches of this node.

    Raises:
        RemoteProtocolError: the target refuses a branch.
    """
    for branch in list(resources.prepared()):
        entries = yield from _entries(branch, remote)
        if entries is None:
            log.error("a prepared transaction stays here", extra={"xid": str(branch.xid)})
            continue
        messages = _messages(entries)
        if messages is None:
            log.error("a prepared transaction stays here: it cannot be read", extra={"xid": str(branch.xid)})
            continue
        known = yield from _prepare(target, branch, moving, messages)
        resources.hand_over(branch)
        log.info("a prepared transaction was moved", extra={"xid": str(branch.xid), "known_there": known})


def _entries(branch: Branch, remote: RemoteQueues) -> Steps[list[_Entry] | None]:
    sends, acknowledged = branch.transaction.content()
    entries: dict[int, _Entry] = {}
    for queue, reference in sends:
        remote_id = yield from remote.id_of(queue)
        if remote_id is None:
            return None
        entries.setdefault(reference.message_id, _Entry(queue, reference)).ids += _I64.pack(remote_id)
    for queue, references in acknowledged.items():
        remote_id = yield from remote.id_of(queue)
        if remote_id is None:
            return None
        for reference in references:
            entry = entries.setdefault(reference.message_id, _Entry(queue, reference))
            entry.ids += _I64.pack(remote_id)
            entry.acknowledged += _I64.pack(remote_id)
    return list(entries.values())


def _messages(entries: list[_Entry]) -> list[tuple[_Entry, Message]] | None:
    """The messages as they are sent; None: one cannot be read."""
    found: list[tuple[_Entry, Message]] = []
    for entry in entries:
        try:
            message = entry.queue.read(entry.reference)
        except MessageUnreadable:
            return None
        properties = message.properties.copy()
        for name in [each for each in properties if each.startswith(ROUTE_TO)]:
            del properties[name]
        properties[ROUTE_TO] = entry.ids
        if entry.acknowledged:
            properties[ACK_ROUTE_TO] = entry.acknowledged
        found.append((entry, message.replace(address=entry.queue.address.name, properties=properties)))
    return found


def _prepare(
    target: TargetSession, branch: Branch, moving: MovingMessages, messages: list[tuple[_Entry, Message]]
) -> Steps[bool]:
    """Returns whether the target had the branch already: an earlier scale-down was interrupted after that."""
    answer = yield Ask(packets.XaStart(branch.xid), (packets.XaResponse,))
    assert isinstance(answer, packets.XaResponse)
    if answer.error and answer.response_code == XaCode.DUPLICATE_XID:
        return True
    _check(answer)
    for entry, message in messages:
        if isinstance(message, LargeMessage):
            yield from moving.send_large(target, message, entry.reference, ())
        else:
            yield from moving.send(target, message, ())
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
