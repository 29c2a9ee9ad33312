"""Spans of messages: the points of the client at which they begin and end.

Not here: OpenTelemetry (``client.otel``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from understudy.client.core.consumer.received import MessageView
from understudy.properties import PropertyValue


class Tracing:
    """Makes no spans. A subclass makes a span for each message that is sent, and for the work on each one received."""

    def sending(
        self, address: str, properties: Mapping[str, PropertyValue] | None
    ) -> tuple[Mapping[str, PropertyValue] | None, Callable[[Any], None] | None]:
        """Begin a send.

        Args:
            address: Name of the address that the message goes to.
            properties: Properties of the message as the application gave them.

        Returns:
            The properties to send, and a function that is called with the future of the send when that is done; None if
            there is nothing to do.

        Failover and concurrency: the send ends with its confirmation; several may be under way.
        """
        return properties, None

    def processing(self, message: MessageView, queue: str) -> AbstractContextManager[object]:
        """The block in which an application works on a message.

        Args:
            message: The received message.
            queue: Name of the queue that it came from.

        Failover and concurrency: the block knows nothing of failovers; several may be open in different tasks.
        """
        return nullcontext()


#: The tracing of a connection without any.
NO_TRACING = Tracing()
