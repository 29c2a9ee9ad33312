"""Contents of messages and ends of single deliveries of our client, with both kinds of brokers."""

from __future__ import annotations

import pytest

from understudy.client.sync import Connection, Session


@pytest.mark.feature("acknowledgement modes")
@pytest.mark.parametrize("mode", ["auto", "client", "individual"])
def test_a_message_is_given_back_and_counted(connection: Connection, queue: str, mode: str) -> None:
    """Artemis gives back all messages in work (JMS recover), Understudy the one message (ADR 0143)."""
    connection.session().producer(queue).send("again")
    with connection.session(mode) as session:
        consumer = session.consumer(queue)
        first = consumer.receive(60)
        assert first is not None
        assert first.reject()
        again = consumer.receive(60)
        assert again is not None
        assert (again.text, again.delivery_count) == ("again", 2)
        with again.process():
            pass
        assert consumer.receive_nowait() is None


@pytest.mark.feature("bodies: bytes, text, map, empty")
def test_the_content_of_a_stream_message(session: Session, queue: str) -> None:
    values = [True, 3, 2.5, "text", b"raw", None]
    session.producer(queue).send(values)
    received = session.consumer(queue).receive(60)
    assert received is not None
    assert received.content == values
