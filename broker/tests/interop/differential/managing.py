"""Requests to the management address of one broker, by a session of their own that no program knows of.

Here for what CORE has no packets for. What all of the answers look like is compared elsewhere (ADR 0018).
"""

from __future__ import annotations

import json
import time

from interop.differential.link import CHANNEL, Link
from understudy.message import Message, MessageType
from understudy.properties import Properties, encode_simple_string
from understudy.wire.core import packets

_TIMEOUT_S = 5


class Managing:
    """Requests to the management address of one broker."""

    def __init__(self, port: int) -> None:
        name = f"managing-{time.time_ns()}"
        self._replies = name
        self._link = Link(port)
        self._link.ask(packets.CreateSessionV2(name=name, session_channel_id=CHANNEL, version=136), 1)
        self._link.ask(packets.CreateQueueV2(name, name, routing_type=1, temporary=True, durable=False))
        self._link.ask(packets.CreateConsumer(0, name, None, False, True, 0))
        self._link.send(packets.FlowToken(0, -1))
        self._link.send(packets.SessionStart())

    def ask(self, operation: str, *values: object) -> str:
        """Call an operation of the broker; whether it succeeded."""
        properties = Properties()
        properties["_AMQ_ResourceName"] = "broker"
        properties["_AMQ_OperationName"] = operation
        properties["JMSReplyTo"] = self._replies
        body = b"\x01" + encode_simple_string(json.dumps(values))
        message = Message(
            body, address="activemq.management", type=MessageType.DEFAULT, durable=False, properties=properties
        )
        self._link.send(packets.SessionSend(message))
        self._link.wait(lambda: bool(self._link.unasked), _TIMEOUT_S)
        replies = [each for each in self._link.unasked if isinstance(each, packets.ReceiveMessage)]
        self._link.unasked.clear()
        if not replies:
            return "no reply"
        self._link.send(packets.Acknowledge(0, replies[-1].message.message_id))
        return "done" if replies[-1].message.properties["_AMQ_OperationSucceeded"] else "refused"

    def exists(self, address: str) -> bool:
        """Whether there is that address."""
        known = self._link.ask(packets.BindingQuery(address))
        return isinstance(known, packets.BindingQueryResponse) and known.exists

    def end(self) -> None:
        """Close its connection, and its queue with it."""
        self._link.ask(packets.SessionClose())
        self._link.close()
