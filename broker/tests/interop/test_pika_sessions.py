"""pika with a session finds its queues again after a cut link (ADR 0195)."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from pika.exceptions import AMQPConnectionError, ChannelClosedByBroker  # type: ignore[import-untyped]  # no types

from support.nodes import nodes_in
from support.pika_clients import connected

ATTACH = {"qpid.session.attach": "0f8e35ae-9d7b-4d0c-a6a5-1c31a5a4c7d2"}


def cut(connection: Any) -> None:
    """Close the socket without connection.close, as a lost link does."""
    connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)
    with pytest.raises(AMQPConnectionError):
        connection.process_data_events(time_limit=30)


@pytest.mark.feature("AMQP 0-9-1: queues of a session outlive a cut link")
def test_exclusive_and_auto_delete_queues_are_there_after_a_cut_link(tmp_path: Path) -> None:
    with nodes_in(tmp_path) as nodes:
        port = nodes.active().primary.port
        first = connected(port, client_properties=ATTACH)
        channel = first.channel()
        channel.confirm_delivery()
        channel.queue_declare("own", exclusive=True)
        channel.queue_declare("auto", auto_delete=True)
        channel.basic_consume("auto", lambda *_: None)
        channel.basic_publish("", "own", b"of the client", mandatory=True)
        cut(first)
        other = connected(port)
        publisher = other.channel()
        publisher.confirm_delivery()
        publisher.basic_publish("", "auto", b"while away", mandatory=True)
        with pytest.raises(ChannelClosedByBroker) as refused:
            publisher.queue_declare("own", passive=True)
        assert refused.value.reply_code == 405
        again = connected(port, client_properties=ATTACH)
        channel = again.channel()
        assert channel.queue_declare("own", exclusive=True).method.message_count == 1
        assert channel.basic_get("own", auto_ack=True)[2] == b"of the client"
        assert channel.basic_get("auto", auto_ack=True)[2] == b"while away"
        again.close()
        with pytest.raises(ChannelClosedByBroker) as gone:
            other.channel().queue_declare("own", passive=True)
        assert gone.value.reply_code == 404
        other.close()
