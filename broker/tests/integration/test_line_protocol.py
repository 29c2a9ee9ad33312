"""A protocol that is not CORE over an acceptor with real sockets (``support.line_protocol``)."""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from support import line_protocol
from support.core import CountingEntropy
from support.line_protocol import LineConnection
from support.managed import ManagedWorld
from support.routing import World
from understudy.config.model import AcceptorConfiguration, SecuritySettingConfiguration
from understudy.limits import FRAME_BYTES_BEFORE_LOGIN_MAX
from understudy.protocols.core.connection import CoreConnection
from understudy.protocols.handlers import served
from understudy.runtime.base.environment import LoopTimers
from understudy.runtime.base.turn import Turn
from understudy.runtime.net.acceptor import Acceptor
from understudy.runtime.net.streams import LoopStreams
from understudy.security.authentication import Authenticator
from understudy.security.authorization import RoleSecurity
from understudy.security.password_hashes import HashParameters, PasswordHash
from understudy.security.settings import SecuritySettings
from understudy.terms import Permission
from understudy.wire.detect import Protocol

WAIT_S = 20


class LineClient:
    """One client connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def write(self, *lines: str) -> None:
        self._writer.write("".join(f"{line}\n" for line in lines).encode())

    async def read(self) -> list[str]:
        """The words of the next line; empty when the connection was closed or reset."""
        try:
            return (await asyncio.wait_for(self._reader.readline(), WAIT_S)).decode().split()
        except ConnectionResetError:
            return []

    async def ask(self, line: str) -> list[str]:
        self.write(line)
        return await self.read()

    async def message(self) -> tuple[str, str, str]:
        """Message id, delivery count and body."""
        kind, _, message_id, count, body = await self.read()
        assert kind == "MESSAGE"
        return message_id, count, body


class Node:
    """A node with the line protocol and CORE at one acceptor, and the user ``ann`` with the password ``secret``."""

    def __init__(self) -> None:
        entropy = CountingEntropy()
        world = World({"#": {"dead_letter_address": "DLA", "max_delivery_attempts": 5}})
        everything = SecuritySettingConfiguration("#", {each: frozenset({"all"}) for each in Permission})
        users = {"ann": PasswordHash.make("secret", entropy, HashParameters(n=2, r=1, p=1))}
        policy = RoleSecurity(
            Authenticator(users, {"ann": frozenset({"all"})}, entropy, world.clock), SecuritySettings([everything])
        )
        self.managed = ManagedWorld(world=world, security=policy, configuration={"security_settings": [everything]})
        self.dead, self.queue = world.queue("DLA"), world.queue("q")
        self.services = self.managed.services
        self.worker = self.managed.worker

    async def open(self, *protocols: str) -> None:
        loop = asyncio.get_running_loop()
        self.turn = Turn(loop, LoopTimers(loop))
        self.turn.work = self.managed.world.office.turn
        table = {
            Protocol.STOMP: partial(LineConnection, self.services),
            Protocol.CORE: partial(CoreConnection, self.managed.core),
        }
        configuration = AcceptorConfiguration("a", "127.0.0.1", 0, protocols=protocols)
        self.acceptor = Acceptor(configuration, self.turn, served(table, configuration.protocols), 2_000)
        await self.acceptor.bind()
        await self.acceptor.open()

    async def client(self) -> LineClient:
        port = cast(LoopStreams, self.acceptor.streams).ports[0]
        return LineClient(*await asyncio.open_connection("127.0.0.1", port))

    async def log_in(self, client: LineClient, *words: str, password: str = "secret") -> list[str]:
        """The answer to CONNECT, after the check of the password."""
        client.write(" ".join(("CONNECT", "ann", password, *words)))
        await until(lambda: bool(self.worker.jobs))
        self.check_passwords()
        return await client.read()

    def check_passwords(self) -> None:
        self.worker.work()
        self.turn.request()


async def until(condition: Callable[[], bool]) -> None:
    async def poll() -> None:
        while not condition():
            await asyncio.sleep(0.001)

    await asyncio.wait_for(poll(), WAIT_S)


def serve(test: Callable[[Node], Awaitable[None]], *protocols: str) -> None:
    async def run() -> None:
        node = Node()
        await node.open(*(protocols or ("STOMP", "CORE")))
        try:
            await test(node)
        finally:
            await node.acceptor.close()

    asyncio.run(run())


async def loaded(node: Node, *bodies: str, credit: int = 10, transacted: bool = False) -> LineClient:
    """A client that has sent messages and consumes from the queue."""
    client = await node.client()
    assert await node.log_in(client, *(["transacted"] if transacted else [])) == ["OK"]
    for body in bodies:
        assert await client.ask(f"SEND q {body}") == ["OK"]
    if transacted:
        assert await client.ask("COMMIT") == ["OK"]
    assert await client.ask("CONSUME 1 q") == ["OK"]
    client.write(f"CREDIT 1 {credit}")
    return client


def test_requests_that_come_with_the_login_wait_for_its_check() -> None:
    async def test(node: Node) -> None:
        client = await node.client()
        client.write("CONNECT ann secret", "SEND q early", "CONSUME 1 q", "CREDIT 1 1")
        await until(lambda: bool(node.worker.jobs))
        assert node.queue.message_count == 0
        node.check_passwords()
        assert [await client.read() for _ in range(3)] == [["OK"]] * 3
        assert (await client.message())[1:] == ("1", "early")

    serve(test)


def test_a_wrong_password_is_refused_and_counted() -> None:
    async def test(node: Node) -> None:
        client = await node.client()
        answer = await node.log_in(client, password="wrong")
        assert answer[0] == "ERROR"
        assert node.services.access.logins.failed_count == 1
        assert not node.services.sessions.registry.total

    serve(test)


def test_credit_counts_messages_and_drain_takes_back_the_rest() -> None:
    async def test(node: Node) -> None:
        client = await loaded(node, "a", "b", "c", credit=2)
        assert [(await client.message())[2] for _ in range(2)] == ["a", "b"]
        client.write("CREDIT 1 5", "DRAIN 1")
        assert (await client.message())[2] == "c"
        assert await client.read() == ["DRAINED", "1", "4"]

    serve(test)


@pytest.mark.parametrize(
    ("outcome", "again", "left", "dead"),
    [
        ("accept", None, 0, 0),
        ("reject", None, 0, 1),
        ("release", "1", 1, 0),
        ("failed", "2", 1, 0),
        ("elsewhere", None, 1, 0),
    ],
)
def test_each_outcome(outcome: str, again: str | None, left: int, dead: int) -> None:
    async def test(node: Node) -> None:
        client = await loaded(node, "a")
        message_id, count, body = await client.message()
        assert (count, body) == ("1", "a")
        client.write(f"SETTLE 1 {message_id} {outcome}")
        answers = [await client.read() for _ in range(1 if again is None else 2)]
        assert ["OK"] in answers
        if again is not None:
            assert ["MESSAGE", "1", message_id, again, "a"] in answers
        assert (node.queue.message_count, node.dead.message_count) == (left, dead)

    serve(test)


def test_outcomes_in_a_transaction() -> None:
    async def test(node: Node) -> None:
        client = await loaded(node, "a", "b", transacted=True)
        first, second = (await client.message())[0], (await client.message())[0]
        assert await client.ask(f"SETTLE 1 {first} reject") == ["OK"]
        assert await client.ask("ROLLBACK") == ["OK"]
        assert {(await client.message())[0] for _ in range(2)} == {first, second}
        assert await client.ask(f"SETTLE 1 {first} reject") == ["OK"]
        assert node.dead.message_count == 0
        assert await client.ask("COMMIT") == ["OK"]
        assert (node.queue.message_count, node.dead.message_count) == (1, 1)

    serve(test)


def test_management_names_the_protocol_of_each_connection() -> None:
    async def test(node: Node) -> None:
        client = await loaded(node, "a")
        (row,) = json.loads(node.managed.ask("broker", "listConnections", "{}", 1, 10))["data"]
        assert (row["protocol"], row["users"], row["sessionCount"]) == ("LINE", "ann", 1)
        assert node.managed.ask("broker", "closeConnectionsForUser", "ann") is True
        node.managed.settle()
        while await client.read():
            pass
        await until(lambda: not node.services.connections.connections)
        assert node.services.connections.session_count == 0
        assert node.queue.delivering_count == 0

    serve(test)


def test_limits_before_the_login_hold_for_every_protocol() -> None:
    async def test(node: Node) -> None:
        client = await node.client()
        client.write("CONNECT " + "x" * 2 * FRAME_BYTES_BEFORE_LOGIN_MAX)
        assert await client.read() == []
        other = await node.client()
        other.write("SEND q unasked")
        assert await other.read() == [], "no protocol begins like that"

    serve(test)


def test_an_acceptor_serves_the_protocols_of_its_url_only() -> None:
    async def test(node: Node) -> None:
        client = await node.client()
        client.write("CONNECT ann secret")
        assert await client.read() == ["ERROR"], "it begins as STOMP does, whose clients get an answer (ADR 0154)"
        assert not node.services.connections.total

    serve(test, "CORE")


def test_the_protocol_needs_no_type_of_core() -> None:
    tree = ast.parse(Path(line_protocol.__file__).read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not [name for name in imported if name is not None and ".core" in name]
