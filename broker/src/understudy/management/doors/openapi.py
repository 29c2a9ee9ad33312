"""The management API as an OpenAPI 3.1 document, served at /api/v1/openapi.json.

Paths come from the declared requests (``doors.http``), schemas from the model; here are only the schemas of bodies
that are no values of the model.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.json import schema_components

from understudy.management.doors.http import (
    ANSWERED,
    COLLECTIONS,
    CONDITIONS_MAX,
    PAGE_MAX,
    PAGE_SIZE,
    PAGE_SIZE_MAX,
    QUEUE_OF_NODE,
    Collection,
    Route,
    all_routes,
)
from understudy.management.waiting.reasons import CODES, Place

Schema = dict[str, Any]


def _object(properties: dict[str, Schema], optional: tuple[str, ...] = ()) -> Schema:
    return {
        "type": "object",
        "required": sorted(set(properties) - set(optional)),
        "properties": properties,
        "additionalProperties": False,
    }


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _list_of(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_TEXT: Final[Schema] = {"type": "string"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_FLAG: Final[Schema] = {"type": "boolean"}
_TRUE: Final[Schema] = {"const": True}

_REASONS: Final[Schema] = _list_of(
    _object({"code": {"type": "string", "enum": list(CODES)}, "text": _TEXT, "values": {"type": "object"}})
)
_MESSAGE_WAITS: Final[dict[str, Schema]] = {
    "message_id": _COUNT,
    "place": {"type": "string", "enum": [place.value for place in Place]},
    "ahead": _COUNT,
    "reasons": _REASONS,
}
_QUEUE_WAITS: Final[Schema] = _object(
    {
        "queue": _TEXT,
        **dict.fromkeys(("message_count", "waiting", "scheduled", "delivering", "paged"), _COUNT),
        "reasons": _REASONS,
        "first": _or_null(_object(_MESSAGE_WAITS)),
        "consumers": _list_of(
            _object(
                {
                    **dict.fromkeys(("name", "connection"), _TEXT),
                    "filter": _or_null(_TEXT),
                    "delivering": _COUNT,
                    "oldest_ms": _or_null(_COUNT),
                    **dict.fromkeys(("served", "bridge", "ready"), _FLAG),
                }
            )
        ),
        "transactions": _list_of(
            _object(
                {
                    "name": _TEXT,
                    "prepared": _FLAG,
                    "since_ms": _or_null(_COUNT),
                    **dict.fromkeys(("sends", "acknowledges"), _COUNT),
                }
            )
        ),
        "members": _list_of(_object({"node_id": _TEXT, "connected": _FLAG, "consumers": _COUNT})),
    }
)

#: Bodies that are no values of the model.
_BODIES: Final[dict[str, Schema]] = {
    "QueueWaits": _QUEUE_WAITS,
    "MessageWaits": _object({"queue": _TEXT, **_MESSAGE_WAITS}),
    "Error": _object({"error": _object({"code": _TEXT, "message": _TEXT})}),
    "Live": _object({"status": {"const": "live"}}),
    "Stop": _object({"failover": _FLAG}, ("failover",)),
    "Stopping": _object({"stopping": _TRUE, "failover": _FLAG}),
    "Promote": _object({"accept_data_loss": _TRUE}),
    "Activate": {"type": "object", "additionalProperties": False},
    "Activating": _object({"activating": _TRUE}),
    "Invoke": {
        "oneOf": [
            _object({"resource": _TEXT, "operation": _TEXT, "parameters": {"type": "array"}}, ("parameters",)),
            _object({"resource": _TEXT, "attribute": _TEXT}),
        ]
    },
    "Invoked": _object({"result": {}}),
    "Servers": _object({"servers": _list_of(_ref("Server"))}),
    "StartServer": _object({"name": _TEXT}),
    "Starting": _object({"starting": _TRUE, "name": _TEXT}),
    "Document": {"type": "object"},
}


def _models() -> dict[str, Schema]:
    """Schemas of the model. An answer has every field, those with default values included."""
    _, components = schema_components(ANSWERED, ref_template="#/components/schemas/{name}")
    found: dict[str, Schema] = {}
    for name, schema in components.items():
        found[name] = schema | {"required": sorted(schema["properties"])}
        for each in schema["properties"].values():
            each.pop("default", None)
    return found


def _with_earlier_forms(models: dict[str, Schema]) -> dict[str, Schema]:
    """The schemas with that of the node as ``/api/v1/node`` shows it."""
    node, store, readers = models.pop("Node"), models["Store"], models["Readers"]
    for name in ("confirmations", "trouble", "in_line"):
        del node["properties"][name]
    del store["properties"]["set_aside"], readers["properties"]["dropped_count"]
    queue = {name: models["Queue"]["properties"][name] for name in QUEUE_OF_NODE}
    models["QueueOfNode"] = _object(queue)
    models["NodeWithQueues"] = _object({**node["properties"], "queues": _list_of(_ref("QueueOfNode"))})
    for schema in (store, readers):
        schema["required"] = sorted(schema["properties"])
    return models


def _page(kind: str) -> Schema:
    return _object(
        {"page": _COUNT, "size": _COUNT, "count": _or_null(_COUNT), "items": _list_of(_ref(kind))},
    )


def _schemas() -> dict[str, Schema]:
    kinds = [each.kind.__name__ for each in COLLECTIONS.values()] + ["Message"]
    return _with_earlier_forms(_models()) | _BODIES | {f"{kind}Page": _page(kind) for kind in kinds}


def _answer(text: str, schema: str) -> Schema:
    if schema == "Text":
        return {"description": text, "content": {"text/plain": {"schema": _TEXT}}}
    return {"description": text, "content": {"application/json": {"schema": _ref(schema)}}}


_REFUSED: Final[dict[str, Schema]] = {
    "400": _answer("The request is malformed.", "Error"),
    "401": _answer("The bearer token is missing or wrong.", "Error")
    | {"headers": {"WWW-Authenticate": {"description": "The scheme.", "schema": _TEXT}}},
    "413": _answer("The body is too large.", "Error"),
    "415": _answer("The body is compressed, or is not JSON.", "Error"),
}


def _query(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


_PAGE_PARAMETERS: Final = (
    _query("page", "Number of the page, from 1.", {"type": "integer", "minimum": 1, "maximum": PAGE_MAX, "default": 1}),
    _query(
        "size",
        "Items of a page.",
        {"type": "integer", "minimum": 1, "maximum": PAGE_SIZE_MAX, "default": PAGE_SIZE},
    ),
)
_SELECTOR: Final = _query("filter", "Selector of the messages.", _TEXT)


def _collection_parameters(collection: Collection) -> list[Schema]:
    fields = list(collection.kind.__struct_fields__)
    order = _query(
        "sort",
        f"Field to sort by, descending after a minus sign; default: {', '.join(collection.key)}.",
        {"type": "string", "enum": [*fields, *(f"-{each}" for each in fields)]},
    )
    conditions = _query(
        "filter",
        "Condition FIELD OPERATOR VALUE with one of the operators = != > < >= <= ~ !~ (contains, regardless of case); "
        "all conditions must be met.",
        _list_of(_TEXT) | {"maxItems": CONDITIONS_MAX},
    )
    return [*_PAGE_PARAMETERS, order, conditions]


def _operation(route: Route) -> Schema:
    answers = {str(status): _answer(*answer) for status, answer in route.answers.items()}
    found: Schema = {
        "operationId": route.operation,
        "tags": [route.tag],
        "summary": route.summary,
        "responses": answers if route.without_token else _REFUSED | answers,
    }
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _COUNT if name == "id" else _TEXT}
        for name in route.names
    ]
    if route.collection is not None and not route.names:
        parameters += _collection_parameters(COLLECTIONS[route.collection])
    if route.operation == "ready":
        parameters.append(_query("protected", "Whether a node that is not protected is not ready.", _FLAG))
    if route.operation == "messages":
        parameters += [*_PAGE_PARAMETERS, _SELECTOR]
    if parameters:
        found["parameters"] = parameters
    if route.body is not None:
        found["requestBody"] = {"content": {"application/json": {"schema": _ref(route.body)}}}
    if route.without_token:
        found["security"] = []
    return found


def document(version: str) -> dict[str, object]:
    """The document for this version of Understudy."""
    paths: dict[str, Schema] = {}
    for route in all_routes():
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Understudy management", "version": version},
        "security": [{"token": []}],
        "tags": [{"name": tag} for tag in dict.fromkeys(route.tag for route in all_routes())],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": _schemas(),
        },
    }
