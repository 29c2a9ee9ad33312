"""Any bytes of a request at the management port are answered with a documented status, and never with 500.

Method: the real server on loopback with a fake node and the right token, so that requests reach the resources.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from pathlib import Path
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.management.json_text import parse_json
from understudy.runtime.management.http import ManagementServer
from understudy.runtime.management.listener import ManagementListener
from understudy.testing.fake_node import FakeNodeView

TOKEN: Final = "a-token-of-some-length"
PAGE: Final = Path(__file__).parents[3] / "docs" / "operate" / "management-api.md"
SUCCESS: Final = {200, 202}

METHODS = st.sampled_from(["GET", "POST"]) | st.sampled_from(["HEAD", "PUT", "OPTIONS", "CONNECT", "get", "M-SEARCH"])
POSTED = ["node/stop", "node/promote", "node/activate", "invoke", "servers/start"]
PATHS = st.sampled_from([f"/api/v1/{each}" for each in POSTED]) | st.sampled_from(
    [
        "/health/live", "/health/ready", "/metrics", "/api/v1/node", "/api/v1/servers", "/api/v1/queues/orders",
        "/api/v1/queues/%ff", "/api/v1/queues/%00/explain", "/api/v1/queues/orders/messages/999999999999999999/explain",
        "/api/v1/queues/orders/messages/9999999999999999999/explain", "*", "//", "http://[::1/x", "http://x:99999999/",
        "/api/v1/node?a=%zz#f", "/\udcc3\udca9",
    ]
)  # fmt: skip
ENCODINGS = ("gzip", "GZIP", "br", "deflate", "zstd", "identity", "gzip, x")
HEADERS = st.sampled_from([f"Content-Encoding: {each}" for each in ENCODINGS]) | st.sampled_from(
    [
        *(f"Transfer-Encoding: {each}" for each in ("chunked", "gzip", "identity", "gzip, chunked", "\x0bchunked")),
        *(f"Expect: {each}" for each in ("100-continue", "something")),
        *(f"Content-Type: {each}" for each in ("text/plain", "application/json; charset=utf-7", "multipart/x", "\xff")),
        *(f"Content-Length: {each}" for each in ("-1", "1_0", "99999999999999999999")),
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13",
        "Range: bytes=0-1", "Accept: image/png", "Host: a b", "Authorization: Basic eA==", "X-A\x00: b", " X: y",
    ]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


INVOKED = st.fixed_dictionaries(
    {
        "resource": st.sampled_from(["broker", "queue.orders", "queue.\ud800", ""]),
        "operation": st.sampled_from(["x", "getX"]),
    },
    optional={"parameters": VALUES, "attribute": VALUES},
)
BODIES = st.one_of(
    st.binary(max_size=40),
    st.builds(_json, VALUES | INVOKED),
    st.builds(lambda value: gzip.compress(_json(value)), VALUES),
    st.builds(lambda value: _json(value).decode().encode("utf-16"), VALUES),
    st.sampled_from(
        [
            b"[" * 100_000, b'{"a":' * 5_000, b'{"failover": NaN}', b'{"failover": 1e999}', b"1" + b"0" * 5_000,
            b'{"failover": true, "failover": false}', b'{"name": "\\ud800"}', b'{"name": "\\u0000"}',
        ]
    ),
)  # fmt: skip


def documented() -> set[int]:
    """The statuses of errors in the page, without that of an internal error."""
    found = re.findall(r"^\| (\d{3}) \|", PAGE.read_text(), re.MULTILINE)
    return {int(each) for each in found} - {500}


async def status_of(server: ManagementServer, data: bytes) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.listener.port)
    answer = b""
    try:
        writer.write(data)
        while piece := await reader.read(65536):
            answer += piece
    except ConnectionError:
        pass  # a reset because of bytes that were not read
    finally:
        writer.close()
    found = re.match(rb"HTTP/1\.[01] (\d{3}) ", answer)
    return int(found[1]) if found else 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(METHODS, PATHS, st.lists(HEADERS, max_size=2), BODIES), min_size=1, max_size=8))
def test_every_request_gets_a_documented_status(requests: list[tuple[str, str, list[str], bytes]]) -> None:
    async def run() -> None:
        listener = ManagementListener("127.0.0.1", 0, TOKEN)
        server = ManagementServer(FakeNodeView(), listener, deadline_ms=500, token_deadline_ms=500)
        await server.start()
        try:
            for method, path, headers, body in requests:
                lines = ["Host: x", f"Authorization: Bearer {TOKEN}", f"Content-Length: {len(body)}", *headers]
                if any(each.startswith("Transfer") for each in headers):
                    del lines[2]
                    body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
                head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{line}\r\n" for line in lines) + "\r\n"
                found = await status_of(server, head.encode("latin-1", "replace") + body)
                # 0: closed without an answer, after the deadline of a request that never ends
                assert found in documented() | SUCCESS | {0}, (method, path, headers, body[:80])
        finally:
            await server.stop()

    asyncio.run(run())


@given(st.builds(_json, VALUES) | st.binary(max_size=30))
def test_json_is_read_strictly_or_refused(text: bytes) -> None:
    """A value that was read can be written as UTF-8 JSON, and its numbers fit 64 bits."""
    try:
        value = parse_json(text)
    except ValueError:
        return
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
