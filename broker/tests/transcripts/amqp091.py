"""Transcripts of AMQP 0-9-1: clients that send one method at a time, and every method that the broker sends them.

The protocol runs over the store of the unit tests: nothing is durable before ``sync``. Methods and their fields have
the names of the specification; a field that has its default is not shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any, Final

from support.amqp091 import AmqpClient, AmqpNode, Received
from transcripts.script import arguments, options
from understudy.protocols.handlers import AcceptorOptions
from understudy.terms import Amqp091Options
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.layout import METHODS, Kind, Method, layout_of
from understudy.wire.amqp091.properties import BasicProperties

_METHODS: Final = {kind.name: kind for kind in METHODS.values()}
_NUMBERS: Final = (Kind.OCTET, Kind.U16, Kind.U32, Kind.U64)
_PROPERTIES: Final = {each.name for each in fields(BasicProperties)}
#: Time between two checks of a connection.
_CHECK_MS: Final = 1000


class Amqp091Driver:
    """The node and its clients. Implements ``script.Driver``."""

    def __init__(self) -> None:
        self._node = AmqpNode(
            AcceptorOptions(amqp091=Amqp091Options(acknowledgement_timeout_ms=60_000)), automatic=False
        )
        self._clients: dict[str, AmqpClient] = {}

    def close(self) -> None:
        for client in self._clients.values():
            client.lose()

    def command(self, words: list[str]) -> Iterator[str]:
        """Carry out one command and give what the clients get.

        ``connect CLIENT``, ``open CLIENT.CHANNEL``, ``lose CLIENT``, ``sync``, ``wait MILLISECONDS``,
        ``publish CLIENT.CHANNEL KEY BODY FIELD=VALUE``, and any other method as ``METHOD CLIENT.CHANNEL FIELD=VALUE``.
        """
        name, given, values = words[0], arguments(words[1:]), options(words[1:])
        if name == "connect":
            client = self._clients[given[0]] = self._node.amqp_client()
            client.open(properties={"capabilities": {"consumer_cancel_notify": True, "connection.blocked": True}})
        elif name == "lose":
            self._clients[given[0]].lose()
        elif name == "sync":
            self._node.sync()
        elif name == "wait":
            self._wait(int(given[0]))
        elif name == "open":
            self._send(given[0], m.ChannelOpen())
        elif name == "publish":
            self._publish(*given, values)
        else:
            self._send(given[0], _method(name, values))
        yield from self._received()

    def _place(self, place: str) -> tuple[AmqpClient, int]:
        client, _, channel = place.partition(".")
        return self._clients[client], int(channel or 0)

    def _send(self, place: str, method: Method) -> None:
        client, channel = self._place(place)
        client.send(method, channel)

    def _publish(self, place: str, key: str, body: str, values: dict[str, str]) -> None:
        client, channel = self._place(place)
        properties: dict[str, Any] = {
            name: json.loads(text) if name in ("headers", "delivery_mode", "priority", "timestamp") else text
            for name, text in values.items()
            if name in _PROPERTIES
        }
        mandatory = values.get("mandatory") == "yes"
        client.publish(
            key, body.encode(), values.get("exchange", ""), mandatory=mandatory, channel=channel, **properties
        )

    def _wait(self, ms: int) -> None:
        for _ in range(0, ms, _CHECK_MS):
            self._node.world.clock.advance(min(ms, _CHECK_MS))
            for client in self._clients.values():
                client.handler.check()
            self._node.world.turn()

    def _received(self) -> Iterator[str]:
        for name, client in self._clients.items():
            for each in client.received():
                yield f"{name}.{each.channel} <- {_shown(each)}" if each.channel else f"{name} <- {_shown(each)}"
            if client.connection.closed or client.connection.aborted:
                yield f"{name}: closed by the broker"
        self._clients = {
            name: client
            for name, client in self._clients.items()
            if not (client.connection.closed or client.connection.aborted)
        }


def _method(name: str, values: dict[str, str]) -> Method:
    kind = _METHODS[name]
    given: dict[str, Any] = {}
    for field, encoding in layout_of(kind):
        text = values.get(field)
        if encoding in _NUMBERS:
            given[field] = int(text or 0)
        elif encoding is Kind.BIT:
            given[field] = text == "yes"
        elif encoding is Kind.FIELDS:
            given[field] = json.loads(text or "{}")
        else:
            given[field] = (text or "").encode() if encoding is Kind.LONG_BYTES else text or ""
    unknown = values.keys() - given.keys()
    if unknown:
        raise ValueError(f"{name} has no field {', '.join(sorted(unknown))}")
    return kind(**given)


def _shown(received: Received) -> str:
    method = received.method
    parts = [method.name]
    for each in fields(method):  # type: ignore[arg-type]  # every method is a dataclass
        value = getattr(method, each.name)
        if value != each.default and not (each.default is MISSING and value in (False, 0, "", b"")):
            parts.append(f"{each.name}={value!r}" if not isinstance(value, bool) else each.name)
    if received.properties is not None:
        given = {name: getattr(received.properties, name) for name in sorted(_PROPERTIES)}
        parts += [f"{name}={value!r}" for name, value in given.items() if value is not None]
        parts.append(f"body={received.body.decode()!r}")
    return " ".join(parts)
