"""First bytes of a connection to a protocol (artemis-core s. 1.3), for every prefix."""

from __future__ import annotations

import pytest

from understudy.wire.detect import BYTES_MAX, BYTES_NEEDED, Protocol, detect

OPENINGS = [
    (b"ARTEMIS\x00\x00\x00\x11\x0a", Protocol.CORE),
    (b"GET / HTTP/1.1\r\n", Protocol.HTTP),
    (b"POST / HTTP/1.1\r\n", Protocol.HTTP),
    (b"PUT / HTTP/1.1\r\n", Protocol.HTTP),
    (b"HEAD / HTTP/1.1\r\n", Protocol.HTTP),
    (b"OPTIONS / HTTP/1.1", Protocol.HTTP),
    (b"PATCH / HTTP/1.1\r\n", Protocol.HTTP),
    (b"DELETE / HTTP/1.1", Protocol.HTTP),
    (b"TRACE / HTTP/1.1", Protocol.HTTP),
    (b"AMQP\x00\x01\x00\x00", Protocol.AMQP),
    (b"AMQP\x03\x01\x00\x00", Protocol.AMQP),
    (b"AMQP\x00\x00\x09\x01", Protocol.AMQP091),
    (b"AMQP\x01\x01\x00\x09", Protocol.AMQP091),
    (b"AMQP\x01\x01\x08\x00", Protocol.AMQP),  # 0-8
    (b"AMQP\x01\x01\x00\x0a", Protocol.AMQP),  # 0-10
    (b"AMQP\x00\x00\x09\x02", Protocol.AMQP),
    (b"\x10\x0c\x00\x04MQTT\x04\x02", Protocol.MQTT),
    (b"\x10\x80\x01\x00\x04MQTT\x04", Protocol.MQTT),
    (b"\x10\x80\x80\x01\x00\x04MQTT", Protocol.MQTT),
    (b"\x10\x80\x80\x80\x01\x00\x04MQTT", Protocol.MQTT),
    (b"\x10\x12\x00\x06MQIsdp\x03", Protocol.MQTT),
    (b"\x10\x0c\x00\x04XQTT\x04\x02", Protocol.UNKNOWN),
    (b"\x10\x0c\x00\x05MQTT\x04\x02", Protocol.UNKNOWN),
    (b"\x10\x0c\x01\x04MQTT\x04\x02", Protocol.UNKNOWN),
    (b"\x10\x80\x80\x80\x80\x00\x04MQTT", Protocol.UNKNOWN),
    (b"\x10\x80\x80\x80\x01\x00\x04MXTT", Protocol.UNKNOWN),
    (b"CONNECT\naccept-version:1.2", Protocol.STOMP),
    (b"STOMP\naccept-version:1.2", Protocol.STOMP),
    (b"\x00\x00\x00\xf0\x01ActiveMQ\x00\x00\x00\x0c", Protocol.OPENWIRE),
    (b"\x00\x00\x00\xf0\x01ActXveMQ", Protocol.OPENWIRE),  # eight bytes decide
    (b"\x00\x00\x00\xf0\x02ActiveMQ", Protocol.UNKNOWN),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", Protocol.TLS),
    (b"PROXY TCP4 10.0.0.1", Protocol.UNKNOWN),
    (b"\r\n\r\n\x00\r\nQUIT\n", Protocol.UNKNOWN),
    (b"HORNETQ\x00\x00", Protocol.UNKNOWN),
    (b"SSH-2.0-OpenSSH", Protocol.UNKNOWN),
    (bytes(16), Protocol.UNKNOWN),
    (b"artemis\x00\x00\x00", Protocol.UNKNOWN),
]


@pytest.mark.parametrize(("opening", "protocol"), OPENINGS, ids=lambda value: repr(value)[:30])
def test_every_prefix(opening: bytes, protocol: Protocol) -> None:
    for size in range(BYTES_NEEDED):
        assert detect(opening[:size]) is Protocol.NEED_MORE
    assert detect(opening[:BYTES_NEEDED]) in (protocol, Protocol.NEED_MORE)
    for size in range(BYTES_MAX, len(opening) + 1):
        assert detect(opening[:size]) is protocol


def test_only_the_longest_mqtt_length_needs_a_ninth_byte() -> None:
    assert detect(b"\x10\x80\x80\x80\x01\x00\x04M") is Protocol.NEED_MORE
    assert detect(b"\x10\x80\x80\x01\x00\x04MQ") is Protocol.MQTT


def test_every_first_byte_gets_an_answer() -> None:
    for first in range(256):
        for rest in (bytes(8), b"\xff" * 8, b"\x80" * 8):
            assert detect(bytes((first,)) + rest) in Protocol
            assert detect(bytes((first,)) + rest) is not Protocol.NEED_MORE
