"""The management API over HTTP: a thin shell around ``understudy.management.doors``.

It runs on the loop of the node, in every state of the node. Access is closed by default: every resource except
``/health/*`` requires the bearer token, a host that is not loopback requires ``allow_remote``, and
no response allows another origin. A connection serves one request with a deadline for all of it,
so that neither a slow head, a slow body nor a slow reader can hold it (docs/operate/security.md, class 14). The
deadline is shorter before the token, and connections without one evict each other, so that ``/health`` answers
whatever their number.

Not here: TLS; put a terminating proxy before it or keep it on loopback.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from hmac import compare_digest
from typing import Any, Final, cast

from aiohttp import hdrs, web
from aiohttp.http import RawRequestMessage
from multidict import CIMultiDictProxy

from understudy.errors import BrokerError
from understudy.limits import HTTP_BODY_BYTES_MAX
from understudy.management.doors import http as door
from understudy.management.operations.invocation import REQUEST_ID_MAX
from understudy.management.view import NodeView, ServersView
from understudy.runtime.management.configuration_cli import ConfigurationCli
from understudy.runtime.management.listener import ManagementListener
from understudy.runtime.management.requests import (
    HEADERS,
    REQUEST_ID,
    REQUEST_ID_HEADER,
    Requests,
    encoded,
    refuse,
    too_large,
    wrong_method,
)
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
#: Interval in s at which refused tokens are logged.
REFUSALS_TOLD_S: Final = 5.0

_Next = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ManagementServer:
    """Serves one node's management API.

    Args:
        view: The node, read at every request.
        listener: Address and token.
        servers: Servers of the process; None: the node is alone.
        configuration: Requests of the management CLI; None: they are not served.
        deadline_ms: Time from the token to the last byte of the answer.
        token_deadline_ms: Time from the beginning of a connection to its token.
    """

    def __init__(
        self,
        view: NodeView,
        listener: ManagementListener,
        servers: ServersView | None = None,
        configuration: ConfigurationCli | None = None,
        *,
        deadline_ms: int = REQUEST_DEADLINE_MS,
        token_deadline_ms: int = TOKEN_DEADLINE_MS,
    ) -> None:
        self.view = view
        self.listener = listener
        self.deadline_ms = deadline_ms
        self.token_deadline_ms = token_deadline_ms
        self.connections: set[_HttpConnection] = set()
        self.strangers: dict[_HttpConnection, None] = {}
        """Connections that have not sent the token, the oldest first."""
        self._requests = Requests(view, listener, servers)
        self._configuration = configuration
        self._error_texts = ErrorTexts("M")
        self._refused = 0
        self._refusals_told_s = -REFUSALS_TOLD_S
        self._servers: list[asyncio.Server] = []
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Serve the connections of the listener, which is bound first if it was not before.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        if not self.listener.sockets:
            self.listener.listen()
        loop = asyncio.get_running_loop()
        runner = self._runner = web.AppRunner(self._application(), shutdown_timeout=SHUTDOWN_MS / 1000)
        await runner.setup()
        protocol = runner.server
        assert protocol is not None, "an application that is set up has its server"
        protocol.request_factory = _without_expectation(protocol.request_factory)
        for listening in self.listener.sockets:
            self._servers.append(
                await loop.create_server(lambda: _HttpConnection(self, protocol, loop), sock=listening)
            )
        log.info("management listens", extra={"host": self.listener.host, "port": self.listener.port})

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[self._answer_errors, self._authenticate, self._check_body])
        application.on_response_prepare.append(_complete)
        for route in door.all_routes():
            application.router.add_route(route.method, route.path, self._requests.handler(route))
            if route.method == "GET":
                application.router.add_route("HEAD", route.path, self._requests.handler(route))
        if self._configuration is not None:
            # the path of GET is an address of any length
            application.router.add_route("POST", "/management", self._configuration.post)
            application.router.add_route("GET", "/management{address:(?:/.*)?}", self._configuration.get)
        return application

    async def stop(self) -> None:
        """Stop listening, wait briefly for pending requests, close. Does nothing if not started."""
        if self._runner is None:
            return
        for server in self._servers:
            server.close()
        await self._runner.cleanup()
        for connection in list(self.connections):
            connection.expire()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()
        self.listener.close()
        self._runner = None

    # --- middleware ------------------------------------------------------------------------------

    @web.middleware
    async def _answer_errors(self, request: web.Request, handler: _Next) -> web.StreamResponse:
        """Answer errors in JSON. Every response ends its connection."""
        response: web.StreamResponse
        request[REQUEST_ID] = _request_id(request)
        try:
            response = await handler(request)
        except web.HTTPMethodNotAllowed as error:
            response = wrong_method(error.allowed_methods)
        except web.HTTPNotFound:
            response = refuse(404, "not-found", "no such resource")
        except BrokerError as error:
            response = refuse(500, error.code, self._error_texts.remote(error))
        except Exception:
            # root of a task: an error in a response must not stop the node
            log.exception("management request failed", extra={"path": request.path, "request": request[REQUEST_ID]})
            response = refuse(500, "internal", "the request failed; details are in the log")
        response.force_close()
        return response

    @web.middleware
    async def _authenticate(self, request: web.Request, handler: _Next) -> web.StreamResponse:
        """Require the token, and limit the number of requests with it, except for ``/health/*``."""
        if request.rel_url.raw_path.startswith("/health/"):
            return await handler(request)
        if not self._authorized(request):
            self._note_refusal(request.remote)
            response = refuse(401, "authentication-failed", "the bearer token is missing or wrong")
            response.headers["WWW-Authenticate"] = 'Bearer realm="understudy"'
            return response
        if not cast(_HttpConnection, request.protocol).authenticate():
            return refuse(503, "limit-exceeded", f"{HTTP_AUTHENTICATED_MAX} requests are being served, try again")
        return await handler(request)

    @web.middleware
    async def _check_body(self, request: web.Request, handler: _Next) -> web.StreamResponse:
        """Refuse bodies that are too large, compressed, or of another type than JSON."""
        if request.content_length is not None and request.content_length > HTTP_BODY_BYTES_MAX:
            return too_large()
        encodings = request.headers.getall("Content-Encoding", ())
        if any(each.strip().lower() not in ("", "identity") for each in encodings):
            return encoded(encodings)
        if request.can_read_body and request.content_type not in _ACCEPTED:
            return refuse(
                415, "unsupported-media-type", f"{request.content_type} is not supported: send application/json"
            )
        return await handler(request)

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


#: Types of bodies that are read as JSON: the others are what clients send that name no type.
_ACCEPTED: Final = frozenset(
    {"application/json", "application/octet-stream", "application/x-www-form-urlencoded", "text/plain"}
)


def _without_expectation(make: Callable[..., web.BaseRequest]) -> Callable[..., web.BaseRequest]:
    """A maker of requests that leaves the header Expect out.

    aiohttp answers it before any middleware. A body without the right token is not asked for, and a client that waits
    for 100 Continue gets the answer to its request instead.
    """

    def made(message: RawRequestMessage, *others: Any) -> web.BaseRequest:
        if hdrs.EXPECT in message.headers:
            headers = message.headers.copy()
            headers.popall(hdrs.EXPECT)
            message = message._replace(headers=CIMultiDictProxy(headers))
        return make(message, *others)

    return made


def _request_id(request: web.BaseRequest) -> str:
    """The id that the client has given its request, or a new one."""
    given = request.headers.get(REQUEST_ID_HEADER, "")
    if 0 < len(given) <= REQUEST_ID_MAX and given.isascii() and given.isprintable():
        return given
    return secrets.token_hex(6)


async def _complete(request: web.Request, response: web.StreamResponse) -> None:
    """Give every response the headers that protect its reader, and end its connection."""
    response.headers.update(HEADERS)
    if REQUEST_ID in request:
        response.headers[REQUEST_ID_HEADER] = request[REQUEST_ID]


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
        # the transport of uvloop is an ``asyncio.Transport`` without being a subclass
        self._socket = cast(asyncio.Transport, transport)
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
        """Remove the connection from the counted ones."""
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
