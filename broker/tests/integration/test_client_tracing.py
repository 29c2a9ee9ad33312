"""Spans of OpenTelemetry that both clients make of messages, with a real broker."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from support.targets import Target
from understudy.client import Message, aio, sync
from understudy.client.otel import OpenTelemetry
from understudy.errors import AddressNotFound


class Spans:
    """A tracer provider that keeps its finished spans."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = OpenTelemetry(self.provider)

    def of(self, name: str) -> list[ReadableSpan]:
        return [each for each in self._exporter.get_finished_spans() if each.name == name]


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def test_the_work_on_a_message_is_below_its_send_and_both_are_in_the_trace_of_the_sender(broker: Target) -> None:
    spans = Spans()
    tracer = spans.provider.get_tracer("application")
    with sync.connect(broker.url, tracing=spans.tracing) as connection, connection.session("individual") as session:
        with tracer.start_as_current_span("order") as order:
            session.producer("traced").send("x", properties={"colour": "green"}, correlation_id="17")
        message = session.consumer("traced").receive(5)
        assert message is not None
        assert message.properties["colour"] == "green"
        with message.process(), tracer.start_as_current_span("work"):
            pass
    (sent,), (processed,), (work,) = spans.of("send traced"), spans.of("process traced"), spans.of("work")
    assert (sent.kind, processed.kind) == (trace.SpanKind.PRODUCER, trace.SpanKind.CONSUMER)
    assert parent_of(sent) == order.get_span_context().span_id
    assert parent_of(processed) == sent.context.span_id
    assert parent_of(work) == processed.context.span_id
    assert sent.attributes is not None
    assert processed.attributes is not None
    assert sent.attributes["messaging.destination.name"] == "traced"
    assert processed.attributes["messaging.message.conversation_id"] == "17"
    assert processed.attributes["messaging.understudy.delivery_count"] == 1


def test_a_whole_message_keeps_its_properties_and_gets_the_context(broker: Target) -> None:
    spans = Spans()
    with sync.connect(broker.url, tracing=spans.tracing) as connection, connection.session() as session:
        session.producer("whole").send(Message(b"x", properties={"colour": "red"}))
        message = session.consumer("whole").receive(5)
        assert message is not None
        assert message.properties["colour"] == "red"
        assert "traceparent" in message.properties


def test_an_error_is_recorded_at_the_work_and_at_a_send_that_is_refused(broker: Target) -> None:
    spans = Spans()
    with sync.connect(broker.url, tracing=spans.tracing) as connection, connection.session("individual") as session:
        session.producer("errors").send("x")
        message = session.consumer("errors").receive(5)
        assert message is not None
        with pytest.raises(ValueError, match="no"), message.process():
            raise ValueError("no")
        with pytest.raises(AddressNotFound):
            session.producer().send("x", address="closed.one")
    for span in (*spans.of("process errors"), *spans.of("send closed.one")):
        assert span.status.status_code is trace.StatusCode.ERROR
        assert [each.name for each in span.events] == ["exception"]
    assert len(spans.of("send closed.one")) == 1


def test_handlers_and_tasks_of_the_asyncio_client_have_spans_of_their_own(broker: Target) -> None:
    spans = Spans()

    async def conversation() -> None:
        factory = aio.ConnectionFactory(broker.url, tracing=spans.tracing)
        async with await factory.connect() as connection, await connection.session() as session:
            producer = await session.producer("handled")
            await asyncio.gather(*(producer.send(str(number)) for number in range(3)))
            consumer = await session.consumer("handled")
            seen = 0

            async def handler(message: aio.Received) -> None:
                nonlocal seen
                seen += 1
                if seen == 3:
                    await consumer.close()

            await consumer.handle(handler)

    asyncio.run(conversation())
    sent, processed = spans.of("send handled"), spans.of("process handled")
    assert sorted(map(parent_of, processed), key=str) == sorted((each.context.span_id for each in sent), key=str)
    assert len(sent) == 3


def test_a_message_without_a_context_begins_a_trace(broker: Target) -> None:
    spans = Spans()
    with sync.connect(broker.url) as plain, plain.session() as session:
        session.producer("untraced").send("x")
    with sync.connect(broker.url, tracing=spans.tracing) as connection, connection.session("individual") as session:
        message = session.consumer("untraced").receive(5)
        assert message is not None
        assert "traceparent" not in message.properties
        with message.process():
            pass
    (span,) = spans.of("process untraced")
    assert span.parent is None
