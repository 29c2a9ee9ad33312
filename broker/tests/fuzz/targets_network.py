"""Input from a network other than CORE: datagrams of brokers, and bodies of management requests by HTTP."""

from __future__ import annotations

import asyncio
import json
import struct
from functools import cache

from fuzz.target import Target
from support.managed import ManagedWorld
from support.routing import text
from understudy.client.aio.discovery import _Listener
from understudy.client.core.connection.discovery import Discovery, check_trust
from understudy.client.core.url.options import ClientOptions, Connector, DiscoveryGroup
from understudy.client.core.url.parsing import parse_url
from understudy.errors import BrokerError, ConfigError
from understudy.limits import BROADCAST_NODES_MAX
from understudy.management.doors.http import parse_invocation
from understudy.management.operations.invocation import InvocationRequest, Requester
from understudy.management.operations.resources import CONTROLS
from understudy.management.operations.table import Kind, Parameter
from understudy.runtime.management.node_requests import _TOKEN
from understudy.wire.core.broadcast import Broadcast
from understudy.wire.core.transport import TransportConfiguration

_GROUP = DiscoveryGroup("231.7.7.7")
#: What a URL says for every connector found.
_TEMPLATES = ("tcp://h:1", "tcp://h:1?sslEnabled=true")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def _datagrams(data: bytes) -> None:
    """Length and bytes of one after the other, heard a second apart; the first byte chooses the URL."""

    async def hear() -> None:
        loop = asyncio.get_running_loop()
        template = parse_url(_TEMPLATES[data[0] & 1 if data else 0]).connectors[0]
        said: list[str] = []
        discovery = Discovery(_GROUP, template, said.append)
        listener = _Listener(discovery, loop.create_future())
        at, now_ms = 1, 0
        while at + 2 <= len(data):
            size = int.from_bytes(data[at : at + 2])
            at += 2
            # both: by our clock and by the socket's
            listener.datagram_received(data[at : at + size], ("203.0.113.9", 9876))
            discovery.receive(data[at : at + size], now_ms)
            at += size
            now_ms += 1000
        _judge(discovery.connectors(now_ms), template)
        _judge(discovery.connectors(0), template)

    _loop().run_until_complete(hear())


def _judge(found: tuple[Connector, ...], template: Connector) -> None:
    assert len(found) <= BROADCAST_NODES_MAX
    for connector in found:
        str(connector)
        assert 0 < connector.port < 65536, connector
        assert template.tls is None or connector.tls is not None, "a datagram took TLS away"
    try:
        check_trust(found, ClientOptions(), "secret")
    except ConfigError:
        return
    for connector in found:
        assert connector.tls is not None, "a password would go to any sender of a datagram"
        assert connector.tls.proves_the_server


def _datagram_seeds() -> list[bytes]:
    def framed(*datagrams: bytes) -> bytes:
        return b"".join(len(each).to_bytes(2) + each for each in datagrams)

    plain = TransportConfiguration("c", parameters={"host": "203.0.113.1", "port": "61616"})
    secure = TransportConfiguration("s", parameters={"host": "b", "port": "61617", "sslEnabled": "true"})
    odd = TransportConfiguration("", parameters={"host": "", "port": "-1", "trustStorePath": "/etc/passwd"})
    one = Broadcast("node-a", "first start", (plain,)).encode()
    two = Broadcast("node-b", "x", (secure, plain)).encode()
    three = Broadcast("node-a", "another", (odd,)).encode()
    return [
        b"\0" + framed(one, two, one, three), b"\1" + framed(one, two), b"\0" + framed(one + bytes(900)),
        b"\1" + framed(three),
    ]  # fmt: skip


def _request(data: bytes) -> None:
    """The body of POST /api/v1/invoke."""
    try:
        # as runtime/management/http.py takes it
        _carry_out(parse_invocation(json.loads(data) if data else {}))
    except (ValueError, RecursionError):
        return


def _operation(data: bytes) -> None:
    """An operation that there is, with parameters of its types: JSON that bytes rarely become by themselves.

    The first two bytes choose the operation; for each parameter a length and the bytes of a text or a number follow.
    """
    resource, row = _OPERATIONS[int.from_bytes(data[:2]) % len(_OPERATIONS)]
    values: list[object] = []
    at = 2
    for parameter in row.parameters:
        size = data[at] if at < len(data) else 0
        values.append(_value(parameter, data[at + 1 : at + 1 + size]))
        at += 1 + size
    _carry_out(InvocationRequest(resource, row.name, is_attribute=False, parameters=tuple(values)))


def _value(parameter: Parameter, data: bytes) -> object:
    if parameter.nullable and not data:
        return None
    if parameter.kind is Kind.STRING:
        # half surrogates, too, as JSON has them
        return data.decode("utf-8", "surrogatepass" if b"\xed" in data else "replace") if _decodes(data) else "\ud800"
    if parameter.kind is Kind.BOOLEAN:
        return bool(data and data[0] & 1)
    if parameter.kind is Kind.MAP:
        text_of_it = data.decode("latin-1")
        return {text_of_it[::2]: text_of_it[1::2], "n": len(data)}
    if parameter.kind is Kind.DOUBLE:
        return struct.unpack("<d", data[:8].ljust(8, b"\0"))[0]
    return int.from_bytes(data[: 4 if parameter.kind is Kind.INT else 8], signed=True)


def _decodes(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return b"\xed" not in data
    return True


def _carry_out(wanted: InvocationRequest) -> None:
    """Against a node with something on it; the answer must be JSON, and come once."""
    node = ManagedWorld()
    queue = node.world.queue("q")
    session = node.session()
    for number in range(4):
        session.sends.send(text(f"m{number}", "q", properties={"n": number, "s": "x"}))
    session.consumers.create(0, "q", "n > 1")
    answers: list[tuple[object, BrokerError | None]] = []
    node.invocations.carry_out(
        wanted, Requester(_TOKEN, "127.0.0.1"), lambda result, error: answers.append((result, error))
    )
    for _ in range(100):
        if answers:
            break
        node.world.clock.advance(1)
    ((result, error),) = answers
    json.dumps({"result": result}).encode()
    json.dumps({"message": str(error)}).encode()
    node.world.turn()
    node.world.sync()
    # the others are still served
    assert queue.message_count >= 0
    node.session().sends.send(text("after", "honest"))


_SAMPLES: dict[Kind, tuple[object, ...]] = {
    Kind.STRING: ("q", "", "n = 1", "ANYCAST", '{"name": "new", "address": "a", "routing-type": "ANYCAST"}', "\ud800"),
    Kind.INT: (1, 0, -1),
    Kind.LONG: (5, 2**62),
    Kind.BOOLEAN: (True, False),
    Kind.DOUBLE: (0.5, -1.0),
    Kind.MAP: ({"n": 1, "s": "text"}, {}),
}
_NAMES = {"broker": "broker", "queue": "queue.q", "address": "address.q"}

_OPERATIONS = [
    (_NAMES.get(kind.operations.kind, f"{kind.operations.kind}.x"), row)
    for kind in CONTROLS
    for row in kind.operations.rows
]


def _values(parameters: tuple[Parameter, ...], number: int) -> list[object]:
    return [_SAMPLES[each.kind][number % len(_SAMPLES[each.kind])] for each in parameters]


def _request_seeds() -> list[bytes]:
    """Every operation that there is, each with some parameters that it takes; and attributes."""
    seeds = [b'{"resource":"queue.q","attribute":"messageCount"}', b"", b"{}", b"[" * 500]
    for resource, row in _OPERATIONS:
        for number in range(4 if row.parameters else 1):
            asked = {"resource": resource, "operation": row.name, "parameters": _values(row.parameters, number)}
            seeds.append(json.dumps(asked).encode())
    return seeds


def _operation_seeds() -> list[bytes]:
    seeds = []
    for index, (_, row) in enumerate(_OPERATIONS):
        for number in range(6 if row.parameters else 1):
            encoded = b""
            for value in _values(row.parameters, number):
                if isinstance(value, str):
                    data = value.encode("utf-8", "surrogatepass")
                elif isinstance(value, dict):
                    data = b"sometext"
                else:
                    data = int(value).to_bytes(8, signed=True)  # type: ignore[call-overload]
                encoded += len(data).to_bytes(1) + data
            seeds.append(index.to_bytes(2) + encoded)
    return seeds


NETWORK = (
    Target("datagrams", _datagrams, (), _datagram_seeds, memory_per_byte=512, weight=2),
    Target(
        "http-request", _request, (), _request_seeds,
        memory_per_byte=4096, memory_floor_bytes=8 << 20, steps_per_byte=2000,
    ),
    Target(
        "http-operation", _operation, (), _operation_seeds,
        memory_per_byte=4096, memory_floor_bytes=8 << 20, steps_per_byte=2000, weight=4,
    ),
)  # fmt: skip
