"""Goal: the management port gives what the contract says to whom it may, and survives the rest.

Method: the real server on loopback with a fake node; malformed requests are written to sockets byte by byte.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import aiohttp
import pytest
import uvloop
from yarl import URL

from understudy.errors import ConfigError, ManagementError
from understudy.limits import HTTP_BODY_BYTES_MAX
from understudy.management.doors import openapi
from understudy.management.doors.http import COLLECTIONS, Collection
from understudy.management.model.figure import figures
from understudy.management.model.node import Promotion, Server
from understudy.management.model.queues import Message
from understudy.management.view import ServersView
from understudy.runtime.management import http
from understudy.runtime.management.http import ManagementServer
from understudy.runtime.management.listener import ManagementListener
from understudy.testing.fake_node import FakeNodeView, fake_item, fake_queue

TOKEN = "a-token-of-some-length"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}

Test = Callable[[ManagementServer, FakeNodeView], Awaitable[None]]


def serve(
    test: Test,
    *,
    deadline_ms: int = 5_000,
    token_deadline_ms: int = 5_000,
    token: str = TOKEN,
    view: FakeNodeView | None = None,
    servers: ServersView | None = None,
) -> None:
    """Run a test against a server of its own."""

    async def run() -> None:
        node = view or FakeNodeView()
        listener = ManagementListener("127.0.0.1", 0, token)
        server = ManagementServer(node, listener, servers, deadline_ms=deadline_ms, token_deadline_ms=token_deadline_ms)
        await server.start()
        try:
            await asyncio.wait_for(test(server, node), 20)
        finally:
            await server.stop()
            await server.stop()
        assert not server.connections

    # the broker runs on uvloop, tools and the simulation on asyncio's own
    asyncio.run(run())
    uvloop.run(run())


async def ask(
    server: ManagementServer, method: str, path: str, headers: dict[str, str] | None = None, data: bytes | None = None
) -> tuple[int, Any, dict[str, str]]:
    url = URL(f"http://127.0.0.1:{server.listener.port}{path}", encoded=True)
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, headers=AUTHORIZED if headers is None else headers, data=data) as response,
    ):
        text = await response.text()
        is_json = response.content_type == "application/json" and text
        return response.status, json.loads(text) if is_json else text, dict(response.headers)


async def raw(server: ManagementServer, data: bytes) -> bytes:
    """Everything the server answers to these bytes until it closes, or resets because of unread bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.listener.port)
    answer = b""
    try:
        writer.write(data)
        while piece := await reader.read(65536):
            answer += piece
    except ConnectionError:
        # a broken pipe, if the server's end came before its reset
        pass
    finally:
        writer.close()
    return answer


def test_health_needs_no_token() -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        assert (await ask(server, "GET", "/health/live", {}))[:2] == (200, {"status": "live"})
        ready = await ask(server, "GET", "/health/ready", {})
        assert ready[0] == 200
        assert isinstance(ready[1], dict)
        assert ready[1].items() >= {"ready": True, "state": "active", "reason": None, "protected": True}.items()
        node.change(state="starting")
        assert (await ask(server, "GET", "/health/ready", {}))[0] == 503

    serve(test)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": TOKEN},
    ],
)
def test_without_the_right_token_everything_is_refused(headers: dict[str, str]) -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        for method, path in (
            ("GET", "/api/v1/node"),
            ("GET", "/metrics"),
            ("POST", "/api/v1/node/stop"),
            ("GET", "/api/v1/openapi.json"),
            ("GET", "/no/such"),
            ("GET", "//health/live"),
        ):
            status, body, answer = await ask(server, method, path, headers)
            assert (status, body["error"]["code"]) == (401, "authentication-failed"), path
            assert answer["WWW-Authenticate"].startswith("Bearer")
        assert node.stops == []

    serve(test)


def test_a_server_without_a_token_refuses_every_request() -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        for headers in ({"Authorization": "Bearer "}, {"Authorization": "Bearer"}, {}, AUTHORIZED):
            assert (await ask(server, "GET", "/api/v1/node", headers))[0] == 401
        assert (await ask(server, "GET", "/health/live", {}))[0] == 200

    serve(test, token="")


def test_the_node_its_queues_and_its_metrics() -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        status, body, headers = await ask(server, "GET", "/api/v1/node")
        assert (status, body["name"], body["queues"][1]["name"]) == (200, "node-a", "orders")
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert headers["Server"] == "understudy"
        assert not [name for name in headers if name.lower().startswith("access-control")]
        assert (await ask(server, "GET", "/api/v1/queues/a%2Fb%20c"))[1]["message_count"] == 7
        status, body, _ = await ask(server, "GET", "/api/v1/queues/none")
        assert (status, body["error"]["code"]) == (404, "queue-not-found")
        status, text, _ = await ask(server, "GET", "/metrics")
        assert status == 200
        assert "understudy_epoch 3.0" in text
        assert "understudy_process_resident_memory_bytes" in text

    serve(test, view=FakeNodeView(items={"queues": [fake_queue("orders"), fake_queue("a/b c")]}))


def name_of(collection: Collection) -> str:
    """The name of the item of ``named``."""
    item = named(collection)
    return ":".join(str(getattr(item, name)) for name in collection.key)


def named(collection: Collection) -> Any:
    """An item whose key is ``x``, or ``x:0`` with a number."""
    types = {name: figures(collection.kind)[name].type for name in collection.key}
    return fake_item(collection.kind, **{name: 0 if type_ is int else "x" for name, type_ in types.items()})


def test_every_documented_path_is_served() -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        _, served, _ = await ask(server, "GET", "/api/v1/openapi.json")
        assert served == openapi.document(node.node().version)
        bodies = {
            "/api/v1/invoke": b'{"resource": "broker", "operation": "getNodeID"}',
            "/api/v1/node/promote": b'{"accept_data_loss": true}',
            "/api/v1/servers/start": b'{"name": "stopped"}',
        }
        node.promoted = Promotion("n", 3, None, 4)
        names = {f"{each.path}/{{name}}": name_of(each) for each in COLLECTIONS.values()}
        node.items |= {name: [named(each)] for name, each in COLLECTIONS.items()}
        for path, item in served["paths"].items():
            for method, operation in item.items():
                data = bodies.get(path, b"")
                place = path.replace("{name}", names.get(path, "x")).replace("{id}", "7")
                status, _, _ = await ask(server, method.upper(), place, data=data)
                assert str(status) in operation["responses"], (method, path, status)
                assert status < 300

    serve(test, servers=SomeServers())


class SomeServers:
    """Servers of a process, of which one runs and one has ended."""

    def all(self) -> list[Server]:
        return [Server("runs", "active", "http://127.0.0.1:1"), Server("stopped", "stopped", None)]

    def start(self, name: str) -> None:
        if name != "stopped":
            raise ManagementError(f"server {name!r} is active")


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b'{"name": "stopped"}', 202, ""),
        (b'{"name": "runs"}', 422, "is active"),
        (b'{"name": 1}', 400, "is expected"),
        (b'{"name": "runs", "more": 1}', 400, "is expected"),
        (b"", 400, "is expected"),
        (b"{", 400, "Expecting"),
    ],
)
def test_a_server_of_the_process_is_started_or_the_answer_says_why_not(body: bytes, status: int, says: str) -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        answer = await ask(server, "POST", "/api/v1/servers/start", data=body)
        assert answer[0] == status
        assert says in str(answer[1])

    serve(test, servers=SomeServers())


def test_a_node_that_is_alone_is_the_only_server() -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        _, found, _ = await ask(server, "GET", "/api/v1/servers")
        assert found == {
            "servers": [{"name": node.node().name, "state": node.node().ha.state, "http_url": server.listener.url}]
        }
        refused = await ask(server, "POST", "/api/v1/servers/start", data=b'{"name": "n"}')
        assert refused[0] == 422

    serve(test)


def test_the_reasons_of_a_queue_and_of_a_message_are_those_of_the_operation() -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        for path, parameters in (("explain", ()), ("messages/7/explain", (7,))):
            assert (await ask(server, "GET", f"/api/v1/queues/orders/{path}"))[0] == 200
            asked = node.invocations[-1]
            assert (asked.resource, asked.name, asked.parameters) == ("queue.orders", "listWaitReasons", parameters)
        assert (await ask(server, "GET", "/api/v1/queues/missing/explain"))[0] == 404
        assert (await ask(server, "POST", "/api/v1/queues/orders/explain"))[0] == 405
        assert (await ask(server, "GET", "/api/v1/queues/orders/messages/x/explain"))[0] == 404

    serve(test)


@pytest.mark.parametrize("path", ["messages", "explain", "messages/7/explain"])
def test_a_node_that_is_not_active_denies_no_queue(path: str) -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        for state, expected in (("active", (404, "queue-not-found")), ("passive", (503, "not-active"))):
            node.change(state=state)
            status, body, _ = await ask(server, "GET", f"/api/v1/queues/elsewhere/{path}")
            assert (status, body["error"]["code"]) == expected

    serve(test)


@pytest.mark.parametrize(("body", "failover"), [(b"", False), (b'{"failover": true}', True), (b"{}", False)])
def test_stop_is_accepted_and_begun(body: bytes, failover: bool) -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        answer = await ask(server, "POST", "/api/v1/node/stop", data=body)
        assert answer[:2] == (202, {"stopping": True, "failover": failover})
        assert node.stops == [failover]

    serve(test)


@pytest.mark.parametrize("body", [b"x", b"[]", b'{"failover": 1}', b"\xff\xfe", b"[" * 100_000, b'{"failover"'])
def test_a_stop_that_cannot_be_read_stops_nothing(body: bytes) -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        status, answer, _ = await ask(server, "POST", "/api/v1/node/stop", data=body)
        assert (status, answer["error"]["code"]) == (400, "bad-request")
        assert node.stops == []

    serve(test)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"accept_data_loss": false}', b'{"accept_data_loss": true, "x": 1}'])
def test_a_promotion_needs_the_consent(body: bytes) -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        status, answer, _ = await ask(server, "POST", "/api/v1/node/promote", data=body)
        assert (status, answer["error"]["code"]) == (400, "bad-request")

    serve(test)


def test_a_promotion_answers_with_its_record_or_the_reason_of_the_refusal() -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        body = b'{"accept_data_loss": true}'
        assert (await ask(server, "POST", "/api/v1/node/promote", data=body))[0] == 422
        node.promoted = Promotion("n", 3, None, 4, 5)
        record = {"node_id": "n", "before": 3, "newest_known": None, "sequence": 4, "wall_ms": 5}
        assert (await ask(server, "POST", "/api/v1/node/promote", data=body))[:2] == (200, record)

    serve(test)


def test_an_activation_is_requested_or_refused_with_the_reason() -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        assert (await ask(server, "POST", "/api/v1/node/activate", data=b'{"x": 1}'))[0] == 400
        node.change(state="stopping")
        status, answer, _ = await ask(server, "POST", "/api/v1/node/activate", data=b"")
        assert (status, answer["error"]["message"]) == (422, "the node does not activate: the node is stopping")
        node.change(state="passive")
        assert (await ask(server, "POST", "/api/v1/node/activate", data=b"{}"))[:2] == (202, {"activating": True})

    serve(test)


def test_operations_of_management_over_messages() -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        called = b'{"resource": "broker", "operation": "createAddress", "parameters": ["a", null]}'
        assert (await ask(server, "POST", "/api/v1/invoke", data=called))[:2] == (
            200,
            {"result": ["createAddress", "a", None]},
        )
        await ask(server, "POST", "/api/v1/invoke", data=b'{"resource": "broker", "attribute": "NodeID"}')
        assert [(each.name, each.is_attribute) for each in node.invocations] == [
            ("createAddress", False),
            ("NodeID", True),
        ]
        status, body, _ = await ask(server, "POST", "/api/v1/invoke", data=b'{"resource": "x", "operation": "y"}')
        assert (status, body["error"]) == (422, {"code": "management", "message": "no resource 'x'"})
        node.change(state="passive")
        status, body, _ = await ask(server, "POST", "/api/v1/invoke", data=called)
        assert (status, body["error"]["code"]) == (503, "not-active")

    serve(test)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{", b'{"resource": "broker"}', b'{"resource": 1, "operation": "x"}', b"[" * 100_000,
        b'{"resource": "x", "attribute": 1}', b'{"resource": "x", "operation": "y", "alien": 1}',
        b'{"resource": "broker", "operation": "x", "parameters": {}}',
    ],
)  # fmt: skip
def test_an_invocation_that_cannot_be_read(body: bytes) -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        status, answer, _ = await ask(server, "POST", "/api/v1/invoke", data=body)
        assert (status, answer["error"]["code"]) == (400, "bad-request")
        assert node.invocations == []

    serve(test)


def test_an_oversize_body_is_refused_declared_or_not() -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        head = f"POST /api/v1/node/stop HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n".encode()
        declared = await raw(server, head + b"Content-Length: %d\r\n\r\n{" % (HTTP_BODY_BYTES_MAX + 1))
        assert b" 413 " in declared.splitlines()[0]
        chunk = b"%x\r\n" % 65536 + b" " * 65536 + b"\r\n"
        chunked = await raw(
            server, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * (HTTP_BODY_BYTES_MAX // 65536 + 1)
        )
        assert chunked == b"" or b" 413 " in chunked.splitlines()[0]
        assert node.stops == []

    serve(test)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/api/v1/node", "HEAD, GET"),
        ("DELETE", "/api/v1/queues/orders", "HEAD, GET"),
        ("GET", "/api/v1/node/stop", "POST"),
        ("GET", "/api/v1/invoke", "POST"),
        ("PUT", "/metrics", "HEAD, GET"),
        ("POST", "/health/live", "HEAD, GET"),
        ("OPTIONS", "/api/v1/node", "HEAD, GET"),
    ],
)
def test_wrong_methods(method: str, path: str, allowed: str) -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        status, body, headers = await ask(server, method, path)
        assert (status, body["error"]["code"], headers["Allow"]) == (405, "method-not-allowed", allowed)

    serve(test)


@pytest.mark.parametrize("path", ["/", "/api/v1", "/api/v1/node/", "/api/v1/queue/x", "/health/safe", "/../etc/passwd"])
def test_unknown_paths(path: str) -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        status, body, _ = await ask(server, "GET", path)
        assert (status, body["error"]["code"]) == (404, "not-found")

    serve(test)


def test_head_has_no_body() -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        assert (await ask(server, "HEAD", "/health/live", {}))[:2] == (200, "")

    serve(test)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00\x00\x10garbage\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /health/live HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"GET /health/live HTTP/1.1\r\nHost: x\r\nContent-Length: 1_0\r\n\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
    ],
)
def test_garbage_is_answered_as_json_or_cut_off(data: bytes) -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        answer = await raw(server, data)
        if answer:
            head, _, body = answer.partition(b"\r\n\r\n")
            assert b" 400 " in head.splitlines()[0]
            assert json.loads(body)["error"]["code"] == "bad-request"
        assert (await ask(server, "GET", "/health/live", {}))[0] == 200

    serve(test)


def test_a_connection_serves_one_request() -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        answer = await raw(server, b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
        assert answer.count(b"HTTP/1.1 200") == 1

    serve(test)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GET /health/live HT",
        f"POST /api/v1/node/stop HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Content-Length: 20\r\n\r\n{".encode(),
    ],
)
def test_a_slow_request_is_cut_off_at_the_deadline(data: bytes) -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        assert b"HTTP/1.1 2" not in await raw(server, data)
        assert node.stops == []

    serve(test, deadline_ms=200, token_deadline_ms=200)


def test_connections_are_counted_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "HTTP_CONNECTIONS_MAX", 2)

    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        idle = [await asyncio.open_connection("127.0.0.1", server.listener.port) for _ in range(2)]
        assert b" 200 " in await raw(server, b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        with suppress(ConnectionError):
            assert await idle[0][0].read() == b"", "the oldest was closed"
        assert len(server.connections) <= 2
        idle[1][1].write(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 200 " in await idle[1][0].read()
        for _, writer in idle:
            writer.close()

    serve(test)


def test_those_with_the_token_leave_some_connections_to_health(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not displaced either."""
    monkeypatch.setattr(http, "HTTP_CONNECTIONS_MAX", 3)
    monkeypatch.setattr(http, "HTTP_AUTHENTICATED_MAX", 2)
    head = (
        f"POST /api/v1/node/stop HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 2\r\n\r\n"
    ).encode()

    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        slow = [await asyncio.open_connection("127.0.0.1", server.listener.port) for _ in range(2)]
        for _, writer in slow:
            writer.write(head)
        while server.strangers or len(server.connections) < 2:
            await asyncio.sleep(0)
        strangers = [await asyncio.open_connection("127.0.0.1", server.listener.port) for _ in range(5)]
        assert b" 200 " in await raw(server, b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 503 " in await raw(server, head + b"{}")
        for reader, writer in slow:
            writer.write(b"{}")
            assert b" 202 " in await reader.read()
        for _, writer in (*slow, *strangers):
            writer.close()

    serve(test)


def test_the_deadline_before_the_token_is_shorter() -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        assert await raw(server, b"GET /health/live HT") == b""
        assert (await ask(server, "GET", "/api/v1/node"))[0] == 200

    serve(test, token_deadline_ms=200)


def test_a_failing_view_is_one_bad_answer() -> None:
    class Broken(FakeNodeView):
        def rows(self, collection: str) -> Any:
            raise KeyError(collection)

    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        status, body, _ = await ask(server, "GET", "/api/v1/queues/x")
        assert (status, body["error"]["code"]) == (500, "internal")
        assert (await ask(server, "GET", "/health/live", {}))[0] == 200

    serve(test, view=Broken())


def test_a_taken_port_is_a_configuration_error() -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        with pytest.raises(ConfigError, match="cannot listen"):
            await ManagementServer(node, ManagementListener("127.0.0.1", server.listener.port, TOKEN)).start()

    serve(test)


def test_a_connection_made_before_the_server_starts_is_answered() -> None:
    async def run() -> None:
        listener = ManagementListener("127.0.0.1", 0, TOKEN)
        listener.listen()
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        server = ManagementServer(FakeNodeView(), listener)
        await server.start()
        assert (await asyncio.wait_for(reader.read(), 20)).startswith(b"HTTP/1.1 200 ")
        writer.close()
        await server.stop()
        assert not listener.sockets

    asyncio.run(run())
    uvloop.run(run())


def test_pages_and_single_items_of_a_collection() -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        node.items["queues"] = [fake_queue(f"q{number}", message_count=number) for number in range(5)]
        status, page, _ = await ask(server, "GET", "/api/v1/queues?size=2&sort=-message_count&filter=message_count%3C4")
        assert (status, page["count"], [each["name"] for each in page["items"]]) == (200, 4, ["q3", "q2"])
        assert (await ask(server, "GET", "/api/v1/queues/q4"))[1]["message_count"] == 4
        for query, says in (("size=0", "from 1 to 500"), ("filter=x%3D1", "unknown field"), ("colour=red", "unknown")):
            status, body, _ = await ask(server, "GET", f"/api/v1/queues?{query}")
            assert (status, body["error"]["code"]) == (400, "bad-request")
            assert says in body["error"]["message"]
        status, body, _ = await ask(server, "GET", "/api/v1/sessions/none")
        assert (status, body["error"]) == (404, {"code": "not-found", "message": "no session 'none' here"})

    serve(test)


def test_a_page_of_messages() -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        node.messages = [Message(message_id=number, text="x") for number in range(3)]
        status, page, _ = await ask(server, "GET", "/api/v1/queues/orders/messages?page=2&size=2")
        assert (status, page["count"], [each["message_id"] for each in page["items"]]) == (200, 7, [2])
        assert (await ask(server, "GET", "/api/v1/queues/orders/messages?filter=a%3D1"))[1]["count"] is None
        assert (await ask(server, "GET", "/api/v1/queues/none/messages"))[0] == 404
        assert (await ask(server, "GET", "/api/v1/queues/orders/messages?size=x"))[0] == 400
        node.change(state="passive")
        assert (await ask(server, "GET", "/api/v1/queues/orders/messages"))[0] == 503

    serve(test)


@pytest.mark.parametrize("content_type", ["multipart/form-data; boundary=x", "application/xml"])
def test_a_body_of_another_type_is_refused_with_a_sentence(content_type: str) -> None:
    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        headers = {**AUTHORIZED, "Content-Type": content_type}
        status, body, _ = await ask(server, "POST", "/api/v1/node/stop", headers, b"{}")
        assert (status, body["error"]["code"]) == (415, "unsupported-media-type")
        assert "send application/json" in body["error"]["message"]
        assert node.stops == []

    serve(test)


@pytest.mark.parametrize("expect", ["100-continue", "something"])
@pytest.mark.parametrize("line", ["POST /api/v1/node/stop", "GET /api/v1/node/stop", "POST /nowhere"])
def test_nothing_is_asked_for_before_the_token(line: str, expect: str) -> None:
    """A client that waits for 100 Continue gets the answer instead, whatever it asks for."""

    async def test(server: ManagementServer, node: FakeNodeView) -> None:
        head = f"{line} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: {expect}\r\n\r\n".encode()
        assert (await raw(server, head)).startswith(b"HTTP/1.1 401")

    serve(test)
