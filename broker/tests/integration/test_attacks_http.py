"""The management port against web attacks (docs/operate/security.md, class 11): every answer stays the server's own.

Method: the real server on loopback with a fake node, requests written byte by byte.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable

import pytest

from understudy.limits import HTTP_BODY_BYTES_MAX
from understudy.management.view import NodeView
from understudy.runtime.management.http import HTTP_HEADER_BYTES_MAX, ManagementServer
from understudy.runtime.management.listener import ManagementListener
from understudy.testing.fake_node import FakeNodeView, fake_queue

TOKEN = "a-token-of-some-length"
LINES = f"Host: x\r\nAuthorization: Bearer {TOKEN}\r\n"


def serve(test: Callable[[ManagementServer], Awaitable[None]], view: NodeView | None = None) -> None:
    async def run() -> None:
        server = ManagementServer(view or FakeNodeView(), ManagementListener("127.0.0.1", 0, TOKEN), deadline_ms=3_000)
        await server.start()
        try:
            await asyncio.wait_for(test(server), 30)
        finally:
            await server.stop()

    asyncio.run(run())


async def raw(server: ManagementServer, data: bytes) -> bytes:
    """Everything the server answers until it closes, or resets because of unread bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.listener.port)
    answer = b""
    try:
        writer.write(data)
        while piece := await reader.read(65536):
            answer += piece
    except ConnectionError:
        pass
    finally:
        writer.close()
    return answer


def request(method: str, path: str, more: str = "", lines: str = LINES) -> bytes:
    return f"{method} {path} HTTP/1.1\r\n{lines}{more}\r\n".encode("utf-8", "surrogateescape")


def status(answer: bytes) -> int:
    found = re.match(rb"HTTP/1\.[01] (\d{3}) ", answer)
    return int(found[1]) if found else 0


TRICKS = [
    "/api/v1/../v1/node", "/api/v1/%2e%2e/v1/node", "//api/v1/node", "/api/v1/node/", "/API/V1/NODE", "/api/v1/node;x",
    "/health/../api/v1/node", "/health/%2e%2e/api/v1/node", "/health/..%2fapi/v1/node", "/health//../metrics",
    "/../../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/api/v1/queues/../../node", "/api/v1/queues/%2e%2e%2fnode",
    "/api/v1/queues/..%5c..%5cetc", "/api/v1/node%00", "/api/v1/node%0d%0aX: y", "*", "http://other/api/v1/node",
]  # fmt: skip


@pytest.mark.parametrize("path", TRICKS)
def test_no_path_leads_past_the_token(path: str) -> None:
    """Without a token a path gets health or nothing, however it is written."""

    async def test(server: ManagementServer) -> None:
        answer = await raw(server, request("GET", path, lines="Host: x\r\n"))
        # what begins like health is looked for and not found
        assert status(answer) in (400, 401, 404), answer
        assert b"node_id" not in answer
        assert b"understudy_" not in answer
        assert b"root:" not in answer

    serve(test)


@pytest.mark.parametrize("path", TRICKS)
def test_no_path_reaches_a_file_or_another_resource(path: str) -> None:
    async def test(server: ManagementServer) -> None:
        answer = await raw(server, request("GET", path))
        assert b"root:" not in answer
        # an absolute-form target names the very resource (RFC 9112 s. 3.2.2)
        expected = (200,) if path.startswith("http:") else (400, 404)
        assert status(answer) in expected, answer

    serve(test)


@pytest.mark.parametrize(
    "method", ["TRACE", "CONNECT", "PROPFIND", "get", "G\x00T", "PO ST", "DELETE", "OPTIONS", "X" * 200]
)
def test_methods_that_are_not_served(method: str) -> None:
    async def test(server: ManagementServer) -> None:
        answer = await raw(server, request(method, "/api/v1/node/stop"))
        assert status(answer) in (400, 404, 405), answer
        assert TOKEN.encode() not in answer, "TRACE and the like give nothing back"
        assert not server.view.stops  # type: ignore[attr-defined]

    serve(test)


def test_no_answer_opens_the_port_to_other_origins() -> None:
    """No CORS header, whatever the origin, preflight included; no cookie."""

    async def test(server: ManagementServer) -> None:
        for method, path in (("GET", "/api/v1/node"), ("OPTIONS", "/api/v1/node/stop"), ("GET", "/health/live")):
            more = "Origin: https://evil.example\r\nAccess-Control-Request-Method: POST\r\nCookie: a=b\r\n"
            answer = (await raw(server, request(method, path, more))).lower()
            assert b"access-control-" not in answer
            assert b"evil.example" not in answer
            assert b"set-cookie" not in answer

    serve(test)


def test_the_host_header_decides_nothing() -> None:
    async def test(server: ManagementServer) -> None:
        for host in ("evil.example", "evil.example:1", "", "a" * 2000, "[::1"):
            answer = await raw(server, request("GET", "/health/live", lines=f"Host: {host}\r\n"))
            assert status(answer) in (200, 400), answer
            assert b"evil" not in answer

    serve(test)


def test_a_name_is_never_markup() -> None:
    """A queue called like a script: JSON with nosniff and a policy that runs nothing; never HTML."""
    name = "<script>alert(1)</script>\"'\r\nX-Evil: 1"

    async def test(server: ManagementServer) -> None:
        path = "/api/v1/queues/%3Cscript%3Ealert(1)%3C/script%3E%22'%0d%0aX-Evil:%201"
        for each in (path, "/api/v1/node", "/metrics", path + "x", "/%3Cscript%3E"):
            answer = await raw(server, request("GET", each))
            head, _, body = answer.partition(b"\r\n\r\n")
            assert b"text/html" not in head
            assert b"x-content-type-options: nosniff" in head.lower()
            assert b"default-src 'none'" in head
            assert b"x-evil" not in head.lower()
            assert b"application/json" in head or b"text/plain" in head
            if b"application/json" in head:
                json.loads(body)

    serve(test, FakeNodeView(items={"queues": [fake_queue(name=name)]}))


@pytest.mark.parametrize(
    "flood",
    [
        "".join(f"X-{number}: 1\r\n" for number in range(20_000)),
        f"X: {'a' * 4 * HTTP_HEADER_BYTES_MAX}\r\n",
        "X: a\r\n" * 200_000,
        " folded\r\n" * 1000,
    ],
    ids=["many", "long", "same", "folded"],
)
def test_a_flood_of_headers_is_refused(flood: str) -> None:
    """And the node answers the next one."""

    async def test(server: ManagementServer) -> None:
        answer = await raw(server, request("GET", "/api/v1/node", flood))
        assert status(answer) in (0, 400, 431), answer[:200]
        assert status(await raw(server, request("GET", "/api/v1/node"))) == 200

    serve(test)


@pytest.mark.parametrize(
    "more",
    [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 1_0\r\n",
        "Content-Length: 99999999999999999999999\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\nContent-Encoding: gzip\r\n",
    ],
)
def test_lengths_that_can_be_read_two_ways_stop_nothing(more: str) -> None:
    """Request smuggling: refused, and the bytes that follow are never read as a second request."""

    async def test(server: ManagementServer) -> None:
        smuggled = request("POST", "/api/v1/node/stop")
        answer = await raw(server, request("GET", "/api/v1/node", more) + b"0\r\n\r\n" + smuggled)
        assert answer.count(b"HTTP/1.1 ") <= 1
        assert not server.view.stops  # type: ignore[attr-defined]

    serve(test)


def test_a_body_that_grows_when_unpacked_is_not_unpacked() -> None:
    """A few KiB of gzip for many MiB of JSON: the limit counts the bytes that would be held."""
    import gzip

    bomb = gzip.compress(b'{"failover": true, "x": "' + b"a" * (HTTP_BODY_BYTES_MAX * 20) + b'"}')
    assert len(bomb) < 100_000

    async def test(server: ManagementServer) -> None:
        more = f"Content-Encoding: gzip\r\nContent-Length: {len(bomb)}\r\n"
        answer = await raw(server, request("POST", "/api/v1/node/stop", more) + bomb)
        assert status(answer) == 415, answer
        assert not server.view.stops  # type: ignore[attr-defined]

    serve(test)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "GZIP", "gzip, gzip", "nonsense", "\xe9"])
@pytest.mark.parametrize("body", [b"{}", b"\x1f\x8b\x08\x00broken"])
def test_a_body_with_an_encoding_is_refused(encoding: str, body: bytes) -> None:
    async def test(server: ManagementServer) -> None:
        more = f"Content-Encoding: {encoding}\r\nContent-Length: {len(body)}\r\n"
        answer = await raw(server, request("POST", "/api/v1/node/stop", more) + body)
        assert status(answer) == 415, answer
        assert b"Accept-Encoding: identity" in answer
        assert b"send the body as it is" in answer

    serve(test)


def test_guessed_tokens_are_logged_and_refused(caplog: pytest.LogCaptureFixture) -> None:
    """Each is compared in constant time and refused; the log says so, not once for each."""

    async def test(server: ManagementServer) -> None:
        guesses = [TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "", "Bearer", TOKEN[:-1] + "\u0433", *map(str, range(50))]
        for guess in guesses:
            lines = f"Host: x\r\nAuthorization: Bearer {guess}\r\n"
            assert status(await raw(server, request("GET", "/api/v1/node", lines=lines))) in (400, 401)
        assert status(await raw(server, request("GET", "/api/v1/node"))) == 200, "no other client is locked out"

    with caplog.at_level(logging.WARNING):
        serve(test)
    told = [record for record in caplog.records if record.message == "management token refused"]
    assert 1 <= len(told) <= 3
    assert TOKEN[:-1] not in caplog.text
