"""The management API over HTTP: a thin shell around ``understudy.management``.

It runs on the loop of the node, in every state of the node. Access is closed by default: every resource except
``/health/*`` requires the bearer token, a host that is not loopback requires ``allow_remote``, and
no response allows another origin. A connection serves one request with a deadline for all of it,
so that neither a slow head, a slow body nor a slow reader can hold it (docs/security.md, class 14). The deadline
is shorter before the token, and connections without one evict each other, so that ``/health`` answers
whatever their number.

Not here: TLS; put a terminating proxy before it or keep it on loopback.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from hmac import compare_digest
from typing import Final, cast
from urllib.parse import unquote

from aiohttp import web
from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from understudy.errors import BrokerError, MessageNotFound, NotActive
from understudy.ha.replication.promotion import Promotion
from understudy.limits import HTTP_BODY_BYTES_MAX
from understudy.management import controls
from understudy.management.cluster_facts import cluster_json
from understudy.management.controls import InvocationRequest, NodeView
from understudy.management.doors import openapi
from understudy.management.doors.metrics import make_registry
from understudy.management.json_text import parse_json
from understudy.management.process_facts import ServerFacts, ServersView, parse_start, servers_json
from understudy.runtime.management_listener import ManagementListener
from understudy.session.error_texts import ErrorTexts

log = logging.getLogger(__name__)
#: Requests are not logged, because of frequent scrapes.
_ACCESS_LOG: Final = logging.getLogger(f"{__name__}.access")
_ACCESS_LOG.setLevel(logging.WARNING)

#: From the token of a request to the last byte of its answer.
REQUEST_DEADLINE_MS: Final = 30_000
#: From the beginning of a connection to its token; for ``/health/*``, which needs none, to the last byte of its answer.
TOKEN_DEADLINE_MS: Final = 5_000
#: Maximum number of connections; a further one closes the oldest that has not sent the token.
HTTP_CONNECTIONS_MAX: Final = 64
#: Maximum number of connections that have sent the token; the others are for ``/health/*`` and new requests.
HTTP_AUTHENTICATED_MAX: Final = 48
#: Largest request line and largest single header. Bytes.
HTTP_HEADER_BYTES_MAX: Final = 8 * 1024
#: Time in-flight requests have to end when the server stops.
SHUTDOWN_MS: Final = 1_000
#: How often refused tokens are logged. Seconds.
REFUSALS_TOLD_S: Final = 5.0

#: Characters of a header that an answer shows.
_SHOWN: Final = 60

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Server": "understudy",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

_EXPLAINED: Final = re.compile("/api/v1/queues/(?P<name>[^/]+)(?:/messages/(?P<id>[0-9]{1,18}))?/explain")

Handler = Callable[[web.BaseRequest], web.Response]


class ManagementServer:
    """Serves one node's management API.

    Args:
        view: The node, read at every request.
        listener: Address and token.
        servers: Of its process; None: it is alone.
        deadline_ms: From the token to the last byte of the answer.
        token_deadline_ms: From the beginning of a connection to its token.
    """

    def __init__(
        self,
        view: NodeView,
        listener: ManagementListener,
        servers: ServersView | None = None,
        *,
        deadline_ms: int = REQUEST_DEADLINE_MS,
        token_deadline_ms: int = TOKEN_DEADLINE_MS,
    ) -> None:
        self.view = view
        self.listener = listener
        self._servers_view = servers
        self.deadline_ms = deadline_ms
        self.token_deadline_ms = token_deadline_ms
        self.connections: set[_HttpConnection] = set()
        self.strangers: dict[_HttpConnection, None] = {}
        """Connections that have not sent the token, the oldest first."""
        self._registry = make_registry(view)
        ProcessCollector(namespace="understudy", registry=self._registry)
        self._error_texts = ErrorTexts("M")
        self._refused = 0
        self._refusals_told_s = -REFUSALS_TOLD_S
        self._servers: list[asyncio.Server] = []
        self._protocol: web.Server | None = None
        self._posted = {
            "/api/v1/node/stop": self._stop,
            "/api/v1/node/promote": self._promote,
            "/api/v1/node/activate": self._activate,
            "/api/v1/invoke": self._invoke,
            "/api/v1/servers/start": self._start_server,
        }
        self._routes: dict[str, dict[str, Handler]] = {
            "/health/live": {"GET": self._live},
            "/health/ready": {"GET": self._ready},
            "/metrics": {"GET": self._metrics},
            "/api/v1/node": {"GET": self._node},
            "/api/v1/cluster": {"GET": self._cluster},
            "/api/v1/quarantine": {"GET": self._quarantine},
            "/api/v1/readers": {"GET": self._readers},
            "/api/v1/servers": {"GET": self._list_servers},
            "/api/v1/openapi.json": {"GET": self._openapi},
        }

    async def start(self) -> None:
        """Serve the connections of the listener, after binding it if that was not done.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        if not self.listener.sockets:
            self.listener.listen()
        loop = asyncio.get_running_loop()
        protocol = self._protocol = web.Server(self._handle)
        for listening in self.listener.sockets:
            self._servers.append(
                await loop.create_server(lambda: _HttpConnection(self, protocol, loop), sock=listening)
            )
        log.info("management listens", extra={"host": self.listener.host, "port": self.listener.port})

    async def stop(self) -> None:
        """Stop listening, wait briefly for pending requests, close. Does nothing if not started."""
        if self._protocol is None:
            return
        for server in self._servers:
            server.close()
        await self._protocol.shutdown(SHUTDOWN_MS / 1000)
        for connection in list(self.connections):
            connection.expire()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()
        self.listener.close()
        self._protocol = None

    # --- requests ------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        try:
            response = await self._route(request)
        except BrokerError as error:
            response = refuse(500, error.code, self._error_texts.remote(error))
        except Exception:
            # root of a task: an error in a response must not stop the node
            log.exception("management request failed", extra={"path": request.path})
            response = refuse(500, "internal", "the request failed; details are in the log")
        response.force_close()
        return response

    async def _route(self, request: web.BaseRequest) -> web.Response:
        path = request.rel_url.raw_path
        if not path.startswith("/health/") and not self._authorized(request):
            self._note_refusal(request.remote)
            response = refuse(401, "authentication-failed", "the bearer token is missing or wrong")
            response.headers["WWW-Authenticate"] = 'Bearer realm="understudy"'
            return response
        if not path.startswith("/health/") and not cast(_HttpConnection, request.protocol).authenticate():
            return refuse(503, "limit-exceeded", f"{HTTP_AUTHENTICATED_MAX} requests are being served, try again")
        if request.content_length is not None and request.content_length > HTTP_BODY_BYTES_MAX:
            return _too_large()
        encodings = request.headers.getall("Content-Encoding", ())
        if any(each.strip().lower() not in ("", "identity") for each in encodings):
            return _encoded(encodings)
        method = "GET" if request.method == "HEAD" else request.method
        posted = self._posted.get(path)
        if posted is not None:
            return await posted(request) if method == "POST" else _wrong_method(["POST"])
        methods = self._routes.get(path)
        explained = _EXPLAINED.fullmatch(path)
        if explained is not None:
            return await self._explain(explained) if method == "GET" else _wrong_method(["GET"])
        if methods is None and path.startswith("/api/v1/queues/"):
            methods = {"GET": self._queue}
        if methods is None:
            return refuse(404, "not-found", "no such resource")
        handler = methods.get(method)
        return handler(request) if handler is not None else _wrong_method(list(methods))

    def _authorized(self, request: web.BaseRequest) -> bool:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        equal = compare_digest(given.strip().encode("utf-8", "replace"), self.listener.token)
        return equal and bool(self.listener.token) and scheme.lower() == "bearer"

    def _note_refusal(self, peer: str | None) -> None:
        """Log wrong tokens, at most once per period."""
        self._refused += 1
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._refusals_told_s + REFUSALS_TOLD_S:
            log.warning("management token refused", extra={"peer": peer, "times": self._refused})
            self._refused, self._refusals_told_s = 0, now_s

    def _live(self, request: web.BaseRequest) -> web.Response:
        return _answer(200, controls.live_json())

    def _ready(self, request: web.BaseRequest) -> web.Response:
        body = controls.ready_json(self.view)
        return _answer(200 if body["ready"] else 503, body)

    def _cluster(self, request: web.BaseRequest) -> web.Response:
        return _answer(200, cluster_json(self.view.cluster))

    def _quarantine(self, request: web.BaseRequest) -> web.Response:
        return _answer(200, controls.quarantine_json(self.view))

    def _readers(self, request: web.BaseRequest) -> web.Response:
        return _answer(200, controls.readers_json(None if self.view.store is None else self.view.store.readers))

    def _node(self, request: web.BaseRequest) -> web.Response:
        return _answer(200, controls.node_json(self.view))

    def _openapi(self, request: web.BaseRequest) -> web.Response:
        return _answer(200, openapi.document(self.view.version))

    def _metrics(self, request: web.BaseRequest) -> web.Response:
        headers = {**_HEADERS, "Content-Type": CONTENT_TYPE_PLAIN_0_0_4}
        return web.Response(body=generate_latest(self._registry), headers=headers)

    def _queue(self, request: web.BaseRequest) -> web.Response:
        name = unquote(request.rel_url.raw_path.removeprefix("/api/v1/queues/"), errors="replace")
        queue = self.view.queue(name)
        if queue is None:
            return refuse(404, "queue-not-found", f"no queue {name!r} here")
        return _answer(200, controls.queue_json(queue))

    def _list_servers(self, request: web.BaseRequest) -> web.Response:
        if self._servers_view is not None:
            return _answer(200, servers_json(self._servers_view.facts()))
        return _answer(200, servers_json([ServerFacts(self.view.name, self.view.state, self.listener.url)]))

    async def _start_server(self, request: web.BaseRequest) -> web.Response:
        body = await _body(request)
        if body is None:
            return _too_large()
        try:
            name = parse_start(parse_json(body) if body else None)
        except ValueError as error:
            return refuse(400, "bad-request", str(error))
        log.info("start of a server requested", extra={"server": name, "peer": request.remote})
        if self._servers_view is None:
            return refuse(422, "management", "the node is alone in its process")
        try:
            self._servers_view.start(name)
        except BrokerError as error:
            return refuse(422, error.code, str(error))
        return _answer(202, {"starting": True, "name": name})

    async def _stop(self, request: web.BaseRequest) -> web.Response:
        body = await _body(request)
        if body is None:
            return _too_large()
        try:
            failover = controls.parse_stop(parse_json(body) if body else {})
        except ValueError as error:
            return refuse(400, "bad-request", str(error))
        log.info("stop requested", extra={"failover": failover, "peer": request.remote})
        self.view.request_stop(failover=failover)
        return _answer(202, {"stopping": True, "failover": failover})

    async def _promote(self, request: web.BaseRequest) -> web.Response:
        body = await _body(request)
        if body is None:
            return _too_large()
        try:
            controls.parse_promotion(parse_json(body) if body else None)
        except ValueError as error:
            return refuse(400, "bad-request", str(error))
        answered: asyncio.Future[web.Response] = asyncio.get_running_loop().create_future()

        def answer(outcome: Promotion | BrokerError) -> None:
            if answered.done():
                return
            if isinstance(outcome, BrokerError):
                answered.set_result(refuse(422, outcome.code, str(outcome)))
            else:
                answered.set_result(_answer(200, asdict(outcome)))

        log.warning("promotion requested", extra={"peer": request.remote})
        try:
            self.view.request_promotion(answer)
        except BrokerError as error:
            return refuse(422, error.code, str(error))
        return await answered

    async def _activate(self, request: web.BaseRequest) -> web.Response:
        body = await _body(request)
        if body is None:
            return _too_large()
        if body.strip() not in (b"", b"{}"):
            return refuse(400, "bad-request", "the body must be {} or empty")
        log.warning("activation requested", extra={"peer": request.remote})
        try:
            self.view.request_activation()
        except BrokerError as error:
            return refuse(422, error.code, str(error))
        return _answer(202, {"activating": True})

    async def _invoke(self, request: web.BaseRequest) -> web.Response:
        body = await _body(request)
        if body is None:
            return _too_large()
        try:
            wanted = controls.parse_invocation(parse_json(body) if body else {})
        except ValueError as error:
            return refuse(400, "bad-request", str(error))
        return await self._carry_out(wanted, lambda result: {"result": result})

    async def _explain(self, path: re.Match[str]) -> web.Response:
        """Why messages of a queue wait, or one message."""
        name, message_id = unquote(path["name"], errors="replace"), path["id"]
        if self.view.queue(name) is None:
            return refuse(404, "queue-not-found", f"no queue {name!r} here")
        parameters = () if message_id is None else (int(message_id),)
        wanted = InvocationRequest(f"queue.{name}", "listWaitReasons", is_attribute=False, parameters=parameters)
        return await self._carry_out(wanted, lambda result: result)

    async def _carry_out(self, wanted: InvocationRequest, shown: Callable[[object], object]) -> web.Response:
        answered: asyncio.Future[web.Response] = asyncio.get_running_loop().create_future()

        def answer(result: object, error: BrokerError | None) -> None:
            if not answered.done():
                if error is None:
                    answered.set_result(_answer(200, shown(result)))
                else:
                    status = 404 if isinstance(error, MessageNotFound) else 422
                    answered.set_result(refuse(status, error.code, self._error_texts.remote(error)))

        try:
            self.view.invoke(wanted, answer)
        except NotActive as error:
            return refuse(503, error.code, str(error))
        # if the node fails meanwhile there is no answer: the deadline closes the connection
        return await answered


async def _body(request: web.BaseRequest) -> bytes | None:
    """The body; None when it is too large."""
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > HTTP_BODY_BYTES_MAX:
            return None
    return bytes(body)


def _answer(status: int, body: object) -> web.Response:
    return web.Response(
        body=json.dumps(body).encode() + b"\n", status=status, headers={**_HEADERS, "Content-Type": "application/json"}
    )


def refuse(status: int, code: str, message: str) -> web.Response:
    """An error response; like every response it ends its connection."""
    response = _answer(status, controls.error_json(code, message))
    response.force_close()
    return response


def _too_large() -> web.Response:
    return refuse(413, "limit-exceeded", f"a body has at most {HTTP_BODY_BYTES_MAX} bytes")


def _encoded(encodings: Sequence[str]) -> web.Response:
    named = ", ".join(encodings)[:_SHOWN]
    response = refuse(
        415, "unsupported-encoding", f"Content-Encoding {named!a} is not supported: send the body as it is"
    )
    response.headers["Accept-Encoding"] = "identity"
    return response


def _wrong_method(allowed: list[str]) -> web.Response:
    response = refuse(405, "method-not-allowed", f"allowed here: {', '.join(allowed)}")
    response.headers["Allow"] = ", ".join(["HEAD", *allowed] if "GET" in allowed else allowed)
    return response


class _HttpConnection(web.RequestHandler):
    """One connection: aiohttp's protocol with a deadline, a limit for their number, and JSON errors."""

    __slots__ = ("_deadline", "_management", "_socket")

    def __init__(
        self,
        management: ManagementServer,
        protocol: web.Server,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(
            protocol,
            loop=loop,
            access_log=_ACCESS_LOG,
            max_line_size=HTTP_HEADER_BYTES_MAX,
            max_field_size=HTTP_HEADER_BYTES_MAX,
            lingering_time=0,
            auto_decompress=False,
        )
        self._management = management
        self._socket: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._socket = cast(asyncio.Transport, transport)  # uvloop's is one without saying so
        management = self._management
        management.connections.add(self)
        management.strangers[self] = None
        if len(management.connections) > HTTP_CONNECTIONS_MAX:
            oldest = next(iter(management.strangers))
            oldest.forget()
            oldest.expire()
        self._end_in(management.token_deadline_ms)

    def authenticate(self) -> bool:
        """Note that the token was sent. False: too many requests are being served."""
        management = self._management
        if len(management.connections) - len(management.strangers) >= HTTP_AUTHENTICATED_MAX:
            return False
        management.strangers.pop(self, None)
        self._end_in(management.deadline_ms)
        return True

    def forget(self) -> None:
        """Remove it from the counted connections."""
        self._management.connections.discard(self)
        self._management.strangers.pop(self, None)

    def _end_in(self, deadline_ms: int) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(deadline_ms / 1000, self.expire)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.forget()
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def expire(self) -> None:
        """Close the connection in any state."""
        if self._socket is not None:
            self._socket.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Response to a malformed request: JSON without details."""
        if status >= 500:
            log.error("management request failed", exc_info=exc)
        return refuse(status, "bad-request" if status < 500 else "internal", "the request cannot be understood")
