"""Byte-by-byte examples observed between Artemis peers (artemis-core s. 12 and 2.1).

Goal: our frames are theirs. Method: each example is decoded to the packet it stands for and that
packet is encoded to the same bytes again.
"""

from __future__ import annotations

import pytest

from understudy.ids import Xid
from understudy.message import ROUTING_TYPE, Message, MessageType
from understudy.properties import BYTE, Properties
from understudy.wire.core import packets as p
from understudy.wire.core.codec import FrameDecoder, encode
from understudy.wire.core.transport import NETTY_CONNECTOR_FACTORY, TransportConfiguration


def frame(packet_type: int, channel_id: int, body: str) -> bytes:
    raw = bytes.fromhex(body)
    return (len(raw) + 9).to_bytes(4) + packet_type.to_bytes(1, signed=True) + channel_id.to_bytes(8) + raw


NODE_ID = "2fe3c1a4-0001-11ee-8a4b-00155d2f9c11"
CONNECTOR = TransportConfiguration("me", NETTY_CONNECTOR_FACTORY, {"port": "61720", "host": "127.0.0.1"})

EXAMPLES = {
    "12.1 ping": (
        0,
        p.Ping(60_000),
        bytes.fromhex("00000011 0a 0000000000000000 000000000000ea60"),
    ),
    "12.2 subscribe": (
        0,
        p.SubscribeTopologyV2(False, 136),
        bytes.fromhex("0000000e 71 0000000000000000 00 00000088"),
    ),
    "12.3 create session": (
        1,
        p.CreateSessionV2(
            name="sess-0001",
            session_channel_id=10,
            version=136,
            user="admin",
            password="admin",
            min_large_message_size=102_400,
            confirmation_window=-1,
            client_id="c1",
        ),
        bytes.fromhex(
            "00000058 ee 0000000000000001"
            "00000009 0009 736573732d30303031"
            "000000000000000a 00000088"
            "01 00000005 00610064006d0069006e"
            "01 00000005 00610064006d0069006e"
            "00019000 00 ff ff ffffffff 00"
            "00"
            "01 00000002 00630031"
        ),
    ),
    "12.3 answer": (1, p.CreateSessionResponse(136), bytes.fromhex("0000000d 1f 0000000000000001 00000088")),
    "12.4 queue query": (
        10,
        p.QueueQueryResponseV3(
            exists=False,
            durable=True,
            temporary=False,
            consumer_count=0,
            message_count=0,
            filter=None,
            address="q1",
            name="q1",
            auto_create_queues=True,
            auto_created=False,
            purge_on_no_consumers=False,
            routing_type=0,
            max_consumers=-1,
            exclusive=False,
            last_value=False,
            default_consumer_window_size=1024 * 1024,
            last_value_key=None,
            non_destructive=False,
            consumers_before_dispatch=0,
            delay_before_dispatch=-1,
            group_rebalance=False,
            group_buckets=-1,
            auto_delete=False,
            auto_delete_delay=0,
            auto_delete_message_count=0,
            group_first_key=None,
            ring_size=-1,
            enabled=None,
            group_rebalance_pause_dispatch=False,
            configuration_managed=False,
        ),
        frame(
            -14,
            10,
            "00 ff 00 00000000 0000000000000000"
            "00 01 00000004 71003100 01 00000004 71003100"
            "ff 00 00 00 ffffffff"
            "ff00 ff00 ff00100000 00 ff00"
            "ff00000000 ffffffffffffffffff"
            "ff00 ffffffffff ff00"
            "ff0000000000000000 ff0000000000000000"
            "00 ffffffffffffffffff 00 ff00 ff00",
        ),
    ),
    "12.4 binding query": (
        10,
        p.BindingQueryResponseV5(
            exists=False,
            queue_names=(),
            auto_create_queues=True,
            auto_create_addresses=True,
            default_purge_on_no_consumers=False,
            default_max_consumers=-1,
            default_exclusive=False,
            default_last_value=False,
            default_last_value_key=None,
            default_non_destructive=False,
            default_consumers_before_dispatch=0,
            default_delay_before_dispatch=-1,
            supports_multicast=False,
            supports_anycast=False,
        ),
        frame(-22, 10, "00 00000000 ff ff 00 ffffffff ff00 ff00 00 ff00 ff00000000 ffffffffffffffffff 00 00"),
    ),
    "12.5 answer": (
        10,
        p.NullResponse(-2),
        bytes.fromhex("00000011 15 000000000000000a fffffffffffffffe"),
    ),
    "12.6 exception without id": (
        10,
        p.ExceptionResponse(100, "no"),
        bytes.fromhex("00000016 14 000000000000000a 00000064 01 00000002 006e006f"),
    ),
    "12.6 exception with id": (
        10,
        p.ExceptionResponse(210, "no", -2),
        bytes.fromhex("0000001e 14 000000000000000a 000000d2 01 00000002 006e006f fffffffffffffffe"),
    ),
    "12.7 disconnect": (
        0,
        p.DisconnectV3("n1", p.DisconnectReason.SHUT_DOWN),
        bytes.fromhex("00000015 ed 0000000000000000 01 00000004 6e003100 04 00 00"),
    ),
    "12.7 node down": (
        0,
        p.ClusterTopologyV2(True, "n1", 5),
        bytes.fromhex("0000001b 72 0000000000000000 ff 00000002 006e0031 0000000000000005 00"),
    ),
    "12.7 confirmed": (10, p.PacketsConfirmed(7), bytes.fromhex("0000000d 16 000000000000000a 00000007")),
    "12.8 middle chunk": (
        10,
        p.SessionSendContinuation(b"abc", True, requires_response=False, correlation_id=0, sender_id=1),
        frame(73, 10, "00000003 616263 ff 00 0000000000000000 00000001"),
    ),
    "12.8 last chunk": (
        10,
        p.SessionSendContinuation(b"abc", False, 250_000, True, -4, 1),
        frame(73, 10, "00000003 616263 00 000000000003d090 ff fffffffffffffffc 00000001"),
    ),
    "12.9 XA start": (
        11,
        p.XaStart(Xid(7, b"gtx", b"bq")),
        bytes.fromhex("0000001a 33 000000000000000b 00000007 00000002 6271 00000003 677478"),
    ),
    "12.9 XA answer": (11, p.XaResponse(False, 0), bytes.fromhex("0000000f 37 000000000000000b 00 00000000 00")),
    "12.10 topology": (
        0,
        p.ClusterTopologyV4(False, NODE_ID, 1_700_000_000_000, CONNECTOR, None, True, None, None, 136),
        frame(
            -17,
            0,
            "00 00000024 0024" + NODE_ID.encode().hex() + (1_700_000_000_000).to_bytes(8).hex() + "ff"
            "00000002 006d0065"
            "0000004a 004a" + NETTY_CONNECTOR_FACTORY.encode().hex() + "00000002"
            "00000004 0070006f00720074 03 00000005 00360031003700320030"
            "00000004 0068006f00730074 03 00000009 0009 3132372e302e302e31"
            "00 ff 00 00 00000088",
        ),
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_both_ways(name: str) -> None:
    channel_id, packet, raw = EXAMPLES[name]
    assert encode(packet, channel_id) == raw
    (found,) = FrameDecoder("client").receive_data(raw)
    assert found == (channel_id, packet, len(raw))


SEND = bytes.fromhex(
    "00000075 47 000000000000000a"
    "00000016"
    "01 00000004 48006900"
    "0000000000000000"
    "01 00000004 71003100"
    "00"
    "03 01"
    "0000000000000000 0000018bcfe56800 04"
    "01 00000001"
    "00000022 5f0041004d0051005f0052004f005500540049004e0047005f005400590050004500"
    "03 01"
    "ff fffffffffffffffe 00000001"
)


def test_example_12_5_send() -> None:
    properties = Properties()
    properties.set_typed(ROUTING_TYPE, BYTE, 1)
    message = Message(
        bytes.fromhex("01 00000004 48006900"),
        address="q1",
        type=MessageType.TEXT,
        timestamp=0x18BCFE56800,
        properties=properties,
    )
    assert encode(p.SessionSend(message, True, -2, 1), 10) == SEND

    (found,) = FrameDecoder().receive_data(SEND)
    assert found.channel_id == 10
    assert found.size_bytes == len(SEND) == 0x79
    packet = found.packet
    assert isinstance(packet, p.SessionSend)
    assert (packet.requires_response, packet.correlation_id, packet.sender_id) == (True, -2, 1)
    assert packet.message.encoded == message.encoded
    assert packet.message.address == "q1"
    assert packet.message.type == MessageType.TEXT
    assert packet.message.durable
    assert packet.message.timestamp == 0x18BCFE56800
    assert packet.message.priority == 4
    assert packet.message.properties.tag(ROUTING_TYPE) == BYTE
    assert dict(packet.message.properties) == {ROUTING_TYPE: 1}


def test_the_seven_bytes_in_front_are_skipped_by_a_server() -> None:
    ping = EXAMPLES["12.1 ping"][2]
    assert [found.packet for found in FrameDecoder("server").receive_data(b"ARTEMIS" + ping)] == [p.Ping(60_000)]


def test_integer_ports_are_understood() -> None:
    found = TransportConfiguration.decode(
        bytes.fromhex("00000001 006e 00000001 0066 00000001 00000004 0070006f00720074 01 0000f0b8")
    )
    assert found.parameters == {"port": 61624}
    assert found.port == 61624
