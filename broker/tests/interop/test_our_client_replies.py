"""Request and reply between the JMS client of Artemis and our client, over both kinds of brokers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from support.targets import Target
from understudy.client.sync import Session

pytestmark = pytest.mark.maven

Java = Callable[..., subprocess.Popen[str]]


@pytest.mark.feature("request and reply between JMS and our client")
def test_a_jms_requester_gets_answers_from_our_client(broker: Target, java: Java, session: Session, queue: str) -> None:
    """Requests have each kind of ``JMSReplyTo``; the address of an answer is that of the producer, or is given with the
    message.
    """
    consumer = session.consumer(queue)
    process = java("Replies", broker.url, queue, "request")
    anywhere = session.producer()
    for number in range(4):
        request = consumer.receive(60)
        assert request is not None
        assert request.reply_to is not None
        assert request.reply_to.startswith(f"{request.text}://")
        text, correlation_id = f"python says {request.text}", request.jms_message_id
        if number % 2:
            anywhere.send(text, address=request.reply_to, correlation_id=correlation_id)
        else:
            session.producer(request.reply_to).send(text, correlation_id=correlation_id)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    for kind in ("temp-queue", "queue", "temp-topic", "topic"):
        assert f"answer {kind} python says {kind}" in out, out


@pytest.mark.feature("request and reply between JMS and our client")
def test_our_requester_gets_answers_from_a_jms_client(broker: Target, java: Java, session: Session, queue: str) -> None:
    process = java("Replies", broker.url, queue, "respond")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    temporary = session.create_temporary_queue()
    places = [
        (temporary, session.consumer(temporary)),
        (f"queue://{queue}.answers", session.consumer(f"queue://{queue}.answers")),
        (f"topic://{queue}.news", session.subscriber(f"topic://{queue}.news")),
        (f"{queue}.plain", session.consumer(f"{queue}.plain")),
    ]
    producer = session.producer(queue)
    for number, (place, consumer) in enumerate(places):
        text = "end" if number == len(places) - 1 else f"request {number}"
        producer.send(text, reply_to=place, correlation_id=f"id {number}")
        answer = consumer.receive(60)
        assert answer is not None
        assert (answer.text, answer.correlation_id) == (f"java says {text}", f"id {number}")
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
