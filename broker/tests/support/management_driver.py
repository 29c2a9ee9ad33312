"""Management over messages for tests: one request, and everything that its reply says."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Any

from understudy.client.sync import Connection
from understudy.message import Message, MessageType
from understudy.properties import PropertyValue, decode_simple_string, encode_simple_string

_requests = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply."""

    succeeded: bool
    value: Any
    """The one element of the array; None without a body, too."""
    has_body: bool
    properties: dict[str, PropertyValue]
    type: int


class ManagementDriver:
    """Asks the broker of one connection; end it with its connection."""

    def __init__(self, connection: Connection, management_address: str = "activemq.management") -> None:
        # the broker confirms the acknowledgement of each reply before the next request, so that counts are exact
        self._session = connection.session("individual")
        self._producer = self._session.producer(management_address)
        self._replies_to = self._session.create_temporary_queue()
        self._replies = self._session.consumer(self._replies_to)

    def operation(self, resource: str, name: str, *values: object) -> Reply:
        """Call an operation."""
        body = b"\x01" + encode_simple_string(json.dumps(values)) if values else b"\x00"
        return self.send({"_AMQ_ResourceName": resource, "_AMQ_OperationName": name}, body)

    def attribute(self, resource: str, name: str) -> Reply:
        """Ask for an attribute."""
        return self.send({"_AMQ_ResourceName": resource, "_AMQ_Attribute": name}, b"\x00")

    def send(self, properties: dict[str, PropertyValue], body: bytes) -> Reply:
        """Any request."""
        number = str(next(_requests))
        named = properties | {"JMSReplyTo": self._replies_to, "JMSCorrelationID": number}
        self._producer.send(Message(body, type=MessageType.DEFAULT, durable=False, properties=named))
        received = self._replies.receive(60)
        assert received is not None, f"no reply to {properties}"
        self._replies.acknowledge(received)
        message = received.message
        has_body = bool(message.body) and message.body[0] != 0
        value = None
        if has_body:
            text, _ = decode_simple_string(message.body, 1, len(message.body))
            (value,) = json.loads(text)
        assert message.properties["JMSCorrelationID"] == number
        succeeded = message.properties["_AMQ_OperationSucceeded"]
        assert isinstance(succeeded, bool)
        return Reply(succeeded, value, has_body, dict(message.properties.items()), message.type)
