"""Clients of AMQP 0-9-1 with a session whose channels they resume (ADR 0195)."""

from __future__ import annotations

from typing import Any

from support.amqp091 import AmqpClient, AmqpNode
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.frames import PROTOCOL_HEADER
from understudy.wire.amqp091.tables import decode_table

UUID = "01234567-89ab-4def-8123-456789abcdef"
OTHER = "01234567-89ab-4def-8123-456789abcde0"


def asked(verb: str = "attach", uuid: str = UUID, **more: Any) -> dict[str, Any]:
    return {f"qpid.session.{verb}": uuid} | {f"qpid.session.{name}": value for name, value in more.items()}


def connected(
    node: AmqpNode, verb: str = "resume", uuid: str = UUID, user: str = "u", frame_max: int | None = None, **more: Any
) -> AmqpClient:
    """A client with a session and no channel."""
    made = node.amqp_client(frame_max=frame_max)
    made.open(response=f"\0{user}\0p".encode(), properties=asked(verb, uuid, **more))
    return made


def started(node: AmqpNode, **more: Any) -> AmqpClient:
    """A client with a new session and a channel."""
    made = connected(node, "start", **more)
    made.ask(m.ChannelOpen(), m.ChannelOpenOk)
    return made


def opened(client: AmqpClient, text: str, channel: int = 1) -> dict[str, Any]:
    """Open a channel with an out-of-band string. Returns the status."""
    answer = client.ask(m.ChannelOpen(text), m.ChannelOpenOk, channel)
    return status_of(answer)


def status_of(answer: m.ChannelOpenOk) -> dict[str, Any]:
    return decode_table(answer.reserved_1, 0, len(answer.reserved_1), values_max=1 << 20)[0]


def resume_text(tag: int = 0, publishes: int = 0) -> str:
    return f"resume;tag={tag};seq={publishes}"


def resumed(
    client: AmqpClient, tag: int = 0, publishes: int = 0, channel: int = 1
) -> tuple[dict[str, Any], list[tuple[int, bool, bytes]]]:
    """Resume a channel. Returns the table ``channel`` of its status, and tag, redelivered and body of the deliveries
    that come at once."""
    client.send(m.ChannelOpen(resume_text(tag, publishes)), channel)
    first, *rest = client.received()
    assert isinstance(first.method, m.ChannelOpenOk), first
    return status_of(first.method)["channel"], [delivery(each) for each in rest]


def delivery(found: Any) -> tuple[int, bool, bytes]:
    assert isinstance(found.method, m.BasicDeliver), found
    return found.method.delivery_tag, found.method.redelivered, found.body


def refused(node: AmqpNode, verb: str, uuid: str = UUID, user: str = "u", **more: Any) -> m.ConnectionClose:
    """connection.close that a client gets in place of open-ok."""
    made = node.amqp_client()
    made.send_bytes(PROTOCOL_HEADER)
    made.received()
    response = f"\0{user}\0p".encode()
    tune = made.ask(m.ConnectionStartOk(asked(verb, uuid, **more), "PLAIN", response, ""), m.ConnectionTune, 0)
    made.send(m.ConnectionTuneOk(tune.channel_max, tune.frame_max, 0), 0)
    return made.ask(m.ConnectionOpen("/"), m.ConnectionClose, 0)
