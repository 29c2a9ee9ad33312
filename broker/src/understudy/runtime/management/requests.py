"""The requests of the management API: each is answered from the view of a node.

``doors.http`` declares the requests and makes their JSON; here are bodies, statuses and waits for results. Answers
with many items are made in steps, between which the node does other work.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import sys
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar, cast
from urllib.parse import unquote

from aiohttp import web
from msgspec import to_builtins

from understudy.errors import BrokerError, MessageNotFound, NotActive, QueueNotFound
from understudy.limits import HTTP_BODY_BYTES_MAX
from understudy.management.doors import http as door
from understudy.management.doors.http import COLLECTIONS, Collection, Route
from understudy.management.json_text import parse_json
from understudy.management.model.node import Promotion, Server
from understudy.management.model.queues import Message
from understudy.management.operations.invocation import InvocationRequest
from understudy.management.view import NodeView, ServersView
from understudy.runtime.base.kept_events import KEPT
from understudy.runtime.management.listener import ManagementListener
from understudy.session.error_texts import ErrorTexts

log = logging.getLogger(__name__)

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.Response]]

#: Module with the tables of all operations.
_OPERATIONS: Final = "understudy.management.operations.declared"
#: Headers of every answer.
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Server": "understudy",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

#: Header with the id of a request: of the client, or else made by the node. The answer and the log have it.
REQUEST_ID_HEADER: Final = "X-Request-Id"
#: The id in the request.
REQUEST_ID: Final = "request_id"
#: Characters of a header that an answer shows.
_SHOWN: Final = 60


class Requests:
    """Answers the requests of ``doors.http.ROUTES`` and those for collections."""

    def __init__(self, view: NodeView, listener: ManagementListener, servers: ServersView | None) -> None:
        self._view = view
        self._listener = listener
        self._servers = servers
        self._error_texts = ErrorTexts("M")
        self._handlers: dict[str, Handler] = {
            "live": self._live,
            "ready": self._ready,
            "node": self._node,
            "stop": self._stop,
            "promote": self._promote,
            "activate": self._activate,
            "servers": self._list_servers,
            "startServer": self._start_server,
            "invoke": self._invoke,
            "cluster": self._cluster,
            "events": self._events,
            "quarantine": self._quarantine,
            "readers": self._readers,
            "messages": self._messages,
            "explainQueue": self._explain,
            "explainMessage": self._explain,
            "openapi": self._openapi,
            "metrics": self._metrics,
        }

    def handler(self, route: Route) -> Handler:
        """The function that answers a request."""
        if route.collection is None:
            return self._handlers[route.operation]
        collection = COLLECTIONS[route.collection]
        answer = self._item if route.names else self._page

        async def handle(request: web.Request) -> web.Response:
            return await answer(collection, request)

        return handle

    # --- collections -----------------------------------------------------------------------------

    async def _page(self, collection: Collection, request: web.Request) -> web.Response:
        try:
            query = door.parse_page(collection, _parameters(request))
        except ValueError as error:
            return refuse(400, "bad-request", str(error))
        if collection.name == "operations":
            await _load(_OPERATIONS)
        return json_answer(200, await _finish(door.page_text(collection, self._view.rows(collection.name), query)))

    async def _item(self, collection: Collection, request: web.Request) -> web.Response:
        if collection.name == "operations":
            await _load(_OPERATIONS)
        name = _segment(request, 4)
        found = await _finish(door.item_json(collection, self._view.rows(collection.name), name))
        if found is None:
            return refuse(404, collection.missing, f"no {collection.kind.__name__.lower()} {name!r} here")
        return answered_with(200, found)

    async def _messages(self, request: web.Request) -> web.Response:
        """A page of the waiting messages of a queue."""
        try:
            query, selector = door.parse_messages(_parameters(request))
        except ValueError as error:
            return refuse(400, "bad-request", str(error))
        name = _segment(request, 4)
        queue = await self._queue(name)
        if queue is None:
            return self._no_queue(name)
        count = None if selector is not None else queue["message_count"]
        answered: asyncio.Future[web.Response] = asyncio.get_running_loop().create_future()

        def answer(outcome: Sequence[Message] | BrokerError) -> None:
            if answered.done():
                return
            if isinstance(outcome, BrokerError):
                status = 404 if isinstance(outcome, QueueNotFound) else 422
                answered.set_result(refuse(status, outcome.code, self._error_texts.remote(outcome)))
            else:
                answered.set_result(answered_with(200, door.messages_json(query, count, outcome)))

        try:
            self._view.browse(name, selector, query.start, query.size, answer)
        except NotActive as error:
            return refuse(503, error.code, str(error))
        return await answered

    async def _queue(self, name: str) -> Any:
        return await _finish(door.item_json(COLLECTIONS["queues"], self._view.rows("queues"), name))

    def _no_queue(self, name: str) -> web.Response:
        state = self._view.node().ha.state
        if state != "active":
            # the queue may well exist, at the node that serves
            return refuse(503, NotActive.code, f"the node is {state}")
        return refuse(404, "queue-not-found", f"no queue {name!r} here")

    # --- the node --------------------------------------------------------------------------------

    async def _live(self, request: web.Request) -> web.Response:
        return answered_with(200, {"status": "live"})

    async def _ready(self, request: web.Request) -> web.Response:
        try:
            body = door.ready_json(self._view.node(), _parameters(request))
        except ValueError as error:
            return refuse(400, "bad-request", str(error))
        return answered_with(200 if body["ready"] else 503, body)

    async def _cluster(self, request: web.Request) -> web.Response:
        return answered_with(200, to_builtins(self._view.cluster()))

    async def _events(self, request: web.Request) -> web.Response:
        try:
            after, limit = door.parse_events(_parameters(request))
        except ValueError as error:
            return refuse(400, "bad-request", str(error))
        found = KEPT.after(after, self._view.node().name, limit)
        return answered_with(200, {"boot": KEPT.boot, "last": KEPT.last, "events": found})

    async def _quarantine(self, request: web.Request) -> web.Response:
        return answered_with(200, to_builtins(self._view.quarantine()))

    async def _readers(self, request: web.Request) -> web.Response:
        return answered_with(200, door.readers_json(self._view.readers()))

    async def _node(self, request: web.Request) -> web.Response:
        return json_answer(200, await _finish(door.node_text(self._view)))

    async def _openapi(self, request: web.Request) -> web.Response:
        await _load("understudy.management.doors.openapi")
        from understudy.management.doors import openapi

        return answered_with(200, openapi.document(self._view.node().version))

    async def _metrics(self, request: web.Request) -> web.Response:
        await _load("understudy.runtime.management.scrape")
        from understudy.runtime.management import scrape

        families = await _finish(scrape.families(self._view))
        # the text of many series takes long, and is made of values that do not change any more
        text = await asyncio.get_running_loop().run_in_executor(None, scrape.exposition, families)
        return web.Response(body=text, headers={"Content-Type": scrape.CONTENT_TYPE})

    async def _list_servers(self, request: web.Request) -> web.Response:
        if self._servers is not None:
            return answered_with(200, door.servers_json(self._servers.all()))
        node = self._view.node()
        return answered_with(200, door.servers_json([Server(node.name, node.ha.state, self._listener.url)]))

    async def _start_server(self, request: web.Request) -> web.Response:
        body = await read_body(request)
        if body is None:
            return too_large()
        try:
            name = door.parse_start(parse_json(body) if body else None)
        except ValueError as error:
            return refuse(400, "bad-request", str(error))
        log.info("start of a server requested", extra={"server": name, **_ids(request)})
        if self._servers is None:
            return refuse(422, "management", "the node is alone in its process")
        try:
            self._servers.start(name)
        except BrokerError as error:
            return refuse(422, error.code, str(error))
        return answered_with(202, {"starting": True, "name": name})

    async def _stop(self, request: web.Request) -> web.Response:
        body = await read_body(request)
        if body is None:
            return too_large()
        try:
            failover = door.parse_stop(parse_json(body) if body else {})
        except ValueError as error:
            return refuse(400, "bad-request", str(error))
        log.info("stop requested", extra={"failover": failover, **_ids(request)})
        self._view.request_stop(failover=failover)
        return answered_with(202, {"stopping": True, "failover": failover})

    async def _promote(self, request: web.Request) -> web.Response:
        body = await read_body(request)
        if body is None:
            return too_large()
        try:
            door.parse_promotion(parse_json(body) if body else None)
        except ValueError as error:
            return refuse(400, "bad-request", str(error))
        answered: asyncio.Future[web.Response] = asyncio.get_running_loop().create_future()

        def answer(outcome: Promotion | BrokerError) -> None:
            if answered.done():
                return
            if isinstance(outcome, BrokerError):
                answered.set_result(refuse(422, outcome.code, str(outcome)))
            else:
                answered.set_result(answered_with(200, to_builtins(outcome)))

        log.warning("promotion requested", extra=_ids(request))
        try:
            self._view.request_promotion(answer)
        except BrokerError as error:
            return refuse(422, error.code, str(error))
        return await answered

    async def _activate(self, request: web.Request) -> web.Response:
        body = await read_body(request)
        if body is None:
            return too_large()
        if body.strip() not in (b"", b"{}"):
            return refuse(400, "bad-request", "the body must be {} or empty")
        log.warning("activation requested", extra=_ids(request))
        try:
            self._view.request_activation()
        except BrokerError as error:
            return refuse(422, error.code, str(error))
        return answered_with(202, {"activating": True})

    # --- operations ------------------------------------------------------------------------------

    async def _invoke(self, request: web.Request) -> web.Response:
        body = await read_body(request)
        if body is None:
            return too_large()
        try:
            wanted = door.parse_invocation(parse_json(body) if body else {})
        except ValueError as error:
            return refuse(400, "bad-request", str(error))
        wanted = replace(wanted, peer=request.remote or "", request_id=request[REQUEST_ID])
        return await self._carry_out(wanted, lambda result: {"result": result})

    async def _explain(self, request: web.Request) -> web.Response:
        """Reason why messages of a queue wait, or one message."""
        name, message_id = _segment(request, 4), request.match_info.get("id")
        if message_id is not None and not (message_id.isascii() and message_id.isdigit() and len(message_id) <= 18):
            return refuse(404, "not-found", "no such resource")
        if await self._queue(name) is None:
            return self._no_queue(name)
        parameters = () if message_id is None else (int(message_id),)
        wanted = InvocationRequest(f"queue.{name}", "listWaitReasons", is_attribute=False, parameters=parameters)
        return await self._carry_out(wanted, lambda result: result)

    async def _carry_out(self, wanted: InvocationRequest, shown: Callable[[object], object]) -> web.Response:
        await _load(_OPERATIONS)
        answered: asyncio.Future[web.Response] = asyncio.get_running_loop().create_future()

        def answer(result: object, error: BrokerError | None) -> None:
            if not answered.done():
                if error is None:
                    answered.set_result(answered_with(200, shown(result)))
                else:
                    status = 404 if isinstance(error, MessageNotFound) else 422
                    answered.set_result(refuse(status, error.code, self._error_texts.remote(error)))

        try:
            self._view.invoke(wanted, answer)
        except NotActive as error:
            return refuse(503, error.code, str(error))
        # if the node fails meanwhile there is no answer: the deadline closes the connection
        return await answered


async def _load(module: str) -> None:
    """Load a module in a thread: a node that nothing asks for it is spared the memory, and the loop is not held."""
    if module not in sys.modules:
        await asyncio.get_running_loop().run_in_executor(None, importlib.import_module, module)


async def _finish(work: Generator[None, None, T]) -> T:
    """Do work in steps, between which the loop does other work."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return cast(T, end.value)
        await asyncio.sleep(0)


def _ids(request: web.Request) -> dict[str, object]:
    """Fields that name a request in the log."""
    return {"peer": request.remote, "request": request[REQUEST_ID]}


def _segment(request: web.Request, number: int) -> str:
    """A part of the path. Bytes that are not UTF-8 are replaced."""
    return unquote(request.rel_url.raw_path.split("/")[number], errors="replace")


def _parameters(request: web.Request) -> list[tuple[str, str]]:
    return list(request.rel_url.query.items())


async def read_body(request: web.Request) -> bytes | None:
    """The body of a request; None when it is too large."""
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > HTTP_BODY_BYTES_MAX:
            return None
    return bytes(body)


def answered_with(status: int, body: object) -> web.Response:
    """A response with a JSON value."""
    return json_answer(status, bytearray(json.dumps(body).encode()))


def json_answer(status: int, body: bytearray) -> web.Response:
    """A response with the bytes of a JSON value."""
    body += b"\n"
    return web.Response(body=body, status=status, headers={**HEADERS, "Content-Type": "application/json"})


def refuse(status: int, code: str, message: str) -> web.Response:
    """An error response; like every response it ends its connection."""
    response = answered_with(status, door.error_json(code, message))
    response.force_close()
    return response


def too_large() -> web.Response:
    """The response to a body that is too large."""
    return refuse(413, "limit-exceeded", f"a body has at most {HTTP_BODY_BYTES_MAX} bytes")


def encoded(encodings: Sequence[str]) -> web.Response:
    """The response to a compressed body."""
    named = ", ".join(encodings)[:_SHOWN]
    response = refuse(
        415, "unsupported-encoding", f"Content-Encoding {named!a} is not supported: send the body as it is"
    )
    response.headers["Accept-Encoding"] = "identity"
    return response


def wrong_method(allowed: set[str]) -> web.Response:
    """The response to a method that the resource does not have."""
    named = sorted(allowed, reverse=True)
    response = refuse(405, "method-not-allowed", f"allowed here: {', '.join(each for each in named if each != 'HEAD')}")
    response.headers["Allow"] = ", ".join(named)
    return response
