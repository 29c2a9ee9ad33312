"""Reports of another node on its queues, over the connection that this node keeps to it.

A session on the link makes a temporary queue of notifications at the other node and asks it to put its present queues
there. Notifications count from the RESET message on; bindings that were not mentioned before COMPLETE are gone.

Source: artemis-core s. 9.3, artemis-ha s. 7.5.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Final, Protocol

from understudy.cluster.balancing.group_notices import GroupNotice, read_group_notice
from understudy.cluster.balancing.notices import COMPLETE, RESET, Notice, read_notice
from understudy.cluster.membership.member_link import MemberLink
from understudy.errors import InvalidSelector, RemoteProtocolError
from understudy.ids import uuid_text
from understudy.limits import FRAME_BYTES_MAX
from understudy.message import Message, MessageType
from understudy.ports import Entropy
from understudy.properties import Properties, encode_simple_string
from understudy.terms import RoutingType
from understudy.wire.core import packets

log = logging.getLogger(__name__)

SESSION_SETUP_CHANNEL: Final = 1
SESSION_CHANNEL: Final = 10
_CONSUMER: Final = 0
#: Bytes of notifications that are under way.
_WINDOW_BYTES: Final = 1024 * 1024


class ReportOwner(Protocol):
    """The user of reports."""

    def reset(self) -> None:
        """The present queues follow."""

    def noticed(self, notice: Notice) -> None:
        """A queue or consumer of the other node came, changed or went. Raises InvalidSelector."""

    def complete(self) -> None:
        """All present queues were reported."""

    def group_noticed(self, notice: GroupNotice) -> None:
        """The grouping handler of the other node has published a notification."""


class QueueReports:
    """Reports of the queues of one node, for the time of one connection."""

    def __init__(
        self,
        owner: ReportOwner,
        link: MemberLink,
        entropy: Entropy,
        *,
        name: str,
        selector: str,
        management_address: str,
        notifications: str,
    ) -> None:
        """Ask for the reports at once.

        Args:
            owner: Called with each report.
            link: Joined.
            name: Name of this node, part of the name of the queue.
            selector: Selector of the queue (``notices.selector_of``).
            notifications: Address of notifications there.
        """
        self._owner: ReportOwner | None = owner
        self._link = link
        self._queue = f"notif.{uuid_text(entropy.token(16))}.{name}"
        self._selector = selector
        self._management_address = management_address
        self._notifications = notifications
        self._begun = False
        self._unreturned_bytes = 0
        link.accept_frames(FRAME_BYTES_MAX)
        session = packets.CreateSession(
            entropy.token(16).hex(), SESSION_CHANNEL, link.version, *link.login, pre_acknowledge=True
        )
        link.request(
            session, SESSION_SETUP_CHANNEL, (packets.CreateSessionResponse,), self._unless_closed(self._make_queue)
        )

    def close(self) -> None:
        """The owner is not called any more."""
        self._owner = None

    def _unless_closed(self, call: Callable[[], None]) -> Callable[[packets.Packet], None]:
        return lambda answer: call() if self._owner is not None else None

    def _make_queue(self) -> None:
        queue = packets.CreateQueueV2(
            self._notifications,
            self._queue,
            self._selector,
            durable=False,
            temporary=True,
            routing_type=int(RoutingType.MULTICAST),
        )
        self._link.request(queue, SESSION_CHANNEL, (packets.NullResponse,), self._unless_closed(self._consume))

    def _consume(self) -> None:
        consumer = packets.CreateConsumer(_CONSUMER, self._queue)
        expected = (packets.QueueQueryResponse,)
        self._link.request(consumer, SESSION_CHANNEL, expected, self._unless_closed(self._ask))

    def _ask(self) -> None:
        link = self._link
        link.send(packets.SessionStart(), SESSION_CHANNEL)
        link.send(packets.FlowToken(_CONSUMER, _WINDOW_BYTES), SESSION_CHANNEL)
        # the selector of the queue chooses the addresses
        parameters = json.dumps([self._queue, ""])
        request = Message(
            b"\1" + encode_simple_string(parameters),
            address=self._management_address,
            type=MessageType.TEXT,
            durable=False,
            properties=Properties({"_AMQ_ResourceName": "broker", "_AMQ_OperationName": "sendQueueInfoToQueue"}),
        )
        link.send(packets.SessionSend(request), SESSION_CHANNEL)

    def receive(self, packet: packets.Packet) -> None:
        """A packet of the session. Raises RemoteProtocolError: the connection is closed."""
        owner = self._owner
        if owner is None:
            return
        if isinstance(packet, packets.ExceptionResponse):
            raise RemoteProtocolError(f"the session for reports failed: {packet.message}")
        if not isinstance(packet, packets.ReceiveMessage):
            return
        self._return_credit(len(packet.message.encoded))
        properties = packet.message.properties
        about_group = read_group_notice(properties)
        if about_group is not None:
            # no part of the present queues
            owner.group_noticed(about_group)
        elif RESET in properties:
            self._begun = True
            owner.reset()
        elif not self._begun:
            # a change that is reported now is part of the present queues, too
            return
        elif COMPLETE in properties:
            owner.complete()
        else:
            notice = read_notice(properties)
            if notice is None:
                return
            try:
                owner.noticed(notice)
            except InvalidSelector as error:
                log.warning(
                    "a filter of another node is not understood; its queue or consumer is left aside",
                    extra={"queue": notice.cluster_name, "error": str(error)},
                )

    def _return_credit(self, size_bytes: int) -> None:
        self._unreturned_bytes += size_bytes
        if self._unreturned_bytes * 4 >= _WINDOW_BYTES:
            self._link.send(packets.FlowToken(_CONSUMER, self._unreturned_bytes), SESSION_CHANNEL)
            self._unreturned_bytes = 0
