"""OpenTelemetry for both clients: spans of sends and of the work on messages, and their context in properties.

The extra ``understudy[otel]`` installs the API of OpenTelemetry; the application chooses an SDK and exporters::

    connection = connect(url, tracing=OpenTelemetry())

The context travels in the properties ``traceparent``, ``tracestate`` and ``baggage``, as its propagators write them.
Names and attributes are those of the semantic conventions for messaging.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

from opentelemetry import context, propagate, trace

from understudy.client.core.connection.tracing import Tracing
from understudy.client.core.consumer.received import MessageView
from understudy.properties import PropertyValue

#: Value of ``messaging.system``: the protocol is that of ActiveMQ Artemis.
SYSTEM: Final = "activemq"


class OpenTelemetry(Tracing):
    """Spans by a tracer provider of OpenTelemetry."""

    def __init__(self, tracer_provider: trace.TracerProvider | None = None) -> None:
        """Use a tracer provider.

        Args:
            tracer_provider: Where the spans go; None for the global one.

        Failover and concurrency: one object may serve any number of connections.
        """
        self._tracer = trace.get_tracer("understudy.client", tracer_provider=tracer_provider)

    def sending(
        self, address: str, properties: Mapping[str, PropertyValue] | None
    ) -> tuple[Mapping[str, PropertyValue] | None, Callable[[Any], None] | None]:
        """Begin a span of kind PRODUCER below the current one; it ends when the send has its outcome, and has the error
        of a send that fails. A message that is refused before it is sent has no span.

        Args:
            address: Name of the address that the message goes to.
            properties: Properties of the message as the application gave them.

        Returns:
            The properties with the context of the span, and the end of the span.

        Failover and concurrency: the span lasts until the confirmation, a failover included.
        """
        span = self._tracer.start_span(
            f"send {address}", kind=trace.SpanKind.PRODUCER, attributes=_attributes("send", address)
        )
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))

        def ended(outcome: Any) -> None:
            if outcome.cancelled():
                span.set_status(trace.StatusCode.ERROR, "cancelled")
            elif (error := outcome.exception()) is not None:
                span.record_exception(error)
                span.set_status(trace.StatusCode.ERROR, str(error))
            span.end()

        return {**(properties or {}), **carrier}, ended

    def processing(self, message: MessageView, queue: str) -> AbstractContextManager[object]:
        """A span of kind CONSUMER that is current in the block, below the span of the send. An error that leaves the
        block is recorded.

        Args:
            message: The received message.
            queue: Name of the queue that it came from.

        Failover and concurrency: a message that is delivered again has a span for each delivery.
        """
        carrier = {
            name: value for name in propagate.get_global_textmap().fields if (value := _text(message.properties, name))
        }
        attributes = {
            **_attributes("process", queue),
            "messaging.message.id": str(message.message_id),
            "messaging.understudy.delivery_count": message.delivery_count,
        }
        if message.correlation_id is not None:
            attributes["messaging.message.conversation_id"] = str(message.correlation_id)
        return self._tracer.start_as_current_span(
            f"process {queue}",
            context=propagate.extract(carrier, context=context.get_current()),
            kind=trace.SpanKind.CONSUMER,
            attributes=attributes,
        )


def _attributes(operation: str, destination: str) -> dict[str, str | int]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": destination,
    }


def _text(properties: Mapping[str, PropertyValue], name: str) -> str | None:
    value = properties.get(name)
    return value if isinstance(value, str) else None
