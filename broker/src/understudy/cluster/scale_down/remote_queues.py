"""Queues at the target: their ids, by which messages are sent to them. A queue that does not exist there is made.

As Artemis does it: the id is an attribute that management tells (artemis-ha s. 6).
"""

from __future__ import annotations

import json
import logging
from typing import Final

from understudy.cluster.bridges.target import TargetSession
from understudy.cluster.scale_down.work import Ask, Pause, Steps
from understudy.ids import uuid_text
from understudy.message import REPLY_TO, Message, MessageType
from understudy.ports import Entropy
from understudy.properties import Properties, decode_simple_string
from understudy.routing.queues.queue import Queue
from understudy.terms import RoutingType
from understudy.wire.core import packets

log = logging.getLogger(__name__)

_CONSUMER: Final = 0
#: Bytes of answers that may be under way; one is at a time.
_WINDOW_BYTES: Final = 1024 * 1024


class RemoteQueues:
    """The queues of the target, for one session there."""

    def __init__(self, target: TargetSession, management_address: str, entropy: Entropy) -> None:
        """Args:
        target: Ready.
        management_address: Management address of the target, the same as that of this node.
        entropy: Used for the name of the reply queue.
        """
        self._target = target
        self._management_address = management_address
        self._reply_queue = f"scale-down.{uuid_text(entropy.token(16))}"
        self._opened = False
        self._ids: dict[str, int | None] = {}

    def id_of(self, queue: Queue) -> Steps[int | None]:
        """The id of the queue of the same name at the target, which is made if needed.

        Returns:
            None: it cannot be made there; why is logged.
        """
        name = queue.name
        if name not in self._ids:
            found = yield from self.find(name)
            if found is None:
                created = yield from self._create(queue)
                found = (yield from self.find(name)) if created else None
            self._ids[name] = found
        return self._ids[name]

    def find(self, name: str) -> Steps[int | None]:
        """The id of a queue at the target; None: it has none of this name."""
        if not self._opened:
            yield from self._open()
        # confirmations of messages and answers to requests are of one type
        yield Pause.CONFIRMED
        properties = {"_AMQ_ResourceName": f"queue.{name}", "_AMQ_Attribute": "ID", REPLY_TO: self._reply_queue}
        request = Message(
            b"\0",
            address=self._management_address,
            type=MessageType.TEXT,
            durable=False,
            properties=Properties(dict(properties)),
        )
        self._target.tell(packets.SessionSend(request))
        reply = yield Pause.RECEIVED
        assert isinstance(reply, Message)
        self._target.tell(packets.FlowToken(_CONSUMER, len(reply.encoded)))
        return _id_in(reply)

    def _open(self) -> Steps[None]:
        self._opened = True
        yield Pause.CONFIRMED
        queue = packets.CreateQueueV2(
            self._reply_queue,
            self._reply_queue,
            durable=False,
            temporary=True,
            routing_type=int(RoutingType.ANYCAST),
        )
        yield Ask(queue, (packets.NullResponse,))
        yield Ask(packets.CreateConsumer(_CONSUMER, self._reply_queue), (packets.QueueQueryResponse,))
        self._target.tell(packets.SessionStart())
        self._target.tell(packets.FlowToken(_CONSUMER, _WINDOW_BYTES))

    def _create(self, queue: Queue) -> Steps[bool]:
        answer = yield Ask(creation_of(queue), (packets.NullResponse, packets.ExceptionResponse))
        if isinstance(answer, packets.ExceptionResponse):
            log.error(
                "a queue cannot be made at the target of the scale-down; its messages stay here",
                extra={"queue": queue.name, "error": answer.message},
            )
            return False
        return True


def creation_of(queue: Queue) -> packets.CreateQueueV2:
    """The request that makes a queue with the settings of this one."""
    full = queue.configuration
    return packets.CreateQueueV2(
        queue.address.name,
        queue.name,
        full.filter,
        durable=queue.durable,
        temporary=False,
        auto_created=full.auto_created,
        routing_type=int(queue.routing_type),
        max_consumers=-1 if full.max_consumers is None else full.max_consumers,
        purge_on_no_consumers=bool(full.purge_on_no_consumers),
        exclusive=full.exclusive,
        last_value=full.last_value,
        last_value_key=full.last_value_key,
        non_destructive=full.non_destructive,
        consumers_before_dispatch=full.consumers_before_dispatch,
        delay_before_dispatch=full.delay_before_dispatch,
        group_rebalance=full.group_rebalance,
        group_buckets=full.group_buckets,
        auto_delete=full.auto_delete,
        auto_delete_delay=full.auto_delete_delay,
        auto_delete_message_count=full.auto_delete_message_count,
        group_first_key=full.group_first_key,
        ring_size=full.ring_size,
        enabled=full.enabled,
        group_rebalance_pause_dispatch=full.group_rebalance_pause_dispatch,
    )


def _id_in(reply: Message) -> int | None:
    """The id in the answer of management; None: there is no such queue."""
    body = reply.body
    if reply.properties.get("_AMQ_OperationSucceeded") is not True or not body or not body[0]:
        return None
    text, _ = decode_simple_string(body, 1, len(body))
    try:
        values = json.loads(text)
    except ValueError:
        return None
    found = values[0] if isinstance(values, list) and values else None
    return found if isinstance(found, int) else None
