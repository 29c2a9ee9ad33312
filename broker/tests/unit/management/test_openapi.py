"""Goal: the OpenAPI document describes exactly the served paths."""

from __future__ import annotations

from typing import Any

from understudy.management.cluster_facts import cluster_json
from understudy.management.controls import FollowingFacts, error_json, live_json, node_json, queue_json, ready_json
from understudy.management.doors import openapi
from understudy.testing.fake_node import FakeNodeView, fake_queue


def matches(value: Any, schema: dict[str, Any], schemas: dict[str, Any]) -> bool:
    """The little of JSON Schema that the document uses."""
    if "$ref" in schema:
        return matches(value, schemas[schema["$ref"].rpartition("/")[2]], schemas)
    if "anyOf" in schema:
        return any(matches(value, one, schemas) for one in schema["anyOf"])
    if "const" in schema:
        return bool(value == schema["const"])
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "boolean": bool,
        "integer": int,
        "number": float,
        "null": type(None),
    }
    if type(value) is not kinds[schema["type"]]:
        return False
    if schema == {"type": "object"}:
        return True
    if schema["type"] == "object":
        inside = all(matches(value[key], part, schemas) for key, part in schema["properties"].items() if key in value)
        return inside and set(schema["required"]) <= set(value) <= set(schema["properties"])
    if schema["type"] == "array":
        return all(matches(one, schema["items"], schemas) for one in value)
    return value in schema.get("enum", [value]) and (schema["type"] != "integer" or value >= schema.get("minimum", 0))


def test_every_answer_matches_its_schema() -> None:
    document: Any = openapi.document("1.2.3")
    schemas = document["components"]["schemas"]
    passive = FakeNodeView(state="passive", peer=None, store=None, epoch=None, following=FollowingFacts(True, 0))
    for name, value in (
        ("Node", node_json(FakeNodeView())),
        ("Node", node_json(passive)),
        ("Cluster", cluster_json(FakeNodeView().cluster)),
        ("Queue", queue_json(fake_queue())),
        ("Ready", ready_json(passive)),
        ("Live", live_json()),
        ("Error", error_json("a", "b")),
    ):
        assert matches(value, schemas[name], schemas), name
        broken = dict(value) | {"alien": 1}
        assert not matches(broken, schemas[name], schemas), f"{name} would accept anything"


def test_the_document_names_its_version_and_its_lock() -> None:
    document: Any = openapi.document("1.2.3")
    assert document["info"]["version"] == "1.2.3"
    open_paths = [path for path, item in document["paths"].items() if item.get("get", {}).get("security") == []]
    assert sorted(open_paths) == ["/health/live", "/health/ready"]
