"""The client over AMQP 0-9-1, fed by a broker that says anything in any order: documented errors only, and it goes on.

The first byte of the input chooses how far the conversation has come.
"""

from __future__ import annotations

from fuzz.target import Target
from support.client import Outcome
from support.client091 import Drive091, status
from understudy.client.amqp091.handshake import known_hosts
from understudy.client.amqp091.status import channel_status
from understudy.client.core.connection.failover import State
from understudy.client.core.consumer.taken import AcknowledgeMode
from understudy.client.core.url.options import Connector
from understudy.errors import RemoteProtocolError
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.frames import content_frames, method_frame
from understudy.wire.amqp091.properties import BasicProperties, encode_properties

_OPEN, _SESSION, _TRANSACTED, _SEND, _STOPS = (1 << bit for bit in range(5))


def _client(data: bytes) -> None:
    if not data:
        return
    flags = data[0]
    drive = Drive091()
    if not flags & (_OPEN | _SESSION):
        drive.core.connect(Outcome())
        drive.up()
    else:
        drive.connect()
    if flags & _SESSION:
        session = drive.session(AcknowledgeMode.TRANSACTED if flags & _TRANSACTED else AcknowledgeMode.AUTO)
        drive.consumer(session)
        if flags & _SEND:
            drive.send(session, drive.producer(session), b"one")
        if flags & _STOPS:
            session.stop(Outcome())
    drive.core.receive_data(data[1:])
    for _ in range(3):
        drive.core.data_to_send()
        drive.clock.now_ms += 2_000
        drive.core.handle_deadline()
    # the first connection of a client is given up after one round
    assert not flags & (_OPEN | _SESSION) or drive.core.state is not State.CLOSED, (
        "a client that fails over without end was ended by its peer"
    )


def _status(data: bytes) -> None:
    channel_status(data)


def _hosts(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    assert all(0 < each.port <= 65_535 for each in known_hosts(text, Connector("a", 1)))


def _seeds() -> list[bytes]:
    properties = encode_properties(BasicProperties(content_type="text/plain; charset=utf-8", headers={"a": [1]}))
    start = method_frame(m.ConnectionStart(0, 9, {"capabilities": {"qpid.session": True}}, b"PLAIN"), 0)
    tune = method_frame(m.ConnectionTune(2047, 131_072, 60), 0)
    deliver = content_frames(m.BasicDeliver("c0.1", 1, False, "", "q"), properties, b"body", 2, 4096)
    returned = content_frames(m.BasicReturn(312, "NO_ROUTE", "", "q"), properties, b"one", 2, 4096)
    return [
        bytes([0]) + start + tune + method_frame(m.ConnectionOpenOk("b:1,[::1]:2"), 0),
        bytes([_OPEN]) + method_frame(m.ConnectionBlocked("full"), 0) + method_frame(m.ConnectionClose(320, "x"), 0),
        bytes([_SESSION]) + deliver + method_frame(m.BasicCancel("c0.1", True), 2),
        bytes([_SESSION | _SEND]) + returned + method_frame(m.BasicAck(1), 2) + method_frame(m.BasicNack(1), 2),
        bytes([_SESSION | _TRANSACTED | _STOPS]) + method_frame(m.BasicCancelOk("c0.1"), 2),
        bytes([_SESSION]) + method_frame(m.ChannelClose(404, "x"), 2) + method_frame(m.ChannelClose(404, "x"), 1),
    ]


CLIENT091 = (
    Target("client-amqp091", _client, (), _seeds, memory_per_byte=512, memory_floor_bytes=1 << 20, steps_floor=60_000),
    Target(
        "client-amqp091-status",
        _status,
        (RemoteProtocolError,),
        lambda: [
            status(
                publishes={"accepted": 3, "returned": [1], "rejected": [2]}, tx={"commits": 1}, consumers=[{"tag": "c"}]
            ).reserved_1
        ],
        memory_per_byte=256,
    ),
    Target("client-amqp091-known-hosts", _hosts, (), lambda: [b"a:1,amqps:b:2,[::1]:3"]),
)
