"""Answers to clients of protocols that are not served."""

from __future__ import annotations

import pytest

from understudy.wire.amqp091.frames import PROTOCOL_HEADER
from understudy.wire.detect import Protocol, detect
from understudy.wire.refusals import refusal

MQTT4 = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04test"
MQTT5 = b"\x10\x11\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x04test"
MQTT3 = b"\x10\x12\x00\x06MQIsdp\x03\x02\x00\x3c\x00\x04test"


@pytest.mark.parametrize(
    ("first", "version", "answer"),
    [
        (b"AMQP\x00\x00\x09\x01", "0-9-1", b"AMQP\x00\x00\x00\x00"),
        (b"AMQP\x00\x01\x00\x00", "1.0", b"AMQP\x00\x00\x00\x00"),
        (b"AMQP\x03\x01\x00\x00", "1.0", b"AMQP\x00\x00\x00\x00"),
        (MQTT4, "3.1.1", b"\x20\x02\x00\x01"),
        (MQTT4[:8], None, b"\x20\x02\x00\x01"),
        (MQTT5, "5.0", b"\x20\x03\x00\x84\x00"),
        (MQTT3, "3.1", b"\x20\x02\x00\x01"),
        (b"\x01\x02\x03\x04\x05\x06\x07\x08\x09", None, b""),
    ],
)
def test_the_answer_in_the_language_of_the_client(first: bytes, version: str | None, answer: bytes) -> None:
    found = refusal(detect(first), first, None)
    assert (found.data, found.version) == (answer, version)


def test_stomp_gets_an_error_frame() -> None:
    found = refusal(Protocol.STOMP, b"STOMP\naccept-version:1.1,1.2\nhost:x\n\n\x00", None)
    assert found.version == "1.1,1.2"
    assert found.data.startswith(b"ERROR\nmessage:protocol not served\n")
    assert found.data.endswith(b"speaks the CORE protocol of ActiveMQ Artemis, not STOMP.\n\x00\n")


@pytest.mark.parametrize(
    ("management", "text"),
    [("http://127.0.0.1:8161", b"management is at http://127.0.0.1:8161"), (None, b"the node has no management port")],
)
def test_http_gets_the_address_of_the_management(management: str | None, text: bytes) -> None:
    data = refusal(Protocol.HTTP, b"GET / HTTP/1.1\r\n", management).data
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert f"Content-Length: {len(body)}".encode() in head
    assert text in body


def test_the_text_names_what_the_acceptor_serves() -> None:
    core, amqp = Protocol.CORE, Protocol.AMQP091
    for served, text in (
        ((amqp,), b"This port speaks AMQP 0-9-1;"),
        ((amqp, core), b"This port speaks the CORE protocol of ActiveMQ Artemis and AMQP 0-9-1;"),
    ):
        assert text in refusal(Protocol.HTTP, b"GET / HTTP/1.1\r\n", None, served).data


def test_a_client_of_core_learns_that_the_port_speaks_amqp() -> None:
    first = b"ARTEMIS" + bytes(16)
    assert detect(first) is Protocol.CORE
    found = refusal(Protocol.CORE, first, None, (Protocol.AMQP091,))
    assert (found.data, found.version) == (b"AMQP\x00\x00\x09\x01", None)


def test_unknown_bytes_are_answered_where_only_amqp_is_spoken() -> None:
    """AMQP 0-9-1, section 4.2.2. A port of several protocols gives a scanner no answer."""
    assert refusal(Protocol.UNKNOWN, b"NOTANAMQPHEADER", None, {Protocol.AMQP091}).data == PROTOCOL_HEADER
    assert refusal(Protocol.UNKNOWN, b"NOTANAMQPHEADER", None, {Protocol.AMQP091, Protocol.CORE}).data == b""
