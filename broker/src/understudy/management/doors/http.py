"""The management API over HTTP without HTTP: its requests, their parameters, and the JSON of its answers.

``ROUTES`` and ``COLLECTIONS`` declare every request once; the server (``runtime/management/http.py``) serves them and
the OpenAPI document (``doors.openapi``) describes them. A collection is read page by page, for example with
``?page=1&size=100&sort=-message_count&filter=message_count>0&filter=name~orders``.

Not here: HTTP, authentication (``runtime/management/http.py``), metrics (``doors.metrics``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, TypeVar

from msgspec import to_builtins

from understudy.dataclass import dataclass
from understudy.management.model import access, clients, exchanges, links, operations, queues
from understudy.management.model.cluster import Cluster
from understudy.management.model.events import Events
from understudy.management.model.figure import Item, base_types, figures
from understudy.management.model.node import Node, Promotion, Quarantine, Readers, Readiness, Server, readiness
from understudy.management.operations.invocation import InvocationRequest
from understudy.management.snapshot.rows import STEP_ITEMS, Rows, find, select
from understudy.management.view import NodeView

T = TypeVar("T")

#: Rows of a page unless ``size`` is given.
PAGE_SIZE: Final = 100
#: Largest value of the parameter ``size``.
PAGE_SIZE_MAX: Final = 500
#: Largest value of the parameter ``page``.
PAGE_MAX: Final = 1_000_000
#: Largest value of the parameter ``limit`` of events.
EVENTS_MAX: Final = 2_000
#: Maximum number of conditions of a request.
CONDITIONS_MAX: Final = 16

Json = Mapping[str, object]
Steps = Generator[None, None, T]
"""A value that is made in slices."""

# -- the requests ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Route:
    """One kind of request of the HTTP API."""

    method: str
    path: str
    operation: str
    """Name of the request, unique (``operationId``)."""
    tag: str
    summary: str
    answers: Mapping[int, tuple[str, str]]
    """Meaning and name of the schema of each answer by status; errors of every request are left out."""
    body: str | None = None
    """Name of the schema of the body."""
    without_token: bool = False
    """Whether the request needs no token."""
    collection: str | None = None
    """Name of the collection that is shown; None: another request."""

    @property
    def names(self) -> list[str]:
        """Names in the path."""
        return re.findall(r"{(\w+)}", self.path)


_NOT_ACTIVE: Final = {503: ("The node is not active.", "Error")}
_REFUSED: Final = {422: ("It was refused or failed.", "Error")}
_NO_QUEUE: Final = {404: ("No such queue or message here.", "Error")}

ROUTES: Final = (
    Route(
        "GET", "/health/live", "live", "health", "Whether the process runs.", {200: ("It runs.", "Live")},
        without_token=True,
    ),
    Route(
        "GET", "/health/ready", "ready", "health", "Active, or passive and caught up.",
        {200: ("Ready.", "Readiness"), 503: ("Not ready, and why.", "Readiness")}, without_token=True,
    ),
    Route("GET", "/api/v1/node", "node", "node", "The node and its queues.", {200: ("The node.", "NodeWithQueues")}),
    Route(
        "POST", "/api/v1/node/stop", "stop", "node", "Stop the node; with failover, let its peer take over.",
        {202: ("Stopping has begun.", "Stopping")}, body="Stop",
    ),
    Route(
        "POST", "/api/v1/node/promote", "promote", "node",
        "Activate a waiting node although another node may have newer data.",
        {200: ("The node activates; the promotion is recorded.", "Promotion"), **_REFUSED}, body="Promote",
    ),
    Route(
        "POST", "/api/v1/node/activate", "activate", "node",
        "Activate the backup of a shared store although its primary was stopped cleanly.",
        {202: ("The node tries until another node is active.", "Activating"), **_REFUSED}, body="Activate",
    ),
    Route(
        "GET", "/api/v1/events", "events", "node",
        "The latest events of the node; after=NUMBER: those after one, limit=COUNT: so many of the latest.",
        {200: ("The events.", "Events")},
    ),
    Route(
        "GET", "/api/v1/servers", "servers", "node", "The servers of the process that its broker.xml names.",
        {200: ("The servers.", "Servers")},
    ),
    Route(
        "POST", "/api/v1/servers/start", "startServer", "node", "Start a server of the process that has ended.",
        {202: ("It starts.", "Starting"), 422: ("It runs already, or cannot be started.", "Error")},
        body="StartServer",
    ),
    Route(
        "POST", "/api/v1/invoke", "invoke", "operations",
        "Call an operation of management over messages, or read an attribute.",
        {200: ("The result.", "Invoked"), **_REFUSED, **_NOT_ACTIVE}, body="Invoke",
    ),
    Route(
        "GET", "/api/v1/cluster", "cluster", "cluster",
        "Members of the cluster, connections to them, discovered nodes, bridges, and queues of other members.",
        {200: ("The cluster as this node sees it.", "Cluster")},
    ),
    Route(
        "GET", "/api/v1/quarantine", "quarantine", "store",
        "Damaged messages and records in the quarantine; at most 1000, the oldest first.",
        {200: ("The quarantine.", "Quarantine")},
    ),
    Route(
        "GET", "/api/v1/readers", "readers", "store",
        "Named readers of the log; nulls and an empty list on a node that is not active.",
        {200: ("The readers.", "Readers")},
    ),
    Route(
        "GET", "/api/v1/queues/{name}/messages", "messages", "queues", "A page of the waiting messages of a queue.",
        {200: ("The messages.", "MessagePage"), **_NO_QUEUE, **_REFUSED, **_NOT_ACTIVE},
    ),
    Route(
        "GET", "/api/v1/queues/{name}/explain", "explainQueue", "queues",
        "Why messages of the queue wait, and why its first one does.",
        {200: ("The reasons.", "QueueWaits"), **_NO_QUEUE, **_NOT_ACTIVE},
    ),
    Route(
        "GET", "/api/v1/queues/{name}/messages/{id}/explain", "explainMessage", "queues", "Why one message waits.",
        {200: ("The reasons.", "MessageWaits"), **_NO_QUEUE, **_NOT_ACTIVE},
    ),
    Route(
        "GET", "/api/v1/openapi.json", "openapi", "documents", "This document.", {200: ("This document.", "Document")}
    ),
    Route("GET", "/metrics", "metrics", "documents", "Prometheus text.", {200: ("Text format 0.0.4.", "Text")}),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Collection:
    """Items of one kind that the HTTP API serves page by page and one by one."""

    name: str
    kind: type[Item]
    key: tuple[str, ...]
    """Fields that identify an item together; in a path their values are joined with ``:``."""
    doc: str
    missing: str = "not-found"
    """Code of the error if there is no item of a name."""

    @property
    def path(self) -> str:
        """Path of the collection."""
        return f"/api/v1/{self.name}"


COLLECTIONS: Final = {
    each.name: each
    for each in (
        Collection("queues", queues.Queue, ("name",), "Queues.", "queue-not-found"),
        Collection("addresses", queues.Address, ("name",), "Addresses."),
        Collection("bindings", queues.Binding, ("address", "name"), "Destinations of the messages of addresses."),
        Collection("exchanges", exchanges.Exchange, ("name",), "Exchanges of AMQP 0-9-1.", "exchange-not-found"),
        Collection("exchange-bindings", exchanges.ExchangeBinding, ("id",), "Bindings of exchanges."),
        Collection("connections", clients.Connection, ("id",), "Connections of clients."),
        Collection("sessions", clients.Session, ("id",), "Sessions of clients."),
        Collection("channels", exchanges.Channel, ("connection", "number"), "Channels of clients of AMQP 0-9-1."),
        Collection("consumers", clients.Consumer, ("session", "id"), "Consumers and browsers."),
        Collection("producers", clients.Producer, ("session", "id"), "Registered producers."),
        Collection("transactions", clients.Transaction, ("id",), "Open and prepared transactions."),
        Collection("users", access.User, ("name",), "Users of the files of the broker."),
        Collection("roles", access.Role, ("name", "match"), "Permissions of roles."),
        Collection("settings", access.Setting, ("kind", "match"), "Address settings and security settings."),
        Collection("bridges", links.Bridge, ("name",), "Core bridges."),
        Collection("diverts", links.Divert, ("name",), "Diverts."),
        Collection("acceptors", links.Acceptor, ("name",), "Acceptors."),
        Collection("operations", operations.Operation, ("id",), "Operations and attributes of resources."),
    )
}


def all_routes() -> list[Route]:
    """Every kind of request: those of ``ROUTES``, and two for each collection."""
    found = list(ROUTES)
    for each in COLLECTIONS.values():
        kind, tag = each.kind.__name__, each.name
        noun = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind).lower()
        operation = re.sub(r"-(.)", lambda found: found[1].upper(), each.name)
        missing = {404: (f"No such {noun} here.", "Error")}
        found += [
            Route("GET", each.path, operation, tag, f"A page: {each.doc}", {200: ("The page.", f"{kind}Page")},
                  collection=each.name),
            Route("GET", f"{each.path}/{{name}}", f"one{kind}", tag, f"One {noun}.",
                  {200: (f"The {noun}.", kind), **missing}, collection=each.name),
        ]  # fmt: skip
    return found


# -- pages ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PageQuery:
    """A page of a collection that a client asks for."""

    page: int = 1
    size: int = PAGE_SIZE
    sort: str = ""
    """Field; empty: the key of the collection."""
    descending: bool = False
    conditions: Sequence[Condition] = field(default_factory=tuple)

    @property
    def start(self) -> int:
        """Number of items before the page."""
        return (self.page - 1) * self.size


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition on one field of the items of a collection."""

    field: str
    accepts: Callable[[object], bool]


_CONDITION: Final = re.compile(r"([a-z_]+)\s*(!=|>=|<=|!~|=|>|<|~)\s*(.*)", re.DOTALL)
_ORDERS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": lambda value, wanted: value > wanted,
    "<": lambda value, wanted: value < wanted,
    ">=": lambda value, wanted: value >= wanted,
    "<=": lambda value, wanted: value <= wanted,
}


def parse_page(collection: Collection, parameters: Sequence[tuple[str, str]]) -> PageQuery:
    """Parse the query of a request for a page.

    Raises:
        ValueError: an unknown parameter or field, or a value of the wrong type.
    """
    given = _single(parameters, {"page", "size", "sort", "filter"}, repeated="filter")
    filters = [value for name, value in parameters if name == "filter"]
    if len(filters) > CONDITIONS_MAX:
        raise ValueError(f"{len(filters)} filters, limit {CONDITIONS_MAX}")
    sort = given.get("sort", "")
    descending, sort = sort.startswith("-"), sort.removeprefix("-")
    if sort:
        _check_field(collection.kind, sort)
    return PageQuery(
        _number("page", given.get("page", "1"), PAGE_MAX),
        _number("size", given.get("size", str(PAGE_SIZE)), PAGE_SIZE_MAX),
        sort,
        descending,
        tuple(_condition(collection.kind, each) for each in filters),
    )


def parse_events(parameters: Sequence[tuple[str, str]]) -> tuple[int, int]:
    """Parse the query of a request for events: the number after which they are wanted, and how many. Raises
    ValueError.
    """
    given = _single(parameters, {"after", "limit"})
    after, limit = given.get("after", "0"), _number("limit", given.get("limit", "100"), EVENTS_MAX)
    return 0 if after == "0" else _number("after", after, 10**9), limit


def parse_messages(parameters: Sequence[tuple[str, str]]) -> tuple[PageQuery, str | None]:
    """Parse the query of a request for messages: the page, and the selector in ``filter``. Raises ValueError."""
    given = _single(parameters, {"page", "size", "filter"})
    query = PageQuery(
        _number("page", given.get("page", "1"), PAGE_MAX), _number("size", given.get("size", "100"), PAGE_SIZE_MAX)
    )
    return query, given.get("filter") or None


def _single(parameters: Sequence[tuple[str, str]], known: set[str], repeated: str | None = None) -> dict[str, str]:
    """The values of parameters, each given once except for the one that may be repeated. Raises ValueError."""
    found: dict[str, str] = {}
    for name, value in parameters:
        if name not in known:
            raise ValueError(f"unknown parameter {name!r}: {', '.join(sorted(known))}")
        if name in found and name != repeated:
            raise ValueError(f"parameter {name!r} is given twice")
        found[name] = value
    return found


def _number(name: str, text: str, maximum: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= maximum):
        raise ValueError(f"{name} {text!r} is not a number from 1 to {maximum}")
    return int(text)


def _check_field(kind: type[Item], name: str) -> None:
    if name not in figures(kind):
        raise ValueError(f"unknown field {name!r}: {', '.join(figures(kind))}")


def _condition(kind: type[Item], text: str) -> Condition:
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise ValueError(f"filter {text!r} is not FIELD OPERATOR VALUE with one of = != > < >= <= ~ !~")
    name, operator, value = found.groups()
    _check_field(kind, name)
    types = base_types(figures(kind)[name].type)
    if operator in ("~", "!~"):
        part, contained = value.casefold(), operator == "~"
        return Condition(name, lambda each: (part in _text(each).casefold()) is contained)
    if operator in _ORDERS:
        if not types & {int, float}:
            raise ValueError(f"filter {text!r}: {name} is not a number")
        order, limit = _ORDERS[operator], _decimal(text, value)
        return Condition(name, lambda each: isinstance(each, int | float) and order(each, limit))
    wanted, equal = _value(text, value, types), operator == "="
    return Condition(name, lambda each: ((_text(each) if wanted.__class__ is str else each) == wanted) is equal)


def _value(text: str, value: str, types: frozenset[type]) -> object:
    if value == "null" and type(None) in types:
        return None
    if bool in types:
        if value not in ("true", "false"):
            raise ValueError(f"filter {text!r}: {value!r} is not true or false")
        return value == "true"
    return _decimal(text, value) if types & {int, float} else value


def _decimal(text: str, value: str) -> float:
    try:
        return float(value) if "." in value else int(value)
    except ValueError:
        raise ValueError(f"filter {text!r}: {value!r} is not a number") from None


def _text(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "" if value is None else str(value)


def page_text(collection: Collection, rows: Rows[Any], query: PageQuery) -> Steps[bytearray]:
    """The JSON of a page: ``page``, ``size``, ``count`` (items that meet the conditions) and ``items``."""
    conditions = [(rows.readers[each.field], each.accepts) for each in query.conditions]

    def wanted(source: Any) -> bool:
        return all(accepts(read(source)) for read, accepts in conditions)

    if query.sort:
        key = rows.readers[query.sort]
    else:
        parts = [rows.readers[each] for each in collection.key]
        key = parts[0] if len(parts) == 1 else lambda source: ":".join([str(each(source)) for each in parts])
    found, count = yield from select(
        rows.sources,
        wanted if conditions else None,
        key,
        descending=query.descending,
        start=query.start,
        count=query.size,
    )
    head: Json = {"page": query.page, "size": query.size, "count": count, "items": []}
    return (yield from _with_items(head, found, lambda source: to_builtins(rows.item(source))))


def _with_items(head: Json, sources: Sequence[Any], shown: Callable[[Any], object]) -> Steps[bytearray]:
    """The JSON of an object whose last value is a list of items, written in steps: joining 50,000 of them at the end
    would hold the loop.
    """
    written = bytearray(json.dumps(head).removesuffix("]}").encode())
    for first in range(0, len(sources), STEP_ITEMS):
        yield
        part = json.dumps([shown(source) for source in sources[first : first + STEP_ITEMS]])[1:-1].encode()
        written += b", " + part if first else part
    written += b"]}"
    return written


def item_json(collection: Collection, rows: Rows[Any], name: str) -> Steps[Json | None]:
    """One item of a collection as JSON; None if no item has the name."""
    found = yield from find(rows, collection.key, name)
    return None if found is None else to_builtins(found)


def messages_json(query: PageQuery, count: int | None, messages: Sequence[queues.Message]) -> Json:
    """A page of waiting messages. The number of all is unknown with a selector."""
    return {"page": query.page, "size": query.size, "count": count, "items": to_builtins(messages)}


# -- the node -------------------------------------------------------------------------------------

#: Fields of ``GET /api/v1/node`` that are not shown there: ``/health/ready`` and the metrics show them.
_NOT_OF_NODE: Final = ("confirmations", "trouble", "in_line")
#: Fields of the queues of ``GET /api/v1/node``; ``GET /api/v1/queues`` has all of them.
QUEUE_OF_NODE: Final = (
    "name", "address", "routing_type", "durable", "temporary", "message_count", "delivering_count", "consumer_count",
    "messages_added", "messages_acknowledged", "messages_expired", "messages_killed", "messages_replaced", "paging",
    "memory_bytes", "spilled_count", "measured",
)  # fmt: skip


def node_json(node: Node) -> dict[str, object]:
    """Answer to GET /api/v1/node without the queues of the node."""
    shown: dict[str, Any] = to_builtins(node)
    for name in _NOT_OF_NODE:
        del shown[name]
    if node.store is not None:
        del shown["store"]["set_aside"]
        if node.store.amplification is not None:
            shown["store"]["amplification"] = round(node.store.amplification, 3)
    return shown


def node_text(view: NodeView) -> Steps[bytearray]:
    """The JSON of GET /api/v1/node in bytes. The queues are sorted by name."""
    rows = view.rows("queues")
    found, _ = yield from select(rows.sources, None, rows.readers["name"])
    readers = [(name, rows.readers[name]) for name in QUEUE_OF_NODE]

    def shown(source: Any) -> Json:
        return {name: read(source) for name, read in readers}

    return (yield from _with_items(node_json(view.node()) | {"queues": []}, found, shown))


def ready_json(node: Node, parameters: Sequence[tuple[str, str]] = ()) -> Json:
    """GET /health/ready; the status is 200 when ``ready``, else 503.

    Args:
        parameters: Parameters of the request. ``protected=true``: a node that is not protected is not ready.

    Raises:
        ValueError: a parameter is unknown.
    """
    if any(each not in (("protected", "true"), ("protected", "false")) for each in parameters):
        raise ValueError("the only parameter is protected=true or protected=false")
    ready = readiness(node, protected=("protected", "true") in parameters)
    return to_builtins(ready)  # type: ignore[no-any-return]  # a struct becomes a dict


def readers_json(readers: Readers) -> Json:
    """GET /api/v1/readers; a node that is not active has none."""
    shown: dict[str, object] = to_builtins(readers)
    del shown["dropped_count"]
    return shown


def servers_json(servers: Sequence[Server]) -> Json:
    """Answer to GET /api/v1/servers."""
    return {"servers": to_builtins(servers)}


def error_json(code: str, message: str) -> Json:
    """The body of every error response."""
    return {"error": {"code": code, "message": message}}


# -- bodies of requests ---------------------------------------------------------------------------


def parse_invocation(body: object) -> InvocationRequest:
    """Parse the body of POST /api/v1/invoke.

    Raises:
        ValueError: the body has neither form.
    """
    if isinstance(body, dict):
        resource, parameters = body.get("resource"), body.get("parameters", [])
        if set(body) == {"resource", "attribute"} and isinstance(resource, str) and isinstance(body["attribute"], str):
            return InvocationRequest(resource, body["attribute"], is_attribute=True)
        named = set(body) - {"parameters"} == {"resource", "operation"}
        if named and isinstance(resource, str) and isinstance(body["operation"], str) and isinstance(parameters, list):
            return InvocationRequest(resource, body["operation"], is_attribute=False, parameters=tuple(parameters))
    raise ValueError("the body must have resource and operation, optionally parameters; or resource and attribute")


def parse_stop(body: object) -> bool:
    """Parse the body of POST /api/v1/node/stop; returns ``failover``.

    Raises:
        ValueError: the body is not ``{"failover": true|false}``.
    """
    if not isinstance(body, dict) or set(body) - {"failover"} or type(body.get("failover", False)) is not bool:
        raise ValueError('the body must be {"failover": true} or {"failover": false}')
    return bool(body.get("failover", False))


def parse_promotion(body: object) -> None:
    """Check the body of POST /api/v1/node/promote.

    Raises:
        ValueError: the body is not ``{"accept_data_loss": true}``.
    """
    if not isinstance(body, dict) or set(body) != {"accept_data_loss"} or body["accept_data_loss"] is not True:
        raise ValueError('the body must be {"accept_data_loss": true}')


def parse_start(body: object) -> str:
    """The name in the body of POST /api/v1/servers/start. Raises ValueError."""
    if not isinstance(body, dict) or set(body) != {"name"} or not isinstance(body["name"], str):
        raise ValueError('{"name": NAME} is expected')
    return body["name"]


ANSWERED: Final[tuple[type[Item], ...]] = (
    Node, Readiness, Promotion, Server, Cluster, Quarantine, Readers, queues.Message, Events,
    *(each.kind for each in COLLECTIONS.values()),
)  # fmt: skip
"""Kinds of values in answers."""
