"""The management API as an OpenAPI 3.1 document, served at /api/v1/openapi.json.

A test compares its paths and fields with the JSON of ``controls``.
"""

from __future__ import annotations

from typing import Final

from understudy.discovery.entries import Outcome
from understudy.management.controls import STATES
from understudy.management.waiting.reasons import CODES, Place

Schema = dict[str, object]


def _object(properties: dict[str, Schema]) -> Schema:
    return {
        "type": "object",
        "required": sorted(properties),
        "properties": properties,
        "additionalProperties": False,
    }


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _list_of(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


_TEXT: Final[Schema] = {"type": "string"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_FLAG: Final[Schema] = {"type": "boolean"}
_STATE: Final[Schema] = {"type": "string", "enum": list(STATES)}

_POSITION: Final[Schema] = _object({"epoch": _COUNT, "sequence": _COUNT})
_QUARANTINE_ENTRY: Final[Schema] = _object(
    {
        **dict.fromkeys(("entry_id", "kind", "reason", "queue", "address", "file", "nodes", "path"), _TEXT),
        **dict.fromkeys(
            ("found_ms", "segment", "epoch", "offset", "length", "sequence", "queue_id", "message_id", "file_id"),
            _COUNT,
        ),
        **dict.fromkeys(("durable", "held", "dropped", "stored"), _FLAG),
    }
)

_GROUP: Final[dict[str, Schema]] = {"name": _TEXT, "at": _TEXT, "state": _TEXT, "error": _or_null(_TEXT)}
_MEMBERS: Final[Schema] = _list_of(
    _object(
        {
            "node_id": _TEXT,
            "own": _FLAG,
            **dict.fromkeys(("primary", "backup", "backup_group"), _or_null(_TEXT)),
        }
    )
)
_CLUSTER: Final[Schema] = _object(
    {
        "state": _or_null(_TEXT),
        "members": _MEMBERS,
        "links": _list_of(_object({"to": _TEXT, "node_id": _or_null(_TEXT), "state": _TEXT, "failures": _COUNT})),
        "discovery": _list_of(
            _object(
                {
                    **_GROUP,
                    "entries": _list_of(
                        _object({"node_id": _TEXT, "connectors": _list_of(_TEXT), "source": _TEXT, "age_ms": _COUNT})
                    ),
                    "outcomes": _object({each.value: _COUNT for each in Outcome}),
                    "duplicates": _COUNT,
                }
            )
        ),
        "broadcasts": _list_of(
            _object({**_GROUP, "connectors": _list_of(_TEXT), **dict.fromkeys(("period_ms", "sent", "failed"), _COUNT)})
        ),
        "bridges": _list_of(
            _object(
                {
                    **dict.fromkeys(("name", "queue", "state"), _TEXT),
                    **dict.fromkeys(("forwarding_address", "target", "error"), _or_null(_TEXT)),
                    "connected": _FLAG,
                    **dict.fromkeys(
                        ("waiting", "unconfirmed", "forwarded", "acknowledged", "lost_connections", "refused"), _COUNT
                    ),
                }
            )
        ),
        "unreached": _list_of(_object({**dict.fromkeys(("node_id", "address", "error"), _TEXT), "failures": _COUNT})),
        "remote_queues": _list_of(
            _object(
                {
                    **dict.fromkeys(("queue", "address", "node_id", "through"), _TEXT),
                    "filter": _or_null(_TEXT),
                    "connected": _FLAG,
                    **dict.fromkeys(("distance", "consumers"), _COUNT),
                }
            )
        ),
        "connections": _list_of(
            _object(
                {
                    **dict.fromkeys(("name", "address", "message_load_balancing"), _TEXT),
                    "nodes": _list_of(_TEXT),
                    "connector": _or_null(_TEXT),
                    "members": _MEMBERS,
                    **dict.fromkeys(("max_hops", "remote_queues", "waiting", "forwarded", "acknowledged"), _COUNT),
                }
            )
        ),
        "ungrouped_pairs": _list_of(_TEXT),
        "redistribution": _list_of(_object({"queue": _TEXT, "state": _TEXT, "moved": _COUNT})),
        "grouping": _or_null(
            _object(
                {
                    **dict.fromkeys(("name", "type"), _TEXT),
                    **dict.fromkeys(("groups", "waiting", "proposals", "freed", "ungrouped"), _COUNT),
                }
            )
        ),
        "colocated": _or_null(
            _object(
                {
                    **dict.fromkeys(("request", "host"), _or_null(_TEXT)),
                    "hosted": _list_of(
                        _object(
                            {
                                **dict.fromkeys(("server", "node_id"), _TEXT),
                                "state": _STATE,
                                "acceptors": _list_of(_TEXT),
                            }
                        )
                    ),
                }
            )
        ),
    }
)
_PROMOTION: Final = _object(
    {
        "node_id": _TEXT,
        "before": _or_null(_COUNT),
        "newest_known": _or_null(_COUNT),
        "sequence": _COUNT,
        "wall_ms": _COUNT,
    }
)

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

_SCHEMAS: Final[dict[str, Schema]] = {
    "QueueWaits": _QUEUE_WAITS,
    "MessageWaits": _object({"queue": _TEXT, **_MESSAGE_WAITS}),
    "Error": _object({"error": _object({"code": _TEXT, "message": _TEXT})}),
    "Live": _object({"status": {"const": "live"}}),
    "Ready": _object({"ready": _FLAG, "state": _STATE, "reason": _or_null(_TEXT)}),
    "Stop": {"type": "object", "properties": {"failover": _FLAG}, "additionalProperties": False},
    "Promote": {
        "type": "object",
        "properties": {"accept_data_loss": {"const": True}},
        "required": ["accept_data_loss"],
        "additionalProperties": False,
    },
    "Promotion": _PROMOTION,
    "Activate": {"type": "object", "additionalProperties": False},
    "Activating": _object({"activating": {"const": True}}),
    "Invoke": {
        "oneOf": [
            {
                "type": "object",
                "properties": {"resource": _TEXT, "operation": _TEXT, "parameters": {"type": "array"}},
                "required": ["resource", "operation"],
                "additionalProperties": False,
            },
            _object({"resource": _TEXT, "attribute": _TEXT}),
        ]
    },
    "Invoked": {"type": "object", "properties": {"result": {}}, "required": ["result"], "additionalProperties": False},
    "Servers": _object({"servers": _list_of(_object({"name": _TEXT, "state": _STATE, "http_url": _or_null(_TEXT)}))}),
    "StartServer": _object({"name": _TEXT}),
    "Starting": _object({"starting": {"const": True}, "name": _TEXT}),
    "Stopping": _object({"stopping": {"const": True}, "failover": _FLAG}),
    "Queue": _object(
        {
            "name": _TEXT,
            "address": _TEXT,
            "routing_type": {"type": "string", "enum": ["ANYCAST", "MULTICAST"]},
            "durable": _FLAG,
            "temporary": _FLAG,
            "message_count": _COUNT,
            "delivering_count": _COUNT,
            "consumer_count": _COUNT,
            "messages_added": _COUNT,
            "messages_acknowledged": _COUNT,
            "messages_expired": _COUNT,
            "messages_killed": _COUNT,
            "messages_replaced": _COUNT,
            "paging": _FLAG,
            "memory_bytes": _COUNT,
            "spilled_count": _COUNT,
            "measured": _FLAG,
        }
    ),
    "Node": _object(
        {
            "name": _TEXT,
            "version": _TEXT,
            "kernel": _object({"active": {"type": "string", "enum": ["native", "python"]}, "reason": _TEXT}),
            "node_id": _or_null(_TEXT),
            "pid": _COUNT,
            "uptime_ms": _COUNT,
            "epoch": _or_null(_COUNT),
            "ha": _object(
                {
                    "policy": {"type": "string", "enum": ["shared-store", "replication", "primary-only"]},
                    "role": {"type": "string", "enum": ["primary", "backup", "primary-only"]},
                    "state": _STATE,
                    "machine_state": _TEXT,
                    "waiting_because": _or_null(_TEXT),
                    "without_lock_manager": _or_null(_object({"manager": _TEXT, "for_ms": _COUNT, "reason": _TEXT})),
                }
            ),
            "promotion": _or_null(_PROMOTION),
            "earlier_data": _or_null(
                _object(
                    {"directory": _TEXT, "epoch": _COUNT, "sequence": _COUNT, "records": _COUNT, "messages": _COUNT}
                )
            ),
            "peer": _or_null(_object({"role": _TEXT, "connector": _TEXT})),
            "activation": _or_null(
                _object(
                    {
                        "step": _or_null(_TEXT),
                        "undoing": _FLAG,
                        "took_ms": _COUNT,
                        "steps": _list_of(_object({"name": _TEXT, "took_ms": _COUNT})),
                    }
                )
            ),
            "following": _or_null(_object({"caught_up": _FLAG, "lag_bytes": _COUNT})),
            "acceptors": _list_of(
                _object(
                    {
                        "name": _TEXT,
                        "url": _TEXT,
                        "certificate": _or_null(
                            _object(
                                {
                                    "subject": _TEXT,
                                    "sha256": _TEXT,
                                    "not_after_ms": _COUNT,
                                    "days_until_expiration": {"type": "integer"},
                                }
                            )
                        ),
                    }
                )
            ),
            "store": _or_null(
                _object(
                    {
                        "directory": _TEXT,
                        "segments": _COUNT,
                        "bytes": _COUNT,
                        "full": _FLAG,
                        "durable_sequence": _COUNT,
                        "live_bytes": _or_null(_COUNT),
                        "amplification": _or_null({"type": "number", "minimum": 0}),
                        "quarantined": _or_null(_COUNT),
                        "waiting_for_other_node": _COUNT,
                        "repaired": _COUNT,
                    }
                )
            ),
            "scrub": _or_null(
                _object(
                    {
                        "running": _FLAG,
                        **dict.fromkeys(("pass_bytes", "unverified", "passes", "damaged", "repaired"), _COUNT),
                        "age_ms": _or_null(_COUNT),
                    }
                )
            ),
            "connections": _COUNT,
            "sessions": _COUNT,
            "queues": _list_of({"$ref": "#/components/schemas/Queue"}),
        }
    ),
    "Cluster": _CLUSTER,
    "Quarantine": _object({"count": _COUNT, "entries": _list_of(_QUARANTINE_ENTRY)}),
    "Readers": _object(
        {
            "node_id": _or_null(_TEXT),
            "confirmed": _or_null(_POSITION),
            "earliest": _or_null(_POSITION),
            "readers": _list_of(
                _object(
                    {
                        "name": _TEXT,
                        "dropped": _or_null(_TEXT),
                        **dict.fromkeys(
                            ("epoch", "sequence", "max_bytes", "held_bytes", "registered_ms", "committed_ms"), _COUNT
                        ),
                    }
                )
            ),
        }
    ),
}


def _answer(text: str, schema: str) -> Schema:
    return {
        "description": text,
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}},
    }


_REFUSED: Final[dict[str, object]] = {
    "400": _answer("The request is malformed.", "Error"),
    "401": _answer("The bearer token is missing or wrong.", "Error"),
    "413": _answer("The body is too large.", "Error"),
    "415": _answer("The body is compressed.", "Error"),
}


_EXPLAINED: Final[dict[str, object]] = {
    "404": _answer("No such queue or message here.", "Error"),
    "503": _answer("The node is not active.", "Error"),
}


def _get(summary: str, responses: dict[str, object], **more: object) -> Schema:
    return {"get": {"summary": summary, "responses": responses, **more}}


def _other(content_type: str, text: str, schema: Schema) -> Schema:
    return {"description": text, "content": {content_type: {"schema": schema}}}


def _explanations() -> dict[str, Schema]:
    return {
        "/api/v1/queues/{name}/explain": _get(
            "Why messages of the queue wait, and why its first one does.",
            _REFUSED | _EXPLAINED | {"200": _answer("The reasons.", "QueueWaits")},
            parameters=[{"name": "name", "in": "path", "required": True, "schema": _TEXT}],
        ),
        "/api/v1/queues/{name}/messages/{id}/explain": _get(
            "Why one message waits.",
            _REFUSED | _EXPLAINED | {"200": _answer("The reasons.", "MessageWaits")},
            parameters=[
                {"name": "name", "in": "path", "required": True, "schema": _TEXT},
                {"name": "id", "in": "path", "required": True, "schema": _COUNT},
            ],
        ),
    }


def _process_paths() -> dict[str, Schema]:
    return {
        "/api/v1/servers": _get(
            "The servers of the process that its broker.xml names.",
            _REFUSED | {"200": _answer("The servers.", "Servers")},
        ),
        "/api/v1/servers/start": {
            "post": {
                "summary": "Start a server of the process that has ended.",
                "requestBody": {
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/StartServer"}}}
                },
                "responses": _REFUSED
                | {
                    "202": _answer("It starts.", "Starting"),
                    "422": _answer("It runs already, or cannot be started.", "Error"),
                },
            }
        },
    }


def _activation_paths() -> dict[str, Schema]:
    return {
        "/api/v1/node/promote": {
            "post": {
                "summary": "Activate a waiting node although another node may have newer data.",
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Promote"}}}},
                "responses": _REFUSED
                | {
                    "200": _answer("The node activates; the promotion is recorded.", "Promotion"),
                    "422": _answer("It was refused or failed.", "Error"),
                },
            }
        },
        "/api/v1/node/activate": {
            "post": {
                "summary": "Activate the backup of a shared store although its primary was stopped cleanly.",
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Activate"}}}},
                "responses": _REFUSED
                | {
                    "202": _answer("The node tries until another node is active.", "Activating"),
                    "422": _answer("It was refused.", "Error"),
                },
            }
        },
    }


def _paths() -> dict[str, Schema]:
    open_to_all: list[object] = []
    return {
        "/health/live": _get("Whether the process runs.", {"200": _answer("It runs.", "Live")}, security=open_to_all),
        "/health/ready": _get(
            "Active, or passive and caught up.",
            {"200": _answer("Ready.", "Ready"), "503": _answer("Not ready, and why.", "Ready")},
            security=open_to_all,
        ),
        "/api/v1/node": _get("The node and its queues.", _REFUSED | {"200": _answer("The node.", "Node")}),
        "/api/v1/node/stop": {
            "post": {
                "summary": "Stop the node; with failover, let its peer take over.",
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Stop"}}}},
                "responses": _REFUSED | {"202": _answer("Stopping has begun.", "Stopping")},
            }
        },
        **_activation_paths(),
        **_process_paths(),
        "/api/v1/invoke": {
            "post": {
                "summary": "Call an operation of management over messages, or read an attribute.",
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Invoke"}}}},
                "responses": _REFUSED
                | {
                    "200": _answer("The result.", "Invoked"),
                    "422": _answer("The operation was refused or failed.", "Error"),
                    "503": _answer("The node is not active.", "Error"),
                },
            }
        },
        "/api/v1/queues/{name}": _get(
            "One queue.",
            _REFUSED | {"200": _answer("The queue.", "Queue"), "404": _answer("No such queue here.", "Error")},
            parameters=[{"name": "name", "in": "path", "required": True, "schema": _TEXT}],
        ),
        **_explanations(),
        "/api/v1/cluster": _get(
            "Members of the cluster, connections to them, discovered nodes, bridges, and queues of other members.",
            _REFUSED | {"200": _answer("The cluster as this node sees it.", "Cluster")},
        ),
        "/api/v1/quarantine": _get(
            "Damaged messages and records in the quarantine; at most 1000, the oldest first.",
            _REFUSED | {"200": _answer("The quarantine.", "Quarantine")},
        ),
        "/api/v1/readers": _get(
            "Named readers of the log; nulls and an empty list on a node that is not active.",
            _REFUSED | {"200": _answer("The readers.", "Readers")},
        ),
        "/api/v1/openapi.json": _get(
            "This document.", _REFUSED | {"200": _other("application/json", "This document.", {"type": "object"})}
        ),
        "/metrics": _get("Prometheus text.", _REFUSED | {"200": _other("text/plain", "Text format 0.0.4.", _TEXT)}),
    }


def document(version: str) -> dict[str, object]:
    """The document for this version of Understudy."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "Understudy management", "version": version},
        "security": [{"token": []}],
        "paths": _paths(),
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": _SCHEMAS,
        },
    }
