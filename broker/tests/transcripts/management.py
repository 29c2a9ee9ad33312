"""A node that is managed over messages, by the commands of a transcript. The answers are those of the wire."""

from __future__ import annotations

import json
from collections.abc import Iterator

from support.core import NAME, Client
from support.managed import ManagedWorld
from support.routing import text
from understudy.config.model import AcceptorConfiguration
from understudy.message import Message, MessageType
from understudy.properties import Properties, encode_simple_string
from understudy.session.session import ServerSession
from understudy.wire.core import packets


class ManagementDriver:
    """Commands: ``client``, ``send``, ``plain``, ``ask``, ``page``, ``refused`` and ``attributes``."""

    def __init__(self) -> None:
        self._node = ManagedWorld(
            configuration={"name": "n1", "acceptors": (AcceptorConfiguration("core", "127.0.0.1", 61616),)}
        )
        self._clients: list[Client] = []
        self._asking: ServerSession = self._node.session()

    def close(self) -> None:
        self._asking.close(failed=False)

    def command(self, words: list[str]) -> Iterator[str]:
        name, *rest = words
        if name == "client":
            client = self._node.client(rest[0])
            client.create_session(f"{NAME[:-1]}{len(self._clients)}")
            client.send(packets.CreateProducer(1, rest[1]))
            client.consume(queue=rest[1])
            self._clients.append(client)
        elif name == "send":
            properties = Properties({"colour": "red", "n": 7, "raw": b"\x00\xff"})
            body = b"\x01" + encode_simple_string(rest[1])
            self._asking.sends.send(Message(body, address=rest[0], type=MessageType.TEXT, properties=properties))
            self._node.world.turn()
        elif name == "plain":
            self._asking.sends.send(text(rest[1], rest[0]))
            self._node.world.turn()
        elif name == "ask":
            yield json.dumps(self._ask(*rest))
        elif name == "page":
            yield from self._page(*rest)
        elif name == "refused":
            yield self._node.refused(rest[0], rest[1], *map(json.loads, rest[2:]))
        elif name == "attributes":
            for row in sorted(self._node.invocations.operations(rest[0]).rows, key=lambda row: row.name):
                if row.attribute is not None and row.name not in _WITH_CLOCK:
                    yield f"{row.name} {json.dumps(self._ask(rest[0], row.name))}"
        else:
            raise ValueError(f"no command {name!r}")

    def _ask(self, resource: str, operation: str, *values: str) -> object:
        given = [json.loads(value) for value in values]
        return self._node.ask(resource, operation, *given, session=self._asking)

    def _page(self, operation: str, options: str, page: str, size: str) -> Iterator[str]:
        """The text of a page, row by row: the order of the names counts."""
        given = None if options == "-" else options
        found = self._node.ask("broker", operation, given, int(page), int(size), session=self._asking)
        yield from found.replace("},{", "},\n{").splitlines()


#: Attributes whose values change by themselves.
_WITH_CLOCK = ("getUptime", "getUptimeMillis", "getCurrentTimeMillis")
